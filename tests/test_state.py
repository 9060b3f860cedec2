"""All that changes is in one object per client; functions that take a table URL share one from call to call."""

from __future__ import annotations

import ast
import gc
import json
import os
import threading
import weakref
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from faults.faulty_share import FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request

import delta_sharing_client as ds
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.state import ClientState, DefaultStates

PACKAGE = Path(ds.__file__).parent

#: What is made once for a process, by module and name, and why.
ALLOWED = {
    # Values that depend on their arguments alone.
    ("model/schema.py", "lru_cache"): "a schema by its text",
    ("options.py", "lru_cache"): "the releases of this package and of Python",
    ("parquet/arrow_types.py", "lru_cache"): "the Arrow schema of a schema",
    ("parquet/legacy_calendar.py", "cache"): "the time zones in a file of this package",
    ("frames/pandas_columns.py", "lru_cache"): "a property of the installed pandas",
    ("transport/url_rules.py", "lru_cache"): "rules about the text of a URL; no name is resolved",
    ("spark/code_distribution.py", "lru_cache"): "the zip of this package's code, by process",
    ("log/object_store.py", "lru_cache"): "of one store: content by the path and the status of a file",
    # Libraries that are one for the whole process, and what a thread does at present.
    ("log/object_store.py", "_MEMORY"): "the memory file system of fsspec",
    ("transport/log_redaction.py", "threading.local"): "the loggers of urllib3",
    ("transport/log_redaction.py", "_sending"): "the loggers of urllib3",
    ("transport/meanwhile.py", "threading.local"): "the work of a thread while it waits",
    ("transport/meanwhile.py", "_jobs"): "the work of a thread while it waits",
    ("transport/cancellation.py", "threading.local"): "of one transport: the event that a thread uses sockets for",
    # What a forked process replaces.
    ("fork_safe.py", "_known"): "weak references to what a forked process replaces",
    ("fork_safe.py", "_locks"): "weak references to the locks that a forked process frees",
    ("state.py", "default_states"): "functions that take a table URL have no client",
    ("log/log.py", "_cache"): "`DeltaLog.for_table` has no client; each use of a log lists it again",
    # Executors have no client and no session.
    ("spark/executor.py", "lru_cache"): "jobs by their bytes; connections by their options",
}

#: Types whose objects change, or guard what does.
MUTABLE = {
    *(
        "dict",
        "set",
        "list",
        "bytearray",
        "defaultdict",
        "deque",
        "Counter",
        "OrderedDict",
        "ChainMap",
        "ContextVar",
    ),
    *(
        "WeakSet",
        "WeakKeyDictionary",
        "WeakValueDictionary",
        "Lock",
        "RLock",
        "ForkSafeLock",
        "ForkSafeRLock",
        "local",
    ),
    *(
        "Condition",
        "Semaphore",
        "BoundedSemaphore",
        "Event",
        "Barrier",
        "Queue",
        "SimpleQueue",
        "ThreadPoolExecutor",
    ),
}
CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"),
    *("setdefault", "update", "move_to_end"),
}


def name_of(node: ast.expr | None) -> str:
    """Return the last name of an expression: of `a.b[c](d)` it is b."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def within_functions(tree: ast.AST) -> set[ast.AST]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {child for function in functions for child in ast.walk(function) if child is not function}


def fields_of(tree: ast.AST) -> set[ast.AST]:
    """Return the annotated fields of classes, whose defaults each object copies."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    annotated = [each for node in classes for each in node.body if isinstance(each, ast.AnnAssign)]
    return {each for each in annotated if "ClassVar" not in ast.unparse(each.annotation)}


def changed_names(tree: ast.AST) -> set[str]:
    """Return the names of what a module changes in place."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.add(name_of(node.value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            found.add(name_of(node.func.value))
    return found


def is_stateful(node: ast.ClassDef) -> bool:
    """Whether the objects of a class have a lock, or change in a forked process."""
    made = [name_of(each) for each in ast.walk(node) if isinstance(each, ast.Call)]
    return any(name_of(base) in {"ForkAware", "local"} for base in node.bases) or any(
        "Lock" in each for each in made
    )


def kept_by_process(source: str, mutable: Collection[str] = MUTABLE) -> set[str]:
    """Return the names of what a module, or a class in it, keeps for a whole process, and that may change.

    Args:
        source: the module.
        mutable: the names of types whose objects change, or guard what does.
    """
    tree = ast.parse(source)
    functions, fields, changed, found = within_functions(tree), fields_of(tree), changed_names(tree), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "functools":
            found.update({alias.name for alias in node.names} & {"lru_cache", "cache"})
        elif isinstance(node, ast.Attribute) and name_of(node.value) == "functools":
            found.update({node.attr} & {"lru_cache", "cache"})
        elif isinstance(node, ast.ClassDef) and any(name_of(base) == "local" for base in node.bases):
            found.add("threading.local")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node not in functions | fields:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            makes = isinstance(node.value, ast.Call) and name_of(node.value) in mutable
            if makes and name_of(node.value) in {"dict", "set", "list"} and not changed & names:
                continue
            displays = isinstance(node.value, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.DictComp)
            if makes or (displays and changed & names):
                found |= names
    return found


def test_nothing_that_may_be_outdated_is_kept_for_a_process() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    trees = [ast.parse(source) for source in sources.values()]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    stateful = {node.name for node in classes if is_stateful(node)}
    mutable = (MUTABLE - {node.name for node in classes}) | stateful
    assert {"KnownTables", "LogCache", "BaseTransport", "TlsContext", "DefaultStates"} <= stateful
    found = {(path, name) for path, source in sources.items() for name in kept_by_process(source, mutable)}
    assert found - ALLOWED.keys() == set(), (
        "state belongs to a client, see state.py, or to ALLOWED with its reason"
    )
    assert ALLOWED.keys() - found == set()
    hooks = [path for path, source in sources.items() if "register_at_fork(" in source]
    assert hooks == ["fork_safe.py"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("lock = threading.Lock()", {"lock"}),
        ("class A:\n    seen: ClassVar = set()\n    def f(self): self.seen.add(1)", {"seen"}),
        ("if x:\n    _pools: dict[str, int] = {}\ndef f(): _pools['a'] = 1", {"_pools"}),
        ("from functools import lru_cache\n@lru_cache(maxsize=1)\ndef f(): pass", {"lru_cache"}),
        ("import functools\nf = functools.cache(g)", {"cache"}),
        ("def f():\n    global x\n    x = 1", {"x"}),
        ("class A(threading.local): pass", {"threading.local"}),
        ("_held = weakref.WeakKeyDictionary()", {"_held"}),
        ("tables = Known()", {"tables"}),
        ("NAMES = {'a': 1}\ndef f():\n    names = {}\n    names['a'] = threading.Lock()", set()),
        ("class A:\n    def __init__(self): self.cache = {}; self.cache['a'] = 1", set()),
    ],
)
def test_what_is_kept_for_a_process_is_found(source: str, found: set[str]) -> None:
    assert kept_by_process(source, MUTABLE | {"Known"}) == found


class Share:
    """A share with a token endpoint, and its profile in a file."""

    def __init__(self, server: FaultServer, folder: Path) -> None:
        self.server, self.path = server, folder / "config.share"
        self.share = FaultyShare(server=server, versions=[[File("f", rows(0, 30), parquet(rows(0, 30)))]])
        self.tokens = 0
        server.on("POST", "/token", self._token)
        self.write("s")

    def _token(self, request: Request) -> Reply:
        self.tokens += 1
        return Reply.of_json({"access_token": f"t{self.tokens}", "expires_in": 3600, "token_type": "bearer"})

    def write(self, secret: str) -> None:
        profile = {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "endpoint": self.server.profile["endpoint"],
            "tokenEndpoint": f"{self.server.url}/token",
            "clientId": "c",
            "clientSecret": secret,
        }
        self.path.write_text(json.dumps(profile))
        self.path.chmod(0o600)

    def load(self, **options: Any) -> int:
        return ds.load_as_arrow(f"{self.path}#s.s.t", **options).num_rows


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    with FaultServer() as server:
        yield Share(server, tmp_path)


def test_calls_share_a_token(share: Share) -> None:
    for _ in range(3):
        assert share.load() == 30
    assert ds.get_table_version(f"{share.path}#s.s.t") == 0
    assert share.tokens == 1


def test_a_changed_profile_has_its_own_token(share: Share) -> None:
    share.load()
    share.write("other")
    share.load()
    assert share.tokens == 2


def test_other_options_have_their_own_token(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    share.load(options=ds.TransportOptions())
    share.load()
    assert share.tokens == 1
    share.load(options=ds.TransportOptions(max_connections=3))
    assert share.tokens == 2
    monkeypatch.setenv("DELTA_SHARING_OPTION_MAX_CONNECTIONS", "4")
    share.load()
    assert share.tokens == 3


def test_credential_providers_are_told_apart_by_their_identity(share: Share) -> None:
    class Vault:
        asked = 0

        def token(self) -> tuple[str, timedelta]:
            self.asked += 1
            return "t", timedelta(hours=1)

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    one, other = Vault(), Vault()
    for vault in (one, one, other, other):
        share.load(credential_provider=vault.token)
    assert (one.asked, other.asked) == (1, 1)
    for _ in range(3):
        share.load(credential_provider=lambda: other.token())
    assert other.asked == 4


def test_concurrent_calls_use_one_state_and_close_its_connections_at_the_end(share: Share) -> None:
    barrier = threading.Barrier(8)

    def loads() -> list[int]:
        barrier.wait()
        return [share.load() for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(loads) for _ in range(8)]
        assert [future.result() for future in futures] == [[30, 30, 30]] * 8
    assert share.tokens == 1


def profile(number: int = 0) -> Profile:
    fields = {
        "shareCredentialsVersion": 1,
        "endpoint": f"http://127.0.0.1:{number + 1}/x",
        "bearerToken": "secret",
    }
    return Profile.from_dict(fields)


class TestDefaultStates:
    OPTIONS = TransportOptions()

    def used(self, states: DefaultStates, number: int = 0) -> ClientState:
        with states.use(profile(number), self.OPTIONS, None) as state:
            return state

    def test_the_least_recently_used_state_is_forgotten_first(self) -> None:
        states = DefaultStates()
        first = [weakref.ref(self.used(states, number)) for number in range(8)]
        assert self.used(states, 0) is first[0]()
        self.used(states, 8)
        gc.collect()
        assert [number for number, state in enumerate(first) if state() is None] == [1]

    def test_the_connections_are_closed_when_the_last_use_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        states, closed = DefaultStates(), []
        monkeypatch.setattr(ClientState, "close", lambda state: closed.append(state))
        with states.use(profile(), self.OPTIONS, None) as state:
            with states.use(profile(), self.OPTIONS, None) as same:
                assert same is state
            states.clear()
            assert closed == []
        assert closed == [state]

    def test_a_use_that_was_interrupted_between_two_lines_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        states, closed = DefaultStates(), []
        monkeypatch.setattr(ClientState, "close", lambda state: closed.append(state))
        use = states.use(profile(), self.OPTIONS, None)
        state = use.__enter__()
        (entry,) = states._entries.values()
        del use  # as if the interrupt had come before the block
        gc.collect()
        assert len(entry.uses) == 0
        assert self.used(states) is state
        assert closed[-1] is state

    def test_a_key_shows_no_secret(self) -> None:
        states = DefaultStates()
        self.used(states)
        assert "secret" not in repr(states._entries)

    def test_a_certificate_of_the_environment_is_part_of_the_key(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        states = DefaultStates()
        first = self.used(states)
        (tmp_path / "ca.pem").write_text("")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        assert self.used(states) is not first

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_process_starts_with_none(self) -> None:
        states = DefaultStates()
        first = self.used(states)
        child = os.fork()
        if not child:
            os._exit(int(self.used(states) is first))
        assert os.waitpid(child, 0)[1] == 0
        assert self.used(states) is first


def test_a_state_is_closed_as_often_as_one_likes(share: Share) -> None:
    with ds.SharingClient(share.path) as client:
        for _ in range(2):
            assert client.table("s.s.t").to_arrow().num_rows == 30
            client.close()
            client.close()
    assert share.tokens == 1


def test_known_metadata_belongs_to_the_client(share: Share) -> None:
    """Two recipients may see other tables by the same name."""
    clients = [ds.SharingClient(share.path) for _ in range(2)]
    clients[0].table("s.s.t").scan(filters="id > 1").to_arrow()
    known = [client._rest.known_tables for client in clients]
    assert known[0].get(clients[0].table("s.s.t").name) is not None
    assert known[1].get(clients[1].table("s.s.t").name) is None
    for client in clients:
        client.close()
