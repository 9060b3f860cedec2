"""Stress test: many threads load tables while processes fork, exit, and are interrupted; faults are counted.

    python tests/faults/stress.py --seconds 60 --seed 1 threads forks exits interrupts soak

Each scenario takes so many seconds, and loads from three servers: a healthy one (the embedded server), one with
faults (late, cut and refused answers, expired URLs), and the latter with tokens that expire each second. The rows
of each load are compared. A load with other rows, an untyped error, a hang, a process with another exit code, and
a resource that grows are faults; the exit status is then 1. Typed errors of the server with faults are none.
Half of the processes switch threads after each microsecond.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "loading"))

import interrupted_loads
from faults.fault_kinds import API, STORE
from faults.faulty_share import FaultyShare
from faults.server import FaultServer, Reply, Request
from faults.stress_programs import FILES
from loading_tables import File, column, write_table

from delta_sharing_client.server import SharingServer

#: Seconds after which what runs counts as a hang, on a busy machine too.
PATIENCE = 240
_PROGRAMS = Path(__file__).with_name("stress_programs.py")
#: Seconds for which a token is valid, and those after which the server refuses it.
_TOKEN_LIFETIME, _TOKEN_REFUSED = 1, 1.5
_URL_LIFETIME = 20.0
#: Requests for a file between two refusals of its URL: a load gives up after three in a row.
_BETWEEN_REFUSALS = 200
#: Part of the samples of a soak in which caches fill, and the growth that is allowed after it: kB and parts.
_WARM_UP, _GROWTH, _RATE = 0.4, 8 * 1024, 0.05


@dataclass
class Result:
    """Outcomes of the loads and processes by name; descriptions of faults."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, outcomes: dict[str, int]) -> None:
        """Add the outcomes of a program."""
        for name, count in outcomes.items():
            if name.startswith("fault: "):
                self.faults.append(f"{name.removeprefix('fault: ')} ({count} times)")
            else:
                self.outcomes[name] += count


class Faults:
    """Seeded faults of a server, a fault in each twelfth reply; tokens that are too old are refused."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._count: Counter[str] = Counter()
        self._refused: dict[str, int] = {}

    def __call__(self, request: Request, reply: Reply) -> Reply:
        """Return the reply to send for a request and its correct reply."""
        path = request.path
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token.startswith("since-") and time.time() > float(token.removeprefix("since-")) + _TOKEN_REFUSED:
            return Reply(status=401)
        with self._lock:
            self._count[path] += 1
            count = self._count[path]
        rng = random.Random(f"{self._seed} {path} {count}")
        if reply.status >= 400 or rng.random() > 1 / 12:
            return reply
        kinds = {**(STORE if path.startswith("/data/") else API), "later": _later}
        name = rng.choice(sorted(kinds.keys() - {"stall", "late"}))  # these take as long as a time-out
        if name == "expired":
            with self._lock:
                if count - self._refused.get(path, -_BETWEEN_REFUSALS) < _BETWEEN_REFUSALS:
                    return reply
                self._refused[path] = count
        return kinds[name](rng, request, reply) or reply


def _later(rng: random.Random, request: Request, reply: Reply) -> Reply:
    return Reply(status=rng.choice((429, 503)), headers={"Retry-After": "1"})


@contextmanager
def servers(folder: Path, seed: int) -> Iterator[None]:
    """Run the servers; write their profiles to files in the folder."""
    columns = [column("id", "long"), column("noise", "long"), column("name", "string")]
    files = [File(rows=file.table, name=f"{file.name}.parquet") for file in FILES]
    feed = {"delta.enableChangeDataFeed": "true"}
    root = write_table(folder / "t", columns, files, configuration=feed)
    with SharingServer({"s.s.t": root}, recorded_requests=0) as healthy, FaultServer() as faulty:
        share = FaultyShare(server=faulty, versions=[FILES], lifetime=_URL_LIFETIME)
        share.fault = Faults(seed)
        # A soak sends millions of requests, which the server would keep.
        faulty.requests = _Forgetful()
        faulty.on("POST", "/token", _token)
        tokens = {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "endpoint": faulty.url,
            "tokenEndpoint": f"{faulty.url}/token",
            "clientId": "c",
            "clientSecret": "s",
        }
        profiles = {"healthy": healthy.profile, "faulty": faulty.profile, "tokens": tokens}
        for name, profile in profiles.items():
            path = folder / f"{name}.share"
            path.touch(0o600)
            path.write_text(json.dumps(profile))
        yield


class _Forgetful(list[Request]):
    def append(self, _: Request) -> None:
        """Keep no request."""


def _token(_: Request) -> Reply:
    token = f"since-{time.time()}"
    return Reply.of_json({"access_token": token, "expires_in": _TOKEN_LIFETIME, "token_type": "bearer"})


@dataclass
class Run:
    """One scenario: what its processes need, and what came of them."""

    folder: Path
    seconds: float
    seed: int
    threads: int
    result: Result = field(default_factory=Result)

    def command(self, program: str, **more: Any) -> list[str]:
        """Return the command of a program; half of the seeds switch threads after each microsecond."""
        seed = more.get("seed", self.seed)
        config = {
            "folder": str(self.folder),
            "seconds": self.seconds,
            "seed": seed,
            "threads": self.threads,
            "patience": PATIENCE,
            "switch": 1e-6 if random.Random(f"switch {seed}").random() < 0.5 else 0.005,
        }
        return [sys.executable, str(_PROGRAMS), program, json.dumps({**config, **more})]

    def run(self, program: str, **more: Any) -> str:
        """Run a program to its end; return what it printed, or nothing after a fault."""
        command = self.command(program, **more)
        shown = f"{program}, seed {more.get('seed', self.seed)}"
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                output, errors = process.communicate(timeout=self.seconds + 2 * PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                self.result.faults.append(f"{shown}: it still runs after {self.seconds + 2 * PATIENCE:.0f} s")
                return ""
        if process.returncode != more.get("code", 0):
            self.result.faults.append(f"{shown}: exit code {process.returncode}: {errors}")
            return ""
        if errors and program not in ("interrupts", "soak"):  # what is interrupted may report an ignored error
            self.result.faults.append(f"{shown}: {errors}")
        return output


def _threads(run: Run) -> None:
    run.result.add(json.loads(run.run("threads") or "{}"))


def _forks(run: Run) -> None:
    run.result.add(json.loads(run.run("forks", threads=min(run.threads, 16)) or "{}"))


def _until(run: Run, start: Callable[[int], None]) -> None:
    """Start processes, two at a time, for the time of the scenario."""
    end = time.monotonic() + run.seconds
    rng = random.Random(run.seed)

    def repeat(_: int) -> None:
        while time.monotonic() < end:
            start(rng.randrange(10**9))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(repeat, range(2)))


def _exits(run: Run) -> None:
    def start(seed: int) -> None:
        if run.run("exits", seed=seed, code=random.Random(seed).choice((0, 3))):
            run.result.outcomes["exits"] += 1

    _until(run, start)


def _interrupts(run: Run) -> None:
    run.result.add(json.loads(run.run("interrupts", threads=min(run.threads, 8)) or "{}"))


def _interrupted_processes(run: Run) -> None:
    def start(seed: int) -> None:
        problem = interrupted_loads.interrupt(f"{run.folder / 'faulty.share'}#s.s.t", seed, 2.0)
        if problem:
            run.result.faults.append(problem)
        run.result.outcomes["interrupted processes"] += 1

    _until(run, start)


def _soak(run: Run) -> None:
    for collects in (True, False):
        half = run.seconds / 2
        output = run.run("soak", collects=collects, samples=min(60, max(5, int(half / 5))), seconds=half)
        if not output:
            continue
        found = json.loads(output)
        run.result.add(found["outcomes"])
        run.result.faults += _growth(found["samples"], collects=collects)


def _growth(samples: list[tuple[int, int, int]], *, collects: bool) -> list[str]:
    """Return which resources grow after the warm-up of a soak.

    The memory grows without the garbage collector: PyArrow's metadata of a file and its schema hold each other.
    """
    samples = samples[int(len(samples) * _WARM_UP) :]
    third = max(1, len(samples) // 3)
    grown = []
    allowances = (("memory in kB", _GROWTH, _RATE), ("open files", 2, 0), ("threads", 0, 0))
    collector = "with" if collects else "without"
    for (name, most, rate), values in list(zip(allowances, zip(*samples, strict=True), strict=True))[
        not collects :
    ]:
        first, last = statistics.median(values[:third]), statistics.median(values[-third:])
        if last > first * (1 + rate) + most:
            grown.append(f"soak {collector} the garbage collector: {name} grow from {first} to {last}")
    return grown


SCENARIOS: dict[str, Callable[[Run], None]] = {
    "threads": _threads,
    "forks": _forks,
    "exits": _exits,
    "interrupts": _interrupts,
    "interrupted_processes": _interrupted_processes,
    "soak": _soak,
}


def run_stress(scenario: str, seconds: float, seed: int, threads: int = 64) -> Result:
    """Run a scenario for some seconds."""
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder), seed):
        run = Run(Path(folder), seconds, seed, threads)
        SCENARIOS[scenario](run)
        return run.result


def main() -> int:
    """Run from the command line; return 0 if there is no fault."""
    parser = argparse.ArgumentParser(description="Load tables by many threads, and look for concurrency faults.")
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument("--seconds", type=float, default=60, help="for each scenario (60)")
    parser.add_argument("--seed", type=int, default=1, help="seed of loads and faults (1)")
    parser.add_argument("--threads", type=int, default=64, help="threads that load (64)")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenarios) - SCENARIOS.keys():
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    faults = 0
    for name in arguments.scenarios or SCENARIOS:
        result = run_stress(name, arguments.seconds, arguments.seed, arguments.threads)
        faults += len(result.faults)
        shown = ", ".join(f"{kind} {count:,}" for kind, count in sorted(result.outcomes.items()))
        print(f"{name}: {shown}; {len(result.faults)} faults", *result.faults[:10], sep="\n  ", flush=True)
    print(f"{faults} faults, seed {arguments.seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
