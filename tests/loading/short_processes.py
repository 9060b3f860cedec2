"""Runs processes that end just after they have loaded one file, and prints which did not end with exit code 0.

python tests/loading/short_processes.py PROFILE RUNS TABLE [TABLE ...]
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

#: By name: the arguments of Python for a load of a table whose URL comes last.
PROGRAMS = {
    "head": ["-m", "delta_sharing_client", "head"],
    "pandas": ["-c", "import sys, delta_sharing_client as ds; ds.load_as_pandas(sys.argv[1], progress=False)"],
    "arrow": ["-c", "import sys, delta_sharing_client as ds; ds.load_as_arrow(sys.argv[1], progress=False)"],
}


def run(name: str, url: str) -> str:
    """Run one process; return what was wrong, if anything."""
    done = subprocess.run([sys.executable, *PROGRAMS[name], url], capture_output=True, text=True, check=False)
    return f"{name} {url}: exit code {done.returncode}: {done.stderr}" if done.returncode else ""


def problems(profile: str, runs: int, tables: Iterable[str]) -> Iterator[str]:
    """Run so many processes, two at once, each program for each table in turn; yield what was wrong."""
    turns = itertools.cycle([(name, f"{profile}#{table}") for table in tables for name in PROGRAMS])
    with ThreadPoolExecutor(2) as pool:
        yield from filter(None, pool.map(lambda turn: run(*turn), itertools.islice(turns, runs)))


if __name__ == "__main__":
    found = list(problems(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
    print(*found, f"{len(found)} of {sys.argv[2]} did not end with exit code 0", sep="\n")
    sys.exit(bool(found))
