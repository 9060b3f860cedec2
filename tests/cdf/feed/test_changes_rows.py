"""The rows of changes: what each kind of action becomes, in which order and with which columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_tables import COLUMNS, FEED, HOUR, ChangeTable, change_rows, column, expect, rows

import delta_sharing_client as ds
from delta_sharing_client.errors import BadRequestError, ColumnError
from delta_sharing_client.server import SharingServer, write_sample_tables
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Appends; an update with a change file; a rewrite that changes nothing; an overwrite; nothing; an append."""
    table = ChangeTable(tmp_path / "t")
    table.commit(table.add("a", rows(1, 2, 3)))
    table.commit(table.add("b", rows(4, 5)), table.add("c", rows(6)))
    table.commit(
        table.remove("b"),
        table.add("b2", rows(40, 5)),
        table.cdc(
            "u", pa.concat_tables([rows(4), rows(40), rows(9)]), ["update_preimage", "update_postimage", "delete"]
        ),
    )
    table.commit(table.remove("b2", data_change=False), table.add("b3", rows(40, 5), data_change=False))
    table.commit(table.remove("a"), table.add("z", rows(7)), table.remove("c"))
    table.commit()
    table.commit(table.add("d", rows(8)))
    return table


EVERYTHING = [
    *expect(0, "insert", [1, 2, 3]),
    *expect(1, "insert", [4, 5, 6]),
    (2, "update_preimage", 4),
    (2, "update_postimage", 40),
    (2, "delete", 9),
    *expect(4, "delete", [1, 2, 3]),
    (4, "insert", 7),
    (4, "delete", 6),
    (6, "insert", 8),
]


class TestRows:
    def test_of_every_kind_of_action(self, table: ChangeTable, share: Share, response_format: Any) -> None:
        changes = share(table.root).changes(0, response_format=response_format).to_arrow()
        assert change_rows(changes) == EVERYTHING
        assert changes.column_names == ["id", "s", "_change_type", "_commit_version", "_commit_timestamp"]
        assert changes.schema.field("_commit_version").type == pa.int64()
        assert changes.column("_commit_timestamp").to_pylist() == [
            table.time(version) for version, *_ in EVERYTHING
        ]

    @pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (2, 2), (3, 4), (4, None), (6, 6), (2, 99)])
    def test_of_a_range_of_versions(
        self, table: ChangeTable, share: Share, response_format: Any, first: int, last: int | None
    ) -> None:
        changes = share(table.root).changes(first, last, response_format=response_format)
        end = 6 if last is None else last
        assert change_rows(changes.to_arrow()) == [row for row in EVERYTHING if first <= row[0] <= end]
        assert changes.count() == sum(first <= row[0] <= end for row in EVERYTHING)

    @pytest.mark.parametrize(("first", "last"), [(3, 3), (5, 5)])
    def test_of_an_empty_range(
        self, table: ChangeTable, share: Share, response_format: Any, first: int, last: int
    ) -> None:
        shared = share(table.root)
        changes = shared.changes(first, last, response_format=response_format)
        assert changes.to_arrow().num_rows == changes.count() == 0
        assert changes.to_arrow().schema == shared.changes(0).to_arrow().schema == changes.schema
        frame = changes.to_pandas()
        assert list(frame.columns) == changes.schema.names
        assert frame.dtypes["_commit_version"] == "int64"

    def test_pages_have_the_rows_of_the_whole_answer(
        self, table: ChangeTable, share: Share, response_format: Any
    ) -> None:
        changes = share(table.root, max_files_per_page=1).changes(0, response_format=response_format)
        assert change_rows(changes.to_arrow()) == EVERYTHING

    def test_of_an_older_server(self, table: ChangeTable, share: Share) -> None:
        changes = share(table.root, prefer_format="parquet", send_end_stream_action=False).changes(0)
        assert change_rows(changes.to_arrow()) == EVERYTHING

    def test_of_a_partitioned_table(self, tmp_path: Path, share: Share, response_format: Any) -> None:
        table = ChangeTable(tmp_path / "t", [*COLUMNS, column("p", "integer")], partitions=["p"])
        table.commit(table.add("p=1/a", rows(1), values={"p": "1"}), table.add("n/b", rows(2), values={"p": None}))
        table.commit(table.cdc("p=1/u", rows(1), ["delete"], values={"p": "1"}))
        table.commit(table.remove("n/b", values={"p": None}))
        changes = share(table.root).changes(0, response_format=response_format).to_arrow()
        assert change_rows(changes, "id", "p") == [
            (0, "insert", 1, 1),
            (0, "insert", 2, None),
            (1, "delete", 1, 1),
            (2, "delete", 2, None),
        ]

    def test_rows_are_those_of_deltalake(self, tmp_path: Path, response_format: Any) -> None:
        from deltalake import DeltaTable

        paths = write_sample_tables(tmp_path)
        theirs = pa.table(DeltaTable(str(paths["retail.sales.orders"])).load_cdf(starting_version=0).read_all())
        with SharingServer(paths) as server, ds.SharingClient(server.profile) as client:
            changes = client.table("retail.sales.orders").changes(0, response_format=response_format)
            ours = changes.replace(commit_timestamp="timestamp").to_arrow()
        theirs = theirs.select(ours.column_names).cast(ours.schema)
        names = [name for name in ours.column_names if name != "_commit_timestamp"]
        keys = [(name, "ascending") for name in ("_commit_version", "order_id", "_change_type")]
        assert ours.num_rows == theirs.num_rows > 60_000
        assert ours.select(names).sort_by(keys).equals(theirs.select(names).sort_by(keys))


class TestColumns:
    def test_chosen(self, table: ChangeTable, share: Share, response_format: Any) -> None:
        shared = share(table.root)
        changes = shared.changes(0, columns=["S"], response_format=response_format).to_arrow()
        assert changes.column_names == ["s", "_change_type", "_commit_version", "_commit_timestamp"]
        assert change_rows(changes, "s") == [(version, kind, str(i)) for version, kind, i in EVERYTHING]
        alone = shared.changes(0, columns=[], response_format=response_format).to_arrow()
        assert list(zip(*(c.to_pylist() for c in alone.columns[:2]), strict=True)) == [
            (kind, version) for version, kind, _ in EVERYTHING
        ]

    @pytest.mark.parametrize(
        ("columns", "word"),
        [
            (["nope"], "has no column 'nope'"),
            (["id", "ID"], "twice"),
            (["id", "_Commit_Version"], "every change has"),
        ],
    )
    def test_invalid_columns_raise(self, table: ChangeTable, share: Share, columns: list[str], word: str) -> None:
        with pytest.raises(ColumnError, match=word):
            share(table.root).changes(0, columns=columns).to_arrow()

    def test_a_table_with_a_column_of_a_reserved_name_raises(self, tmp_path: Path, share: Share) -> None:
        table = ChangeTable(tmp_path / "t", [column("id", "long"), column("_commit_version", "long")])
        table.commit()
        with pytest.raises(ds.errors.UnsupportedTableError, match="'_commit_version' of its own"):
            share(table.root).changes(0).to_arrow()
        assert share(table.root).changes(0, columns=["id"]).to_arrow().num_rows == 0

    def test_commit_time_as_an_instant(self, table: ChangeTable, share: Share, response_format: Any) -> None:
        changes = share(table.root).changes(0, response_format=response_format, commit_timestamp="timestamp")
        times = changes.to_arrow().column("_commit_timestamp")
        assert times.type == changes.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
        assert times.cast(pa.int64()).to_pylist() == [table.time(version) * 1000 for version, *_ in EVERYTHING]

    def test_in_pandas(self, table: ChangeTable, share: Share) -> None:
        frame = share(table.root).changes(0).to_pandas()
        assert str(frame.dtypes["_commit_timestamp"]) == str(frame.dtypes["_commit_version"]) == "int64"
        assert list(frame["_commit_version"]) == [version for version, *_ in EVERYTHING]


class TestTimes:
    @pytest.mark.parametrize(
        ("start", "end", "versions"),
        [(-1, None, range(7)), (1, 2, range(1, 3)), (1.5, 4.5, range(2, 5)), (4, 4, [4]), (6, 99, [6])],
    )
    def test_as_text_and_as_datetimes(
        self, table: ChangeTable, share: Share, start: float, end: float | None, versions: Any
    ) -> None:
        shared = share(table.root)

        def at(hour: float | None) -> datetime | None:
            return (
                None if hour is None else datetime.fromtimestamp(table.time(0) / 1000, UTC) + timedelta(hours=hour)
            )

        def text(moment: datetime | None) -> str | None:
            return None if moment is None else moment.isoformat().replace("+00:00", "Z")

        expected = [row for row in EVERYTHING if row[0] in versions]
        first, last = at(start), at(end)
        by_time = shared.changes(starting_timestamp=first, ending_timestamp=last)
        assert change_rows(by_time.to_arrow()) == expected
        by_text = shared.changes(starting_timestamp=text(first), ending_timestamp=text(last))
        assert by_text == by_time
        assert (
            change_rows(by_time.replace(starting_timestamp=None, starting_version=min(versions)).to_arrow())
            == expected
        )


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "error", "word"),
        [
            ({}, ValueError, "exactly one of starting_version and starting_timestamp"),
            ({"starting_version": 0, "starting_timestamp": "2024-01-01"}, ValueError, "exactly one of starting"),
            (
                {"starting_version": 0, "ending_version": 1, "ending_timestamp": "2024-01-01"},
                ValueError,
                "at most one of ending",
            ),
            ({"starting_version": 3, "ending_version": 2}, ValueError, "2, which is before starting_version, 3"),
            ({"starting_version": -1}, ValueError, "starting_version is -1"),
            ({"starting_version": "1"}, TypeError, "starting_version is an int"),
            ({"starting_version": 0, "ending_version": True}, TypeError, "ending_version is an int"),
            ({"starting_timestamp": "yesterday"}, ValueError, "not a time in ISO 8601"),
            ({"starting_version": 0, "columns": "id"}, TypeError, "list of names"),
            ({"starting_version": 0, "columns": {"id"}}, TypeError, "a set has no order"),
            ({"starting_version": 0, "response_format": "xml"}, ValueError, "response_format"),
            ({"starting_version": 0, "commit_timestamp": "date"}, ValueError, "'long' or 'timestamp'"),
            ({"starting_version": 0, "variant": "text"}, ValueError, "variant"),
        ],
    )
    def test_invalid_ranges_raise(
        self, share: Share, table: ChangeTable, arguments: dict[str, Any], error: type[Exception], word: str
    ) -> None:
        with pytest.raises(error, match=word):
            share(table.root).changes(**arguments)

    @pytest.mark.parametrize(
        ("arguments", "word"),
        [
            ({"starting_version": 7}, "after the latest version 6"),
            ({"starting_timestamp": "2999-01-01"}, "older than the timestamp"),
            ({"starting_version": 3, "ending_timestamp": "2023-11-14T22:30:00Z"}, "before the starting version"),
        ],
    )
    def test_ranges_that_the_server_refuses_raise(
        self, share: Share, table: ChangeTable, arguments: dict[str, Any], word: str
    ) -> None:
        with pytest.raises(BadRequestError, match=word):
            share(table.root).changes(**arguments).to_arrow()

    def test_a_table_without_history(self, share: Share, table: ChangeTable) -> None:
        with pytest.raises(BadRequestError, match="history is not shared"):
            share(table.root, history=False).changes(0).to_arrow()

    def test_a_table_without_a_change_feed(self, share: Share, tmp_path: Path) -> None:
        table = ChangeTable(tmp_path / "t", configuration={})
        table.commit(table.add("a", rows(1)))
        table.commit(table.metadata(COLUMNS, FEED), table.add("b", rows(2)))
        with pytest.raises(BadRequestError, match=r"not enabled for version 0(?!.*on_future)"):
            share(table.root).changes(0).to_arrow()
        assert change_rows(share(table.root).changes(1).to_arrow()) == [(1, "insert", 2)]

    def test_replace(self, share: Share, table: ChangeTable) -> None:
        changes = share(table.root).changes(0, columns=["id"])
        assert changes.replace(ending_version=0).to_arrow().num_rows == 3
        assert changes.replace() == changes
        with pytest.raises(TypeError, match="no option version"):
            changes.replace(version=3)
        with pytest.raises(ValueError, match="exactly one"):
            changes.replace(starting_timestamp="2024-01-01")


class TestForms:
    def test_all_hold_the_same_rows(self, share: Share, table: ChangeTable) -> None:
        import duckdb
        import polars as pl

        changes = share(table.root).changes(1, 4)
        whole = changes.to_arrow()
        assert changes.to_record_batch_reader().read_all().equals(whole)
        assert changes.to_polars().to_arrow().cast(whole.schema).equals(whole)
        assert pa.RecordBatchReader.from_stream(changes).read_all().equals(whole)
        assert pl.DataFrame(changes).shape == (whole.num_rows, 5)
        with duckdb.connect() as connection:
            relation = changes.to_duckdb(connection)
            kinds = relation.aggregate("_change_type, count(*) AS n").order("_change_type").fetchall()
        assert kinds == [("delete", 5), ("insert", 4), ("update_postimage", 1), ("update_preimage", 1)]

    def test_functions_by_url(
        self, serve: Callable[..., SharingServer], table: ChangeTable, tmp_path: Path
    ) -> None:
        url = f"{serve(table.root).write_profile(tmp_path / 'p.share')}#s.s.t"
        frame = ds.load_table_changes_as_pandas(url, 1, 2, use_delta_format=True, convert_in_batches=True)
        assert list(frame["id"]) == [4, 5, 6, 4, 40, 9]
        start = datetime.fromtimestamp(table.time(6) / 1000, UTC)
        arrow = ds.load_table_changes_as_arrow(
            url, starting_timestamp=start, columns=["s"], commit_timestamp="timestamp"
        )
        assert arrow.to_pylist() == [
            {"s": "8", "_change_type": "insert", "_commit_version": 6, "_commit_timestamp": start}
        ]
        nullable = ds.load_table_changes_as_pandas(url, 6, dtype_backend="numpy_nullable", use_delta_format=False)
        assert str(nullable.dtypes["_commit_version"]) == "Int64"

    def test_representations(self, share: Share, table: ChangeTable) -> None:
        changes = share(table.root).changes(1, 4)
        assert repr(changes) == "TableChanges('s.s.t', from version 1 to version 4)"
        assert repr(changes.replace(columns=["id"], ending_version=None)) == (
            "TableChanges('s.s.t', from version 1 to the latest version, columns=['id'])"
        )
        assert "from version 1 to version 4" in changes._repr_html_()
        lines = changes.explain().splitlines()
        assert lines[1] == "range    from version 1 to version 4; versions 1 to 4 changed rows"
        assert lines[3] == "files    6 to read: 1 of change data, 2 of delete, 3 of insert"

    def test_tasks_are_picklable_and_show_no_url(self, share: Share, table: ChangeTable) -> None:
        tasks = share(table.root).changes(0).files()
        assert pickle.loads(pickle.dumps(tasks)) == tasks
        assert "127.0.0.1" not in repr(tasks)
        assert tasks[0].constants["_commit_timestamp"] == table.time(0)
        assert tasks[-1].constants["_commit_timestamp"] == table.time(0) + 6 * HOUR


def test_costs_one_request_and_the_files_of_its_range(
    serve: Callable[..., SharingServer], table: ChangeTable
) -> None:
    server = serve(table.root)
    with ds.SharingClient(server.profile) as client:
        client.table("s.s.t").changes(1, 2).to_arrow()
    paths = [request.path for request in server.requests if not request.is_file]
    assert [path.rpartition("/")[2] for path in paths] == ["changes"]
    assert sum(request.is_file for request in server.requests) == 3
