"""Kill test: streaming queries whose process is killed in the middle of batches, compared with the expected rows.

    python tests/faults/stream_kills.py --kills 100 --seed 1
    python tests/faults/stream_kills.py --kills 100 --pyspark 4.0

A Spark driver follows a table into Parquet files, with a query for new rows, one for changes, or both. Its
processes are killed (SIGKILL) at random moments and started again with the same checkpoints. Meanwhile the table
gains versions, protocol features and columns, URLs expire, and read files are vacuumed. Each table is followed
through some kills; then the sinks must hold every row exactly once. Only kills that interrupt a batch count: its
offsets are written, and its commit is not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "spark"))

import spark_processes
from script_modules import load_script
from stream_source import Source
from waiting import NEVER, WallClock, wait_until

from delta_sharing_client.server import ServerOptions, SharingServer

WORKER = Path(__file__).resolve().parents[1] / "spark" / "stream_worker.py"
#: Kills after which a new table begins.
PER_TABLE = 10
#: The queries, and the options in which they differ.
MODES = {"rows": {"skipChangeCommits": "true"}, "changes": {"readChangeFeed": "true"}}
#: The queries of a driver.
TOGETHER = (("rows",), ("changes",), ("rows", "changes"))
#: What Spark reports if the machine is too busy to start a Python worker in time; the driver is started again.
BUSY = "Python worker failed to connect back"
#: Far more than a driver's queries stop because of changed columns.
MOST_STOPS = 100
#: When the driver is killed, as often as listed.
MOMENTS = (
    *("planned", "planned", "listed", "read", "read", "written", "written", "sunk", "sunk", "stopped"),
    "random",
)


class KillError(Exception):
    """The queries failed, or a sink has wrong rows."""


class BusyError(Exception):
    """Spark could not start a Python worker in time."""


@dataclass
class Result:
    """What happened.

    interrupted: kills that interrupted a batch, by moment.
    others: other kills, by moment.
    events: versions with another protocol or other columns, and what else happened to the table.
    rows: number of compared rows.
    errors: descriptions of the tables whose queries failed or wrote wrong rows.
    """

    interrupted: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    errors: list[str] = field(default_factory=list)

    def report(self) -> str:
        """Return the outcomes as text."""

        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))

        return "\n".join(
            [
                f"kills in a batch  {self.interrupted.total()}: {listed(self.interrupted)}",
                f"other kills       {self.others.total()}: {listed(self.others)}",
                f"events            {listed(self.events)}",
                f"rows compared     {self.rows:,}",
                f"errors            {len(self.errors)}",
                *self.errors,
            ]
        )


class Sink:
    """A query's checkpoint and the Parquet files that it writes."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.mode = mode
        self.checkpoint = folder / mode / "checkpoint"
        self.out = folder / mode / "out"

    def query(self, options: dict[str, str]) -> dict[str, Any]:
        """The query's arguments for `stream_worker.py`."""
        return {"checkpoint": str(self.checkpoint), "out": str(self.out), "options": options}

    @property
    def planned(self) -> int:
        """The last batch with offsets; -1 if there is none."""
        return _last(self.checkpoint / "offsets")

    @property
    def done(self) -> int:
        """The last committed batch."""
        return _last(self.checkpoint / "commits")

    def clear_first_offsets(self) -> None:
        """Empty `offsets` if no batch is in it, as docs/streaming.md says: Spark 4.2 refuses such a rest."""
        if self.planned >= 0:
            return
        if files := [path for path in self.out.rglob("*") if path.is_file()]:
            raise KillError(f"{self.mode}: rows were written before the first offsets: {files[:5]}")
        shutil.rmtree(self.checkpoint / "offsets", ignore_errors=True)

    @property
    def in_a_batch(self) -> bool:
        done = self.done  # first: a batch may be committed meanwhile
        return self.planned > done

    @property
    def is_sunk(self) -> bool:
        """Whether the rows of a batch are in the sink, and it is not committed."""
        done = self.done
        return _last(self.out / "_spark_metadata") > done

    def offset(self, batch: int) -> dict[str, Any]:
        offset: dict[str, Any] = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().split("\n")[-1])
        return offset

    def version(self) -> int:
        """The last version of which every row is in the sink; -1 if there is none."""
        done = self.done
        return int(self.offset(done)["version"]) - 1 if done >= 0 else -1

    def rows(self) -> Counter[Any]:
        """The rows of the files that the sink's log lists, without nulls."""
        lines = [
            line for log in (self.out / "_spark_metadata").glob("[0-9]*") for line in log.read_text().split("\n")
        ]
        found: Counter[Any] = Counter()
        for path in {json.loads(line)["path"] for line in lines if line.startswith("{")}:
            for row in pq.ParquetFile(path.removeprefix("file://")).read().to_pylist():
                row.pop("_commit_timestamp", None)
                change = (row.pop("_commit_version", None), row.pop("_change_type", None))
                named = frozenset((name, value) for name, value in row.items() if value is not None)
                found[(*change, named) if self.mode == "changes" else named] += 1
        return found


def _last(folder: Path) -> int:
    names = (path.name.partition(".")[0] for path in folder.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


class Round:
    """A table, its two queries, and the runs of the driver until all rows are in the sinks.

    Args:
        seed: what versions, kills and options depend on.
        folder: an empty folder.
        result: where to count.
    """

    def __init__(self, seed: str, folder: Path, result: Result) -> None:
        self.chance = chance = random.Random(seed)
        self.result = result
        self.tracked = chance.random() < 0.7
        self.source = Source(folder / "table", chance, tracked=self.tracked)
        self.sinks = [Sink(folder, mode) for mode in chance.choice(TOGETHER)]
        self.clock = WallClock()
        self.folder = folder
        self.options = {"startingVersion": "2"} if chance.random() < 0.3 else {}
        for _ in range(6):
            self.source.commit()

    def run(self, kills: int) -> None:
        """Kill the driver, interrupting so many batches; then run it to the end, and compare the rows.

        Raises:
            KillError: a query failed, or rows are missing, wrong or there twice.
        """
        with mock.patch("time.time", self.clock), self._server() as self.server:
            while kills > 0:
                moment = self.chance.choice(MOMENTS)
                if not self._run(moment):
                    continue
                in_a_batch = any(sink.in_a_batch for sink in self.sinks)
                (self.result.interrupted if in_a_batch else self.result.others)[moment] += 1
                kills -= in_a_batch
                for _ in range(self.chance.randint(0, 3)):
                    self.source.commit()
            while not self._run("end"):
                pass
        self.result.events.update([*self.source.evolved.values(), *self.source.upgrades])
        self.result.events["commits"] += self.source.version + 1
        for sink in self.sinks:
            self._compare(sink)

    def _server(self) -> SharingServer:
        options = ServerOptions(token_lifetime=NEVER * 1000, file_ids_by_format=True)
        return SharingServer({"s.s.t": self.source.table.root}, options=options)

    def _run(self, moment: str) -> bool:
        """Run the driver until a moment, and kill it; return False if it did not come so far."""
        try:
            self._run_until(moment)
        except BusyError:
            self.result.events["starts on a busy machine"] += 1
            return False
        self.result.events["vacuumed files"] += self.source.vacuum(min(sink.version() for sink in self.sinks))
        return True

    def _run_until(self, moment: str) -> None:
        chance, source = self.chance, self.source
        with self._driver() as process:
            if moment == "random":
                time.sleep(chance.uniform(0, 8))
                return
            self._wait(process, lambda: "started\n" in self._output())
            target = [sink.done + chance.randint(0, 1) for sink in self.sinks]
            if moment == "end":
                self._wait(process, lambda: all(sink.version() == source.version for sink in self.sinks))
                self._check_stops()
                return
            self._wait(
                process, lambda: all(s.done >= n for s, n in zip(self.sinks, target, strict=True)), commits=True
            )
            if chance.random() < 0.5:
                self.clock.advance(7200)
                self.result.events["expiries"] += 1
            for _ in range(chance.randint(1, 3)):
                source.commit()
            self._wait(process, self._moment(moment), commits=True)
            time.sleep(chance.choice((0, 0, chance.uniform(0, 0.1), chance.uniform(0, 0.5))))
            assert process.poll() is None
            self._check_stops()

    def _moment(self, name: str) -> Callable[[], bool]:
        """Return a condition that holds from a moment on."""
        self.server.reset_requests()
        stops = self._output().count("stopped")
        files = len(self._files())
        conditions: dict[str, Callable[[], bool]] = {
            "planned": lambda: any(sink.in_a_batch for sink in self.sinks),
            "listed": lambda: any(r.path.endswith(("/query", "/changes")) for r in self.server.requests),
            "read": lambda: any(request.is_file for request in self.server.requests),
            "written": lambda: len(self._files()) > files,
            "sunk": lambda: any(sink.is_sunk for sink in self.sinks),
            # When the columns changed, or there is no change left: at any time.
            "stopped": lambda: self._output().count("stopped") > stops or self.chance.random() < 0.001,
        }
        return conditions[name]

    def _files(self) -> list[Path]:
        return [path for sink in self.sinks for path in sink.out.glob("*.parquet")]

    def _wait(self, process: subprocess.Popen[Any], condition: Callable[[], bool], commits: bool = False) -> None:
        """Wait for a condition; with `commits` the table gains a version whenever all were read."""

        def reached() -> bool:
            if process.poll() is not None:
                errors = (self.folder / "errors").read_text()
                raise BusyError if BUSY in errors else KillError(f"the driver ended: {errors[-3000:]}")
            if (output := self._output()).count("stopped ") > MOST_STOPS:
                raise KillError(f"the queries stop again and again: {output[-3000:]}")
            if commits and all(sink.version() == self.source.version for sink in self.sinks):
                self.source.commit()
            return condition()

        wait_until(reached, lambda: (self.folder / "errors").read_text()[-3000:])

    def _output(self) -> str:
        return (self.folder / "output").read_text()

    def _check_stops(self) -> None:
        """Check the errors that stopped queries of this run: each names a version that changed the columns."""
        for line in self._output().splitlines():
            if not line.startswith("stopped "):
                continue
            mode, text = json.loads(line.partition(" ")[2])
            found = re.search(r"SchemaChangedError: table s\.s\.t: in version (\d+) column", text)
            if found is None or int(found[1]) not in self.source.evolved:
                raise KillError(f"{mode} stopped for no column change: {text[:2000]}")
            self.result.events[f"stops by {self.source.evolved[int(found[1])]}"] += 1

    def _driver(self) -> contextlib.AbstractContextManager[subprocess.Popen[Any]]:
        chance, fields = self.chance, {name: str(value) for name, value in self.server.profile.items()}
        queries = {}
        for sink in self.sinks:
            sink.clear_first_offsets()
            options = MODES[sink.mode] | self.options
            options |= {"maxFilesPerTrigger": str(chance.randint(1, 4)), "queryTableVersionIntervalSeconds": "0.1"}
            options |= {"maxVersionsPerRpc": str(chance.choice((1, 3, 100)))}
            if self.tracked:
                options |= {"schemaTrackingLocation": str(sink.checkpoint / "schemas")}
                options |= {"allowSourceColumnRenameAndDrop": "always", "allowSourceColumnTypeChange": "always"}
            queries[sink.mode] = sink.query(options)
        return running_driver(self.folder, fields=fields, table="s.s.t", queries=queries)

    def _compare(self, sink: Sink) -> None:
        start = sink.offset(sink.done)
        snapshot = start["initialSnapshot"]
        expected = self.source.expected(sink.mode, start["initialVersion"], snapshot=snapshot)
        found = sink.rows()
        self.result.rows += found.total()
        if found != expected:
            missing, extra = list((expected - found).items()), list((found - expected).items())
            raise KillError(f"{sink.mode}: missing {missing[:5]}, too many {extra[:5]} of {expected.total()}")


@contextlib.contextmanager
def running_driver(folder: Path, **arguments: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run `stream_worker.py` in a session of its own, with the files `output` and `errors`; kill it at the end.

    What a killed process leaves of its temporary files is in the folder too.
    """
    options = f"{spark_processes.JAVA_OPTIONS} -Djava.io.tmpdir={folder}"
    places = {"TMPDIR": str(folder), "SPARK_SUBMIT_OPTS": options, "PYTHONPATH": str(spark_processes.ROOT)}
    command = [sys.executable, "-W", "ignore", str(WORKER), json.dumps(arguments)]
    env = spark_processes.environment(**places)
    with (
        (folder / "output").open("wb") as output,
        (folder / "errors").open("wb") as errors,
        spark_processes.session_of(command, cwd=folder, env=env, stdout=output, stderr=errors) as process,
    ):
        yield process


def run_kills(seed: int, kills: int, report: Callable[[Result], None] = lambda result: None) -> Result:
    """Kill drivers until a number of batches was interrupted.

    Args:
        seed: seed of the tables and kills; the moments depend on the machine too.
        kills: number of kills that interrupt a batch.
        report: called after each table.
    """
    result, number = Result(), 0
    while result.interrupted.total() < kills:
        name = f"{seed}.{number}"
        folder = Path(tempfile.mkdtemp(prefix="stream-kills-"))
        try:
            Round(name, folder, result).run(min(PER_TABLE, kills - result.interrupted.total()))
        except (KillError, AssertionError) as error:
            result.errors.append(f"table {name} (kept in {folder}): {error}")
            if len(result.errors) > 3:
                break
        else:
            shutil.rmtree(folder)
        number += 1
        report(result)
    return result


def main() -> int:
    """Run from the command line; return 0 if all rows are there once."""
    parser = argparse.ArgumentParser(
        description="Kill Spark drivers in the middle of batches, and compare the rows."
    )
    parser.add_argument("--kills", type=int, default=100, help="number of kills that interrupt a batch (100)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the tables and kills (1)")
    parser.add_argument("--pyspark", help="run on this version of PySpark, in the environment of `make matrix`")
    arguments = parser.parse_args()
    if arguments.pyspark:
        python = str(load_script("scripts/matrix.py").environment(arguments.pyspark))
        os.execv(python, [python, __file__, "--kills", str(arguments.kills), "--seed", str(arguments.seed)])
    spark_processes.java_home()
    started = time.monotonic()
    result = run_kills(arguments.seed, arguments.kills, lambda r: print(r.report(), file=sys.stderr, flush=True))
    version = ".".join(map(str, spark_processes.VERSION))
    print(result.report())
    print(f"time              {time.monotonic() - started:.0f} s, seed {arguments.seed}, PySpark {version}")
    return 1 if result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
