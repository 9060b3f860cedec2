"""A frozen query becomes a plan: one request, its actions pruned into tasks, URLs that can be renewed.

What every front end uses: pandas, Arrow and whatever comes above them differ in what they make of a plan.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.errors import (
    DataError,
    StorageError,
    VersionMismatchError,
)
from delta_sharing_client.expressions.hints import HintColumns, json_hint, merge_json_hints, sql_hints
from delta_sharing_client.expressions.predicates import Predicate, bind_filters
from delta_sharing_client.model.actions import (
    EndStreamAction,
    Metadata,
    Protocol,
)
from delta_sharing_client.model.column_mapping import mapping_mode
from delta_sharing_client.model.names import Table
from delta_sharing_client.parquet.fetch_strategy import FetchEstimate
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.data_skipping import SkipReason, TaskPlanner, project, read_spec, split_skipped
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.pipeline import Progress, estimate_fetch, read_batches
from delta_sharing_client.scan.url_renewal import UrlRenewer
from delta_sharing_client.storage.presigned import Refresh, StorageReader
from delta_sharing_client.wire.answers import QueryAnswer, TableInfo
from delta_sharing_client.wire.requests import (
    ChangesRequest,
    QueryRequest,
    Timestamp,
    VersionsRequest,
)

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ScanPlan:
    """A query answered: which files to read, and how.

    Attributes:
        table: the table.
        version: the version the answer is for, where the server told.
        protocol, metadata: the table's, at that version.
        spec: what to read of each file.
        tasks: the files left after pruning, in the server's order.
        pruned: how many files that the server named were left out, and why.
        limit: rows to return at the most.
        request: the request that was answered, which asks for the same files again; None where none was needed.
        end: the end of the answer: when the first URL expires, and the refresh token, where told.
    """

    table: Table
    version: int | None
    protocol: Protocol
    metadata: Metadata
    spec: ReadSpec
    tasks: Sequence[FileScanTask] = field(repr=False)
    pruned: Mapping[SkipReason, int]
    limit: int | None
    request: QueryRequest | ChangesRequest | VersionsRequest | None = field(repr=False, default=None)
    end: EndStreamAction | None = field(repr=False, default=None)

    @property
    def source(self) -> tuple[StorageReader, Refresh] | None:
        """What fetches the files and renews their URLs, if not what fetches those of other plans."""
        return None


def plan_snapshot(rest: RestClient, table: Table, query: ScanOptions) -> ScanPlan:
    """Ask the server for a table's files and plan what to read of them.

    One request, or two where there is a row filter: its hints need the table's partition columns.

    Serves "Read Data from a Table".

    Raises:
        UnsupportedTableError: the table needs something that this release cannot read.
        ColumnError, FilterError: the projection or the filter does not fit the table.
        VersionMismatchError: the answer is for another version, or a later time, than the one asked for.
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    if query.limit == 0:
        return _plan_nothing(rest, table, query)
    what = f"table {table.full_name}"
    latest = query.version is None and query.timestamp is None
    request = replace(query.request(), include_refresh_token=latest)
    described = _describe(rest, table, query) if query.filters else None
    if described is not None:
        described.protocol.check_readable(what)
        request = _with_hints(request, query, described)
    elif query.limit is not None and not query.filters:
        # Only without a row filter: the server counts rows before it.
        request = replace(request, limit_hint=min(query.limit, 2**31 - 1))

    specs: list[ReadSpec] = []

    def convert(protocol: Protocol, metadata: Metadata) -> TaskPlanner:
        protocol.check_readable(what)
        specs.append(read_spec(metadata, query.columns, bind_query(query, metadata), query.variant, protocol))
        return TaskPlanner(specs[-1])

    answer: QueryAnswer[FileScanTask | SkipReason] = rest.query_table(table, request, convert)
    if described is not None and query.timestamp is not None:
        _check_version(answer.version, described.version, query.timestamp, what)
    tasks, pruned = split_skipped(answer.items)
    return ScanPlan(
        table=table,
        version=answer.version,
        protocol=answer.protocol,
        metadata=answer.metadata,
        spec=specs[-1],
        tasks=tasks,
        pruned=pruned,
        limit=query.limit,
        request=answer.request,
        end=answer.end,
    )


def _plan_nothing(rest: RestClient, table: Table, query: ScanOptions) -> ScanPlan:
    """Plan a scan of no rows: its columns, and no files."""
    info = rest.table_metadata(table, query.formats, version=query.version, timestamp=query.timestamp)
    info.protocol.check_readable(f"table {table.full_name}")
    return ScanPlan(
        table=table,
        version=info.version,
        protocol=info.protocol,
        metadata=info.metadata,
        spec=read_spec(
            info.metadata, query.columns, bind_query(query, info.metadata), query.variant, info.protocol
        ),
        tasks=(),
        pruned={},
        limit=0,
    )


def _describe(rest: RestClient, table: Table, query: ScanOptions) -> TableInfo | None:
    """Return what hints are made from; None of an older server, which describes no version but the latest."""
    try:
        return rest.table_metadata(table, query.formats, version=query.version, timestamp=query.timestamp)
    except VersionMismatchError as error:
        logger.info("%s; the query goes without hints", error)
        return None


def _with_hints(request: QueryRequest, query: ScanOptions, info: TableInfo) -> QueryRequest:
    """Return the request with the row filter as hints for the server."""
    protocol, metadata = info.protocol, info.metadata
    predicate = bind_query(query, metadata)
    project(metadata.schema, query.columns)
    mode = mapping_mode(metadata.configuration) if protocol.maps_columns else "none"
    columns = HintColumns.of(metadata.schema, metadata.partition_columns, mode)
    return replace(
        request,
        json_predicate_hints=merge_json_hints(query.json_predicate_hints, json_hint(predicate, columns)),
        # Servers that read a table with such features know the newer notation, and some refuse the older one.
        predicate_hints=() if protocol.required_features else sql_hints(predicate, columns),
    )


def _check_version(answered: int | None, described: int | None, timestamp: Timestamp, what: str) -> None:
    """Hold the version that a query for a time was answered for against that of the metadata for this time.

    An earlier one is in order: older servers describe the latest version, whatever the time.
    """
    if answered is not None and described is not None and answered > described:
        raise VersionMismatchError(
            f"{what}: asked for {timestamp}, which is version {described}, the server answered for version "
            f"{answered}",
            expected=described,
            actual=answered,
        )


def bind_query(query: ScanOptions, metadata: Metadata) -> Predicate | None:
    """Return a query's row filter, bound to the table's schema."""
    return bind_filters(query.filters, metadata.schema) if query.filters else None


def read_plan(
    rest: RestClient,
    storage: StorageReader,
    plan: ScanPlan,
    *,
    memory_budget: int | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the files of a plan.

    Args:
        rest: the server, for URLs that expire meanwhile.
        storage: fetches the files.
        plan: what to read.
        memory_budget: bytes that may be on their way, if less than the options allow.
        progress: told after each file.

    Yields:
        Batches of the plan's columns, filtered exactly, in the server's order, `plan.limit` rows at the most.
    """
    storage, refresh = plan.source or (storage, UrlRenewer(rest, plan))
    try:
        yield from read_batches(
            plan.tasks,
            plan.spec,
            storage,
            refresh=refresh,
            limit=plan.limit,
            table_columns=plan.metadata.schema,
            memory_budget=memory_budget,
            progress=progress,
        )
    except (StorageError, DataError) as error:
        error.table = error.table or plan.table.full_name
        raise


def estimate_plan(rest: RestClient, storage: StorageReader, plan: ScanPlan) -> FetchEstimate:
    """Say what reading a plan would fetch; fetches the footers of its large files."""
    storage, refresh = plan.source or (storage, UrlRenewer(rest, plan))
    return estimate_fetch(
        plan.tasks,
        plan.spec,
        storage,
        refresh=refresh,
        table_columns=plan.metadata.schema,
    )
