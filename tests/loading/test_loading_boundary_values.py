"""Boundary values of each type: deltalake's statistics of them, and filters on them.

Each type has a table whose files hold a value or two, so that nearly every comparison is decided by bounds. The
oracle compares in plain Python. Statistics may only leave out files without a matching row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_sharing_client import DeltaLog, SharingClient
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.model.actions import AddFile, Metadata
from delta_sharing_client.scan.file_tasks import SkipReason, TaskPlanner, read_spec
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.wire.file_block import FileBlock

_EPOCH: Final = datetime(1970, 1, 1)
_OPERATORS: Final = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXACT: Final = Context(prec=80)


def _micros(*parts: int) -> int:
    return (datetime(*parts) - _EPOCH) // timedelta(microseconds=1)  # type: ignore[arg-type]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    limits = [10**precision - 1, 2**63, 2**64, 2**53, 10**19, 10**37, 10**15, int("1234567890" * 4)]
    # The limits of 64 bits, as unscaled numbers and as numbers.
    limits += [limit * 10**scale for limit in (2**63, 2**64, 2**53)]
    near = {sign * (limit + off) for limit in limits for off in (-1, 0, 1) for sign in (-1, 1)} | {-1, 0, 1}
    kept = sorted(number for number in near if abs(number) < 10**precision)
    return [Decimal(number).scaleb(-scale, _EXACT) for number in kept]


def _integers(bits: int) -> list[int]:
    near = {sign * (limit + off) for limit in (2**31, 2**53, 2**63) for off in (-2, -1, 0, 1) for sign in (-1, 1)}
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return sorted(
        {n for n in near if lowest <= n <= highest} | {lowest, lowest + 1, -1, 0, 1, highest - 1, highest}
    )


_FLOATS: Final = [math.nan, -math.inf, -1.0, -0.0, 0.0, 1.0, math.inf]
_MOMENTS: Final = [
    _micros(1, 1, 1),
    _micros(1582, 10, 4, 23, 59, 59, 999999),
    _micros(1677, 9, 21, 0, 12, 43, 145224),
    -1_000_001,
    -1500,
    -1001,
    -1,
    0,
    1,
    999,
    1000,
    999_999,
    _micros(2262, 4, 11, 23, 47, 16, 854775),
    _micros(9999, 12, 31, 23, 59, 59, 999999),
]
#: Beyond what Python's own types hold; filters cannot name them.
_BEYOND: Final = [_micros(9999, 12, 31, 23, 59, 59, 999999) + 1, 2**63 - 1, -(2**63) + 1]
_TEXTS: Final = [
    "",
    "a",
    "?",
    *("\0", "\0\0", "a\0", "a\0\0", "a\0b", "\0" * 40),
    "\x7f" * 33,
    *("a" * n for n in (31, 32, 33, 63, 64, 65, 100)),
    *(
        "a" * n + end
        for n in (31, 32, 63)
        for end in ("\U0001f600", "\U0001f600x", "\ufffd", "\uffffz", "\ud7ff" * 9)
    ),
    *("a" * n + "\U0010ffff" * 9 for n in (30, 31, 62)),
    "\U0010ffff" * 40,
    "\U0001f600" * 40,
    "\u00e9" * 40,
    "\ue000",
    "\U0001f600",
]


def _time_literal(value: int) -> Any:
    return _EPOCH + timedelta(microseconds=value)


def _day_literal(value: int) -> Any:
    return date(1970, 1, 1) + timedelta(days=value)


#: By name: the Arrow type, the values as plain Python, and what makes a literal of a value.
_KINDS: Final[dict[str, tuple[pa.DataType, list[Any], Callable[[Any], Any]]]] = {
    **{
        f"decimal_{p}_{s}": (pa.decimal128(p, s), _decimals(p, s), lambda value: value)
        for p, s in ((15, 4), (18, 0), (18, 4), (19, 0), (20, 1), (38, 0), (38, 2), (38, 10), (38, 18), (38, 38))
    },
    "int8": (pa.int8(), _integers(8), int),
    "int32": (pa.int32(), _integers(32), int),
    "int64": (pa.int64(), _integers(64), int),
    "float32": (
        pa.float32(),
        [*_FLOATS, 0.10000000149011612, 3.4028234663852886e38, 2.0**-149, 16777216.0],
        float,
    ),
    "float64": (
        pa.float64(),
        [*_FLOATS, 0.1, 0.3, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 2.0**53, 1e22, 123456789.12345679],
        float,
    ),
    "string": (pa.string(), _TEXTS, str),
    "binary": (pa.binary(), [b"", b"\0", b"a", b"a\0", b"a\0\0", b"\xff"], bytes),
    "date": (pa.date32(), [-719162, -719163, -800000, -1, 0, 1, 2932896, 2932897, 3000000], _day_literal),
    "timestamp": (pa.timestamp("us", "UTC"), [*_MOMENTS, *_BEYOND], _time_literal),
    "timestamp_ntz": (pa.timestamp("us"), [*_MOMENTS, *_BEYOND], _time_literal),
    "boolean": (pa.bool_(), [False, True], bool),
}
_PLAIN: Final = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}


def _rows(values: list[Any]) -> list[tuple[int, Any]]:
    """Rows as (file, value): each value alone, some with another, some with a null, all together."""
    files: list[list[Any]] = [[value] for value in values]
    files += [list(pair) for pair in zip(values[::5], values[3::5], strict=False)]
    files += [[value, None] for value in values[::7]] + [[None], values]
    return [(number, value) for number, file in enumerate(files) for value in file]


ROWS: Final = {kind: _rows(values) for kind, (_, values, _) in _KINDS.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for kind, (arrow_type, _, _) in _KINDS.items():
        folder = tmp_path_factory.mktemp("extremes") / kind
        values = pa.array([value for _, value in ROWS[kind]], _PLAIN.get(kind, arrow_type)).cast(arrow_type)
        data = pa.table({"file": [number for number, _ in ROWS[kind]], "id": range(len(values)), "c": values})
        write_deltalake(folder, data, partition_by=["file"])
        made[kind] = folder
    return made


@pytest.fixture(scope="module")
def tables(folders: dict[str, Path], serve: Any, connect: Any) -> SharingClient:
    return connect(serve({f"share.extremes.{kind}": folder for kind, folder in folders.items()}))


def _matching(kind: str, holds: Callable[[Any], bool]) -> list[int]:
    return [number for number, (_, value) in enumerate(ROWS[kind]) if value is not None and holds(value)]


def _ids(client: SharingClient, kind: str, filters: Any) -> list[int]:
    scan = client.table(f"share.extremes.{kind}").scan(columns=["id"], filters=filters)
    return sorted(scan.to_arrow()["id"].to_pylist())


def _literals(kind: str) -> list[tuple[Any, Any]]:
    """Literals as pairs of a Python value and its form in a filter."""
    _, values, literal = _KINDS[kind]
    if kind.startswith("timestamp"):
        values = _MOMENTS
    elif kind == "date":
        values = [value for value in values if -719162 <= value <= 2932896]
    return [(value, literal(value)) for value in values]


_SOME: Final = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("kind", _KINDS)
@given(data=st.data())
@_SOME
def test_filters_agree_with_plain_python(tables: SharingClient, kind: str, data: Any) -> None:
    op = data.draw(st.sampled_from(sorted(_OPERATORS)))
    value, literal = data.draw(st.sampled_from(_literals(kind)))
    other, another = data.draw(st.sampled_from(_literals(kind)))
    one = _ids(tables, kind, [("c", op, literal)])
    assert one == _matching(kind, lambda held: _OPERATORS[op](held, value))
    two = _ids(tables, kind, [[("c", op, literal)], [("c", "in", [literal, another]), ("id", ">", 3)]])
    either = [n for n in _matching(kind, lambda held: held in (value, other) and held == held) if n > 3]
    assert two == sorted({*one, *either})
    assert tables.table(f"share.extremes.{kind}").scan(filters=[("c", op, literal)]).count() == len(one)


def _block(files: Iterable[Any]) -> FileBlock:
    return FileBlock.of(
        [AddFile(SecretUrl("https://h/p"), "f", file.partition_values, 10, file.stats) for file in files]
    )


@pytest.mark.parametrize("kind", _KINDS)
@given(data=st.data())
@_SOME
def test_data_skipping_keeps_every_file_with_a_matching_row(
    folders: dict[str, Path], kind: str, data: Any
) -> None:
    """Without the server, which leaves out files as well."""
    snapshot = DeltaLog.for_table(folders[kind]).snapshot()
    logged = snapshot.metadata
    metadata = Metadata(logged.id, logged.schema_string, partition_columns=logged.partition_columns)
    held: dict[str, list[Any]] = {}
    for number, value in ROWS[kind]:
        held.setdefault(str(number), []).append(value)
    op = data.draw(st.sampled_from(sorted(_OPERATORS)))
    for value, literal in _literals(kind):
        make = TaskPlanner(read_spec(metadata, None, bind_filters([("c", op, literal)], metadata.schema)))
        for file, made in zip(snapshot.files, make(_block(snapshot.files)), strict=True):
            rows = held[str(file.partition_values["file"])]
            if isinstance(made, SkipReason):
                assert not any(row is not None and _OPERATORS[op](row, value) for row in rows), file.stats
            else:
                assert not made.all_rows_match


def test_data_skipping_leaves_out_most_files(folders: dict[str, Path]) -> None:
    """What is read in vain is a few files with values near the literal."""
    snapshot = DeltaLog.for_table(folders["int64"]).snapshot()
    logged = snapshot.metadata
    metadata = Metadata(logged.id, logged.schema_string, partition_columns=logged.partition_columns)
    make = TaskPlanner(read_spec(metadata, None, bind_filters([("c", "=", 2**31)], metadata.schema)))
    made = list(make(_block(snapshot.files)))
    assert sum(not isinstance(one, SkipReason) for one in made) < 6 < len(made)


def test_count_reads_no_file_when_partition_values_decide(
    folders: dict[str, Path], serve: Any, connect: Any
) -> None:
    server = serve({"share.extremes.int8": folders["int8"]})
    table = connect(server).table("share.extremes.int8")
    assert table.scan(filters=[("file", "in", [0, 1]), ("file", "is not", None)]).count() == 2
    assert [request for request in server.requests if request.is_file] == []
    # The bounds of these files lie above their values, and must not be trusted.
    assert table.scan(filters=[("file", "in", [0, 1]), ("c", ">=", -128)]).count() == 2
    assert len([request for request in server.requests if request.is_file]) == 2
