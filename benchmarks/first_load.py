"""The first load of a process, with its imports: `load_as_pandas(url, limit=10)` in fresh processes.

    python benchmarks/first_load.py                    without delay, and with 60 ms to the first byte of an answer
    python benchmarks/first_load.py --clients official also the official client (see `peer.py`)

| run | in the clock |
|---|---|
| `imports` | `import pandas, pyarrow, pyarrow.parquet`, which every load to pandas needs |
| `first` | the import of this package, and the load with all that it imports |
| `imported` | the same, with these three libraries imported before |
| `official` | the import of `delta_sharing`, and its load |

The runs take turns, after one of each that is not measured and compiles the modules. The load sends two requests,
one after the other: for the listing, and for one file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import data
import store
from peer import peer_python

LIBRARIES = "import pandas, pyarrow, pyarrow.parquet"
LOAD = "import {package}; assert len({package}.load_as_pandas({url!r}, limit=10)) == 10"
#: Measured code comes between these lines; the process ends without its clean-up.
BEGIN = """
import json, os, resource, time
usage, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
"""
END = """
seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime
print(json.dumps([seconds, cpu]), flush=True)
os._exit(0)
"""


def programs(url: str, *, official: bool) -> dict[str, tuple[str, str]]:
    """Return the interpreter and the code of each run."""
    ours = BEGIN + LOAD.format(package="delta_sharing_client", url=url) + END
    found = {
        "imports": (sys.executable, BEGIN + LIBRARIES + END),
        "first": (sys.executable, ours),
        "imported": (sys.executable, LIBRARIES + ours),
    }
    if official:
        found["official"] = (peer_python(), BEGIN + LOAD.format(package="delta_sharing", url=url) + END)
    return found


def measured(python: str, code: str) -> tuple[float, float]:
    """Run code in a fresh process; return its wall-clock and its processor seconds."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env=environment, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds, cpu = json.loads(done.stdout)
    return seconds, cpu


def compare(codes: dict[str, tuple[str, str]], repeat: int) -> dict[str, tuple[float, float]]:
    """Return the medians of the wall-clock and processor seconds of each run; the runs take turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in codes}
    for repetition in range(repeat + 1):
        for name, program in codes.items():
            seconds = measured(*program)
            if repetition:
                taken[name].append(seconds)
    medians = {name: [statistics.median(part) for part in zip(*runs, strict=True)] for name, runs in taken.items()}
    return {name: (wall, cpu) for name, (wall, cpu) in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--repeat", type=int, default=15, help="default: %(default)s")
    parser.add_argument("--clients", choices=["ours", "official"], default="ours", help="default: %(default)s")
    options = parser.parse_args()
    data.make("tiny")
    print("| latency | run | seconds | CPU s | to `imports` | CPU to `imports` |\n|---|---|---:|---:|---:|---:|")
    with (
        store.running_store("tiny", latency=0, bandwidth=None) as running,
        tempfile.TemporaryDirectory() as folder,
    ):
        profile = Path(folder) / "bench.share"
        running.write_profile(profile)
        codes = programs(f"{profile}#bench.default.small", official=options.clients == "official")
        for latency in (0.0, store.LATENCY):
            running.settings(latency, None)
            medians = compare(codes, options.repeat)
            for name, (seconds, cpu) in medians.items():
                times = [f"{seconds:.3f}", f"{cpu:.3f}"]
                times += [
                    f"{value / base:.2f}" for value, base in zip(medians[name], medians["imports"], strict=True)
                ]
                print(f"| {latency * 1000:.0f} ms | `{name}` | {' | '.join(times)} |", flush=True)


if __name__ == "__main__":
    main()
