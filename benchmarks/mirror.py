"""Benchmark of mirrors: processor seconds of syncs, beside loading and planning the same table.

    python benchmarks/mirror.py                      10,000, 100,000 and 300,000 files; ten minutes
    python benchmarks/mirror.py --files 10000 --repeat 5

What the rows show:

    first sync     small files of 40 rows each are downloaded, checked and committed, beside a load of them. The
                   number of files is divided by 10, because each file is a request
    1 new, changes the table has one new file since the last sync, and is shared with its history: the cost of
                   what changed. "reopened" is the first sync of a process: it reads the log from its checkpoint
    1 new, listing the same table without its history: the whole table is listed, as planning does

Syncs and loads take turns; the figures are medians of processor seconds of this process, without the server's. A
tenth commit also writes a checkpoint; these syncs are a row of their own. The mirrors of the rows with one new
file have no data but that of new files: their first sync records the files of a listing without downloading them.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import data
import measure
import store

Seconds = dict[str, list[float]]


def processor_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Run a function; return the processor seconds of this process, and the result."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result


def record_only(storage: Any, directory: Path, files: Any, **others: Any) -> dict[str, Any]:
    """Take the place of `fetch_files` for files that do not exist."""
    from delta_sharing_client.delta.table.file_download import StoredFile

    return {f.path: StoredFile(path=f.path, file_id=f.file_id, size=f.size, sha256="0" * 64) for f in files}


def first_syncs(client: Any, files: int, repeat: int) -> Seconds:
    """Measure first syncs and loads of small files, taking turns."""
    seconds: Seconds = defaultdict(list)
    table = client.table(f"bench.default.stored-{files}")
    table.scan(limit=1).to_arrow()
    for _ in range(repeat):
        spent, rows = processor_seconds(lambda: table.scan(columns=["event_id", "note"]).to_arrow())
        assert len(rows) == files * 40
        seconds["load"].append(spent)
        with tempfile.TemporaryDirectory() as directory:
            spent, result = processor_seconds(lambda: table.mirror(Path(directory) / "m").sync(progress=False))
            assert result.files_added == files
        seconds["first sync"].append(spent)
    return seconds


def later_syncs(client: Any, base: str, files: int, history: str, repeat: int) -> tuple[Seconds, int]:
    """Measure syncs with one new file, and planning, taking turns; return the bytes of one sync too."""
    from delta_sharing_client import DeltaLog

    seconds: Seconds = defaultdict(list)
    name = f"listed-{files}-{history}"
    table = client.table(f"bench.default.{name}")
    fetched = 0
    with tempfile.TemporaryDirectory() as directory:
        mirror = table.mirror(Path(directory) / "m")
        with mock.patch("delta_sharing_client.delta.table.local_table.fetch_files", record_only):
            mirror.sync(progress=False)

        def sync(kind: str) -> None:
            nonlocal fetched
            with urllib.request.urlopen(f"{base}/_grow/{name}", b"", timeout=60) as response:
                response.read()
            store.counters(base, reset=True)
            spent, result = processor_seconds(lambda: mirror.sync(progress=False))
            assert (result.files_added, result.files_removed, result.commits) == (1, 0, 1)
            if result.version % 10 == 0:
                kind = "with a checkpoint"
            else:
                fetched = sum(store.counters(base)["bytes"].values())
            seconds[kind].append(spent)

        sync("warm-up")
        for _ in range(repeat):
            sync("sync")
            DeltaLog.clear_cache()
            sync("reopened")
            seconds["plan"].append(processor_seconds(lambda: table.scan().files())[0])
        while not seconds["with a checkpoint"]:
            sync("sync")
    return seconds, fetched


def report(rows: list[tuple[str, int, Seconds, str, int]]) -> str:
    """Return the results as Markdown."""
    lines = ["| case | files | CPU s | beside | CPU s | ratio | kB |", "|---|---:|---:|---|---:|---:|---:|"]
    for case, files, seconds, beside, fetched in rows:
        limit = statistics.median(seconds[beside])
        for kind, runs in seconds.items():
            if kind not in (beside, "warm-up"):
                spent = statistics.median(runs)
                size = f"{fetched / 1e3:,.0f}" if fetched else ""
                title = kind if kind == case else f"{case}: {kind}"
                cells = [title, f"{files:,}", f"{spent:.3f}", beside, f"{limit:.3f}", f"{spent / limit:.2f}", size]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="10000,100000,300000", help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--scale", choices=sorted(data.SCALES), default="full", help="of the listing")
    options = parser.parse_args()
    import delta_sharing_client as ds

    data.make(options.scale)
    rows: list[tuple[str, int, Seconds, str, int]] = []
    with (
        store.running_store(options.scale, latency=0.0, bandwidth=None) as running,
        tempfile.TemporaryDirectory() as directory,
    ):
        profile = Path(directory) / "bench.share"
        running.write_profile(profile)
        with ds.SharingClient(profile) as client:
            for files in map(int, options.files.split(",")):
                few = max(1, files // 10)
                rows.append(("first sync", few, first_syncs(client, few, 3 if few < 5_000 else 1), "load", 0))
                for case, history in (("1 new, changes", "shared"), ("1 new, listing", "hidden")):
                    seconds, fetched = later_syncs(client, running.base, files, history, options.repeat)
                    rows.append((case, files, seconds, "plan", fetched))
                print(report(rows[-3:]), file=sys.stderr)
    print(f"{measure.machine()}. Medians of {options.repeat}.\n\n{report(rows)}")


if __name__ == "__main__":
    main()
