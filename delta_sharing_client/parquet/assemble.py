"""Decoded row groups to the table's columns: cast to the table schema, validated, with constants added.

The steps for each column depend on the file's schema only. They are determined once for files with equal schemas:
for many small files, this would otherwise take as long as decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.schema import StructField, StructType
from delta_sharing_client.parquet.arrow_types import arrow_schema, scalar_of
from delta_sharing_client.parquet.cast import FieldFinder, cast_to_schema, check_texts, holds_variant, look_up
from delta_sharing_client.parquet.legacy_calendar import LegacyCalendar
from delta_sharing_client.parquet.read_units import LocatedColumn
from delta_sharing_client.parquet.row_sizes import Widths
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

#: Bytes of a column of variants that are cast at a time.
_VARIANT_BYTES: Final = 64 * 1024 * 1024
#: Number of decoded schemas whose steps are kept.
_MAX_STEPS: Final = 8
#: Maximum bytes of an array of one repeated text.
_CONSTANT_BYTES: Final = 64 * 1024 * 1024


class _Steps(Struct, frozen=True):
    """The steps for the columns of a decoded schema.

    Attributes:
        decoded: the schema.
        has_type: for each column of the table, whether the decoded column has its type.
        has_texts: whether it may have strings, which the Parquet reader does not validate.
    """

    decoded: pa.Schema
    has_type: tuple[bool, ...]
    has_texts: tuple[bool, ...]


class Assembly:
    """Builds the table's columns from decoded row groups of files with equal schemas. Thread-safe.

    Args:
        columns: the table's columns, located in the files.
        spec: what is read.
        indexed: whether the files have columns that are decoded as dictionary indices.
    """

    def __init__(self, columns: Sequence[LocatedColumn], spec: ReadSpec, *, indexed: bool = False) -> None:
        self._spec = spec
        self.indexed = indexed
        self._schema = arrow_schema(StructType(spec.fields), spec.variant)
        self._types = self._schema.types
        #: The Parquet columns to decode.
        self.leaves = sorted({leaf for column in columns for leaf in column.leaves})
        # Decoded tables have the requested top-level columns in the file's order.
        firsts = sorted({column.leaves[0] for column in columns if column.leaves})
        self._places = tuple(firsts.index(column.leaves[0]) if column.leaves else None for column in columns)
        self._steps: list[_Steps] = []
        self._widths: Widths | None = None

    def widths(self, schema: pq.ParquetSchema, columns: Sequence[LocatedColumn]) -> Widths:
        """Return the sizes of decoded rows of a file with that Parquet schema."""
        widths = self._widths
        if widths is None or not schema.equals(widths.schema):
            widths = self._widths = Widths.of(schema, columns, self._types)
        return widths

    def build(
        self,
        table: pa.Table | None,
        columns: Sequence[LocatedColumn],
        rows: int,
        task: FileScanTask,
        calendar: LegacyCalendar | None,
        metadata: pq.FileMetaData,
    ) -> pa.Table:
        """Return the table's columns of decoded rows; `table` is None if the file has none of the columns.

        Raises:
            DataError: values do not fit the table's types.
            UnsupportedTableError: the file has old times in an unknown calendar or time zone.
        """
        steps = None if table is None else self._steps_of(table.schema)
        chunks: list[pa.ChunkedArray] = []
        for position, column in enumerate(columns):
            place, target = self._places[position], self._types[position]
            if table is None or steps is None or place is None:
                chunks.append(_constant(column, target, rows))
                continue
            source = table.column(place)
            has_type = steps.has_type[position]
            if calendar is not None:
                physical = [metadata.schema.column(leaf).physical_type for leaf in column.leaves]
                subject = f"file {task.file_id}: column {column.field.name!r}"
                source = calendar.rebase(source, physical, subject)
                has_type = has_type and source.type == target
            if not has_type or steps.has_texts[position]:
                try:
                    source = _checked(source) if has_type else self._cast(source, column.field, target, task)
                except pa.ArrowException as error:
                    wanted = column.field
                    raise DataError(
                        f"column {wanted.name!r} is {wanted.type} in the table and {source.type} in the file, "
                        f"and its values do not fit: {reason(error)}",
                        file_id=task.file_id,
                    ) from None
            chunks.append(source)
        return pa.Table.from_arrays(chunks, schema=self._schema)

    def _cast(
        self, source: pa.ChunkedArray, column: StructField, target: pa.DataType, task: FileScanTask
    ) -> pa.ChunkedArray:
        finder = FieldFinder(self._spec.mapping, task.file_id, column.name)
        chunks: Any = source.chunks
        if pa.types.is_string(target) and pa.types.is_dictionary(source.type) and source.type.value_type == target:
            return pa.chunked_array([_looked_up(chunk) for chunk in chunks], target)
        if holds_variant(column.type):
            # JSON texts and rebuilt values may be many times as large as the file's bytes.
            chunks = [part for chunk in chunks for part in _slices(chunk)]
        chunks = [cast_to_schema(chunk, column.type, target, finder) for chunk in chunks]
        return _checked(pa.chunked_array(chunks, target))

    def _steps_of(self, decoded: pa.Schema) -> _Steps:
        # Row groups of a file may differ: strings are decoded as such or as dictionary indices.
        for steps in self._steps:
            if decoded.equals(steps.decoded):
                return steps
        has_type, has_texts = [], []
        for place, target, wanted in zip(self._places, self._types, self._spec.fields, strict=True):
            nested = pa.types.is_nested(target)
            same = place is not None and decoded.field(place).type == target
            same = same and (self._spec.mapping == "none" or not nested) and not holds_variant(wanted.type)
            has_type.append(same)
            has_texts.append(nested or pa.types.is_string(target))
        found = _Steps(decoded, tuple(has_type), tuple(has_texts))
        self._steps = [found, *self._steps[: _MAX_STEPS - 1]]
        return found


def _checked(column: pa.ChunkedArray) -> pa.ChunkedArray:
    for chunk in column.chunks:
        check_texts(chunk)
    return column


def _looked_up(chunk: pa.DictionaryArray) -> pa.StringArray:
    """Return the texts of dictionary indices; each text of the dictionary is validated once."""
    texts = look_up(chunk)
    try:
        check_texts(chunk.dictionary)
    except pa.ArrowInvalid:
        check_texts(texts)  # no row may have the invalid one
    return texts


def _slices(chunk: pa.Array) -> Iterator[pa.Array]:
    """Yield slices of a chunk of about `_VARIANT_BYTES`."""
    rows = max(1, len(chunk) * _VARIANT_BYTES // max(chunk.nbytes, 1))
    for start in range(0, len(chunk), rows):
        yield chunk.slice(start, rows)


def _constant(column: LocatedColumn, target: pa.DataType, rows: int) -> pa.ChunkedArray:
    value = column.value
    if value is None:
        return pa.chunked_array([pa.nulls(rows, target)])
    # Arrow does not detect texts that are too large for one array; the parts share one block.
    size = 4 * len(value) if isinstance(value, str | bytes) else 0
    step = min(rows, max(1, _CONSTANT_BYTES // size) if size else rows)
    block = pa.repeat(scalar_of(value, target), step)
    return pa.chunked_array([block.slice(0, rows - start) for start in range(0, rows, step)], target)


def reason(error: BaseException) -> str:
    """Return the first line of a library's message; later lines are stack contexts."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else "")[:300] or type(error).__name__
