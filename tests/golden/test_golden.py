"""Golden tables of Spark and delta-spark, read through the embedded server, compared with Spark's rows.

See README.md beside this file for where they come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import BadRequestError, DeltaSharingError, UnsupportedFeatureError
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.model.reader_features import SUPPORTED_FEATURES, canonical_feature
from delta_sharing_client.server import ServerOptions, SharingServer

TABLES = Path(__file__).parent / "tables"
#: Reader features that concern the log alone: such tables can be served in parquet format.
LOG_FEATURES = {"v2checkpoint", "vacuumprotocolcheck"}
#: Of tables with more columns than this only some are looked at one by one.
MANY = 24
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A golden table, as its `case.json` describes it."""

    name: str
    facts: dict[str, Any]

    @property
    def latest(self) -> int:
        return int(self.facts["latest"])

    @property
    def versions(self) -> list[int]:
        return [int(version) for version in self.facts["versions"]]

    @property
    def key(self) -> list[str]:
        return list(self.facts["key"])

    @property
    def table_name(self) -> str:
        return f"golden.tables.{self.name}"

    def needed(self, version: int) -> set[str]:
        """The reader features in use at a version, as their canonical names."""
        facts = self.facts["versions"][str(version)]
        features = {canonical_feature(name) for name in facts.get("reader_features", [])}
        if facts.get("column_mapping", "none") != "none":
            return features | {"columnmapping"}
        return features - {"columnmapping"}

    def is_too_new(self, version: int) -> bool:
        """Whether Delta Standalone refuses it, by which the reference server serves parquet format and changes."""
        log = DeltaLog.for_table(TABLES / self.name / "table", any_features=True)
        return log.snapshot_at(version).protocol.min_reader_version > 1

    def missing(self, version: int) -> set[str]:
        return self.needed(version) - SUPPORTED_FEATURES

    def expected(self, version: int) -> pa.Table:
        return pq.read_table(TABLES / self.name / "expected" / f"v{version}.parquet", partitioning=None)


CASES = {
    path.parent.name: Case(path.parent.name, json.loads(path.read_text("utf-8")))
    for path in sorted(TABLES.glob("*/case.json"))
}
VERSIONS = [pytest.param(case, v, id=f"{case.name}-v{v}") for case in CASES.values() for v in case.versions]
PLAIN = [
    pytest.param(case, v, id=f"{case.name}-v{v}")
    for case in CASES.values()
    for v in case.versions
    if not case.needed(v) - LOG_FEATURES
]
DELTA_ONLY = [pytest.param(c, id=c.name) for c in CASES.values() if c.needed(c.latest) - LOG_FEATURES]
CHANGES = [
    pytest.param(case, facts, id=f"{case.name}-{facts['first']}-{facts['last']}")
    for case in CASES.values()
    for facts in case.facts.get("changes", [])
]
TIMES = [pytest.param(case, id=case.name) for case in CASES.values() if "timestamps" in case.facts]
LATEST = [pytest.param(case, id=case.name) for case in CASES.values()]
READABLE = [pytest.param(case, id=case.name) for case in CASES.values() if not case.missing(case.latest)]


SERVERS = {"protocol": ServerOptions(), "reference": ServerOptions.like_reference()}


@pytest.fixture(scope="module", params=["protocol", pytest.param("reference", marks=pytest.mark.slow)])
def served_by(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(served_by: str) -> Iterator[SharingClient]:
    tables = {case.table_name: TABLES / case.name / "table" for case in CASES.values()}
    with SharingServer(tables, options=SERVERS[served_by]) as server, SharingClient(server.profile) as client:
        yield client


def plain(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that compare exactly: times as numbers, floats as their bits (all NaNs alike)."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in plain(chunk)]
    kind = array.type
    if pa.types.is_timestamp(kind):
        assert kind.unit == "us"
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_date32(kind):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_floating(kind):
        return [value if value is None else float(value).hex() for value in array.to_pylist()]
    if pa.types.is_struct(kind):
        children = [plain(child) for child in array.flatten()]
        valid = array.is_valid().to_pylist()
        rows = zip(*children, strict=True) if children else [()] * len(array)
        return [row if there else None for row, there in zip(rows, valid, strict=True)]
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_map(kind):
            items: list[Any] = list(zip(plain(array.keys), plain(array.items), strict=True))
        else:
            items = plain(array.values)
        # A map's keys and items heed the offset of the array, a list's values do not.
        offsets = array.offsets.to_pylist()
        base = offsets[0] if pa.types.is_map(kind) and len(items) < offsets[-1] else 0
        valid = array.is_valid().to_pylist()
        spans = zip(offsets, offsets[1:], valid, strict=False)
        return [tuple(items[start - base : end - base]) if there else None for start, end, there in spans]
    return array.to_pylist()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table as comparable tuples, in order."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*[plain(column) for column in table.columns], strict=True))


def ordered(table: pa.Table, key: list[str]) -> list[tuple[Any, ...]]:
    places = [table.column_names.index(name) for name in key]
    return sorted(rows_of(table), key=lambda row: [(row[i] is None, row[i] or 0) for i in places])


def bare(kind: pa.DataType) -> pa.DataType:
    """A type without nullability and the names of elements, keys and values."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(i).name, bare(kind.field(i).type)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(bare(kind.key_type), bare(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(bare(kind.value_type))
    return kind


def columns_of(table: pa.Table) -> list[tuple[str, str]]:
    return [(field.name, str(bare(field.type))) for field in table.schema]


def check(actual: pa.Table, case: Case, version: int) -> None:
    """The table has the columns and rows of the expected one, exactly."""
    for name in case.facts["versions"][str(version)].get("void_columns", []):
        column = actual.column(name)
        assert column.type == pa.null()
        actual = actual.drop_columns([name])
    expected = case.expected(version)
    assert columns_of(actual) == columns_of(expected)
    assert ordered(actual, case.key) == ordered(expected, case.key)
    assert actual.num_rows == case.facts["versions"][str(version)]["rows"]


def refused(client: SharingClient, case: Case, version: int, **options: Any) -> None:
    """Reading raises an error that names the features that are not supported, the client's or the server's."""
    with pytest.raises((UnsupportedFeatureError, BadRequestError)) as caught:
        client.table(case.table_name).scan(version=version, **options).to_arrow()
    assert all(feature in str(caught.value).lower() for feature in case.missing(version))


@pytest.mark.parametrize(("case", "version"), VERSIONS)
@pytest.mark.protocol(
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "columnMapping",
    "deletionVectors",
    "typeWidening",
    "file",
)
def test_rows_in_delta_format(client: SharingClient, case: Case, version: int) -> None:
    if case.missing(version):
        refused(client, case, version, response_format="delta")
        return
    scan = client.table(case.table_name).scan(version=version, response_format="delta", variant="json")
    check(scan.to_arrow(), case, version)


@pytest.mark.parametrize(("case", "version"), PLAIN)
def test_rows_in_parquet_format(client: SharingClient, served_by: str, case: Case, version: int) -> None:
    scan = client.table(case.table_name).scan(version=version, response_format="parquet")
    if served_by == "reference" and case.is_too_new(version):
        with pytest.raises(BadRequestError, match="responseformat=delta"):
            scan.to_arrow()
        return
    check(scan.to_arrow(), case, version)


@pytest.mark.parametrize("case", DELTA_ONLY)
def test_parquet_format_is_refused_for_tables_with_reader_features(client: SharingClient, case: Case) -> None:
    with pytest.raises(BadRequestError, match="responseformat=delta"):
        client.table(case.table_name).scan(response_format="parquet").to_arrow()


@pytest.mark.parametrize("case", LATEST)
def test_latest_version_is_the_default(client: SharingClient, case: Case) -> None:
    table = client.table(case.table_name)
    assert table.version() == case.latest
    if case.missing(case.latest):
        refused(client, case, case.latest)
        return
    check(table.scan(variant="json").to_arrow(), case, case.latest)


@pytest.mark.parametrize("case", READABLE)
def test_count_and_limit(client: SharingClient, case: Case) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    rows = case.facts["versions"][str(case.latest)]["rows"]
    assert scan.count() == rows
    half = rows // 2 + 1
    whole = rows_of(scan.to_arrow())
    limited = scan.replace(limit=half)
    assert rows_of(limited.to_arrow()) == whole[:half]
    assert limited.count() == min(half, rows)


@pytest.mark.slow
@pytest.mark.parametrize("case", READABLE)
def test_each_column_alone(client: SharingClient, case: Case) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    whole = scan.to_arrow()
    names = whole.column_names
    for name in names if len(names) <= MANY else [*names[:3], *names[:: MANY // 2], names[-1]]:
        alone = scan.replace(columns=(name,)).to_arrow()
        assert columns_of(alone) == columns_of(whole.select([name]))
        assert plain(alone.column(0)) == plain(whole.column(name)), name


@pytest.mark.slow
@pytest.mark.parametrize("case", READABLE)
def test_a_filter_on_each_column(client: SharingClient, case: Case) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    expected = case.expected(case.latest)
    shown = [expected.column_names.index(name) for name in case.key]
    variants = {f.name for f in client.table(case.table_name).schema() if str(f.type) == "variant"}
    fields = list(expected.schema)
    for field in fields if len(fields) <= MANY else [*fields[:3], *fields[:: MANY // 2], fields[-1]]:
        if field.name in variants:
            continue
        values = expected.column(field.name)
        chosen = choose(values)
        if chosen is None:
            continue
        number, literal = chosen
        rows = list(zip(rows_of(expected), comparables(values), strict=True))
        pivot = comparables(values)[number]
        cases: list[tuple[Any, list[Any]]] = [
            ([(field.name, "=", literal)], [row for row, value in rows if value == pivot]),
            (
                [[(field.name, ">", literal)], [(field.name, "is", None)]],
                [row for row, value in rows if value is None or value > pivot],
            ),
        ]
        for filters, kept in cases:
            found = scan.replace(columns=tuple(case.key), filters=filters).to_arrow()
            wanted = [tuple(row[i] for i in shown) for row in kept]
            assert sorted(rows_of(found), key=repr) == sorted(wanted, key=repr), filters


def comparables(values: pa.ChunkedArray) -> list[Any]:
    """Values that order as SQL orders them; NaN compares with nothing."""
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        return values.to_pylist()
    return plain(values)


def choose(values: pa.ChunkedArray) -> tuple[int, Any] | None:
    """Return a value from the middle of a column, by its row, as a literal for a filter."""
    literals: list[tuple[Any, int, Any]] = []
    if pa.types.is_nested(values.type):
        return None
    for row, value in enumerate(comparables(values)):
        if value is None or value != value:
            continue
        try:
            literals.append((value, row, as_literal(value, values.type)))
        except OverflowError:
            continue
    if not literals:
        return None
    literals.sort(key=lambda item: item[0])
    _, row, literal = literals[len(literals) // 2]
    return row, literal


def as_literal(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        moment = EPOCH + timedelta(microseconds=value)
        return moment if kind.tz else moment.replace(tzinfo=None)
    return date(1970, 1, 1) + timedelta(days=value) if pa.types.is_date(kind) else value


@pytest.mark.parametrize("case", READABLE)
def test_frames(client: SharingClient, case: Case) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    if case.facts.get("beyond_python"):
        # pandas holds nested times and dates as Python's own, which end at the years 1 and 9999.
        with pytest.raises((ValueError, DeltaSharingError), match="out of range"):
            scan.to_pandas(progress=False)
        return
    assert len(scan.to_pandas(progress=False)) == case.facts["versions"][str(case.latest)]["rows"]


@pytest.mark.parametrize("case", TIMES)
def test_versions_by_commit_timestamp(client: SharingClient, case: Case) -> None:
    table = client.table(case.table_name)
    for version, milliseconds in case.facts["timestamps"].items():
        moment = EPOCH + timedelta(milliseconds=milliseconds)
        assert table.version(moment) == int(version)
        if version in case.facts["versions"]:
            check(table.scan(timestamp=moment).to_arrow(), case, int(version))


@pytest.mark.parametrize("response_format", ["delta", "parquet"])
@pytest.mark.parametrize(("case", "facts"), CHANGES)
def test_changes(
    client: SharingClient, served_by: str, case: Case, facts: dict[str, Any], response_format: Any
) -> None:
    changes = client.table(case.table_name).changes(facts["first"], facts["last"], response_format=response_format)
    if served_by == "reference" and case.is_too_new(case.latest):
        with pytest.raises(BadRequestError, match="is too new") as caught:
            changes.to_arrow()
        assert caught.value.error_code == "UNSUPPORTED_OPERATION"
        return
    if response_format == "parquet" and case.needed(case.latest) - LOG_FEATURES:
        with pytest.raises(BadRequestError, match="responseformat=delta"):
            changes.to_arrow()
        return
    actual = changes.to_arrow()
    assert changes.count() == actual.num_rows
    assert actual.column_names[-1] == "_commit_timestamp"
    actual = actual.drop_columns(["_commit_timestamp"])
    expected = pq.read_table(TABLES / case.name / "expected" / facts["file"], partitioning=None)
    assert columns_of(actual) == columns_of(expected)
    key = ["_commit_version", *case.key, "_change_type"]
    assert ordered(actual, key) == ordered(expected, key)
