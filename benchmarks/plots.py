"""Plots of docs/performance.md: how the cost of this client grows, and what it is made of.

    python benchmarks/plots.py                            # scale full, into docs/images; ten minutes
    python benchmarks/plots.py --scale quick --to /tmp    # small tables, a minute; shows trends only
    python benchmarks/plots.py --only columns,memory

Every measurement runs in its own process, after a load of a small table, so imports are not in it. Costs are
processor seconds (user and system) of that process, without the server's: another load of the machine changes them
little. They are medians of `--repeat` runs that take turns. Only `cores` and `memory` have the time of the clock.

    files      planning a listing, and loading small files of 40 rows, against the number of files
    columns    loading 1 to 14 columns of the large files: processor seconds and bytes
    versions   loading the change feed of 1 to 200 versions, each with one small file
    memory     resident memory while the large files are loaded, by the kind of result
    cores      loads and a plan on one core and on all: time on one divided by time on all; needs an idle machine
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import data
import measure
import store

HERE = Path(__file__).resolve().parent
NAMES = [name for name, _ in data.SCHEMA]
PLANNED = {"full": (10_000, 30_000, 100_000, 300_000), "quick": (2_000, 5_000, 20_000), "tiny": (100, 500)}
LOADED = {"full": (100, 300, 1_000, 3_000, 10_000), "quick": (100, 300, 1_000), "tiny": (3, 6)}
COLUMNS = (1, 2, 4, 7, 10, 14)
#: Kinds of results whose memory is shown.
RESULTS = ("to_pandas", "to_arrow", "to_record_batch_reader")
#: Loads whose time is compared on one core and on all.
LOADS = ("large", "small", "plan")
EVERY = 0.01


def work_of(client: Any, kind: str, argument: str, scale: str) -> Callable[[], Any]:
    """Return the work of a measurement."""
    listed = data.SCALES[scale].listed
    name, columns, result = "large", None, "to_arrow"
    if kind == "plan" or argument == "plan":
        number = listed if argument == "plan" else int(argument)
        table = client.table(f"bench.default.listed-{number}-shared")
        return lambda: table.scan().files()
    if kind == "versions":
        table = client.table("bench.default.small")
        return lambda: table.changes(1, int(argument)).to_arrow(progress=False)
    if kind == "load":
        name, columns = f"stored-{argument}", ["event_id", "note"]
    elif kind == "columns":
        columns = NAMES[: int(argument)]
    elif kind == "memory":
        result = argument
    elif kind == "cores":
        name = argument
    scan = client.table(f"bench.default.{name}").scan(columns=columns)
    if result == "to_record_batch_reader":
        return lambda: sum(batch.num_rows for batch in scan.to_record_batch_reader())
    return getattr(scan, result)


def measured(kind: str, argument: str, base: str, profile: str, scale: str) -> dict[str, Any]:
    """Do the work once, after a small load; return its costs."""
    import delta_sharing_client as ds

    with ds.SharingClient(profile) as client:
        client.table("bench.default.warm").scan().to_pandas(progress=False)
        work = work_of(client, kind, argument, scale)
        gc.collect()
        store.counters(base, reset=True)
        samples = [(0.0, measure.resident()["now"] / 1e6)]
        stopped = threading.Event()
        start = time.perf_counter()

        def sample() -> None:
            while not stopped.wait(EVERY):
                samples.append((time.perf_counter() - start, measure.resident()["now"] / 1e6))

        sampler = threading.Thread(target=sample, daemon=True)
        if kind == "memory":
            sampler.start()
        before = resource.getrusage(resource.RUSAGE_SELF)
        kept = work()
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF)
        stopped.set()
        del kept
    return {
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "seconds": seconds,
        "bytes": sum(store.counters(base)["bytes"].values()),
        "samples": samples,
    }


def run(kind: str, argument: object, where: list[str], cores: int | None = None) -> dict[str, Any]:
    """Measure in a process of its own, on some cores (Linux) or on all."""
    command = [sys.executable, __file__, "--measure", kind, str(argument), *where]
    if cores is not None:
        allowed = sorted(os.sched_getaffinity(0))[:cores]
        command = ["taskset", "--cpu-list", ",".join(map(str, allowed)), *command]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def turns(
    kind: str, arguments: Iterable[object], where: list[str], repeat: int, cores: int | None = None
) -> dict[str, dict[str, Any]]:
    """Measure each argument `repeat` times, taking turns; return the medians."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    arguments = list(arguments)
    for _ in range(repeat):
        for argument in arguments:
            runs[str(argument)].append(run(kind, argument, where, cores))
    return {
        name: {key: statistics.median(one[key] for one in all_) for key in ("cpu", "seconds", "bytes")}
        | {"samples": all_[0]["samples"]}
        for name, all_ in runs.items()
    }


def collect(kinds: list[str], where: list[str], scale: str, repeat: int) -> dict[str, Any]:
    """Return the measurements of the plots."""
    versions = data.SCALES[scale].small[0] // 2
    points: dict[str, Callable[[], Any]] = {
        "files": lambda: {
            "plan": turns("plan", PLANNED[scale], where, repeat),
            "load": turns("load", LOADED[scale], where, repeat),
        },
        "columns": lambda: turns("columns", COLUMNS, where, repeat),
        "versions": lambda: turns(
            "versions", [max(1, versions * part // 8) for part in range(1, 9)], where, repeat
        ),
        "memory": lambda: turns("memory", RESULTS, where, 1),
        "cores": lambda: {
            str(cores): turns("cores", LOADS, where, repeat, cores) for cores in (1, os.cpu_count())
        },
    }
    found = {}
    for kind in kinds:
        print(f"measuring {kind}", file=sys.stderr)
        found[kind] = points[kind]()
    return found


def draw(found: dict[str, Any], directory: Path) -> list[Path]:
    """Draw one picture for each kind of measurement."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "plots", "svg.fonttype": "none", "font.size": 9, "axes.grid": True})
    mpl.rcParams.update({"grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot as plt

    made = []
    for kind, points in found.items():
        drawing = {"files": draw_files, "memory": draw_memory, "cores": draw_cores}.get(kind, draw_line)
        panels = 2 if kind in ("files", "columns", "versions") else 1
        figure, axes = plt.subplots(1, panels, figsize=(4 * max(panels, 1.5), 2.8), squeeze=False)
        drawing(list(axes[0]), points, kind)
        figure.tight_layout()
        path = directory / f"performance_{kind}.svg"
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)
        made.append(path)
    return made


def draw_files(axes: list[Any], points: dict[str, Any], kind: str) -> None:
    titles = {"plan": "Planning a listing", "load": "Loading small files of 40 rows"}
    for axis, (name, runs) in zip(axes, points.items(), strict=True):
        axis.plot([int(number) for number in runs], [one["cpu"] for one in runs.values()], "o-")
        axis.set(title=titles[name], xlabel="files", ylabel="processor seconds", ylim=0, xlim=0)
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.tick_params(axis="x", labelrotation=20)


def draw_line(axes: list[Any], points: dict[str, Any], kind: str) -> None:
    numbers = [int(number) for number in points]
    for axis, key, unit, scale in zip(
        axes, ("cpu", "bytes"), ("processor seconds", "MB fetched"), (1, 1e6), strict=True
    ):
        axis.plot(numbers, [one[key] / scale for one in points.values()], "o-")
        axis.set(title=unit.capitalize() if key == "cpu" else unit, xlabel=kind, ylim=0, xlim=0)


def draw_memory(axes: list[Any], points: dict[str, Any], kind: str) -> None:
    for name, one in points.items():
        every = max(1, len(one["samples"]) // 150)
        seconds, megabytes = zip(*one["samples"][::every], strict=True)
        axes[0].plot(seconds, megabytes, label=f"{name}()")
    axes[0].set(
        xlabel="seconds", ylabel="MB resident", ylim=0, xlim=0, title="Memory during a load of the large files"
    )
    axes[0].legend(frameon=False)


def draw_cores(axes: list[Any], points: dict[str, Any], kind: str) -> None:
    one, all_ = list(points.values())
    titles = {"large": "load large files", "small": "load small files", "plan": "plan a listing"}
    names = list(titles)[::-1]
    axes[0].barh([titles[n] for n in names], [one[n]["seconds"] / all_[n]["seconds"] for n in names], height=0.5)
    axes[0].axvline(list(map(int, points))[-1], color="grey", linestyle=":")
    axes[0].set(xlabel=f"times as fast on {list(points)[-1]} cores as on 1", xlim=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = ["files", "columns", "versions", "memory", "cores"]
    parser.add_argument("--only", default=",".join(kinds), help="plots, separated by commas; default: %(default)s")
    parser.add_argument("--scale", choices=sorted(data.SCALES), default="full")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--to", type=Path, default=HERE.parent / "docs" / "images", metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements to this file")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(*options.measure)))
        return
    subprocess.run([sys.executable, str(HERE / "data.py"), "--scale", options.scale], check=True)
    with (
        store.running_store(options.scale, latency=0.0, bandwidth=None) as running,
        tempfile.TemporaryDirectory() as directory,
    ):
        profile = Path(directory) / "bench.share"
        running.write_profile(profile)
        where = [running.base, str(profile), options.scale]
        found = collect(options.only.split(","), where, options.scale, options.repeat)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    for path in draw(found, options.to):
        print(path)


if __name__ == "__main__":
    main()
