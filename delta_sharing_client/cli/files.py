"""Files that `export`, `changes` and `pull` write: Parquet, CSV, JSON lines and Arrow IPC, in bounded memory."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import click
from tqdm import tqdm

from delta_sharing_client.cli.output import plain, to_json

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
#: Rows that are converted to JSON text at a time.
_TEXT_ROWS: Final = 10_000


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
def _replacing(path: Path, overwrite: bool) -> Iterator[IO[bytes]]:
    """Open a temporary file beside the path, and rename it to the path unless an exception is raised."""
    path = Path(os.path.realpath(path))  # the target of a link is replaced, and not the link
    if path.is_dir():
        raise click.ClickException(f"{path} is a directory: give a file")
    if path.exists() and not path.is_file():
        raise click.ClickException(f"{path} is a device or a pipe: give a file, or - and redirect stdout")
    if path.exists() and not overwrite:
        raise click.ClickException(f"{path} exists: give another file, or --overwrite to replace it")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(reader: pa.RecordBatchReader, sink: IO[bytes], name: str, *, stream: bool) -> int:
    rows = 0

    def batches(bar: tqdm[NoReturn]) -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in reader:
            yield batch
            rows += batch.num_rows
            bar.update(batch.num_rows)

    with tqdm(unit=" rows", unit_scale=True, disable=None, leave=False) as bar:
        if name == "parquet":
            _write_parquet(batches(bar), reader.schema, sink)
        elif name == "csv":
            _write_csv(batches(bar), reader.schema, sink)
        elif name == "jsonl":
            _write_json_lines(batches(bar), sink)
        else:
            _write_arrow(batches(bar), reader.schema, sink, stream=stream)
    return rows


def _write_parquet(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes]) -> None:
    """Write a Parquet file; small batches are collected, so that row groups have a useful size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pending: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            pending.append(batch)
            size += batch.nbytes
            if size >= _ROW_GROUP:
                writer.write_table(pa.Table.from_batches(pending, schema))
                pending, size = [], 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))


def _write_arrow(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes], *, stream: bool) -> None:
    """Write the IPC file format, or the stream format where a reader cannot seek."""
    import pyarrow as pa

    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_json_lines(batches: Iterator[pa.RecordBatch], sink: IO[bytes]) -> None:
    for batch in batches:
        for start in range(0, batch.num_rows, _TEXT_ROWS):
            rows = batch.slice(start, _TEXT_ROWS).to_pylist()
            sink.write("".join(f"{to_json(row)}\n" for row in rows).encode())


def _write_csv(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes]) -> None:
    """Write nested values as JSON text and binaries as base64; a null is empty, an empty text is `""`."""
    import pyarrow as pa
    import pyarrow.csv

    encoders = [_encoder(field.type) for field in schema]
    text = [
        field.with_type(pa.string()) if encode else field for field, encode in zip(schema, encoders, strict=True)
    ]
    with pyarrow.csv.CSVWriter(sink, pa.schema(text)) as writer:
        for batch in batches:
            arrays = [
                array if encode is None else _encoded(array, encode)
                for array, encode in zip(batch.columns, encoders, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(text)))


def _encoder(kind: pa.DataType) -> Callable[[Any], str] | None:
    """Return the function that writes a value as text; None if CSV has a form for the type."""
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return to_json
    return plain if pa.types.is_binary(kind) else None


def _encoded(array: pa.Array, encode: Callable[[Any], str]) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if value is None else encode(value) for value in array.to_pylist()], pa.string())
