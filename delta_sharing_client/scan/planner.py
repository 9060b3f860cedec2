"""`ScanPlan`, the interface of planners, and the planner of snapshots that a sharing server lists."""

from __future__ import annotations

import logging
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from delta_sharing_client.errors import DataError, StorageError, VersionMismatchError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.hints import HintColumns, json_hint, merge_json_hints, sql_hints
from delta_sharing_client.model.actions import EndStreamAction, Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.parquet.fetch_strategy import FetchEstimate
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.data_skipping import SkipReason, TaskPlanner, read_spec, split_skipped
from delta_sharing_client.scan.file_reads import Load
from delta_sharing_client.scan.options import ReadOptions, ScanOptions
from delta_sharing_client.scan.pipeline import Progress, estimate_fetch, read_batches
from delta_sharing_client.scan.url_renewal import UrlRenewer
from delta_sharing_client.storage.byte_source import RenewUrl, StorageReader
from delta_sharing_client.wire.answers import Answer, TableInfo
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ScanPlan:
    """Which files to read, and how.

    Attributes:
        table: the table.
        version: the version of the answer, if the server reports it.
        protocol, metadata: the table's, at that version.
        spec: what to read of each file.
        tasks: the files that may have matching rows, in the server's order.
        skipped: the number of skipped files by reason.
        limit: the maximum number of rows.
        request: the answered request, which lists the same files again; None if there was none.
        end: the end of the answer: the first expiration time of a URL and the refresh token, if known.
        source: the reader of the files, and what renews their URLs; None for URLs of the sharing server.
        remedy: what to do about a damaged file, for messages.
    """

    table: Table
    version: int | None
    protocol: Protocol
    metadata: Metadata
    spec: ReadSpec
    tasks: Sequence[FileScanTask] = field(repr=False)
    skipped: Mapping[SkipReason, int]
    limit: int | None
    request: QueryRequest | ChangesRequest | VersionsRequest | None = field(repr=False, default=None)
    end: EndStreamAction | None = field(repr=False, default=None)
    source: tuple[StorageReader, RenewUrl | None] | None = field(repr=False, default=None)
    remedy: str | None = field(repr=False, default=None)


Options = TypeVar("Options", bound=ReadOptions, contravariant=True)
Plan = TypeVar("Plan", bound=ScanPlan, covariant=True)


class Planner(typing.Protocol[Options, Plan]):
    """Plans the reading of one table: of a snapshot by `ScanOptions`, of changes by `ChangeOptions`."""

    def plan(self, options: Options, /) -> Plan:
        """Return which files to read, and how; fetches none of them."""


@dataclass(frozen=True)
class ServerPlanner:
    """Plans scans of a table whose files a sharing server lists ("Read Data from a Table")."""

    rest: RestClient = field(repr=False)
    table: Table

    def plan(self, options: ScanOptions) -> ScanPlan:
        """Ask the server for the files and plan what to read of them.

        This takes one request, or two with a row filter, because hints need the table's partition columns.

        Raises:
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError, FilterError: the projection or the filter does not fit the table.
            VersionMismatchError: the answer is for another version, or a later time, than requested.
            DeltaSharingError: the request failed, or its answer cannot be used.
        """
        if options.limit == 0:
            return self._plan_nothing(options)
        latest = options.version is None and options.timestamp is None
        request = replace(options.request(), include_refresh_token=latest)
        described = self._describe(options) if options.filters else None
        if described is not None:
            request = _with_hints(request, options, described, self._what)
        elif options.limit is not None and not options.filters:
            # Only without a row filter: the server counts rows before it.
            request = replace(request, limit_hint=min(options.limit, 2**31 - 1))

        specs: list[ReadSpec] = []

        def convert(protocol: Protocol, metadata: Metadata) -> TaskPlanner:
            specs.append(scan_spec(options, protocol, metadata, self._what))
            return TaskPlanner(specs[-1])

        answer: Answer[FileScanTask | SkipReason, QueryRequest] = self.rest.query_table(
            self.table, request, convert
        )
        if described is not None:
            self._check_version(answer.version, described.version, options)
        tasks, skipped = split_skipped(answer.items)
        return ScanPlan(
            table=self.table,
            version=answer.version,
            protocol=answer.protocol,
            metadata=answer.metadata,
            spec=specs[-1],
            tasks=tasks,
            skipped=skipped,
            limit=options.limit,
            request=answer.request,
            end=answer.end,
        )

    @property
    def _what(self) -> str:
        return f"table {self.table.full_name}"

    def _table_info(self, options: ScanOptions) -> TableInfo:
        return self.rest.table_metadata(
            self.table, options.formats, version=options.version, timestamp=options.timestamp
        )

    def _plan_nothing(self, options: ScanOptions) -> ScanPlan:
        info = self._table_info(options)
        return ScanPlan(
            table=self.table,
            version=info.version,
            protocol=info.protocol,
            metadata=info.metadata,
            spec=scan_spec(options, info.protocol, info.metadata, self._what),
            tasks=(),
            skipped={},
            limit=0,
        )

    def _describe(self, options: ScanOptions) -> TableInfo | None:
        """Return the metadata for hints; None from an older server, which describes the latest version alone."""
        try:
            return self._table_info(options)
        except VersionMismatchError as error:
            logger.info("%s; the query has no hints", error)
            return None

    def _check_version(self, answered: int | None, described: int | None, options: ScanOptions) -> None:
        """Compare the version answered for a time with the version of the metadata for this time.

        An earlier version is correct: older servers describe the latest version for any time.
        `wire/time_travel.py` checks an answer by its own header and lines.
        """
        if options.timestamp is None or answered is None or described is None:
            return
        if answered > described:
            raise VersionMismatchError(
                f"{self._what}: asked for {options.timestamp}, which is version {described}, the server answered "
                f"for version {answered}",
                expected=described,
                actual=answered,
            )


def _with_hints(request: QueryRequest, options: ScanOptions, info: TableInfo, what: str) -> QueryRequest:
    """Return the request with the row filter as hints for the server."""
    spec = scan_spec(options, info.protocol, info.metadata, what)
    columns = HintColumns.of(info.metadata.schema, info.metadata.partition_columns, spec.mapping)
    return replace(
        request,
        json_predicate_hints=merge_json_hints(options.json_predicate_hints, json_hint(spec.predicate, columns)),
        # Servers that read a table with such features know the newer notation, and some refuse the older one.
        predicate_hints=() if info.protocol.required_features else sql_hints(spec.predicate, columns),
    )


def scan_spec(options: ScanOptions, protocol: Protocol, metadata: Metadata, what: str) -> ReadSpec:
    """Return what to read of each file for a scan.

    Raises:
        UnsupportedTableError: the table needs something that this release cannot read.
        ColumnError, FilterError: the projection or the filter does not fit the table.
    """
    protocol.check_readable(what)
    predicate = bind_filters(options.filters, metadata.schema) if options.filters else None
    return read_spec(metadata, options.columns, predicate, options.variant, protocol)


def read_plan(
    rest: RestClient,
    storage: StorageReader,
    plan: ScanPlan,
    *,
    memory_budget: int | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the files of a plan: its columns, filtered, in the server's order, at most `plan.limit` rows.

    Args:
        rest: the server, which renews expired URLs.
        storage: fetches the files.
        plan: what to read.
        memory_budget: the memory in bytes that may be in use, if less than in the options.
        progress: called with the size of each file after it.
    """
    try:
        yield from read_batches(_load(rest, storage, plan, memory_budget), progress)
    except (StorageError, DataError) as error:
        error.table = error.table or plan.table.full_name
        if isinstance(error, DataError):
            error.remedy = plan.remedy
        raise


def estimate_plan(rest: RestClient, storage: StorageReader, plan: ScanPlan) -> FetchEstimate:
    """Return what reading a plan would fetch; fetches the footers of its large files."""
    return estimate_fetch(_load(rest, storage, plan, None))


def _load(rest: RestClient, storage: StorageReader, plan: ScanPlan, memory_budget: int | None) -> Load:
    expirations = (task.expiration for task in plan.tasks)
    reader, renewal = plan.source or (storage, UrlRenewer(rest, plan.table, plan, expirations))
    return Load(
        tasks=plan.tasks,
        spec=plan.spec,
        storage=reader,
        renewal=renewal,
        limit=plan.limit,
        table_columns=plan.metadata.schema,
        memory_budget=memory_budget,
    )
