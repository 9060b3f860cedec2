"""Parquet files in memory to record batches of the table's schema.

Row groups are decoded one at a time, large ones in steps of some rows, within `DecodeLimits`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.assemble import reason
from delta_sharing_client.parquet.column_lookup import ColumnLocatorCache
from delta_sharing_client.parquet.column_threads import DecodeThreads, beside, split_evenly
from delta_sharing_client.parquet.legacy_calendar import LegacyCalendar
from delta_sharing_client.parquet.page_headers import longest_text
from delta_sharing_client.parquet.read_units import (
    READ_UNIT_SIZE,
    ReadUnit,
    check_chunks,
    plan_read_units,
    row_counts,
)
from delta_sharing_client.parquet.row_sizes import (
    BeyondLimitError,
    DecodeLimits,
    DecodePlan,
    Leaf,
    Widths,
    plan_steps,
    split_indexed,
)
from delta_sharing_client.parquet.size_limits import footer_limits
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

if TYPE_CHECKING:
    from delta_sharing_client.parquet.deletion_vector import RowPositions

#: Exceptions of the Parquet reader for damaged bytes.
_READ_ERRORS: Final = (pa.ArrowException, OSError, ValueError)
_LIMITS: Final = DecodeLimits()


class Decoded(Struct, frozen=True):
    """Rows that were decoded together.

    Attributes:
        batches: non-empty batches of the columns of `ReadSpec.output`.
        last: whether these are the last rows of the read unit.
    """

    batches: list[pa.RecordBatch]
    last: bool


class ParquetSource:
    """An open Parquet file, of which only the footer and the read units being decoded must be present.

    Several threads may decode read units at a time.

    Args:
        buffer: the file's bytes; those of units not yet fetched may be anything.
        task: the file.
        spec: what to read of it.
        deleted: positions of deleted rows.
        locators: shared by the files of a load, to locate the columns of files with equal schemas once.
        limits: how much is decoded at a time.

    Raises:
        DataError: the bytes are no Parquet file, or do not match the table's schema.
    """

    def __init__(
        self,
        buffer: Any,
        task: FileScanTask,
        spec: ReadSpec,
        *,
        deleted: RowPositions | None = None,
        locators: ColumnLocatorCache | None = None,
        limits: DecodeLimits = _LIMITS,
    ) -> None:
        self._limits = limits
        self._buffer = pa.py_buffer(buffer)
        self._task = task
        self._spec = spec
        self._predicate = None if task.all_rows_match else spec.predicate
        self._deleted = deleted
        self._spare: dict[tuple[str, ...], list[Any]] = {}
        self._thrift_limits = footer_limits(self._buffer, limits.footer, task.file_id)
        with self._readable():
            reader = self._open(None)
            self._spare[()] = [reader]
            self._metadata = reader.metadata
            locator = (locators or ColumnLocatorCache()).of(reader.schema_arrow)
            self.columns, self._assembly = locator.locate(task, spec)
            self._starts = [0, *itertools.accumulate(row_counts(self._metadata, task))]
        self._calendar = LegacyCalendar.of(self._metadata.metadata)
        if deleted is not None:
            deleted.check(self._starts[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the bytes."""
        self._buffer = None
        self._spare.clear()

    @property
    def group_count(self) -> int:
        """The number of row groups."""
        return len(self._starts) - 1

    def read_units(self, *, unit_size: int = READ_UNIT_SIZE) -> list[ReadUnit]:
        """Return the row groups with rows that may match, and their byte ranges.

        Raises:
            DataError: the footer contradicts itself.
        """
        return plan_read_units(
            self._metadata,
            self._matching_groups(),
            self._assembly.leaves,
            size=self._buffer.size,
            unit_size=unit_size,
        )

    def _matching_groups(self) -> Iterator[int]:
        """Check the footer, and return the row groups with rows that may match."""
        leaves, predicate = self._assembly.leaves, self._predicate
        with self._readable(), self._reader() as reader:
            check_chunks(self._metadata, reader, leaves, self._task, has_predicate=predicate is not None)
        metadata, deleted = self._metadata, self._deleted_groups()
        numbers = (n for n in range(self.group_count) if metadata.row_group(n).num_rows and n not in deleted)
        if predicate is None:
            return numbers
        from delta_sharing_client.parquet.row_group_skipping import matching_groups

        use_times = self._calendar is None or self._calendar.times == "no"
        return matching_groups(numbers, metadata, self.columns, predicate, use_time_statistics=use_times)

    def _deleted_groups(self) -> frozenset[int]:
        """The row groups of which all rows are deleted."""
        if self._deleted is None:
            return frozenset()
        groups = enumerate(itertools.pairwise(self._starts))
        return frozenset(n for n, (start, stop) in groups if not self._deleted.touches(start, stop - start))

    def decode_all(self, threads: DecodeThreads | None = None) -> Iterator[Decoded]:
        """Decode the whole file; see `decode`."""
        groups = tuple(self._matching_groups())
        if groups:
            yield from self.decode(ReadUnit(groups, (), 0), threads)

    def first(self, units: list[ReadUnit], rows: int) -> list[ReadUnit]:
        """Return the leading units that hold the first `rows` rows."""
        held = 0
        for count, unit in enumerate(units, 1):
            held += sum(self._starts[group + 1] - self._starts[group] for group in unit.groups)
            if held >= rows:
                return units[:count]
        return units

    def decode(self, unit: ReadUnit, threads: DecodeThreads | None = None) -> Iterator[Decoded]:
        """Decode a read unit whose bytes are present, on this thread and on `threads`, if there are any.

        Arrow's own threads are not used: a process that ends just after they have started is aborted.

        Yields:
            Rows: some or all of a row group.

        Raises:
            DataError: the bytes are damaged, do not match the table's schema, or have a row beyond the limits.
            UnsupportedTableError: the file has old times in an unknown calendar or time zone.
        """
        for group in unit.groups:
            start, stop = self._starts[group], self._starts[group + 1]
            done = start
            for decoded in self._decode_group(group, stop - start, threads):
                rows = decoded.num_rows
                keep = self._deleted.keep_mask(done, rows) if self._deleted is not None else None
                done += rows
                if keep is not None:
                    decoded = decoded.filter(keep)
                batches = list(self._select(decoded))
                last = done == stop and group == unit.groups[-1]
                if batches or last:
                    yield Decoded(batches, last)

    @contextlib.contextmanager
    def _readable(self, subject: str = "not a readable Parquet file") -> Iterator[None]:
        """Raise `DataError` for damaged bytes."""
        try:
            yield
        except _READ_ERRORS as error:
            raise DataError(f"{subject}: {reason(error)}", file_id=self._task.file_id) from None

    @contextlib.contextmanager
    def _reader(self, indexed: tuple[str, ...] = ()) -> Iterator[Any]:
        """Return a reader that decodes `indexed` columns as dictionary indices; it is used again."""
        spare = self._spare.setdefault(indexed, [])
        try:
            reader = spare.pop()
        except IndexError:
            reader = self._open(self._metadata, indexed)
        yield reader
        if self._buffer is not None:
            spare.append(reader)

    def _open(self, metadata: pq.FileMetaData | None, indexed: tuple[str, ...] = ()) -> Any:
        return _open_reader(
            pa.BufferReader(self._buffer),
            metadata=metadata,
            read_dictionary=indexed or None,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            **self._thrift_limits,
            pre_buffer=False,
        )

    def _decode_group(
        self, group: int, rows: int, threads: DecodeThreads | None
    ) -> Iterator[pa.Table | pa.RecordBatch]:
        """Decode one row group to the table's columns."""
        columns, assembly = self.columns, self._assembly
        with self._readable():  # names of columns are decoded here
            widths = assembly.widths(self._metadata.schema, columns)
        extra = widths.row + sum([_constant_size(column.value) for column in columns if not column.leaves])
        if not assembly.leaves:
            step = max(1, self._limits.step // max(extra, 1))
            for start in range(0, rows, step):
                count = min(step, rows - start)
                yield self._build(None, count) if columns else _no_columns(count)
            return
        decoded = 0
        with self._readable(f"row group {group} cannot be decoded"):
            plan = self._plan(group, widths, extra)
            for table in self._tables(group, rows, plan, threads):
                decoded += table.num_rows
                if decoded == rows or plan.rows < rows:
                    indexed = plan.indexed or assembly.indexed
                    for part in split_indexed(table, extra, self._limits) if indexed else (table,):
                        yield from self._build_parts(part)
        if decoded != rows:
            raise DataError(
                f"row group {group} has {decoded} rows; the footer has {rows}", file_id=self._task.file_id
            )

    def _plan(self, group: int, widths: Widths, extra: int) -> DecodePlan:
        """Return how to decode a row group within the limits."""
        with memoryview(self._buffer) as view, view.cast("B") as data:

            def find(leaf: Leaf) -> int | None:
                with self._reader((leaf.path,)) as reader:
                    return longest_text(reader, group, leaf.number)

            return plan_steps(data, self._metadata.row_group(group), widths.leaves, extra, self._limits, find)

    def _tables(
        self, group: int, rows: int, plan: DecodePlan, threads: DecodeThreads | None
    ) -> Iterator[pa.Table]:
        """Decode a row group by a plan."""
        leaves = self._assembly.leaves
        parts = [leaves] if threads is None else self._split(group, leaves, threads.count)
        if threads is None or len(parts) == 1:
            yield from self._part(group, rows, plan, leaves)
        else:
            yield from beside(threads, [self._part(group, rows, plan, part) for part in parts])

    def _part(self, group: int, rows: int, plan: DecodePlan, leaves: Sequence[int]) -> Iterator[pa.Table]:
        """Decode some Parquet columns of a row group, on one thread."""
        with self._reader(plan.indexed) as reader:
            if plan.rows >= rows:
                yield reader.read_row_groups([group], column_indices=leaves, use_threads=False)
            else:
                for batch in reader.iter_batches(plan.rows, [group], leaves, False):
                    yield pa.Table.from_batches([batch])

    def _split(self, group: int, leaves: Sequence[int], count: int) -> list[Sequence[int]]:
        """Split Parquet columns, in their order, into parts that take about equally long to decode."""
        schema, chunks = self._metadata.schema, self._metadata.row_group(group)
        whole = [
            list(each)
            for _, each in itertools.groupby(leaves, lambda leaf: schema.column(leaf).path.partition(".")[0])
        ]
        sizes = [sum(chunks.column(leaf).total_uncompressed_size for leaf in column) for column in whole]
        return split_evenly(whole, sizes, count)

    def _build_parts(self, table: pa.Table) -> Iterator[pa.Table]:
        """Build the table's columns from decoded rows, in halves if they would exceed the limit."""
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
        """Apply the residual filter, and drop the columns that only it needs."""
        spec, predicate = self._spec, self._predicate
        for batch in decoded.to_batches() if isinstance(decoded, pa.Table) else [decoded]:
            kept = batch
            if predicate is not None:
                from delta_sharing_client.parquet.residual_filter import filter_batch

                kept = filter_batch(batch, predicate)
            if kept.num_rows:
                yield kept if not spec.extra else kept.select(list(range(len(spec.output))))


def _open_reader(source: pa.NativeFile, **options: Any) -> Any:
    """Open the reader of a Parquet file, which decodes in `decoding_pool`.

    `pq.ParquetFile` has no argument for a pool; the reader that it opens has one, which is not documented.
    """
    pool = decoding_pool()
    if pool is not None:
        with contextlib.suppress(AttributeError, TypeError):  # a release of pyarrow without these arguments
            reader = pq.ParquetReader(memory_pool=pool)
            reader.open(source, arrow_extensions_enabled=True, **options)  # the default of `pq.ParquetFile`
            return reader
    return pq.ParquetFile(source, **options).reader


def decoding_pool() -> pa.MemoryPool | None:
    """Return the memory pool for decoded columns; None for the default pool of the process.

    Mimalloc, the default of pyarrow, makes the system clear far more memory than jemalloc does
    (`docs/decisions/0022-arrow-memory-pool.md`). A default pool that the user has chosen is used as it is, but for
    a pool that wraps mimalloc: pyarrow reports the same name for both.
    """
    chosen = os.environ.get("ARROW_DEFAULT_MEMORY_POOL")
    if not chosen and pa.default_memory_pool().backend_name == "mimalloc":
        with contextlib.suppress(NotImplementedError):  # not in the wheels of every system
            return pa.jemalloc_memory_pool()
    return None


def _constant_size(value: object) -> int:
    """Bytes of a constant in each row besides the width of its type."""
    return len(value) if isinstance(value, str | bytes) else 0


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
