"""Benchmark of shared tables in Spark against Spark's own reader of the same local Parquet files, in one run.

    python benchmarks/spark.py                    all cases, some ten minutes
    python benchmarks/spark.py --scale quick      small tables, a minute or two; shows trends only
    python benchmarks/spark.py --only full,sum    some cases
    python benchmarks/spark.py --slow             a store that delays each response by 60 ms, for all cases
    python benchmarks/spark.py --json out.json    also writes each measurement to a file

Needs the extra `spark` and Java (`make java`). The cases, and the cost that each shows:

    full       all rows and columns to the noop sink: from Arrow to the rows of the JVM
    count      count(*): Spark reads whole rows from a Python source to count them; `columns=[]` returns empty rows
    sum        sum of one column: all columns are sent to the JVM unless `columns=` selects some
    rows       one row in 400, by a filter: `filters=` fetches only the row groups that may match
    partition  2 of 60 days of small files, which Spark cannot select; the local reader gets their files alone
    mirror     a repeated query over a local mirror, which Spark reads itself
    small      400 small files from a store that delays each response by 60 ms: packed into one task per core,
               and with one task per file

The methods are `load_as_spark` and `format("deltaSharing")`, with and without selected columns, `load_as_spark`
with `engine="native"` without any, which leaves the selection to Spark (the default, `auto`, is one of both), and
Spark's own reader on the same local files, which are in the page cache and which the JVM decodes. All use one
session on all cores and take turns (A, B, C, A, B, C, ...); the report contains medians. A measurement includes
the load: the request to the server and the reading of footers. Processor seconds are those of this process, of the
JVM and of Spark's Python workers; bytes are those of data files, counted by the store. Counts and sums are
compared with those of the data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
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
NATIVE = 'load_as_spark, engine="native"'
ARROW = 'load_as_spark, engine="arrow"'

#: An action on a DataFrame; its result is compared with the manifest.
Action = Callable[["DataFrame"], "int | None"]


@dataclass(frozen=True)
class Method:
    """One method to load a DataFrame.

    Attributes:
        name: name in the report.
        load: function that returns the DataFrame.
        goal: longest accepted time, as a multiple of the local reader's; None for no goal.
    """

    name: str
    load: Callable[[], DataFrame]
    goal: float | None = None


@dataclass(frozen=True)
class Case:
    """One action and the methods to load its DataFrame.

    Attributes:
        title: title in the report.
        action: the action.
        expected: the correct result; None if the action returns none.
        methods: the methods, the local reader last.
        slow: whether the store delays responses and limits connections.
        seconds: measurements by method.
        processor: processor seconds by method.
        fetched: bytes of data files that the store sent, by method.
    """

    title: str
    action: Action
    expected: int | None
    methods: tuple[Method, ...]
    slow: bool = False
    seconds: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)
    fetched: dict[str, list[float]] = field(default_factory=dict)


def write(frame: DataFrame) -> None:
    """Read all rows and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def count(frame: DataFrame) -> int:
    """Count the rows."""
    return frame.count()


def total(column: str) -> Action:
    """Sum a column."""

    def sum_column(frame: DataFrame) -> int:
        from pyspark.sql import functions

        row = frame.agg(functions.sum(column)).first()
        return 0 if row is None else int(row[0])

    return sum_column


def by_country(frame: DataFrame) -> int:
    """Sum a column by the values of another; return the total."""
    from pyspark.sql import functions

    rows = frame.groupBy("country").agg(functions.sum("quantity"), functions.avg("price")).collect()
    return sum(int(row[1]) for row in rows)


class Methods:
    """Methods to load the tables of a scale with one session.

    Args:
        spark: the session.
        profile: path of the store's profile.
        scale: scale of the tables.
        folder: directory of the mirrors.
    """

    def __init__(self, spark: SparkSession, profile: str, scale: str, folder: Path) -> None:
        self.folder = folder
        self._spark = spark
        self._profile = profile
        self._scale = scale

    def load_as_spark(
        self, name: str, table: str, goal: float | None = None, where: str = "true", **options: Any
    ) -> Method:
        """Use `load_as_spark`."""
        import delta_sharing_client as ds

        url = f"{self._profile}#bench.default.{table}"
        return Method(name, lambda: ds.load_as_spark(url, spark=self._spark, **options).where(where), goal)

    def native(self, table: str, where: str = "true") -> Method:
        """Use `load_as_spark` with Spark's own reader, which selects columns and rows itself."""
        return self.load_as_spark(NATIVE, table, where=where, engine="native")

    def source(self, name: str, table: str, goal: float | None = None, **options: str) -> Method:
        """Use `format("deltaSharing")`."""
        url = f"{self._profile}#bench.default.{table}"
        return Method(name, lambda: self._spark.read.format("deltaSharing").options(**options).load(url), goal)

    def local(self, table: str, where: str = "true", files: Sequence[str] | None = None) -> Method:
        """Use Spark's own reader on all local files, or some."""
        folder = data.table_dir(table, self._scale)
        names = files or [entry["name"] for entry in data.read_manifest(table, self._scale)["files"]]
        paths = [str(folder / name) for name in names]
        return Method(LOCAL, lambda: self._spark.read.parquet(*paths).where(where))


def cases(methods: Methods, scale: str) -> dict[str, Case]:
    """Return the cases at a scale, by name."""
    sizes = data.SCALES[scale]
    large, small = (data.read_manifest(name, scale) for name in ("large", "small"))
    first = large["rows"] // 2
    last = first + large["rows"] // 400
    call, source = "load_as_spark", 'format("deltaSharing")'
    local = methods.local("large")
    days = ["2025-01-03", "2025-01-04"]
    of_days = f"event_date in (date '{days[0]}', date '{days[1]}')"
    files = [
        file
        for file in data.read_manifest("partitioned", scale)["files"]
        if file["partitionValues"]["event_date"] in days
    ]
    stats = [json.loads(file["stats"]) for file in files]
    # The ids of a file follow one another.
    ids = sum((s["minValues"]["event_id"] + s["maxValues"]["event_id"]) * s["numRecords"] // 2 for s in stats)
    where = f"event_id >= {first} AND event_id < {last}"
    filters = [("event_id", ">=", first), ("event_id", "<", last)]
    return {
        "full": Case(
            f"{sizes.large[0]} large files to the noop sink",
            write,
            None,
            (
                methods.load_as_spark(ARROW, "large", 1.7, engine="arrow"),
                methods.native("large"),
                methods.source(source, "large"),
                local,
            ),
        ),
        "count": Case(
            "count(*)",
            count,
            large["rows"],
            (
                methods.load_as_spark(f"{call}, columns=[]", "large", columns=[]),
                methods.native("large"),
                methods.load_as_spark(ARROW, "large", engine="arrow"),
                methods.source(source, "large"),
                local,
            ),
        ),
        "sum": Case(
            "sum of 1 of 14 columns",
            total("quantity"),
            large["sums"]["quantity"],
            (
                methods.load_as_spark(f"{call}, columns=", "large", 3.0, columns=["quantity"]),
                methods.native("large"),
                methods.load_as_spark(ARROW, "large", engine="arrow"),
                methods.source(f"{source}, columns", "large", 3.0, columns="quantity"),
                methods.source(source, "large"),
                local,
            ),
        ),
        "rows": Case(
            "one row in 400, by a filter, to the noop sink",
            write,
            None,
            (
                methods.load_as_spark(f"{call}, filters=", "large", filters=filters),
                methods.native("large", where),
                methods.local("large", where),
            ),
        ),
        "partition": Case(
            f"2 of {sizes.days[0]} daily partitions of small files, sum of one column",
            total("event_id"),
            ids,
            (
                methods.load_as_spark(
                    f"{call}, columns=, filters=",
                    "partitioned",
                    columns=["event_id"],
                    filters=[("event_date", "in", days)],
                ),
                methods.native("partitioned", of_days),
                methods.load_as_spark(ARROW, "partitioned", where=of_days, engine="arrow"),
                methods.local("partitioned", files=[file["name"] for file in files]),
            ),
        ),
        "mirror": Case(
            "sums by country, repeated",
            by_country,
            large["sums"]["quantity"],
            (methods.load_as_spark(f"{call}, mirror=", "large", 1.1, mirror=methods.folder / "mirror"), local),
        ),
        "small": Case(
            f"{sizes.small[0]} small files on a slow store, sum of one column",
            total("event_id"),
            small["sums"]["event_id"],
            (
                methods.load_as_spark(ARROW, "small", engine="arrow"),
                methods.native("small"),
                methods.load_as_spark(f"{call}, one file per task", "small", partition_size=1),
                methods.local("small"),
            ),
            slow=True,
        ),
    }


def processor_seconds() -> float:
    """Return the processor seconds of this process, and of the processes that it started."""
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):  # it has ended
            ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
            for thread in (folder / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


def fetched_bytes(running: store.RunningStore) -> int:
    """Return the bytes of data files that the store has sent since the last call."""
    sent = store.counters(running.base, reset=True)["bytes"]
    return sum(size for kind, size in sent.items() if kind != "api")


def run(chosen: dict[str, Case], running: store.RunningStore, repeat: int, *, slow: bool) -> None:
    """Measure every method of every case `repeat` times, in turns, after one run that is not measured."""
    for name, case in chosen.items():
        running.settings(*((store.LATENCY, store.BANDWIDTH) if slow or case.slow else (0.0, None)))
        for turn in range(repeat + 1):
            for method in case.methods:
                if turn == 0 and "one file per task" in method.name:
                    continue  # slow, and the JVM is warm already
                fetched_bytes(running)
                processor, start = processor_seconds(), time.perf_counter()
                result = case.action(method.load())
                seconds, processor = time.perf_counter() - start, processor_seconds() - processor
                if case.expected is not None and result != case.expected:
                    raise RuntimeError(f"{name}, {method.name}: {result}, not {case.expected}")
                if turn:
                    case.seconds.setdefault(method.name, []).append(seconds)
                    case.processor.setdefault(method.name, []).append(processor)
                    case.fetched.setdefault(method.name, []).append(fetched_bytes(running))
                    print(f"{name} {turn}/{repeat} {method.name:40} {seconds:8.2f} s", file=sys.stderr)


def report(chosen: dict[str, Case]) -> str:
    """Return the results as Markdown."""
    lines = [
        "| case | method | seconds | times the local reader | goal | processor seconds | MB fetched |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for case in chosen.values():
        local = statistics.median(case.seconds[LOCAL])
        for number, method in enumerate(case.methods):
            runs = case.seconds[method.name]
            median = statistics.median(runs)
            spread = f" ({min(runs):.2f} to {max(runs):.2f})" if len(runs) > 1 else ""
            goal = "" if method.goal is None else f"{method.goal:.1f}"
            title = f"**{case.title}**" if number == 0 else ""
            processor = statistics.median(case.processor[method.name])
            fetched = statistics.median(case.fetched[method.name]) / 1e6
            row = (title, method.name, f"{median:.2f}{spread}", f"{median / local:.2f}", goal)
            lines.append(f"| {' | '.join(row)} | {processor:.2f} | {fetched:.1f} |")
    return "\n".join(lines)


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
    parser.add_argument(
        "--only", metavar="CASE,...", help="cases: full, count, sum, rows, partition, mirror, small"
    )
    parser.add_argument("--repeat", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--slow", action="store_true", help="delay the responses in all cases")
    parser.add_argument("--scale", choices=sorted(data.SCALES), default="full", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each measurement to this file")
    options = parser.parse_args()
    if runpy.run_path(str(HERE.parent / "scripts" / "java.py"))["use"]() is None:
        parser.error("there is no Java 17 or later: run `make java` to install one")
    subprocess.run([sys.executable, str(HERE / "data.py"), "--scale", options.scale], check=True)
    with (
        store.running_store(options.scale) as running,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
    ):
        profile = Path(directory) / "bench.share"
        running.write_profile(profile)
        spark = session(Path(directory))
        try:
            known = cases(Methods(spark, str(profile), options.scale, Path(directory)), options.scale)
            names = options.only.split(",") if options.only else list(known)
            if unknown := set(names) - set(known):
                parser.error(f"unknown case {', '.join(sorted(unknown))}; cases: {', '.join(known)}")
            chosen = {name: known[name] for name in names}
            run(chosen, running, options.repeat, slow=options.slow)
            versions = {"PySpark": spark.version, **measure.versions("ours")}
        finally:
            spark.stop()
    environment = f"{measure.machine()}. {', '.join(f'{name} {version}' for name, version in versions.items())}."
    print(f"{environment}\nMedians of {options.repeat}, spread in brackets; tables of scale `{options.scale}`.\n")
    print(report(chosen))
    if options.json:
        runs = {name: case.seconds for name, case in chosen.items()}
        options.json.write_text(
            json.dumps({"environment": environment, "scale": options.scale, "seconds": runs}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
