"""Shared tables in Spark, against Spark reading the same Parquet files from local disk, in one run.

    python benchmarks/spark.py                    everything, some ten minutes
    python benchmarks/spark.py --scale quick      small tables, a minute or two; shows trends only
    python benchmarks/spark.py --only full,sum    some cases
    python benchmarks/spark.py --json out.json    each measurement, besides the table

Needs the extra `spark` and a Java (`make java`). What was slow, and what each case shows:

    full       every row and column, to the noop sink: the way from Arrow to the rows of the JVM
    count      count(*): Spark asks a Python source for whole rows and counts them; `columns=[]` gives rows without
    sum        sum of one column: all columns cross to the JVM unless `columns=` says which
    rows       one row in a few hundred, by a filter: `filters=` fetches only the row groups that can hold them
    mirror     a query that is asked again and again, over a local mirror, which Spark reads itself
    small      400 small files from a store that delays each answer by 60 ms: packed into as many tasks as there
               are cores, against one task for each file

Who is measured: `load_as_spark` and `format("deltaSharing")`, once as they are and once told which columns; and
Spark's own reader on the same files, which are local, in pages of the operating system's cache, and decoded by the
JVM itself. All share one session on all cores and take turns (A, B, C, A, B, C, ...); medians are told. A time
begins with the load, so the request to the server and the reading of footers are in it. Counts and sums are held
against those of the data, so that nobody is fast by being wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import data
import measure
import store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).resolve().parent
LOCAL = "Spark, local files"

#: What is asked of a DataFrame; what it tells is held against the manifest.
Question = Callable[["DataFrame"], "int | None"]


@dataclass(frozen=True)
class Way:
    """One way to a DataFrame.

    Attributes:
        name: what a reader of the results sees.
        load: makes the DataFrame.
        goal: seconds that it may take at the most, as a multiple of the local reader's; None for none.
    """

    name: str
    load: Callable[[], DataFrame]
    goal: float | None = None


@dataclass(frozen=True)
class Case:
    """One question and the ways to answer it.

    Attributes:
        title: what a reader of the results sees.
        question: what is asked.
        expected: the right answer; None where there is nothing to compare.
        ways: the ways, the local reader last.
        slow: whether the store delays its answers and limits its connections.
    """

    title: str
    question: Question
    expected: int | None
    ways: tuple[Way, ...]
    slow: bool = False
    seconds: dict[str, list[float]] = field(default_factory=dict)


def write(frame: DataFrame) -> None:
    """Have every row made, and thrown away."""
    frame.write.format("noop").mode("overwrite").save()


def count(frame: DataFrame) -> int:
    """Count the rows."""
    return frame.count()


def total(column: str) -> Question:
    """Sum a column."""

    def ask(frame: DataFrame) -> int:
        from pyspark.sql import functions

        row = frame.agg(functions.sum(column)).first()
        return 0 if row is None else int(row[0])

    return ask


def by_country(frame: DataFrame) -> int:
    """Sum a column by the values of another, and then all of it."""
    from pyspark.sql import functions

    rows = frame.groupBy("country").agg(functions.sum("quantity"), functions.avg("price")).collect()
    return sum(int(row[1]) for row in rows)


class Ways:
    """The ways to the tables of a scale, through one session.

    Args:
        spark: the session.
        profile: the store's profile.
        scale: which tables.
        folder: where mirrors are kept.
    """

    def __init__(self, spark: SparkSession, profile: str, scale: str, folder: Path) -> None:
        self.folder = folder
        self._spark = spark
        self._profile = profile
        self._scale = scale

    def ours(self, name: str, table: str, goal: float | None = None, **options: Any) -> Way:
        """Use `load_as_spark`."""
        import delta_sharing_client as ds

        url = f"{self._profile}#bench.default.{table}"
        return Way(name, lambda: ds.load_as_spark(url, spark=self._spark, **options), goal)

    def source(self, name: str, table: str, goal: float | None = None, **options: str) -> Way:
        """Use `format("deltaSharing")`."""
        url = f"{self._profile}#bench.default.{table}"
        return Way(name, lambda: self._spark.read.format("deltaSharing").options(**options).load(url), goal)

    def local(self, table: str, where: str | None = None) -> Way:
        """Use Spark's own reader on the files."""
        folder = data.table_dir(table, self._scale)
        paths = [str(folder / entry["name"]) for entry in data.read_manifest(table, self._scale)["files"]]

        def load() -> DataFrame:
            frame = self._spark.read.parquet(*paths)
            return frame.where(where) if where else frame

        return Way(LOCAL, load)


def cases(ways: Ways, scale: str) -> dict[str, Case]:
    """Return the cases at a scale, by name."""
    sizes = data.SCALES[scale]
    large, small = (data.read_manifest(name, scale) for name in ("large", "small"))
    middle = large["rows"] // 2
    few = middle + large["rows"] // 400
    call, source = "load_as_spark", 'format("deltaSharing")'
    local = ways.local("large")
    chosen = (("event_id", ">=", middle), ("event_id", "<", few))
    return {
        "full": Case(
            f"{sizes.large[0]} large files to the noop sink",
            write,
            None,
            (ways.ours(call, "large", 1.7), ways.source(source, "large"), local),
        ),
        "count": Case(
            "count(*)",
            count,
            large["rows"],
            (
                ways.ours(f"{call}, columns=[]", "large", columns=[]),
                ways.ours(call, "large"),
                ways.source(source, "large"),
                local,
            ),
        ),
        "sum": Case(
            "sum of 1 of 14 columns",
            total("quantity"),
            large["sums"]["quantity"],
            (
                ways.ours(f"{call}, columns=", "large", 3.0, columns=["quantity"]),
                ways.ours(call, "large"),
                ways.source(f"{source}, columns", "large", 3.0, columns="quantity"),
                ways.source(source, "large"),
                local,
            ),
        ),
        "rows": Case(
            "one row in 400, by a filter, to the noop sink",
            write,
            None,
            (
                ways.ours(f"{call}, filters=", "large", filters=list(chosen)),
                ways.local("large", f"event_id >= {middle} AND event_id < {few}"),
            ),
        ),
        "mirror": Case(
            "sums by country, again and again",
            by_country,
            large["sums"]["quantity"],
            (ways.ours(f"{call}, mirror=", "large", 1.1, mirror=ways.folder / "mirror"), local),
        ),
        "small": Case(
            f"{sizes.small[0]} small files on a slow store, sum of one column",
            total("event_id"),
            small["sums"]["event_id"],
            (
                ways.ours(call, "small"),
                ways.ours(f"{call}, one file per task", "small", partition_size=1),
                ways.local("small"),
            ),
            slow=True,
        ),
    }


def run(chosen: dict[str, Case], running: store.RunningStore, repeat: int) -> None:
    """Run every way of every case `repeat` times, taking turns; once before that does not count."""
    for name, case in chosen.items():
        running.settings(*((store.LATENCY, store.BANDWIDTH) if case.slow else (0.0, None)))
        for turn in range(repeat + 1):
            for way in case.ways:
                if turn == 0 and "one file per task" in way.name:
                    continue  # slow, and warm by then
                begun = time.perf_counter()
                told = case.question(way.load())
                seconds = time.perf_counter() - begun
                if case.expected is not None and told != case.expected:
                    raise RuntimeError(f"{name}, {way.name}: {told}, not {case.expected}")
                if turn:
                    case.seconds.setdefault(way.name, []).append(seconds)
                    print(f"{name} {turn}/{repeat} {way.name:40} {seconds:8.2f} s", file=sys.stderr)


def report(chosen: dict[str, Case]) -> str:
    """Return the results as Markdown."""
    lines = ["| case | way | seconds | times the local reader | goal |", "|---|---|---:|---:|---:|"]
    for case in chosen.values():
        local = statistics.median(case.seconds[LOCAL])
        for number, way in enumerate(case.ways):
            runs = case.seconds[way.name]
            middle = statistics.median(runs)
            spread = f" ({min(runs):.2f} to {max(runs):.2f})" if len(runs) > 1 else ""
            goal = "" if way.goal is None else f"{way.goal:.1f}"
            title = f"**{case.title}**" if number == 0 else ""
            lines.append(f"| {title} | {way.name} | {middle:.2f}{spread} | {middle / local:.2f} | {goal} |")
    return "\n".join(lines)


def machine() -> str:
    """Name the machine."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, {platform.platform(terse=True)}"


def session(folder: Path) -> SparkSession:
    """Start a session on all cores."""
    from pyspark.sql import SparkSession

    import delta_sharing_client as ds

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.memory": "4g",
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ds.spark.register(spark)
    return spark


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--only", metavar="CASE,...", help="cases: full, count, sum, rows, mirror, small")
    parser.add_argument("--repeat", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--scale", choices=sorted(data.SCALES), default="full", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each measurement there")
    options = parser.parse_args()
    if runpy.run_path(str(HERE.parent / "scripts" / "java.py"))["use"]() is None:
        parser.error("there is no Java 17 or later: run `make java`, which sets one up")
    subprocess.run([sys.executable, str(HERE / "data.py"), "--scale", options.scale], check=True)
    with (
        store.running_store(options.scale) as running,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
    ):
        profile = Path(directory) / "bench.share"
        running.write_profile(profile)
        spark = session(Path(directory))
        try:
            known = cases(Ways(spark, str(profile), options.scale, Path(directory)), options.scale)
            wanted = options.only.split(",") if options.only else list(known)
            if unknown := set(wanted) - set(known):
                parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(known)}")
            chosen = {name: known[name] for name in wanted}
            run(chosen, running, options.repeat)
            versions = {"PySpark": spark.version, **measure.versions("ours")}
        finally:
            spark.stop()
    told = f"{machine()}. {', '.join(f'{name} {version}' for name, version in versions.items())}."
    print(f"{told}\nMedians of {options.repeat}, spread in brackets; tables of scale `{options.scale}`.\n")
    print(report(chosen))
    if options.json:
        runs = {name: case.seconds for name, case in chosen.items()}
        options.json.write_text(json.dumps({"told": told, "scale": options.scale, "seconds": runs}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
