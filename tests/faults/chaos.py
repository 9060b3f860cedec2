"""Chaos test: loads through thousands of seeded random faults, compared with the expected rows.

    python tests/faults/chaos.py --faults 10000 --seed 1

Every load must return the expected rows or raise a typed error within its time limit. Otherwise the report
contains the seed of the round, and the exit status is 1. Transient faults (a busy server, cut and stalled
transfers, expired URLs) occur at most twice in a row for a resource, so the client must recover from all of them.
Permanent faults (a flipped bit, a broken line) may end a load with a typed error.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

sys.path.append(str(Path(__file__).parents[1]))

from faults.fault_kinds import API, API_PERMANENT, STORE, STORE_PERMANENT, VERSIONS
from faults.faulty_share import FaultyShare
from faults.server import FaultServer, Reply, Request
from waiting import HANG, WallClock

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.options import TransportOptions

OPTIONS: dict[str, Any] = {
    "backoff_base": timedelta(milliseconds=2),
    "backoff_cap": timedelta(milliseconds=20),
    "read_timeout": timedelta(seconds=1),
    "api_deadline": timedelta(seconds=HANG / 2),
}
_STALLS = ("stall", "late")


@dataclass
class Result:
    """Outcomes of the loads.

    faults: number of injected faults by kind.
    loads: number of loads.
    correct: number of loads that returned the expected rows.
    typed: number of loads that raised a typed error, by class.
    transient: number of faults in loads with transient faults only.
    recovered: number of these faults in correct loads.
    lost: descriptions of loads with transient faults only that raised an error.
    wrong, untyped, hangs: descriptions of loads that violate the requirements.
    """

    faults: Counter[str] = field(default_factory=Counter)
    loads: int = 0
    correct: int = 0
    typed: Counter[str] = field(default_factory=Counter)
    transient: int = 0
    recovered: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether every load returned the expected rows or raised a typed error."""
        return not (self.wrong or self.untyped or self.hangs)

    def report(self) -> str:
        """Return the outcomes as text."""
        rate = 100 * self.recovered / self.transient if self.transient else 100.0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lines = [
            f"faults injected   {self.faults.total():,} ({len(self.faults)} kinds)",
            f"loads             {self.loads:,}: {self.correct:,} correct, {self.typed.total():,} typed errors",
            f"recovered         {self.recovered:,} of {self.transient:,} transient faults ({rate:.2f} %)",
            f"wrong results     {len(self.wrong)}",
            f"untyped errors    {len(self.untyped)}",
            f"hangs             {len(self.hangs)}",
            f"peak memory       {peak:,.0f} MB, server included",
            "faults            " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
            "errors            " + ", ".join(f"{name} {count}" for name, count in sorted(self.typed.items())),
        ]
        for name in ("wrong", "untyped", "hangs", "lost"):
            lines += [f"{name}: {text}" for text in getattr(self, name)[:10]]
        return "\n".join(lines)


class FaultInjector:
    """Random faults in the replies of one round.

    rate: probability of a fault per reply.
    permanent: whether to include faults that may end the load.
    """

    def __init__(self, seed: str, rate: float, *, permanent: bool) -> None:
        self._seed = seed
        self._rate = rate
        self._permanent = permanent
        self._lock = threading.Lock()
        self._count: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.had_permanent = False
        self.enabled = True

    def __call__(self, request: Request, reply: Reply) -> Reply:
        """Return the reply to send for a request and its correct reply."""
        of_file = request.path.startswith("/data/")
        with self._lock:
            if not self.enabled:
                return reply
            if reply.status >= 400:  # an expired URL is a refusal like those that are injected
                self._in_a_row[request.path] += of_file
                return reply
            self._count[request.path] += 1
            # Each request has its own generator, independent of the order of threads.
            rng = random.Random(f"{self._seed} {request.path} {self._count[request.path]}")
            if self._in_a_row[request.path] >= 2 or rng.random() >= self._rate:
                self._in_a_row[request.path] = 0
                return reply
            kinds = dict(STORE if of_file else API)
            if self._permanent and rng.random() < 0.15:
                kinds = dict(STORE_PERMANENT if of_file else API_PERMANENT)
            name = rng.choice(sorted(kinds))
            if name in _STALLS and rng.random() < 0.8:
                name = rng.choice(("drop", "cut", "reset"))  # a stall takes as long as a time-out
            if name == "endless" and not of_file and rng.random() < 0.8:
                name = "broken line"  # takes 64 MB
            faulty = kinds[name](rng, request, reply)
            if faulty is None:
                return reply
            self._in_a_row[request.path] += 1
            self.faults[("store: " if of_file else "server: ") + name] += 1
            self.had_permanent = self.had_permanent or name in (STORE_PERMANENT if of_file else API_PERMANENT)
            return faulty


def _to_arrow(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    return client.table("s.s.t").scan().to_arrow(), [share.rows_at(v) for v in range(len(share.versions))]


def _projected(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    loaded = client.table("s.s.t").scan(columns=["noise"]).to_arrow()
    return loaded, [share.rows_at(v).select(["noise"]) for v in range(len(share.versions))]


def _filtered(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    loaded = client.table("s.s.t").scan(filters=[("noise", "<", 300_000)]).to_arrow()
    tables = [share.rows_at(v) for v in range(len(share.versions))]
    return loaded, [table.filter(pc.less(table["noise"], 300_000)) for table in tables]


def _pandas(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    loaded = pa.Table.from_pandas(client.table("s.s.t").scan().to_pandas(), preserve_index=False)
    expected = [share.rows_at(v) for v in range(len(share.versions))]
    return loaded.cast(expected[0].schema), expected


def _pinned(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    return client.table("s.s.t").scan(version=0).to_arrow(), [share.rows_at(0)]


def _changes(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    loaded = client.table("s.s.t").changes(0, 3).to_arrow()
    return loaded, [share.changes(0, 3)]


def _mirror(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    """Run a sync that may fail, and if it does, a second one that continues it."""
    expected = [share.rows_at(v).sort_by("id") for v in range(len(share.versions))]
    with tempfile.TemporaryDirectory() as folder:
        mirror = client.table("s.s.t").mirror(Path(folder) / "m")
        try:
            mirror.sync()
        except DeltaSharingError:
            mirror.sync()
        return mirror.scan().to_arrow().sort_by("id"), expected


_LOADS = [_to_arrow, _to_arrow, _projected, _filtered, _pandas, _pinned, _changes]


def _round(seed: str, result: Result) -> None:
    """Run one load with a new server."""
    rng = random.Random(seed)
    load = _mirror if rng.random() < 0.04 else rng.choice(_LOADS)
    injector = FaultInjector(seed, rng.choice((0.1, 0.3, 0.5)), permanent=rng.random() < 0.4)
    clock = WallClock()

    def fault(request: Request, reply: Reply) -> Reply:
        if request.path.startswith("/data/"):
            clock.advance(1)  # URLs expire after a number of requests for files
        return injector(request, reply)

    with FaultServer() as server, mock.patch("time.time", clock):
        share = FaultyShare(
            server=server,
            versions=VERSIONS,
            lifetime=rng.choice((15, 60, 3600)),
            sends_expiration=rng.random() < 0.5,
            tokens=rng.random() < 0.5,
            page=rng.choice((None, None, 3)),
            skew=rng.choice((0, 0, -3600, 3600)),
            fault=fault,
        )
        share.advances = lambda: rng.random() < 0.3
        if load is _changes:
            share.version = 3
        outcome: list[Any] = []

        def run() -> None:
            try:
                with ds.SharingClient(server.profile, options=TransportOptions(**OPTIONS)) as client:
                    loaded, expected = load(client, share)
                    outcome.append(any(loaded.equals(table) for table in expected))
            except BaseException as error:  # noqa: BLE001 - _record distinguishes them
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(HANG)
        injector.enabled = False
    _record(result, injector, outcome[0] if outcome else None, f"seed {seed!r}, {load.__name__[1:]}")


def _record(result: Result, injector: FaultInjector, outcome: Any, load: str) -> None:
    result.loads += 1
    result.faults += injector.faults
    transient = injector.faults.total() if not injector.had_permanent else 0
    result.transient += transient
    if outcome is True:
        result.correct += 1
        result.recovered += transient
    elif outcome is False:
        result.wrong.append(load)
    elif outcome is None:
        result.hangs.append(load)
    elif isinstance(outcome, DeltaSharingError):
        result.typed[type(outcome).__name__] += 1
        if transient:
            result.lost.append(f"{load}: {type(outcome).__name__}: {outcome}")
    else:
        result.untyped.append(f"{load}: {type(outcome).__name__}: {outcome}")


def run_chaos(seed: int, faults: int, report: Callable[[Result], None] = lambda result: None) -> Result:
    """Run loads until a number of faults is injected.

    Args:
        seed: seed of the sequence of faults.
        faults: smallest number of faults.
        report: called after every hundredth load.
    """
    result = Result()
    while result.faults.total() < faults:
        _round(f"{seed}.{result.loads}", result)
        if result.loads % 100 == 0:
            report(result)
    return result


def main() -> int:
    """Run from the command line; return 0 if all loads are valid."""
    parser = argparse.ArgumentParser(description="Load a table through thousands of seeded random faults.")
    parser.add_argument("--faults", type=int, default=10_000, help="number of faults (10000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sequence of faults (1)")
    parser.add_argument("--round", help="repeat the load with this seed from a report")
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.round:
        result = Result()
        _round(arguments.round, result)
    else:
        result = run_chaos(
            arguments.seed,
            arguments.faults,
            lambda r: print(f"{r.faults.total():,} faults, {r.loads:,} loads", file=sys.stderr, flush=True),
        )
    print(result.report())
    print(f"time              {time.monotonic() - started:.0f} s, seed {arguments.seed}")
    return 0 if result.valid else 1


if __name__ == "__main__":
    sys.exit(main())
