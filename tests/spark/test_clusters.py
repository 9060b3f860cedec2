"""Shared tables on clusters whose workers lack the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import FILTER, FRONTS, MIRRORED, expected, mirror_for_both_readers, turnover
from spark_processes import VERSION, Jobs, environment
from waiting import run_program

pytestmark = pytest.mark.slow


@pytest.fixture
def orders(sample_profile: str) -> str:
    return f"{sample_profile}#retail.sales.orders"


@pytest.fixture
def customers(sample_profile: str) -> str:
    return f"{sample_profile}#retail.sales.customers"


def test_a_standalone_cluster_without_the_package_reads_tables(
    standalone: Jobs, orders: str, customers: str, tmp_path: Path
) -> None:
    jobs: list[dict[str, Any]] = [{"job": "totals", "url": orders, "front": front} for front in FRONTS]
    where, join, *totals = standalone.run(
        {"job": "where", "marks": str(tmp_path)},
        {"job": "joined", "orders": orders, "customers": customers},
        *jobs,
    )
    assert where == {"found": [False, False], "processes": 2}  # two executors, both without the package
    assert join == turnover(orders, customers)
    assert totals == [expected(orders)] * len(FRONTS)


@pytest.mark.skipif(VERSION < (4, 0), reason="Spark 3.5 has no Python data sources")
def test_a_standalone_cluster_without_the_package_follows_a_table(
    standalone: Jobs, orders: str, tmp_path: Path
) -> None:
    (results,) = standalone.run({"job": "followed", "url": orders, "folder": str(tmp_path)})
    assert results == [expected(orders)] * 2


def test_a_standalone_cluster_reads_a_mirror_by_sparks_reader_and_by_ours(
    standalone: Jobs, tmp_path: Path
) -> None:
    with mirror_for_both_readers(tmp_path) as job:
        assert standalone.run(job) == [MIRRORED]


@pytest.mark.skipif(VERSION < (4, 2), reason="this Spark is refused, which another test shows")
def test_executors_of_a_standalone_cluster_read_by_a_gateway(standalone: Jobs, orders: str) -> None:
    (result,) = standalone.run({"job": "natively", "url": orders, "wrong": "X-Amz-Signature"})
    assert result["all"] == expected(orders)
    assert result["some"] == expected(orders, filters=FILTER)
    assert result["by Spark"] > 0
    assert result["hidden"]


def test_a_standalone_cluster_reads_filtered_and_limited_tables(standalone: Jobs, orders: str) -> None:
    filtered, limited, older, wrong = standalone.run(
        {"job": "totals", "url": orders, "filters": FILTER},
        {"job": "totals", "url": orders, "limit": 12_345},
        {"job": "totals", "url": orders, "version": 2},
        {"job": "fails", "url": orders.replace("sales.orders", "sales.order")},
    )
    assert filtered == expected(orders, filters=FILTER)
    assert limited["rows"] == limited["distinct"] == 12_345
    assert older == expected(orders, version=2)
    assert (wrong["ours"], wrong["type"]) == (True, "NotFoundError")
    assert "retail.sales.order" in wrong["text"]
    assert "\n" not in wrong["text"]


def test_the_bare_python_has_all_but_the_package(bare_python: str, tmp_path: Path) -> None:
    program = (
        "import httptools, msgspec, pyarrow, pyroaring, requests, tenacity, pyspark; import delta_sharing_client"
    )
    done = run_program([bare_python, "-c", program], cwd=tmp_path, env=environment())
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "ModuleNotFoundError: No module named 'delta_sharing_client'"


def test_a_lost_executor_and_a_failed_task_give_no_row_twice(
    standalone: Jobs, sample_profile: str, tmp_path: Path
) -> None:
    orders = f"{sample_profile}#retail.sales.orders"
    # Small partitions: some have been read when one of them is broken off, some have not.
    job = {"job": "interrupted", "url": orders, "marks": str(tmp_path), "partition_size": 100_000}
    unbroken = {**expected(orders), "broken": True}
    for results in standalone.run({**job, "how": "executor"}, {**job, "how": "task"}):
        assert results.pop("partitions") >= 3
        assert results == unbroken
