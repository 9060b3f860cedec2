"""A poller that is killed repeatedly: every change arrives, and unfinished batches are repeated unchanged."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from change_tables import ChangeTable, rows
from waiting import HANG, wait_until_asleep

from delta_sharing_client.server import SharingServer

#: Pulls batches until none is left, and records each before the commit; killed at any point.
WORKER = """
import json, os, sys
import delta_sharing_client as ds

profile, checkpoint, out, last = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
with ds.SharingClient(profile) as client, open(out, "a") as log:
    poller = client.table("s.s.t").poll_changes(checkpoint, starting_version="snapshot", max_versions=3)
    print("started", flush=True)
    while (poller.committed_version or 0) < last:
        print("pull", flush=True)
        batch = poller.pull()
        if batch is None:
            break
        print("read", flush=True)
        rows = batch.to_arrow().select(["id", "_change_type", "_commit_version"]).to_pylist()
        log.write(json.dumps([batch.first_version, batch.last_version, rows]) + "\\n")
        log.flush()
        print("commit", flush=True)
        batch.commit()
        log.write(json.dumps(["committed", batch.last_version]) + "\\n")
        log.flush()
    poller.close()
print("done", flush=True)
"""


def kill_after(process: subprocess.Popen[str], steps: int, pause: float) -> None:
    """Kill a worker some way into a step of its work."""
    assert process.stdout is not None
    for _ in range(steps):
        process.stdout.readline()
    time.sleep(pause)
    process.kill()


#: Follows a table until it is stopped, by Ctrl-C or by a handler of its own.
FOLLOWER = """
import json, signal, sys
from datetime import timedelta
import delta_sharing_client as ds
from delta_sharing_client.cdf.clock import SystemClock

class AnnouncedClock(SystemClock):
    def wait(self, seconds, stopped):
        print("waiting", flush=True)
        super().wait(seconds, stopped)

with ds.SharingClient(json.loads(sys.argv[1])) as client:
    poller = client.table("s.s.t").poll_changes(
        starting_version="latest", poll_interval=timedelta(days=1), clock=AnnouncedClock()
    )
    if sys.argv[2] == "handler":
        signal.signal(signal.SIGTERM, lambda *_: poller.stop())
    for batch in poller:
        print(batch, flush=True)
print("stopped", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "sent", "status", "expected"),
    [("ctrl-c", signal.SIGINT, -signal.SIGINT, ""), ("handler", signal.SIGTERM, 0, "stopped\n")],
)
def test_a_signal_ends_a_wait_at_once(tmp_path: Path, how: str, sent: int, status: int, expected: str) -> None:
    table = ChangeTable(tmp_path / "t")
    table.commit(table.add("f", rows(1)))
    with (
        SharingServer({"s.s.t": table.root}) as server,
        subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, json.dumps(dict(server.profile)), how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        wait_until_asleep(process.pid)
        process.send_signal(sent)
        output, errors = process.communicate(timeout=HANG)
    assert (process.returncode, output) == (status, expected)
    assert ("KeyboardInterrupt" in errors) == (how == "ctrl-c")


@pytest.mark.slow
def test_every_change_is_read_by_a_poller_that_is_killed(tmp_path: Path) -> None:
    chance = random.Random(20240131)
    table = ChangeTable(tmp_path / "t")
    for version in range(3):
        table.commit(table.add(f"f{version}", rows(version)))
    out, checkpoint = tmp_path / "log", tmp_path / "c"
    last = 60
    kills = 0
    with SharingServer({"s.s.t": table.root}) as server:
        arguments = [json.dumps(dict(server.profile)), str(checkpoint), str(out), str(last)]
        for _ in range(60):
            while table.version < min(last, 3 + 8 * kills):
                number = table.version + 1
                table.commit(table.remove(f"f{number - 3}"), table.add(f"f{number}", rows(number)))
            with subprocess.Popen(
                [sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "started\n"
                if kills < 10:
                    kill_after(process, chance.randrange(8), chance.uniform(0, 0.01))
                    kills += 1
                    continue
                process.wait(HANG)
                assert process.returncode == 0
                break
    lines = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("]")]
    assert kills == 10
    check(lines, last)


def check(lines: list[list[object]], last: int) -> None:
    """Every batch that came twice was the same; none came after it was committed; together they are the table."""
    batches: dict[tuple[int, int], object] = {}
    order: list[tuple[int, int]] = []
    committed = -1
    for line in lines:
        if line[0] == "committed":
            committed = max(committed, int(line[1]))  # type: ignore[call-overload]
            continue
        first, end, found = line
        span = (int(first), int(end))  # type: ignore[call-overload]
        # A commit may have succeeded before this process recorded it; then the batch is not repeated.
        assert span[0] > committed
        assert batches.setdefault(span, found) == found
        if span not in order:
            order.append(span)
    assert order == sorted(order)
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(order))
    held: set[int] = set()
    for span in order:
        for row in batches[span]:  # type: ignore[attr-defined]
            (held.add if row["_change_type"] == "insert" else held.remove)(row["id"])
    assert order[-1][1] == last
    assert held == {last - 2, last - 1, last}
