"""Golden tables as streams, in both formats, compared with the Arrow loader; without Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from stream_kit import Query

pytest.importorskip("pyspark")

from golden.test_golden import CASES, CHANGES, READABLE, TABLES, Case, ordered

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.session import pyspark_version

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[SharingServer]:
    with SharingServer({case.table_name: TABLES / case.name / "table" for case in CASES.values()}) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: SharingServer) -> Iterator[SharingClient]:
    with SharingClient(server.profile) as client:
        yield client


def together(query: Query) -> pa.Table:
    """All rows of a query, in batches of two files."""
    found = []
    while (rows := query.batch(("ReadMaxFiles", 2))) is not None:
        if rows.num_rows:
            found.append(rows)
    if not found:
        return pa.table({name: [] for name in query.names})
    return pa.concat_tables(found)


def same_rows(actual: pa.Table, expected: pa.Table, key: list[str]) -> None:
    assert actual.column_names == expected.column_names
    assert ordered(actual, key) == ordered(expected, key)


@pytest.mark.parametrize("case", READABLE)
def test_a_stream_reads_the_rows_of_golden_tables(
    server: SharingServer, client: SharingClient, case: Case
) -> None:
    expected = client.table(case.table_name).scan(variant="json").to_arrow()
    if not expected.num_columns:
        pytest.skip("a table without columns is none to Spark")
    same_rows(together(Query(server, case.table_name, variant="json")), expected, case.key)


@pytest.mark.parametrize("response_format", ["auto", "parquet"])
@pytest.mark.parametrize(("case", "described"), CHANGES)
def test_a_stream_reads_the_changes_of_golden_tables(
    server: SharingServer, client: SharingClient, case: Case, described: dict[str, Any], response_format: str
) -> None:
    if pyspark_version() < (4, 0) and "variant" in case.name:
        pytest.skip("Spark 3.5 has no variant type")
    first, last = described["first"], described["last"]
    if response_format == "parquet" and any(case.needed(v) for v in case.versions):
        pytest.skip("the parquet format cannot tell of this table")
    if last < case.latest and case.name:
        pytest.skip("a stream has no end before the latest version")
    changes = client.table(case.table_name).changes(first, last, commit_timestamp="timestamp")
    options = {"readChangeFeed": "true", "startingVersion": first, "responseFormat": response_format}
    key = ["_commit_version", *case.key, "_change_type"]
    same_rows(together(Query(server, case.table_name, **options)), changes.to_arrow(), key)
