"""Programs of the stress test: processes whose threads load tables while they fork, exit or are interrupted.

    python tests/faults/stress_programs.py PROGRAM CONFIG

`CONFIG` is JSON, from `stress.py`. A program prints its outcomes as JSON, and ends with the exit code 0.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import pyarrow as pa
import pyarrow.compute as pc
from faults.fault_kinds import VERSIONS

import delta_sharing_client as ds
from delta_sharing_client import auth, cdf, expressions, parquet, rest, scan, storage, transport, wire
from delta_sharing_client.errors import DeltaSharingError

#: The files of the table that all servers share, and its rows in the order of `id`.
FILES = VERSIONS[3]
ROWS = pa.concat_tables([file.table for file in FILES]).sort_by("id")
_IDS = frozenset(ROWS["id"].to_pylist())
_CHANGES = ["_change_type", "_commit_version", "_commit_timestamp"]
#: Exit codes: a forked process had a wrong outcome; a thread did not end.
WRONG, HUNG = 5, 6
_MOST_CHILDREN = 8


@dataclass
class Source:
    """A table on a server: a shared client, and the URL for the functions without a client."""

    name: str
    client: ds.SharingClient
    url: str
    options: ds.TransportOptions

    @property
    def table(self) -> ds.SharedTable:
        return self.client.table("s.s.t")


def sources(config: dict[str, Any]) -> list[Source]:
    """Return the table on each server."""
    quick = ds.TransportOptions(
        backoff_base=timedelta(milliseconds=2),
        backoff_cap=timedelta(milliseconds=50),
        api_attempts=10,
        storage_attempts=10,
    )
    made = []
    for name in ("healthy", "faulty", "tokens"):
        path = Path(config["folder"]) / f"{name}.share"
        made.append(Source(name, ds.SharingClient(path, options=quick), f"{path}#s.s.t", quick))
    return made


def _same(loaded: pa.Table, expected: pa.Table = ROWS) -> bool:
    return bool(loaded.sort_by("id").equals(expected))


def _same_frame(frame: Any) -> bool:
    return _same(pa.Table.from_pandas(frame, preserve_index=False, nthreads=1).cast(ROWS.schema))


def _same_changes(loaded: pa.Table) -> bool:
    return set(loaded["_change_type"].to_pylist()) == {"insert"} and _same(loaded.drop_columns(_CHANGES))


def _head(source: Source) -> bool:
    ids = source.table.head(10)["id"].tolist()
    return len(set(ids)) == 10 and set(ids) <= _IDS


def _filter(source: Source) -> bool:
    loaded = source.table.scan(filters=[("noise", "<", 300_000)]).to_arrow()
    return _same(loaded, ROWS.filter(pc.less(ROWS["noise"], 300_000)))


def _poll(source: Source) -> bool:
    with source.table.poll_changes(starting_version=0) as poll:
        return _same_changes(next(iter(poll)).to_arrow())


def _half(source: Source) -> bool:
    return next(source.table.scan().to_record_batches()).num_rows > 0


def _close(source: Source) -> bool:
    source.client.close()  # others use the client meanwhile
    return source.table.version() == 0


def _dropped(source: Source) -> bool:
    client = ds.SharingClient(source.url.partition("#")[0], options=source.options)
    return [share.name for share in client.list_shares()] == ["s"]


#: Each returns whether its rows are right.
LOADS: dict[str, Callable[[Source], bool]] = {
    "to_arrow": lambda source: _same(source.table.to_arrow()),
    "to_pandas": lambda source: _same_frame(source.table.to_pandas()),
    "load_as_arrow": lambda source: _same(ds.load_as_arrow(source.url, options=source.options)),
    "load_as_pandas": lambda source: _same_frame(ds.load_as_pandas(source.url, options=source.options)),
    "columns": lambda source: _same(
        source.table.scan(columns=["id", "noise"]).to_arrow(), ROWS.select(["id", "noise"])
    ),
    "filter": _filter,
    "head": _head,
    "count": lambda source: source.table.count() == len(ROWS),
    "changes": lambda source: _same_changes(source.table.changes(0).to_arrow()),
    "poll": _poll,
    "list": lambda source: [share.name for share in source.client.list_shares()] == ["s"],
    "half": _half,
    "close": _close,
    "dropped": _dropped,
}


def outcome(source: Source, load: str, *, may_fail: bool = False) -> str:
    """Load; return `correct`, the class of a typed error, or what is wrong.

    A typed error of the healthy server is wrong too, and one that tells that no thread can be started, unless a
    load may fail.
    """
    try:
        right = LOADS[load](source)
    except DeltaSharingError as error:
        if may_fail or (source.name != "healthy" and type(error) is not DeltaSharingError):
            return type(error).__name__
        return f"fault: {load} from {source.name}: {traceback.format_exc()}"
    except Exception:  # noqa: BLE001 - reported
        return f"fault: {load} from {source.name}: {traceback.format_exc()}"
    return "correct" if right else f"fault: {load} from {source.name}: other rows"


class Team:
    """Threads that load until they are told to stop."""

    def __init__(self, config: dict[str, Any], tables: list[Source]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._seed = config["seed"]
        self._patience = config["patience"]
        self._tables = tables
        self._stop = False
        self._lock = threading.Lock()
        count = config["threads"]
        self._threads = [threading.Thread(target=self._load, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _load(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {number}")
        while not self._stop:
            result = outcome(rng.choice(self._tables), rng.choice(sorted(LOADS)))
            with self._lock:
                self.outcomes[result] += 1

    def stop(self) -> None:
        """Wait for the threads, and for those of the package."""
        self._stop = True
        end = time.monotonic() + self._patience
        while any(thread.is_alive() for thread in self._threads) or package_threads():
            if time.monotonic() > end:
                report_hang()
            time.sleep(0.01)


def package_threads() -> list[str]:
    """Return the names of the package's threads.

    An interrupt within `Thread.start` leaves a thread that has ended among those that Python lists.
    """
    alive = [thread.name for thread in threading.enumerate() if thread.is_alive()]
    return [name for name in alive if name.startswith("delta-sharing")]


def report_hang() -> None:
    """Print the frames of all threads, and end the process."""
    faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
    os._exit(HUNG)


def warm_up(table: Source) -> None:
    """Import all that loads need: the lock of a module that a thread imports stays locked in a forked process."""
    for part in (auth, cdf, expressions, parquet, rest, scan, storage, transport, wire):
        for module in pkgutil.iter_modules(part.__path__, f"{part.__name__}."):
            importlib.import_module(module.name)
    for load in LOADS:
        result = outcome(table, load)
        assert result == "correct", result


def threads(config: dict[str, Any]) -> Counter[str]:
    """Load by many threads; the first loads import what they need."""
    team = Team(config, sources(config))
    time.sleep(config["seconds"])
    team.stop()
    return team.outcomes


def forks(config: dict[str, Any]) -> Counter[str]:
    """Fork while threads load. A forked process loads with its parent's clients, and ends."""
    warnings.simplefilter("ignore", DeprecationWarning)  # forks of processes with threads
    rng = random.Random(config["seed"])
    tables = sources(config)
    warm_up(tables[0])
    team = Team(config, tables)
    found: Counter[str] = Counter()
    end = time.monotonic() + config["seconds"]
    children: dict[int, str] = {}
    while children or time.monotonic() < end:
        if len(children) == _MOST_CHILDREN or time.monotonic() > end:
            child, status = os.waitpid(next(iter(children)), 0)
            code, subject = os.waitstatus_to_exitcode(status), children.pop(child)
            found[f"fault: forked process with {subject}: exit code {code}" if code else "forks"] += 1
            continue
        time.sleep(rng.uniform(0, 0.05))
        source, load, leaves = rng.choice(tables), rng.choice(sorted(LOADS)), rng.random() < 0.5
        child = os.fork()
        if not child:
            faulthandler.dump_traceback_later(config["patience"], exit=True)
            result = outcome(source, load)
            if result.startswith("fault"):
                print(result, file=sys.stderr, flush=True)
            code = WRONG * result.startswith("fault")
            if leaves:
                os._exit(code)
            raise SystemExit(code)
        children[child] = f"{load} from {source.name}"
    team.stop()
    return team.outcomes + found


def interrupts(config: dict[str, Any]) -> Counter[str]:
    """Interrupt loads of the main thread at random moments, while other threads use the same clients."""
    rng = random.Random(config["seed"])
    tables = sources(config)
    warm_up(tables[0])
    team = Team(config, tables)
    found: Counter[str] = Counter()
    is_armed = False

    def interrupt(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    end = time.monotonic() + config["seconds"]
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(config["patience"], exit=True)
        source, load, result = rng.choice(tables), rng.choice(sorted(LOADS)), "interrupts"
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.1))
            result = outcome(source, load)
            is_armed = False
        except KeyboardInterrupt:
            result = "interrupts"
        found[result] += 1
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, 0)
    team.stop()
    return team.outcomes + found


def exits(config: dict[str, Any]) -> None:
    """Exit at a random moment, while threads load."""
    rng = random.Random(config["seed"])
    tables = sources(config)
    if rng.random() < 0.5:
        warm_up(tables[0])

    def load(number: int) -> None:
        choice = random.Random(f"{config['seed']} {number}")
        while threading.main_thread().is_alive():
            result = outcome(choice.choice(tables), choice.choice(sorted(LOADS)), may_fail=True)
            if result.startswith("fault"):
                print(result, file=sys.stderr, flush=True)

    is_daemon = rng.random() < 0.3
    for number in range(min(config["threads"], 8)):
        threading.Thread(target=load, args=(number,), daemon=is_daemon).start()
    time.sleep(rng.uniform(0, 1.5))
    print("exits", flush=True)
    if config["code"]:
        sys.exit(config["code"])


def soak(config: dict[str, Any]) -> dict[str, Any]:
    """Load again and again; record the memory, the handles and the threads, with or without the collector."""
    rng = random.Random(config["seed"])
    tables = sources(config)
    warm_up(tables[0])
    if not config["collects"]:
        gc.collect()
        gc.disable()
    outcomes: Counter[str] = Counter()
    samples: list[tuple[int, int, int]] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < config["seconds"]:
        if passed >= len(samples) * config["seconds"] / config["samples"]:
            for source in tables:
                source.client.close()
            samples.append(_sample(config))
            print(f"{passed:.0f} s: {samples[-1]}, {outcomes.total()} loads", file=sys.stderr, flush=True)
        part = {**config, "threads": rng.randrange(1, 5), "seed": rng.random()}
        team = Team(part, tables)
        time.sleep(min(1.0, config["seconds"] / config["samples"] / 2))
        team.stop()
        outcomes += team.outcomes
    return {"outcomes": outcomes, "samples": samples}


def _sample(config: dict[str, Any]) -> tuple[int, int, int]:
    """Return the resident memory in kB, the open files, and the threads."""
    if config["collects"]:
        gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    return resident, sum(1 for _ in Path("/proc/self/fd").iterdir()), threading.active_count()


PROGRAMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "threads": threads,
    "forks": forks,
    "interrupts": interrupts,
    "exits": exits,
    "soak": soak,
}


def main(program: str, config: dict[str, Any]) -> None:
    """Run a program."""
    sys.setswitchinterval(config["switch"])
    result = PROGRAMS[program](config)
    if result is not None:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
