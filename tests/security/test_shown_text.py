"""Text of a provider where people see it: control characters are escaped, and long text is cut.

A server fills every place of its answers with sequences that control a terminal, with bidirectional controls and
zero-width characters, or with millions of characters.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import pickle
import sys
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from faults.faulty_share import FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply
from test_hostile_values import QUICK, changed_by, in_files, in_metadata

import delta_sharing_client as ds
from delta_sharing_client import messages
from delta_sharing_client.cli.app import cli
from delta_sharing_client.errors import ColumnError, DataError, DeltaSharingError, RestError
from delta_sharing_client.frames.progress import byte_progress
from delta_sharing_client.messages import message_text, module_logger
from delta_sharing_client.model.names import Share, Table
from delta_sharing_client.model.schema import StructType, UnknownType, parse_schema, parse_type_name
from delta_sharing_client.shown_text import cut, json_printable, listed, printable, shown, similar_name
from delta_sharing_client.tracebacks import public

PACKAGE: Final = Path(ds.__file__).parent
#: ESC and a title, BEL, CSI, DEL, bidirectional controls, zero-width characters, line ends, a byte-order mark.
EVIL: Final = "a\x1b]0;t\x07\x9b31m\x7f\u202eb\u2066\u2069\u200b\u200f\u2028\u2029\x85\ufeff\r\n\tz"
MOST: Final = 10_000
FILES = [File("f0", rows(0, 5), parquet(rows(0, 5)))]


def controls(text: str, keep: str = "\n") -> list[str]:
    """The characters that are no visible text."""
    return [c for c in text if c not in keep and unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs"}]


def check_shown(text: str, keep: str = "\n") -> None:
    assert not controls(text, keep), repr(text[:300])
    assert len(text) < MOST


class TestText:
    def test_escapes(self) -> None:
        assert printable("é 日本 😀") == "é 日本 😀"
        assert printable("\x1b[31m\u202e\U000e0001\n") == r"\x1b[31m\u202e\U000e0001\n"
        assert printable("a\nb\tc", "\n") == "a\nb\\tc"
        check_shown(printable(EVIL), "")
        assert printable(printable(EVIL)) == printable(EVIL)

    def test_json_stays_the_same_json(self) -> None:
        value = {EVIL: [EVIL, "\U000e0001 é 😀", 1]}
        text = json_printable(json.dumps(value, ensure_ascii=False, indent=2))
        check_shown(text)
        assert json.loads(text) == value

    def test_cuts(self) -> None:
        assert cut("abc", 3) == "abc"
        assert cut("x" * 1000 + "end", 30).endswith("end")
        assert len(shown("x" * 10**7)) < 400
        assert len(shown("\x1b" * 10**7)) < 400
        assert listed(["a", "b"]) == "a, b"
        assert listed(f"c{n}" for n in range(10_000)).endswith(" more")
        assert len(listed("x" * 10**6 for _ in range(10_000))) < 1000

    def test_similar_names_take_bounded_time(self) -> None:
        started = time.thread_time()
        assert similar_name("orders", {"order": "Order"}) == "Order"
        assert similar_name("x" * 10**6, {"x" * 10**6: "x"}) is None
        similar_name("ab" * 32, {f"{'ab' * 29}{n:06}": "x" for n in range(50_000)})
        assert time.thread_time() - started < 5


class TestMessages:
    def test_the_remedy_stays(self) -> None:
        for piece in ("x" * 10**7, "x " * 10**7, EVIL * 10**5, "\0" * 10**6):
            text = str(DeltaSharingError(f"table a.b.c: the type {piece} is unknown; leave the column out"))
            check_shown(text, "")
            assert text.startswith("table a.b.c: the type ")
            assert text.endswith("is unknown; leave the column out")

    def test_secrets_that_are_cut_stay_masked(self) -> None:
        for size in (10, 5_000, 30_000, 100_000):
            text = message_text(f"GET https://h/p?sig={'s3cr3t' * size} failed; Bearer {'s3cr3t' * size}")
            assert "s3cr3t" not in text

    def test_what_is_set_later_is_shown_as_well(self) -> None:
        column = ColumnError("no such column")
        column.subject = f"table {EVIL}"
        data = DataError("damaged")
        data.table, data.remedy = EVIL * 1000, f"do {EVIL}"
        for error in (column, data, pickle.loads(pickle.dumps(data))):
            check_shown(str(error), "")

    def test_texts_of_servers_in_attributes(self) -> None:
        error = RestError(
            status=500, subject="table t", error_code=EVIL * 1000, server_message=EVIL * 10**5, hint="Retry"
        )
        check_shown(f"{error.error_code}{error.server_message}{error}{error!r}", "")
        assert str(error).endswith("Retry")
        unknown = UnknownType("x" * 3 * 10**7, "c").error()
        assert len(unknown.type_name) < 1000
        assert len(str(unknown)) < 1000
        assert str(unknown).endswith("columns=[...]")

    def test_exceptions_of_libraries(self) -> None:
        schema = pa.schema([(EVIL, pa.int64())])

        @public
        def fail() -> None:
            raise pa.ArrowInvalid(f"no column {schema.names[0]} {'x' * 10**6}\nsecond line")

        @public
        def fail_with_a_cause() -> None:
            try:
                fail()
            except pa.ArrowInvalid as error:
                raise DataError("cannot be read") from error

        for call in (fail, fail_with_a_cause):
            with pytest.raises(Exception) as caught:
                call()
            check_shown("".join(traceback.format_exception_only(caught.value)), "\n\t")
            check_shown("".join(traceback.format_exception(caught.value)), "\n\t")

    def test_log_records(self, caplog: pytest.LogCaptureFixture) -> None:
        logger = module_logger("delta_sharing_client.test_of_log_records")
        with caplog.at_level(logging.INFO):
            logger.info("%s is %d: %s", EVIL, 3, DataError(EVIL))
            logger.info("%(name)s", {"name": EVIL * 10_000})
            logger.info(EVIL)
            try:
                raise ValueError(EVIL)
            except ValueError:
                logger.exception("failed")
        formatter = logging.Formatter()
        for record in caplog.records:
            check_shown(formatter.format(record), "\n\t")
        assert len(caplog.records) == 4
        assert "is 3: " in caplog.records[0].getMessage()

    def test_warnings(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            messages.warn(EVIL, UserWarning, stacklevel=1)
        check_shown(str(caught[0].message), "")
        assert caught[0].filename == __file__

    def test_progress_bars(self, capsys: pytest.CaptureFixture[str]) -> None:
        with byte_progress(10, True, EVIL * 100) as advance:
            assert advance is not None
            advance(10)
        assert not set(controls(capsys.readouterr().err, "\r\n")) - {"\x1b"}


class TestTypes:
    def test_names_of_types_take_linear_time(self) -> None:
        started = time.thread_time()
        assert isinstance(parse_type_name("geography(" + " " * 400_000 + "x)"), UnknownType)
        assert isinstance(parse_type_name("geography(" + " " * 400_000 + "x"), UnknownType)
        assert time.thread_time() - started < 2

    def test_wide_schemas(self) -> None:
        names = [f"c{n}" for n in range(20_000)]
        fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
        schema = parse_schema(json.dumps({"type": "struct", "fields": fields}))
        started = time.thread_time()
        assert all(schema.find(name.upper()) is not None for name in names)
        assert len(schema.suggestion([f"{name}x" for name in names])) < 2000
        assert time.thread_time() - started < 5
        assert pickle.loads(pickle.dumps(schema)) == schema

    def test_representations(self) -> None:
        evil = {"name": EVIL, "type": EVIL, "nullable": True, "metadata": {"comment": EVIL}}
        schema = parse_schema(json.dumps({"type": "struct", "fields": [evil]}))
        for value in (
            schema,
            schema.fields[0],
            schema.fields[0].type,
            Share(EVIL, comment=EVIL, properties={EVIL: EVIL}),
            Table(EVIL, EVIL, EVIL),
            StructType(schema.fields * 5000),
        ):
            check_shown(repr(value), "")
            if html := getattr(value, "_repr_html_", None):
                assert not controls(html())
        check_shown(str(schema), "")
        huge = Share("n" * 10**7)
        check_shown(repr(huge))
        check_shown(huge._repr_html_())


def evil_metadata(item: dict[str, Any]) -> None:
    columns = [
        {"name": name, "type": kind, "nullable": True, "metadata": {"comment": EVIL}}
        for name, kind in [("id", "long"), ("noise", "long"), ("name", "string"), ("p", "string"), (EVIL, EVIL)]
    ]
    item.update(
        schemaString=json.dumps({"type": "struct", "fields": columns}),
        description=EVIL,
        name=EVIL,
        configuration={EVIL: EVIL},
    )


def huge(item: dict[str, Any]) -> None:
    for key in ("id", "name", "description"):
        item[key] = "x" * 200_000
    columns = [{"name": "n" * 200_000, "type": "t" * 200_000, "nullable": True, "metadata": {}}]
    item.update(schemaString=json.dumps({"type": "struct", "fields": columns}))


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "evil metadata": in_metadata(evil_metadata),
    "huge metadata": in_metadata(huge),
    "an evil schema": in_metadata(lambda item: item.update(schemaString=EVIL)),
    "evil partition columns": in_metadata(lambda item: item.update(partitionColumns=[EVIL, "x" * 10**6])),
    "an evil format": in_metadata(lambda item: item.update(format={"provider": EVIL})),
    "evil partition values": in_files(lambda item: item.update(partitionValues={EVIL: EVIL, "p": EVIL})),
    "an evil id": in_files(lambda item: item.update(id=EVIL, url=EVIL)),
    "a huge id": in_files(lambda item: item.update(id="x" * 10**6, url="x" * 10**6)),
    "evil features": lambda item: item.get("protocol", {}).update(minReaderVersion=9, readerFeatures=[EVIL]),
    "an evil error": lambda item: item.update(endStreamAction={"errorMessage": EVIL * 1000}),
    "an evil action": lambda item: item.update({EVIL: EVIL}),
}
LOADS: Final[dict[str, Callable[[Any], object]]] = {
    "arrow": lambda table: table.scan().to_arrow(),
    "columns": lambda table: table.scan([EVIL, "nope"]).to_arrow(),
    "filter": lambda table: table.scan(filters=[(EVIL, "=", 1)]).to_arrow(),
    "pandas": lambda table: table.scan().to_pandas(),
    "changes": lambda table: table.changes(0).to_arrow(),
    "explain": lambda table: [table.scan().explain()],
    "views": lambda table: [
        table,
        table.schema(),
        table.metadata(),
        table.protocol(),
        table.scan(),
        table.scan().plan(),
    ],
}


@pytest.fixture
def share(server: FaultServer) -> FaultyShare:
    return FaultyShare(server=server, versions=[FILES])


def outcome(load: Callable[[Any], object], table: Any) -> object:
    """What a function returns or raises."""
    try:
        return load(table)
    except Exception as error:  # noqa: BLE001  # any is looked at
        return error


@pytest.mark.parametrize("delta", [False, True], ids=["parquet", "delta"])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers(share: FaultyShare, caplog: pytest.LogCaptureFixture, name: str, delta: bool) -> None:
    share.fault = changed_by(ANSWERS[name], delta=delta)
    with caplog.at_level(logging.DEBUG), ds.SharingClient(share.server.profile, options=QUICK) as client:
        table = client.table("s.s.t")
        for load in LOADS.values():
            found = outcome(load, table)
            if isinstance(found, Exception):
                check_shown(f"{found}\n{found!r}", "\n\t")
                assert not controls("".join(traceback.format_exception(found)), "\n\t")
            for value in found if isinstance(found, list) else ():
                check_shown(f"{value}\n{value!r}")
                if html := getattr(value, "_repr_html_", None):
                    assert not controls(html())
    for record in caplog.records:
        if record.name.startswith(("delta_sharing_client", "urllib3")):
            check_shown(record.getMessage())


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"errorCode": EVIL * 100, "message": EVIL * 1000}).encode(),
        json.dumps({"message": EVIL}, ensure_ascii=False).encode(),
        EVIL.encode() * 1000,
        b"<" * 10**6,
        b"<script" * 10**5,
        b"[" * 10**6,
    ],
    ids=["codes", "raw", "text", "tags", "scripts", "nested"],
)
def test_error_bodies(server: FaultServer, body: bytes) -> None:
    server.on("*", "*", Reply(status=400, body=body))
    started = time.thread_time()
    with ds.SharingClient(server.profile, options=QUICK) as client, pytest.raises(DeltaSharingError) as caught:
        client.list_shares()
    assert time.thread_time() - started < 5
    check_shown(f"{caught.value}", "")


class Screen(io.TextIOWrapper):
    """Stdout as a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


class TestCommandLine:
    """Commands show a table whose column holds, and whose metadata has, control characters."""

    @pytest.fixture
    def url(self, share: FaultyShare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("TERM", "dumb")  # rich then writes no styles
        table = pa.table({"id": [1], "noise": [2], "name": [EVIL]})
        share.versions = [[File("f0", table, parquet(table))]]
        share.__post_init__()

        def fill(item: dict[str, Any]) -> None:
            item.update(description=EVIL, configuration={EVIL: EVIL})
            columns = [("id", "long"), ("noise", "long"), ("name", "string"), ("p", "string")]
            fields = [{"name": n, "type": t, "nullable": True, "metadata": {"comment": EVIL}} for n, t in columns]
            item["schemaString"] = json.dumps({"type": "struct", "fields": fields})

        share.fault = changed_by(in_metadata(fill), delta=False)
        (tmp_path / "p.share").write_text(json.dumps(share.server.profile))
        (tmp_path / "p.share").chmod(0o600)
        return f"{tmp_path / 'p.share'}#s.s.t"

    def run(self, monkeypatch: pytest.MonkeyPatch, *arguments: str, terminal: bool) -> str:
        out = Screen(terminal=terminal)
        monkeypatch.setattr(sys, "stdout", out)
        cli.main([*arguments], standalone_mode=False)
        return out.text()

    @pytest.mark.parametrize("output", ["table", "json", "csv"])
    @pytest.mark.parametrize("command", ["head", "show", "schema"])
    def test_a_terminal_gets_no_control_character(
        self, monkeypatch: pytest.MonkeyPatch, url: str, command: str, output: str
    ) -> None:
        text = self.run(monkeypatch, command, url, "--output", output, terminal=True)
        assert not controls(text), repr(text)
        assert "u202e" in text
        if output == "json":
            assert EVIL in walk(json.loads(text))

    @pytest.mark.parametrize("file_format", ["csv", "jsonl"])
    def test_rows_for_a_terminal_and_for_a_pipe(
        self, monkeypatch: pytest.MonkeyPatch, url: str, file_format: str
    ) -> None:
        command = ("export", url, "-", "--format", file_format)
        assert not controls(self.run(monkeypatch, *command, terminal=True))
        exact = self.run(monkeypatch, *command, terminal=False)
        assert (EVIL if file_format == "csv" else json.dumps(EVIL, ensure_ascii=False)) in exact

    def test_a_pipe_gets_the_exact_data(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        assert EVIL in self.run(monkeypatch, "head", url, "-o", "csv", terminal=False)
        assert EVIL in self.run(monkeypatch, "show", url, "-o", "csv", terminal=False)
        shown_facts = json.loads(self.run(monkeypatch, "show", url, "-o", "json", terminal=False))
        assert shown_facts["description"] == EVIL

    def test_no_binary_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        with pytest.raises(Exception, match="redirect it"):
            self.run(monkeypatch, "export", url, "-", "--format", "arrow", terminal=True)

    def test_errors_and_warnings(
        self, monkeypatch: pytest.MonkeyPatch, url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for arguments in (
            ("head", url, "--columns", f"nope{EVIL}".replace(",", "")),
            ("head", url.replace("s.s.t", f"s.s.{EVIL}")),
            ("ls", url.replace("s.s.t", f"{EVIL}.s")),
            ("--debug", "head", url.replace("s.s.t", f"s.s.x{chr(0x202E)}")),
        ):
            with pytest.raises((SystemExit, Exception)):
                cli.main([*arguments], standalone_mode=False)
                raise SystemExit
            text = capsys.readouterr().err
            assert not controls(text), repr(text)


def walk(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from walk(each)


@cache
def parsed() -> dict[str, list[ast.AST]]:
    """The nodes of the syntax trees of the package's modules."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    return {name: list(ast.walk(ast.parse(path.read_text("utf-8")))) for name, path in paths.items()}


def callers(name: str) -> set[str]:
    """The modules that call a function."""
    return {
        module
        for module, nodes in parsed().items()
        if any(isinstance(node, ast.Call) and ast.unparse(node.func) == name for node in nodes)
    }


#: The only modules that call what shows text, because no other text of a provider passes there.
ALLOWED: Final = {
    "click.echo": {"cli/output.py"},
    "print": set(),
    "warnings.warn": {"messages.py"},
    "sys.stdout.write": {"cli/output.py", "server/__main__.py"},
    "sys.stderr.write": {"cli/__init__.py", "auth/openid.py", "server/__main__.py"},
    "logging.getLogger": {
        "messages.py",
        "tracebacks.py",
        "cli/command.py",
        "transport/log_redaction.py",
        "spark/data_source.py",
    },
}


@pytest.mark.parametrize("name", ALLOWED)
def test_text_is_shown_through_one_function(name: str) -> None:
    assert callers(name) <= ALLOWED[name]


def test_errors_override_the_sentence_and_not_the_message() -> None:
    for nodes in parsed().values():
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and node.name != "DeltaSharingError":
                assert "__str__" not in {getattr(item, "name", "") for item in node.body}, node.name
