"""Asynchronous queries of the embedded server, with the client of this package and without."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from deltalake import write_deltalake
from waiting import HANG, NEVER

from delta_sharing_client import SharingClient, TransportOptions
from delta_sharing_client.errors import QueryError
from delta_sharing_client.server import SharingServer

TABLE = "s.d.t"
PATH = "/shares/s/schemas/d/tables/t"
OPTIONS = TransportOptions(asynchronous_queries=True)
CAPABILITIES = "responseformat=delta,parquet;includeendstreamaction=true;asyncquery=true"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("async") / "t"
    for number in range(5):
        write_deltalake(path, pa.table({"x": [number]}), mode="append")
    return path


@pytest.fixture(scope="module")
def server(table: Path) -> Iterator[SharingServer]:
    with SharingServer({TABLE: table}, query_time=timedelta(seconds=0.1), max_files_per_page=2) as running:
        yield running


@pytest.fixture(scope="module")
def slow_server(table: Path) -> Iterator[SharingServer]:
    """A server whose queries are never ready."""
    with SharingServer({TABLE: table}, query_time=NEVER) as running:
        yield running


def post(
    server: SharingServer, path: str, body: dict[str, object], capabilities: str = CAPABILITIES
) -> requests.Response:
    headers = {
        "Authorization": f"Bearer {server.profile['bearerToken']}",
        "delta-sharing-capabilities": capabilities,
    }
    return requests.post(f"{server.endpoint}{PATH}{path}", json=body, headers=headers, timeout=HANG)


def paths(server: SharingServer) -> list[str]:
    return [request.path.rpartition("/t/")[2] for request in server.requests if not request.is_file]


def test_a_table_is_loaded_page_by_page(server: SharingServer) -> None:
    server.reset_requests()
    with SharingClient(server.profile, options=OPTIONS) as client:
        frame = client.table(TABLE).scan().to_pandas()
    assert sorted(frame["x"]) == [0, 1, 2, 3, 4]
    first, *others = paths(server)
    assert first == "query"
    assert {path.partition("/")[0] for path in others} == {"queries"}
    assert len(set(others)) == 1
    assert len(others) >= 3


def test_queries_are_answered_at_once_by_default(server: SharingServer) -> None:
    server.reset_requests()
    with SharingClient(server.profile) as client:
        assert client.table(TABLE).scan().count() == 5
    assert set(paths(server)) == {"query"}


def test_an_asynchronous_query_keeps_filters_limits_and_versions(server: SharingServer) -> None:
    with SharingClient(server.profile, options=OPTIONS) as client:
        table = client.table(TABLE)
        assert table.scan(version=1).to_arrow().num_rows == 2
        assert table.scan(filters=[("x", ">=", 3)]).to_arrow()["x"].to_pylist() in ([3, 4], [4, 3])
        assert table.scan(limit=3).to_arrow().num_rows == 3


def test_a_failed_query_reports_its_error(server: SharingServer) -> None:
    with SharingClient(server.profile, options=OPTIONS) as client, pytest.raises(QueryError, match="99"):
        client.table(TABLE).scan(version=99).to_arrow()


def test_a_client_without_the_capability_is_answered_at_once(server: SharingServer) -> None:
    for capabilities, body in (
        ("responseformat=parquet", {"idempotencyKey": "k1"}),
        (CAPABILITIES, {}),
        ("asyncquery=false", {"idempotencyKey": "k2"}),
    ):
        answer = post(server, "/query", body, capabilities)
        assert answer.status_code == 200
        assert "protocol" in answer.text.splitlines()[0]


@pytest.mark.parametrize("spelling", ["idempotencyKey", "idempotency_key"])
def test_requests_with_one_idempotency_key_are_one_query(slow_server: SharingServer, spelling: str) -> None:
    answers = [post(slow_server, "/query", {spelling: f"one-{spelling}"}) for _ in range(2)]
    first, second = (answer.json()["queryStatus"] for answer in answers)
    assert first == second
    assert first["status"] == "pending"
    assert answers[0].headers["delta-table-version"] == "0"
    assert "asyncquery=true" in answers[0].headers["delta-sharing-capabilities"]
    refused = post(slow_server, "/query", {spelling: f"one-{spelling}", "limitHint": 1})
    assert refused.status_code == 400


def test_an_unknown_query_id_answers_404(server: SharingServer) -> None:
    answer = post(server, "/queries/nope", {})
    assert answer.status_code == 404
    assert answer.json()["errorCode"] == "RESOURCE_DOES_NOT_EXIST"


def test_query_time_must_be_positive(table: Path) -> None:
    with pytest.raises(ValueError, match="query_time"):
        SharingServer({TABLE: table}, query_time=timedelta(0))
