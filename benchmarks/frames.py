"""Record batches to pandas: columns filled batch by batch, against Arrow's conversion of the whole table.

    python benchmarks/frames.py                    all columns of the large table
    python benchmarks/frames.py price              some columns, with commas

Each measurement is a process that decodes the files of `data.py` from the local disk. It prints processor seconds
and peak resident memory, decoding included. `none` only decodes, and keeps the batches.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator

import data
import pyarrow as pa
import pyarrow.parquet as pq

WAYS = ("none", "filled", "whole")
PATHS = sorted(data.table_dir("large", "full").glob("*.parquet"))


def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Decode the files, one row group at a time."""
    for path in PATHS:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group, columns=columns).to_batches()


def measure(way: str, columns: list[str]) -> str:
    """Convert once; return what it took."""
    from delta_sharing_client.frames.pandas import to_pandas

    schema = pa.schema([pq.read_schema(PATHS[0]).field(name) for name in columns])
    rows = sum(pq.read_metadata(path).num_rows for path in PATHS)
    pa.table({"warm": [1]}).to_pandas()
    before = resource.getrusage(resource.RUSAGE_SELF)
    if way == "none":
        result: object = list(batches(columns))
    elif way == "filled":
        result = to_pandas(batches(columns), schema, rows=rows)
    else:
        result = pa.Table.from_batches(batches(columns), schema).to_pandas(split_blocks=True, self_destruct=True)
    after = resource.getrusage(resource.RUSAGE_SELF)
    del result
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{way:8} {seconds:6.2f} s of processor time {after.ru_maxrss / 1000:6.0f} MB peak"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("columns", nargs="?", default=",".join(name for name, _ in data.SCHEMA))
    parser.add_argument("--way", choices=WAYS)
    options = parser.parse_args()
    if options.way:
        print(measure(options.way, options.columns.split(",")), flush=True)
        return
    data.make("full")
    for way in WAYS:
        subprocess.run([sys.executable, __file__, options.columns, "--way", way], check=True)


if __name__ == "__main__":
    main()
