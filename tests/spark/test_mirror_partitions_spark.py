"""Partition values of mirrors in Spark, and a column with the name of Spark's file metadata."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden.test_golden import rows_of
from pyspark.errors import PythonException

sys.path.append(str(Path(__file__).parents[1] / "loading"))

from loading_tables import Column, File, column, struct_of, write_table
from test_golden_spark import collected

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.local_dataframe import mirror_dataframe

Make = Callable[..., tuple[Mirror, ds.SharedTable]]
#: Texts of values, as writers of tables spell them.
SPELT = {
    "decimal(12,2)": ["7", "1.5", "1.50", "-3", "1E+2", "0.10"],
    "decimal(30,2)": ["7", "1.5"],
    "double": ["1.5", "inf", "-Infinity", "1e3"],
    "float": ["0.1"],
    "long": ["-5", " 5", "+7"],
    "boolean": ["true", "FALSE"],
    "date": ["2020-01-05", "2020-1-5", "2020-01-05 00:00:00"],
    "binary": ["ab", "a.b", "\u0001é"],
    "string": ["007", "1.5", "a%20b", " x ", "é"],
}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Write a table, share and mirror it; give the mirror and the shared table."""
    with ExitStack() as stack:

        def made(columns: Sequence[Column], files: Sequence[File], partitions: Sequence[str] = ()) -> Any:
            write_table(tmp_path / "shared", columns, files, partitions=partitions, features=["deletionVectors"])
            server = stack.enter_context(SharingServer({"s.s.t": tmp_path / "shared"}))
            table = stack.enter_context(SharingClient(server.profile)).table("s.s.t")
            mirror = table.mirror(tmp_path / "mirror")
            mirror.sync(progress=False)
            return mirror, table

        yield made


def longs(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def same(mirror: Mirror, table: ds.SharedTable, spark: Any) -> None:
    found = collected(mirror_dataframe(mirror.scan(), spark))
    assert sorted(map(repr, rows_of(found))) == sorted(map(repr, rows_of(table.scan().to_arrow())))


@pytest.mark.parametrize(
    "beside", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "beside a timestamp"]
)
@pytest.mark.parametrize("kind", SPELT)
def test_partition_values_of_every_type_are_exact(kind: str, beside: bool, spark: Any, make: Make) -> None:
    """Spark decodes the folder names of strings alone, and parses decimals with the scale of their text."""
    texts: list[str | None] = [*SPELT[kind], None, "__HIVE_DEFAULT_PARTITION__"]
    more = {"at": "2020-01-01 00:00:00"} if beside else {}
    files = [File(rows=longs(n, -n), name=f"f{n}", values={"p": t} | more) for n, t in enumerate(texts)]
    columns = [column("a", "long"), column("p", kind), *(column(name, "timestamp") for name in more)]
    mirror, table = make(columns, files, ["p", *more])
    same(mirror, table, spark)


def test_timestamps_beyond_the_years_of_python_are_exact(spark: Any, make: Make) -> None:
    texts = ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59.5-05:00", "2020-01-05 00:00:00", None]
    files = [File(rows=longs(n), name=f"f{n}", values={"p": text}) for n, text in enumerate(texts)]
    mirror, table = make([column("a", "long"), column("p", "timestamp")], files, ["p"])
    stored = table.scan().to_arrow()
    wanted = dict(zip(stored["a"].to_pylist(), stored["p"].cast(pa.int64()).to_pylist(), strict=True))
    found = mirror_dataframe(mirror.scan(), spark).selectExpr("a", "unix_micros(p)").collect()
    assert {row[0]: row[1] for row in found} == wanted
    assert min(wanted.values(), key=lambda n: n or 0) < -62_135_596_800_000_000


@pytest.mark.parametrize("kind", ["date", "timestamp", "long", "decimal(12,2)"])
def test_a_malformed_partition_value_raises(kind: str, spark: Any, make: Make) -> None:
    mirror, _ = make(
        [column("a", "long"), column("p", kind)], [File(rows=longs(1), name="f", values={"p": "no value"})], ["p"]
    )
    with pytest.raises(PythonException, match=r"DataError: .*partition column 'p': 'no value'"):
        mirror_dataframe(mirror.scan(), spark).collect()


@pytest.mark.parametrize("name", ["_metadata", pytest.param("_METADATA", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["text", "struct", "partition", "absent"])
def test_a_column_with_the_name_of_sparks_metadata_is_read(kind: str, name: str, spark: Any, make: Make) -> None:
    inside = {"file_name": "x", "row_index": 5}
    held = {"text": ["x", "y"], "struct": [inside, None]}.get(kind)
    rows = longs(1, 2) if held is None else longs(1, 2).append_column(name, pa.array(held))
    nested = struct_of(column("file_name", "string"), column("row_index", "long"))
    columns = [column("a", "long"), column(name, nested if kind == "struct" else "string")]
    values = {name: "v"} if kind == "partition" else {}
    mirror, table = make(columns, [File(rows=rows, name="f", values=values, vector=[0])], list(values))
    same(mirror, table, spark)
    assert mirror_dataframe(mirror.scan(columns=["a"]), spark).collect() == [(2,)]


@pytest.mark.parametrize("chosen", [None, "7"])
def test_files_are_listed_by_few_tasks(chosen: str | None, spark: Any, make: Make) -> None:
    """By default Spark starts a task for each file, which takes longer than reading the files."""
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    mirror, table = make([column("a", "long")], [File(rows=longs(n), name=f"f{n}") for n in range(40)])
    if chosen is not None:
        spark.conf.set(name, chosen)
    try:
        spark.sparkContext.setJobGroup(f"listing {chosen}", "")
        mirror_dataframe(mirror.scan(), spark)
        assert spark.conf.get(name, None) == chosen
    finally:
        spark.conf.unset(name)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    tracker = spark.sparkContext.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(f"listing {chosen}")
        for stage in tracker.getJobInfo(job).stageIds
    ]
    assert [stage.numTasks for stage in stages] == [2]
    same(mirror, table, spark)


@pytest.mark.slow
def test_many_deleted_rows(spark: Any, make: Make) -> None:
    rows = 300_000
    files = [File(rows=longs(*range(rows)), name=f"f{n}", vector=range(n, rows, 2)) for n in (0, 1)]
    mirror, _ = make([column("a", "long")], files)
    frame = mirror_dataframe(mirror.scan(), spark)
    assert (frame.count(), frame.agg({"a": "sum"}).first()[0]) == (rows, rows * (rows - 1) // 2)
