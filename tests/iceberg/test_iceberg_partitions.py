"""Filters of partitioned Iceberg tables: random filters against a model that filters all rows of the table."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.server import FaultServer
from iceberg_server import IcebergServer
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import TimeTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

import delta_sharing_client as ds
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.predicates import And, Not, Or, Predicate
from delta_sharing_client.iceberg.table import IcebergTable
from delta_sharing_client.parquet.residual_filter import filter_batch

KINDS = {
    "s": StringType(),
    "x": IntegerType(),
    "l": LongType(),
    "d": DateType(),
    "t": TimestampType(),
    "z": TimestamptzType(),
    "p": DecimalType(9, 2),
    "f": DoubleType(),
}
SCHEMA = Schema(*(NestedField(number, name, kind, False) for number, (name, kind) in enumerate(KINDS.items(), 1)))
DAYS = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
TIMES = [dt.datetime.combine(day, dt.time(7, 30, 59, 999999)) for day in DAYS]
VALUES: dict[str, list[Any]] = {
    "s": [None, "", "a", "b", "ba", "bab", "\U0001f3bf"],
    "x": [None, -(2**31), -11, -1, 0, 2, 2**31 - 1],
    "l": [None, -(2**63), -(2**63) + 9, -7, 0, 19, 2**63 - 1],
    "d": [None, *DAYS],
    "t": [None, *TIMES],
    "z": [None, *(time.replace(tzinfo=dt.UTC) for time in TIMES)],
    "p": [None, Decimal("-9999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("7.10"), Decimal("9999999.99")],
    "f": [None, float("nan"), float("-inf"), -0.0, 0.0, 0.1, 1e300],
}
#: The partition fields of a table, and those that it changes to: ``column`` or ``transform(column)``.
SPECS = [
    *(["s"], ["l"], ["p"], ["f"], ["d"], ["t"], ["z", "s"]),
    *(["truncate[10](l)"], ["truncate[4](x)"], ["truncate[2](s)"], ["truncate[50](p)"]),
    *(["bucket[4](l)", "s"], ["bucket[3](s)"], ["bucket[3](p)"], ["bucket[3](d)"], ["void(s)", "x"]),
    *(["year(d)"], ["month(d)"], ["day(t)"], ["hour(z)"]),
    *(["s", "then", "bucket[4](l)", "day(t)"], ["truncate[10](l)", "then", "s"], ["x", "then"]),
]


def write_rows(table: Any, rows: Sequence[dict[str, Any]], *, rounded_up: bool = False) -> None:
    """Append rows, one file for each partition; writers of before rounded times towards 1970."""
    schema, spec = table.schema(), table.spec()
    kinds = {field.field_id: (field.name, field.field_type) for field in schema.fields}
    groups: dict[str, tuple[Record, list[dict[str, Any]]]] = {}
    for row in rows:
        record = Record(*(_partition(field, *kinds[field.source_id], row, rounded_up) for field in spec.fields))
        groups.setdefault(repr(record), (record, []))[1].append(row)
    folder = Path(table.location().removeprefix("file://"))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for record, members in groups.values():
            path = folder / f"{uuid.uuid4()}.parquet"
            pq.write_table(pa.Table.from_pylist(members, schema_to_pyarrow(schema)), path)
            statistics = data_file_statistics_from_parquet_metadata(
                pq.read_metadata(path),
                compute_statistics_plan(schema, table.properties),
                parquet_path_to_id_mapping(schema),
            )
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"file://{path}",
                file_format=FileFormat.PARQUET,
                partition=record,
                file_size_in_bytes=path.stat().st_size,
                sort_order_id=None,
                spec_id=spec.spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
            append.append_data_file(file)


def _partition(field: PartitionField, name: str, kind: Any, row: dict[str, Any], rounded_up: bool) -> Any:
    """Return a partition value: what Java's writers store, which wraps integers around."""
    value = row[name]
    if isinstance(value, dt.datetime):
        since = value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)
        value = since // dt.timedelta(microseconds=1)
    elif isinstance(value, dt.date):
        value = (value - dt.date(1970, 1, 1)).days
    result = field.transform.transform(kind)(value)
    if isinstance(field.transform, TruncateTransform) and isinstance(result, int):
        bits = 32 if isinstance(kind, IntegerType) else 64
        return (result + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    if isinstance(field.transform, TruncateTransform) and isinstance(result, Decimal):
        return max(result, Decimal("-9999999.99"))
    if rounded_up and isinstance(field.transform, TimeTransform) and result is not None and result < 0:
        return result + 1
    return result


def random_rows(count: int, source: random.Random) -> list[dict[str, Any]]:
    return [{name: source.choice(values) for name, values in VALUES.items()} for _ in range(count)]


class Model:
    """A shared table and all of its rows."""

    def __init__(self, table: IcebergTable, rows: list[dict[str, Any]]) -> None:
        self.table = table
        self.rows = pa.RecordBatch.from_pylist(rows, table.to_arrow(limit=0).schema)

    def check(self, tree: Any) -> None:
        predicate = bound(tree, self.table)
        expected = sorted(map(str, filter_batch(self.rows, predicate).to_pylist()))
        assert sorted(map(str, self.table.to_arrow(filters=predicate).to_pylist())) == expected, tree
        assert self.table.count(filters=predicate) == len(expected)


def bound(tree: Any, table: IcebergTable) -> Predicate:
    if isinstance(tree[0], str):
        found = bind_filters([tree], table.schema())
        assert found is not None
        return found
    kind, parts = tree
    inner = [bound(part, table) for part in parts]
    return Not(inner[0]) if kind is Not else kind(tuple(inner))


def random_filter(source: random.Random, names: Sequence[str], depth: int = 2) -> Any:
    """A filter that names the partition columns more often than others."""
    kind = source.choice([And, Or, Or, Not, None]) if depth else None
    if kind is not None:
        return kind, [random_filter(source, names, depth - 1) for _ in range(1 if kind is Not else 2)]
    name = source.choice([*names, *names, *VALUES])
    known = [value for value in VALUES[name] if value is not None]
    op = source.choice(["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"])
    if op in ("is", "is not"):
        return name, op, None
    return name, op, source.sample(known, 2) if op.endswith("in") else source.choice(known)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[IcebergServer, ds.SharingClient]]:
    with FaultServer() as server:
        running = IcebergServer(server, tmp_path_factory.mktemp("partitions"))
        with running.client() as client:
            yield running, client
        running.catalog.engine.dispose()


def columns_of(spec: Sequence[str]) -> list[str]:
    return [field.rpartition("(")[2].rstrip(")") for field in spec if field != "then"]


def model_of(
    shared: tuple[IcebergServer, ds.SharingClient], spec: Sequence[str], source: random.Random, count: int
) -> Model:
    """A table with some rows of each of its specs."""
    iceberg, client = shared
    name = f"sales.t{uuid.uuid4().hex}"
    table = iceberg.create(name, schema=SCHEMA)
    first, _, then = "|".join(spec).partition("|then")
    rows: list[dict[str, Any]] = []
    for fields in [first, then] if "then" in spec else [first]:
        with table.update_spec() as update:
            for old in table.spec().fields:
                update.remove_field(old.name)
            for number, field in enumerate(filter(None, fields.split("|"))):
                transform, _, column = field.rpartition("(")
                update.add_field(column.rstrip(")"), transform or "identity", f"{column.rstrip(')')}_{number}")
        table.refresh()
        added = random_rows(count, source)
        write_rows(table, added, rounded_up=source.random() < 0.5)
        rows += added
    return Model(client.iceberg.table(f"retail.{name}"), rows)


@pytest.mark.parametrize("spec", SPECS, ids=" ".join)
def test_filters_of_partitioned_tables(shared: Any, spec: list[str]) -> None:
    source = random.Random(str(spec))
    model = model_of(shared, spec, source, 12)
    for _ in range(4):
        model.check(random_filter(source, columns_of(spec)))


def test_the_filter_of_a_table_with_a_null_partition_value(shared: Any) -> None:
    model = model_of(shared, ["s"], random.Random(1), 24)
    tree = (Or, [("s", "<", "b"), ("x", "=", 2)])
    model.check(tree)
    files = model.table.scan(filters=bound(("s", "=", "bab"), model.table)).files()
    assert len(files) == 1 < len(model.table.scan().files())
    assert not model.table.scan(filters=bound(("s", "=", "bc"), model.table)).files()


def test_truncated_extremes_of_long_columns(shared: Any) -> None:
    """The partition values of the lowest numbers are large ones."""
    model = model_of(shared, ["truncate[10](l)"], random.Random(2), 24)
    for op in ("<", "<=", "=", ">=", ">"):
        for value in VALUES["l"][1:]:
            model.check((Or, [("l", op, value), ("x", "=", 2)]))


def test_partition_values_of_doubles(shared: Any) -> None:
    """pyiceberg stores them as floats."""
    model = model_of(shared, ["f"], random.Random(3), 24)
    for op in ("<", "<=", "=", ">=", ">"):
        for value in (0.1, 1e300):
            model.check(("f", op, value))


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=" ".join)
def test_many_filters_of_partitioned_tables(shared: Any, spec: list[str]) -> None:
    source = random.Random(f"many {spec}")
    model = model_of(shared, spec, source, 24)
    for _ in range(12):
        model.check(random_filter(source, columns_of(spec)))
