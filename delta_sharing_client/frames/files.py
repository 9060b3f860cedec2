"""Record batches to Parquet, CSV, JSON lines and Arrow IPC files, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from delta_sharing_client.errors import ColumnError, DataError
from delta_sharing_client.log.durable_files import replacing
from delta_sharing_client.paths import local_path
from delta_sharing_client.representation import plain, to_json

FileFormat: TypeAlias = Literal["parquet", "csv", "jsonl", "arrow"]
Target: TypeAlias = str | os.PathLike[str] | IO[bytes]

#: Formats that represent nested values and variants as JSON text.
TEXT_FORMATS: Final = ("csv", "jsonl")
_SUFFIXES: Final[dict[str, FileFormat]] = {
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


def target_of(target: Target) -> Path | IO[bytes]:
    """Return the path that a target names, or the target itself if it is an open file.

    Raises:
        TypeError, ValueError: it is neither; see `local_path`.
    """
    if not isinstance(target, str | os.PathLike) and hasattr(target, "write"):
        return target
    return local_path(target, "target", supported="a path of this machine, its file: URL, or an open binary file")


def format_of(target: Target, given: str | None) -> FileFormat:
    """Return the format for a target: the given one, or that of the file name.

    Raises:
        ValueError: neither is known.
    """
    path = Path(target) if isinstance(target, str | os.PathLike) else None
    for name in get_args(FileFormat):
        if given == name or (given is None and path is not None and _SUFFIXES.get(path.suffix.lower()) == name):
            return name  # type: ignore[no-any-return]  # an element of the literal type
    wrong = f"the format {given!r}" if given is not None else f"the format of {str(path or 'an open file')!r}"
    raise ValueError(f"{wrong} is unknown: give the format, one of {', '.join(get_args(FileFormat))}")


@contextmanager
def opened(target: Target, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Open a target for writing; a path is replaced when everything is written, unless an exception is raised.

    Raises:
        OSError: the path exists, is no file, or cannot be written.
    """
    if not isinstance(target, str | os.PathLike):
        yield target
        target.flush()
        return
    path = Path(os.path.realpath(target))  # the target of a link is replaced, and not the link
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory: give a file")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is a device or a pipe: give a file, or an open binary file")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists: give another file, or overwrite=True to replace it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} to write {path.name} in")
    with replacing(path, overwrite=overwrite) as file:
        yield file


def write_batches(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes], file_format: FileFormat, *, stream: bool
) -> int:
    """Write batches of a schema to an open file; return the number of rows.

    Args:
        batches: the rows.
        schema: their schema.
        sink: the file.
        file_format: its format.
        stream: write the stream format of Arrow, for a file that is read as it is written.

    Raises:
        ColumnError: there is no column; the number of rows would be lost.
        DataError: the format cannot represent the rows.
    """
    if not len(schema):
        raise ColumnError("a file needs at least one column; the scan has none: name one with columns=[...]")
    write = _WRITERS["stream" if stream and file_format == "arrow" else file_format]
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            yield batch
            rows += batch.num_rows

    try:
        write(counted(), schema, sink)
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(
            f"the rows cannot be written as {file_format}: {error}; leave the column out, or use another format"
        ) from error
    return rows


def _write_parquet(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes]) -> None:
    """Write a Parquet file; small batches are collected, so that row groups have a useful size."""
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


def _write_arrow(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes]) -> None:
    _write_ipc(pa.ipc.new_file(sink, schema), batches)


def _write_stream(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes]) -> None:
    _write_ipc(pa.ipc.new_stream(sink, schema), batches)


def _write_ipc(writer: pa.ipc.RecordBatchStreamWriter, batches: Iterator[pa.RecordBatch]) -> None:
    with writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_json_lines(batches: Iterator[pa.RecordBatch], _: pa.Schema, sink: IO[bytes]) -> None:
    for batch in batches:
        for start in range(0, batch.num_rows, _TEXT_ROWS):
            rows = batch.slice(start, _TEXT_ROWS).to_pylist()
            sink.write("".join(f"{to_json(row)}\n" for row in rows).encode())


def _write_csv(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: IO[bytes]) -> None:
    """Write nested values as JSON text and binaries as base64; a null is empty, an empty text is `""`."""
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
    if pa.types.is_nested(kind):
        return to_json
    return plain if pa.types.is_binary(kind) else None


def _encoded(array: pa.Array, encode: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else encode(value) for value in array.to_pylist()], pa.string())


_WRITERS: Final = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "jsonl": _write_json_lines,
    "arrow": _write_arrow,
    "stream": _write_stream,
}
