"""Benchmark of the Delta sink: rows per second of `append` and of `apply`, by batch size.

    python benchmarks/delta_sink.py            # a table of 2,000,000 rows; about a minute
    python benchmarks/delta_sink.py --rows 200000

A table with a change data feed is shared on loopback. For `append`, each batch inserts rows. For `apply`, the sink
first stores the snapshot; then each batch updates rows, either with consecutive keys ("together") or spread over
the whole table ("spread"). The time is that of `Sink.write`, which also reads the batch from the server. Each line
is the median of three batches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

FILES = 20
REPEATS = 3
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("score", pa.float64()),
        ("quantity", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def rows(ids: np.ndarray, seed: int) -> pa.Table:
    """Return rows with the keys `ids` and random values."""
    random = np.random.default_rng(seed)
    count = len(ids)
    # Unscaled values of the decimals, as 128-bit integers.
    unscaled = np.zeros((count, 2), np.int64)
    unscaled[:, 0] = random.integers(0, 10**9, count)
    columns = [
        pa.array(ids),
        pa.array([f"customer {number}" for number in random.integers(0, 5000, count)]),
        pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(unscaled)]),
        pa.array(random.random(count)),
        pa.array(random.integers(0, 1000, count).astype(np.int32)),
        pa.array(random.integers(0, 2**50, count)).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def insert(source: Path, ids: np.ndarray, seed: int) -> None:
    """Append rows to the shared table."""
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(source, rows(ids, seed), mode="append", configuration=feed)


def update(source: Path, ids: np.ndarray, seed: int) -> None:
    """Update rows of the shared table."""
    changed = rows(ids, seed)
    values = {f"target.{name}": f"source.{name}" for name in SCHEMA.names}
    merge = DeltaTable(source).merge(changed, "target.id = source.id", "source", "target")
    merge.when_matched_update(values).execute()


def write_next(poller: Any, sink: Any) -> float:
    """Store the next batch; return the seconds that `write` took."""
    batch = poller.pull()
    assert batch is not None
    start = time.perf_counter()
    sink.write(batch)
    seconds = time.perf_counter() - start
    batch.commit()
    return seconds


def report(mode: str, size: int, seconds: list[float]) -> None:
    """Print one row of the table."""
    median = statistics.median(seconds)
    print(f"| {mode} | {size:,} | {median:.3f} | {size / median:,.0f} |", flush=True)


def main(total: int) -> None:
    """Run all measurements and print a table."""
    from delta_sharing_client import SharingClient
    from delta_sharing_client.server import SharingServer
    from delta_sharing_client.sinks import DeltaSink

    print("| mode | rows of the batch | seconds | rows/s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        insert(source, np.arange(10), 0)
        with SharingServer({"s.s.t": source}) as server, SharingClient(server.profile) as client:
            table = client.table("s.s.t")
            with DeltaSink(Path(folder) / "log") as sink, table.poll_changes(starting_version=0) as poller:
                write_next(poller, sink)
                first = 10
                for size in (1_000, 100_000, total // 2):
                    seconds = []
                    for number in range(REPEATS):
                        insert(source, np.arange(first, first + size), number)
                        first += size
                        seconds.append(write_next(poller, sink))
                    report("append", size, seconds)
        source = Path(folder) / "updated"
        for number, ids in enumerate(np.array_split(np.arange(total), FILES)):
            insert(source, ids, number)
        with SharingServer({"s.s.t": source}) as server, SharingClient(server.profile) as client:
            table = client.table("s.s.t")
            for place in ("together", "spread"):
                with (
                    DeltaSink(Path(folder) / place, mode="apply", keys=["id"]) as sink,
                    table.poll_changes(starting_version="snapshot") as poller,
                ):
                    seconds = [write_next(poller, sink)]
                    report(f"apply, snapshot ({place})", total, seconds)
                    for size in (100, 10_000, 100_000):
                        step = 1 if place == "together" else total // size
                        seconds = []
                        for number in range(REPEATS):
                            start = number * size if place == "together" else number
                            update(source, np.arange(size) * step + start, size + number)
                            seconds.append(write_next(poller, sink))
                        report(f"apply, {place}", size, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main(parser.parse_args().rows)
