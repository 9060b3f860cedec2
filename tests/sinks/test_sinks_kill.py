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
from sinks_kit import Target, in_order

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer

KILLS = int(os.environ.get("DELTA_SHARING_KILLS", "5"))

#: Stores every batch twice, as a log of changes and as a copy, and says when it begins and when nothing is left.
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
        log.write(batch)
        copy.write(batch)
        batch.commit()
    poller.close()
print("done", flush=True)
"""


def grow(table: ChangeTable, chance: random.Random) -> None:
    """Commit an insert, and an update or a deletion of what is there."""
    number = table.version + 1
    old = f"f{number - 2}"
    kept = rows(number - 2, number + 1000)
    updated = rows(number + 1000, text="updated")
    if chance.random() < 0.5:
        table.commit(table.remove(old), table.add(f"f{number}", rows(number, number + 1002)))
    else:
        table.commit(
            table.remove(old),
            table.add(f"f{number}", pa.concat_tables([rows(number, number + 1002), updated])),
            table.cdc(
                f"c{number}",
                pa.concat_tables([updated, rows(number, number + 1002), kept]),
                ["update_postimage", "insert", "insert", "delete", "update_preimage"],
            ),
        )


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.parametrize("kind", ["delta", "duckdb", "sqlite"])
def test_killed_again_and_again(tmp_path: Path, kind: str) -> None:
    chance = random.Random(int(os.environ.get("DELTA_SHARING_SEED", "7")))
    table = ChangeTable(tmp_path / "source")
    table.commit(table.add("f0", rows(0, 1002)))
    table.commit(table.add("f1", rows(1, 1003)))
    killed = [0, 0]
    with SharingServer({"s.s.t": table.root}) as server:
        for run in range(KILLS + 1):
            for _ in range(12):
                grow(table, chance)
            arguments = [json.dumps(dict(server.profile)), kind, str(tmp_path), str(table.version)]
            with subprocess.Popen(
                [sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "started\n"
                if run < KILLS:
                    time.sleep(chance.uniform(0, 0.6))
                    killed[process.poll() is not None] += 1
                    process.kill()
                    continue
                assert process.wait(120) == 0
        with SharingClient(server.profile) as client:
            changes = client.table("s.s.t").changes(starting_version=0).to_arrow()
            whole = client.table("s.s.t").scan().to_arrow()
    print(f"{kind}: killed {killed[0]} times at work, {killed[1]} times when done; version {table.version}")
    columns = ("id", "s", "_change_type", "_commit_version")
    expected = Counter(zip(*(changes.column(name).to_pylist() for name in columns), strict=True))
    assert Counter(Target(kind, tmp_path / "log").rows(*columns)) == expected
    assert set(expected.values()) == {1}
    assert Target(kind, tmp_path / "copy").rows() == in_order(
        zip(*(column.to_pylist() for column in whole.columns), strict=True)
    )
