"""Every type, stored and read back: the same values, or what the docs say of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from change_tables import ChangeTable, column
from deltalake import DeltaTable
from sink_targets import Target, drain

from delta_sharing_client.errors import SinkError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]

NESTED = {
    "type": "struct",
    "fields": [
        column("d", "decimal(20,3)"),
        column("l", {"type": "array", "elementType": "timestamp", "containsNull": True}),
        column("b", "binary"),
    ],
}
MAP = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}
COLUMNS = [
    column("id", "long"),
    column("byte", "byte"),
    column("short", "short"),
    column("int", "integer"),
    column("float", "float"),
    column("double", "double"),
    column("dec", "decimal(38,10)"),
    column("flag", "boolean"),
    column("text", "string"),
    column("bytes", "binary"),
    column("day", "date"),
    column("at", "timestamp"),
    column("wall", "timestamp_ntz"),
    column("nested", NESTED),
    column("map", MAP),
]
AT = datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC)
ONE: dict[str, Any] = {
    "id": 2**62 + 1,
    "byte": -128,
    "short": 32767,
    "int": -(2**31),
    "float": 0.5,
    "double": float("-inf"),
    "dec": Decimal("1234567890123456789012345678.0123456789"),
    "flag": True,
    "text": 'ü"\x00\U0001f600',
    "bytes": b"\x00\xff",
    "day": date(1582, 10, 15),
    "at": AT,
    "wall": datetime(1, 1, 1, 0, 0, 0, 1),
    "nested": {"d": Decimal("-0.001"), "l": [AT, None], "b": b"ab"},
    "map": [("a", 1.5), ("nan", float("inf")), ("none", None)],
}


def arrow_rows() -> pa.Table:
    nested = pa.struct(
        [("d", pa.decimal128(20, 3)), ("l", pa.list_(pa.timestamp("us", "UTC"))), ("b", pa.binary())]
    )
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("byte", pa.int8()),
            ("short", pa.int16()),
            ("int", pa.int32()),
            ("float", pa.float32()),
            ("double", pa.float64()),
            ("dec", pa.decimal128(38, 10)),
            ("flag", pa.bool_()),
            ("text", pa.string()),
            ("bytes", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("wall", pa.timestamp("us")),
            ("nested", nested),
            ("map", pa.map_(pa.string(), pa.float64())),
        ]
    )
    empty = dict.fromkeys(ONE) | {"id": 1}
    nan = empty | {"id": 2, "float": float("nan"), "double": float("nan"), "text": "", "map": []}
    return pa.Table.from_pylist([ONE, empty, nan], schema=schema)


@pytest.fixture
def shared(tmp_path: Path, share: Share) -> SharedTable:
    table = ChangeTable(tmp_path / "source", COLUMNS, features=["timestampNtz"])
    table.commit(table.add("f", arrow_rows()))
    return share(table.root)


def stored(shared: SharedTable, target: Target) -> None:
    with (
        target.sink(mode="apply", keys=["id"]) as sink,
        shared.poll_changes(starting_version="snapshot", response_format="delta") as poller,
    ):
        drain(poller, sink)


def test_delta(shared: SharedTable, tmp_path: Path, share: Share) -> None:
    target = Target("delta", tmp_path / "target")
    stored(shared, target)
    again = share(target.path).scan(response_format="delta").to_arrow()
    assert str(again.to_pylist()) == str(arrow_rows().to_pylist())
    assert again.schema == shared.scan(response_format="delta").to_arrow().schema
    read = DeltaTable(target.path).to_pyarrow_table()
    assert str(read.to_pylist()) == str(arrow_rows().to_pylist())


def test_duckdb(shared: SharedTable, tmp_path: Path) -> None:
    target = Target("duckdb", tmp_path / "target")
    stored(shared, target)
    with duckdb.connect(str(target.path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        table = pa.table(connection.sql("SELECT * FROM t ORDER BY id DESC"))
    given = arrow_rows().sort_by([("id", "descending")]).to_pylist()
    found = table.to_pylist()
    assert [str(row) for row in found] == [str(row) for row in given]
    assert table.schema.field("dec").type == pa.decimal128(38, 10)


def test_sqlite(shared: SharedTable, tmp_path: Path) -> None:
    target = Target("sqlite", tmp_path / "target")
    stored(shared, target)
    rows = {row[0]: dict(zip(target.names(), row, strict=True)) for row in target.execute("SELECT * FROM t")}
    one = rows[ONE["id"]]
    assert one == {
        **{name: ONE[name] for name in ("id", "byte", "short", "int", "float", "double", "text", "bytes")},
        "flag": 1,
        "dec": "1234567890123456789012345678.0123456789",
        "day": "1582-10-15",
        "at": "2024-02-29 23:59:59.999999+00:00",
        "wall": "0001-01-01 00:00:00.000001",
        "nested": one["nested"],
        "map": one["map"],
    }
    assert json.loads(one["nested"]) == {
        "d": "-0.001",
        "l": ["2024-02-29 23:59:59.999999+00:00", None],
        "b": "YWI=",
    }
    assert json.loads(one["map"]) == [["a", 1.5], ["nan", "Infinity"], ["none", None]]
    assert all(value is None for name, value in rows[1].items() if name != "id")
    assert (rows[2]["float"], rows[2]["double"], rows[2]["text"], rows[2]["map"]) == ("NaN", "NaN", "", "[]")


KEYS: list[tuple[str, pa.Array, pa.Array]] = [
    ("decimal(38,10)", pa.array([Decimal("1.5"), Decimal(-2)], pa.decimal128(38, 10)), Decimal("3.25")),
    ("string", pa.array(["", "ü\x00"]), "z"),
    ("binary", pa.array([b"", b"\x00a"]), b"z"),
    ("boolean", pa.array([True]), False),
    ("date", pa.array([date(1, 1, 1), date(9999, 12, 31)]), date(2024, 1, 1)),
    ("timestamp", pa.array([AT, datetime(1, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), AT.replace(year=2028)),
    ("byte", pa.array([-128, 127], pa.int8()), 5),
]


@pytest.mark.parametrize(("kind", "values", "new"), KEYS, ids=[kind for kind, _, _ in KEYS])
def test_keys_of_every_type(
    tmp_path: Path, share: Share, target: Target, kind: str, values: pa.Array, new: Any
) -> None:
    """Rows are found again by their keys: one is updated, one is inserted, none is lost."""
    table = ChangeTable(tmp_path / "source", [column("k", kind), column("n", "integer")])
    table.commit(table.add("f", pa.table({"k": values, "n": pa.array(range(len(values)), pa.int32())})))
    shared = share(table.root)
    with (
        target.sink(mode="apply", keys=["k"]) as sink,
        shared.poll_changes(starting_version="snapshot") as poller,
    ):
        drain(poller, sink)
        keys = pa.concat_arrays([values, pa.array([new], values.type)])
        numbers = pa.array([50, *range(1, len(values)), 60], pa.int32())
        table.commit(table.remove("f"), table.add("g", pa.table({"k": keys, "n": numbers})))
        drain(poller, sink)
    assert sorted(row[0] for row in target.rows("n")) == sorted(numbers.to_pylist())


def test_sqlite_has_no_text_for_a_far_year(tmp_path: Path, share: Share) -> None:
    table = ChangeTable(tmp_path / "source", [column("d", "date")])
    table.commit(table.add("f", pa.table({"d": pa.array([10_000_000], pa.int32()).cast(pa.date32())})))
    with (
        Target("sqlite", tmp_path / "t").sink() as sink,
        share(table.root).poll_changes(starting_version=0) as poller,
        pytest.raises(SinkError, match="'d' has a date or time outside the years 1 to 9999"),
    ):
        drain(poller, sink)


def test_variants(tmp_path: Path, share: Share) -> None:
    golden = Path(__file__).parents[1] / "golden" / "tables"
    from delta_sharing_client import SharingClient

    name = next(path.name for path in sorted(golden.iterdir()) if path.name.startswith("variant"))
    with SharingServer({"s.s.t": golden / name / "table"}) as server, SharingClient(server.profile) as client:
        shared = client.table("s.s.t")
        for form in ("struct", "json"):
            whole = shared.scan(variant=form).to_arrow()
            poller = shared.poll_changes(starting_version="snapshot", variant=form)
            target = Target("delta", tmp_path / form)
            with target.sink(change_columns=False) as sink:
                drain(poller, sink)
            read = share(target.path).scan(variant=form).to_arrow()
            assert str(read.to_pylist()) == str(whole.to_pylist())
