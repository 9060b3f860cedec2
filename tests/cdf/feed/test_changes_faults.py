"""Servers and stores that misbehave while changes are read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_tables import COLUMNS, ChangeTable, change_rows, expect, rows
from faults.server import FaultServer, Reply, Request, file_reply
from loading_tables import struct_of
from waiting import WallClock

import delta_sharing_client as ds
from delta_sharing_client.errors import DataError, ProtocolError, SchemaChangedError, StorageError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable

SIGNATURE = "canary-signature-81ce"


class Feed:
    """A feed of changes on the scripted server, in parquet format.

    lines: what it answers, after protocol and metadata; a list of them is one page each.
    data: the files by their ids.
    """

    def __init__(self, server: FaultServer) -> None:
        self.server = server
        self.lines: list[dict[str, Any]] = []
        self.data: dict[str, bytes] = {}
        self.generation = 0
        self.good_from = 0
        server.on("GET", "/shares/s/schemas/s/tables/t/changes", self.answer)
        server.on("GET", "*", self.store)
        server.on("GET", "/shares/s/schemas/s/tables/t/changes", self.answer)

    def metadata(self, version: int | None, *columns: dict[str, Any]) -> dict[str, Any]:
        fields = {"id": "x", "format": {"provider": "parquet"}, "partitionColumns": [], "configuration": {}}
        versioned = {} if version is None else {"version": version}
        return {"metaData": fields | versioned | {"schemaString": json.dumps(struct_of(*(columns or COLUMNS)))}}

    def file(
        self, action: str, name: str, version: int | None, data: pa.Table | None = None, **changes: Any
    ) -> Any:
        if data is not None:
            sink = io.BytesIO()
            pq.write_table(data, sink)
            self.data[name] = sink.getvalue()
        fields = {"id": name, "partitionValues": {}, "size": len(self.data[name]), "timestamp": 1000}
        return {action: fields | ({} if version is None else {"version": version}) | changes}

    def answer(self, request: Request) -> Reply:
        self.generation += 1
        lines: list[dict[str, Any]] = [{"protocol": {"minReaderVersion": 1}}]
        for line in self.lines if "metaData" in self.lines[0] else [self.metadata(0), *self.lines]:
            ((kind, fields),) = line.items()
            if "id" in fields and kind != "metaData":
                url = f"{self.server.url}/data/{fields['id']}?g={self.generation}&X-Amz-Signature={SIGNATURE}"
                line = {kind: fields | {"url": url}}
            lines.append(line)
        return Reply.of_lines(*lines, headers={"Delta-Table-Version": "0"})

    def store(self, request: Request) -> Reply:
        if int(request.query["g"]) < self.good_from:
            text = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
            return Reply(status=403, body=text.encode(), headers={"Content-Type": "application/xml"})
        return file_reply(self.data[request.path.rpartition("/")[2]])(request)


@pytest.fixture
def feed(faults: FaultServer) -> Feed:
    return Feed(faults)


@pytest.fixture
def shared(faults: FaultServer) -> Any:
    with ds.SharingClient(faults.profile) as client:
        yield client.table("s.s.t")


class TestUrls:
    def test_that_expire_before_they_are_used(
        self, tmp_path: Path, share: Callable[..., SharedTable], wall_clock: WallClock
    ) -> None:
        table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
        first, second = table.vector(0, name="v1.bin"), table.vector(0, 2, name="v2.bin")
        table.commit(table.add("f", rows(0, 1, 2)))
        table.commit(table.remove("f"), table.add("f", vector=first))
        table.commit(table.remove("f", vector=first), table.add("f", vector=second), table.add("g", rows(7)))
        reader = share(table.root, url_lifetime=timedelta(minutes=1)).changes(1).to_record_batch_reader()
        wall_clock.advance(60)
        table.commit(table.add("later", rows(8)))
        assert change_rows(reader.read_all()) == [(1, "delete", 0), (2, "delete", 2), (2, "insert", 7)]

    def test_are_renewed_by_one_request_for_all(self, feed: Feed, shared: SharedTable) -> None:
        feed.lines = [feed.file("add", f"f{i}", i, rows(i)) for i in range(20)]
        feed.good_from = 2
        changes = shared.changes(0).to_arrow()
        assert change_rows(changes) == [(i, "insert", i) for i in range(20)]
        requests = feed.server.seen("/shares/s/schemas/s/tables/t/changes")
        assert [request.query.get("endingVersion") for request in requests] == [None, "19"]
        assert all(request.query["startingVersion"] == "0" for request in requests)

    def test_urls_of_a_missing_file_raise(self, feed: Feed, shared: SharedTable) -> None:
        feed.lines = [feed.file("add", "f", 0, rows(1))]
        reader = shared.changes(0).to_record_batch_reader
        feed.good_from = 2
        opened = reader()
        feed.lines = [feed.file("add", "other", 0, rows(2))]
        with pytest.raises(StorageError, match="does not list the file any more") as caught:
            opened.read_all()
        assert SIGNATURE not in str(caught.value)

    def test_urls_are_in_no_message(self, feed: Feed, shared: SharedTable) -> None:
        feed.lines = [feed.file("cdf", "f", 0, rows(1))]
        with pytest.raises(DataError, match="file f: it has no column '_change_type'") as caught:
            shared.changes(0).to_arrow()
        assert SIGNATURE not in str(caught.value)


class TestAnswers:
    def test_with_files_beside_change_files(self, feed: Feed, shared: SharedTable) -> None:
        """Whatever else the server names of such a version is the same rows again."""
        data = rows(1).append_column("_change_type", pa.array(["delete"]))
        feed.lines = [
            feed.file("add", "a", 1, rows(1)),
            feed.file("remove", "r", 1, rows(1)),
            feed.file("cdf", "c", 1, data),
            feed.file("add", "n", 2, rows(5)),
        ]
        assert change_rows(shared.changes(0).to_arrow()) == [(1, "delete", 1), (2, "insert", 5)]

    def test_out_of_order(self, feed: Feed, shared: SharedTable) -> None:
        feed.lines = [feed.file("add", f"f{n}", version, rows(n)) for n, version in enumerate([2, 0, 2, 1, 0])]
        assert change_rows(shared.changes(0).to_arrow()) == [
            *expect(0, "insert", [1, 4]),
            (1, "insert", 3),
            *expect(2, "insert", [0, 2]),
        ]

    def test_with_a_file_twice(self, feed: Feed, shared: SharedTable) -> None:
        once = feed.file("add", "f", 0, rows(1))
        again = feed.file("add", "f", 3)
        feed.lines = [once, once, again]
        assert change_rows(shared.changes(0).to_arrow()) == [(0, "insert", 1), (3, "insert", 1)]
        feed.lines = [once, feed.file("add", "f", 0, size=9)]
        with pytest.raises(ProtocolError, match="listed the file f twice, with different contents"):
            shared.changes(0).to_arrow()

    def test_versions_that_restore_a_file(self, feed: Feed, shared: SharedTable) -> None:
        """What a version both removes and adds, as it was, did not change."""
        feed.lines = [
            feed.file("remove", "f", 1, rows(1)),
            feed.file("add", "g", 1, rows(2)),
            feed.file("add", "f", 1),
        ]
        assert change_rows(shared.changes(0).to_arrow()) == [(1, "insert", 2)]

    @pytest.mark.parametrize(
        ("version", "word"), [(None, "the file f without its version"), (1, "contain the file f of version 1")]
    )
    def test_invalid_versions_raise(self, feed: Feed, shared: SharedTable, version: int | None, word: str) -> None:
        feed.lines = [feed.file("add", "f", version, rows(1))]
        with pytest.raises(ProtocolError, match=word):
            shared.changes(2).to_arrow()

    def test_versions_after_the_requested_end_are_ignored(self, feed: Feed, shared: SharedTable) -> None:
        """To a server the ending version is but a hint; later files and schemas are none of ours."""
        feed.lines = [
            feed.metadata(0),
            feed.file("add", "f", 0, rows(1)),
            feed.metadata(2, COLUMNS[1]),
            feed.file("add", "g", 2, rows(2)),
        ]
        changes = shared.changes(0, 1).to_arrow()
        assert change_rows(changes) == [(0, "insert", 1)]
        with pytest.raises(SchemaChangedError, match="in version 2 column 'id' was dropped"):
            shared.changes(0, 2).to_arrow()

    def test_answers_without_historical_metadata(self, feed: Feed, shared: SharedTable) -> None:
        feed.lines = [feed.metadata(None), feed.file("add", "f", 0, rows(1))]
        assert change_rows(shared.changes(0).to_arrow()) == [(0, "insert", 1)]
        (request,) = feed.server.seen("/shares/s/schemas/s/tables/t/changes")
        assert request.query == {
            "startingVersion": "0",
            "includeHistoricalMetadata": "true",
            "includeHistoricalProtocol": "true",
        }

    def test_without_the_time_of_a_commit(self, feed: Feed, shared: SharedTable) -> None:
        feed.lines = [feed.file("add", "f", 0, rows(1), timestamp=None)]
        for form in ("long", "timestamp"):
            changes = shared.changes(0, commit_timestamp=form).to_arrow()  # type: ignore[arg-type]
            assert changes.column("_commit_timestamp").to_pylist() == [None]


class TestIdsThatChangeWithTheVector:
    """A server changes a file's id with its deletion vector; the file is recognised by its URL."""

    def test_a_changed_id_with_the_same_url_is_one_file(self, tmp_path: Path, faults: FaultServer) -> None:
        table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
        table.commit(table.add("f", rows(0, 1, 2)))
        removed, added = table.remove("f"), table.add("f", vector=table.vector(1))
        table.commit(removed, added)
        data = (table.root / "f").read_bytes()
        lines: list[dict[str, Any]] = [
            {"protocol": {"deltaProtocol": table.protocol(["deletionVectors"])["protocol"]}},
            {"metaData": {"version": 1, "deltaMetadata": table.metadata(COLUMNS)["metaData"]}},
        ]
        for number, action in enumerate((removed, added)):
            ((kind, fields),) = action.items()
            url = f"{faults.url}/data/f?n={number}&X-Amz-Signature={SIGNATURE}"
            single = {kind: fields | {"path": url}}
            lines.append(
                {"file": {"id": f"id{number}", "version": 1, "timestamp": 5, "deltaSingleAction": single}}
            )
        faults.on("GET", "*", Reply.of_lines(*lines, headers={"Delta-Table-Version": "1"}))
        faults.on("GET", "/data/f", file_reply(data))
        with ds.SharingClient(faults.profile) as client:
            assert change_rows(client.table("s.s.t").changes(1).to_arrow()) == [(1, "delete", 1)]

    def test_a_changed_id_without_distinct_urls_is_another_file(self, tmp_path: Path, faults: FaultServer) -> None:
        """All URLs of the server have one path; only the query string differs between files."""
        table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
        table.commit(table.add("a", rows(0, 1, 2)), table.add("b", rows(3, 4, 5)))
        changes = [
            table.remove("a"),
            table.remove("b"),
            table.add("d", rows(9)),
            table.add("c", rows(6, 7, 8), vector=table.vector(1)),
        ]
        table.commit(*changes)
        lines: list[dict[str, Any]] = [
            {"protocol": {"deltaProtocol": table.protocol(["deletionVectors"])["protocol"]}},
            {"metaData": {"version": 1, "deltaMetadata": table.metadata(COLUMNS)["metaData"]}},
        ]
        for action in changes:
            ((kind, fields),) = action.items()
            single = {kind: fields | {"path": f"{faults.url}/data?file={fields['path']}"}}
            line = {"id": fields["path"], "version": 1, "timestamp": 5, "deltaSingleAction": single}
            lines.append({"file": line})
        faults.on("GET", "*", Reply.of_lines(*lines, headers={"Delta-Table-Version": "1"}))
        faults.on(
            "GET", "/data", lambda request: file_reply((table.root / request.query["file"]).read_bytes())(request)
        )
        with ds.SharingClient(faults.profile) as client:
            found = change_rows(client.table("s.s.t").changes(1).to_arrow())
        assert sorted(found) == expect(1, "delete", range(6)) + expect(1, "insert", (6, 8, 9))


def test_a_table_that_grows_while_it_is_listed(tmp_path: Path) -> None:
    """An open end is the latest version at the time of the request for the first page."""
    table = ChangeTable(tmp_path / "t")
    table.commit(*(table.add(f"f{i}", rows(i)) for i in range(5)))
    with (
        SharingServer({"s.s.t": table.root}, max_files_per_page=2) as server,
        ds.SharingClient(server.profile) as client,
    ):
        changes = client.table("s.s.t").changes(0)
        before = changes.plan()
        table.commit(table.add("later", rows(9)))
        assert [task.constants["_commit_version"] for task in before.tasks] == [0] * 5
        assert [row[0] for row in change_rows(changes.to_arrow())] == [0] * 5 + [1]
