"""Streams of tables whose columns change: which changes stop them, the errors, and restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stream_query import Query

pytest.importorskip("pyspark")

from change_tables import COLUMNS, FEED, ChangeTable, column, rows

from delta_sharing_client.errors import SchemaChangedError, StreamError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.data_source_options import parse_stream_options

ID, S = COLUMNS
MORE = column("n", "integer")
Serve = Callable[..., SharingServer]


def mapped(name: str, physical: str, number: int, kind: Any = "long") -> dict[str, Any]:
    names = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return {"name": name, "type": kind, "nullable": True, "metadata": names}


MAPPED = FEED | {"delta.columnMapping.mode": "name"}
BEFORE = [mapped("id", "id", 1), mapped("s", "s", 2, "string")]
#: What a version may do to the columns `BEFORE`, and the message of the error.
BROKEN = {
    "rename": ([BEFORE[0], mapped("text", "s", 2, "string")], "column 's' was renamed to 'text'"),
    "drop": ([BEFORE[0]], "column 's' was dropped"),
    "type": ([mapped("id", "id", 1, "string"), BEFORE[1]], "column 'id' changed its type from long to string"),
}
broken = pytest.mark.parametrize(("columns", "message"), BROKEN.values(), ids=BROKEN)
both = pytest.mark.parametrize("changes", ["false", "true"])


def with_more(number: int) -> pa.Table:
    return rows(number).append_column("n", pa.array([number], pa.int32()))


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Versions 0 and 1 with the rows 0 and 1."""
    table = ChangeTable(tmp_path / "t")
    for version in range(2):
        table.commit(table.add(f"f{version}", rows(version)))
    return table


@pytest.fixture
def renamable(tmp_path: Path) -> ChangeTable:
    """The same with column mapping."""
    table = ChangeTable(tmp_path / "m", BEFORE, configuration=MAPPED, features=["columnMapping"])
    for version in range(2):
        table.commit(table.add(f"f{version}", rows(version)))
    return table


# -- without schema tracking


@both
def test_a_new_column_stops_once(table: ChangeTable, serve: Serve, changes: str) -> None:
    query = Query(serve(table), readChangeFeed=changes)
    assert sorted(query.ids()) == [0, 1]
    table.commit(table.add("f2", rows(2)))
    table.commit(table.metadata([*COLUMNS, MORE]), table.add("f3", with_more(3)))
    assert query.ids() == [2]
    with pytest.raises(
        SchemaChangedError, match=r"in version 3 column 'n' was added\. Restart the query"
    ) as caught:
        query.batch()
    assert (caught.value.version, caught.value.columns) == (3, ("n",))
    query.start()
    found = query.batch()
    assert found is not None
    assert (found.column("id").to_pylist(), found.column("n").to_pylist()) == ([3], [3])
    assert query.batch() is None


@both
def test_rows_before_a_new_column_are_null_after_a_restart(table: ChangeTable, serve: Serve, changes: str) -> None:
    query = Query(serve(table), startingVersion=0, readChangeFeed=changes)
    assert query.ids(("ReadMaxFiles", 1)) == [0]
    table.commit(table.metadata([*COLUMNS, MORE]), table.add("f2", with_more(2)))
    query.start()
    found = query.batch()
    assert found is not None
    assert dict(zip(found.column("id").to_pylist(), found.column("n").to_pylist(), strict=True)) == {1: None, 2: 2}


@both
def test_a_new_column_that_is_not_read_stops_nothing(table: ChangeTable, serve: Serve, changes: str) -> None:
    query = Query(serve(table), columns="id", readChangeFeed=changes)
    other = Query(query.server, readChangeFeed=changes)
    other.start(columns=["id"])  # the user's own schema
    for follower in (query, other):
        assert sorted(follower.ids()) == [0, 1]
    table.commit(table.metadata([*COLUMNS, MORE]), table.add("f2", with_more(2)))
    for follower in (query, other):
        assert follower.ids() == [2]


@both
@broken
def test_a_change_that_is_not_additive_stops_at_each_restart(
    renamable: ChangeTable, serve: Serve, changes: str, columns: Any, message: str
) -> None:
    query = Query(serve(renamable), readChangeFeed=changes)
    assert sorted(query.ids()) == [0, 1]
    renamable.commit(renamable.add("f2", rows(2)))
    renamable.commit(renamable.metadata(columns, MAPPED))
    assert query.ids() == [2]
    for _ in range(3):
        with pytest.raises(SchemaChangedError, match=f"in version 3 {message}") as caught:
            query.batch()
        assert caught.value.version == 3
        assert "startingVersion=3" in str(caught.value)
        assert "schemaTrackingLocation" in str(caught.value)
        query.start()
    fresh = Query(query.server, startingVersion=3)
    renamable.commit(renamable.add("f4", rows(4)))
    if message != BROKEN["type"][1]:
        assert fresh.ids() == [4]


@broken
def test_the_version_of_a_change_is_found_by_binary_search(
    renamable: ChangeTable, serve: Serve, columns: Any, message: str
) -> None:
    for version in range(2, 9):
        renamable.commit(renamable.add(f"f{version}", rows(version)))
    renamable.commit(renamable.metadata(columns, MAPPED))
    for version in range(10, 30):
        renamable.commit(renamable.add(f"f{version}", rows(version)))
    query = Query(serve(renamable), startingVersion=0, maxVersionsPerRpc=2)
    with pytest.raises(SchemaChangedError, match=f"in version 9 {message}") as caught:
        query.batch()
    assert caught.value.version == 9


def test_metadata_without_column_changes_stops_nothing(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table))
    query.all()
    table.commit(table.metadata([ID, column("s", "string", comment="a text")]), table.add("f2", rows(2)))
    table.commit(table.metadata(COLUMNS, FEED | {"more": "properties"}))
    assert query.all() == [[2]]


# -- with it


def follow(server: SharingServer, folder: Path, **options: Any) -> Query:
    return Query(server, schemaTrackingLocation=folder / "checkpoint" / "schemas", **options)


def entries(folder: Path) -> list[dict[str, Any]]:
    (log,) = (folder / "checkpoint" / "schemas").iterdir()
    assert log.name == "_schema_log_table-id"
    return [json.loads((log / str(i)).read_text()) for i in range(len(list(log.iterdir())))]


@both
@broken
@pytest.mark.parametrize("allowed", ["3", "always"])
def test_a_restart_continues_after_an_accepted_change(
    renamable: ChangeTable,
    serve: Serve,
    tmp_path: Path,
    changes: str,
    columns: Any,
    message: str,
    allowed: str,
) -> None:
    retyped = "type" in message
    option = "allowSourceColumnTypeChange" if retyped else "allowSourceColumnRenameAndDrop"
    query = follow(serve(renamable), tmp_path, readChangeFeed=changes)
    assert sorted(query.ids()) == [0, 1]
    renamable.commit(renamable.add("f2", rows(2)))
    renamable.commit(renamable.metadata(columns, MAPPED))
    renamable.commit(renamable.metadata(columns, MAPPED) if retyped else renamable.add("f4", rows(4)))
    assert query.ids() == [2]
    with pytest.raises(SchemaChangedError, match=f"in version 3 {message}.*{option}=3"):
        query.batch()
    assert [entry["deltaCommitVersion"] for entry in entries(tmp_path)] == [1, 3]
    for _ in range(2):
        query.start()
        with pytest.raises(SchemaChangedError, match=f"in version 3 {message}. If the query.s sink") as caught:
            query.batch()
        assert caught.value.version == 3
    other = "allowSourceColumnRenameAndDrop" if retyped else "allowSourceColumnTypeChange"
    query.start(**{option: 2, other: "always"})
    with pytest.raises(SchemaChangedError):
        query.batch()
    query.start(**{option: allowed})
    found = query.batch()
    assert found is not None
    names = [item["name"] for item in columns]
    assert found.column_names[: len(names)] == names
    if not retyped:
        assert found.column("id").to_pylist() == [4]
    query.start(**{option: "false"})  # what was passed is passed
    assert query.batch() is None
    assert len(entries(tmp_path)) == 2


@both
def test_rows_before_a_rename_keep_their_columns(
    renamable: ChangeTable, serve: Serve, tmp_path: Path, changes: str
) -> None:
    columns = BROKEN["rename"][0]
    renamable.commit(renamable.metadata(columns, MAPPED))
    renamable.commit(renamable.add("f3", rows(3)))
    query = follow(
        serve(renamable),
        tmp_path,
        startingVersion=0,
        readChangeFeed=changes,
        allowSourceColumnRenameAndDrop="always",
    )
    first = query.batch()
    assert first is not None
    assert first.column("s").to_pylist() == ["0", "1"]
    with pytest.raises(SchemaChangedError, match="in version 2 column 's' was renamed to 'text'"):
        query.batch()
    query.start()
    second = query.batch()
    assert second is not None
    assert second.column("text").to_pylist() == ["3"]
    written = entries(tmp_path)
    assert [entry["deltaCommitVersion"] for entry in written] == [0, 2]
    assert json.loads(written[1]["dataSchemaJson"])["fields"][1]["name"] == "text"
    assert written[1].keys() >= {
        "tableId",
        "deltaCommitVersion",
        "dataSchemaJson",
        "partitionSchemaJson",
        "tableConfigurations",
        "protocolJson",
    }


def test_added_columns_are_logged_too(table: ChangeTable, serve: Serve, tmp_path: Path) -> None:
    query = follow(serve(table), tmp_path, startingVersion=0)
    assert query.ids() == [0, 1]
    table.commit(table.metadata([*COLUMNS, MORE]), table.add("f2", with_more(2)))
    table.commit(table.metadata([*COLUMNS, MORE, column("z", "string")]))
    for version, name in ((2, "n"), (3, "z")):
        with pytest.raises(SchemaChangedError, match=f"in version {version} column '{name}' was added"):
            while True:
                query.batch()
        query.start()
    assert query.batch() is not None
    assert query.batch() is None
    assert [entry["deltaCommitVersion"] for entry in entries(tmp_path)] == [0, 2, 3]


def test_schema_tracking_can_begin_later(renamable: ChangeTable, serve: Serve, tmp_path: Path) -> None:
    server = serve(renamable)
    query = Query(server)
    assert sorted(query.ids()) == [0, 1]
    renamable.commit(renamable.metadata(BROKEN["rename"][0], MAPPED))
    renamable.commit(renamable.add("f3", rows(3)))
    query.start(schemaTrackingLocation=tmp_path / "checkpoint" / "schemas")
    with pytest.raises(SchemaChangedError, match="were written to schemaTrackingLocation: restart the query"):
        query.batch()
    query.start()
    with pytest.raises(SchemaChangedError, match="in version 2 column 's' was renamed"):
        query.batch()
    query.start(allowSourceColumnRenameAndDrop=2)
    assert query.ids() == [3]


def test_a_log_written_by_another_query_raises(table: ChangeTable, serve: Serve, tmp_path: Path) -> None:
    server = serve(table)
    one, other = follow(server, tmp_path), follow(server, tmp_path)
    other.stream.initial_offset()
    assert sorted(one.ids()) == [0, 1]
    with pytest.raises(StreamError, match="was written by another query meanwhile"):
        other.batch()


@pytest.mark.parametrize("text", ["", "{}", '{"tableId": "other"}', "\x00"])
def test_a_damaged_log_raises(table: ChangeTable, serve: Serve, tmp_path: Path, text: str) -> None:
    server = serve(table)
    follow(server, tmp_path).batch()
    (path,) = (tmp_path / "checkpoint" / "schemas").glob("*/0")
    path.write_text(text)
    with pytest.raises(StreamError, match=r"schemas/_schema_log_table-id/0 is damaged"):
        follow(server, tmp_path)


def test_the_log_folder_must_be_an_absolute_path(tmp_path: Path) -> None:
    given = {
        "sharecredentialsversion": "1",
        "endpoint": "https://host/api",
        "bearertoken": "canary",
        "path": "s.s.t",
    }

    def folder(text: str) -> Path | None:
        return parse_stream_options(given | {"schematrackinglocation": text}).schema_tracking

    assert folder("/a/b c") == folder("file:/a/b%20c") == folder("file:///a/b%20c") == Path("/a/b c")
    for text in ("relative", "s3://bucket/schemas", "dbfs:/schemas", "file://host/schemas"):
        with pytest.raises(ValueError, match="takes an absolute path of a folder") as caught:
            folder(text)
        assert "canary" not in str(caught.value)
