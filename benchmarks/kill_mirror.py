"""Crash test of mirrors: kill syncs with SIGKILL at random times, and verify the mirror after each kill.

    python benchmarks/kill_mirror.py             # 1,000 syncs; some minutes
    python benchmarks/kill_mirror.py --times 50

A table that changes is served on loopback. A child process syncs a mirror of it and is killed after a random time,
between its first and its last byte. After each kill, this package and deltalake must read the same rows from the
mirror: those of one version of the shared table. After some kills, a sync must converge and leave no file that no
version needs. The script raises an error at the first invalid mirror.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

COLUMNS = ("a", "long"), ("p", "string")
Row = tuple[int, str]


class Source:
    """A Delta table that changes; `rows` contains the rows of each version."""

    def __init__(self, root: Path) -> None:
        from delta_sharing_client import DeltaLog

        self.root = root
        self.log = DeltaLog.for_table(root)
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS]
        metadata = {
            "id": "kill-mirror",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["p"],
            "configuration": {},
        }
        self.log.commit([{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}])
        self.rows: list[list[Row]] = [[]]
        self._files: dict[str, list[int]] = {}
        self._next = 0

    def change(self, files: int = 3, rows: int = 50, removed: int = 1) -> int:
        """Commit new files and remove the oldest; return the version."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        actions: list[dict[str, Any]] = []
        for name in list(self._files)[:removed]:
            size = (self.root / name).stat().st_size
            remove = {"path": name, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}
            actions.append({"remove": remove | {"partitionValues": {"p": name[0]}, "size": size}})
            del self._files[name]
        for _ in range(files):
            self._next += 1
            name = f"{'xyz'[self._next % 3]}{self._next}.parquet"
            values = list(range(self._next, self._next + rows))
            pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), self.root / name)
            size = (self.root / name).stat().st_size
            add = {"path": name, "partitionValues": {"p": name[0]}, "size": size, "modificationTime": 1}
            stats = json.dumps({"numRecords": rows})
            actions.append({"add": add | {"dataChange": True, "stats": stats}})
            self._files[name] = values
        version = self.log.commit(actions)
        self.rows.append(sorted((value, name[0]) for name, values in self._files.items() for value in values))
        return version

    @property
    def file_count(self) -> int:
        """Number of files of the newest version."""
        return len(self._files)


class ForkServer:
    """A process that has imported the package and forks a child for each sync, which takes milliseconds."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--fork"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def sync(
        self, profile: Any, directory: Path, *, kill_after: float | None = None, kill_at: int | None = None
    ) -> dict[str, Any]:
        """Sync in a child process.

        Args:
            profile: profile of the server.
            directory: directory of the mirror.
            kill_after: seconds after which the process is killed.
            kill_at: number of the system call of `CALLS` before which the process is killed; before an fsync, the
                file is cut to half its size.

        Returns:
            `killed`, and the number of `calls` if the process was not killed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"profile": profile, "directory": str(directory), "after": kill_after, "at": kill_at}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


#: The system calls before which a sync can be killed.
CALLS = ("fsync", "replace", "link", "unlink", "mkdir", "pwrite")


def serve_forks() -> None:
    """Run the process of a `ForkServer`: for each request on standard input, fork and print the result."""
    import pyarrow.parquet  # noqa: F401

    import delta_sharing_client as ds
    from delta_sharing_client.options import TransportOptions

    for line in sys.stdin:
        request = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            answer: dict[str, Any] = {}
            try:
                count = count_calls(request["at"])
                # One thread, for the same order of calls in every run.
                options = TransportOptions(max_connections=1 if request["at"] is not None else 8)
                client = ds.SharingClient(request["profile"], options=options)
                client.table("s.s.t").mirror(request["directory"]).sync(progress=False)
                answer = {"calls": count()}
            except BaseException as error:  # noqa: BLE001
                answer = {"error": f"{type(error).__name__}: {error}"}
            finally:
                os.write(writing, json.dumps(answer).encode())
                os._exit(0)
        os.close(writing)
        if request["after"] is not None:
            time.sleep(request["after"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            output = pipe.read()
        killed = os.WIFSIGNALED(status)
        print(json.dumps({"killed": True} if killed else {"killed": False} | json.loads(output)), flush=True)


def count_calls(kill_at: int | None) -> Callable[[], int]:
    """Count the calls of `CALLS`, and kill the process before call `kill_at`; return a function with the count."""
    import threading

    count = 0
    lock = threading.Lock()

    def wrap(name: str) -> None:
        original = getattr(os, name)

        def counted(*args: Any, **keywords: Any) -> Any:
            nonlocal count
            with lock:
                count += 1
                if count == kill_at:
                    if name == "fsync" and stat.S_ISREG(os.fstat(args[0]).st_mode):
                        os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **keywords)

        setattr(os, name, counted)

    for name in CALLS:
        wrap(name)
    return lambda: count


def sorted_rows(table: Any) -> list[Row]:
    """Return the rows of an Arrow table, sorted."""
    return sorted(zip(table["a"].to_pylist(), table["p"].to_pylist(), strict=True))


def verify_mirror(directory: Path, client: Any, rows: Sequence[list[Row]]) -> int | None:
    """Read a mirror with two readers; return its shared version, or None if there is no table yet.

    Raises:
        AssertionError: the rows are not those of the version, or the readers return different rows.
    """
    from deltalake import DeltaTable

    from delta_sharing_client import DeltaLog

    DeltaLog.clear_cache()
    mirror = client.table("s.s.t").mirror(directory)
    version: int | None = mirror.shared_version
    if version is None:
        assert not DeltaTable.is_deltatable(str(directory)), "deltalake finds a table, and this package finds none"
        return None
    expected = rows[version]
    found, other = sorted_rows(mirror.scan().to_arrow()), sorted_rows(DeltaTable(directory).to_pyarrow_table())
    assert found == expected, f"the mirror does not contain the rows of version {version}"
    assert other == expected, f"deltalake does not read the rows of version {version}"
    assert mirror.verify().ok, mirror.verify().problems
    return version


def unneeded_files(directory: Path, needed: int) -> list[str]:
    """Return the files that no version needs, after a vacuum of all old versions."""
    found = sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())
    data = [name for name in found if not name.startswith("_")]
    others = [name for name in found if name.startswith("_delta_sharing/") and name != "_delta_sharing/lock"]
    return others + (data if len(data) != needed else [])


def run(times: int, seed: int) -> Counter[str]:
    """Kill syncs; return the number of each outcome.

    Raises:
        AssertionError: a mirror is invalid.
    """
    from datetime import timedelta

    import delta_sharing_client as ds

    random.seed(seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        source = Source(Path(folder) / "source")
        directory = Path(folder) / "mirror"
        source.change(files=10)
        with ds.server.SharingServer({"s.s.t": source.root}) as server, ForkServer() as forks:
            client = ds.SharingClient(server.profile)
            forks.sync(server.profile, Path(folder) / "warm")
            started = time.monotonic()
            forks.sync(server.profile, Path(folder) / "measured")
            duration = time.monotonic() - started
            for number in range(times):
                answer = forks.sync(server.profile, directory, kill_after=random.uniform(0, 1.3 * duration))
                outcomes["killed" if answer["killed"] else "finished"] += 1
                version = verify_mirror(directory, client, source.rows)
                newest = len(source.rows) - 1
                outcomes["no table" if version is None else "valid"] += 1
                if version == newest or number % 7 == 6:
                    mirror = client.table("s.s.t").mirror(directory)
                    mirror.sync(progress=False)
                    assert verify_mirror(directory, client, source.rows) == newest
                    mirror.vacuum(timedelta(0))
                    unneeded = unneeded_files(directory, source.file_count)
                    assert not unneeded, f"files that no version needs: {unneeded}"
                    outcomes["converged"] += 1
                    if outcomes["converged"] % 5 == 0:
                        shutil.rmtree(directory)  # to kill first syncs too
                    source.change(files=random.randint(1, 6), removed=random.randint(0, 5))
                if sys.stderr.isatty() and number % 25 == 0:
                    print(f"\r{number} of {times}", end="", file=sys.stderr)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=1000, help="number of syncs to kill (1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill times and the changes (0)")
    parser.add_argument("--fork", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fork:
        serve_forks()
        return
    started = time.monotonic()
    outcomes = run(options.times, options.seed)
    seconds = time.monotonic() - started
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{options.times} syncs in {seconds:.0f} s: {summary}; 0 invalid mirrors")


if __name__ == "__main__":
    main()
