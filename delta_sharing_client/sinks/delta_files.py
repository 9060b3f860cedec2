"""Data files of a Delta table that a sink writes: Parquet, with statistics, durable before they are committed.

Serves "Data Files", "Column Mapping", "Partition Value Serialization" and "Per-file Statistics".
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_sharing_client.delta.log import Metadata, Protocol, uri_of
from delta_sharing_client.delta.log.durable_files import make_directories, remove_quietly, sync_directory, writing
from delta_sharing_client.delta.log.log_schema import maps_columns, partition_fields
from delta_sharing_client.delta.log.table_features import has_feature
from delta_sharing_client.errors import SinkError, UnsupportedTypeError
from delta_sharing_client.model.column_mapping import MappingMode, field_id, mapping_mode, physical_name
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
)
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.parquet.cast import FieldFinder, conform, is_variant
from delta_sharing_client.sinks.delta_stats import StatsWriter
from delta_sharing_client.sinks.keys import numbers_of

#: Rows are collected up to about this size, and then written.
_FILE_BYTES: Final = 256 * 1024 * 1024
_CHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
_FIELD_ID: Final = b"PARQUET:field_id"
_VARIANT: Final = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)


class DeltaFiles:
    """Writes the rows of one commit.

    Args:
        directory: the table's directory.
        protocol: the table's, as it is in force after the commit.
        metadata: the table's, likewise.
        target: the table, for messages.

    Attributes:
        schema: the table's columns.
        actions: the `add` actions of the files that were written.
        rows: how many rows they have.
    """

    def __init__(self, directory: Path, protocol: Protocol, metadata: Metadata, target: str) -> None:
        self.schema = parse_schema(metadata.schema_string)
        self.actions: list[dict[str, Any]] = []
        self.rows = 0
        self._directory = directory
        self._target = target
        self._mode: MappingMode = mapping_mode(metadata.configuration) if maps_columns(metadata) else "none"
        partitions = partition_fields(metadata)
        by_name = {field.name: field for field in self.schema}
        self._partitions = {name: by_name[str(field["name"])] for name, field in partitions.items()}
        inside = has_feature(protocol, "materializePartitionColumns")
        left_out = {} if inside else {field.name for field in self._partitions.values()}
        # A file has no column for a type that has no values.
        self._fields = [f for f in self.schema if f.name not in left_out and str(f.type) != "void"]
        self._stats = StatsWriter(self._fields, metadata.configuration, self._mode)
        self._made: list[Path] = []

    def write(self, tables: Iterable[pa.Table]) -> None:
        """Write rows, in files of bounded size, one at least for each combination of partition values.

        Args:
            tables: rows with columns named as those of the table; one that is missing is null.

        Raises:
            SinkError: a value breaks a rule of the table.
            DiskFullError, DeltaLogError: the file system refuses.
        """
        held: list[pa.Table] = []
        size = 0
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size >= _FILE_BYTES:
                self._flush(held)
                held, size = [], 0
        self._flush(held)

    def sync(self) -> None:
        """Make the names of the files durable; before the commit."""
        if self._made:
            with writing("the data", self._directory):
                sync_directory(self._directory)

    def discard(self) -> None:
        """Remove what was written: nothing was committed."""
        for path in self._made:
            remove_quietly(path)

    def _flush(self, tables: list[pa.Table]) -> None:
        whole = pa.concat_tables(tables) if tables else None
        if whole is None or whole.num_rows == 0:
            return
        for values, rows in self._parts(whole):
            self._file(rows, values)

    def _parts(self, table: pa.Table) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
        if not self._partitions:
            yield {}, table
            return
        given = [field.name for field in self._partitions.values() if field.name in table.column_names]
        numbers = numbers_of(table, given)
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for begin, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            rows = table.take(order[begin:stop])
            values = {
                name: partition_text(rows.column(field.name)[0], field, self._target)
                if field.name in given
                else None
                for name, field in self._partitions.items()
            }
            yield values, rows

    def _file(self, rows: pa.Table, values: dict[str, str | None]) -> None:
        columns = [self._column(field, rows) for field in self._fields]
        schema = pa.schema([_arrow_field(field, self._mode) for field in self._fields])
        data = pa.Table.from_arrays(columns, schema=schema)
        searchable = _searchable(data)
        path = self._directory / f"part-{uuid.uuid4()}.snappy.parquet"
        with writing("the data", self._directory):
            make_directories(self._directory)
            self._made.append(path)
            with path.open("xb") as file:
                with pq.ParquetWriter(
                    file,
                    schema,
                    compression="snappy",
                    coerce_timestamps="us",
                    store_schema=False,
                    use_dictionary=searchable,
                    write_statistics=searchable,
                ) as writer:
                    writer.write_table(data, row_group_size=1024 * 1024)
                file.flush()
                os.fsync(file.fileno())
            size = path.stat().st_size
        self.rows += data.num_rows
        self.actions.append(
            {
                "add": {
                    "path": uri_of(path.name),
                    "partitionValues": values,
                    "size": size,
                    "modificationTime": int(time.time() * 1000),
                    "dataChange": True,
                    "stats": json.dumps(self._stats.of(data), separators=(",", ":")),
                }
            }
        )

    def _column(self, field: StructField, rows: pa.Table) -> pa.Array:
        target = _arrow_field(field, self._mode).type
        if field.name in rows.column_names:
            column = rows.column(field.name).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = pa.concat_arrays(column.chunks)
        else:
            column = pa.nulls(rows.num_rows, arrow_type(field.type))
        check_not_null(column, field, self._target)
        if is_variant(field.type):
            return _variant(column)
        return conform(column, field.type, target, FieldFinder("none", "the batch", field.name))


def _searchable(data: pa.Table) -> bool | list[str]:
    """Say which columns get statistics and a dictionary inside the file; True for all.

    Spark takes both for all of the values, and compares them bit by bit. Arrow leaves NaN out of the statistics,
    and keeps -0.0 apart from 0.0 in a dictionary: a search for either would find nothing.
    """
    unsafe = {field.name for field, column in zip(data.schema, data.columns, strict=True) if _is_odd(column)}
    if not unsafe:
        return True
    return [field.name for field in data.schema if field.name not in unsafe and not pa.types.is_nested(field.type)]


def _is_odd(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if not pa.types.is_floating(kind):
        return _holds_floats(kind)
    values = column.drop_null().to_numpy()
    return bool((np.isnan(values) | ((values == 0) & np.signbit(values))).any())


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_holds_floats(kind.field(i).type) for i in range(kind.num_fields))


def _variant(column: pa.StructArray) -> pa.Array:
    parts = [pc.fill_null(column.field(name), b"") for name in ("metadata", "value")]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(_VARIANT), mask=mask)


def _arrow_field(field: StructField, mode: MappingMode) -> pa.Field:
    metadata = None if mode == "none" else {_FIELD_ID: str(field_id(field)).encode()}
    return pa.field(physical_name(field, mode), _file_type(field.type, mode), metadata=metadata)


def _file_type(kind: DataType, mode: MappingMode) -> pa.DataType:
    if is_variant(kind):
        return _VARIANT
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field, mode) for field in kind])
    if isinstance(kind, ArrayType):
        return pa.list_(_file_type(kind.element, mode))
    if isinstance(kind, MapType):
        return pa.map_(_file_type(kind.key, mode), _file_type(kind.value, mode))
    return arrow_type(kind)


def check_not_null(array: pa.Array, field: StructField, target: str) -> None:
    """Raise `SinkError` if a column, or something inside it, is null and must not be.

    Args:
        array: the column.
        field: the table's.
        target: the table, for messages.
    """
    if not field.nullable and array.null_count:
        raise SinkError(
            f"the column {field.name!r} must not be null there, and the batch has {array.null_count} nulls; relax "
            "the table's column",
            target=target,
            columns=[field.name],
        )
    _check_length(array, field, target)
    _check_inside(array, field.type, field.name, target)


def _check_length(array: pa.Array, field: StructField, target: str) -> None:
    """Raise if a text is longer than the column's `char(n)` or `varchar(n)` lets it be."""
    declared = re.fullmatch(r"(?:var)?char\(\s*(\d+)\s*\)", str(field.metadata.get(_CHAR, "")))
    if declared is not None and pa.types.is_string(array.type):
        longest = pc.max(pc.utf8_length(array)).as_py() or 0
        if longest > int(declared[1]):
            raise SinkError(
                f"the column {field.name!r} is {declared[0]} there, and the batch has a text of {longest} "
                "characters",
                target=target,
                columns=[field.name],
            )


def _check_inside(array: pa.Array, kind: DataType, path: str, target: str) -> None:
    if isinstance(kind, StructType) and not is_variant(kind):
        for position, field in enumerate(kind):
            child = array.field(position)
            if array.null_count:
                child = child.filter(array.is_valid())
            named = StructField(f"{path}.{field.name}", field.type, field.nullable)
            check_not_null(child, named, target)
    elif isinstance(kind, ArrayType):
        inner = StructField(f"{path}.element", kind.element, kind.contains_null)
        check_not_null(array.flatten(), inner, target)
    elif isinstance(kind, MapType):
        items = array.filter(array.is_valid()) if array.null_count else array
        items = pa.concat_arrays([items])
        entries = items.items[items.offsets[0].as_py() : items.offsets[-1].as_py()] if len(items) else items.items
        inner = StructField(f"{path}.value", kind.value, kind.value_contains_null)
        check_not_null(entries, inner, target)


def partition_text(value: pa.Scalar, field: StructField, target: str) -> str | None:
    """Return a partition value as the log writes it; times in UTC, in ISO 8601.

    Args:
        value: the value.
        field: the partition column.
        target: the table, for messages.

    Raises:
        SinkError: the empty text, which the log cannot tell from null; a date or time that has no text.
        UnsupportedTypeError: bytes, or a type that cannot partition a table.
    """
    name = field.type.name if isinstance(field.type, PrimitiveType) else str(field.type)
    if name in ("binary", "variant") or isinstance(field.type, StructType | ArrayType | MapType):
        raise UnsupportedTypeError(
            f"{target}: the table is partitioned by {field.name!r}, which is {field.type}; this release does not "
            "write such partition values",
            type_name=name,
        )
    try:
        python = value.as_py()
    except (ValueError, OverflowError):
        raise SinkError(
            f"a value of the partition column {field.name!r} is outside the years 1 to 9999",
            target=target,
            columns=[field.name],
        ) from None
    if python is None:
        return None
    if python == "":
        raise SinkError(
            f"the partition column {field.name!r} has an empty text, which a Delta table cannot tell from null",
            target=target,
            columns=[field.name],
        )
    if isinstance(python, bool):
        return "true" if python else "false"
    if name == "timestamp":
        return str(python.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0"))
    if name == "timestamp_ntz":
        return str(python.isoformat(" ", "microseconds"))
    return format(python, "f") if name.startswith("decimal") else str(python)
