"""Where the columns of a table are in a Parquet file: in which of its columns, or in its partition values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa

from delta_sharing_client.errors import DataError
from delta_sharing_client.protocol.column_mapping import MappingMode, physical_name
from delta_sharing_client.protocol.partition_values import Value, parse_partition_value
from delta_sharing_client.protocol.schema import StructField
from delta_sharing_client.read.assemble import Assembly
from delta_sharing_client.read.conform import FieldFinder
from delta_sharing_client.read.layout import LocatedColumn
from delta_sharing_client.scan.tasks import FileScanTask, ReadSpec


class Layout:
    """The top-level fields of a file, and which Parquet columns they take."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._fields = [schema.field(i) for i in range(len(schema))]
        self._starts = [0, *itertools.accumulate(_leaf_count(field.type) for field in self._fields)]
        self._found: dict[tuple[MappingMode, str], tuple[int, ...]] = {}
        self._assemblies: dict[tuple[tuple[int, ...], ...], Assembly] = {}
        #: The columns of a file of which nothing is known but its schema.
        self.columns: list[LocatedColumn] | None = None

    def leaves(self, wanted: StructField, mode: MappingMode, file_id: str) -> tuple[int, ...]:
        """Return the Parquet columns of a column of the table; none where the file does not hold it."""
        key = mode, wanted.name
        found = self._found.get(key)
        if found is None:
            place = FieldFinder(mode, file_id).find(wanted, self._fields)
            found = () if place is None else tuple(range(self._starts[place], self._starts[place + 1]))
            self._found[key] = found
        return found

    def assembly(self, columns: Sequence[LocatedColumn], spec: ReadSpec) -> Assembly:
        """Return what makes the table's columns of the decoded ones; the same for files that are alike."""
        key = tuple(column.leaves for column in columns)
        found = self._assemblies.get(key)
        if found is None:
            found = self._assemblies[key] = Assembly(columns, spec)
        return found


class Layouts:
    """Remembers the layout of the last file that was opened: most files of a table have the same.

    For one `ReadSpec`. Several threads may use it.
    """

    def __init__(self) -> None:
        self._last: Layout | None = None

    def of(self, schema: pa.Schema) -> Layout:
        """Return the layout of a file with that schema."""
        last = self._last
        if last is None or not last.schema.equals(schema, check_metadata=True):
            last = self._last = Layout(schema)
        return last


def locate(layout: Layout, task: FileScanTask, spec: ReadSpec) -> Sequence[LocatedColumn]:
    """Find each column of the table in the file, among its partition values, or nowhere.

    Args:
        layout: the file's.
        task: the file.
        spec: what to read of it.

    Raises:
        DataError: the file lacks the field ids by which it is to be read, or a partition value is malformed.
    """
    alike = not task.partition_values and not task.constants
    if alike and layout.columns is not None:
        return layout.columns
    values = {name.lower(): value for name, value in task.partition_values.items()}
    columns = []
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
            columns.append(LocatedColumn(wanted, value=_partition_value(values[stated], wanted, task)))
            continue
        leaves = layout.leaves(wanted, spec.mapping, task.file_id)
        if leaves:
            columns.append(LocatedColumn(wanted, leaves=leaves))
        elif stated is not None:
            columns.append(LocatedColumn(wanted, value=_partition_value(values[stated], wanted, task)))
        else:
            columns.append(LocatedColumn(wanted))
    if alike:
        layout.columns = columns
    return columns


def _leaf_count(kind: pa.DataType) -> int:
    """How many Parquet columns a field of that type takes."""
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
