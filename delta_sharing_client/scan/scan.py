"""`Scan`: the loading methods of scans, changes and batches of changes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

from msgspec import structs

from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.import_ahead import import_ahead
from delta_sharing_client.tracebacks import public_class, public_items

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from delta_sharing_client.frames import DtypeBackend
    from delta_sharing_client.frames.files import FileFormat
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.scan.planner import ScanPlan
    from delta_sharing_client.storage.byte_source import StorageReader

_SMALL_BUDGET: Final = 64 * 1024 * 1024


@public_class
class Scan(ABC):
    """Rows that can be loaded repeatedly."""

    __slots__ = ()

    @abstractmethod
    def plan(self) -> ScanPlan:
        """Return which files to read; fetches none of them."""

    @abstractmethod
    def _connections(self) -> tuple[RestClient | None, StorageReader]:
        """Return the server, None for local tables, and the reader of the files."""

    def to_arrow(self, *, progress: bool | None = None) -> pa.Table:
        """Read the rows into an Arrow table; an empty one has the full schema.

        Args:
            progress: show a progress bar; by default in a terminal or notebook only.

        Raises:
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        with import_ahead():
            plan = self.plan()
        from delta_sharing_client.frames.arrow import to_table
        from delta_sharing_client.frames.progress import byte_progress

        with byte_progress(plan.size, progress, plan.table.name) as advance:
            return to_table(self._batches(plan, advance), plan.spec.output, plan.spec.variant)

    def to_pandas(
        self,
        *,
        dtype_backend: DtypeBackend | None = None,
        convert_in_batches: bool = False,
        progress: bool | None = None,
    ) -> pd.DataFrame:
        """Read the rows into a pandas frame.

        Args:
            dtype_backend: None for dtypes as `pandas.read_parquet` gives them, nullable where a column of
                integers or booleans holds nulls; ``numpy_nullable`` or ``pyarrow`` as in pandas.
            convert_in_batches: use a memory budget of 64 MB instead of that of the options, for the lowest peak
                memory.
            progress: show a progress bar; by default in a terminal or notebook only.

        Raises:
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        from delta_sharing_client.frames import check_dtype_backend

        check_dtype_backend(dtype_backend)
        with import_ahead("pandas", "delta_sharing_client.frames.pandas"):
            plan = self.plan()
            from delta_sharing_client.frames.progress import byte_progress
            from delta_sharing_client.parquet.arrow_types import arrow_schema

            schema = arrow_schema(plan.spec.output, plan.spec.variant)
            budget = _SMALL_BUDGET if convert_in_batches else None
            with (
                byte_progress(plan.size, progress, plan.table.name) as advance,
                closing(self._batches(plan, advance, budget)) as batches,
            ):
                first = list(islice(batches, 1))  # pandas is imported when the files have been requested
                from delta_sharing_client.frames.pandas import to_pandas

                return to_pandas(_joined(first, batches), schema, dtype_backend, rows=_likely_rows(plan))

    def to_record_batch_reader(self) -> pa.RecordBatchReader:
        """Return a reader that fetches and decodes as it is read, in bounded memory.

        The files are listed at once, so that errors of the query are raised here.
        """
        with import_ahead():
            plan = self.plan()
        from delta_sharing_client.frames.arrow import to_reader

        return to_reader(public_items(self._batches(plan, None)), plan.spec.output, plan.spec.variant)

    def to_record_batches(self) -> Iterator[pa.RecordBatch]:
        """Return the batches of `to_record_batch_reader`, one by one."""
        return iter(self.to_record_batch_reader())

    def to_polars(self) -> pl.DataFrame:
        """Read the rows into a polars frame as they arrive, without a copy but of text (extra ``polars``).

        Raises:
            MissingDependencyError: polars is not installed.
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        with import_ahead("polars"):
            plan = self.plan()
            from delta_sharing_client.frames.polars import to_polars

            with closing(self._batches(plan, None)) as batches:
                first = list(islice(batches, 1))  # polars is imported when the files have been requested
                return to_polars(_joined(first, batches), plan.spec.output, plan.spec.variant)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation over the rows (extra ``duckdb``).

        The rows are fetched each time DuckDB runs the relation. DuckDB pushes no projection and no filter down. An
        error while DuckDB reads is raised by DuckDB, with the message of this package.

        Args:
            connection: the connection of the relation; DuckDB's default connection if None.

        Raises:
            MissingDependencyError: DuckDB is not installed.
            ColumnError: the scan has no columns; DuckDB has no such relations.
            DeltaSharingError: the files cannot be listed.
        """
        from delta_sharing_client.frames.duckdb import to_duckdb

        return to_duckdb(self, connection)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream, for polars, DuckDB, pandas and others."""
        return self.to_record_batch_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> NoReturn:
        """Raise `TypeError`; `pandas.DataFrame(scan)` and loops call this."""
        raise TypeError(
            f"a {type(self).__name__} is not iterable: load its rows with to_pandas(), to_arrow() or to_polars(), "
            "or iterate over the batches of to_record_batch_reader()"
        )

    def to_file(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        file_format: FileFormat | None = None,
        *,
        overwrite: bool = False,
        progress: bool | None = None,
    ) -> int:
        """Write the rows to a file as they are read, in bounded memory.

        The rows go to a temporary file beside the target, which is renamed when it is complete.

        Args:
            target: a path, or a writable binary file.
            file_format: ``parquet``, ``csv``, ``jsonl`` (JSON lines) or ``arrow`` (Arrow IPC; its stream format if
                the target is a binary file); by default that of the path's suffix.
            overwrite: replace an existing file.
            progress: show a progress bar; by default in a terminal or notebook only.

        Returns:
            The number of rows.

        Raises:
            ValueError: the format is unknown, or the target is a URL.
            OSError: the file exists, or cannot be written.
            DataError: the format cannot represent the rows.
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        from delta_sharing_client.frames.files import TEXT_FORMATS, format_of, opened, target_of, write_batches
        from delta_sharing_client.frames.progress import byte_progress
        from delta_sharing_client.parquet.arrow_types import arrow_schema

        target = target_of(target)
        name = format_of(target, file_format)
        with opened(target, overwrite=overwrite) as sink:
            plan = self.plan()
            if name in TEXT_FORMATS:  # a variant as JSON text
                plan = structs.replace(plan, spec=structs.replace(plan.spec, variant="json"))
            schema = arrow_schema(plan.spec.output, plan.spec.variant)
            with byte_progress(plan.size, progress, plan.table.name) as advance:
                return write_batches(self._batches(plan, advance), schema, sink, name, stream=sink is target)

    def to_parquet(
        self, target: str | os.PathLike[str] | IO[bytes], *, overwrite: bool = False, progress: bool | None = None
    ) -> int:
        """Write the rows to a Parquet file, and return their number; see `to_file`."""
        return self.to_file(target, "parquet", overwrite=overwrite, progress=progress)

    def to_csv(
        self, target: str | os.PathLike[str] | IO[bytes], *, overwrite: bool = False, progress: bool | None = None
    ) -> int:
        """Write the rows to a CSV file, and return their number; see `to_file`.

        Nested values become JSON text and binaries base64. A null is empty, an empty text is ``""``.
        """
        return self.to_file(target, "csv", overwrite=overwrite, progress=progress)

    def count(self) -> int:
        """Return the number of rows.

        Files whose row count the server reports are not read, unless a row filter needs more than partition
        columns.
        """
        plan = self.plan()
        unknown: list[FileScanTask] = []
        total = 0
        for task in plan.tasks:
            rows = task.row_count if task.all_rows_match else None
            if rows is None:
                unknown.append(task)
            else:
                total += rows
        if unknown and (plan.limit is None or total < plan.limit):
            spec = structs.replace(plan.spec, output=StructType(()), extra=_filter_columns(plan))
            rest = structs.replace(plan, tasks=unknown, spec=spec)
            total += sum(batch.num_rows for batch in self._batches(rest, None))
        return total if plan.limit is None else min(total, plan.limit)

    def files(self) -> list[FileScanTask]:
        """Return the files to read; their signed URLs are not shown."""
        return list(self.plan().tasks)

    def _batches(
        self, plan: ScanPlan, progress: Any, memory_budget: int | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        return plan.read(*self._connections(), progress=progress, memory_budget=memory_budget)


def _joined(first: list[pa.RecordBatch], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches and those that follow; empties the list, so that no batch is kept."""
    while first:
        yield first.pop(0)
    yield from batches


def _likely_rows(plan: ScanPlan) -> int:
    """Return the likely maximum number of rows: the reported one, at most one row for each byte of the files."""
    reported = sum(task.row_count or 0 for task in plan.tasks)
    if plan.spec.predicate is not None and not all(task.all_rows_match for task in plan.tasks):
        return 0
    rows = min(reported, plan.size)
    return rows if plan.limit is None else min(rows, plan.limit)


def _filter_columns(plan: ScanPlan) -> tuple[Any, ...]:
    """Return the columns that the row filter needs."""
    from delta_sharing_client.expressions.predicates import columns_of

    return tuple(dict.fromkeys(columns_of(plan.spec.predicate))) if plan.spec.predicate is not None else ()
