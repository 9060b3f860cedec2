"""A sync is killed before each of its system calls, and at random times."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script_modules import load_script

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork and SIGKILL")


@pytest.fixture(scope="module")
def kills() -> ModuleType:
    return load_script("benchmarks/kill_mirror.py")


@pytest.fixture(scope="module")
def forks(kills: ModuleType) -> Iterator[Any]:
    with kills.ForkServer() as forks:
        yield forks


def kill_at_every_call(
    kills: ModuleType, forks: Any, source: Any, server: SharingServer, base: Path | None, tmp_path: Path
) -> dict[int | None, int]:
    """Kill a sync before each call in turn; return the number of mirrors by version."""
    client = SharingClient(server.profile)
    newest = len(source.rows) - 1
    found: dict[int | None, int] = {}
    step = 0
    while True:
        step += 1
        directory = tmp_path / "mirror"
        shutil.rmtree(directory, ignore_errors=True)
        if base is not None:
            shutil.copytree(base, directory)
        answer = forks.sync(server.profile, directory, kill_at=step)
        version = kills.verify_mirror(directory, client, source.rows)
        found[version] = found.get(version, 0) + 1
        mirror = client.table("s.s.t").mirror(directory)
        mirror.sync(progress=False)
        assert mirror.shared_version == newest
        mirror.vacuum(timedelta(0))
        assert kills.unneeded_files(directory, source.file_count) == []
        assert len(mirror.scan().files()) == source.file_count
        assert kills.sorted_rows(mirror.scan().to_arrow()) == source.rows[-1]
        if not answer["killed"]:
            assert answer["calls"] == step - 1
            client.close()
            return found


@pytest.mark.slow
def test_every_crash_point_of_a_first_sync(kills: ModuleType, forks: Any, tmp_path: Path) -> None:
    source = kills.Source(tmp_path / "source")
    source.change(files=2, rows=5, removed=0)
    with SharingServer({"s.s.t": source.root}) as server:
        found = kill_at_every_call(kills, forks, source, server, None, tmp_path)
    assert set(found) == {None, 1}
    assert found[None] >= 10


@pytest.mark.slow
def test_every_crash_point_of_a_later_sync(kills: ModuleType, forks: Any, tmp_path: Path) -> None:
    """The sync also writes a checkpoint, and deletes log files of a month ago."""
    source = kills.Source(tmp_path / "source")
    with SharingServer({"s.s.t": source.root}) as server:
        with SharingClient(server.profile) as client:
            mirror = client.table("s.s.t").mirror(tmp_path / "base")
            for _ in range(20):
                source.change(files=1, rows=5, removed=1)
                mirror.sync(progress=False)
        log = tmp_path / "base" / "_delta_log"
        old = time.time() - timedelta(days=60).total_seconds()
        for version in range(20):
            os.utime(log / f"{version:020}.json", (old + version, old + version))
        # The next commit is the twentieth after the first.
        source.change(files=2, rows=5, removed=1)
        found = kill_at_every_call(kills, forks, source, server, tmp_path / "base", tmp_path)
    assert set(found) == {20, 21}
    assert min(found.values()) >= 5
    log = tmp_path / "mirror" / "_delta_log"
    assert (log / f"{20:020}.checkpoint.parquet").exists()
    assert not (log / f"{9:020}.json").exists()
    assert (log / f"{10:020}.json").exists()


@pytest.mark.slow
def test_kills_at_random_times(kills: ModuleType) -> None:
    outcomes = kills.run(12, seed=1)
    assert outcomes["killed"] + outcomes["finished"] == 12
    assert outcomes["converged"] >= 1
