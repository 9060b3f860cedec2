"""Wrong uses of the public API: `mypy --strict` must report each marked line."""

from __future__ import annotations

import delta_sharing_client as ds
from delta_sharing_client.model.partition_values import PartitionValues, partition_text


def mistakes(client: ds.SharingClient) -> None:
    ds.load_as_pandas()  # type: ignore[call-arg]
    ds.load_as_pandas(1)  # type: ignore[arg-type]
    ds.load_as_pandas("p#s.s.t", limit="10")  # type: ignore[arg-type]
    ds.load_as_pandas("p#s.s.t", None, None, None, None, None, False, ["a"])  # type: ignore[call-arg]
    ds.load_as_pandas("p#s.s.t", dtype_backend="arrow")  # type: ignore[arg-type]
    orders = client.table("retail.sales.orders")
    orders.scan(response_format="csv")  # type: ignore[arg-type]
    orders.scan(filters=[("a", "=")])  # type: ignore[list-item]
    orders.scan().options = orders.scan().options  # type: ignore[misc]
    client.table(["retail", "sales", "orders"])  # type: ignore[arg-type]
    ds.TransportOptions(read_timeout=30)  # type: ignore[arg-type]


def partition_values(values: PartitionValues) -> object:
    """`partition_text` is the one look-up by name; the package's own code has no other."""
    values["Day"]  # type: ignore[index]
    values.get("Day")  # type: ignore[attr-defined]
    dict(values)  # type: ignore[arg-type]
    return partition_text(values, "col-D", "Day")
