"""Faults of the embedded server: each is what a client sees, as often as requested."""

from __future__ import annotations

from datetime import timedelta

import deltalake
import pyarrow as pa
import pytest

from delta_sharing_client import SharingClient, TransportOptions
from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    NotFoundError,
    RateLimitError,
    ServerError,
    StorageError,
    UrlExpiredError,
)
from delta_sharing_client.server import SharingServer

NAME = "s.s.t"


@pytest.fixture
def server(tmp_path):
    for first in (0, 100):
        deltalake.write_deltalake(tmp_path, pa.table({"id": range(first, first + 100)}), mode="append")
    with SharingServer({NAME: tmp_path}) as started:
        yield started


@pytest.fixture
def table(server):
    quick = timedelta(milliseconds=1)
    with SharingClient(server.profile, options=TransportOptions(backoff_base=quick, backoff_cap=quick)) as client:
        yield client.table(NAME)


KINDS = {
    "cut": (lambda faults, times: faults.cut(times=times), IncompleteResponseError),
    "cut between lines": (
        lambda faults, times: faults.cut(0.9, times=times, between_lines=True),
        IncompleteResponseError,
    ),
    "cut metadata": (lambda faults, times: faults.cut(on="metadata", times=times), IncompleteResponseError),
    "cut file": (lambda faults, times: faults.cut(0.2, on="files", times=times), StorageError),
    "busy": (lambda faults, times: faults.refuse(503, on="query", times=times), ServerError),
    "rate": (lambda faults, times: faults.refuse(429, times=times, retry_after=0), RateLimitError),
    "busy store": (lambda faults, times: faults.refuse(503, on="files", times=times), StorageError),
    "expired": (lambda faults, times: faults.expire_urls(times=times), UrlExpiredError),
}


@pytest.mark.parametrize("kind", KINDS)
def test_once_the_client_recovers_and_for_good_it_raises(server, table, kind):
    add, error = KINDS[kind]
    scan = table.scan(filters=[("id", ">=", 0)])
    fault = add(server.faults, 1)
    assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(200))
    if kind != "cut metadata":  # which a second scan does not request
        assert fault.hits == 1
    fault = add(server.faults, None)
    read = table.metadata if kind == "cut metadata" else scan.to_arrow
    with pytest.raises(error):
        read()
    assert fault.hits > 1
    server.faults.clear()
    assert scan.count() == 200


@pytest.mark.parametrize(
    ("on", "read"),
    [
        ("listings", lambda client: client.list_shares()),
        ("listings", lambda client: client.list_all_tables()),
        ("version", lambda client: client.table(NAME).version()),
        ("metadata", lambda client: client.table(NAME).metadata()),
        ("query", lambda client: client.table(NAME).scan().files()),
        ("changes", lambda client: client.table(NAME).changes(0).plan()),
        ("files", lambda client: client.table(NAME).scan().to_arrow()),
        ("all", lambda client: client.table(NAME).version()),
    ],
)
def test_a_fault_applies_to_its_requests(server, on, read):
    with SharingClient(server.profile) as client:
        fault = server.faults.refuse(404, on=on, times=None)
        with pytest.raises(DeltaSharingError) as caught:
            read(client)
    assert isinstance(caught.value, NotFoundError | StorageError)
    assert fault.hits
    assert fault.hits == len([request for request in server.requests if request.status == 404])


def test_faults_follow_one_another(server, table):
    first = server.faults.refuse(503, on="query")
    second = server.faults.cut()
    late = server.faults.delay(0.001, on="query")
    assert table.scan().to_arrow().num_rows == 200
    assert (first.hits, second.hits, late.hits) == (1, 1, 1)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda faults: faults.refuse(200), "400 to 599"),
        (lambda faults: faults.cut(1.0), "less than 1"),
        (lambda faults: faults.refuse(503, on="everything"), "listings, version"),
    ],
)
def test_mistakes(server, mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake(server.faults)
