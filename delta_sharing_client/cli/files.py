"""Files that `export`, `changes` and `pull` write: Parquet, CSV, JSON lines and Arrow IPC, in bounded memory."""

from __future__ import annotations

import os
import secrets
import sys
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

import click
from tqdm import tqdm

from delta_sharing_client.cli.output import to_json

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = ("parquet", "csv", "jsonl", "arrow")
_SUFFIXES: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".feather": "arrow",
}
#: Decoded bytes that become one row group of a Parquet file.
_ROW_GROUP: Final = 64 * 1024 * 1024

_Sink: TypeAlias = IO[bytes]


def format_of(target: str, given: str | None) -> str:
    """Return the format for a target: the given one, or that of the file name.

    Raises:
        UsageError: neither is known, or the format cannot be written to stdout.
    """
    name = given or _SUFFIXES.get(Path(target).suffix.lower())
    if name is None:
        raise click.UsageError(f"the format of {target!r} is unknown: give --format {'|'.join(FORMATS)}")
    if target == "-" and name == "parquet":
        raise click.UsageError("a Parquet file cannot be written to stdout: give a file, or --format arrow")
    return name


def write_reader(reader: pa.RecordBatchReader, target: str, name: str, *, overwrite: bool) -> int:
    """Write the batches of a reader to a file or, for ``-``, to stdout; return the number of rows.

    A file is written beside the target and renamed when it is complete.

    Raises:
        ClickException: the target exists, or the format cannot represent a column.
        OSError: the file cannot be written.
    """
    import pyarrow as pa

    try:
        if target == "-":
            rows = _write(reader, sys.stdout.buffer, name, stream=True)
            sys.stdout.buffer.flush()
            return rows
        with _replacing(Path(target), overwrite) as file:
            return _write(reader, file, name, stream=False)
    except (pa.ArrowException, OverflowError) as error:
        raise click.ClickException(f"the rows cannot be written as {name}: {error}") from error


@contextmanager
def _replacing(path: Path, overwrite: bool) -> Iterator[_Sink]:
    """Open a temporary file beside the path, and rename it to the path unless an exception is raised."""
    if path.is_dir():
        raise click.ClickException(f"{path} is a directory: give a file")
    if path.exists() and not overwrite:
        raise click.ClickException(f"{path} exists: give another file, or --overwrite to replace it")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(reader: pa.RecordBatchReader, sink: _Sink, name: str, *, stream: bool) -> int:
    rows = 0
    writer = _writer(reader.schema, sink, name, stream)
    with tqdm(unit=" rows", unit_scale=True, disable=None, leave=False) as bar:
        for batch in reader:
            writer.write(batch)
            rows += batch.num_rows
            bar.update(batch.num_rows)
    writer.close()
    return rows


class _Writer(ABC):
    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""

    @abstractmethod
    def close(self) -> None:
        """Write the end of the file."""


def _writer(schema: pa.Schema, sink: _Sink, name: str, stream: bool) -> _Writer:
    if name == "parquet":
        return _ParquetWriter(schema, sink)
    if name == "csv":
        return _CsvWriter(schema, sink)
    return _ArrowWriter(schema, sink, stream) if name == "arrow" else _JsonLinesWriter(sink)


class _ParquetWriter(_Writer):
    """Collects small batches, so that row groups have a useful size."""

    def __init__(self, schema: pa.Schema, sink: _Sink) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._writer: Any = pq.ParquetWriter(sink, schema, compression="zstd")
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, self._schema))
        self._pending, self._bytes = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _ArrowWriter(_Writer):
    """Writes the IPC file format, or the stream format where a reader cannot seek."""

    def __init__(self, schema: pa.Schema, sink: _Sink, stream: bool) -> None:
        import pyarrow as pa

        self._writer: Any = (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _JsonLinesWriter(_Writer):
    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, 10_000):
            rows = batch.slice(start, 10_000).to_pylist()
            self._sink.write("".join(f"{to_json(row)}\n" for row in rows).encode())

    def close(self) -> None:
        return


class _CsvWriter(_Writer):
    """Writes nested values as JSON text and binaries as base64; a null is empty, an empty text is `""`."""

    def __init__(self, schema: pa.Schema, sink: _Sink) -> None:
        import pyarrow as pa
        import pyarrow.csv

        types = pa.types
        self._encoded = {
            index: field.type
            for index, field in enumerate(schema)
            if types.is_nested(field.type) or types.is_binary(field.type) or types.is_large_binary(field.type)
        }
        fields = [field.with_type(pa.string()) if n in self._encoded else field for n, field in enumerate(schema)]
        self._schema = pa.schema(fields)
        self._writer: Any = pyarrow.csv.CSVWriter(sink, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        arrays = list(batch.columns)
        for index, kind in self._encoded.items():
            encode = to_json if pa.types.is_nested(kind) else _base64
            texts = [None if value is None else encode(value) for value in arrays[index].to_pylist()]
            arrays[index] = pa.array(texts, pa.string())
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
