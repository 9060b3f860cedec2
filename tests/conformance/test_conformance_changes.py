"""Read Change Data Feed from a Table: ranges by version and by time, historical metadata, pages."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance_targets import EVOLVED, LATEST, ORDERS, TYPED, Target, at_hour, path_of
from deltalake import DeltaTable

from delta_sharing_client.errors import BadRequestError, NotFoundError
from delta_sharing_client.model.actions import AddFile, CdcFile, FileAction, RemoveFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.wire.requests import ChangesRequest

SECOND = timedelta(seconds=1)
Changes = Counter[tuple[int, str, int]]


@pytest.fixture(scope="module")
def changes_of(tables: dict[str, Path]) -> Callable[[int, int], Changes]:
    """Deltalake's change feed of a range: version, change type, id."""

    def read(first: int, last: int) -> Changes:
        feed = pa.table(DeltaTable(str(tables[ORDERS])).load_cdf(first, last).read_all())
        return Counter(
            (row["_commit_version"], row["_change_type"], row["id"])
            for row in feed.select(["id", "_change_type", "_commit_version"]).to_pylist()
        )

    return read


def ask(target: Target, **changes: Any) -> Any:
    return target.rest.table_changes(Table.parse(ORDERS), ChangesRequest(**changes))


def rows_of(target: Target, files: list[FileAction]) -> Changes:
    """Fetch the files of an answer and read the changes in them."""
    found: Changes = Counter()
    for file in files:
        rows = pq.read_table(io.BytesIO(target.fetch(file.url.reveal())))
        assert file.version is not None
        if isinstance(file, CdcFile):
            kinds = rows["_change_type"].to_pylist()
        else:
            kinds = ["insert" if isinstance(file, AddFile) else "delete"] * rows.num_rows
        found.update((file.version, kind, row) for kind, row in zip(kinds, rows["id"].to_pylist(), strict=True))
    return found


class TestRanges:
    @pytest.mark.parametrize(("first", "last"), [(0, LATEST), (EVOLVED, EVOLVED), (4, 5)])
    @pytest.mark.protocol("GET .../tables/{table}/changes", "startingVersion", "endingVersion")
    def test_by_version(
        self,
        target: Target,
        response_format: Any,
        first: int,
        last: int,
        changes_of: Callable[[int, int], Changes],
    ) -> None:
        asked = {"starting_version": first, "ending_version": last, "formats": (response_format,)}
        if not target.history:
            with pytest.raises(BadRequestError, match="history is not shared"):
                ask(target, **asked)
            return
        answer = ask(target, **asked)
        assert answer.version == first
        assert rows_of(target, answer.items) == changes_of(first, last)
        assert [file.version for file in answer.items] == sorted(file.version for file in answer.items)
        for file in answer.items:
            assert file.timestamp == int(at_hour(file.version).timestamp() * 1000)
            assert set(file.partition_values) == {"day", "region"}
            assert file.size

    def test_an_open_end_is_the_latest_version(
        self, newest: Target, response_format: Any, changes_of: Callable[[int, int], Changes]
    ) -> None:
        answer = ask(newest, starting_version=4, formats=(response_format,))
        assert rows_of(newest, answer.items) == changes_of(4, LATEST)
        kinds = {kind for _, kind, _ in changes_of(4, LATEST)}
        assert kinds == {"insert", "delete", "update_preimage", "update_postimage"}
        assert {type(file) for file in answer.items} == {AddFile, CdcFile}

    @pytest.mark.parametrize(
        ("times", "versions"),
        [
            ((at_hour(-5), at_hour(2)), (0, 2)),
            ((at_hour(1), at_hour(1)), (1, 1)),
            ((at_hour(1) + SECOND, at_hour(4) - SECOND), (2, 3)),
            ((at_hour(5), None), (5, LATEST)),
        ],
    )
    @pytest.mark.protocol("startingTimestamp", "endingTimestamp")
    def test_by_time(self, target: Target, times: Any, versions: tuple[int, int]) -> None:
        first, last = (None if moment is None else moment.isoformat().replace("+00:00", "Z") for moment in times)
        asked = {"starting_timestamp": first, "ending_timestamp": last}
        if not target.history:
            with pytest.raises(BadRequestError, match="history is not shared"):
                ask(target, **asked)
            return
        by_time = ask(target, **asked)
        by_version = ask(target, starting_version=versions[0], ending_version=versions[1])
        assert by_time.version == versions[0]
        assert [file.id for file in by_time.items] == [file.id for file in by_version.items]

    @pytest.mark.parametrize(
        "asked",
        [
            {"starting_version": LATEST + 1},
            {"starting_version": 3, "ending_version": 2},
            {"starting_timestamp": "2999-01-01T00:00:00Z"},
            {"starting_version": 0, "ending_timestamp": "1999-01-01T00:00:00Z"},
        ],
    )
    def test_invalid_ranges_are_refused(self, target: Target, asked: dict[str, Any]) -> None:
        with pytest.raises(BadRequestError):
            ask(target, **asked)

    def test_client_refuses_invalid_ranges_without_a_request(self) -> None:
        for wrong in (
            {},
            {"starting_version": 1, "starting_timestamp": "2024-01-01T00:00:00Z"},
            {"starting_version": 1, "ending_version": 2, "ending_timestamp": "2024-01-01T00:00:00Z"},
        ):
            with pytest.raises(ValueError, match="give"):
                ChangesRequest(**wrong)  # type: ignore[arg-type]

    def test_files_after_the_end_are_dropped(self, faults: Any) -> None:
        """To a server the ending version is but a hint."""
        from faults.server import Reply

        from delta_sharing_client.model.profile import Profile
        from delta_sharing_client.rest.client import RestClient

        def added(version: int) -> dict[str, Any]:
            return {
                "add": {
                    "url": f"http://127.0.0.1/{version}",
                    "id": str(version),
                    "partitionValues": {},
                    "size": 1,
                    "timestamp": version,
                    "version": version,
                }
            }

        metadata = {"id": "x", "format": {"provider": "parquet"}, "schemaString": '{"type":"struct","fields":[]}'}
        lines = [{"protocol": {"minReaderVersion": 1}}, {"metaData": metadata | {"partitionColumns": []}}]
        faults.on("GET", "*", Reply.of_lines(*lines, *map(added, range(5))))
        with RestClient(Profile.from_dict(faults.profile)) as rest:
            answer = rest.table_changes(Table("t", "s", "s"), ChangesRequest(starting_version=1, ending_version=2))
        assert [file.version for file in answer.items] == [0, 1, 2]
        assert faults.requests[0].query == {"startingVersion": "1", "endingVersion": "2"}


class TestMetadata:
    def test_without_history_only_the_latest_metadata(self, newest: Target, response_format: Any) -> None:
        answer = ask(newest, starting_version=0, ending_version=1, formats=(response_format,))
        assert "note" in answer.metadata.schema.names
        assert answer.historical == ()

    @pytest.mark.protocol("includeHistoricalMetadata")
    def test_with_history_all_metadata_of_the_range(self, newest: Target, response_format: Any) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        answer = ask(newest, starting_version=1, include_historical_metadata=True, formats=(response_format,))
        assert newest.server.requests[0].query["includeHistoricalMetadata"] == "true"
        assert (answer.metadata.version, "note" in answer.metadata.schema.names) == (1, False)
        assert [item.version for item in answer.historical] == [EVOLVED]
        assert "note" in answer.historical[0].schema.names
        later = ask(newest, starting_version=4, include_historical_metadata=True, formats=(response_format,))
        assert (later.metadata.version, later.historical) == (4, ())


class TestPages:
    @pytest.mark.parametrize("size", [1, 4])
    def test_pages_add_up_to_the_whole_answer(self, newest: Target, response_format: Any, size: int) -> None:
        asked = {"starting_version": 0, "include_historical_metadata": True, "formats": (response_format,)}
        whole, paged = ask(newest, **asked), ask(newest, **asked, max_files=size)
        assert [(type(f), f.id, f.version) for f in paged.items] == [
            (type(f), f.id, f.version) for f in whole.items
        ]
        assert (paged.version, paged.metadata, paged.historical) == (
            whole.version,
            whole.metadata,
            whole.historical,
        )

    def test_server_with_its_own_page_size(self, start: Callable[..., Target], newest: Target) -> None:
        paged = start("paged")
        assert paged.server is not None
        paged.server.reset_requests()
        answer = ask(paged, starting_version=0)
        assert [file.id for file in answer.items] == [file.id for file in ask(newest, starting_version=0).items]
        asked = [request.query for request in paged.server.requests]
        assert len(asked) == len(answer.items)
        assert [query.get("startingVersion") for query in asked] == ["0"] * len(asked)
        assert [("pageToken" in query) for query in asked] == [False, *[True] * (len(asked) - 1)]


class TestWire:
    @pytest.mark.protocol("add", "remove", "cdf")
    def test_fields_of_a_change(self, newest: Target) -> None:
        answer = newest.get(f"{path_of(ORDERS)}/changes", startingVersion=4, endingVersion=4)
        assert answer.version == 4
        (change, *_) = answer.all("cdf")
        required = {"url", "id", "partitionValues", "size", "timestamp", "version"}
        assert required <= set(change) <= required | {"expirationTimestamp", "stats"}
        assert not answer.all("add")
        wrapped = newest.get(f"{path_of(ORDERS)}/changes", "responseformat=delta", startingVersion=4)
        actions = [next(iter(file["deltaSingleAction"])) for file in wrapped.all("file")]
        assert set(actions) == {"cdc", "add"}

    def test_files_of_a_range_by_query(self, target: Target) -> None:
        """POST /query with a starting version returns changed files, not changed rows."""
        answer = target.query(ORDERS, startingVersion=4, endingVersion=5)
        if not target.history:
            assert answer.status == 400
            return
        assert answer.version == 4
        kinds = Counter(key for line in answer.lines for key in line if key in ("add", "remove", "cdf"))
        assert kinds["add"]
        assert kinds["remove"]
        assert not kinds["cdf"]

    def test_end_of_the_stream(self, newest: Target) -> None:
        answer = newest.get(f"{path_of(ORDERS)}/changes", "includeendstreamaction=true", startingVersion=0)
        assert list(answer.lines[-1]) == ["endStreamAction"]


def test_a_table_without_a_change_feed(target: Target) -> None:
    with pytest.raises(BadRequestError, match="Change data feed is not enabled" if target.history else "history"):
        target.rest.table_changes(Table.parse(TYPED), ChangesRequest(starting_version=0))


def test_missing_table_is_not_found(target: Target) -> None:
    with pytest.raises(NotFoundError, match=r"shop\.sales\.nope"):
        target.rest.table_changes(Table("nope", "shop", "sales"), ChangesRequest(starting_version=0))


def test_removed_files_can_be_read(newest: Target, tmp_path: Path) -> None:
    """Without change data files, an overwrite is returned as removed and added files."""
    from deltalake import write_deltalake

    from delta_sharing_client.server import SharingServer

    path = str(tmp_path / "t")
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, pa.table({"id": [1, 2]}), configuration=feed)
    write_deltalake(path, pa.table({"id": [3]}), mode="overwrite")
    with SharingServer({"s.s.t": path}) as server:
        target = Target("overwritten", server.profile, server)
        answer = target.rest.table_changes(Table("t", "s", "s"), ChangesRequest(starting_version=1))
        rows = rows_of(target, answer.items)
        target.close()
    assert rows == Counter([(1, "delete", 1), (1, "delete", 2), (1, "insert", 3)])
    assert {type(file) for file in answer.items} == {AddFile, RemoveFile}
