"""Kill a mirror's sync with SIGKILL, again and again, and look at what is left each time.

    python benchmarks/kill_mirror.py             # 1,000 times; some minutes
    python benchmarks/kill_mirror.py --times 50

A table is served on loopback and changes all the time. A process syncs a mirror of it and is killed after a
random while, from before the first byte to after the last. After each kill two independent readers, this
package and deltalake, have to read the same rows from the mirror, those of a version that was shared; every
few kills a sync has to converge and to leave no file that no version needs. The script ends with an error at
the first mirror that is not whole.
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
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

COLUMNS = ("a", "long"), ("p", "string")
Row = tuple[int, str]


class Source:
    """A Delta table that changes; `rows` has what each of its versions holds."""

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

    def change(self, files: int = 3, rows: int = 50, gone: int = 1) -> int:
        """Commit new files, and take the oldest ones away; return the version."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        actions: list[dict[str, Any]] = []
        for name in list(self._files)[:gone]:
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
        """How many files the newest version has."""
        return len(self._files)


class Forker:
    """A process that has imported the package, and forks one child for each sync: that takes milliseconds."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--fork"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Forker:
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
        """Sync in a process of its own.

        Args:
            profile: the server.
            directory: the mirror's directory.
            kill_after: seconds after which the process is killed.
            kill_at: the number of the system call (`STEPS`) before which it dies; what is not yet fsynced of
                the file at hand is lost by half.

        Returns:
            `killed`, and otherwise `steps`, how many such calls there were.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"profile": profile, "directory": str(directory), "after": kill_after, "at": kill_at}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


#: The system calls that a sync may die before.
STEPS = ("fsync", "replace", "link", "unlink", "mkdir", "pwrite")


def fork_on_demand() -> None:
    """Be the process behind a `Forker`: read orders, fork, answer."""
    import pyarrow.parquet  # noqa: F401

    import delta_sharing_client as ds
    from delta_sharing_client.options import TransportOptions

    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            answer: dict[str, Any] = {}
            try:
                count = die_at(order["at"])
                # One thread, so that the calls come in the same order each time.
                options = TransportOptions(max_connections=1 if order["at"] is not None else 8)
                client = ds.SharingClient(order["profile"], options=options)
                client.table("s.s.t").mirror(order["directory"]).sync(progress=False)
                answer = {"steps": count()}
            except BaseException as error:  # noqa: BLE001
                answer = {"error": f"{type(error).__name__}: {error}"}
            finally:
                os.write(writing, json.dumps(answer).encode())
                os._exit(0)
        os.close(writing)
        if order["after"] is not None:
            time.sleep(order["after"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        killed = os.WIFSIGNALED(status)
        print(json.dumps({"killed": True} if killed else {"killed": False} | json.loads(said)), flush=True)


def die_at(step: int | None) -> Any:
    """Count the calls in `STEPS`, and die before the one with a number; return what tells the count."""
    import threading

    count = 0
    lock = threading.Lock()

    def wrap(name: str) -> None:
        original = getattr(os, name)

        def counted(*args: Any, **more: Any) -> Any:
            nonlocal count
            with lock:
                count += 1
                if count == step:
                    if name == "fsync" and stat.S_ISREG(os.fstat(args[0]).st_mode):
                        os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **more)

        setattr(os, name, counted)

    for name in STEPS:
        wrap(name)
    return lambda: count


def rows_of(table: Any) -> list[Row]:
    """The rows of an Arrow table, sorted."""
    return sorted(zip(table["a"].to_pylist(), table["p"].to_pylist(), strict=True))


def look(directory: Path, client: Any, rows: Sequence[list[Row]]) -> int | None:
    """Read a mirror with two readers; return the shared version that it holds, None where there is none yet.

    Raises:
        AssertionError: it is not whole, or the readers do not agree.
    """
    from deltalake import DeltaTable

    from delta_sharing_client import DeltaLog

    DeltaLog.clear_cache()
    mirror = client.table("s.s.t").mirror(directory)
    version: int | None = mirror.shared_version
    if version is None:
        assert not DeltaTable.is_deltatable(str(directory)), "a table for deltalake and none for us"
        return None
    expected = rows[version]
    found, other = rows_of(mirror.scan().to_arrow()), rows_of(DeltaTable(directory).to_pyarrow_table())
    assert found == expected, f"the mirror does not hold the rows of version {version}"
    assert other == expected, f"deltalake reads other rows than version {version} has"
    assert mirror.verify().ok, mirror.verify().problems
    return version


def leftovers(directory: Path, needed: int) -> list[str]:
    """Return the files of a mirror that should not be there, after a vacuum of all old versions."""
    found = sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())
    data = [name for name in found if not name.startswith("_")]
    others = [name for name in found if name.startswith("_delta_sharing/") and name != "_delta_sharing/lock"]
    return others + (data if len(data) != needed else [])


def run(times: int, seed: int) -> Counter[str]:
    """Kill syncs; return how many ended how.

    Raises:
        AssertionError: a mirror was not whole.
    """
    from datetime import timedelta

    import delta_sharing_client as ds

    random.seed(seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        source = Source(Path(folder) / "source")
        directory = Path(folder) / "mirror"
        source.change(files=10)
        with ds.server.SharingServer({"s.s.t": source.root}) as server, Forker() as forker:
            client = ds.SharingClient(server.profile)
            forker.sync(server.profile, Path(folder) / "warm")
            started = time.monotonic()
            forker.sync(server.profile, Path(folder) / "measured")
            whole = time.monotonic() - started
            for number in range(times):
                answer = forker.sync(server.profile, directory, kill_after=random.uniform(0, 1.3 * whole))
                outcomes["killed" if answer["killed"] else "done in time"] += 1
                version = look(directory, client, source.rows)
                newest = len(source.rows) - 1
                outcomes["nothing yet" if version is None else "whole"] += 1
                if version == newest or number % 7 == 6:
                    mirror = client.table("s.s.t").mirror(directory)
                    mirror.sync(progress=False)
                    assert look(directory, client, source.rows) == newest
                    mirror.vacuum(timedelta(0))
                    left = leftovers(directory, source.file_count)
                    assert not left, f"left over: {left}"
                    outcomes["converged"] += 1
                    if outcomes["converged"] % 5 == 0:
                        shutil.rmtree(directory)  # so that first syncs are killed too
                    source.change(files=random.randint(1, 6), gone=random.randint(0, 5))
                if sys.stderr.isatty() and number % 25 == 0:
                    print(f"\r{number} of {times}", end="", file=sys.stderr)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=1000, help="how many syncs to kill (1000)")
    parser.add_argument("--seed", type=int, default=0, help="for the times of the kills and the changes (0)")
    parser.add_argument("--fork", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fork:
        fork_on_demand()
        return
    started = time.monotonic()
    outcomes = run(options.times, options.seed)
    seconds = time.monotonic() - started
    told = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    print(f"{options.times} syncs in {seconds:.0f} s: {told}; 0 mirrors that were not whole")


if __name__ == "__main__":
    main()
