"""Targets of sinks of every kind, and the rows that they hold."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from delta_sharing_client.cdf.poller import ChangePoller
from delta_sharing_client.sinks import DeltaSink, DuckDBSink, Sink, SQLiteSink, WriteResult

TABLES = Path(__file__).parents[1] / "golden" / "tables"
CASES = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(TABLES.glob("*/case.json"))}


class Target:
    """A table of one kind that a sink stores in, read back without the sink.

    kind: `delta`, `duckdb` or `sqlite`.
    """

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self.path = path

    def sink(self, **options: Any) -> Sink:
        if self.kind == "delta":
            return DeltaSink(self.path, **options)
        return {"duckdb": DuckDBSink, "sqlite": SQLiteSink}[self.kind](self.path, "t", **options)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in the database."""
        if self.kind == "duckdb":
            with duckdb.connect(str(self.path)) as connection:
                return connection.execute(statement).fetchall()
        connection = sqlite3.connect(self.path)
        try:
            rows = connection.execute(statement).fetchall()
            connection.commit()
            return rows
        finally:
            connection.close()

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The rows, in the order of their values."""
        if self.kind == "delta":
            table = DeltaTable(self.path).to_pyarrow_table() if not columns else self.arrow().select(list(columns))
            return in_order(zip(*(column.to_pylist() for column in table.columns), strict=True))
        names = ", ".join(f'"{name}"' for name in columns) or "*"
        return in_order(self.execute(f"SELECT {names} FROM t"))

    def names(self) -> list[str]:
        if self.kind == "delta":
            return self.arrow().column_names
        if self.kind == "duckdb":
            return [row[0] for row in self.execute("DESCRIBE t")]
        return [row[1] for row in self.execute("PRAGMA table_info(t)")]

    def arrow(self) -> pa.Table:
        """The rows of a Delta table, as deltalake reads them."""
        return DeltaTable(self.path).to_pyarrow_table()


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


def drain(poller: ChangePoller, sink: Sink, *, commit: bool = True) -> list[WriteResult]:
    """Store every batch that there is."""
    results = []
    while (batch := poller.pull()) is not None:
        results.append(sink.write(batch))
        if commit:
            batch.commit()
    return results


def as_texts(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))
