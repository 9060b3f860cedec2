"""From a decoded row group to the columns of the table: conformed, checked, completed.

What has to be done to each column depends on the file's schema alone. It is found out once for all files that
are alike: of a table of many small files, this would else take as long as decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import DataType, StructField, StructType
from delta_sharing_client.parquet.arrow_types import arrow_schema, arrow_type
from delta_sharing_client.parquet.cast import FieldFinder, check_texts, conform, holds_variant
from delta_sharing_client.parquet.layout import LocatedColumn
from delta_sharing_client.parquet.legacy_calendar import LegacyCalendar
from delta_sharing_client.parquet.row_sizes import Widths
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

#: Bytes of a column of variants that are brought to its type at a time.
_VARIANT_BYTES: Final = 64 * 1024 * 1024
#: Schemas that files of one layout may be decoded to, of which is remembered what is to be done.
_MOST_KINDS: Final = 8
#: Bytes of one text, repeated, that are put into one array.
_CONSTANT_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Kinds:
    """What is to be done with columns that are decoded to a schema.

    Attributes:
        decoded: the schema.
        as_it_is: of each column of the table, whether the file has it in the table's type.
        texts: whether it may hold texts, which the Parquet reader does not look at.
    """

    decoded: pa.Schema
    as_it_is: tuple[bool, ...]
    texts: tuple[bool, ...]


class Assembly:
    """How the decoded columns of files of one layout become those of the table. Several threads may use it.

    Args:
        columns: where the columns of the table are in such a file.
        spec: what is read.
        indexed: whether such a file has columns that are decoded as positions in a dictionary.
    """

    def __init__(self, columns: Sequence[LocatedColumn], spec: ReadSpec, *, indexed: bool = False) -> None:
        self._spec = spec
        self.indexed = indexed
        self._schema = arrow_schema(StructType(spec.fields), spec.variant)
        self._types = self._schema.types
        #: The Parquet columns to decode.
        self.leaves = sorted({leaf for column in columns for leaf in column.leaves})
        # The decoded table has the asked-for top-level columns in the file's order.
        firsts = sorted({column.leaves[0] for column in columns if column.leaves})
        self._places = tuple(firsts.index(column.leaves[0]) if column.leaves else None for column in columns)
        self._kinds: list[_Kinds] = []
        self._widths: Widths | None = None

    def widths(self, schema: pq.ParquetSchema, columns: Sequence[LocatedColumn]) -> Widths:
        """Return what rows take when they are decoded.

        Args:
            schema: the file's.
            columns: the columns of the table, located in the file.
        """
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
        """Return the table's columns.

        Args:
            table: a decoded row group; None where the file holds none of the columns.
            columns: those of the table, located in the file.
            rows: how many rows the row group has.
            task: the file.
            calendar: the calendar that its times are in, if not everybody's.
            metadata: its footer.

        Raises:
            DataError: values do not fit the table's types.
            UnsupportedTableError: the file holds old times in a calendar or time zone that it does not tell.
        """
        kinds = None if table is None else self._kinds_of(table.schema)
        chunks: list[pa.ChunkedArray] = []
        for position, column in enumerate(columns):
            place, target = self._places[position], self._types[position]
            if table is None or kinds is None or place is None:
                chunks.append(_constant(column, target, rows))
                continue
            source = table.column(place)
            as_it_is = kinds.as_it_is[position]
            if calendar is not None:
                physical = [metadata.schema.column(leaf).physical_type for leaf in column.leaves]
                what = f"file {task.file_id}: column {column.field.name!r}"
                source = calendar.rebase(source, physical, what)
                as_it_is = as_it_is and source.type == target
            if not as_it_is or kinds.texts[position]:
                try:
                    source = _checked(source) if as_it_is else self._conform(source, column.field, target, task)
                except pa.ArrowException as error:
                    wanted = column.field
                    raise DataError(
                        f"column {wanted.name!r} is {wanted.type} in the table and {source.type} in the file, "
                        f"and its values do not fit: {reason(error)}",
                        file_id=task.file_id,
                    ) from None
            chunks.append(source)
        return pa.Table.from_arrays(chunks, schema=self._schema)

    def _conform(
        self, source: pa.ChunkedArray, column: StructField, target: pa.DataType, task: FileScanTask
    ) -> pa.ChunkedArray:
        finder = FieldFinder(self._spec.mapping, task.file_id, column.name)
        chunks: Any = source.chunks
        if pa.types.is_string(target) and pa.types.is_dictionary(source.type) and source.type.value_type == target:
            return pa.chunked_array([_looked_up(chunk) for chunk in chunks], target)
        if holds_variant(column.type):
            # Texts and values put together may take many times the bytes that the file holds.
            chunks = [part for chunk in chunks for part in _slices(chunk)]
        chunks = [conform(chunk, column.type, target, finder) for chunk in chunks]
        return _checked(pa.chunked_array(chunks, target))

    def _kinds_of(self, decoded: pa.Schema) -> _Kinds:
        # Texts come as they are, or as positions in a dictionary: that may change from one row group to the next.
        for kinds in self._kinds:
            if decoded.equals(kinds.decoded):
                return kinds
        as_it_is, texts = [], []
        for place, target, wanted in zip(self._places, self._types, self._spec.fields, strict=True):
            nested = pa.types.is_nested(target)
            same = place is not None and decoded.field(place).type == target
            same = same and (self._spec.mapping == "none" or not nested) and not holds_variant(wanted.type)
            as_it_is.append(same)
            texts.append(nested or pa.types.is_string(target))
        found = _Kinds(decoded, tuple(as_it_is), tuple(texts))
        self._kinds = [found, *self._kinds[: _MOST_KINDS - 1]]
        return found


def _checked(column: pa.ChunkedArray) -> pa.ChunkedArray:
    for chunk in column.chunks:
        check_texts(chunk)
    return column


def _looked_up(chunk: pa.DictionaryArray) -> pa.StringArray:
    """The texts of positions in a dictionary; each text is looked at once."""
    texts = chunk.dictionary_decode()
    try:
        check_texts(chunk.dictionary)
    except pa.ArrowInvalid:
        check_texts(texts)  # perhaps no row has the one that is wrong
    return texts


def _slices(chunk: pa.Array) -> Iterator[pa.Array]:
    """Cut a chunk so that no part takes much more than `_VARIANT_BYTES`."""
    rows = max(1, len(chunk) * _VARIANT_BYTES // max(chunk.nbytes, 1))
    for start in range(0, len(chunk), rows):
        yield chunk.slice(start, rows)


def _constant(column: LocatedColumn, target: pa.DataType, rows: int) -> pa.ChunkedArray:
    value = column.value
    if value is None:
        return pa.chunked_array([pa.nulls(rows, target)])
    # Texts that are too much for one array would silently spoil it; the parts share one block.
    size = 4 * len(value) if isinstance(value, str | bytes) else 0
    step = min(rows, max(1, _CONSTANT_BYTES // size) if size else rows)
    block = pa.repeat(value_scalar(value, column.field.type), step)
    return pa.chunked_array([block.slice(0, rows - start) for start in range(0, rows, step)], target)


def value_scalar(value: Value, data_type: DataType) -> pa.Scalar:
    """Return a partition value as an Arrow scalar of the column's type."""
    target = arrow_type(data_type)
    if pa.types.is_timestamp(target):
        return pa.scalar(value, pa.int64()).cast(target)
    if pa.types.is_decimal(target) and isinstance(value, Decimal):
        return pa.scalar(value, target)
    return pa.scalar(value, target)


def reason(error: BaseException) -> str:
    """The first line of a library's message; its later lines are stack contexts."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else "")[:300] or type(error).__name__
