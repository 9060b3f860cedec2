"""Changes of shared views: ranges of time, and rows without a version."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.server import FaultServer, Reply, Request, file_reply
from loading_tables import struct_of

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import BadRequestError, ProtocolError, ViewChangesError
from delta_sharing_client.table.shared_table import SharedTable

START = "2026-09-01T00:00:00Z"
COLUMNS = [{"name": "id", "type": "long"}, {"name": "p", "type": "string"}]
CHANGES = "/shares/s/schemas/s/tables/v/changes"


class View:
    """A shared view on the scripted server.

    format: the response format.
    version: the value of the header `Delta-Table-Version`.
    marked: whether the answer has the capability.
    fields: further fields of each file; those that are None are left out.
    pages: the ids of the files of each page.
    """

    def __init__(self, server: FaultServer) -> None:
        self.server = server
        self.format = "parquet"
        self.version: str | None = None
        self.marked = [True, True]
        self.fields: dict[str, Any] = {}
        self.pages = [["b", "a"], ["c"]]
        self.data = {"a": pa.table({"id": [1, 2]}), "b": pa.table({"id": [1]})}
        self.data["c"] = pa.table({"id": [3, 3], "_change_type": ["update_preimage", "update_postimage"]})
        server.on("GET", "*", self.store)
        server.on("GET", CHANGES, self.answer)

    def answer(self, request: Request) -> Reply:
        if "cdfonviews=true" not in request.headers["delta-sharing-capabilities"]:
            return Reply.of_json({"errorCode": "INVALID", "message": "cdfOnViews is needed"}, status=400)
        number = int(request.query.get("pageToken", "0"))
        schema = {"schemaString": json.dumps(struct_of(*COLUMNS)), "partitionColumns": ["p"]}
        metadata = {"id": "v", "format": {"provider": "parquet"}, "configuration": {}} | schema
        protocol: dict[str, Any] = {"minReaderVersion": 1}
        if self.format == "delta":
            metadata = {"deltaMetadata": metadata}
            protocol = {"deltaProtocol": protocol | {"minWriterVersion": 4}}
        lines = [{"protocol": protocol}, {"metaData": metadata}, *map(self.file, self.pages[number])]
        token = {"nextPageToken": str(number + 1)} if number + 1 < len(self.pages) else {}
        marks = ["cdfOnViews=True"] if self.marked[number] else []
        capabilities = ";".join([f"responseformat={self.format}", "includeendstreamaction=true", *marks])
        headers = {"delta-sharing-capabilities": capabilities}
        if self.version is not None:
            headers["Delta-Table-Version"] = self.version
        return Reply.of_lines(*lines, {"endStreamAction": token}, headers=headers)

    def file(self, name: str) -> dict[str, Any]:
        sink = io.BytesIO()
        pq.write_table(self.data[name], sink)
        kind, time = {"a": ("add", 1000), "b": ("remove", 2000), "c": ("cdf", 3000)}[name]
        place = f"{self.server.url}/data/{name}"
        values = {"partitionValues": {"p": name}, "size": len(sink.getvalue())}
        given = {"id": name, "timestamp": time, **self.fields}
        outer = {key: value for key, value in given.items() if value is not None}
        if self.format == "parquet":
            return {kind: {"url": place} | values | outer}
        action = {"cdc" if kind == "cdf" else kind: {"path": place, "dataChange": kind != "cdf"} | values}
        return {"file": outer | {"deltaSingleAction": action}}

    def store(self, request: Request) -> Reply:
        name = request.path.rpartition("/")[2]
        if name not in self.data:
            return Reply(status=404)
        sink = io.BytesIO()
        pq.write_table(self.data[name], sink)
        return file_reply(sink.getvalue())(request)

    def table(self) -> SharedTable:
        return SharingClient(self.server.profile).table("s.s.v")


@pytest.fixture
def view(faults: FaultServer) -> View:
    return View(faults)


@pytest.mark.parametrize("answered", ["parquet", "delta"])
@pytest.mark.protocol("cdfonviews")
class TestRows:
    def test_no_row_has_a_version(self, view: View, answered: str) -> None:
        view.format = answered
        table = view.table().changes(starting_timestamp=START).to_arrow()
        assert table.column_names == ["id", "p", "_change_type", "_commit_timestamp"]
        assert table.to_pylist() == [
            {"id": 1, "p": "a", "_change_type": "insert", "_commit_timestamp": 1000},
            {"id": 2, "p": "a", "_change_type": "insert", "_commit_timestamp": 1000},
            {"id": 1, "p": "b", "_change_type": "delete", "_commit_timestamp": 2000},
            {"id": 3, "p": "c", "_change_type": "update_preimage", "_commit_timestamp": 3000},
            {"id": 3, "p": "c", "_change_type": "update_postimage", "_commit_timestamp": 3000},
        ]

    def test_columns_and_times(self, view: View, answered: str) -> None:
        view.format = answered
        changes = view.table().changes(starting_timestamp=START, columns=["p"], commit_timestamp="timestamp")
        frame = changes.to_pandas()
        assert list(frame.columns) == ["p", "_change_type", "_commit_timestamp"]
        assert str(frame["_commit_timestamp"].dt.tz) == "UTC"

    def test_without_changes(self, view: View, answered: str) -> None:
        view.format, view.pages = answered, [[]]
        table = view.table().changes(starting_timestamp=START, ending_timestamp=START).to_arrow()
        assert table.num_rows == 0
        assert table.column_names == ["id", "p", "_change_type", "_commit_timestamp"]

    def test_the_same_file_at_two_times(self, view: View, answered: str) -> None:
        """A view may insert the same result again."""
        view.format, view.pages = answered, [["a"], ["a"]]
        view.fields = {"timestamp": None}
        times = iter([1000, 5000, 5000])
        plain = view.file
        view.file = lambda name: plain(name) if view.fields.update(timestamp=next(times)) is None else {}  # type: ignore[method-assign]
        table = view.table().changes(starting_timestamp=START).to_arrow()
        assert table["_commit_timestamp"].to_pylist() == [1000, 1000, 5000, 5000]


def test_schema_and_explanation(view: View) -> None:
    changes = view.table().changes(starting_timestamp=START)
    assert changes.schema.names == ["id", "p", "_change_type", "_commit_timestamp"]
    assert "files    3 to read" in changes.explain()


def test_the_range_is_sent_as_it_was_given(view: View) -> None:
    view.table().changes(starting_timestamp=START).to_arrow()
    first, second = (request for request in view.server.requests if request.path == CHANGES)
    assert first.query["startingTimestamp"] == START
    assert "views" not in first.query
    assert "cdfonviews=true" in second.headers["delta-sharing-capabilities"]


class TestRefused:
    """Each answer contradicts itself, or the request."""

    def load(self, view: View, match: str, error: type[Exception] = ProtocolError, **options: Any) -> Exception:
        with pytest.raises(error, match=match) as raised:
            view.table().changes(**(options or {"starting_timestamp": START})).to_arrow()
        return raised.value

    def test_a_version_in_the_header(self, view: View) -> None:
        view.version = "3"
        self.load(view, "header has version 3")

    def test_a_file_with_a_version(self, view: View) -> None:
        view.fields = {"version": 3}
        self.load(view, "file b has version 3")

    def test_a_file_without_a_time(self, view: View) -> None:
        view.fields = {"timestamp": None}
        self.load(view, "file b has no timestamp")

    def test_a_file_without_version_of_a_table(self, view: View) -> None:
        view.marked = [False, False]
        self.load(view, "without its version")

    def test_pages_of_a_view_and_of_a_table(self, view: View) -> None:
        view.marked = [True, False]
        self.load(view, "view")

    @pytest.mark.parametrize("bound", ["starting_version", "ending_version"])
    def test_a_range_of_versions(self, view: View, bound: str) -> None:
        options = {"starting_timestamp": START} if bound == "ending_version" else {}
        error = self.load(view, "starting_timestamp", ViewChangesError, **options, **{bound: 3})
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


class TestVersionsNeeded:
    """Callers that need versions do not accept the changes of views."""

    @pytest.mark.protocol("cdfOnViews")
    def test_a_poller(self, view: View) -> None:
        view.server.on("GET", "/shares/s/schemas/s/tables/v/version", Reply(headers={"Delta-Table-Version": "5"}))
        poller = view.table().poll_changes(starting_version=3)
        with pytest.raises(BadRequestError):
            poller.pull()
        view.server.on(
            "GET", CHANGES, lambda _: Reply.of_lines(headers={"delta-sharing-capabilities": "cdfonviews=true"})
        )
        with pytest.raises(ViewChangesError, match="no versions"):
            poller.pull()

    @pytest.mark.protocol("cdfOnViews")
    def test_a_local_table(self, view: View, tmp_path: Any) -> None:
        view.server.on(
            "GET", CHANGES, lambda _: Reply.of_lines(headers={"delta-sharing-capabilities": "cdfonviews=true"})
        )
        with pytest.raises(ViewChangesError, match="no versions"):
            view.table().changes(starting_timestamp=START, ending_timestamp=START).materialize(tmp_path / "t")
