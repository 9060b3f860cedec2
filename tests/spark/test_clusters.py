"""Shared tables on real clusters, whose workers do not have the package installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from spark_processes import VERSION, Jobs, environment
from waiting import run_program

import delta_sharing_client as ds

FRONTS = ["load_as_spark"] + (["format"] if VERSION >= (4, 0) else [])
FILTER = [("order_date", ">=", "2024-01-03"), ("region", "=", "Asia")]


def expected(url: str, **options: Any) -> dict[str, Any]:
    """What the Arrow loader says of the orders, as `spark_jobs.totals` tells it."""
    orders = ds.load_as_arrow(url, **options)
    return {
        "rows": orders.num_rows,
        "distinct": pc.count_distinct(orders["order_id"]).as_py(),
        "ids": pc.sum(orders["order_id"]).as_py(),
        "amount": str(pc.sum(orders["amount"]).as_py()),
        "quantity": pc.sum(orders["quantity"]).as_py(),
    }


def turnover(orders: str, customers: str) -> list[list[Any]]:
    """The join of `spark_jobs.joined`, in pandas."""
    left = ds.load_as_pandas(orders, columns=["customer_id", "amount"])
    right = ds.load_as_pandas(customers, columns=["customer_id", "address"]).dropna(subset="address")
    both = left.merge(right.assign(city=right["address"].map(lambda address: address["city"])), on="customer_id")
    cities = both.groupby("city")["amount"]
    return [[city, len(amounts), str(sum(amounts))] for city, amounts in sorted(cities)]


@pytest.fixture
def orders(sample_profile: str) -> str:
    return f"{sample_profile}#retail.sales.orders"


@pytest.fixture
def customers(sample_profile: str) -> str:
    return f"{sample_profile}#retail.sales.customers"


@pytest.mark.slow
def test_a_standalone_cluster_without_the_package_reads_tables(
    standalone: Jobs, orders: str, customers: str, tmp_path: Path
) -> None:
    jobs = [{"job": "totals", "url": orders, "front": front} for front in FRONTS]
    where, join, *totals = standalone.run(
        {"job": "where", "marks": str(tmp_path)},
        {"job": "joined", "orders": orders, "customers": customers},
        *jobs,
    )
    assert where == {"found": [False, False], "processes": 2}  # two executors, both without the package
    assert join == turnover(orders, customers)
    assert totals == [expected(orders)] * len(FRONTS)


@pytest.mark.slow
def test_a_local_cluster_reads_filtered_and_limited_tables(local_cluster: Jobs, orders: str) -> None:
    filtered, limited, older, wrong = local_cluster.run(
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


@pytest.mark.slow
def test_a_local_session_runs_the_python_of_the_program(java: Path, orders: str, tmp_path: Path) -> None:
    other = tmp_path / "path" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 3\n")  # Spark would take it, the first python3 on the path
    other.chmod(0o755)
    local = Jobs(tmp_path, {"master": "local[2]"}, None, {"PATH": f"{other.parent}:{os.environ['PATH']}"})
    jobs = [{"job": "totals", "url": orders, "front": front, "limit": 1000} for front in FRONTS]
    assert [told["rows"] for told in local.run(*jobs)] == [1000] * len(FRONTS)


def test_the_bare_python_has_all_but_the_package(bare_python: str, tmp_path: Path) -> None:
    program = "import msgspec, pyarrow, pyroaring, requests, tenacity, pyspark; import delta_sharing_client"
    done = run_program([bare_python, "-c", program], cwd=tmp_path, env=environment())
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "ModuleNotFoundError: No module named 'delta_sharing_client'"
