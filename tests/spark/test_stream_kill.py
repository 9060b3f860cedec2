"""A streaming query that is killed repeatedly while its table changes: each change is written once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import HANG, wait_until

pytest.importorskip("pyspark")

import spark_processes

sys.path.append(str(Path(__file__).parents[1] / "cdf" / "feed"))

from change_tables import ChangeTable, rows

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.session import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKER = Path(__file__).with_name("stream_worker.py")
#: Number of kills; more take longer.
KILLS = int(os.environ.get("DELTA_SHARING_STREAM_KILLS", "1"))

Change = tuple[int, str, int]


class Source:
    """A table that is appended to, updated, deleted from and vacuumed, with every change row that there was.

    changes: the change rows: version, kind, id.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.table = ChangeTable(root)
        self.chance = chance
        self.changes: list[Change] = []
        self._files: dict[str, list[int]] = {}
        self._removed: list[tuple[int, Path]] = []
        self._next = 0

    def commit(self) -> None:
        """Write one version: of every kind there is one now and then."""
        version = self.table.version + 1
        kind = self.chance.choice(["append", "append", "update", "delete", "part"]) if self._files else "append"
        if kind == "append":
            actions = [self._add(version, self._new(self.chance.randint(1, 4))) for _ in range(2)]
        else:
            name, ids = self.chance.choice(list(self._files.items()))
            actions = [self._remove(version, name)]
            if kind == "delete":
                self.changes += [(version, "delete", i) for i in ids]
            elif kind == "part":  # without change files: all of the file is deleted, and the rest inserted again
                self.changes += [(version, "delete", i) for i in ids]
                actions.append(self._add(version, ids[1:] or self._new(1)))
            else:
                changed = [*self._new(1), *ids[1:]]
                actions.append(self._add(version, changed, data_change=False))
                updates = [("update_preimage", ids[0]), ("update_postimage", changed[0])]
                self.changes += [(version, *change) for change in updates]
                data = rows(*(i for _, i in updates))
                actions.append(self.table.cdc(f"c{version}", data, [kind for kind, _ in updates]))
                self._removed.append((version, self.table.root / "_change_data" / f"c{version}"))
        assert self.table.commit(*actions) == version

    def vacuum(self, done: int) -> int:
        """Delete the files that versions up to `done` removed or wrote changes to; return how many."""
        gone = [path for version, path in self._removed if version <= done]
        self._removed = [item for item in self._removed if item[0] > done]
        for path in gone:
            path.unlink()
        return len(gone)

    def first_removed(self) -> int:
        """The version that removed a file, or wrote a file of changes, before all others not yet vacuumed."""
        while not self._removed:
            self.commit()
        return self._removed[0][0]

    def _new(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))

    def _add(self, version: int, ids: list[int], data_change: bool = True) -> dict[str, Any]:
        name = f"f{version}-{len(self._files)}-{self._next}"
        self._files[name] = ids
        if data_change:
            self.changes += [(version, "insert", i) for i in ids]
        return self.table.add(name, rows(*ids))

    def _remove(self, version: int, name: str) -> dict[str, Any]:
        del self._files[name]
        self._removed.append((version, self.table.root / name))
        return self.table.remove(name)

    @property
    def ids(self) -> Counter[int]:
        """The rows that the table has now."""
        return Counter(i for ids in self._files.values() for i in ids)


@contextlib.contextmanager
def worker(arguments: dict[str, Any], log: Path) -> Iterator[subprocess.Popen[str]]:
    """The query in a process group of its own, which is killed at the end, the JVM and its workers too."""
    env = spark_processes.environment(PYTHONPATH=str(spark_processes.ROOT))
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(WORKER), json.dumps(arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=env,
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANG)
        assert process.stdout is not None
        process.stdout.close()


def committed(checkpoint: Path) -> int:
    """The last version of which every row is in the sink; -1 if there is none."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not done:
        return -1
    line = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1]
    return int(json.loads(line)["version"]) - 1


def follow_to_the_end(spark: SparkSession, arguments: dict[str, Any]) -> None:
    """Run the query until it has read all that there is."""
    options = dict(arguments["options"])
    # Before Spark 4.2 a run of what is available now is one batch: the one that was broken off, then the rest.
    runs = 1 if pyspark_version() >= (4, 2) else 2
    if runs > 1:
        options.pop("maxFilesPerTrigger")
    ds.spark.register(spark)
    stream = spark.readStream.format("deltaSharing").options(**arguments["fields"]).options(**options)
    for _ in range(runs):
        writer = stream.load(arguments["table"]).writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", arguments["checkpoint"]).start(arguments["out"])
        assert query.awaitTermination(HANG)


@pytest.mark.slow
@pytest.mark.timeout(900 + 120 * KILLS)
def test_a_query_that_is_killed_repeatedly_writes_each_row_once(
    java: Path, spark: SparkSession, tmp_path: Path
) -> None:
    if pyspark_version() < (4, 0):
        pytest.skip("Spark 3.5 has no Python data sources")
    chance = random.Random(20240615)
    source = Source(tmp_path / "t", chance)
    for _ in range(6):
        source.commit()
    checkpoint, out, log = tmp_path / "checkpoint", tmp_path / "out", tmp_path / "log"
    vacuumed = 0
    with SharingServer({"s.s.t": source.table.root}) as server:
        arguments = {
            "fields": {name: str(value) for name, value in server.profile.items()},
            "table": "s.s.t",
            "checkpoint": str(checkpoint),
            "out": str(out),
            "options": {
                "readChangeFeed": "true",
                "startingVersion": "0",
                "maxFilesPerTrigger": "3",
                "maxVersionsPerRpc": "4",
                "queryTableVersionIntervalSeconds": "0.2",
            },
        }
        for _ in range(KILLS):
            with worker(arguments, log) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "started\n", log.read_text()[-3000:]

                def passes(version: int) -> None:
                    """Wait until every row of a version is in the sink."""
                    wait_until(
                        lambda: committed(checkpoint) >= version or process.poll() is not None,
                        lambda: log.read_text()[-3000:],
                    )
                    assert process.poll() is None, log.read_text()[-3000:]

                # Until files that were read can be vacuumed; the kill is during the next batches.
                removed = source.first_removed()
                source.commit()
                passes(removed)
                vacuumed += source.vacuum(committed(checkpoint))
                for _ in range(4):
                    source.commit()
                    vacuumed += source.vacuum(committed(checkpoint))
                    time.sleep(chance.uniform(0, 0.4))
                assert process.poll() is None, log.read_text()[-3000:]
        follow_to_the_end(spark, arguments)
        now = Counter(ds.SharingClient(server.profile).table("s.s.t").scan().to_arrow().column("id").to_pylist())
    sink = spark.read.parquet(str(out)).select("_commit_version", "_change_type", "id").collect()
    assert sorted(tuple(row) for row in sink) == sorted(source.changes)
    assert len(sink) > 4 * KILLS
    held: Counter[int] = Counter()
    for _, kind, key in sink:
        held[key] += 1 if kind in ("insert", "update_postimage") else -1
    assert +held == source.ids == now
    assert min(held.values()) == 0
    assert vacuumed > 0
