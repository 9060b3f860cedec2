"""Unusual and broken logs: read, or refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import (
    BadRequestError,
    DeltaSharingError,
    FileGoneError,
    ServerError,
    UnsupportedTableError,
    UnsupportedTypeError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.server import SharingServer

FORMATS = ["delta", "parquet"]


def protocol(*features: str, reader: int = 1) -> dict[str, Any]:
    if not features:
        return {"protocol": {"minReaderVersion": reader, "minWriterVersion": 2}}
    listed = {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | listed}


def metadata(*columns: tuple[str, str], **more: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    schema = json.dumps({"type": "struct", "fields": fields})
    fields = {"id": "testId", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    return {"metaData": fields | {"partitionColumns": [], "configuration": {}} | more}


def bare_metadata() -> dict[str, Any]:
    action = metadata()
    del action["metaData"]["schemaString"]
    return action


def add(path: str, **more: Any) -> dict[str, Any]:
    fields = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": fields | more}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 200, "dataChange": False}}


ID = ("id", "integer")
#: The commits of each table, and the result of a read: rows and columns, or an error and its reason.
LOGS: dict[str, tuple[list[list[dict[str, Any]]], tuple[int, int] | tuple[type[DeltaSharingError], str]]] = {
    "removed_by_another_spelling": (
        [[protocol(), metadata(ID), add("/a/with%20space/p@%23h")], [remove("file:///a/with%20space/p@%23h")]],
        (0, 1),
    ),
    "no_schema": ([[protocol(), bare_metadata(), add("a")]], (ServerError, "lacks schemaString")),
    "another_format": (
        [[protocol(), metadata(ID, format={"provider": "orc"}), add("a")]],
        (ServerError, "have the format 'orc'"),
    ),
    "removed_special_name": (
        [[protocol(), metadata(ID), add("special%20p@%23h")], [remove("special%20p@%23h")]],
        (0, 1),
    ),
    "unknown_actions": (
        [[protocol(), metadata(ID), {"some_new_action": ["a", "1"]}, {"commitInfo": "any JSON"}]],
        (0, 1),
    ),
    "changes_and_transactions": (
        [
            [protocol(), metadata(ID), add("fake/path/1")],
            [
                {"cdc": {"path": "fake/2", "partitionValues": {"foo": "bar"}, "size": 1, "dataChange": False}},
                remove("fake/path/1"),
            ],
            [protocol(), {"txn": {"appId": "fakeAppId", "version": 3, "lastUpdated": 200}}],
        ],
        (0, 1),
    ),
    "data_gone": ([[protocol(), metadata(ID), add("1")]], (FileGoneError, "may have vacuumed")),
    "not_contiguous": (
        [[protocol(), metadata(ID)], [], [add("foo")]],
        (ServerError, "the commit of version 1 is missing"),
    ),
    "no_protocol": ([[metadata(ID), add("abc")]], (ServerError, "lacks the protocol or the metadata")),
    "no_metadata": ([[protocol(), add("abc")]], (ServerError, "lacks the protocol or the metadata")),
    "unknown_type": (
        [[protocol(), metadata(ID, ("odd", "interval day"))]],
        (UnsupportedTypeError, "'odd' has the type 'interval day'"),
    ),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd")
    for name, (commits, _) in LOGS.items():
        for version, actions in enumerate(commits):
            commit(root / name, version, *actions)
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[SharingClient]:
    with (
        SharingServer({f"s.d.{name}": root / name for name in LOGS}) as server,
        SharingClient(server.profile, options=TransportOptions(api_attempts=1)) as client,
    ):
        yield client


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    """Write a commit; one without actions is none."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    if actions:
        (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize("response_format", FORMATS)
@pytest.mark.parametrize("name", LOGS)
def test_unusual_log_is_read_or_refused_with_a_reason(
    client: SharingClient, name: str, response_format: Any
) -> None:
    scan = client.table(f"s.d.{name}").scan(response_format=response_format)
    outcome = LOGS[name][1]
    if isinstance(outcome[0], int):
        assert scan.to_arrow().shape == outcome
        assert len(scan.to_pandas(progress=False)) == outcome[0]
        return
    with pytest.raises(outcome[0], match=str(outcome[1])) as caught:
        scan.to_arrow()
    assert "/_delta_log" not in str(caught.value)


def test_unknown_reader_version_is_refused(tmp_path: Path) -> None:
    commit(tmp_path / "t", 0, protocol(reader=99), metadata(ID))
    with SharingServer({"s.d.t": tmp_path / "t"}) as server, SharingClient(server.profile) as client:
        with pytest.raises(UnsupportedTableError, match="reader version 99"):
            client.table("s.d.t").scan(response_format="delta").to_arrow()
        with pytest.raises(BadRequestError, match="reader version 99"):
            client.table("s.d.t").scan(response_format="parquet").to_arrow()


def test_an_incomplete_checkpoint(tmp_path: Path) -> None:
    table = tmp_path / "t"
    commit(table, 0, protocol(), metadata(ID))
    state = pa.table({"protocol": [{"minReaderVersion": 1}]})
    pq.write_table(state, table / "_delta_log" / f"{0:020}.checkpoint.parquet")
    with (
        SharingServer({"s.d.t": table}) as server,
        SharingClient(server.profile, options=TransportOptions(api_attempts=1)) as client,
        pytest.raises(ServerError, match=r"checkpoint\.parquet lacks the metadata"),
    ):
        client.table("s.d.t").scan().to_arrow()


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogManaged-preview", "catalogOwned-preview"])
@pytest.mark.protocol("catalogManaged")
def test_a_table_of_a_catalog_that_is_shared_by_url(tmp_path: Path, feature: str) -> None:
    table = tmp_path / "t"
    table.mkdir()
    file = table / "part.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), file)
    commit(table, 0, protocol(feature), metadata(ID), add(file.name, size=file.stat().st_size))
    with SharingServer({"s.d.t": table}) as server, SharingClient(server.profile) as client:
        assert client.table("s.d.t").scan().to_arrow()["id"].to_pylist() == [1, 2]
