"""Generator of the benchmark tables, which are stored in `benchmarks/.data`.

The tables contain fourteen columns of an event log: keys, timestamps, a date, text of low and high cardinality,
decimals, doubles, nulls. The Parquet files are like those of Spark: snappy, page checksums. A table has a
`manifest.json` with the metadata of its files for the sharing server, and with sums for checks of the results.

    small        many files of one row group each; measures latency
    large        few files of 45 MB and five row groups each; measures bandwidth and decoding
    tiny         very many files of four columns and a few rows; measures the cost of a file
    partitioned  by `event_date`, two files per day
    warm         one file; read before each measurement, so that imports are not measured
    listing      only the response of the server, for files that do not exist; measures parsing

`python benchmarks/data.py --scale full` creates them; the benchmarks also do so if necessary.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: The directory of the tables.
DATA = Path(os.environ.get("DELTA_SHARING_BENCH_DATA") or Path(__file__).resolve().parent / ".data")
#: Version of this generator, a part of the directory names; a new number creates the tables again.
LAYOUT = 1
#: The URLs of the files expire in 2099.
EXPIRES = 4_070_908_800_000
FIRST_DAY = 20_089  # 2025-01-01, in days since the epoch


@dataclass(frozen=True)
class Scale:
    """Amount of data: `full` for published figures, `quick` for trends, `tiny` for tests."""

    small: tuple[int, int]  # files, rows per file
    large: tuple[int, int]
    days: tuple[int, int]
    listed: int

    @property
    def tiny(self) -> tuple[int, int]:
        """Files of the tiny table, and rows per file."""
        return 25 * self.small[0], 10


SCALES = {
    "full": Scale(small=(400, 1_850), large=(8, 700_000), days=(60, 8_000), listed=300_000),
    "quick": Scale(small=(40, 1_850), large=(2, 150_000), days=(20, 4_000), listed=20_000),
    "tiny": Scale(small=(6, 50), large=(2, 2_000), days=(4, 40), listed=500),
}

SCHEMA = [
    ("event_id", "long"),
    ("user_id", "long"),
    ("session_id", "string"),
    ("country", "string"),
    ("event_type", "string"),
    ("product", "string"),
    ("quantity", "integer"),
    ("price", "decimal(12,2)"),
    ("discount", "double"),
    ("latitude", "double"),
    ("longitude", "double"),
    ("event_time", "timestamp"),
    ("event_date", "date"),
    ("note", "string"),
]
ROW_GROUPS = 5
#: The columns in the files of the tiny table.
TINY_COLUMNS = ("event_id", "user_id", "event_type", "quantity")
WORDS = (
    "the order was sent late and customer asked again for refund because box arrived open "
    "please call before delivery gift wrap leave at door thanks urgent new address see ticket"
)


def table_dir(name: str, scale: str) -> Path:
    """Return the directory of a table, which may not exist."""
    key = hashlib.sha256(repr((LAYOUT, SCHEMA, asdict(SCALES[scale]))).encode()).hexdigest()[:8]
    return DATA / f"{scale}-{key}" / name


def make(scale: str) -> None:
    """Create the tables of a scale that do not exist."""
    sizes = SCALES[scale]
    _make_table("warm", scale, files=1, rows=10, groups=1)
    _make_table("small", scale, files=sizes.small[0], rows=sizes.small[1], groups=1)
    _make_table("tiny", scale, files=sizes.tiny[0], rows=sizes.tiny[1], groups=1, columns=TINY_COLUMNS)
    _make_table("large", scale, files=sizes.large[0], rows=sizes.large[1], groups=ROW_GROUPS)
    _make_table("partitioned", scale, files=2 * sizes.days[0], rows=sizes.days[1], groups=1, by_day=True)
    _make_listing(scale, sizes.listed)


def schema_string() -> str:
    """Return the schema as the JSON in Delta metadata."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in SCHEMA]
    return json.dumps({"type": "struct", "fields": fields})


def read_manifest(name: str, scale: str) -> dict[str, Any]:
    """Return the manifest of a table: its files, partition columns, rows and sums."""
    manifest: dict[str, Any] = json.loads((table_dir(name, scale) / "manifest.json").read_text())
    return manifest


def changed_files(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the files of a table that its change feed adds, one in each version: the first half."""
    return files[: len(files) // 2]


def _make_table(
    name: str,
    scale: str,
    *,
    files: int,
    rows: int,
    groups: int,
    by_day: bool = False,
    columns: Sequence[str] | None = None,
) -> None:
    target = table_dir(name, scale)
    if target.exists():
        return
    print(f"creating {name} ({scale}): {files} files of {rows:,} rows", file=sys.stderr)
    import numpy as np
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    building = _temporary_directory(target)
    entries = []
    sums = {"event_id": 0, "quantity": 0, "user_id": 0}
    for number in range(files):
        rng = np.random.default_rng([LAYOUT, files, number])
        day = number // 2 if by_day else None
        table = _events(rng, number * rows, rows, day)
        for column in sums:
            sums[column] += pc.sum(table.column(column)).as_py()
        values = {}
        stats = _stats(table)
        if by_day:
            values = {"event_date": str(table.column("event_date")[0].as_py())}
            table = table.drop_columns(["event_date"])
        if columns is not None:
            table = table.select(columns)
        path = building / f"part-{number:05}.parquet"
        pq.write_table(
            table, path, compression="snappy", row_group_size=-(-rows // groups), write_page_checksum=True
        )
        entries.append({"name": path.name, "size": path.stat().st_size, "partitionValues": values, "stats": stats})
    manifest = {
        "partitionColumns": ["event_date"] if by_day else [],
        "rows": files * rows,
        "sums": sums,
        "files": entries,
    }
    (building / "manifest.json").write_text(json.dumps(manifest))
    building.rename(target)


def _temporary_directory(target: Path) -> Path:
    building = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    building.mkdir(parents=True)
    return building


def _events(rng: Any, first: int, rows: int, day: int | None) -> Any:
    import numpy as np
    import pyarrow as pa

    countries = [f"{a}{b}" for a in "ABCDEFGH" for b in "KLMNO"]
    kinds = ["view", "click", "add_to_cart", "remove", "checkout", "purchase", "refund", "search", "login"]
    words = np.array(WORDS.split(), dtype=object)
    sessions = [f"{value:016x}" for value in rng.integers(0, 2**63, max(1, rows // 3))]
    products = pa.array([f"SKU-{number:08}" for number in range(20_000)])
    product = np.minimum(rng.zipf(1.2, rows), 20_000) - 1
    cents = np.round(rng.lognormal(3.2, 1.0, rows) * 100).astype(np.int64)
    if day is None:
        start, step = FIRST_DAY * 86_400_000_000 + first * 1_500_000, 1_500_000
        times = start + np.arange(rows) * step + rng.integers(0, step, rows)
    else:
        times = np.sort((FIRST_DAY + day) * 86_400_000_000 + rng.integers(0, 86_400_000_000, rows))
    lengths = rng.integers(4, 15, rows)
    chosen = words[rng.integers(0, len(words), int(lengths.sum()))]
    ends = np.cumsum(lengths)
    empty = rng.random(rows) < 0.4
    notes = [
        None if none else " ".join(chosen[end - n : end])
        for none, end, n in zip(empty, ends, lengths, strict=True)
    ]
    return pa.table(
        {
            "event_id": pa.array(np.arange(first, first + rows)),
            "user_id": pa.array(rng.integers(0, 5_000_000, rows)),
            "session_id": pa.array(sessions).take(pa.array(np.sort(rng.integers(0, len(sessions), rows)))),
            "country": pa.array(countries).take(pa.array(np.minimum(rng.geometric(0.12, rows), 40) - 1)),
            "event_type": pa.array(kinds).take(pa.array(np.minimum(rng.geometric(0.4, rows), 9) - 1)),
            "product": products.take(pa.array(product)),
            "quantity": pa.array(np.minimum(rng.geometric(0.45, rows), 20).astype(np.int32)),
            "price": pa.array(cents).cast(pa.decimal128(19)).view(pa.decimal128(19, 2)).cast(pa.decimal128(12, 2)),
            "discount": pa.array(rng.integers(0, 8, rows) * 0.05, mask=rng.random(rows) < 0.2),
            "latitude": pa.array(np.round(rng.uniform(-60, 70, rows), 5)),
            "longitude": pa.array(np.round(rng.uniform(-180, 180, rows), 5)),
            "event_time": pa.array(times, pa.timestamp("us", tz="UTC")),
            "event_date": pa.array((times // 86_400_000_000).astype(np.int32), pa.int32()).cast(pa.date32()),
            "note": pa.array(notes, pa.string()),
        }
    )


def _stats(table: Any) -> str:
    import pyarrow.compute as pc

    lower, upper, nulls = {}, {}, {}
    for name in ("event_id", "user_id", "country", "quantity", "event_time", "event_date"):
        bounds = pc.min_max(table.column(name)).as_py()
        nulls[name] = table.column(name).null_count
        for target, value in ((lower, bounds["min"]), (upper, bounds["max"])):
            if name == "event_time":
                target[name] = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            else:
                target[name] = value if isinstance(value, int) else str(value)
    return json.dumps(
        {"numRecords": table.num_rows, "minValues": lower, "maxValues": upper, "nullCount": nulls},
        separators=(",", ":"),
    )


def _make_listing(scale: str, files: int) -> None:
    """Write the file lines of a long response in both formats, with URLs as long as pre-signed ones."""
    target = table_dir("listing", scale)
    if target.exists():
        return
    print(f"creating listing ({scale}): {files:,} files", file=sys.stderr)
    building = _temporary_directory(target)
    with (building / "parquet.ndjson").open("w") as parquet, (building / "delta.ndjson").open("w") as delta:
        for number in range(files):
            seed = hashlib.sha256(str(number).encode()).hexdigest()
            url = (
                f"https://bucket.example/warehouse/events/part-{number:05}-{seed[:8]}-{seed[8:12]}-{seed[12:16]}"
                f"-{seed[16:20]}-{seed[20:32]}-c000.snappy.parquet?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date="
                f"20250102T030405Z&X-Amz-SignedHeaders=host&X-Amz-Expires=3600&X-Amz-Credential=EXAMPLE"
                f"{seed[:13].upper()}%2F20250102%2Fus-west-2%2Fs3%2Faws4_request&X-Amz-Signature={seed}"
            )
            day = f"2025-{1 + number // 30_000 % 12:02}-{1 + number // 1_000 % 28:02}"
            stats = json.dumps(
                {
                    "numRecords": 1_000_000 + number % 977,
                    "minValues": {"event_id": number * 10**6, "user_id": number % 97, "country": "AK"},
                    "maxValues": {"event_id": (number + 1) * 10**6 - 1, "user_id": 4_999_999, "country": "HO"},
                    "nullCount": {"event_id": 0, "user_id": 0, "country": number % 3},
                },
                separators=(",", ":"),
            )
            common = {"partitionValues": {"event_date": day}, "size": 45_000_000 + number % 9973, "stats": stats}
            file_id = seed[:32]
            line: dict[str, Any] = {"url": url, "id": file_id, **common, "expirationTimestamp": EXPIRES}
            parquet.write(json.dumps({"file": line}, separators=(",", ":")) + "\n")
            add = {"path": url, **common, "modificationTime": 1_735_689_600_000, "dataChange": True}
            line = {"id": file_id, "expirationTimestamp": EXPIRES, "deltaSingleAction": {"add": add}}
            delta.write(json.dumps({"file": line}, separators=(",", ":")) + "\n")
    manifest = {"partitionColumns": ["event_date"], "rows": 0, "sums": {}, "files": [], "listed": files}
    (building / "manifest.json").write_text(json.dumps(manifest))
    building.rename(target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=sorted(SCALES), default="full")
    make(parser.parse_args().scale)
