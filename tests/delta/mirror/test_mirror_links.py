"""No symbolic link below a mirror's directory is followed, by any of its operations."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from growing_tables import Source, rows_of

from delta_sharing_client import SharedTable, SharingClient
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.server import SharingServer

OPERATIONS: dict[str, Callable[[Mirror], Any]] = {
    "open": lambda mirror: mirror.shared_version,
    "log": lambda mirror: mirror.log,
    "sync": lambda mirror: mirror.sync(),
    "repair": lambda mirror: mirror.sync(repair=True),
    "load": lambda mirror: mirror.scan().to_arrow(),
    "verify": lambda mirror: mirror.verify(),
    "vacuum": lambda mirror: mirror.vacuum(),
}
#: Folders and files that hold the mirror's own notes.
OWN = [
    "_delta_log",
    "_delta_log/_sidecars",
    "_delta_log/00000000000000000000.json",
    "_delta_log/_last_checkpoint",
    "_delta_sharing",
    "_delta_sharing/lock",
    "_delta_sharing/partial",
    "_delta_sharing/pending.json",
]


@pytest.fixture
def table(
    source: Source, serve: Callable[..., SharingServer], connect: Callable[..., SharingClient]
) -> SharedTable:
    return connect(serve({"s.s.t": source.root})).table("s.s.t")


@pytest.fixture
def mirror(table: SharedTable, tmp_path: Path) -> Mirror:
    return table.mirror(tmp_path / "mirror")


def data_file(mirror: Mirror) -> Path:
    return min(path for path in mirror.directory.rglob("*.parquet"))


def linked(path: Path, outside: Path) -> Path:
    """Replace a path by a link to a moved or new file or folder; return the target."""
    target = outside / path.name
    outside.mkdir()
    if path.exists():
        shutil.move(path, target)
    elif path.suffix or path.name in ("lock", "_last_checkpoint"):
        target.write_bytes(b"[]")
    else:
        target.mkdir()
    path.symlink_to(target)
    return target


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", OWN)
def test_links_in_place_of_private_files_are_refused(
    mirror: Mirror, source: Source, tmp_path: Path, name: str
) -> None:
    mirror.sync()
    linked(mirror.directory / name, tmp_path / "outside")
    before = contents(tmp_path / "outside")
    source.change([("z", [1])])
    for operation in OPERATIONS.values():
        with pytest.raises(DeltaLogError, match=f"{name} is a symbolic link"):
            operation(mirror)
    assert contents(tmp_path / "outside") == before


@pytest.mark.parametrize("name", ["_delta_log", "_delta_sharing", "_delta_sharing/partial"])
def test_first_sync_refuses_links(mirror: Mirror, tmp_path: Path, name: str) -> None:
    (mirror.directory / name).parent.mkdir(parents=True)
    outside = linked(mirror.directory / name, tmp_path / "outside")
    with pytest.raises(DeltaLogError, match="symbolic link"):
        mirror.sync()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("inside", [False, True])
def test_partition_folder_that_is_a_link_is_refused(
    mirror: Mirror, source: Source, tmp_path: Path, inside: bool
) -> None:
    mirror.sync()
    folder = data_file(mirror).parent
    target = linked(folder, (mirror.directory if inside else tmp_path) / "moved")
    before = contents(target)
    source.change([("x2", [1])])
    for name in ("sync", "repair", "load", "verify", "vacuum"):
        with pytest.raises(DeltaLogError, match=f"{folder.name} is a symbolic link"):
            OPERATIONS[name](mirror)
    assert contents(target) == before


def test_data_file_that_is_a_link_is_not_read(mirror: Mirror, tmp_path: Path) -> None:
    mirror.sync()
    file = data_file(mirror)
    target = linked(file, tmp_path / "outside")
    before = contents(target.parent)
    with pytest.raises(DeltaLogError, match=f"{file.name} is a symbolic link"):
        mirror.scan().to_arrow()
    (problem,) = mirror.verify().problems
    assert problem.reason == "it is a symbolic link"
    assert mirror.sync(repair=True).bytes_fetched > 0
    assert not file.is_symlink()
    assert contents(target.parent) == before
    assert mirror.verify().ok


def test_repair_replaces_a_link_by_the_file(mirror: Mirror, source: Source, tmp_path: Path) -> None:
    mirror.sync()
    file = data_file(mirror)
    target = linked(file, tmp_path / "outside")
    source.change([("z", [1])])
    mirror.sync()
    assert file.readlink() == target
    with pytest.raises(DeltaLogError, match=f"{file.name} is a symbolic link"):
        mirror.scan().to_arrow()
    mirror.sync(repair=True)
    assert not file.is_symlink()
    assert mirror.verify().ok


def test_directory_that_is_reached_through_a_link(table: SharedTable, source: Source, tmp_path: Path) -> None:
    """The user may choose a link as the mirror's directory."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    mirror = table.mirror(tmp_path / "link" / "mirror")
    mirror.sync()
    assert mirror.verify().ok
    assert rows_of(mirror.scan().to_arrow()) == source.rows


@pytest.mark.parametrize("name", ["_delta_log", "_delta_sharing", "_delta_sharing/partial"])
def test_materialize_refuses_links(table: SharedTable, tmp_path: Path, name: str) -> None:
    directory = tmp_path / "copy"
    (directory / name).parent.mkdir(parents=True)
    outside = linked(directory / name, tmp_path / "outside")
    for rows in (table.scan(), table.changes(starting_version=0)):
        with pytest.raises(DeltaLogError, match="symbolic link"):
            rows.materialize(directory)
    assert list(outside.iterdir()) == []
