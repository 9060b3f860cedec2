"""Sample tables: a small shop, and sensors at a few sites.

Written with `deltalake`, always with the same rows, which demos, notebooks and tests rely on.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import MissingDependencyError
from delta_sharing_client.paths import local_path

if TYPE_CHECKING:
    import pyarrow as pa

_CHANGE_FEED: Final = {"delta.enableChangeDataFeed": "true"}
_FIRST_DAY: Final = date(2024, 1, 1)
_DAYS: Final = 6
_ORDERS_PER_DAY: Final = 10_000
_CUSTOMERS: Final = 2_000
_READINGS_PER_SITE: Final = 2_880
_REGIONS: Final = ("Africa", "Americas", "Asia", "Europe", "Oceania")
_COUPONS: Final = ("WELCOME10", "SPRING", "FRIENDS")
_CITIES: Final = ("Lagos", "Lima", "Osaka", "Porto", "Zürich", "Perth", "Accra", "Quito")
_SITES: Final = ("harbour", "mill", "quarry")


def write_sample_tables(directory: str | os.PathLike[str]) -> dict[str, Path]:
    """Write the sample tables: `retail.sales.orders`, `retail.sales.customers`, `retail.ops.sensor_readings`.

    `orders` is partitioned by `order_date`: 6 days of 10,000 rows appended one by one, then a deletion and an
    update, with its change data feed on. `customers` is not partitioned and has nested columns.
    `sensor_readings` is partitioned by `site` and has three versions.

    Args:
        directory: the parent directory of the tables `retail/<schema>/<table>`; it is created if necessary.

    Returns:
        The tables' directories by full name, as `SharingServer` takes them.

    Raises:
        MissingDependencyError: deltalake is not installed.
        FileExistsError: one of the tables exists already.
    """
    root = local_path(directory, "directory")
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            package="deltalake", extra="delta", purpose="Writing sample tables"
        ) from error
    writers = {
        "retail.sales.orders": _write_orders,
        "retail.sales.customers": _write_customers,
        "retail.ops.sensor_readings": _write_readings,
    }
    paths = {name: root.joinpath(*name.split(".")) for name in writers}
    for path in paths.values():
        if path.exists():
            raise FileExistsError(f"{path} exists already")
    for name, writer in writers.items():
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        writer(str(paths[name]))
    return paths


def _write_orders(path: str) -> None:
    from deltalake import DeltaTable, write_deltalake

    for day in range(_DAYS):
        write_deltalake(
            path,
            _orders_of_day(day),
            mode="append",
            partition_by=["order_date"],
            configuration=_CHANGE_FEED,
            name="orders",
            description="One row per order of the shop.",
        )
    table = DeltaTable(path)
    table.delete("order_id % 1000 = 999 AND order_date = '2024-01-02'")
    table.update(updates={"status": "'returned'"}, predicate="order_id % 2500 = 7 AND order_date >= '2024-01-05'")


def _orders_of_day(day: int) -> pa.Table:
    import pyarrow as pa

    ids = range(day * _ORDERS_PER_DAY, (day + 1) * _ORDERS_PER_DAY)
    date = _FIRST_DAY + timedelta(days=day)
    midnight = datetime(date.year, date.month, date.day, tzinfo=UTC)
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "order_id": (pa.int64(), list(ids)),
        "order_date": (pa.date32(), [date] * len(ids)),
        "ordered_at": (
            pa.timestamp("us", "UTC"),
            [midnight + i % _ORDERS_PER_DAY * timedelta(microseconds=8_640_001) for i in ids],
        ),
        "customer_id": (pa.int64(), [(i * 31) % _CUSTOMERS for i in ids]),
        "region": (pa.string(), [_REGIONS[(i * 13) % len(_REGIONS)] for i in ids]),
        "quantity": (pa.int32(), [None if i % 97 == 0 else 1 + i % 5 for i in ids]),
        "amount": (pa.decimal128(12, 2), [Decimal(499 + (i * 7919) % 50_000).scaleb(-2) for i in ids]),
        "coupon": (pa.string(), [_COUPONS[i % 3] if i % 4 == 0 else None for i in ids]),
        "status": (pa.string(), ["shipped" if i % 10 else "pending" for i in ids]),
    }
    return _table(columns)


def _write_customers(path: str) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    address = pa.struct([("city", pa.string()), ("postcode", pa.string())])
    ids = range(_CUSTOMERS)
    addresses = [{"city": _CITIES[i % len(_CITIES)], "postcode": f"{10_000 + i * 7}"} for i in ids]
    tags = [[tag for n, tag in enumerate(("new", "loyal", "b2b")) if (i >> n) & 1] for i in ids]
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "customer_id": (pa.int64(), list(ids)),
        "name": (pa.string(), [f"Customer {i:04d}" for i in ids]),
        "address": (address, [None if i % 50 == 0 else addresses[i] for i in ids]),
        "tags": (pa.list_(pa.string()), [None if i % 11 == 0 else tags[i] for i in ids]),
        "since": (pa.date32(), [_FIRST_DAY - timedelta(days=i % 1500) for i in ids]),
        "newsletter": (pa.bool_(), [None if i % 17 == 0 else i % 3 == 0 for i in ids]),
    }
    write_deltalake(path, _table(columns), name="customers")


def _write_readings(path: str) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    start = datetime(2024, 3, 1, tzinfo=UTC)
    per_version = _READINGS_PER_SITE // 3
    for version in range(3):
        ticks = range(version * per_version, (version + 1) * per_version)
        keys = [(site, tick) for site in range(len(_SITES)) for tick in ticks]
        warmth = [None if tick % 101 == site else 10 + site * 3 + (tick * 37 % 200) / 16 for site, tick in keys]
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "site": (pa.string(), [_SITES[site] for site, _ in keys]),
            "read_at": (pa.timestamp("us", "UTC"), [start + timedelta(seconds=30 * tick) for _, tick in keys]),
            "temperature": (pa.float64(), warmth),
            "humidity": (pa.int16(), [None if tick % 53 == 0 else 40 + tick * 7 % 50 for _, tick in keys]),
            "status": (pa.string(), ["ok" if tick % 144 else "calibrating" for _, tick in keys]),
        }
        write_deltalake(path, _table(columns), mode="append", partition_by=["site"], name="sensor_readings")


def _table(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
