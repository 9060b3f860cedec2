"""A shared table and a scan of it: what to read is said first, and read when it is asked for.

A `TableScan` is frozen: `replace` makes another one, and the same scan may be read again and again. Each
reading asks the server anew, so that it sees the newest version unless a version was given.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from delta_sharing_client.protocol.actions import Metadata, Protocol, ResponseFormat
from delta_sharing_client.protocol.names import Table
from delta_sharing_client.protocol.predicates import Filters, freeze_filters
from delta_sharing_client.protocol.request import ANY_FORMAT, check_version, format_timestamp
from delta_sharing_client.protocol.schema import StructType
from delta_sharing_client.scan.plan import Pruned
from delta_sharing_client.scan.tasks import FileScanTask, VariantForm, check_variant

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from delta_sharing_client.load.pandas import DtypeBackend
    from delta_sharing_client.query import ScanPlan
    from delta_sharing_client.read.storage import StorageReader
    from delta_sharing_client.rest import RestClient

RequestedFormat: TypeAlias = Literal["auto", "delta", "parquet"]
Timestamp: TypeAlias = str | datetime | date


_SMALL_BUDGET: Final = 64 * 1024 * 1024


def formats_for(response_format: str) -> tuple[ResponseFormat, ...]:
    """Return the formats to accept for ``auto``, ``delta`` or ``parquet``; raise `ValueError` otherwise."""
    if response_format == "auto":
        return ANY_FORMAT
    if response_format == "delta":
        return ("delta",)
    if response_format == "parquet":
        return ("parquet",)
    raise ValueError(f"response_format is {response_format!r}; it takes 'auto', 'delta' or 'parquet'")


def _check_limit(limit: int | None) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise TypeError(f"limit is an int, not {type(limit).__name__}")
    number = limit.__index__()
    if number < 0:
        raise ValueError(f"limit is {number}; it takes 0 or more rows")
    return min(number, 2**63 - 1)


@dataclass(frozen=True)
class SharedTable:
    """A table of a share.

    Made by `SharingClient.table`; nothing is asked of the server until a method is called.

    Attributes:
        name: the table's three names.
    """

    name: Table
    _rest: RestClient = field(repr=False, compare=False)
    _storage: StorageReader = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return f"SharedTable({self.name.full_name!r})"

    def version(self, starting_timestamp: Timestamp | None = None) -> int:
        """Return the table's version.

        Args:
            starting_timestamp: for the first version at or after that time (ISO 8601 text, or a datetime;
                UTC where it has no zone) instead of the latest.

        Serves "Query Table Version".
        """
        text = None if starting_timestamp is None else format_timestamp(starting_timestamp)
        return self._rest.table_version(self.name, text)

    def metadata(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        response_format: RequestedFormat = "auto",
    ) -> Metadata:
        """Return the table's metadata, of the latest version unless another is asked for.

        Serves "Query Table Metadata".
        """
        return self._info(version, timestamp, response_format)[1]

    def protocol(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        response_format: RequestedFormat = "auto",
    ) -> Protocol:
        """Return what a reader must support to read the table."""
        return self._info(version, timestamp, response_format)[0]

    def schema(self, version: int | None = None, timestamp: Timestamp | None = None) -> StructType:
        """Return the table's columns; `scan().schema` gives them in Arrow's terms."""
        return self.metadata(version, timestamp).schema

    def _info(
        self, version: int | None, timestamp: Timestamp | None, response_format: str
    ) -> tuple[Protocol, Metadata]:
        if version is not None and timestamp is not None:
            raise ValueError("version and timestamp cannot be given together")
        info = self._rest.table_metadata(
            self.name,
            formats_for(response_format),
            version=check_version(version, "version"),
            timestamp=None if timestamp is None else format_timestamp(timestamp),
        )
        return info.protocol, info.metadata

    def scan(
        self,
        columns: Iterable[str] | None = None,
        filters: Filters | None = None,
        limit: int | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        response_format: RequestedFormat = "auto",
        *,
        json_predicate_hints: str | None = None,
        variant: VariantForm = "struct",
    ) -> TableScan:
        """Say what to read of the table; nothing is read yet.

        Args:
            columns: names of the columns to return, in that order, whatever their case; all without, none
                for an empty list.
            filters: rows to return: ``[(column, operator, value), ...]`` AND-ed, or a list of such lists,
                OR-ed, as `pandas.read_parquet` takes it; or SQL text: ``"date >= '2024-01-01' AND amount > 5"``
                (needs the extra ``sql``). The answer is exactly filtered.
            limit: rows to return at the most.
            version: the version to read (needs a table shared with its history).
            timestamp: read the version that was current then; ISO 8601 text or a datetime.
            response_format: ``auto`` takes what the server prefers; ``delta`` or ``parquet`` force one.
            json_predicate_hints: a JSON predicate for the server alone: it prunes files and filters no rows.
            variant: ``struct`` reads a variant as a struct of its binaries `metadata` and `value`, ``json``
                as the text of its JSON (times in UTC).

        Raises:
            ValueError: an argument is out of range, or version and timestamp are both given.
            TypeError: an argument is of the wrong type.
        """
        if version is not None and timestamp is not None:
            raise ValueError("version and timestamp cannot be given together")
        if isinstance(columns, str | bytes):
            raise TypeError(f"columns takes a list of names; for one column write [{columns!r}]")
        if isinstance(columns, Set):
            raise TypeError("columns takes a list of names: a set has no order")
        if json_predicate_hints is not None and not isinstance(json_predicate_hints, str):
            raise TypeError(f"jsonPredicateHints takes JSON text, not {type(json_predicate_hints).__name__}")
        formats_for(response_format)
        return TableScan(
            self,
            columns=None if columns is None else tuple(columns),
            filters=freeze_filters(filters),
            limit=_check_limit(limit),
            version=check_version(version, "version"),
            timestamp=None if timestamp is None else format_timestamp(timestamp),
            response_format=response_format,
            json_predicate_hints=json_predicate_hints,
            variant=check_variant(variant),
        )

    def _repr_html_(self) -> str:
        return f"<code>SharedTable</code> <b>{html.escape(self.name.full_name)}</b>"


@dataclass(frozen=True)
class TableScan:
    """What to read of a table; see `SharedTable.scan` for the fields.

    Each `to_...` method asks the server for the table's files, fetches those that can hold a matching row
    side by side, and returns the rows in the server's order.
    """

    table: SharedTable
    columns: tuple[str, ...] | None = None
    filters: Filters | None = None
    limit: int | None = None
    version: int | None = None
    timestamp: str | None = None
    response_format: RequestedFormat = "auto"
    json_predicate_hints: str | None = field(default=None, repr=False)
    variant: VariantForm = "struct"

    def replace(self, **changes: Any) -> TableScan:
        """Return this scan with some of its fields changed."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "table"}
        unknown = changes.keys() - fields.keys()
        if unknown:
            raise TypeError(f"a scan has no field {', '.join(sorted(unknown))}; it has {', '.join(fields)}")
        return self.table.scan(**(fields | changes))

    def plan(self) -> ScanPlan:
        """Ask the server for the files and say which are left to read; fetches none of them."""
        from delta_sharing_client.query import SnapshotQuery, plan_snapshot

        query = SnapshotQuery(
            columns=self.columns,
            filters=self.filters,
            limit=self.limit,
            version=self.version,
            timestamp=self.timestamp,
            formats=formats_for(self.response_format),
            json_predicate_hints=self.json_predicate_hints,
            variant=self.variant,
        )
        return plan_snapshot(self.table._rest, self.table.name, query)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; asks the server for the table's metadata."""
        from delta_sharing_client.read.arrow_types import arrow_schema
        from delta_sharing_client.scan.plan import project

        metadata = self.table.metadata(self.version, self.timestamp, response_format=self.response_format)
        return arrow_schema(project(metadata.schema, self.columns), self.variant)

    def to_arrow(self, *, progress: bool | None = None) -> pa.Table:
        """Read the rows into an Arrow table; an empty one has the full schema.

        Args:
            progress: show a progress bar; by default in a terminal or notebook only.

        Raises:
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        return self._read(progress)

    def _read(self, progress: bool | None, memory_budget: int | None = None) -> pa.Table:
        from delta_sharing_client.load.arrow import to_table
        from delta_sharing_client.load.progress import file_progress

        plan = self.plan()
        with file_progress(plan.tasks, progress, plan.table.name) as advance:
            return to_table(self._batches(plan, advance, memory_budget), plan.spec.output, plan.spec.variant)

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
            convert_in_batches: keep less on its way at a time (64 MB instead of the options' memory
                budget), for the lowest peak of memory. The conversion gives memory back column by column
                either way.
            progress: show a progress bar; by default in a terminal or notebook only.

        Raises:
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        from delta_sharing_client.load.pandas import check_dtype_backend, to_pandas

        check_dtype_backend(dtype_backend)
        return to_pandas(self._read(progress, _SMALL_BUDGET if convert_in_batches else None), dtype_backend)

    def to_record_batch_reader(self) -> pa.RecordBatchReader:
        """Return a reader that fetches and decodes as it is read, in bounded memory.

        The files are listed at once, so that errors of the query show here.
        """
        from delta_sharing_client.load.arrow import to_reader

        plan = self.plan()
        return to_reader(self._batches(plan, None), plan.spec.output, plan.spec.variant)

    def to_polars(self) -> pl.DataFrame:
        """Read the rows into a polars frame, batch by batch, without a copy of ours (extra ``polars``).

        Raises:
            MissingDependencyError: polars is not installed.
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        from delta_sharing_client.load.polars import to_polars

        plan = self.plan()
        return to_polars(self._batches(plan, None), plan.spec.output, plan.spec.variant)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation over the scan (extra ``duckdb``).

        Nothing is kept: the rows are fetched each time DuckDB runs the relation, as it reads them. DuckDB
        pushes nothing into the scan, so say `columns` and `filters` here. An error that occurs while DuckDB
        reads is reported by DuckDB, with our message in it.

        Args:
            connection: the connection to make the relation in; DuckDB's default one without.

        Raises:
            MissingDependencyError: DuckDB is not installed.
        """
        from delta_sharing_client.load.duckdb import to_duckdb

        return to_duckdb(self, connection)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows to anything that takes an Arrow C stream: polars, DuckDB, pandas."""
        return self.to_record_batch_reader().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Return how many rows the scan gives, `limit` at the most.

        Files whose statistics tell are counted from them, the others are read.
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
            rest = dataclasses.replace(
                plan, tasks=unknown, spec=dataclasses.replace(plan.spec, output=StructType(()))
            )
            rest = dataclasses.replace(rest, spec=dataclasses.replace(rest.spec, extra=_filter_columns(plan)))
            total += sum(batch.num_rows for batch in self._batches(rest, None))
        return total if plan.limit is None else min(total, plan.limit)

    def files(self) -> list[FileScanTask]:
        """Return the files that the scan would read; their URLs are signed and not shown."""
        return list(self.plan().tasks)

    def explain(self) -> str:
        """Return in words what the scan would read: files named, pruned and left, and the bytes to fetch.

        Asks the server, and fetches the footers of those files that would be read in pieces.
        """
        from delta_sharing_client.query import estimate_plan

        plan = self.plan()
        fetch = estimate_plan(self.table._rest, self.table._storage, plan)
        pruned = sum(plan.pruned.values())
        requests = "request" if fetch.requests == 1 else "requests"
        version = "version not told" if plan.version is None else f"version {plan.version}"
        total = sum(task.size for task in plan.tasks)
        lines = [
            f"table    {plan.table.full_name}, {version}, {plan.protocol.response_format} format",
            f"columns  {', '.join(plan.spec.output.names) or '(none)'}",
            f"files    {len(plan.tasks) + pruned} named by the server, {pruned} pruned "
            f"({plan.pruned.get(Pruned.PARTITION, 0)} by partition values, "
            f"{plan.pruned.get(Pruned.STATS, 0)} by statistics), {len(plan.tasks)} to read",
            f"bytes    {fetch.bytes:,} to fetch of {total:,}, in {fetch.requests} {requests}",
        ]
        if fetch.in_pieces:
            lines.append(
                f"pieces   {fetch.in_pieces} files are read in pieces: {fetch.row_groups_pruned} of their "
                f"{fetch.row_groups} row groups pruned"
            )
        return "\n".join(lines)

    def _batches(
        self, plan: ScanPlan, progress: Any, memory_budget: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        from delta_sharing_client.query import read_plan

        return read_plan(
            self.table._rest, self.table._storage, plan, progress=progress, memory_budget=memory_budget
        )


def _filter_columns(plan: ScanPlan) -> tuple[Any, ...]:
    """The columns that only the row filter needs, when nothing is returned."""
    from delta_sharing_client.protocol.predicates import columns_of

    return tuple(dict.fromkeys(columns_of(plan.spec.predicate))) if plan.spec.predicate is not None else ()
