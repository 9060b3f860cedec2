"""Hints that scans send, and loads whose hints the server refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults.server import FaultServer, Reply, Request
from loading_faults import TABLE, Share, expired, generation_of
from loading_tables import File, column, write_table

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import BadRequestError, VersionMismatchError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.table_scan import TableScan

COLUMNS = [column("id", "long"), column("p", "integer")]
FILTER = [("p", "=", 1)]
QUICK = {"backoff_base": timedelta(milliseconds=1), "backoff_cap": timedelta(milliseconds=2)}
HINTS = {"predicateHints", "jsonPredicateHints", "limitHint"}
NOON = "2024-01-31T12:00:00Z"


def rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 10), pa.int64())})


def refusal(request: Request) -> Reply:
    message = "Delta protocol version (3,7) is too new for this version of Standalone"
    return Reply.of_json({"errorCode": "UNSUPPORTED_OPERATION", "message": message}, status=400)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]) -> SharingServer:
    root = tmp_path_factory.mktemp("tables")
    files = [File(rows=rows(n * 10), name=f"{n}.parquet", values={"p": str(n)}) for n in range(3)]
    vectors = [File(rows=rows(30), name="v.parquet", values={"p": "1"}, vector=[0, 1]), *files]
    partitions = {"partitions": ["p"]}
    tables = {
        "s.s.plain": write_table(root / "plain", COLUMNS, files, **partitions),
        "s.s.vectors": write_table(root / "vectors", COLUMNS, vectors, features=["deletionVectors"], **partitions),
    }
    return serve(tables)


@pytest.mark.parametrize(("name", "sent"), [("plain", True), ("vectors", False)])
def test_the_older_notation_is_for_tables_without_reader_features(
    server: SharingServer, connect: Callable[..., SharingClient], name: str, sent: bool
) -> None:
    server.reset_requests()
    scan = connect(server).table(f"s.s.{name}").scan(filters="p = 1")
    assert scan.count() == (10 if name == "plain" else 18)
    (body,) = [request.body for request in server.requests if request.path.endswith("/query")]
    assert json.loads(body["jsonPredicateHints"])["op"] == "equal"
    assert ("predicateHints" in body) == sent


@pytest.mark.filterwarnings("ignore::delta_sharing_client.expressions.hint_check.PredicateHintWarning")
class TestRefused:
    """The server answers no query with a hint in it."""

    @pytest.fixture
    def share(self, faults: FaultServer) -> Share:
        share = Share(faults, COLUMNS[:1], {f"f{n}": rows(n * 10) for n in range(3)})

        def query(request: Request) -> Reply:
            return refusal(request) if HINTS & request.json().keys() else share.listing(share.data)

        faults.on("POST", f"{TABLE}/query", query)
        return share

    @pytest.mark.parametrize(
        ("asked", "found"),
        [
            ({"filters": [("id", ">=", 25)]}, [25, 26, 27, 28, 29]),
            ({"json_predicate_hints": '{"op": "mine"}'}, list(range(30))),
            ({"limit": 2}, [0, 1]),
        ],
    )
    @pytest.mark.parametrize("load", [TableScan.to_arrow, TableScan.to_pandas])
    def test_the_rows_are_the_same(
        self,
        faults: FaultServer,
        share: Share,
        connect: Callable[..., SharingClient],
        load: Callable[[TableScan], Any],
        asked: dict[str, Any],
        found: list[int],
    ) -> None:
        loaded = load(connect(faults).table("s.s.t").scan(**asked))
        assert list(map(int, loaded["id"])) == found if load is TableScan.to_pandas else loaded["id"].to_pylist()
        assert [bool(HINTS & request.json().keys()) for request in faults.seen(f"{TABLE}/query")] == [True, False]

    def test_count_and_materialize(
        self, faults: FaultServer, share: Share, connect: Callable[..., SharingClient], tmp_path: Path
    ) -> None:
        scan = connect(faults).table("s.s.t").scan(json_predicate_hints='{"op": "mine"}')
        assert scan.count() == 30
        scan.materialize(tmp_path / "copy")
        assert len(faults.seen(f"{TABLE}/query")) == 4

    def test_urls_are_renewed_without_the_hints(
        self, faults: FaultServer, share: Share, connect: Callable[..., SharingClient]
    ) -> None:
        share.serve_files_with(
            lambda request, healthy: expired(request) if generation_of(request) == 1 else healthy(request)
        )
        scan = connect(faults, **QUICK).table("s.s.t").scan(filters=[("id", ">=", 25)])
        assert scan.to_arrow()["id"].to_pylist() == [25, 26, 27, 28, 29]
        queries = [request.json() for request in faults.seen(f"{TABLE}/query")]
        assert [bool(HINTS & query.keys()) for query in queries] == [True, False, False]


def test_a_refusal_for_another_reason(faults: FaultServer, connect: Callable[..., SharingClient]) -> None:
    Share(faults, COLUMNS[:1], {"f": rows(0)})
    faults.on("POST", f"{TABLE}/query", refusal)
    with pytest.raises(BadRequestError, match="too new"):
        connect(faults).table("s.s.t").scan(filters=[("id", ">=", 5)]).to_arrow()
    assert len(faults.seen(f"{TABLE}/query")) == 2


class TestTimeTravel:
    @pytest.fixture
    def share(self, faults: FaultServer) -> Share:
        return Share(faults, COLUMNS[:1], {"f": rows(0)})

    def test_timestamp_is_compared_with_the_version_of_its_metadata(
        self, faults: FaultServer, share: Share, connect: Callable[..., SharingClient]
    ) -> None:
        """The metadata is of version 7, and the query is answered for a later one: the time was forgotten."""
        scan = connect(faults).table("s.s.t").scan(timestamp=NOON, filters=[("id", ">=", 5)])
        assert scan.count() == 5
        share.version = 9
        with pytest.raises(VersionMismatchError, match=f"{NOON}.* version 7.* version 9") as caught:
            scan.to_arrow()
        assert (caught.value.expected, caught.value.actual) == (7, 9)

    def test_server_that_describes_only_the_latest_version(
        self, faults: FaultServer, share: Share, connect: Callable[..., SharingClient]
    ) -> None:
        """Whatever version its metadata is asked for; the query for that version is answered all the same."""
        share.version = 3
        scan = connect(faults).table("s.s.t").scan(version=3, filters="id >= 5")
        assert scan.to_arrow()["id"].to_pylist() == [5, 6, 7, 8, 9]
        (query,) = faults.seen(f"{TABLE}/query")
        assert query.json() == {"version": 3}
        for ask in (scan.replace(limit=0).to_arrow, lambda: scan.schema, lambda: scan.table.metadata(3)):
            with pytest.raises(VersionMismatchError, match=r"requested version 3, .* version 7"):
                ask()
