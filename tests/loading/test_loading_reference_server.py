"""Loads, pollers, mirrors and materialized tables from a server that behaves as the reference server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from cdf.feed.change_tables import COLUMNS, FEED, ChangeTable, change_rows, expect, rows
from loading_tables import column, count_from_here
from waiting import WallClock

import delta_sharing_client as ds
from delta_sharing_client import SharingClient, TransportOptions
from delta_sharing_client.errors import AuthenticationError, BadRequestError
from delta_sharing_client.server import ServerOptions, SharingServer

PARTITIONED = [*COLUMNS, column("p", "integer")]
#: What a table of each kind holds at each of its versions.
VERSIONS = {
    "plain": [[0, 1], [0, 1, 2, 3], [2, 3]],
    "vectors": [[0, 1], [1, 2, 3], [1, 3]],
    "mapped": [[0, 1], [0, 1, 2, 3], [2, 3]],
    "grown": [[0, 1], [0, 1, 2, 3], [1, 2, 3]],
}
#: Those that older readers take, at least in the end.
PLAIN = ["plain"]
KINDS = list(VERSIONS)


def at(partition: int) -> dict[str, Any]:
    return {"values": {"p": str(partition)}}


def plain(root: Path) -> ChangeTable:
    table = ChangeTable(root, PARTITIONED, partitions=["p"])
    table.commit(table.add("a", rows(0, 1), **at(0)))
    table.commit(table.add("b", rows(2, 3), **at(1)))
    table.commit(table.remove("a", **at(0)))
    return table


def vectors(root: Path) -> ChangeTable:
    """One deletion vector is a file of its own, one stands in the log."""
    table = ChangeTable(root, PARTITIONED, partitions=["p"], features=["deletionVectors"])
    table.commit(table.add("a", rows(0, 1), **at(0)))
    old = table.add("a", vector=table.vector(0, name="deleted.bin"), **at(0))
    table.commit(table.remove("a", **at(0)), old, table.add("b", rows(2, 3), **at(1)))
    table.commit(table.remove("b", **at(1)), table.add("b", vector=table.vector(0), **at(1)))
    return table


def mapped(root: Path) -> ChangeTable:
    """The columns have other names in the files, the partition column in the log too."""
    columns = [
        {**item, "metadata": {"delta.columnMapping.id": n, "delta.columnMapping.physicalName": f"col-{n}"}}
        for n, item in enumerate(PARTITIONED)
    ]
    configuration = FEED | {"delta.columnMapping.mode": "name"}
    table = ChangeTable(root, columns, partitions=["p"], configuration=configuration, features=["columnMapping"])

    def data(*ids: int) -> pa.Table:
        return rows(*ids).rename_columns(["col-0", "col-1"])

    table.commit(table.add("a", data(0, 1), values={"col-2": "0"}))
    table.commit(table.add("b", data(2, 3), values={"col-2": "1"}))
    table.commit(table.remove("a", values={"col-2": "0"}))
    return table


def grown(root: Path) -> ChangeTable:
    """A table that is given a feature in its last version."""
    table = ChangeTable(root, PARTITIONED, partitions=["p"])
    table.commit(table.add("a", rows(0, 1), **at(0)))
    table.commit(table.add("b", rows(2, 3), **at(1)))
    marked = table.add("a", vector=table.vector(0, name="deleted.bin"), **at(0))
    table.commit(table.protocol(["deletionVectors"]), table.remove("a", **at(0)), marked)
    return table


MAKERS = {"plain": plain, "vectors": vectors, "mapped": mapped, "grown": grown}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]) -> SharingServer:
    root = tmp_path_factory.mktemp("tables")
    tables = {f"s.s.{kind}": make(root / kind).root for kind, make in MAKERS.items()}
    return serve(tables, options=ServerOptions.like_reference())


@pytest.fixture(params=[False, True], ids=["at once", "asynchronous"])
def client(request: pytest.FixtureRequest, server: SharingServer) -> Iterator[SharingClient]:
    """Whether asynchronous answers are asked for or not: this server's are not to be believed."""
    options = TransportOptions(asynchronous_queries=request.param)
    with SharingClient(server.profile, options=options) as client:
        yield client


def ids(table: Any) -> list[int]:
    found = table["id"].tolist() if isinstance(table, pd.DataFrame) else table["id"].to_pylist()
    return sorted(found)


def formats(kind: str) -> list[str]:
    """The response formats in which all versions of a table can be had."""
    return ["auto", "delta", "parquet"] if kind in PLAIN else ["auto", "delta"]


each = pytest.mark.parametrize(("kind", "response_format"), [(k, f) for k in KINDS for f in formats(k)])


@each
class TestLoads:
    def test_by_version(self, client: SharingClient, kind: str, response_format: Any) -> None:
        for version, held in enumerate(VERSIONS[kind]):
            scan = client.table(f"s.s.{kind}").scan(version=version, response_format=response_format)
            assert ids(scan.to_arrow()) == ids(scan.to_pandas()) == held
            assert scan.count() == len(held)
            assert scan.plan().version == version

    def test_by_time(self, client: SharingClient, kind: str, response_format: Any) -> None:
        for version, held in enumerate(VERSIONS[kind]):
            moment = datetime.fromtimestamp(ChangeTable.time(version) / 1000, UTC)
            scan = client.table(f"s.s.{kind}").scan(timestamp=moment, response_format=response_format)
            assert ids(scan.to_arrow()) == ids(scan.to_pandas()) == held
            if version < 2:
                later = scan.replace(timestamp=moment + timedelta(minutes=59))
                assert ids(later.to_arrow()) == held

    def test_the_latest(self, client: SharingClient, kind: str, response_format: Any) -> None:
        scan = client.table(f"s.s.{kind}").scan(response_format=response_format)
        assert ids(scan.to_arrow()) == ids(scan.to_pandas()) == VERSIONS[kind][-1]
        assert scan.replace(limit=1).to_arrow().num_rows == 1

    def test_with_a_filter(self, client: SharingClient, kind: str, response_format: Any) -> None:
        """On the partition column, so that it goes to the server as hints, and on a column of the files."""
        for point in ({}, {"version": 1}, {"timestamp": "2023-11-14T23:20:00Z"}):
            scan = client.table(f"s.s.{kind}").scan(filters=[("p", "=", 1), ("id", "<", 3)], **point)
            scan = scan.replace(response_format=response_format)
            held = VERSIONS[kind][1 if point else 2]
            assert ids(scan.to_arrow()) == [n for n in held if n == 2]
            assert scan.replace(filters=[("p", "!=", 0)]).count() == len([n for n in held if n > 1])

    def test_a_hint_of_the_caller(self, client: SharingClient, kind: str, response_format: Any) -> None:
        name = {"op": "column", "name": "p", "valueType": "int"}
        hint = {"op": "equal", "children": [name, {"op": "literal", "value": "1", "valueType": "int"}]}
        scan = client.table(f"s.s.{kind}").scan(version=1, response_format=response_format)
        assert set(ids(scan.replace(json_predicate_hints=json.dumps(hint)).to_arrow())) >= {2, 3}


@pytest.mark.parametrize("kind", ["vectors", "mapped"])
def test_filters_of_tables_with_features_take_one_request(server: SharingServer, kind: str) -> None:
    """The older notation of hints is what the server refuses for them."""
    with SharingClient(server.profile) as client:
        scan = client.table(f"s.s.{kind}").scan(filters=[("p", "=", 1)])
        count_from_here(server)
        scan.to_arrow()
    listings = [request for request in server.requests if not request.is_file]
    assert [request.status for request in listings if request.path.endswith("/query")] == [200]


def test_unannounced_asynchronous_answer_is_queried_again(server: SharingServer) -> None:
    options = TransportOptions(asynchronous_queries=True)
    with SharingClient(server.profile, options=options) as client:
        count_from_here(server)
        client.table("s.s.plain").scan(version=0).files()
    bodies = [request.body for request in server.requests]
    assert [body.keys() for body in bodies] == [{"version", "idempotencyKey"}, {"version"}]


def test_missing_version_and_time_raise(client: SharingClient) -> None:
    table = client.table("s.s.plain")
    for point in ({"version": 9}, {"timestamp": "2999-01-01T00:00:00Z"}):
        with pytest.raises(BadRequestError):
            table.scan(**point).to_arrow()


class TestChanges:
    @pytest.mark.parametrize("response_format", ["auto", "delta", "parquet"])
    def test_changes_of_a_table_without_reader_features(self, client: SharingClient, response_format: Any) -> None:
        changes = client.table("s.s.plain").changes(0, response_format=response_format)
        expected = expect(0, "insert", [0, 1]) + expect(1, "insert", [2, 3]) + expect(2, "delete", [0, 1])
        assert change_rows(changes.to_arrow()) == expected

    @pytest.mark.parametrize("kind", ["vectors", "mapped", "grown"])
    def test_changes_of_tables_with_reader_features_are_refused(self, client: SharingClient, kind: str) -> None:
        with pytest.raises(BadRequestError, match="too new"):
            client.table(f"s.s.{kind}").changes(0).to_arrow()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("response_format", ["auto", "delta", "parquet"])
def test_poller_returns_the_snapshot_and_then_changes(
    tmp_path: Path, asynchronous: bool, response_format: Any
) -> None:
    table = plain(tmp_path / "t")
    options = TransportOptions(asynchronous_queries=asynchronous)
    with (
        SharingServer({"s.s.t": table.root}, options=ServerOptions.like_reference()) as server,
        SharingClient(server.profile, options=options) as client,
    ):
        poller = client.table("s.s.t").poll_changes(
            checkpoint=tmp_path / "checkpoint",
            starting_version="snapshot",
            poll_interval=timedelta(milliseconds=1),
            response_format=response_format,
        )
        with poller:
            seen = []
            for version in (2, 3, 4):
                batch = poller.pull()
                assert batch is not None
                seen += change_rows(batch.to_arrow())
                batch.commit()
                table.commit(table.add(f"c{version}", rows(version + 10), **at(1)))
        assert seen == expect(2, "insert", [2, 3]) + expect(3, "insert", [12]) + expect(4, "insert", [13])


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mirror_follows(tmp_path: Path, kind: str, asynchronous: bool) -> None:
    table = MAKERS[kind](tmp_path / "t")
    options = TransportOptions(asynchronous_queries=asynchronous)
    with (
        SharingServer({"s.s.t": table.root}, options=ServerOptions.like_reference()) as server,
        SharingClient(server.profile, options=options) as client,
    ):
        mirror = client.table("s.s.t").mirror(tmp_path / "mirror")
        for version, held in enumerate(VERSIONS[kind]):
            assert mirror.sync(at_version=version).shared_version == version
            assert ids(mirror.scan().to_arrow()) == held
        assert mirror.sync().commits == 0
        count_from_here(server)
        values = {"values": {"col-2": "1"}} if kind == "mapped" else at(1)
        data = rows(9).rename_columns(["col-0", "col-1"]) if kind == "mapped" else rows(9)
        table.commit(table.add("z", data, **values))
        assert (mirror.sync().files_added, mirror.sync().commits) == (1, 0)
        assert ids(mirror.scan().to_arrow()) == [*VERSIONS[kind][-1], 9]
        assert len([request for request in server.requests if request.is_file]) == 1
        for version, held in enumerate(VERSIONS[kind]):
            assert ids(mirror.scan(version=version).to_arrow()) == held


@pytest.mark.parametrize("kind", KINDS)
def test_materialized_tables(client: SharingClient, tmp_path: Path, kind: str) -> None:
    copies = {f"s.s.v{version}": tmp_path / f"v{version}" for version in (0, 2)}
    for version, name in ((0, "s.s.v0"), (None, "s.s.v2")):
        client.table(f"s.s.{kind}").scan(version=version).materialize(copies[name])
    with SharingServer(copies) as server, SharingClient(server.profile) as reader:
        for version in (0, 2):
            assert ids(reader.table(f"s.s.v{version}").scan().to_arrow()) == VERSIONS[kind][version]


@pytest.mark.parametrize("kind", ["vectors", "grown"])
def test_urls_of_deletion_vectors_without_an_id_are_renewed(
    tmp_path: Path, kind: str, wall_clock: WallClock
) -> None:
    table = MAKERS[kind](tmp_path / "t")
    options = ServerOptions.like_reference(url_lifetime=timedelta(seconds=100))
    with (
        SharingServer({"s.s.t": table.root}, options=options) as server,
        SharingClient(server.profile) as client,
    ):
        scan = client.table("s.s.t").scan(columns=["id"])
        reader = scan.to_record_batch_reader()
        wall_clock.advance(100)
        server.reset_requests()
        assert ids(reader.read_all()) == VERSIONS[kind][-1]
        assert len([request for request in server.requests if request.path.endswith("/query")]) == 1


def test_a_wrong_token(server: SharingServer) -> None:
    """The answer is no JSON."""
    with SharingClient(server.profile | {"bearerToken": "wrong"}) as client:
        table = client.table("s.s.plain")
        for ask in (client.list_shares, table.version, table.metadata, table.scan().to_arrow):
            with pytest.raises(AuthenticationError, match="401 Unauthorized") as caught:
                ask()
            assert (caught.value.status, caught.value.error_code) == (401, None)


def test_the_functions_that_take_a_url(server: SharingServer, tmp_path: Path) -> None:
    profile = server.write_profile(tmp_path / "config.share")
    url = f"{profile}#s.s.vectors"
    moment = datetime.fromtimestamp(ChangeTable.time(1) / 1000, UTC).isoformat()
    assert ids(ds.load_as_pandas(url, version=0)) == VERSIONS["vectors"][0]
    assert ids(ds.load_as_arrow(url, timestamp=moment)) == VERSIONS["vectors"][1]
    assert ids(ds.load_as_pandas(url, use_delta_format=True)) == VERSIONS["vectors"][2]
    assert ids(ds.load_as_pandas(f"{profile}#s.s.plain", 100, 0, use_delta_format=False)) == VERSIONS["plain"][0]
