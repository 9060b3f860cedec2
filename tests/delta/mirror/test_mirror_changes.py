"""A sync requests the changes since the last sync, and its mirror equals one of a whole listing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from growing_tables import Source, rows_of

from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror import version_changes
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.server import SharingServer
from delta_sharing_client.server.options import ServerOptions

Serve = Callable[..., SharingServer]
Connect = Callable[..., SharingClient]


@pytest.fixture
def server(source: Source, serve: Serve) -> SharingServer:
    return serve({"s.s.t": source.root})


@pytest.fixture
def mirror(server: SharingServer, connect: Connect, tmp_path: Path) -> Mirror:
    return connect(server).table("s.s.t").mirror(tmp_path / "mirror")


def requested(server: SharingServer) -> list[str]:
    """Return the endpoints of the requests, files excluded; a query for changes is `changes`."""
    found = []
    for request in server.requests:
        if not request.is_file:
            name = request.path.rpartition("/")[2]
            found.append("changes" if "startingVersion" in (request.body or {}) else name)
    return found


def state_of(mirror: Mirror) -> Any:
    """Return the files, the protocol and the metadata of a mirror, without the times of its commits."""
    snapshot = mirror.log.snapshot()
    files = {}
    for add in snapshot.files:
        raw = {k: v for k, v in add.raw.items() if v is not None and k not in ("modificationTime", "dataChange")}
        raw["tags"] = {k: v for k, v in raw["tags"].items() if k != "deltaSharing.location"}  # another port
        files[add.path] = raw
    return mirror.shared_version, files, snapshot.protocol, snapshot.metadata


def check_equals_listing(mirror: Mirror, server: SharingServer, connect: Connect, directory: Path) -> None:
    other = connect(server).table("s.s.t").mirror(directory)
    other.sync(progress=False)
    assert state_of(mirror) == state_of(other)
    DeltaLog.clear_cache()
    assert state_of(mirror) == state_of(other)


@pytest.mark.parametrize("prefer_format", ["parquet", "delta"])
def test_sync_requests_only_the_changes(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path, prefer_format: str
) -> None:
    server = serve({"s.s.t": source.root}, prefer_format=prefer_format)
    mirror = connect(server).table("s.s.t").mirror(tmp_path / "mirror")
    mirror.sync(progress=False)
    source.change([("z1", [7])], ["x1"])
    source.change([("z2", [8]), ("x2", [9])])
    source.change([], ["z2"])
    server.reset_requests()
    result = mirror.sync(progress=False)
    assert requested(server) == ["metadata", "changes"]
    assert (result.files_added, result.files_removed, result.commits, result.shared_version) == (2, 1, 1, 4)
    assert result.bytes_fetched == sum((source.root / name).stat().st_size for name in ("z1", "x2"))
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    check_equals_listing(mirror, server, connect, tmp_path / "other")


def test_every_version_requests_the_changes_of_each(mirror: Mirror, source: Source, server: SharingServer) -> None:
    mirror.sync(progress=False)
    rows = {source.change([(f"z{number}", [number])]): source.rows for number in range(3)}
    server.reset_requests()
    assert mirror.sync(every_version=True, progress=False).commits == 3
    assert requested(server) == ["metadata", *["metadata", "changes"] * 2, "changes"]
    for version, expected in rows.items():
        assert rows_of(mirror.scan(version=version).to_arrow()) == expected


def test_file_that_returns_is_not_fetched_again(mirror: Mirror, source: Source, server: SharingServer) -> None:
    mirror.sync(progress=False)
    values = source.files["x1"]
    source.change((), ["x1"])
    source.change([("x1", values)])
    server.reset_requests()
    result = mirror.sync(progress=False)
    assert (result.files_added, result.files_removed, result.bytes_fetched) == (0, 0, 0)
    assert "query" not in requested(server)
    assert rows_of(mirror.scan().to_arrow()) == source.rows


def compact(source: Source) -> None:
    """Rewrite a file without any change of data; servers do not report it among the changes."""
    name = min(source.files)
    values = source.files[name]
    before = source.log.latest_version()
    source.change([(f"{name}-compacted", values)], [name])
    commit = source.log.table_path / "_delta_log" / f"{before + 1:020}.json"
    commit.write_text(commit.read_text().replace('"dataChange":true', '"dataChange":false'))
    DeltaLog.invalidate_cache(source.root)


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source.log.commit([{"txn": {"appId": "other", "version": 1}}]),
        compact,
        lambda source: source.need_vectors(),
        lambda source: source.log.commit(
            [{"metaData": dict(source.log.snapshot().metadata.raw) | {"description": "new"}}]
        ),
    ],
    ids=["no file", "compaction", "protocol", "metadata"],
)
def test_whole_table_is_listed_if_changes_do_not_explain_a_version(
    mirror: Mirror,
    source: Source,
    server: SharingServer,
    connect: Connect,
    tmp_path: Path,
    change: Callable[[Source], Any],
) -> None:
    mirror.sync(progress=False)
    source.change([("z1", [7])])
    change(source)
    source.change([("z2", [8])])
    server.reset_requests()
    mirror.sync(progress=False)
    assert requested(server)[-1] == "query"
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    check_equals_listing(mirror, server, connect, tmp_path / "other")


def test_replaced_table_shares_no_file_with_the_one_before(
    mirror: Mirror, source: Source, server: SharingServer
) -> None:
    """Its files have other names, and so have those of its later versions."""
    source.need_vectors()
    source.delete_row("x1", 0)
    mirror.sync(progress=False)
    before, rows = {file.path for file in mirror.log.snapshot().files}, source.rows
    version = mirror.shared_version
    raw = dict(source.log.snapshot().metadata.raw)
    source.log.commit([{"metaData": raw | {"id": "another table"}}])
    result = mirror.sync(progress=False)
    assert (result.files_added, result.files_removed) == (2, 2)
    assert result.bytes_fetched >= sum((source.root / name).stat().st_size for name in source.files)
    assert not before & {file.path for file in mirror.log.snapshot().files}
    source.change([("z1", [7])], ["y1"])
    server.reset_requests()
    mirror.sync(progress=False)
    assert requested(server) == ["metadata", "changes"]
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    assert rows_of(mirror.scan(version=version).to_arrow()) == rows
    assert mirror.verify().ok
    assert not mirror.sync(repair=True, progress=False).bytes_fetched


def test_many_versions_are_listed(
    mirror: Mirror, source: Source, server: SharingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_changes, "MAX_VERSIONS", 2)
    mirror.sync(progress=False)
    for number in range(3):
        source.change([(f"z{number}", [number])])
    server.reset_requests()
    mirror.sync(progress=False)
    assert requested(server) == ["metadata", "query"]
    assert rows_of(mirror.scan().to_arrow()) == source.rows


def test_refused_changes_are_requested_once_per_sync(source: Source, connect: Connect, tmp_path: Path) -> None:
    """The reference server refuses changes of tables with deletion vectors."""
    source.need_vectors()
    with SharingServer({"s.s.t": source.root}, **vars(ServerOptions.like_reference())) as server:
        mirror = connect(server).table("s.s.t").mirror(tmp_path / "mirror")
        mirror.sync(progress=False)
        for number in range(3):
            source.change([(f"z{number}", [number])])
        server.reset_requests()
        assert mirror.sync(every_version=True, progress=False).commits == 3
        assert requested(server) == ["metadata", "metadata", "changes", "query", "query", "query"]
        assert rows_of(mirror.scan().to_arrow()) == source.rows


def test_server_without_history_lists_the_table(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    server = serve({"s.s.t": source.root}, history=False)
    mirror = connect(server).table("s.s.t").mirror(tmp_path / "mirror")
    mirror.sync(progress=False)
    source.change([("z", [1])])
    server.reset_requests()
    mirror.sync(progress=False)
    assert requested(server) == ["metadata", "changes", "query"]
    assert rows_of(mirror.scan().to_arrow()) == source.rows


def test_versions_that_the_log_has_no_more_are_listed(
    mirror: Mirror, source: Source, server: SharingServer
) -> None:
    mirror.sync(progress=False)
    for number in range(4):
        source.change([(f"z{number}", [number])])
    source.log.checkpoint()
    for version in range(4):
        (source.root / "_delta_log" / f"{version:020}.json").unlink()
    DeltaLog.invalidate_cache(source.root)
    server.reset_requests()
    mirror.sync(progress=False)
    assert requested(server)[-1] == "query"
    assert rows_of(mirror.scan().to_arrow()) == source.rows


def test_mirrors_of_random_changes_equal_those_of_listings(
    source: Source, serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    """New files, removed files, deleted rows, files that return, rewritten files; also over checkpoints."""
    choices = random.Random(7)
    server = serve({"s.s.t": source.root})
    mirror = connect(server).table("s.s.t").mirror(tmp_path / "mirror")
    source.need_vectors()
    gone: dict[str, list[int]] = {}
    with_vector: set[str] = set()
    mirror.sync(progress=False)
    listings = 0
    for step in range(20):
        for part in range(choices.randint(1, 3)):
            names = sorted(set(source.files) - with_vector)
            action = choices.choice(["add", "add", "remove", "vector", "return", "compact"])
            if action == "remove" and names:
                name = choices.choice(names)
                gone[name] = source.files[name]
                source.change((), [name])
            elif action == "vector" and names:
                name = choices.choice(names)
                source.delete_row(name, 0)
                with_vector.add(name)
            elif action == "return" and gone:
                name, values = gone.popitem()
                source.change([(name, values)])
            elif action == "compact" and names and step % 5 == 0:
                compact(source)
            else:
                source.change([(f"{choices.choice('xyz')}-{step}-{part}", [step, part])])
        server.reset_requests()
        mirror.sync(progress=False)
        listings += "query" in requested(server)
        assert rows_of(mirror.scan().to_arrow()) == source.rows
        check_equals_listing(mirror, server, connect, tmp_path / f"other{step}")
    assert 0 < listings < 20
    assert mirror.verify().ok
