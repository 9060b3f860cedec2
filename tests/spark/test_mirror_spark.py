"""Mirrors by Spark's own Parquet reader without delta-spark: cases that no golden table has."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden.test_golden import columns_of, rows_of
from msgspec import structs
from pyroaring import BitMap64

sys.path.append(str(Path(__file__).parents[1] / "loading"))

from loading_tables import File, array_of, column, map_of, struct_of, write_table
from test_golden_spark import collected

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.errors import DataError, FileGoneError, UnsupportedTypeError
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import parquet_frame
from delta_sharing_client.spark.local_dataframe import local_dataframe, mirror_dataframe, read_footers
from delta_sharing_client.spark.session import spark_version
from delta_sharing_client.spark.stored_columns import stored_columns

TABLES = Path(__file__).parents[1] / "golden" / "tables"
ID_MODE = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "20"}
NAME_MODE = ID_MODE | {"delta.columnMapping.mode": "name"}
MAPPING = ["columnMapping"]
LONG = pa.int64()

Make = Callable[..., tuple[Mirror, ds.SharedTable]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Write a table, share and mirror it; give the mirror and the shared table."""
    with ExitStack() as stack:

        def made(
            columns: Sequence[Any], files: Sequence[File], *, directory: str = "mirror", **more: Any
        ) -> tuple[Mirror, ds.SharedTable]:
            write_table(tmp_path / "shared", columns, files, **more)
            server = stack.enter_context(SharingServer({"s.s.t": tmp_path / "shared"}))
            server.write_profile(tmp_path / "p.share")
            table = stack.enter_context(SharingClient(server.profile)).table("s.s.t")
            mirror = table.mirror(tmp_path / directory)
            mirror.sync(progress=False)
            return mirror, table

        yield made


def mapped(name: str, kind: Any, number: int, physical: str | None = None) -> Any:
    more = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical or f"col-{number}"}
    return column(name, kind, **more)


def longs(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, LONG)})


def numbered(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def same(frame: Any, expected: pa.Table) -> None:
    found = collected(frame)
    assert columns_of(found) == columns_of(expected)
    assert sorted(map(repr, rows_of(found))) == sorted(map(repr, rows_of(expected)))


def by_spark(mirror: Mirror, version: tuple[int, int] = (4, 1), **options: Any) -> list[bool]:
    """Whether Spark reads each file of a mirror, and not this package."""
    plan = mirror.scan(**options).plan()
    data = [field for field in plan.spec.output if field.name not in plan.spec.partition_columns]
    return [
        stored_columns(footer, data, plan.spec.mapping, task.file_id, version) is not None
        for task, footer in zip(plan.tasks, read_footers(plan.tasks, 64 * 2**20), strict=True)
    ]


def test_a_mirror_is_pruned_and_filtered_by_spark(
    spark: Any, sample_server: SharingServer, tmp_path: Path
) -> None:
    profile = tmp_path / "p.share"
    profile.write_text(json.dumps(sample_server.profile))
    profile.chmod(0o600)
    url = f"{profile}#retail.sales.orders"
    plain = ds.load_as_spark(url, spark=spark, columns=["order_id", "amount"])
    frame = ds.load_as_spark(url, spark=spark, columns=["order_id", "amount"], mirror=tmp_path / "m")
    assert frame.count() == plain.count()
    assert frame.agg({"amount": "sum"}).first() == plain.agg({"amount": "sum"}).first()
    sample_server.reset_requests()
    assert frame.where("amount > 100").count() == plain.where("amount > 100").count()
    physical = frame.select("amount").where("amount > 100")._jdf.queryExecution().executedPlan().toString()
    # Spark's own reader: the one column is read, and the filter pushed down.
    assert "ReadSchema: struct<amount:" in physical
    assert "PushedFilters: [IsNotNull(amount), GreaterThan(amount," in physical
    with pytest.raises(ValueError, match="use where"):
        ds.load_as_spark(url, spark=spark, limit=3, mirror=tmp_path / "m")


@pytest.fixture(scope="module")
def golden() -> Iterator[SharingClient]:
    names = ("dv_partitioned_nested", "widening_integers", "mapping_id", "variant_nested", "partition_timestamps")
    names += ("void", "empty")
    with (
        SharingServer({f"golden.tables.{name}": TABLES / name / "table" for name in names}) as server,
        SharingClient(server.profile) as client,
    ):
        yield client


def executed(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_partitions_are_pruned(spark: Any, golden: SharingClient, tmp_path: Path) -> None:
    mirror = golden.table("golden.tables.dv_partitioned_nested").mirror(tmp_path / "mirror")
    mirror.sync()
    column = mirror.log.snapshot().metadata.partition_columns[0]
    frame = mirror_dataframe(mirror.scan(), spark)
    assert f"PartitionFilters: [isnotnull({column}" in executed(frame.where(f"`{column}` IS NOT NULL"))


@pytest.mark.parametrize("name", ["widening_integers", "mapping_id"])
def test_spark_reads_widened_and_mapped_columns(
    name: str, spark: Any, golden: SharingClient, tmp_path: Path
) -> None:
    mirror = golden.table(f"golden.tables.{name}").mirror(tmp_path / "mirror")
    mirror.sync()
    whole = mirror_dataframe(mirror.scan(), spark)
    assert "MapInArrow" not in executed(whole)
    first = whole.columns[0]
    plan = executed(whole.select(first).where(f"`{first}` IS NOT NULL"))
    assert plan.count("PushedFilters: [IsNotNull(") == plan.count("FileScan parquet") > 0


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("name", ["variant_nested", "partition_timestamps"])
def test_the_time_zone_of_the_session_does_not_matter(
    name: str, zone: str, spark: Any, golden: SharingClient, tmp_path: Path
) -> None:
    table = golden.table(f"golden.tables.{name}")
    mirror = table.mirror(tmp_path / "mirror")
    mirror.sync()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        found = pa.Table.from_batches(mirror_dataframe(mirror.scan(variant="json"), spark)._collect_as_arrow())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert sorted(map(repr, rows_of(found))) == sorted(map(repr, rows_of(table.scan(variant="json").to_arrow())))


@pytest.mark.parametrize("directory", ["[x] {a,b} *", "ü%20?", "x=1"])
def test_directories_may_have_any_name(spark: Any, make: Make, directory: str) -> None:
    files = [File(rows=longs(n), name=f"f{n}", values={"p": f"v{n}"}) for n in (1, 2)]
    columns = [column("a", "long"), column("p", "string")]
    mirror, table = make(columns, files, partitions=["p"], directory=directory)
    same(mirror_dataframe(mirror.scan(), spark), table.scan().to_arrow())


def test_columns_mapped_by_id_are_found_by_id(spark: Any, make: Make) -> None:
    """Files whose names are those of other columns, in another order, nested too; one lacks a column."""
    inner = pa.struct([numbered("y", LONG, 4), numbered("x", LONG, 3)])
    straight = pa.schema([numbered("a", LONG, 1), numbered("s", inner, 2), numbered("b", LONG, 5)])
    other = pa.struct([numbered("x", LONG, 4), numbered("y", LONG, 3), numbered("gone", LONG, 9)])
    swapped = pa.schema([numbered("b", LONG, 1), numbered("a", other, 2)])
    files = [
        File(rows=pa.table([[1, 2], [{"x": 3, "y": 4}, None], [5, 6]], schema=straight), name="straight"),
        File(rows=pa.table([[7], [{"x": 8, "y": 9, "gone": 0}]], schema=swapped), name="swapped"),
    ]
    nested = struct_of(mapped("x", "long", 3), mapped("y", "long", 4))
    columns = [mapped("a", "long", 1, "a"), mapped("s", nested, 2, "s"), mapped("b", "long", 5, "b")]
    mirror, table = make(columns, files, configuration=ID_MODE, features=MAPPING)
    expected = table.scan().to_arrow()
    assert rows_of(expected) == [(1, (3, 4), 5), (2, None, 6), (7, (9, 8), None)]
    same(mirror_dataframe(mirror.scan(), spark), expected)
    same(mirror_dataframe(mirror.scan(columns=["b", "s"]), spark), expected.select(["b", "s"]))
    assert by_spark(mirror) == [True, True]


def test_a_file_without_field_ids_raises_if_columns_are_mapped_by_id(spark: Any, make: Make) -> None:
    mirror, _ = make(
        [mapped("a", "long", 1, "a")], [File(rows=longs(1), name="f")], configuration=ID_MODE, features=MAPPING
    )
    (file,) = mirror.log.snapshot().files
    with pytest.raises(DataError, match="has no field ids") as caught:
        mirror_dataframe(mirror.scan(), spark)
    assert caught.value.file_id == file.raw["tags"]["deltaSharing.fileId"]


WIDENED = [
    (
        "byte",
        pa.int8(),
        [-128, 127, None],
        ["short", "integer", "long", "double", "decimal(10,0)", "decimal(12,2)"],
    ),
    ("short", pa.int16(), [-(1 << 15), 7], ["integer", "long", "double", "decimal(10,0)"]),
    ("integer", pa.int32(), [-(1 << 31), 3], ["long", "double", "decimal(20,5)"]),
    ("long", pa.int64(), [(1 << 63) - 1, -(1 << 63)], ["decimal(20,0)", "decimal(38,18)"]),
    ("float", pa.float32(), [0.1, -0.0, float("inf")], ["double"]),
    ("decimal(4,2)", pa.decimal128(4, 2), [Decimal("-99.99")], ["decimal(6,2)", "decimal(20,10)"]),
    ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], ["timestamp_ntz"]),
]


@pytest.mark.parametrize(("before", "kind", "values", "types"), WIDENED, ids=[case[0] for case in WIDENED])
def test_widened_types_are_cast(
    spark: Any, make: Make, before: str, kind: pa.DataType, values: list[Any], types: list[str]
) -> None:
    """A column for each type that a type may become, at the top and inside a list, a struct and a map's key."""
    columns, arrays = [], []
    for number, after in enumerate(types):
        columns += [column(f"c{number}", after), column(f"n{number}", array_of(struct_of(column("x", after))))]
        arrays.append(pa.array(values, kind))
        arrays.append(pa.array([[{"x": value}] for value in values], pa.list_(pa.struct([("x", kind)]))))
        if before == "byte":
            pairs = [[(value, value)] if value is not None else None for value in values]
            columns.append(column(f"m{number}", map_of(after, after)))
            arrays.append(pa.array(pairs, pa.map_(kind, kind)))
    file = File(rows=pa.table(arrays, names=[item["name"] for item in columns]), name="old")
    features = ["typeWidening", "timestampNtz"]
    mirror, table = make(columns, [file], features=features)
    assert by_spark(mirror) == [True]
    same(mirror_dataframe(mirror.scan(), spark), table.scan().to_arrow())


def test_types_that_spark_does_not_widen_are_read_by_the_package(spark: Any, make: Make) -> None:
    """Delta has no widening from byte to a decimal of fewer than ten whole digits; this package supports it."""
    file = File(rows=pa.table({"a": pa.array([-128, 127, None], pa.int8())}), name="old")
    mirror, table = make([column("a", "decimal(5,2)")], [file], features=["typeWidening"])
    assert by_spark(mirror) == [False]
    same(mirror_dataframe(mirror.scan(), spark), table.scan().to_arrow())


NANOS = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", tz="UTC"))
#: What Spark would not read as this package does, or not at all: the columns, and what a file holds.
ODD = {
    "nanoseconds": ([column("a", "timestamp")], {"a": NANOS}, {}),
    "no zone": ([column("a", "timestamp")], {"a": pa.array([1, None], pa.timestamp("us"))}, {}),
    "unsigned": ([column("a", "long")], {"a": pa.array([1, 1 << 31], pa.uint32())}, {}),
    "wider than the schema": ([column("a", "integer")], {"a": pa.array([1, 2], LONG)}, {}),
    "fixed length": ([column("a", "binary")], {"a": pa.array([b"ab", b"cd"], pa.binary(2))}, {}),
    "text as bytes": ([column("a", "string")], {"a": pa.array([b"ab", b"cd"])}, {}),
    "two of a name": ([column("a", "long")], {"a": pa.array([1, 2]), "A": pa.array([3, 4])}, {}),
    "dates of whom": (
        [column("a", "date")],
        {"a": pa.array([date(2020, 1, 1), date(1970, 1, 1)])},
        {b"org.apache.spark.sql.parquet.row.metadata": b"{}"},
    ),
    "a struct of other fields": (
        [column("a", struct_of(column("new", "long"))), column("b", "long")],
        {"a": pa.array([{"old": 1}, None]), "b": pa.array([1, 2])},
        {},
    ),
    "dates as keys": (
        [column("a", map_of("timestamp_ntz", "long"))],
        {"a": pa.array([[(date(2020, 1, 1), 1)], None], pa.map_(pa.date32(), LONG))},
        {},
    ),
    "void inside": (
        [column("a", struct_of(column("x", "long"), column("v", "void")))],
        {"a": pa.array([{"x": 1}, None])},
        {},
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_files_that_spark_would_read_differently_are_read_by_the_package(
    spark: Any, make: Make, case: str
) -> None:
    """One such file, and one beside it that Spark reads: the rows of both, in the types of the table."""
    columns, held, metadata = ODD[case]
    rows = pa.table(held).replace_schema_metadata(metadata)
    wanted = pa.table({item["name"]: pa.nulls(0) for item in columns})
    plain = pa.table({"other": pa.array([1], LONG)})
    files = [File(rows=rows, name="odd", vector=[1]), File(rows=plain, name="plain")]
    mirror, table = make(columns, files, features=["deletionVectors", "timestampNtz", "typeWidening"])
    assert sorted(by_spark(mirror)) == [False, case != "void inside"]
    expected = table.scan().to_arrow()
    assert (expected.num_rows, expected.column_names) == (2, wanted.column_names)
    frame = mirror_dataframe(mirror.scan(), spark)
    same(frame, expected)
    assert "MapInArrow" in executed(frame)
    assert frame.count() == 2
    assert mirror_dataframe(mirror.scan(columns=[]), spark).count() == 2


@pytest.mark.parametrize(
    "name",
    [
        "dv_partitioned_nested",
        "empty",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("partition_timestamps", "void")),
    ],
)
def test_columns_can_be_selected_or_empty(name: str, spark: Any, golden: SharingClient, tmp_path: Path) -> None:
    table = golden.table(f"golden.tables.{name}")
    mirror = table.mirror(tmp_path / "mirror")
    mirror.sync()
    names = table.schema().names
    for columns in ([], *([name] for name in names), names[::-1], names[1:]):
        expected = table.scan(columns=columns).to_arrow()
        frame = mirror_dataframe(mirror.scan(columns=columns), spark)
        assert frame.columns == list(columns)
        assert frame.count() == expected.num_rows
        if columns:
            same(frame, expected)


def test_variants_before_spark_4_1_are_read_by_the_package() -> None:
    """Spark before 4.1 fails at the footer of a file with variants, whatever columns it reads."""
    (file,) = (TABLES / "variant" / "table").glob("*.parquet")
    task = FileScanTask(SecretUrl(str(file)), "f", file.stat().st_size)
    (footer,) = read_footers([task], 64 * 2**20)
    wanted = [StructField("id", PrimitiveType("integer"))]
    assert stored_columns(footer, wanted, "none", "f", (4, 0)) is None
    assert stored_columns(footer, wanted, "none", "f", (4, 1)) == StructType(tuple(wanted))


def test_variants_of_sparks_own_type(spark: Any, golden: SharingClient, tmp_path: Path) -> None:
    table = golden.table("golden.tables.variant_nested")
    mirror = table.mirror(tmp_path / "mirror")
    mirror.sync()
    if spark_version(spark) < (4, 0):
        with pytest.raises(UnsupportedTypeError, match="load it as text with variant='json'"):
            mirror_dataframe(mirror.scan(), spark)
        columns = ["id"]
    else:
        columns = mirror_dataframe(mirror.scan(), spark).columns
        frame = mirror_dataframe(mirror.scan(), spark).selectExpr("id", "to_json(s.v) AS v")
        expected = mirror.scan(columns=["id", "s"], variant="json").to_arrow()
        values = {row["id"]: row["s"] and row["s"]["v"] for row in expected.to_pylist()}
        assert {row["id"]: row["v"] for row in frame.collect()} == values
    assert mirror_dataframe(mirror.scan(columns=columns), spark).columns == columns


def test_texts_of_variants_have_the_digits_of_the_other_loaders(spark: Any, make: Make) -> None:
    """Java before release 19 writes some floats with more digits than are needed."""
    numbers = [2.660628006112444e18, 7.147870524070233e18, 2e-3, 2.0**-44, 1e23, 2e23, 5e-324, 1.5]
    values = [b"\x1c" + struct.pack("<d", number) for number in numbers]
    values += [b"\x38" + struct.pack("<f", number) for number in (7.118266e9, 1.3463053e10, 0.1)]
    variants = pa.StructArray.from_arrays(
        [pa.array([b"\x01\x00\x00"] * len(values)), pa.array(values)],
        fields=[pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)],
    )
    inside = pa.StructArray.from_arrays([variants, pa.array(range(len(values)))], ["x", "n"])
    columns = [column("v", "variant"), column("s", struct_of(column("x", "variant"), column("n", "long")))]
    file = File(rows=pa.table({"v": variants, "s": inside}), name="f")
    mirror, table = make(columns, [file], features=["variantType"])
    frame = mirror_dataframe(mirror.scan(variant="json"), spark)
    same(frame, table.scan(variant="json").to_arrow())


def test_groups_and_deleted_rows_beyond_the_limits_are_read_by_the_package(
    spark: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond so many kinds of files Spark's plans would be too large; the rest is read otherwise."""
    monkeypatch.setattr(parquet_frame, "_MOST_GROUPS", 2)
    files = [
        File(rows=pa.table({"a": pa.array([n] * 10 * n, kind)}), name=f"f{n}", vector=[0])
        for n, kind in enumerate([pa.int8(), pa.int16(), pa.int32(), pa.int64()], 1)
    ]
    mirror, table = make([column("a", "long")], files, features=["typeWidening", "deletionVectors"])
    frame = mirror_dataframe(mirror.scan(), spark)
    assert executed(frame).count("FileScan parquet") == 2
    same(frame, table.scan().to_arrow())
    monkeypatch.setattr(parquet_frame, "_MOST_DELETED", 1)
    frame = mirror_dataframe(mirror.scan(), spark)
    assert "FileScan parquet" not in executed(frame)
    same(frame, table.scan().to_arrow())


def test_a_negative_number_of_deleted_rows_does_not_make_room_for_others(
    spark: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_frame, "_MOST_DELETED", 2)
    files = [File(rows=longs(1, 2, 3, 4, 5), name=f"f{n}", vector=[0, 1, 3][: n + 2]) for n in range(2)]
    mirror, _ = make([column("a", "long")], files, features=["deletionVectors"])
    scan = mirror.scan()
    plan = scan.plan()
    one, other = plan.tasks
    negative = structs.replace(one, deletion_vector=structs.replace(one.deletion_vector, cardinality=-3))
    plan = structs.replace(plan, tasks=[negative, other])
    frame = local_dataframe(lambda: plan, scan.directory, TransportOptions(), "struct", spark)
    assert "FileScan parquet" not in executed(frame)


def test_positions_of_deleted_rows_take_8_bytes_each(spark: Any) -> None:
    numbers = [0, 1, 255, 256, 2**31, 2**40 + 7, 2**62]
    deleted = [
        ("a", RowPositions(BitMap64(numbers), "a")),
        ("b", None),
        ("c", RowPositions(BitMap64(), "c")),
        ("d", RowPositions(BitMap64([3]), "d")),
    ]
    frame = parquet_frame._positions_frame(spark, deleted)
    assert frame.dtypes[1][1] == "bigint"
    assert sorted(map(tuple, frame.collect())) == [*(("a", number) for number in numbers), ("d", 3)]
    assert parquet_frame._positions_frame(spark, []).collect() == []


def test_settings_of_the_session_do_not_remove_rows(spark: Any, make: Make) -> None:
    files = [File(rows=longs(n, n), name=f"f{n}") for n in (1, 2)]
    mirror, table = make([column("A", "long")], files)
    settings = {
        "spark.sql.caseSensitive": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.files.ignoreCorruptFiles": "true",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        frame = mirror_dataframe(mirror.scan(), spark)
        same(frame, table.scan().to_arrow())
        path = next(mirror.directory.glob("*.parquet"))
        content = path.read_bytes()
        path.write_bytes(b"not Parquet" + content[11:-30] + bytes(26) + b"PAR1")
        with pytest.raises(DataError, match="not a readable Parquet file"):
            mirror_dataframe(mirror.scan(), spark)
        path.unlink()
        with pytest.raises(FileGoneError, match=r"sync\(repair=True\)"):
            mirror_dataframe(mirror.scan(), spark)
        with pytest.raises(Exception, match=r"(?i)FILE_NOT_EXIST|does not exist"):
            frame.collect()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
