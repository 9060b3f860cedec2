"""Golden tables as streams, in both formats, compared with the Arrow loader; without Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from stream_query import Query

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
    same_rows(together(Query(server, case.table_name, variant="json")), expected, case.key)


def streamed(case: Case, described: dict[str, Any], response_format: str) -> bool:
    """Whether a stream can read these changes: up to the latest version, in a format that can represent them."""
    needs_delta = any(case.needed(version) for version in case.versions)
    return described["last"] == case.latest and not (needs_delta and response_format == "parquet")


@pytest.mark.parametrize(
    ("case", "described", "response_format"),
    [
        pytest.param(*change.values, response_format, id=f"{change.id}-{response_format}")
        for change in CHANGES
        for response_format in ("auto", "parquet")
        if streamed(*change.values, response_format)
    ],
)
def test_a_stream_reads_the_changes_of_golden_tables(
    server: SharingServer, client: SharingClient, case: Case, described: dict[str, Any], response_format: str
) -> None:
    if pyspark_version() < (4, 0) and "variant" in case.name:
        pytest.skip("Spark 3.5 has no variant type")
    changes = client.table(case.table_name).changes(
        described["first"], described["last"], commit_timestamp="timestamp"
    )
    options = {"readChangeFeed": "true", "startingVersion": described["first"], "responseFormat": response_format}
    key = ["_commit_version", *case.key, "_change_type"]
    same_rows(together(Query(server, case.table_name, **options)), changes.to_arrow(), key)
