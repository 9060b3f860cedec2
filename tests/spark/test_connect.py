"""Shared tables through Spark Connect, with a server that lacks the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_jobs import FILTER, FRONTS, MIRRORED, expected, mirror_for_both_readers, turnover
from spark_processes import SPARK_HOME, Jobs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not list((SPARK_HOME / "jars").glob("spark-connect_*.jar")),
        reason="this PySpark comes without a Connect server, as 3.5 does; with its jar the tests run",
    ),
]


def test_tables_are_read_joined_and_filtered(spark_connect: Jobs, sample_profile: str, tmp_path: Path) -> None:
    orders, customers = (f"{sample_profile}#retail.sales.{name}" for name in ("orders", "customers"))
    where, join, filtered, *totals = spark_connect.run(
        {"job": "where", "marks": str(tmp_path)},
        {"job": "joined", "orders": orders, "customers": customers},
        {"job": "totals", "url": orders, "filters": FILTER, "columns": ["order_id", "amount", "quantity"]},
        *({"job": "totals", "url": orders, "front": front} for front in FRONTS),
    )
    assert where["found"] == [False, False]
    assert join == turnover(orders, customers)
    assert filtered == expected(orders, filters=FILTER)
    assert totals == [expected(orders)] * len(FRONTS)


def test_a_mistake_raises_one_short_error(spark_connect: Jobs, sample_profile: str) -> None:
    orders = f"{sample_profile}#retail.sales.orders"
    results = spark_connect.run(
        {"job": "fails", "url": f"{sample_profile}.missing#retail.sales.orders"},
        {"job": "fails", "url": f"{sample_profile}#retail.sales.order"},
        {"job": "fails", "url": orders, "version": 99},
        {"job": "fails", "url": orders, "columns": ["price"]},
    )
    assert [error["type"] for error in results] == [
        "ProfileError",
        "NotFoundError",
        "BadRequestError",
        "ColumnError",
    ]
    for error in results:
        assert error["ours"]
        assert "\n" not in error["text"]
        assert len(error["text"]) < 500


def test_views_are_loaded_when_they_are_created(spark_connect: Jobs, sample_profile: str) -> None:
    rows = expected(f"{sample_profile}#retail.sales.orders")["rows"]
    assert spark_connect.run({"job": "views", "profile": sample_profile}) == [
        [["customers", "orders"], True, rows]
    ]


def test_a_stream_runs_with_the_code_from_the_zip(
    spark_connect: Jobs, sample_profile: str, tmp_path: Path
) -> None:
    orders = f"{sample_profile}#retail.sales.orders"
    (results,) = spark_connect.run({"job": "followed", "url": orders, "folder": str(tmp_path)})
    assert results == [expected(orders)] * 2


def test_spark_connect_reads_a_mirror_by_sparks_reader_and_by_ours(spark_connect: Jobs, tmp_path: Path) -> None:
    with mirror_for_both_readers(tmp_path) as job:
        assert spark_connect.run(job) == [MIRRORED]
