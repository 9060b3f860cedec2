"""Sinks: the batches of a poller stored exactly once, in a local Delta table, DuckDB or SQLite.

    with ds.sinks.DuckDBSink("shop.duckdb", "orders", mode="apply", keys=["order_id"]) as sink:
        for batch in table.poll_changes("orders.checkpoint", starting_version="snapshot"):
            sink.write(batch)
            batch.commit()

A poller hands a batch out at least once. A sink keeps, in the transaction that stores the rows, up to which
version it took them from which poller, and leaves out what it has already.
"""

from __future__ import annotations

from delta_sharing_client.sinks.base import Mode, Sink, WriteResult
from delta_sharing_client.sinks.delta import DeltaSink
from delta_sharing_client.sinks.duckdb import DuckDBSink
from delta_sharing_client.sinks.sqlite import SQLiteSink

__all__ = ["DeltaSink", "DuckDBSink", "Mode", "SQLiteSink", "Sink", "WriteResult"]
