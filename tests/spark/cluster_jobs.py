"""Jobs for clusters and Spark Connect, and the results that they must return."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from loading.loading_tables import File, column, write_table
from spark_processes import VERSION

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer

FRONTS = ["load_as_spark"] + (["format"] if VERSION >= (4, 0) else [])
FILTER = [("order_date", ">=", "2024-01-03"), ("region", "=", "Asia")]


def expected(url: str, **options: Any) -> dict[str, Any]:
    """The totals of the orders by the Arrow loader, as `spark_jobs.totals` returns it."""
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


#: Orders, of which Spark reads one file and this package's reader another, whose times have nanoseconds.
ORDERS = [column("order_id", "long"), column("quantity", "integer"), column("amount", "decimal(12,2)")]


def _orders(unit: str, *ids: int) -> pa.Table:
    numbers = pa.array(ids, pa.int64())
    columns = [
        numbers,
        numbers.cast(pa.int32()),
        numbers.cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        numbers.cast(pa.timestamp("us")),
    ]
    columns[-1] = columns[-1].cast(pa.timestamp(unit)).cast(pa.timestamp(unit, "UTC"))
    return pa.table(columns, names=["order_id", "quantity", "amount", "at"])


@contextlib.contextmanager
def mirror_for_both_readers(folder: Path) -> Iterator[dict[str, Any]]:
    """Mirror a table of which Spark reads one file and this package another; yield the job that sums it."""
    files = [
        File(rows=_orders("us", 1, 2), name="a", vector=[0]),
        File(rows=_orders("ns", 3, 4), name="b", vector=[1]),
    ]
    columns = [*ORDERS, column("at", "timestamp")]
    with SharingServer(
        {"s.s.t": write_table(folder / "t", columns, files, features=["deletionVectors"])}
    ) as server:
        profile = server.write_profile(folder / "p.share")
        with ds.SharingClient(server.profile) as client:
            client.table("s.s.t").mirror(folder / "mirror").sync(progress=False)
        yield {"job": "totals", "url": f"{profile}#s.s.t", "mirror": str(folder / "mirror")}


#: What the job finds.
MIRRORED = {"rows": 2, "distinct": 2, "ids": 5, "amount": "5.00", "quantity": 5}
