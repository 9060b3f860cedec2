"""Loads that every client runs: golden tables at each version, their changes, and sample tables with options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tables"
#: The other clients: the official client in both response formats, and deltalake on the table's log.
READERS = ("parquet", "delta", "deltalake")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One load.

    Attributes:
        reader: one of `READERS`.
        table: the golden table, or the full name of the sample table.
        what: description of the load.
        arguments: arguments of the load, under the official client's names.
        key: the columns that identify a row.
    """

    reader: str
    table: str
    what: str
    arguments: dict[str, Any] = field(hash=False)
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.table} {self.what} {self.reader}"

    @property
    def subject(self) -> str:
        """The name in `known_differences.py`: the table, or the table's changes."""
        return f"{self.table} changes" if "starting_version" in self.arguments else self.table

    @property
    def table_name(self) -> str:
        return self.table if "." in self.table else f"golden.tables.{self.table}"


def _golden() -> Iterator[Job]:
    for path in sorted(GOLDEN.glob("*/case.json")):
        case, table = json.loads(path.read_text("utf-8")), path.parent.name
        key = tuple(case["key"])
        for reader in READERS:
            for version in case["versions"]:
                arguments: dict[str, Any] = {"version": int(version)}
                yield Job(reader=reader, table=table, what=f"v{version}", arguments=arguments, key=key)
        for change in case.get("changes", []):
            first, last = change["first"], change["last"]
            arguments = {"starting_version": first, "ending_version": last}
            key_of_change = ("_commit_version", *key, "_change_type")
            for reader in ("parquet", "delta"):
                what = f"changes {first} to {last}"
                yield Job(reader=reader, table=table, what=what, arguments=arguments, key=key_of_change)


_ONE_SITE = {
    "op": "equal",
    "children": [
        {"op": "column", "name": "site", "valueType": "string"},
        {"op": "literal", "value": "mill", "valueType": "string"},
    ],
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "limit 7": {"limit": 7},
    "limit 0": {"limit": 0},
    "in batches": {"convert_in_batches": True},
}


def _samples() -> Iterator[Job]:
    readings, orders = "retail.ops.sensor_readings", "retail.sales.orders"
    loads: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
        *(("retail.sales.customers", what, options, ("customer_id",)) for what, options in _OPTIONS.items()),
        *((readings, what, options, ("site", "read_at")) for what, options in _OPTIONS.items()),
        (readings, "first version", {"version": 0}, ("site", "read_at")),
        (readings, "one site", {"jsonPredicateHints": json.dumps(_ONE_SITE)}, ("site", "read_at")),
        (
            orders,
            "changes 6 to 7",
            {"starting_version": 6, "ending_version": 7},
            ("_commit_version", "order_id", "_change_type"),
        ),
    ]
    for table, what, arguments, key in loads:
        for reader in ("parquet", "delta"):
            yield Job(reader=reader, table=table, what=what, arguments=arguments, key=key)


JOBS = [*_golden(), *_samples()]
