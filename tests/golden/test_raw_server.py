"""Golden tables from a second server, so that no test depends on the embedded server alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from golden.raw_server import RawServer, Wording
from golden.test_golden import READABLE, TABLES, Case, check

from delta_sharing_client import SharingClient


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(wording, marks=pytest.mark.slow if n else ()) for n, wording in enumerate(get_args(Wording))
    ],
)
def client(request: pytest.FixtureRequest) -> Iterator[SharingClient]:
    with RawServer(TABLES, request.param) as server:
        yield SharingClient(server.profile)


@pytest.mark.parametrize("case", READABLE)
def test_rows(client: SharingClient, case: Case) -> None:
    scan = client.table(f"s.d.{case.name}").scan(variant="json")
    table = scan.to_arrow()
    check(table, case, case.latest)
    assert scan.count() == table.num_rows
    alone = scan.replace(columns=(case.key[0],)).to_arrow()
    assert alone.equals(table.select([case.key[0]]))
