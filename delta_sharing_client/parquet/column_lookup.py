"""Lookup of a table's columns in a Parquet file: its Parquet columns, or its partition values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.column_mapping import MappingMode, physical_name
from delta_sharing_client.model.partition_values import (
    MISSING,
    Missing,
    Value,
    parse_partition_value,
    partition_text,
)
from delta_sharing_client.model.schema import StructField
from delta_sharing_client.parquet.assemble import Assembly
from delta_sharing_client.parquet.cast import FieldFinder
from delta_sharing_client.parquet.read_units import LocatedColumn
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

#: The table's columns, the positions of those with a partition value or a constant, and the assembly.
_Located: TypeAlias = tuple[list[LocatedColumn], list[int], Assembly]
#: Sets of partition columns and constants whose columns are kept; a table has one or two.
_MOST_LOCATED: Final = 64


class ColumnLocator:
    """The top-level fields of files with equal schemas, with their Parquet columns; for one `ReadSpec`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._fields = [schema.field(i) for i in range(len(schema))]
        self._starts = [0, *itertools.accumulate(_leaf_count(field.type) for field in self._fields)]
        self._located: dict[tuple[tuple[str, ...], tuple[str, ...]], _Located] = {}

    def locate(self, task: FileScanTask, spec: ReadSpec) -> tuple[Sequence[LocatedColumn], Assembly]:
        """Return each column of the table with its place in a file or its value, and the assembly of the columns.

        Raises:
            DataError: the file lacks the field ids of the column mapping, or a partition value is malformed.
        """
        names = tuple(task.partition_values), tuple(task.constants)
        found = self._located.get(names)
        if found is None:
            found = self._locate(task, spec)
            if len(self._located) < _MOST_LOCATED:
                self._located[names] = found
        columns, stated, assembly = found
        if stated:
            columns = columns.copy()
            for place in stated:
                wanted = columns[place].field
                columns[place] = LocatedColumn(wanted, value=_value(task, wanted, _mapping(wanted, spec)))
        return columns, assembly

    def _locate(self, task: FileScanTask, spec: ReadSpec) -> _Located:
        columns: list[LocatedColumn] = []
        places: list[int] = []
        for wanted in spec.fields:
            mapping = _mapping(wanted, spec)
            stated = wanted.name in task.constants
            if not stated and task.partition_values and wanted.name not in spec.unmapped:
                stated = _text(task, wanted, mapping) is not MISSING
            leaves: tuple[int, ...] = ()
            if wanted.name not in task.constants and (not stated or wanted.name not in spec.partition_columns):
                leaves = self._leaves(wanted, mapping, task.file_id)
                if wanted.name in spec.unmapped and not leaves:
                    raise DataError(f"it has no column {wanted.name!r}", file_id=task.file_id)
            if stated and not leaves:
                places.append(len(columns))
            columns.append(LocatedColumn(wanted, leaves))
        indexed = any(pa.types.is_dictionary(field.type) for field in self._fields)
        return columns, places, Assembly(columns, spec, indexed=indexed)

    def _leaves(self, wanted: StructField, mode: MappingMode, file_id: str) -> tuple[int, ...]:
        """Return the Parquet columns of a column of the table; empty if the files lack it."""
        place = FieldFinder(mode, file_id).find(wanted, self._fields)
        return () if place is None else tuple(range(self._starts[place], self._starts[place + 1]))


class ColumnLocatorCache:
    """Keeps the last column locator, because most files of a table have equal schemas. Thread-safe."""

    def __init__(self) -> None:
        self._last: ColumnLocator | None = None

    def of(self, schema: pa.Schema) -> ColumnLocator:
        """Return the column locator of a file with that schema."""
        last = self._last
        if last is None or not last.schema.equals(schema, check_metadata=True):
            last = self._last = ColumnLocator(schema)
        return last


def _leaf_count(kind: pa.DataType) -> int:
    """Return the number of Parquet columns of a field."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if pa.types.is_struct(kind):
        return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    if pa.types.is_nested(kind):
        return _leaf_count(kind.value_type)
    return 1


def _mapping(column: StructField, spec: ReadSpec) -> MappingMode:
    return "none" if column.name in spec.unmapped else spec.mapping


def _text(task: FileScanTask, column: StructField, mapping: MappingMode) -> str | Missing | None:
    return partition_text(task.partition_values, physical_name(column, mapping), column.name)


def _value(task: FileScanTask, column: StructField, mapping: MappingMode) -> Value:
    if column.name in task.constants:
        return task.constants[column.name]
    text = _text(task, column, mapping)
    try:
        return None if text is MISSING else parse_partition_value(text, column.type)
    except ValueError as error:
        raise DataError(f"partition column {column.name!r}: {error}", file_id=task.file_id) from None
