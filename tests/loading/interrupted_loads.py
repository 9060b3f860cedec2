"""Interrupts loads at random moments, imports included, and prints how many did not end in time.

python tests/loading/interrupted_loads.py URL RUNS SEED
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

LOAD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
import delta_sharing_client as ds
{load}(sys.argv[1])
"""
LOADS = ("ds.load_as_pandas", "ds.load_as_arrow")
#: Seconds within which an interrupted process ends on an idle machine, with what a busy one may add.
PATIENCE = 60.0


def interrupt(url: str, seed: int, longest: float) -> str:
    """Interrupt one load; return what was wrong, if anything."""
    rng = random.Random(seed)
    code = LOAD.format(load=rng.choice(LOADS))
    with subprocess.Popen(
        [sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0, longest))
        child.send_signal(signal.SIGINT)
        try:
            _, errors = child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            return f"seed {seed}: it still ran {PATIENCE:g} s after the interrupt"
    # The interrupt may arrive before or after the load. Python itself loses one within a finalizer.
    return "" if child.returncode in (0, 1, -signal.SIGINT) else f"seed {seed}: {child.returncode}: {errors}"


def main(url: str, runs: int, seed: int) -> list[str]:
    """Interrupt loads of a table; return what was wrong."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", LOAD.format(load=LOADS[0]), url], check=True, capture_output=True)
    longest = time.monotonic() - begun
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda number: interrupt(url, seed + number, longest), range(runs))
        return [problem for problem in found if problem]


if __name__ == "__main__":
    problems = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print(*problems, f"{len(problems)} of {sys.argv[2]} did not end as they should", sep="\n")
    sys.exit(bool(problems))
