"""`ScanPlan`, the interface of planners, and the planner of snapshots that a sharing server lists."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Generator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from delta_sharing_client.errors import (
    ColumnError,
    DataError,
    FilterError,
    StorageError,
    UnsupportedTableError,
    VersionMismatchError,
)
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import EndStreamAction, Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.options import ReadOptions, ScanOptions
from delta_sharing_client.storage.byte_source import StorageReader, UrlRenewal
from delta_sharing_client.wire.answers import Answer, TableInfo
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.parquet.fetch_strategy import FetchEstimate
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.scan.file_tasks import SkipReason, TaskPlanner
    from delta_sharing_client.scan.pipeline import Load, Progress
    from delta_sharing_client.scan.query_hints import Hints

logger = module_logger(__name__)

#: How often a query is sent with hints; the table's metadata may change each time.
_MAX_HINTED: Final = 3


class ScanPlan(RedactedStruct, frozen=True, kw_only=True):
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

    redacted_fields: ClassVar = frozenset({"tasks", "request", "end", "source", "remedy"})

    table: Table
    version: int | None
    protocol: Protocol
    metadata: Metadata
    spec: ReadSpec
    tasks: Sequence[FileScanTask]
    skipped: Mapping[SkipReason, int]
    limit: int | None
    request: QueryRequest | ChangesRequest | VersionsRequest | None = None
    end: EndStreamAction | None = None
    source: tuple[StorageReader, UrlRenewal | None] | None = None
    remedy: str | None = None

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(task.size for task in self.tasks)

    def read(
        self,
        rest: RestClient | None,
        storage: StorageReader,
        *,
        memory_budget: int | None = None,
        progress: Progress | None = None,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read the files: the columns, filtered, in the server's order, at most `limit` rows.

        Args:
            rest: the server, which renews expired URLs; None if there is none.
            storage: fetches the files.
            memory_budget: the memory in bytes that may be in use, if less than in the options.
            progress: called with the size of each file after it.
        """
        from delta_sharing_client.scan.pipeline import read_batches

        try:
            yield from read_batches(self._load(rest, storage, memory_budget), progress)
        except (StorageError, DataError) as error:
            error.table = error.table or self.table.full_name
            if isinstance(error, DataError):
                error.remedy = self.remedy
            raise

    def estimate_fetch(self, rest: RestClient, storage: StorageReader) -> FetchEstimate:
        """Return what `read` would fetch; fetches the footers of large files."""
        from delta_sharing_client.scan.pipeline import estimate_fetch

        return estimate_fetch(self._load(rest, storage))

    def file_access(
        self, rest: RestClient | None, storage: StorageReader
    ) -> tuple[StorageReader, UrlRenewal | None]:
        """Return the reader of the files, and what renews their URLs."""
        if self.source is not None or rest is None:
            return self.source or (storage, None)
        from delta_sharing_client.scan.url_renewal import UrlRenewer

        return storage, UrlRenewer(rest, self.table, self, (task.expiration for task in self.tasks))

    def _load(self, rest: RestClient | None, storage: StorageReader, memory_budget: int | None = None) -> Load:
        from delta_sharing_client.scan.pipeline import Load

        reader, renewal = self.file_access(rest, storage)
        return Load(
            tasks=self.tasks,
            spec=self.spec,
            storage=reader,
            renewal=renewal,
            limit=self.limit,
            table_columns=self.metadata.schema,
            memory_budget=memory_budget,
        )


Options = TypeVar("Options", bound=ReadOptions, contravariant=True)
Plan = TypeVar("Plan", bound=ScanPlan, covariant=True)


class Planner(typing.Protocol[Options, Plan]):
    """Plans the reading of one table: of a snapshot by `ScanOptions`, of changes by `ChangeOptions`."""

    def plan(self, options: Options, /) -> Plan:
        """Return which files to read, and how; fetches none of them."""


class _Binder:
    """Binds the columns and the row filter of one scan, once as long as the table's schema does not change.

    Args:
        options: the scan.
        subject: the table, for messages.
    """

    def __init__(self, options: ScanOptions, subject: str) -> None:
        self._options = options
        self._subject = subject
        self._bound: tuple[Any, ReadSpec] | None = None

    def spec(self, protocol: Protocol, metadata: Metadata) -> ReadSpec:
        """Return what to read of each file; raises as `scan_spec`."""
        schema = protocol, metadata.schema_string, metadata.partition_columns, metadata.configuration
        if self._bound is None or self._bound[0] != schema:
            from delta_sharing_client.scan.file_tasks import scan_spec

            self._bound = schema, scan_spec(self._options, protocol, metadata, self._subject)
        return self._bound[1]

    def hints(self, protocol: Protocol, metadata: Metadata) -> Hints:
        """Return the row filter as hints for the server; raises as `scan_spec`."""
        from delta_sharing_client.scan.query_hints import Hints

        return Hints.of_table(self.spec(protocol, metadata), protocol, metadata)


class ServerPlanner(Struct, frozen=True):
    """Plans scans of a table whose files a sharing server lists ("Read Data from a Table")."""

    rest: RestClient
    table: Table

    def plan(self, options: ScanOptions) -> ScanPlan:
        """Request the files and plan what to read of them.

        This takes one request, or a second one where a limit leaves out too many files. Hints need the types of
        the filter's columns: those of the last answer, and of a table that was not queried yet those inferred from
        the filter's values. The metadata of the answer confirms them; if it gives other hints, the query is sent
        again. A first scan by timestamp, or with a filter from which no types can be inferred, requests the
        metadata before.

        Raises:
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError, FilterError: the projection or the filter does not fit the table.
            VersionMismatchError: the answer is for another version, or a later time, than requested.
            DeltaSharingError: the request failed, or its answer cannot be used.

        Warns:
            PredicateHintWarning: the `jsonPredicateHints` of the caller do not fit the table.
        """
        plan = self._plan(options)
        if options.json_predicate_hints is not None:
            from delta_sharing_client.expressions.hint_check import warn_about_hint

            warn_about_hint(options.json_predicate_hints, plan.metadata.schema, self._subject)
        return plan

    def _plan(self, options: ScanOptions) -> ScanPlan:
        latest = options.version is None and options.timestamp is None
        request = replace(options.request(), include_refresh_token=latest)
        binder = _Binder(options, self._subject)
        if options.limit == 0:
            info = self._table_info(options)
            return self._planned(
                Answer(info.version, info.protocol, info.metadata, [], None, request), options, binder
            )
        if options.filters:
            return self._plan_filtered(options, request, binder)
        if options.limit is not None:
            return self._plan_first_rows(options, request, binder, options.limit)
        return self._planned(self._query(request, binder), options, binder)

    def _plan_filtered(self, options: ScanOptions, request: QueryRequest, binder: _Binder) -> ScanPlan:
        """Plan a scan with a row filter; the query is sent again if its answer shows that its hints are wrong."""
        described = None if options.timestamp is None else self._describe(options)
        hints = self._expected_hints(options, binder, described)
        for _ in range(_MAX_HINTED if hints is not None else 0):
            answer = self._query(request, binder, hints)
            if answer.complete:
                break
            hints = binder.hints(answer.protocol, answer.metadata)
        else:
            answer = self._query(request, binder)
        if described is not None:
            self._check_version(answer.version, described.version, options)
        return self._planned(answer, options, binder)

    def _expected_hints(self, options: ScanOptions, binder: _Binder, described: TableInfo | None) -> Hints | None:
        """Return the hints for the first query; None if nothing gives the types of the filter's columns."""
        if options.timestamp is None:
            from delta_sharing_client.expressions.inferred_columns import inferred_predicate

            known = self.rest.known_tables.get(self.table)
            if known is not None:
                # If the filter does not fit, the table may have changed since.
                with contextlib.suppress(ColumnError, FilterError, UnsupportedTableError):
                    return binder.hints(known.protocol, known.metadata)
            elif (inferred := inferred_predicate(options.filters)) is not None:
                from delta_sharing_client.scan.query_hints import Hints

                return Hints.of_inferred(inferred)
            described = self._describe(options)
        return None if described is None else binder.hints(described.protocol, described.metadata)

    def _plan_first_rows(
        self, options: ScanOptions, request: QueryRequest, binder: _Binder, limit: int
    ) -> ScanPlan:
        """Plan a scan with a limit and without a row filter, before which the server would count rows.

        Some servers count other rows than the table has, such as those that deletion vectors delete, and list too
        few files. The files are requested once more without the hint if the listed ones are known to have too few
        rows, or may have because of their vectors, and the table may have more files.
        """
        limited = replace(request, limit_hint=min(limit, 2**31 - 1))
        plan = self._planned(self._query(limited, binder), options, binder)
        hinted = isinstance(plan.request, QueryRequest) and plan.request.limit_hint is not None  # unless refused
        counts = [task.row_count for task in plan.tasks]
        # The server cannot stop at a file without a row count, unless it counts deleted rows.
        counted = None not in counts or any(task.deletion_vector for task in plan.tasks)
        all_listed = plan.metadata.num_files == len(counts)
        if not hinted or all_listed or not counted or sum(count or 0 for count in counts) >= limit:
            return plan
        whole = self._planned(self._query(request, binder), options, binder)
        rows_before = accumulate((task.row_count or 0 for task in whole.tasks), initial=0)
        pairs = zip(whole.tasks, rows_before, strict=False)
        return replace(whole, tasks=[task for task, _ in takewhile(lambda pair: pair[1] < limit, pairs)])

    def _query(
        self, request: QueryRequest, binder: _Binder, hints: Hints | None = None
    ) -> Answer[FileScanTask | SkipReason, QueryRequest]:
        """Request the files, and plan each one; the answer is not complete if its metadata give other hints."""

        def convert(protocol: Protocol, metadata: Metadata) -> TaskPlanner | None:
            from delta_sharing_client.scan.file_tasks import TaskPlanner

            if hints is not None and not hints.agree_with(binder.hints(protocol, metadata)):
                return None
            return TaskPlanner(binder.spec(protocol, metadata))

        return self.rest.query_table(self.table, hints.added_to(request) if hints else request, convert)

    def _planned(
        self, answer: Answer[FileScanTask | SkipReason, QueryRequest], options: ScanOptions, binder: _Binder
    ) -> ScanPlan:
        from delta_sharing_client.scan.file_tasks import split_skipped

        self.rest.known_tables.put(self.table, TableInfo(answer.version, answer.protocol, answer.metadata))
        tasks, skipped = split_skipped(answer.items)
        return ScanPlan(
            table=self.table,
            version=answer.version,
            protocol=answer.protocol,
            metadata=answer.metadata,
            spec=binder.spec(answer.protocol, answer.metadata),
            tasks=tasks,
            skipped=skipped,
            limit=options.limit,
            request=answer.request,
            end=answer.end,
            source=answer.source,
        )

    @property
    def _subject(self) -> str:
        return f"table {self.table.full_name}"

    def _table_info(self, options: ScanOptions) -> TableInfo:
        return self.rest.table_metadata(
            self.table, options.formats, version=options.version, timestamp=options.timestamp
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
        `wire/answer_checks.py` checks an answer by its own header and lines.
        """
        if options.timestamp is None or answered is None or described is None:
            return
        if answered > described:
            raise VersionMismatchError(
                f"{self._subject}: asked for {options.timestamp}, which is version {described}, the "
                f"server answered for version {answered}",
                expected=described,
                actual=answered,
            )
