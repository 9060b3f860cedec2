"""Filters of Spark on floating-point columns: NaN equals itself and is the largest, and -0.0 equals 0.0.

The statistics and dictionaries of Parquet files, by which Spark's reader skips row groups, are of another opinion.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.append(str(Path(__file__).parents[1] / "loading"))

from loading_tables import File, column, struct_of, write_table

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import native_dataframe
from delta_sharing_client.spark.session import pyspark_version

pyspark = pytest.importorskip("pyspark")

READERS = ["mirror"] + (["native"] if pyspark_version() >= native_dataframe.NATIVE_SINCE else [])
ROWS = 200
PREDICATES = [
    "{0} > 1000",
    "{0} >= 150",
    "{0} < 3",
    "{0} = 0",
    "{0} = -0.0",
    "{0} <=> 0",
    "{0} in (0, 7)",
    "{0} in (double('NaN'))",
    "{0} = double('NaN')",
    "not {0} < 5",
    "{0} != 0",
    "{0} is null",
    "{0} is not null and {0} > 100",
    "{0} > 1000 and id > 20",
]


def values() -> list[float | None]:
    numbers: list[float | None] = [float(i) for i in range(ROWS)]
    for i in range(0, ROWS, 11):
        numbers[i] = math.nan
    for i in range(5, ROWS, 13):
        numbers[i] = -0.0
    numbers[17] = None
    return numbers


@pytest.fixture(scope="module")
def frames(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The table by each reader, and by this package's own as `arrow`."""
    folder = tmp_path_factory.mktemp("floats")
    double = pa.array(values(), pa.float64())
    small = double.cast(pa.float32())
    inner = pa.StructArray.from_arrays([double, small], ["x", "y.z"])
    mask = pa.array([i % 7 == 3 for i in range(ROWS)])
    nested = pa.StructArray.from_arrays([pa.array(range(ROWS)), inner], ["n", "deep"], mask=mask)
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "d": double, "f": small, "wide": small, "s": nested})
    deep = struct_of(column("x", "double"), column("y.z", "float"))
    columns = [column("id", "long"), column("d", "double"), column("f", "float"), column("wide", "double")]
    options = {"row_group_size": 10}
    file = File(rows=rows, name="a.parquet", options=options)
    table = write_table(
        folder / "t",
        [*columns, column("s", struct_of(column("n", "long"), column("deep", deep)))],
        [file],
        features=["typeWidening"],
    )
    with SharingServer({"s.s.t": table}) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_dataframe, "SMALLEST", 0)
        url = f"{server.write_profile(folder / 'p.share')}#s.s.t"
        made = {"arrow": ds.load_as_spark(url, spark=spark, engine="arrow")}
        made["mirror"] = ds.load_as_spark(url, spark=spark, mirror=folder / "mirror")
        if "native" in READERS:
            made["native"] = ds.load_as_spark(url, spark=spark, engine="native")
        yield made


@pytest.mark.parametrize(
    "place",
    ["d", *(pytest.param(name, marks=pytest.mark.slow) for name in ("f", "wide", "s.deep.`y.z`")), "s.deep.x"],
)
@pytest.mark.parametrize("reader", READERS)
def test_the_rows_of_filters_are_those_of_all_rows(frames: dict[str, Any], reader: str, place: str) -> None:
    found: dict[str, dict[str, list[int]]] = {reader: {}, "arrow": {}}
    for condition in [predicate.format(place) for predicate in PREDICATES]:
        for name, result in found.items():
            rows = frames[name].where(condition).select("id").collect()
            result[condition] = sorted(row.id for row in rows)
    assert found[reader] == found["arrow"]


@pytest.mark.parametrize("reader", READERS)
def test_a_join_with_zero(spark: Any, frames: dict[str, Any], reader: str) -> None:
    zero = spark.sql("select cast(0.0 as double) as k")
    joined = frames[reader].join(zero, frames[reader].d == zero.k).count()
    assert joined == frames["arrow"].join(zero, frames["arrow"].d == zero.k).count() > 0


@pytest.mark.parametrize("reader", READERS)
def test_nested_columns_and_other_filters_are_still_pruned(frames: dict[str, Any], reader: str) -> None:
    plan = frames[reader].where("id > 150").select("s.deep.x")._jdf.queryExecution().toString()
    assert "ReadSchema: struct<id:bigint,s:struct<deep:struct<x:double>>>" in plan
    assert "GreaterThan(id,150)" in plan


@pytest.mark.parametrize("reader", READERS)
def test_values_are_unchanged(frames: dict[str, Any], reader: str) -> None:
    assert frames[reader].schema == frames["arrow"].schema
    assert sorted(map(str, frames[reader].collect())) == sorted(map(str, frames["arrow"].collect()))
