"""Golden tables by pandas, polars and DuckDB, compared with the Arrow loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from golden.test_golden import CASES, READABLE, SERVERS, TABLES, Case, plain, rows_of

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.server import SharingServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["protocol", "reference"])
def client(request: pytest.FixtureRequest) -> Iterator[SharingClient]:
    tables = {case.table_name: TABLES / case.name / "table" for case in CASES.values()}
    with SharingServer(tables, options=SERVERS[request.param]) as server, SharingClient(server.profile) as client:
        yield client


def without_nan(values: list[Any], kind: pa.DataType) -> list[Any]:
    """In a float column pandas shows null as NaN, as everywhere."""
    return [None if value == "nan" else value for value in values] if pa.types.is_floating(kind) else values


@pytest.mark.parametrize("case", READABLE)
def test_pandas(client: SharingClient, case: Case) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    expected = scan.to_arrow()
    frame = scan.to_pandas(dtype_backend="pyarrow", progress=False)
    assert rows_of(pa.Table.from_pandas(frame, expected.schema, preserve_index=False)) == rows_of(expected)
    if case.facts.get("beyond_python"):
        # Python's own dates and times, which nested ones become, end at the years 1 and 9999.
        with pytest.raises((ValueError, DeltaSharingError), match="out of range"):
            scan.to_pandas(progress=False)
        return
    frame = scan.to_pandas(progress=False)
    assert (list(frame.columns), len(frame)) == (expected.column_names, expected.num_rows)
    for position, field in enumerate(expected.schema):
        back = pa.array(frame.iloc[:, position], field.type, from_pandas=not pa.types.is_nested(field.type))
        wanted = without_nan(plain(expected.column(position)), field.type)
        assert without_nan(plain(back), field.type) == wanted, field.name


@pytest.mark.parametrize("case", READABLE)
def test_polars(client: SharingClient, case: Case) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    expected = scan.to_arrow()
    frame = scan.to_polars().to_arrow()
    assert frame.column_names == expected.column_names
    assert rows_of(frame) == rows_of(expected)


@pytest.mark.parametrize("case", READABLE)
def test_duckdb(client: SharingClient, case: Case) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    expected = scan.to_arrow()
    with duckdb.connect() as connection:
        found = scan.to_duckdb(connection).to_arrow_table()
    assert found.column_names == expected.column_names
    assert rows_of(found) == rows_of(expected)
