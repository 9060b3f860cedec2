"""Text of a server never becomes a path, and no link leads out of a local table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.faulty_share import FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaLogError, DeltaSharingError

TABLE = rows(0, 5)
DATA = parquet(TABLE)
IDS = [
    "../../up",
    "/etc/cron.d/x",
    "..",
    ".",
    "a/b",
    "a\\b",
    "C:\\x",
    "nul\x00l",
    "new\nline",
    "x" * 5000,
    "~",
    "ü",
    "",
]


@pytest.fixture
def share(server: FaultServer) -> FaultyShare:
    """A table with one file, whose id and partition are whatever a test says."""
    return FaultyShare(server=server, versions=[[File("f", TABLE, DATA)]])


@pytest.fixture
def table(share: FaultyShare) -> Iterator[Any]:
    with ds.SharingClient(share.server.profile) as client:
        yield client.table("s.s.t")


def named(file_id: str) -> Any:
    import json

    def fault(request: Request, reply: Reply) -> Reply:
        return reply.but(body=reply.body.replace(b'"id": "f"', b'"id": ' + json.dumps(file_id).encode()))

    return fault


@pytest.mark.parametrize("file_id", IDS)
def test_file_ids_are_not_used_as_file_names(share: FaultyShare, table: Any, tmp_path: Path, file_id: str) -> None:
    share.fault = named(file_id)
    mirror = table.mirror(tmp_path / "out" / "mirror")
    try:
        mirror.sync()
    except DeltaSharingError:
        assert not file_id
        return
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mirror"]
    (file,) = mirror.directory.glob("*.parquet")
    assert re.fullmatch(r"[A-Za-z0-9._-]+", file.name)
    assert mirror.scan().to_arrow().equals(TABLE)


def test_symlinked_directory_is_not_followed(share: FaultyShare, table: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    mirror = table.mirror(tmp_path / "mirror")
    private = mirror.directory / "_delta_sharing"
    private.mkdir(parents=True)
    (private / "partial").symlink_to(outside)
    with pytest.raises(DeltaLogError, match="_delta_sharing/partial is a symbolic link, and no link below"):
        mirror.sync()
    assert list(outside.iterdir()) == []
    (private / "partial").unlink()
    mirror.sync()
    assert mirror.scan().to_arrow().equals(TABLE)


def test_symlinked_file_is_replaced(share: FaultyShare, table: Any, tmp_path: Path) -> None:
    """A link in the place of a data file is no copy of it, whatever it points to."""
    first = table.mirror(tmp_path / "first")
    first.sync()
    (name,) = [path.name for path in first.directory.glob("*.parquet")]
    outside = tmp_path / "outside.parquet"
    kept = DATA[::-1]
    outside.write_bytes(kept)
    second = table.mirror(tmp_path / "second")
    second.directory.mkdir()
    (second.directory / name).symlink_to(outside)
    second.sync()
    assert not (second.directory / name).is_symlink()
    assert outside.read_bytes() == kept
    assert second.scan().to_arrow().equals(TABLE)
