"""A streaming query without Spark: the calls that Spark makes, in its order; returns the rows of each batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.append(str(Path(__file__).parents[1] / "cdf" / "feed"))

from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.data_source import describe
from delta_sharing_client.spark.executor import read_part
from delta_sharing_client.spark.stream import TableStream

Limit = tuple[str, int]
ALL: Limit = ("ReadAllAvailable", 0)


class Query:
    """A query and its checkpoint.

    end: the offset of the last batch; None before the first.
    pairs: the offsets of every batch, as a checkpoint keeps them: of a start only what was there before.
    """

    def __init__(self, server: SharingServer, name: str = "s.s.t", **options: Any) -> None:
        self.server = server
        self.given = {"path": name, "querytableversionintervalseconds": "0.001"}
        self.given |= {key.lower(): str(value) for key, value in server.profile.items()}
        self.options = options
        self.end: dict[str, Any] | None = None
        self.pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.start()

    def start(self, columns: Sequence[str] | None = None, **options: Any) -> None:
        """Start, or start again as a new process does: with the options given, and nothing but the offsets."""
        from pyspark.sql.types import StructType

        self.options |= options
        given = self.given | {key.lower(): str(value) for key, value in self.options.items()}
        text, planned_version = describe(given)
        schema = StructType.fromJson(text)
        if columns is not None:
            schema, planned_version = StructType([f for f in schema.fields if f.name in columns]), None
        self.stream = TableStream(given, planned_version, schema, 2)
        self.names = schema.names
        if self.end is not None:  # Spark passes the last offset after a restart
            assert self.stream.partitions(self.end, self.end) == []

    def batch(self, limit: Limit | None = ("ReadMaxFiles", 1000)) -> pa.Table | None:
        """Run one batch; None if there is nothing new."""
        start = self.end or self.stream.initial_offset()
        found = self.planned(start, limit)
        if found == start:
            return None
        self.pairs.append((start, found))
        rows = self.rows(start, found)
        self.end = found
        self.stream.commit(start)
        return rows

    def planned(self, start: dict[str, Any], limit: Limit | None = ("ReadMaxFiles", 1000)) -> dict[str, Any]:
        found = self.stream.latest_offset(None if limit is None else start, limit)
        assert json.loads(json.dumps(found)) == found
        return found

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
        batches = [batch for job, part in self.stream.partitions(start, end) for batch in read_part(job, part)]
        if not batches:
            return pa.table({name: [] for name in self.names})
        return pa.Table.from_batches(batches)

    def ids(self, limit: Limit | None = ("ReadMaxFiles", 1000)) -> list[Any]:
        """The ids of one batch."""
        table = self.batch(limit)
        return [] if table is None else table.column("id").to_pylist()

    def all(self, limit: Limit | None = ("ReadMaxFiles", 1000)) -> list[list[Any]]:
        """The ids of batches until there is nothing new; empty batches are left out."""
        found = []
        while (table := self.batch(limit)) is not None:
            if table.num_rows:
                found.append(table.column("id").to_pylist())
        return found


def flat(batches: list[list[Any]]) -> list[Any]:
    return [value for batch in batches for value in batch]


def requested(server: SharingServer) -> list[str]:
    """The requests since the last reset: the last part of each path; `file` for a file."""
    found = ["file" if request.is_file else request.path.rpartition("/")[2] for request in server.requests]
    server.reset_requests()
    return found
