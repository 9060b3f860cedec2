"""Lookup of a table's columns in a Parquet file: its Parquet columns, or its partition values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.column_mapping import MappingMode, physical_name
from delta_sharing_client.model.partition_values import Value, parse_partition_value
from delta_sharing_client.model.schema import StructField
from delta_sharing_client.parquet.assemble import Assembly
from delta_sharing_client.parquet.cast import FieldFinder
from delta_sharing_client.parquet.layout import LocatedColumn
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

#: The table's columns, the positions and names of those with a partition value, and the assembly.
_Located: TypeAlias = tuple[list[LocatedColumn], list[tuple[int, str]], Assembly]
#: Sets of partition columns whose columns are kept; a table has one.
_MOST_LOCATED: Final = 64


class Layout:
    """The top-level fields of a file with their Parquet columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._fields = [schema.field(i) for i in range(len(schema))]
        self._starts = [0, *itertools.accumulate(_leaf_count(field.type) for field in self._fields)]
        self._found: dict[tuple[MappingMode, str], tuple[int, ...]] = {}
        self._assemblies: dict[tuple[tuple[int, ...], ...], Assembly] = {}
        #: Results of `_locate` by the names of a file's partition values.
        self.located: dict[tuple[str, ...], _Located] = {}

    def leaves(self, wanted: StructField, mode: MappingMode, file_id: str) -> tuple[int, ...]:
        """Return the Parquet columns of a column of the table; empty if the file lacks it."""
        key = mode, wanted.name
        found = self._found.get(key)
        if found is None:
            place = FieldFinder(mode, file_id).find(wanted, self._fields)
            found = () if place is None else tuple(range(self._starts[place], self._starts[place + 1]))
            self._found[key] = found
        return found

    def assembly(self, columns: Sequence[LocatedColumn], spec: ReadSpec) -> Assembly:
        """Return the assembly of the columns; it is shared by files with equal schemas."""
        key = tuple(column.leaves for column in columns)
        found = self._assemblies.get(key)
        if found is None:
            indexed = any(pa.types.is_dictionary(field.type) for field in self._fields)
            found = self._assemblies[key] = Assembly(columns, spec, indexed=indexed)
        return found


class LayoutCache:
    """Keeps the layout of the last opened file, because most files of a table have equal schemas.

    For one `ReadSpec`. Thread-safe.
    """

    def __init__(self) -> None:
        self._last: Layout | None = None

    def of(self, schema: pa.Schema) -> Layout:
        """Return the layout of a file with that schema."""
        last = self._last
        if last is None or not last.schema.equals(schema, check_metadata=True):
            last = self._last = Layout(schema)
        return last


def locate(layout: Layout, task: FileScanTask, spec: ReadSpec) -> tuple[Sequence[LocatedColumn], Assembly]:
    """Locate each column of the table in a file or its partition values.

    Args:
        layout: the file's layout.
        task: the file.
        spec: what to read of it.

    Returns:
        The columns, and their assembly.

    Raises:
        DataError: the file lacks the field ids of the column mapping, or a partition value is malformed.
    """
    if task.constants:
        columns, stated, assembly = _locate(layout, task, spec)
    else:
        names = tuple(task.partition_values)
        found = layout.located.get(names)
        if found is None:
            found = _locate(layout, task, spec)
            if len(layout.located) < _MOST_LOCATED:
                layout.located[names] = found
        columns, stated, assembly = found
    if stated:
        columns = columns.copy()
        for place, name in stated:
            wanted = columns[place].field
            value = _partition_value(task.partition_values[name], wanted, task)
            columns[place] = LocatedColumn(wanted, value=value)
    return columns, assembly


def _locate(layout: Layout, task: FileScanTask, spec: ReadSpec) -> _Located:
    values = {name.lower(): name for name in task.partition_values}
    columns: list[LocatedColumn] = []
    places: list[tuple[int, str]] = []
    for wanted in spec.fields:
        if wanted.name in task.constants:
            columns.append(LocatedColumn(wanted, value=task.constants[wanted.name]))
            continue
        if wanted.name in spec.unmapped:
            leaves = layout.leaves(wanted, "none", task.file_id)
            if not leaves:
                raise DataError(f"it has no column {wanted.name!r}", file_id=task.file_id)
            columns.append(LocatedColumn(wanted, leaves=leaves))
            continue
        stated = None
        if values:
            names = (physical_name(wanted, spec.mapping).lower(), wanted.name.lower())
            stated = next((name for name in names if name in values), None)
        if stated is not None and wanted.name in spec.partition_columns:
            places.append((len(columns), values[stated]))
            columns.append(LocatedColumn(wanted))
            continue
        leaves = layout.leaves(wanted, spec.mapping, task.file_id)
        if stated is not None and not leaves:
            places.append((len(columns), values[stated]))
        columns.append(LocatedColumn(wanted, leaves=leaves))
    return columns, places, layout.assembly(columns, spec)


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


def _partition_value(text: str | None, column: StructField, task: FileScanTask) -> Value:
    try:
        return parse_partition_value(text, column.type)
    except ValueError as error:
        raise DataError(f"partition column {column.name!r}: {error}", file_id=task.file_id) from None
