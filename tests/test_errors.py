"""Errors: tree, pickles, messages, attributes, redaction."""

import copy
import inspect
import pickle

import pytest

from delta_sharing_client import errors
from delta_sharing_client.errors import DeltaSharingError

CANARY = "c4n4ryQ7x9ZkT2"
CLASSES = sorted(
    (c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, DeltaSharingError)),
    key=lambda c: c.__name__,
)
#: A value for each parameter name that a constructor of the tree has.
VALUES = {
    "message": f"something failed at https://host/p?sig={CANARY}",
    "reason": f"could not be read, Bearer {CANARY}",
    "field": "endpoint",
    "source": "/home/me/p.share",
    "setting": "DELTA_SHARING_OPTION_READ_TIMEOUT",
    "columns": ["a", "b.c"],
    "location": "s3://bucket/table",
    "access_modes": ["dir"],
    "commit_info": {"operation": "WRITE"},
    "status": 503,
    "subject": "table share.schema.t",
    "error_code": "INTERNAL",
    "server_message": f'failed: {{"access_token": "{CANARY}"}} Bearer {CANARY}',
    "hint": "Try again later",
    "url": f"https://user:{CANARY}@host/path?sig={CANARY}",
    "expected": 3,
    "latest": 6,
    "actual": 4,
    "features": ["deletionVectors", "x"],
    "type_name": "interval",
    "file_id": "f-1",
    "path": "/tmp/table",
    "target": "DuckDB table 't'",
    "version": 7,
    "txn_id": "5b1e",
    "command": "delta-sharing login config.share",
    "package": "polars",
    "extra": "polars",
    "purpose": "to_polars()",
}


def make(cls):
    """An instance with every argument that the constructor takes."""
    positional, keywords = [], {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords[name] = VALUES[name]
        else:
            positional.append(VALUES[name])
    return cls(*positional, **keywords)


def make_least(cls):
    """An instance with only the arguments that have no default."""
    positional, keywords = [], {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is not parameter.empty:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords[name] = VALUES[name]
        else:
            positional.append(VALUES[name])
    return cls(*positional, **keywords)


def test_the_tree_is_the_one_drawn_in_the_docstring():
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if "Error" not in line or not line.startswith("    "):
            continue
        body = line[4:]
        stripped = body.lstrip("│├└─ ")
        depth = (len(body) - len(stripped)) // 4
        name = stripped.split()[0]
        del path[depth:]
        drawn[name] = path[-1] if path else None
        path.append(name)
    real = {
        c.__name__: None if c is DeltaSharingError else next(b.__name__ for b in c.__bases__ if b in CLASSES)
        for c in CLASSES
    }
    assert drawn == real


def test_misuse_is_a_value_error_too():
    assert issubclass(errors.TableNameError, ValueError)
    assert issubclass(errors.ColumnError, ValueError)
    assert issubclass(errors.FilterError, ValueError)
    assert issubclass(errors.MissingDependencyError, ImportError)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("build", [make, make_least])
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_errors_survive_pickling(cls, build, protocol):
    error = build(cls)
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is cls
    assert str(again) == str(error)
    assert repr(again) == repr(error)
    assert vars(again) == vars(error)
    assert again.args == error.args


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_errors_survive_copying_and_keep_notes(cls):
    error = make(cls)
    error.add_note("while reading")
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is cls
        assert str(again) == str(error)
        assert again.__notes__ == ["while reading"]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_messages_are_not_empty_and_hide_secrets(cls):
    error = make(cls)
    assert str(error).strip()
    assert CANARY not in str(error)
    assert CANARY not in repr(error)
    assert CANARY not in repr(vars(error))
    assert CANARY.encode() not in pickle.dumps(error)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_attributes_hold_the_arguments(cls):
    error = make(cls)
    for name in inspect.signature(cls).parameters:
        if name in {"message", "reason", "hint", "purpose", "server_message", "url"}:
            continue
        value = VALUES[name]
        assert getattr(error, name) == (tuple(value) if isinstance(value, list) else value), name


def test_messages_of_errors():
    assert (
        str(errors.RestError(status=500, subject="table a.b.c")) == "table a.b.c: the sharing server answered 500"
    )
    full = errors.NotFoundError(
        status=404, subject="table a.b.c", error_code="NOT_FOUND", server_message="no table", hint="Check the name"
    )
    assert str(full) == ("table a.b.c: the sharing server answered 404 (NOT_FOUND: no table). Check the name")
    assert str(errors.QueryError(subject="table a.b.c", server_message="boom", status=500)) == (
        "table a.b.c: the sharing server failed while answering (status 500): boom"
    )
    assert str(errors.DataError("is damaged", file_id="f1")) == "file f1: is damaged"
    assert str(errors.DataError("is damaged")) == "is damaged"
    assert str(errors.TransportError("refused", url="https://h/p?x=1")) == "https://h/p?***: refused"
    assert str(errors.DeltaLogError("no", path="/t")) == "/t: no"
    assert str(errors.ProfileError("bad", source="x.share")) == "profile x.share: bad"
    assert "pip install 'delta-sharing-client[polars]'" in str(make(errors.MissingDependencyError))


def test_long_server_messages_are_cut():
    for error in (
        errors.QueryError(subject="table a.b.c", server_message="x " * 1_000_000),
        errors.RestError(subject="table a.b.c", status=500, server_message="x " * 1_000_000),
    ):
        assert len(str(error)) < 10_000
        assert len(error.server_message or "") < 10_000


def test_an_interrupt_while_a_thread_starts_is_the_interrupt():
    with pytest.raises(KeyboardInterrupt):
        try:
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("cannot notify on un-acquired lock")
        except RuntimeError as error:
            raise errors.no_thread(error) from None
    assert isinstance(errors.no_thread(RuntimeError("can't start new thread")), DeltaSharingError)
