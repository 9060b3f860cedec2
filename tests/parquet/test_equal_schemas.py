"""Files with equal and with different Parquet schemas in one load."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.server import FaultServer, file_reply

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.pipeline import Load, read_batches
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.transport.storage_transport import StorageTransport

FIELDS = {"id": "long", "name": "string", "score": "double", "raw": "binary", "part": "string"}
SCHEMA = StructType(tuple(StructField(name, PrimitiveType(kind)) for name, kind in FIELDS.items()))
ROWS = 50


def table(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([None if n % 7 == 0 else f"näme {n}" if n % 2 else f"name {n}" for n in ids]),
            "score": pa.array([n / 3 for n in ids]),
            "raw": pa.array([str(n).encode() * 3 for n in ids], pa.binary()),
            "part": pa.array(["stored"] * ROWS),
        }
    )


def with_nothing_before(rows: pa.Table) -> pa.Table:
    return rows.add_column(0, "more", pa.array([{"x": 1, "y": "two"}] * ROWS))


#: What writers make of the same rows.
LAYOUTS = {
    "as the table": lambda rows: rows,
    "other order": lambda rows: rows.select(["raw", "score", "part", "id", "name"]),
    "narrower": lambda rows: rows.set_column(0, "id", rows["id"].cast(pa.int32())),
    "other case": lambda rows: rows.rename_columns([name.upper() for name in rows.column_names]),
    "more columns": with_nothing_before,
    "without one": lambda rows: rows.drop_columns(["score"]),
    "large texts": lambda rows: rows.set_column(1, "name", rows["name"].cast(pa.large_string())),
    "texts as bytes": lambda rows: rows.set_column(1, "name", rows["name"].cast(pa.binary())),
    "dictionary": lambda rows: rows.set_column(1, "name", rows["name"].dictionary_encode()),
}


def parquet(rows: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return sink.getvalue().to_pybytes()


def load(files: list[bytes], parts: list[str | None] | None = None) -> pa.Table:
    """Read the files in one load; all batches are kept until the last one has come."""
    options = TransportOptions(max_connections=4)
    partitioned = frozenset(["part"]) if parts else frozenset()
    spec = ReadSpec(SCHEMA, partition_columns=partitioned)
    with FaultServer() as server, StorageTransport(options, endpoint_is_loopback=True) as transport:
        tasks = []
        for number, data in enumerate(files):
            server.on("GET", f"/{number}", file_reply(data))
            values = {"part": parts[number]} if parts else {}
            tasks.append(
                FileScanTask(
                    SecretUrl(f"{server.url}/{number}"), f"file-{number}", len(data), partition_values=values
                )
            )
        job = Load(tasks=tasks, spec=spec, storage=DownloadReader(transport, options))
        return pa.Table.from_batches(list(read_batches(job)))


def expected(number: int, layout: str) -> pa.Table:
    rows = table(number)
    return rows.set_column(2, "score", pa.nulls(ROWS, pa.float64())) if layout == "without one" else rows


def test_files_with_different_schemas_are_read_in_any_order():
    order = [name for pair in itertools.permutations(LAYOUTS, 2) for name in pair]
    files = [parquet(LAYOUTS[name](table(number))) for number, name in enumerate(order)]
    rows = load(files)
    assert rows.equals(pa.concat_tables([expected(number, name) for number, name in enumerate(order)]))
    assert not any(field.metadata for field in rows.schema)


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("encoding", ["plain", "dictionary"])
def test_rows_stay_valid_after_later_files_are_decoded(compression, encoding):
    files = [
        parquet(table(number), compression=compression, use_dictionary=encoding == "dictionary")
        for number in range(120)
    ]
    assert load(files).equals(pa.concat_tables([table(number) for number in range(120)]))


def test_files_with_equal_schemas_of_different_partitions():
    values = ["a", None, "b", "a", "ü"] * 8
    files = [parquet(table(number).drop_columns(["part"])) for number in range(len(values))]
    rows = load(files, values)
    assert rows.column("part").to_pylist() == [value for value in values for _ in range(ROWS)]
    assert rows.column("id").to_pylist() == list(range(len(values) * ROWS))


@pytest.mark.parametrize("bad", [3, 17])
def test_a_damaged_file_among_files_with_equal_schemas_is_named(bad):
    files = []
    for number in range(20):
        rows = table(number)
        if number == bad:
            wrong = pa.array([b"\xff\xfe"] * ROWS)
            text = pa.StringArray.from_buffers(ROWS, wrong.buffers()[1], wrong.buffers()[2])
            rows = rows.set_column(1, "name", text)
        files.append(parquet(rows))
    with pytest.raises(DataError, match=f"file-{bad}: column 'name' is string"):
        load(files)


def test_texts_of_all_lengths_are_validated():
    for length in (1, 1000, 3000, 200_000):
        data = b"x" * (length - 1) + b"\xc3"
        wrong = pa.array([data] * ROWS)
        text = pa.StringArray.from_buffers(ROWS, wrong.buffers()[1], wrong.buffers()[2])
        with pytest.raises(DataError, match="name"):
            load([parquet(table(0).set_column(1, "name", text))])
