"""A frozen query becomes a plan: one request, its actions pruned into tasks, URLs that can be renewed.

What every front end uses: pandas, Arrow and whatever comes above them differ in what they make of a plan.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from delta_sharing_client.errors import BadRequestError, DataError, StorageError, name_table
from delta_sharing_client.protocol.actions import FileAction, Metadata, Protocol, ResponseFormat
from delta_sharing_client.protocol.column_mapping import mapping_mode
from delta_sharing_client.protocol.hints import HintColumns, json_hint, merge_json_hints, sql_hints
from delta_sharing_client.protocol.names import Table
from delta_sharing_client.protocol.predicates import Filters, Predicate, bind_filters
from delta_sharing_client.protocol.request import ANY_FORMAT, ChangesRequest, QueryRequest, VersionsRequest
from delta_sharing_client.read.fetch import vector_key
from delta_sharing_client.read.pipeline import Progress, estimate_fetch, read_batches
from delta_sharing_client.read.storage import Refresh, StorageReader
from delta_sharing_client.read.strategy import FetchEstimate
from delta_sharing_client.rest import RestClient
from delta_sharing_client.scan.plan import Pruned, project, read_spec, task_maker
from delta_sharing_client.scan.tasks import FileScanTask, ReadSpec, VariantForm


@dataclass(frozen=True, kw_only=True)
class SnapshotQuery:
    """What to read of a table's snapshot.

    Attributes:
        columns: columns to return; None for all.
        filters: the row filter, as `pandas.read_parquet` takes it, or SQL text.
        limit: rows to return at the most.
        version, timestamp: the snapshot; at most one of them, the latest without.
        formats: response formats accepted.
        json_predicate_hints: the caller's own hint for the server; filters no rows.
        variant: what variants are read as.
    """

    columns: tuple[str, ...] | None = None
    filters: Filters | None = None
    limit: int | None = None
    version: int | None = None
    timestamp: str | None = None
    formats: tuple[ResponseFormat, ...] = ANY_FORMAT
    json_predicate_hints: str | None = None
    variant: VariantForm = "struct"


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
    """

    table: Table
    version: int | None
    protocol: Protocol
    metadata: Metadata
    spec: ReadSpec
    tasks: Sequence[FileScanTask] = field(repr=False)
    pruned: Mapping[Pruned, int]
    limit: int | None
    request: QueryRequest | ChangesRequest | VersionsRequest | None = field(repr=False, default=None)

    @property
    def source(self) -> tuple[StorageReader, Refresh] | None:
        """What fetches the files and renews their URLs, if not what fetches those of other plans."""
        return None


def plan_snapshot(rest: RestClient, table: Table, query: SnapshotQuery) -> ScanPlan:
    """Ask the server for a table's files and plan what to read of them.

    One request, or two where there is a row filter: its hints need the table's partition columns.

    Serves "Read Data from a Table".

    Raises:
        UnsupportedTableError: the table needs something that this release cannot read.
        ColumnError, FilterError: the projection or the filter does not fit the table.
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    what = f"table {table.full_name}"
    request = QueryRequest(
        formats=query.formats,
        version=query.version,
        timestamp=query.timestamp,
        json_predicate_hints=query.json_predicate_hints,
    )
    if query.filters or query.limit == 0:
        info = rest.table_metadata(table, query.formats, version=query.version, timestamp=query.timestamp)
        info.protocol.check_readable(what)
        predicate = bind_query(query, info.metadata)
        if query.limit == 0:
            spec = read_spec(info.metadata, query.columns, predicate, query.variant, info.protocol)
            return ScanPlan(
                table=table,
                version=info.version,
                protocol=info.protocol,
                metadata=info.metadata,
                spec=spec,
                tasks=(),
                pruned={},
                limit=0,
            )
        project(info.metadata.schema, query.columns)
        sayable = _sayable(info.protocol, info.metadata)
        request = replace(
            request,
            json_predicate_hints=merge_json_hints(query.json_predicate_hints, json_hint(predicate, sayable)),
            predicate_hints=sql_hints(predicate, sayable),
        )
    elif query.limit is not None:
        # Only without a row filter: the server counts rows before it.
        request = replace(request, limit_hint=min(query.limit, 2**31 - 1))

    specs: list[ReadSpec] = []

    def convert(protocol: Protocol, metadata: Metadata) -> Callable[[FileAction], FileScanTask | Pruned]:
        protocol.check_readable(what)
        specs.append(read_spec(metadata, query.columns, bind_query(query, metadata), query.variant, protocol))
        return task_maker(specs[-1])

    answer = rest.query_table(table, request, convert)
    tasks = [item for item in answer.items if isinstance(item, FileScanTask)]
    return ScanPlan(
        table=table,
        version=answer.version,
        protocol=answer.protocol,
        metadata=answer.metadata,
        spec=specs[-1],
        tasks=tasks,
        pruned=Counter(item for item in answer.items if isinstance(item, Pruned)),
        limit=query.limit,
        request=request,
    )


def _sayable(protocol: Protocol, metadata: Metadata) -> HintColumns:
    mode = mapping_mode(metadata.configuration) if protocol.maps_columns else "none"
    return HintColumns.of(metadata.schema, metadata.partition_columns, mode)


def bind_query(query: SnapshotQuery, metadata: Metadata) -> Predicate | None:
    """Return a query's row filter, bound to the table's schema."""
    return bind_filters(query.filters, metadata.schema) if query.filters else None


class UrlRefresher:
    """Renews pre-signed URLs that expire during a load: one request for all files that wait for it.

    Files are matched by their ids. The renewed listing is of the same version, or of the same changes; a table
    that moved on is still good for the files that both versions hold.

    Args:
        rest: the server.
        plan: the plan whose URLs are renewed.
    """

    def __init__(self, rest: RestClient, plan: ScanPlan) -> None:
        self._rest = rest
        self._plan = plan
        self._lock = threading.Lock()
        self._urls: dict[str, str] = {}

    def __call__(self, file_id: str, expired: str) -> str:
        """Return a fresh URL for a file.

        Args:
            file_id: the file's id.
            expired: the URL that the store refused.

        Raises:
            StorageError: the server does not list the file any more.
        """
        with self._lock:
            known = self._urls.get(file_id)
            if known is None or known == expired:
                self._urls = self.list_urls()
                known = self._urls.get(file_id)
        if known is None:
            raise StorageError(
                f"its URL expired, and the server does not list the file any more: "
                f"table {self._plan.table.full_name} moved on from version {self._plan.version}; load it again",
                file_id=file_id,
            )
        return known

    def list_urls(self) -> dict[str, str]:
        """Ask for all files again; return the URLs by the ids of the files and of their deletion vectors."""
        plan = self._plan
        request = plan.request or QueryRequest()
        if isinstance(request, ChangesRequest | VersionsRequest):
            return _by_id(self._rest.table_changes(plan.table, request, _signed_urls).items)
        if request.version is None and request.timestamp is None and plan.version is not None:
            try:
                return self._urls_of(replace(request, version=plan.version))
            except BadRequestError:
                # No history shared: the latest snapshot may still hold the files.
                pass
        return self._urls_of(request)

    def _urls_of(self, request: QueryRequest) -> dict[str, str]:
        return _by_id(self._rest.query_table(self._plan.table, request, _signed_urls).items)


def vector_file_id(file: FileAction) -> str | None:
    """Return the id of a file's deletion vector; of a server that tells none, one made of its unsigned URL.

    A change may name two vectors of one file, which have to be told apart when their URLs are renewed.
    """
    vector = file.deletion_vector
    if file.deletion_vector_file_id is not None or vector is None or vector.storage_type == "i":
        return file.deletion_vector_file_id
    return hashlib.sha256(vector.path_or_inline.partition("?")[0].encode()).hexdigest()[:32]


def _signed_urls(protocol: Protocol, metadata: Metadata) -> Callable[[FileAction], dict[str, str]]:
    """Keep of each file its URL and that of its deletion vector, by the ids that they are renewed under."""

    def urls(file: FileAction) -> dict[str, str]:
        found = {file.id: file.url}
        if file.deletion_vector is not None:
            for vector_id in (file.deletion_vector_file_id, vector_file_id(file)):
                found[vector_key(file.id, vector_id)] = file.deletion_vector.path_or_inline
        return found

    return urls


def _by_id(files: Sequence[dict[str, str]]) -> dict[str, str]:
    return {file_id: url for urls in files for file_id, url in urls.items()}


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
    storage, refresh = plan.source or (storage, UrlRefresher(rest, plan))
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
        name_table(error, plan.table.full_name)
        raise


def estimate_plan(rest: RestClient, storage: StorageReader, plan: ScanPlan) -> FetchEstimate:
    """Say what reading a plan would fetch; fetches the footers of its large files."""
    storage, refresh = plan.source or (storage, UrlRefresher(rest, plan))
    return estimate_fetch(
        plan.tasks,
        plan.spec,
        storage,
        refresh=refresh,
        table_columns=plan.metadata.schema,
    )
