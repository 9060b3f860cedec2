"""Thousands of mixed faults, seeded, against an oracle of the right answer.

    python tests/faults/chaos.py --faults 10000 --seed 1

Every load ends in the right answer or in a typed error within its time; anything else is reported with the seed
of its round, and the exit status is 1. Faults that pass (a busy server, cut and stalled transfers, expired URLs)
come at most twice in a row for one resource, so that a client which does what it promises recovers from all of
them. Faults that last for one answer (a flipped bit, a broken line) may end a load, but only with a typed error.
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

from faults.fault_kinds import API, API_LASTING, STORE, STORE_LASTING, VERSIONS
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
    """What became of the loads.

    faults: how often each fault was injected.
    loads: how many loads there were.
    right: those with the right answer.
    typed: those that ended in a typed error, by its class.
    passing, recovered: faults of loads that met none but passing ones; those of them whose load was right.
    wrong, untyped, hangs: what must not be, described.
    """

    faults: Counter[str] = field(default_factory=Counter)
    loads: int = 0
    right: int = 0
    typed: Counter[str] = field(default_factory=Counter)
    passing: int = 0
    recovered: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing happened that must not."""
        return not (self.wrong or self.untyped or self.hangs)

    def report(self) -> str:
        """The result for people."""
        rate = 100 * self.recovered / self.passing if self.passing else 100.0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lines = [
            f"faults injected   {self.faults.total():,} ({len(self.faults)} kinds)",
            f"loads             {self.loads:,}: {self.right:,} right, {self.typed.total():,} typed errors",
            f"recovered         {self.recovered:,} of {self.passing:,} passing faults ({rate:.2f} %)",
            f"wrong answers     {len(self.wrong)}",
            f"untyped errors    {len(self.untyped)}",
            f"hangs             {len(self.hangs)}",
            f"peak memory       {peak:,.0f} MB, server included",
            "faults            " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
            "errors            " + ", ".join(f"{name} {count}" for name, count in sorted(self.typed.items())),
        ]
        for name in ("wrong", "untyped", "hangs", "lost"):
            lines += [f"{name}: {text}" for text in getattr(self, name)[:10]]
        return "\n".join(lines)


class Monkey:
    """Spoils the answers of one round.

    rate: the part of the answers that are spoilt.
    lasting: whether faults that may end the load are among them.
    """

    def __init__(self, seed: str, rate: float, *, lasting: bool) -> None:
        self._seed = seed
        self._rate = rate
        self._lasting = lasting
        self._lock = threading.Lock()
        self._count: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.met_lasting = False
        self.enabled = True

    def __call__(self, request: Request, reply: Reply) -> Reply:
        """Return what is sent instead of the healthy answer."""
        of_file = request.path.startswith("/data/")
        with self._lock:
            if not self.enabled or reply.status >= 400:
                return reply
            self._count[request.path] += 1
            # Each request has a generator of its own, whichever thread comes first.
            rng = random.Random(f"{self._seed} {request.path} {self._count[request.path]}")
            if self._in_a_row[request.path] >= 2 or rng.random() >= self._rate:
                self._in_a_row[request.path] = 0
                return reply
            kinds = dict(STORE if of_file else API)
            if self._lasting and rng.random() < 0.15:
                kinds = dict(STORE_LASTING if of_file else API_LASTING)
            name = rng.choice(sorted(kinds))
            if name in _STALLS and rng.random() < 0.8:
                name = rng.choice(("drop", "cut", "reset"))  # each stall costs a time-out
            if name == "endless" and not of_file and rng.random() < 0.8:
                name = "broken line"  # each costs 64 MB
            spoilt = kinds[name](rng, request, reply)
            if spoilt is None:
                return reply
            self._in_a_row[request.path] += 1
            self.faults[("store: " if of_file else "server: ") + name] += 1
            self.met_lasting = self.met_lasting or name in (STORE_LASTING if of_file else API_LASTING)
            return spoilt


def _to_arrow(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    return client.table("s.s.t").scan().to_arrow(), [share.rows_at(v) for v in range(len(share.versions))]


def _projected(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    found = client.table("s.s.t").scan(columns=["noise"]).to_arrow()
    return found, [share.rows_at(v).select(["noise"]) for v in range(len(share.versions))]


def _filtered(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    found = client.table("s.s.t").scan(filters=[("noise", "<", 300_000)]).to_arrow()
    wholes = [share.rows_at(v) for v in range(len(share.versions))]
    return found, [whole.filter(pc.less(whole["noise"], 300_000)) for whole in wholes]


def _pandas(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    found = pa.Table.from_pandas(client.table("s.s.t").scan().to_pandas(), preserve_index=False)
    right = [share.rows_at(v) for v in range(len(share.versions))]
    return found.cast(right[0].schema), right


def _pinned(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    return client.table("s.s.t").scan(version=0).to_arrow(), [share.rows_at(0)]


def _changes(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    found = client.table("s.s.t").changes(0, 3).to_arrow()
    return found, [share.changes(0, 3)]


def _mirror(client: ds.SharingClient, share: FaultyShare) -> tuple[pa.Table, list[pa.Table]]:
    """A first sync that may fail, and a second that goes on from what is there."""
    right = [share.rows_at(v).sort_by("id") for v in range(len(share.versions))]
    with tempfile.TemporaryDirectory() as folder:
        mirror = client.table("s.s.t").mirror(Path(folder) / "m")
        try:
            mirror.sync()
        except DeltaSharingError:
            mirror.sync()
        return mirror.scan().to_arrow().sort_by("id"), right


_LOADS = [_to_arrow, _to_arrow, _projected, _filtered, _pandas, _pinned, _changes]


def _round(seed: str, result: Result) -> None:
    """One load, through a fresh server."""
    rng = random.Random(seed)
    load = _mirror if rng.random() < 0.04 else rng.choice(_LOADS)
    monkey = Monkey(seed, rng.choice((0.1, 0.3, 0.5)), lasting=rng.random() < 0.4)
    clock = WallClock()

    def spoil(request: Request, reply: Reply) -> Reply:
        if request.path.startswith("/data/"):
            clock.advance(1)  # URLs expire after so many requests for files
        return monkey(request, reply)

    with FaultServer() as server, mock.patch("time.time", clock):
        share = FaultyShare(
            server=server,
            versions=VERSIONS,
            lifetime=rng.choice((15, 60, 3600)),
            told=rng.random() < 0.5,
            tokens=rng.random() < 0.5,
            page=rng.choice((None, None, 3)),
            skew=rng.choice((0, 0, -3600, 3600)),
            spoil=spoil,
        )
        share.moves_on = lambda: rng.random() < 0.3
        if load is _changes:
            share.version = 3
        outcome: list[Any] = []

        def run() -> None:
            try:
                with ds.SharingClient(server.profile, options=TransportOptions(**OPTIONS)) as client:
                    found, right = load(client, share)
                    outcome.append(any(found.equals(table) for table in right))
            except BaseException as error:  # noqa: BLE001  # told apart below
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(HANG)
        monkey.enabled = False
    _note(result, monkey, outcome[0] if outcome else None, f"seed {seed!r}, {load.__name__[1:]}")


def _note(result: Result, monkey: Monkey, outcome: Any, what: str) -> None:
    result.loads += 1
    result.faults += monkey.faults
    passing = monkey.faults.total() if not monkey.met_lasting else 0
    result.passing += passing
    if outcome is True:
        result.right += 1
        result.recovered += passing
    elif outcome is False:
        result.wrong.append(what)
    elif outcome is None:
        result.hangs.append(what)
    elif isinstance(outcome, DeltaSharingError):
        result.typed[type(outcome).__name__] += 1
        if passing:
            result.lost.append(f"{what}: {type(outcome).__name__}: {outcome}")
    else:
        result.untyped.append(f"{what}: {type(outcome).__name__}: {outcome}")


def run_chaos(seed: int, faults: int, tell: Callable[[Result], None] = lambda result: None) -> Result:
    """Load through so many faults.

    Args:
        seed: makes another sequence of faults.
        faults: how many to inject at least.
        tell: told after every hundredth load.
    """
    result = Result()
    while result.faults.total() < faults:
        _round(f"{seed}.{result.loads}", result)
        if result.loads % 100 == 0:
            tell(result)
    return result


def main() -> int:
    """Run from the command line; 0 if nothing happened that must not."""
    parser = argparse.ArgumentParser(description="Load a table through thousands of seeded faults.")
    parser.add_argument("--faults", type=int, default=10_000, help="how many faults to inject (10000)")
    parser.add_argument("--seed", type=int, default=1, help="another sequence of faults (1)")
    parser.add_argument("--round", help="repeat one load, by the seed that a report names")
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
    return 0 if result.sound else 1


if __name__ == "__main__":
    sys.exit(main())
