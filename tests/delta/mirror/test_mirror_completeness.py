"""A mirror does not keep rows of files that the server removed without reporting it."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults.server import FaultServer, Reply, Request
from growing_tables import Source, rows_of
from loading_faults import TABLE, Share, parquet
from loading_tables import column

from delta_sharing_client import DeltaLog as LocalLog
from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.server import SharingServer

Serve = Callable[..., SharingServer]
Connect = Callable[..., SharingClient]

FORMATS = ["parquet", "delta"]


@pytest.fixture
def start(source: Source, serve: Serve, connect: Connect, tmp_path: Path) -> Callable[..., Any]:
    """Share the table; keywords are those of `ServerOptions`."""

    def begin(**options: Any) -> tuple[SharingServer, Mirror]:
        server = serve({"s.s.t": source.root}, **options)
        mirror = connect(server).table("s.s.t").mirror(tmp_path / "mirror")
        mirror.sync(progress=False)
        server.reset_requests()
        return server, mirror

    return begin


def listings(server: SharingServer) -> int:
    """Return the number of whole listings since the last call."""
    found = [r for r in server.requests if r.path.endswith("/query") and "startingVersion" not in (r.body or {})]
    server.reset_requests()
    return len(found)


def grow(mirror: Mirror, source: Source, versions: int) -> None:
    """Add files in some versions, each followed by a sync."""
    for number in range(versions):
        source.change([(f"z{number}", [number])])
        mirror.sync(progress=False)


def state_file(mirror: Mirror) -> Path:
    return mirror.directory / "_delta_sharing" / "completeness.json"


@pytest.mark.parametrize("prefer_format", FORMATS)
def test_number_of_the_server_reveals_removed_files(
    start: Callable[..., Any], source: Source, caplog: pytest.LogCaptureFixture, prefer_format: str
) -> None:
    server, mirror = start(removed_files=False, prefer_format=prefer_format)
    source.change([("z1", [7])], ["x1"])
    with caplog.at_level(logging.WARNING, "delta_sharing_client"):
        result = mirror.sync(progress=False)
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    assert (result.corrected, result.files_added, result.files_removed, listings(server)) == (1, 1, 1, 1)
    assert "do not explain 1 files" in caplog.text
    source.change([("z2", [8])])
    assert (mirror.sync(progress=False).corrected, listings(server)) == (0, 0)


@pytest.mark.parametrize("prefer_format", FORMATS)
def test_without_numbers_a_whole_listing_reveals_removed_files(
    start: Callable[..., Any], source: Source, prefer_format: str
) -> None:
    server, mirror = start(removed_files=False, totals="none", prefer_format=prefer_format)
    source.change([("z1", [7])], ["x1"])
    assert mirror.sync(progress=False).corrected == 1
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    server.reset_requests()
    source.change([("z2", [8])], ["z1"])
    assert (mirror.sync(progress=False).corrected, listings(server)) == (1, 1)
    assert rows_of(mirror.scan().to_arrow()) == source.rows


def test_without_numbers_whole_listings_become_rare(start: Callable[..., Any], source: Source) -> None:
    server, mirror = start(totals="none")
    found = []
    for number in range(20):
        source.change([(f"z{number}", [number])])
        mirror.sync(progress=False, compare_every=5)
        found.append(listings(server))
    assert [number for number, count in enumerate(found, 1) if count] == [1, 3, 7, 12, 17]


def test_compare_every_bounds_how_long_wrong_rows_remain(start: Callable[..., Any], source: Source) -> None:
    _, mirror = start(totals="none", removed_files=False)
    for number in range(8):
        source.change([(f"z{number}", [number])])
        mirror.sync(progress=False, compare_every=4)
    wrong = 0
    for number in range(8, 16):
        source.change([(f"z{number}", [number])], [f"z{number - 1}"])
        mirror.sync(progress=False, compare_every=4)
        is_wrong = rows_of(mirror.scan().to_arrow()) != source.rows
        wrong = wrong + 1 if is_wrong else 0
        assert wrong < 4


def test_syncs_without_a_new_version_reveal_removed_files_too(start: Callable[..., Any], source: Source) -> None:
    """The table no longer changes after the version whose removed files were missing."""
    server, mirror = start(totals="none", removed_files=False)
    grow(mirror, source, 8)
    source.change([("last", [1])], ["x1"])
    results = [mirror.sync(progress=False) for _ in range(10)]
    assert [result.corrected for result in results if result.corrected] == [1]
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    server.reset_requests()
    assert not any(mirror.sync(progress=False).changed for _ in range(12))
    assert listings(server) == 0


def test_stale_numbers_do_not_cause_a_listing_at_each_sync(start: Callable[..., Any], source: Source) -> None:
    server, mirror = start(totals="stale")
    found = []
    for number in range(12):
        source.change([(f"z{number}", [number])], [f"z{number - 1}"] if number % 3 == 1 else [])
        assert mirror.sync(progress=False).corrected == 0
        found.append(listings(server))
        assert rows_of(mirror.scan().to_arrow()) == source.rows
    assert sum(found) <= 6
    assert not mirror.sync(progress=False).changed


def test_number_that_is_right_again_counts_again(
    start: Callable[..., Any], source: Source, connect: Connect
) -> None:
    server, mirror = start(totals="stale")
    grow(mirror, source, 4)
    assert state_file(mirror).exists()
    server.stop()
    with SharingServer({"s.s.t": source.root}) as mended:
        mirror = connect(mended).table("s.s.t").mirror(mirror.directory)
        found = []
        for number in range(10, 18):
            source.change([(f"z{number}", [number])])
            mirror.sync(progress=False)
            found.append(listings(mended))
    assert sum(found) == 1


def test_mirror_with_right_numbers_has_no_record(start: Callable[..., Any], source: Source) -> None:
    _, mirror = start()
    source.change([("z1", [7])], ["x1"])
    mirror.sync(progress=False)
    assert not state_file(mirror).exists()


@pytest.mark.parametrize("damage", ["", "[", '{"version": "x"}', '{"version": 77}'], ids=repr)
def test_damaged_record_causes_a_listing(start: Callable[..., Any], source: Source, damage: str) -> None:
    server, mirror = start(totals="none")
    grow(mirror, source, 4)
    server.reset_requests()
    state_file(mirror).write_text(damage)
    assert not mirror.sync(progress=False).changed
    assert listings(server) == 1
    assert not mirror.sync(progress=False).changed
    assert listings(server) == 0


def test_mirror_of_an_earlier_release_is_corrected(
    start: Callable[..., Any], source: Source, connect: Connect, serve: Serve
) -> None:
    """Its files may be wrong already, and it has no record."""
    _, mirror = start(totals="none", removed_files=False)
    grow(mirror, source, 3)
    source.change([("last", [1])], ["x1"])
    mirror.sync(progress=False)
    assert rows_of(mirror.scan().to_arrow()) != source.rows
    state_file(mirror).unlink()
    source.change([("z9", [9])])
    assert mirror.sync(progress=False).corrected == 1
    assert rows_of(mirror.scan().to_arrow()) == source.rows


def test_repair_corrects_at_the_same_version(start: Callable[..., Any], source: Source) -> None:
    _, mirror = start(totals="none", removed_files=False)
    grow(mirror, source, 3)
    source.change([("last", [1])], ["x1"])
    mirror.sync(progress=False)
    assert rows_of(mirror.scan().to_arrow()) != source.rows
    assert mirror.sync(progress=False, repair=True).corrected == 1
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    assert mirror.verify().ok


def test_replaced_vector_without_the_removed_file(start: Callable[..., Any], source: Source) -> None:
    source.need_vectors()
    _, mirror = start(totals="none", removed_files=False)
    grow(mirror, source, 3)
    source.delete_row("x1", 0)
    source.change([("z9", [9])])
    mirror.sync(progress=False)
    assert rows_of(mirror.scan().to_arrow()) == source.rows


def test_every_version_is_checked(start: Callable[..., Any], source: Source) -> None:
    _, mirror = start(removed_files=False)
    rows = {}
    for number in range(3):
        version = source.change([(f"z{number}", [number])], [f"z{number - 1}"] if number else ["x1"])
        rows[version] = source.rows
    result = mirror.sync(every_version=True, progress=False)
    assert (result.commits, result.corrected) == (3, 3)
    for version, expected in rows.items():
        assert rows_of(mirror.scan(version=version).to_arrow()) == expected


def test_pinned_version_is_confirmed_once(start: Callable[..., Any], source: Source) -> None:
    server, mirror = start(totals="none", removed_files=False)
    grow(mirror, source, 3)
    version = source.change([("last", [1])], ["x1"])
    results = [mirror.sync(version, progress=False) for _ in range(6)]
    assert sum(result.corrected for result in results) == 1
    server.reset_requests()
    mirror.sync(version, progress=False)
    assert [request.path.rpartition("/")[2] for request in server.requests] == ["metadata"]


@pytest.mark.parametrize("value", [0, -1, True, "2"])
def test_compare_every_out_of_range(start: Callable[..., Any], value: Any) -> None:
    _, mirror = start()
    with pytest.raises((ValueError, TypeError), match="compare_every"):
        mirror.sync(compare_every=value)


@pytest.mark.parametrize("at", [1, 2])
def test_sync_that_ends_between_record_and_commit(
    start: Callable[..., Any], source: Source, at: int, tmp_path: Path
) -> None:
    """The record is of another version than the log, whichever of both was written."""
    server, mirror = start(totals="none", removed_files=False)
    grow(mirror, source, 3)
    before = tmp_path / "before"
    shutil.copytree(mirror.directory, before)
    source.change([("last", [1])], ["x1"])
    mirror.sync(progress=False)
    old = before / "_delta_sharing" / "completeness.json"
    if at == 1:  # the commit without the record
        shutil.copy(old, state_file(mirror))
    else:  # the record without the commit
        shutil.copy(state_file(mirror), old)
        shutil.rmtree(mirror.directory)
        shutil.copytree(before, mirror.directory)
    DeltaLog.clear_cache()
    server.reset_requests()
    mirror.sync(progress=False)
    assert listings(server) == 1
    assert rows_of(mirror.scan().to_arrow()) == source.rows


class RandomHistory:
    """A table that changes at random, with deletion vectors; it may be created again."""

    def __init__(self, root: Path, seed: int) -> None:
        self.choices = random.Random(seed)
        self.root = root
        self.steps = 0
        self.create()

    def create(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        DeltaLog.clear_cache()
        self.source = Source(self.root)
        self.source.need_vectors()
        self.with_vector: set[str] = set()

    def step(self) -> None:
        """Commit one version."""
        self.steps += 1
        names = sorted(self.source.files)
        plain = [name for name in names if name not in self.with_vector and len(self.source.files[name]) > 1]
        action = self.choices.choice(["add", "add", "remove", "update", "update", "vector"])
        new = (f"{self.choices.choice('xyz')}-{self.steps}", [self.steps, -self.steps])
        if action == "remove" and names:
            self.source.change((), [self.choices.choice(names)])
        elif action == "update" and names:
            self.source.change([new], self.choices.sample(names, min(len(names), self.choices.randint(1, 2))))
        elif action == "vector" and plain:
            self.with_vector.add(name := self.choices.choice(plain))
            self.source.delete_row(name, 0)
        else:
            self.source.change([new])


def run(seed: int, directory: Path, *, steps: int) -> None:
    """Compare a mirror with the model after each sync of a random history, over servers that change."""
    history = RandomHistory(directory / "source", seed)
    choices = history.choices
    server = None
    try:
        for step in range(steps):
            if server is None or choices.random() < 0.2:
                if server is not None:
                    server.stop()
                options: dict[str, Any] = {
                    "removed_files": choices.random() < 0.3,
                    "totals": choices.choice(["exact", "none", "stale"]),
                    "prefer_format": choices.choice(["auto", "delta"]),
                    "history": choices.random() < 0.9,
                }
                server = SharingServer({"s.s.t": history.root}, **options).start()
            if choices.random() < 0.1:
                version = history.source.log.latest_version()
                history.create()
                while choices.random() < 0.9 and history.source.log.latest_version() < version:
                    history.step()
            for _ in range(choices.randint(0, 3)):
                history.step()
            # A server that reports neither removed files nor right numbers is noticed by comparing each time.
            is_sound = options["removed_files"] or options["totals"] == "exact"
            with SharingClient(server.profile) as client:
                mirror = client.table("s.s.t").mirror(directory / "mirror")
                mirror.sync(progress=False, compare_every=10 if is_sound else 1)
                assert rows_of(mirror.scan().to_arrow()) == history.source.rows, (seed, step, options)
    finally:
        if server is not None:
            server.stop()


@pytest.mark.parametrize("seed", range(3))
def test_random_histories(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path, steps=15)


class Replaceable:
    """A table of one file at version 7, which `replace` replaces by another one with as many versions."""

    def __init__(self, faults: FaultServer, *, reports_version: bool = True, table_id: str = "x") -> None:
        self.share = Share(faults, [column("a", "long")], {"f": pa.table({"a": [1]})})
        self.id = table_id
        self.reports_version = reports_version
        faults.on("HEAD", TABLE, Reply(headers={"Delta-Table-Version": "7"}))
        faults.on("GET", f"{TABLE}/metadata", self.metadata)
        faults.on("POST", f"{TABLE}/query", lambda request: self.reply(self.share.data))

    def replace(self, name: str) -> None:
        """Let the table have another id and one file of another row, with this id."""
        self.id = "another"
        self.share.data = {name: parquet(pa.table({"a": [2]}))}
        self.share.etags[name] = '"v2"'

    def reply(self, names: Iterable[str]) -> Reply:
        found = self.share.listing(names)
        return found.but(body=found.body.replace(b'"id": "x"', b'"id": "%s"' % self.id.encode()))

    def metadata(self, request: Request) -> Reply:
        found = self.reply(())
        dropped = () if self.reports_version else ("Delta-Table-Version",)
        return found.but(headers={key: value for key, value in found.headers.items() if key not in dropped})


@pytest.mark.parametrize("name", ["f", "second"])
@pytest.mark.parametrize("at_version", [None, 7])
@pytest.mark.parametrize("reports_version", [True, False])
def test_table_created_again_at_the_same_version(
    faults: FaultServer,
    connect: Connect,
    tmp_path: Path,
    reports_version: bool,
    at_version: int | None,
    name: str,
) -> None:
    """The metadata may lack the version, and a file of the new table may have the id of an old one."""
    table = Replaceable(faults, reports_version=reports_version)
    mirror = connect(faults).table("s.s.t").mirror(tmp_path / "mirror")
    mirror.sync(at_version, progress=False)
    assert not mirror.sync(at_version, progress=False).changed
    table.replace(name)
    assert mirror.sync(at_version, progress=False).changed
    assert mirror.scan().to_arrow().column("a").to_pylist() == [2]
    assert mirror.log.snapshot().metadata.id == "another"
    assert mirror.verify().ok
    assert LocalLog.for_table(mirror.directory).snapshot_at(0).to_arrow().column("a").to_pylist() == [1]
    assert not mirror.sync(at_version, progress=False).changed


def test_table_without_an_id_is_not_listed_at_each_sync(
    faults: FaultServer, connect: Connect, tmp_path: Path
) -> None:
    table = Replaceable(faults, table_id="")
    mirror = connect(faults).table("s.s.t").mirror(tmp_path / "mirror")
    mirror.sync(progress=False)
    assert not mirror.sync(progress=False).changed
    assert len(faults.seen(f"{TABLE}/query")) == 1
    table.replace("f")
    assert mirror.sync(progress=False).changed
    assert mirror.scan().to_arrow().column("a").to_pylist() == [2]
