"""Parquet files in memory, and what is read of them."""

import io
import json
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.frames.arrow import to_table
from delta_sharing_client.model.schema import parse_schema
from delta_sharing_client.parquet.column_threads import DecodeThreads
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl

FILE_ID = "file-1"


def array_of(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key, value):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def struct_of(**fields):
    return {"type": "struct", "fields": [field(name, kind) for name, kind in fields.items()]}


def field(name, kind, **metadata):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def mapped(name, kind, physical, number):
    """A column of a table with column mapping."""
    return field(name, kind, **{"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number})


def table_schema(*fields):
    """A table's columns, from fields as Spark writes them or (name, type) pairs."""
    items = [f if isinstance(f, dict) else field(*f) for f in fields]
    return parse_schema(json.dumps({"type": "struct", "fields": items}))


def parquet(table, **options):
    """The bytes of a Parquet file; a dict of arrays will do."""
    if isinstance(table, dict):
        table = pa.table(table)
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def decode_file(data, task, spec, *, threads=2, **more):
    """Decode a whole file on so many threads; `more` are `deleted` and `limits`."""
    with (
        closing(DecodeThreads(threads)) as decode_threads,
        ParquetSource(data, task, spec, **more) as source,
    ):
        for decoded in source.decode_all(decode_threads if threads > 1 else None):
            yield from decoded.batches


def batches(data, schema, *, deleted=None, threads=2, partition_columns=(), mapping="none", **more):
    """The batches that are read of a file; `more` are fields of the task, `predicate` and `extra`."""
    spec = ReadSpec(
        output=schema,
        partition_columns=frozenset(partition_columns),
        mapping=mapping,
        predicate=more.pop("predicate", None),
        extra=more.pop("extra", ()),
        variant=more.pop("variant", "struct"),
    )
    if spec.predicate is not None:
        more.setdefault("all_rows_match", False)
    task = FileScanTask(url=SecretUrl("https://h/x?sig=s"), file_id=FILE_ID, size=len(data), **more)
    return list(decode_file(data, task, spec, deleted=deleted, threads=threads))


def read(data, *fields, **more):
    """The rows of a file as one table; `data` may be what goes into the file."""
    if isinstance(data, dict | pa.Table):
        data = parquet(data)
    schema = table_schema(*fields)
    table = to_table(batches(data, schema, **more), schema)
    table.validate(full=True)
    return table


def column(data, kind, **more):
    """The values that a file's column `c` has when the table says that it is of a type."""
    if isinstance(data, pa.Array | pa.ChunkedArray):
        data = {"c": data}
    return read(data, ("c", kind), **more).column("c")


def micros(chunked):
    """Times as the integers that they are stored as."""
    assert pa.types.is_timestamp(chunked.type), chunked.type
    assert chunked.type.unit == "us"
    return chunked.cast(pa.int64()).to_pylist()
