"""Sinks: the batches of a poller stored exactly once, in a local Delta table, DuckDB or SQLite.

    with ds.sinks.DuckDBSink("shop.duckdb", "orders", mode="apply", keys=["order_id"]) as sink:
        for batch in table.poll_changes("orders.checkpoint", starting_version="snapshot"):
            sink.write(batch)
            batch.commit()

A poller delivers a batch at least once. A sink stores the poller's id and version in the same transaction as the
rows, and skips rows that it stored before.
"""

from __future__ import annotations

from delta_sharing_client.sinks.base import Mode, Sink, WriteResult
from delta_sharing_client.sinks.delta import DeltaSink
from delta_sharing_client.sinks.duckdb import DuckDBSink
from delta_sharing_client.sinks.sqlite import SQLiteSink

__all__ = ["DeltaSink", "DuckDBSink", "Mode", "SQLiteSink", "Sink", "WriteResult"]
