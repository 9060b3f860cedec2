"""One Parquet file, in memory, to record batches of the table's types.

Columns that the file does not hold come from its partition values or are null. Row groups are decoded one
at a time, and large ones some rows at a time, so that the first rows are there before the last ones are decoded,
and that what is decoded takes no more memory than it should.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.predicates import Predicate
from delta_sharing_client.parquet.assemble import reason
from delta_sharing_client.parquet.column_lookup import Layouts, locate
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.footer import check_chunks, check_values, flat_leaf, look_at_chunks, row_counts
from delta_sharing_client.parquet.layout import PIECE, Piece, plan_pieces
from delta_sharing_client.parquet.legacy_calendar import LegacyCalendar
from delta_sharing_client.parquet.residual_filter import filter_batch
from delta_sharing_client.parquet.row_sizes import (
    BeyondLimitError,
    DecodeLimits,
    Plan,
    Widths,
    parts_of,
    plan_steps,
)
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

#: Bytes of Thrift text that a footer may hold; a hostile footer would otherwise fill the memory.
_THRIFT_LIMIT: Final = 256 * 1024 * 1024
#: What the Parquet reader raises for bytes that are not what they should be.
_READ_ERRORS: Final = (pa.ArrowException, OSError, ValueError)
_LIMITS: Final = DecodeLimits()


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows that were decoded together.

    Attributes:
        batches: their batches of the columns of `ReadSpec.output`; none that is empty.
        last: whether no rows follow of what is being decoded.
    """

    batches: list[pa.RecordBatch]
    last: bool


def decode_file(
    buffer: Any,
    task: FileScanTask,
    spec: ReadSpec,
    *,
    deleted: RowPositions | None = None,
    use_threads: bool = True,
    limits: DecodeLimits = _LIMITS,
) -> Iterator[pa.RecordBatch]:
    """Decode a whole Parquet file.

    Args:
        buffer: the file's bytes, anything with the buffer protocol.
        task: the file.
        spec: what to read of it.
        deleted: positions of rows that do not count.
        use_threads: decode columns side by side.
        limits: how much to decode at a time.

    Yields:
        Batches of the columns of `spec.output`, at most one row group each; none that is empty.

    Raises:
        DataError: the bytes are no Parquet file, are damaged, do not hold what the table says, or hold a row
            beyond the limits.
        UnsupportedTableError: the file holds old times in a calendar or time zone that it does not tell.
    """
    with ParquetSource(buffer, task, spec, deleted=deleted, limits=limits) as source:
        for decoded in source.decode_all(use_threads=use_threads):
            yield from decoded.batches


class ParquetSource:
    """An open Parquet file, of which only the footer and the pieces being decoded have to be there.

    Several threads may decode pieces of it at a time.

    Args:
        buffer: the file's bytes; those of pieces not yet fetched may be anything.
        task: the file.
        spec: what to read of it.
        deleted: positions of rows that do not count.
        layouts: shared by the files of a load, to find the columns of like files once.
        limits: how much to decode at a time.

    Raises:
        DataError: the bytes are no Parquet file, or do not hold what the table says.
    """

    def __init__(
        self,
        buffer: Any,
        task: FileScanTask,
        spec: ReadSpec,
        *,
        deleted: RowPositions | None = None,
        layouts: Layouts | None = None,
        limits: DecodeLimits = _LIMITS,
    ) -> None:
        self._limits = limits
        self._buffer = pa.py_buffer(buffer)
        self._task = task
        self._spec = spec
        self._deleted = deleted
        self._spare: dict[tuple[str, ...], list[pq.ParquetFile]] = {}
        try:
            file = self._open(None)
            self._give_back(file)
            self._metadata = file.metadata
            layout = (layouts or Layouts()).of(file.schema_arrow)
            self.columns, self._assembly = locate(layout, task, spec)
            self._starts = [0, *itertools.accumulate(row_counts(self._metadata, task))]
        except _READ_ERRORS as error:
            raise DataError(f"not a readable Parquet file: {reason(error)}", file_id=task.file_id) from None
        self._calendar = LegacyCalendar.of(self._metadata.metadata)
        if deleted is not None:
            deleted.check(self._starts[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the bytes go; batches that were decoded stay."""
        self._buffer = None
        self._spare.clear()

    @property
    def group_count(self) -> int:
        """How many row groups the file has."""
        return len(self._starts) - 1

    def pieces(self, *, piece_size: int = PIECE) -> list[Piece]:
        """Say which row groups hold rows that may match, and which bytes they take.

        Raises:
            DataError: the footer contradicts itself.
        """
        try:
            file = self._borrow()
            check_chunks(file, self.columns, self._task)
            self._give_back(file)
        except _READ_ERRORS as error:
            raise DataError(f"not a readable Parquet file: {reason(error)}", file_id=self._task.file_id) from None
        return plan_pieces(
            self._metadata,
            self.columns,
            self._predicate,
            size=self._buffer.size,
            piece_size=piece_size,
            left_out=self._left_out(),
            trust_times=self._calendar is None or self._calendar.times == "no",
        )

    def _left_out(self) -> frozenset[int]:
        """The row groups of which no row counts."""
        if self._deleted is None:
            return frozenset()
        spans = enumerate(itertools.pairwise(self._starts))
        return frozenset(n for n, (start, stop) in spans if not self._deleted.touches(start, stop - start))

    @property
    def _predicate(self) -> Predicate | None:
        return None if self._task.all_rows_match else self._spec.predicate

    def decode_all(self, *, use_threads: bool = True) -> Iterator[Decoded]:
        """Decode the file, whose bytes are all there; see `decode`."""
        flat = flat_leaf(self._metadata, self._assembly.leaves)
        if self._predicate is not None or flat is None:
            pieces = self.pieces(piece_size=1)
            for piece in pieces:
                for decoded in self.decode(piece, use_threads=use_threads):
                    yield Decoded(decoded.batches, decoded.last and piece is pieces[-1])
            return
        # Nothing to leave out, so where chunks lie and what their statistics say does not matter.
        whole = Piece(tuple(range(self.group_count)), (), 0)
        yield from self.decode(whole, use_threads=use_threads, unchecked=flat)

    def first(self, pieces: list[Piece], rows: int) -> list[Piece]:
        """Return the pieces that hold the first `rows` rows of them."""
        held = 0
        for count, piece in enumerate(pieces, 1):
            held += sum(self._starts[group + 1] - self._starts[group] for group in piece.groups)
            if held >= rows:
                return pieces[:count]
        return pieces

    def decode(self, piece: Piece, *, use_threads: bool = True, unchecked: int | None = None) -> Iterator[Decoded]:
        """Decode a piece whose bytes are there.

        Args:
            piece: the piece.
            use_threads: decode columns side by side.
            unchecked: a column with one value to a row, where nothing has looked at the chunks of the piece yet.

        Yields:
            Rows, some of a row group or all of it.

        Raises:
            DataError: the bytes are damaged, do not hold what the table says, or hold a row beyond the limits.
            UnsupportedTableError: the file holds old times in a calendar or time zone that it does not tell.
        """
        for group in piece.groups:
            start, stop = self._starts[group], self._starts[group + 1]
            done = start
            for decoded in self._decode_group(group, stop - start, unchecked, use_threads=use_threads):
                rows = decoded.num_rows
                keep = self._deleted.keep_mask(done, rows) if self._deleted is not None else None
                done += rows
                if keep is not None:
                    decoded = decoded.filter(keep)
                batches = list(self._select(decoded))
                last = done == stop and group == piece.groups[-1]
                if batches or last:
                    yield Decoded(batches, last)

    def _borrow(self, indexed: tuple[str, ...] = ()) -> pq.ParquetFile:
        """Lend an open file: to open one takes as long as to decode a few columns.

        Args:
            indexed: the columns that it decodes as positions in a dictionary.
        """
        try:
            return self._spare[indexed].pop()
        except (KeyError, IndexError):
            return self._open(self._metadata, indexed)

    def _give_back(self, file: pq.ParquetFile, indexed: tuple[str, ...] = ()) -> None:
        """Take back a file that was lent, and of which nothing is read any more."""
        if self._buffer is not None:
            self._spare.setdefault(indexed, []).append(file)

    def _open(self, metadata: pq.FileMetaData | None, indexed: tuple[str, ...] = ()) -> pq.ParquetFile:
        return pq.ParquetFile(
            pa.BufferReader(self._buffer),
            metadata=metadata,
            read_dictionary=indexed or None,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            thrift_string_size_limit=_THRIFT_LIMIT,
            thrift_container_size_limit=_THRIFT_LIMIT,
            pre_buffer=False,
        )

    def _decode_group(
        self, group: int, rows: int, unchecked: int | None, *, use_threads: bool
    ) -> Iterator[pa.Table | pa.RecordBatch]:
        """Decode one row group to the columns of the table that are read."""
        columns, assembly = self.columns, self._assembly
        widths = assembly.widths(self._metadata.schema, columns)
        extra = widths.row + sum([_constant_size(column.value) for column in columns if not column.leaves])
        if not assembly.leaves:
            step = max(1, self._limits.step // max(extra, 1))
            for start in range(0, rows, step):
                count = min(step, rows - start)
                yield self._build(None, count) if columns else _no_columns(count)
            return
        decoded = 0
        try:
            plan = self._plan(group, unchecked, widths, extra)
            for table in self._tables(group, rows, plan, use_threads=use_threads):
                decoded += table.num_rows
                if decoded == rows or plan.rows < rows:
                    indexed = plan.indexed or assembly.indexed
                    for part in parts_of(table, extra, self._limits) if indexed else (table,):
                        yield from self._build_parts(part)
        except _READ_ERRORS as error:
            raise DataError(
                f"row group {group} cannot be decoded: {reason(error)}", file_id=self._task.file_id
            ) from None
        if decoded != rows:
            raise DataError(
                f"row group {group} holds {decoded} rows, its footer says {rows}", file_id=self._task.file_id
            )

    def _plan(self, group: int, unchecked: int | None, widths: Widths, extra: int) -> Plan:
        """Say how to decode a row group; its chunks are looked at first where nothing has done so."""
        if unchecked is not None:
            file = self._borrow()
            look_at_chunks(file, group, self._assembly.leaves)
            self._give_back(file)
            check_values(self._metadata, group, unchecked, self._task)
        with memoryview(self._buffer) as view, view.cast("B") as data:
            return plan_steps(data, self._metadata.row_group(group), widths.leaves, extra, self._limits)

    def _tables(self, group: int, rows: int, plan: Plan, *, use_threads: bool) -> Iterator[pa.Table]:
        """Decode a row group as planned."""
        file, leaves = self._borrow(plan.indexed), self._assembly.leaves
        if plan.rows >= rows:
            yield file.reader.read_row_groups([group], column_indices=leaves, use_threads=use_threads)
        else:
            for batch in file.reader.iter_batches(plan.rows, [group], leaves, use_threads):
                yield pa.Table.from_batches([batch])
        self._give_back(file, plan.indexed)

    def _build_parts(self, table: pa.Table) -> Iterator[pa.Table]:
        """Bring decoded rows to the columns of the table, in halves where they would take too much memory."""
        try:
            yield self._build(table, table.num_rows)
        except BeyondLimitError:
            if table.num_rows < 2:
                raise
            half = table.num_rows // 2
            yield from self._build_parts(table.slice(0, half))
            yield from self._build_parts(table.slice(half))

    def _build(self, table: pa.Table | None, rows: int) -> pa.Table:
        return self._assembly.build(table, self.columns, rows, self._task, self._calendar, self._metadata)

    def _select(self, decoded: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Apply the row filter and drop the columns that only it needed."""
        spec, predicate = self._spec, self._predicate
        for batch in decoded.to_batches() if isinstance(decoded, pa.Table) else [decoded]:
            kept = batch if predicate is None else filter_batch(batch, predicate)
            if kept.num_rows:
                yield kept if not spec.extra else kept.select(list(range(len(spec.output))))


def _constant_size(value: object) -> int:
    """Bytes of a constant that each row takes besides what its type says."""
    return len(value) if isinstance(value, str | bytes) else 0


def _no_columns(rows: int) -> pa.RecordBatch:
    """Rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
