"""What is measured: each case is a question to a table, put to every client in that client's own terms.

The reference client can neither project nor filter, so it gets what its users would write: the server's
hint where there is one, the whole load, then pandas.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import data
import store

#: How each client is asked; `delta` and `parquet` are the reference client's two ways of reading.
CLIENTS = ("ours", "delta", "parquet", "pyarrow")


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes:
        title: what a reader of the results sees.
        table: the table asked.
        clients: who is asked.
        columns: columns wanted; None for all.
        filters: rows wanted, as `pandas.read_parquet` takes them.
        hint: the same for the server, where a server can use it.
        result: what is wanted: a pandas frame, an Arrow table, or the files of a listing.
        latency, bandwidth: the store's delays.
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
    middle = rows // 2 + group // 2
    day = "2025-01-03"
    days = "2025-01-04"
    here: dict[str, Any] = {"latency": 0.0, "bandwidth": None}
    return {
        "small": Case(f"{sizes.small[0]} small files to pandas", "small"),
        "large": Case(f"{sizes.large[0]} large files to pandas", "large"),
        "columns": Case("2 of 14 columns of the large files", "large", columns=("user_id", "quantity")),
        "partition": Case(
            f"2 of {sizes.days[0]} daily partitions",
            "partitioned",
            filters=(("event_date", ">=", day), ("event_date", "<=", days)),
            hint=_between("event_date", "date", day, days),
        ),
        "rows": Case(
            "a range of rows within one large file",
            "large",
            filters=(("event_id", ">=", middle), ("event_id", "<=", middle + group), ("quantity", ">", 3)),
            hint=_between("event_id", "long", middle, middle + group),
        ),
        "local-small": Case(
            "small files, no delay", "small", clients=("ours", "delta", "parquet", "pyarrow"), **here
        ),
        "local-large": Case(
            "large files, no delay", "large", clients=("ours", "delta", "parquet", "pyarrow"), **here
        ),
        "local-arrow": Case(
            "large files, no delay, to Arrow", "large", clients=("ours", "pyarrow"), result="arrow", **here
        ),
        "listing": Case(
            f"plan a listing of {sizes.listed:,} files, no delay",
            "listing",
            clients=("ours", "ours-parquet", "delta", "delta-lines", "parquet"),
            result="files",
            **here,
        ),
    }


def _between(column: str, kind: str, low: Any, high: Any) -> str:
    def compare(op: str, value: Any) -> dict[str, Any]:
        literal = {"op": "literal", "value": str(value), "valueType": kind}
        return {"op": op, "children": [{"op": "column", "name": column, "valueType": kind}, literal]}

    both = [compare("greaterThanOrEqual", low), compare("lessThanOrEqual", high)]
    return json.dumps({"op": "and", "children": both})
