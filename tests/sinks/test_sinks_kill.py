"""A process that stores batches, killed again and again: every change is there once, and the copy is the table.

`DELTA_SHARING_KILLS=200` kills as often as that.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from change_tables import ChangeTable, rows
from sink_targets import Target, in_order
from waiting import HANG

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer

KILLS = int(os.environ.get("DELTA_SHARING_KILLS", "4"))

#: Stores every batch twice, as a log of changes and as a copy, and prints its next step.
WORKER = """
import json, sys
import delta_sharing_client as ds
from delta_sharing_client.sinks import DeltaSink, DuckDBSink, SQLiteSink

profile, kind, folder, last = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
if kind == "delta":
    log, copy = DeltaSink(folder + "/log"), DeltaSink(folder + "/copy", mode="apply", keys=["id"])
else:
    make = {"duckdb": DuckDBSink, "sqlite": SQLiteSink}[kind]
    log, copy = make(folder + "/log", "t"), make(folder + "/copy", "t", mode="apply", keys=["id"])
with ds.SharingClient(profile) as client, log, copy:
    poller = client.table("s.s.t").poll_changes(folder + "/checkpoint", starting_version=0, max_versions=2)
    print("started", flush=True)
    while (poller.committed_version or 0) < last:
        batch = poller.pull()
        if batch is None:
            break
        print("log", flush=True)
        log.write(batch)
        print("copy", flush=True)
        copy.write(batch)
        print("commit", flush=True)
        batch.commit()
    poller.close()
print("done", flush=True)
"""


class Source:
    """A table of files of a few rows; each version takes one away, and adds one."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.table = ChangeTable(path)
        self.live: dict[str, pa.Table] = {}
        self._chance = chance
        for _ in range(3):
            self._commit(rows(self.table.version + 1, self.table.version + 1001))

    def grow(self) -> None:
        """Delete a file's rows, or update one of them and keep the others; insert two."""
        number = self.table.version + 1
        old = self._chance.choice(sorted(self.live))
        before = self.live.pop(old)
        new = rows(number, number + 1000)
        if self._chance.random() < 0.5:
            self._commit(new, self.table.remove(old))
            return
        (first,) = before.column("id").slice(0, 1).to_pylist()
        updated = rows(first, text=f"{number}-")
        changes = pa.concat_tables([updated, new, before.slice(1), before.slice(0, 1)])
        kinds = ["update_postimage", "insert", "insert", *["delete"] * (before.num_rows - 1), "update_preimage"]
        self._commit(
            pa.concat_tables([new, updated]),
            self.table.remove(old),
            self.table.cdc(f"c{number}", changes, kinds),
        )

    def _commit(self, data: pa.Table, *others: dict[str, object]) -> None:
        name = f"f{self.table.version + 1}"
        self.live[name] = data
        self.table.commit(*others, self.table.add(name, data))


@pytest.mark.slow
@pytest.mark.timeout(900 + 60 * KILLS)
@pytest.mark.parametrize("kind", ["delta", "duckdb", "sqlite"])
def test_a_process_killed_repeatedly_stores_each_batch_once(tmp_path: Path, kind: str) -> None:
    chance = random.Random(int(os.environ.get("DELTA_SHARING_SEED", "7")))
    source = Source(tmp_path / "source", chance)
    table = source.table
    killed: Counter[str] = Counter()
    with SharingServer({"s.s.t": table.root}) as server:
        for run in range(KILLS + 1):
            for _ in range(12):
                source.grow()
            arguments = [json.dumps(dict(server.profile)), kind, str(tmp_path), str(table.version)]
            with subprocess.Popen(
                [sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "started\n"
                if run == KILLS:
                    process.communicate(timeout=HANG)
                    assert process.returncode == 0
                    break
                step = ""
                for _ in range(chance.randrange(1, 12)):
                    step = process.stdout.readline().strip()
                time.sleep(chance.expovariate(50))
                process.kill()
                killed[step] += 1
        with SharingClient(server.profile) as client:
            changes = client.table("s.s.t").changes(starting_version=0).to_arrow()
            whole = client.table("s.s.t").scan().to_arrow()
    print(f"{kind}: killed at or after {dict(killed)}; the table has {table.version + 1} versions")
    columns = ("id", "s", "_change_type", "_commit_version")
    expected = Counter(zip(*(changes.column(name).to_pylist() for name in columns), strict=True))
    assert Counter(Target(kind, tmp_path / "log").rows(*columns)) == expected
    assert set(expected.values()) == {1}
    assert Target(kind, tmp_path / "copy").rows() == in_order(
        zip(*(column.to_pylist() for column in whole.columns), strict=True)
    )
