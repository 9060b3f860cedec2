"""A mirror of a table, or a server, that changes the response format, and with it the ids of the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from deltalake import DeltaTable
from growing_tables import Source, data_files, rows_of
from msgspec import structs

from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror.file_comparison import Comparison, compare
from delta_sharing_client.delta.mirror.known_files import KnownFiles
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.delta.table.local_actions import LocalFile, LocalLayout, location_of
from delta_sharing_client.delta.table.local_names import digest
from delta_sharing_client.errors import BadRequestError
from delta_sharing_client.log import Snapshot, file_key
from delta_sharing_client.log.snapshot import LogState
from delta_sharing_client.model.actions import AddFile, DeletionVector
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.server import SharingServer
from delta_sharing_client.wire.file_block import FileBlock

Connect = Callable[..., SharingClient]
Serve = Callable[..., SharingServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server whose file ids are another hash in each response format, unless the options say otherwise."""
    with ExitStack() as stack:

        def start(source: Source, **options: Any) -> SharingServer:
            options = {"file_ids_by_format": True} | options
            return stack.enter_context(SharingServer({"s.s.t": source.root}, **options))

        yield start


def mirror_of(server: SharingServer, connect: Connect, directory: Path) -> Mirror:
    return connect(server).table("s.s.t").mirror(directory)


def gain_a_feature(source: Source, position: int = 0) -> int:
    """Let the next version need deletion vectors, and the one after it delete a row with one."""
    source.need_vectors()
    return source.delete_row("x1", position)


def check(mirror: Mirror, source: Source) -> None:
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    assert mirror.verify().ok
    assert len(mirror.log.snapshot().files) == len(source.files)


def ids(mirror: Mirror) -> set[str]:
    return {file.raw["tags"]["deltaSharing.fileId"] for file in mirror.log.snapshot().files}


def format_of(mirror: Mirror) -> str | None:
    return mirror.log.snapshot().metadata.configuration.get("deltaSharing.responseFormat")


@pytest.mark.parametrize("history", [True, False])
def test_a_table_that_gains_a_feature_is_not_fetched_again(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path, *, history: bool
) -> None:
    server = serve(source, history=history)
    mirror = mirror_of(server, connect, tmp_path / "mirror")
    first = mirror.sync(progress=False)
    before, lying = ids(mirror), data_files(mirror.directory)
    assert format_of(mirror) == "parquet"
    gain_a_feature(source)
    source.change([("z1", [7])])
    second = mirror.sync(progress=False)
    assert second.bytes_fetched == (source.root / "z1").stat().st_size
    assert (second.files_added, second.files_removed) == (2, 1)  # the new file, and that with a deletion vector
    assert format_of(mirror) == "delta"
    assert not ids(mirror) & before
    assert data_files(mirror.directory) > lying
    check(mirror, source)
    assert rows_of(mirror.scan(version=first.shared_version).to_arrow()) == [(1, "x"), (2, "x"), (3, "y")]
    source.change([("z2", [8])], ["y1"])  # and by their new ids they are known from now on
    third = mirror.sync(progress=False)
    assert third.bytes_fetched == (source.root / "z2").stat().st_size
    assert (third.files_added, third.files_removed) == (1, 1)
    check(mirror, source)


def test_renamed_files_are_added_again_without_data_change(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    """Files that stay are added again with their new ids, without any change of data."""
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    source.need_vectors()
    result = mirror.sync(progress=False)
    assert (result.files_added, result.files_removed, result.bytes_fetched) == (0, 0, 0)
    (commit,) = mirror.log.changes(result.version)
    added = [action.raw for action in commit.actions if type(action).__name__ == "AddFile"]
    assert len(added) == 2
    assert all(raw["dataChange"] is False for raw in added)
    assert len(DeltaTable(mirror.directory).file_uris()) == 2
    check(mirror, source)


def test_sync_requests_the_recorded_format(source: Source, connect: Connect, serve: Serve, tmp_path: Path) -> None:
    with SharingServer({"s.s.t": source.root}, file_ids_by_format=True) as server:
        mirror = mirror_of(server, connect, tmp_path / "mirror")
        mirror.sync(progress=False)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    before = ids(mirror)
    serve(source, port=port, token=token, prefer_format="delta")
    source.change([("z1", [7])])
    result = mirror.sync(progress=False)
    assert result.bytes_fetched == (source.root / "z1").stat().st_size
    assert format_of(mirror) == "parquet"
    assert ids(mirror) > before
    check(mirror, source)


@pytest.mark.parametrize("every_version", [True, False])
def test_versions_in_both_formats(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path, *, every_version: bool
) -> None:
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    rows = {mirror.shared_version: source.rows}
    for step in range(4):
        version = gain_a_feature(source, 1) if step == 1 else source.change([(f"z{step}", [step])])
        rows[version] = source.rows
    result = mirror.sync(every_version=every_version, progress=False)
    new = sum((source.root / f"z{step}").stat().st_size for step in (0, 2, 3))
    assert result.bytes_fetched == new
    check(mirror, source)
    for version, expected in rows.items():
        mirror.sync(at_version=version, progress=False)
        assert rows_of(mirror.scan().to_arrow()) == expected


def test_renamed_file_is_repaired_at_its_path(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    gain_a_feature(source)
    mirror.sync(progress=False)
    lying = data_files(mirror.directory)
    for file in mirror.directory.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.write_bytes(b"damaged")
    assert not mirror.verify().ok
    assert mirror.sync(repair=True, progress=False).bytes_fetched > 0
    assert data_files(mirror.directory) == lying
    check(mirror, source)


def test_vacuum_keeps_renamed_files(source: Source, serve: Serve, connect: Connect, tmp_path: Path) -> None:
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    gain_a_feature(source)
    mirror.sync(progress=False)
    assert mirror.vacuum(timedelta(0)).files == 0
    check(mirror, source)


def test_unknown_version_is_refused(source: Source, serve: Serve, connect: Connect, tmp_path: Path) -> None:
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    with pytest.raises(BadRequestError):
        mirror.sync(at_version=99, progress=False)
    check(mirror, source)


# -- mirrors of the first releases, whose log records neither format nor locations


def forget(mirror: Mirror) -> None:
    """Remove from a mirror's log what the first releases did not write."""
    for commit in sorted((mirror.directory / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            line.get("add", {}).get("tags", {}).pop("deltaSharing.location", None)
            line.get("metaData", {}).get("configuration", {}).pop("deltaSharing.responseFormat", None)
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
        commit.with_suffix(".crc").unlink(missing_ok=True)


def test_mirror_of_the_first_releases_syncs(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    forget(mirror)
    assert not mirror.sync(progress=False).changed
    check(mirror, source)
    source.change([("z1", [7])], ["y1"])
    result = mirror.sync(progress=False)
    assert result.bytes_fetched == (source.root / "z1").stat().st_size
    assert format_of(mirror) == "parquet"
    check(mirror, source)


def test_mirror_of_the_first_releases_fetches_files_with_new_ids(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    forget(mirror)
    gain_a_feature(source)
    result = mirror.sync(progress=False)
    assert (result.files_added, result.files_removed) == (2, 2)
    check(mirror, source)


# -- when a file is known again


def listed(mirror: Mirror, **changes: Any) -> list[LocalFile]:
    """Return the mirror's files as a server may list them: under other ids, with changed fields."""
    snapshot = mirror.log.snapshot()
    found = []
    for number, add in enumerate(snapshot.files):
        fields = {
            "url": f"http://127.0.0.1/files/{number}?signature=new",
            "id": f"new-{number}",
            "partition_values": add.partition_values,
            "size": add.size,
            "stats": add.stats,
        }
        fields |= {name: value(number, add) for name, value in changes.items()}
        action = AddFile(**fields | {"url": SecretUrl(fields["url"])})
        found.append(LocalLayout(snapshot.protocol, snapshot.metadata).file(action))
    return found


def compared(snapshot: Snapshot, files: list[LocalFile], *, by_location: bool = True) -> Comparison:
    known = KnownFiles(LogState(added={file_key(add): add for add in snapshot.files}))
    listed = FileBlock.of([file.action for file in files])
    layout = LocalLayout(snapshot.protocol, snapshot.metadata)
    return compare(known, [listed], layout, by_location=by_location)


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, True),
        ({"stats": lambda number, add: None}, True),
        ({"size": lambda number, add: add.size + 1}, False),
        ({"size": lambda number, add: 0}, False),
        ({"stats": lambda number, add: '{"numRecords": 77}'}, False),
        ({"partition_values": lambda number, add: {"p": "other"}}, False),
        ({"url": lambda number, add: f"http://127.0.0.1/moved/{number}"}, False),
        # A server that tells its files apart by the query string alone.
        ({"url": lambda number, add: f"http://127.0.0.1/files?name={number}"}, False),
    ],
)
def test_file_with_a_new_id_is_known_by_unchanged_properties(
    source: Source,
    serve: Serve,
    connect: Connect,
    tmp_path: Path,
    changes: dict[str, Callable[[int, Any], Any]],
    *,
    known: bool,
) -> None:
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    snapshot = mirror.log.snapshot()
    one_path = "url" in changes and "?" in changes["url"](0, None)
    for number, add in enumerate(snapshot.files):
        location = "http://127.0.0.1/files" + ("" if one_path else f"/{number}")
        add.raw["tags"]["deltaSharing.location"] = digest(location)
    found = compared(snapshot, listed(mirror, **changes))
    assert len(found.files) == 2
    assert (len(found.renamed), len(found.new), len(found.gone)) == ((2, 0, 0) if known else (0, 2, 2))


def test_deletion_vector_file_is_stored_again_under_a_new_id(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    """Its local name contains the file's id, so that the old action must be removed."""
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    snapshot = mirror.log.snapshot()
    add = next(add for add in snapshot.files if add.partition_values == {"p": "x"})
    vector = DeletionVector("p", SecretUrl("http://127.0.0.1/vector?signature=new"), 34, 1, 1)
    action = structs.replace(listed(mirror)[0].action, deletion_vector=vector, partition_values={"p": "x"})
    action = structs.replace(action, size=add.size, stats=add.stats)
    file = LocalLayout(snapshot.protocol, snapshot.metadata).file(action)
    add.raw["tags"]["deltaSharing.vectorId"] = file.key[1]  # the vector is the same one
    add.raw["tags"]["deltaSharing.location"] = location_of(action)
    found = compared(snapshot, [file, listed(mirror)[1]])
    assert not found.renamed
    assert found.new[0].action == action
    assert add in found.gone
    assert found.new[0].path == unquote(add.path)


BOUNDS = '{"numRecords": 1, "minValues": {"a": 3}, "maxValues": {"a": 3}, "nullCount": {"a": 0}}'
LOOSE = (
    '{"nullCount": {"a": 0}, "numRecords": 1, "minValues": {"a": 3}, "maxValues": {"a": 3}, "tightBounds": false}'
)


@pytest.mark.parametrize(
    ("before", "now", "known"),
    [
        (BOUNDS, LOOSE, True),
        (BOUNDS, BOUNDS.replace("3", "4"), False),  # rewritten in its place, and just as large
        ('{"numRecords": 1}', '{"numRecords": 1}', False),
        (BOUNDS, None, False),
        (BOUNDS, "{", False),
    ],
)
def test_single_file_is_known_by_its_statistics_too(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path, before: str, now: str | None, *, known: bool
) -> None:
    """A single URL does not show whether the server's URLs distinguish files."""
    source.change((), ["x1"])
    mirror = mirror_of(serve(source), connect, tmp_path / "mirror")
    mirror.sync(progress=False)
    snapshot = mirror.log.snapshot()
    add = structs.replace(snapshot.files[0], stats=before)
    snapshot.files = (add,)
    file = listed(mirror, stats=lambda number, add: now)[0]
    add.raw["tags"]["deltaSharing.location"] = location_of(file.action)
    assert bool(compared(snapshot, [file]).renamed) == known
    assert not compared(snapshot, [file], by_location=False).renamed  # in the same format an id is enough
