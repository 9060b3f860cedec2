"""Benchmark cases: one load of one table, expressed for each client.

The official client has neither projection nor filters. Its load is what its users write: a hint for the server if
possible, a load of the whole table, then selection with pandas.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import data
import store

#: The clients; `delta` and `parquet` are the response formats of the official client.
CLIENTS = ("ours", "delta", "parquet", "pyarrow")
#: Results of this client beside pandas, and polars, which reads the signed URLs.
BESIDE_POLARS = ("ours-arrow", "ours-polars", "polars")


@dataclass(frozen=True)
class Case:
    """One benchmark case.

    Attributes:
        title: title in the report.
        table: name of the table.
        clients: clients that run the case.
        columns: columns to load; None for all.
        filters: row filter, as for `pandas.read_parquet`.
        hint: the same filter as `jsonPredicateHints`.
        result: type of the result: `pandas`, `arrow`, `files` for the file listing alone, or `changes` for the
            change feed to pandas.
        latency: seconds before the first byte of each response.
        bandwidth: bytes per second and connection; None for no limit.
    """

    title: str
    table: str
    clients: tuple[str, ...] = ("ours", "delta", "parquet")
    columns: tuple[str, ...] | None = None
    filters: tuple[tuple[str, str, Any], ...] = ()
    hint: str | None = None
    result: str = "pandas"
    latency: float = store.LATENCY
    bandwidth: float | None = store.BANDWIDTH


def cases(scale: str) -> dict[str, Case]:
    """Return the cases at a scale, by name."""
    sizes = data.SCALES[scale]
    rows = sizes.large[0] * sizes.large[1]
    group = sizes.large[1] // data.ROW_GROUPS
    first = rows // 2 + group // 2
    first_day, last_day = "2025-01-03", "2025-01-04"
    all_clients = (*CLIENTS[:3], *BESIDE_POLARS)
    no_delay: dict[str, Any] = {"latency": 0.0, "bandwidth": None}
    return {
        "small": Case(f"{sizes.small[0]} small files to pandas", "small", clients=all_clients),
        "large": Case(f"{sizes.large[0]} large files to pandas", "large", clients=all_clients),
        "columns": Case(
            "2 of 14 columns of the large files", "large", clients=all_clients, columns=("user_id", "quantity")
        ),
        "partition": Case(
            f"2 of {sizes.days[0]} daily partitions",
            "partitioned",
            filters=(("event_date", ">=", first_day), ("event_date", "<=", last_day)),
            hint=_between("event_date", "date", first_day, last_day),
        ),
        "rows": Case(
            "a range of rows within one large file",
            "large",
            filters=(("event_id", ">=", first), ("event_id", "<=", first + group), ("quantity", ">", 3)),
            hint=_between("event_id", "long", first, first + group),
        ),
        "local-small": Case("small files, no delay", "small", clients=(*CLIENTS, *BESIDE_POLARS), **no_delay),
        "local-large": Case("large files, no delay", "large", clients=(*CLIENTS, *BESIDE_POLARS), **no_delay),
        "local-arrow": Case(
            "large files, no delay, to Arrow", "large", clients=("ours", "pyarrow"), result="arrow", **no_delay
        ),
        "changes": Case(
            f"change feed of {sizes.small[0] // 2} versions, each with a small file",
            "small",
            clients=("ours", "ours-parquet", "delta", "parquet"),
            result="changes",
        ),
        "local-tiny": Case(
            f"{sizes.tiny[0]:,} files of {sizes.tiny[1]} rows, no delay, to Arrow",
            "tiny",
            clients=("ours", "pyarrow"),
            columns=data.TINY_COLUMNS,
            result="arrow",
            **no_delay,
        ),
        "listing": Case(
            f"plan a listing of {sizes.listed:,} files, no delay",
            "listing",
            clients=("ours", "ours-parquet", "delta", "delta-lines", "parquet"),
            result="files",
            **no_delay,
        ),
    }


def _between(column: str, kind: str, low: Any, high: Any) -> str:
    def compare(op: str, value: Any) -> dict[str, Any]:
        literal = {"op": "literal", "value": str(value), "valueType": kind}
        return {"op": op, "children": [{"op": "column", "name": column, "valueType": kind}, literal]}

    both = [compare("greaterThanOrEqual", low), compare("lessThanOrEqual", high)]
    return json.dumps({"op": "and", "children": both})
