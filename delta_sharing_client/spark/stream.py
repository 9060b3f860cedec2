"""A streaming query in Spark's driver: its initial offset, the end of each batch, the partitions of a batch.

One process serves all planning calls of a query, so that listings are cached from call to call. Everything cached
can be restored from the offsets alone; executors receive everything with their partition.

A listing has the files of the whole table or of a range of versions. The files of a version are in the order of
the paths of their URLs, so that an index names the same file in each answer; see `stream_offsets` for the order by
ids.

The reference sharing server makes ids of files as hashes of their paths. The hash differs between response formats
and releases of that server. The ids of one hash are computed from an answer with those of another, so that files
are found again in an order that the server no longer returns.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from msgspec import structs

from delta_sharing_client.cdf.change_tasks import ChangeTasks
from delta_sharing_client.cdf.options import CHANGE_TYPE, ChangeOptions
from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.errors import (
    BadRequestError,
    ChangesGoneError,
    DeltaSharingError,
    IncompleteResponseError,
    ProtocolError,
    QueryError,
    RateLimitError,
    ResponseFormatError,
    SchemaChangedError,
    ServerError,
    StreamError,
    TokenError,
    TransportError,
)
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import AddFile, FileAction, RemoveFile, ResponseFormat
from delta_sharing_client.model.schema_evolution import ColumnChange
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.rest.status_errors import is_unsupported
from delta_sharing_client.scan.file_tasks import TaskPlanner, errors_naming, split_skipped
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.secrets import unsigned_url
from delta_sharing_client.spark.configuration import SourceSettings
from delta_sharing_client.spark.data_source_options import MAX_FILES, StreamOptions, parse_stream_options
from delta_sharing_client.spark.partition_plan import encode_plan
from delta_sharing_client.spark.schema_log import SchemaLog, changes_between, mode_of
from delta_sharing_client.spark.spark_schema import requested_columns
from delta_sharing_client.spark.stream_offsets import BEFORE, Admission, Offset, StreamFile, count_until, pending
from delta_sharing_client.spark.stream_table import StreamTable, metadata_at, open_stream
from delta_sharing_client.wire.answers import TableInfo
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

logger = module_logger(__name__)

#: An index after any file.
_END: Final = 2**62
#: Time that a running query waits for a server that does not answer, seconds, beside the retries of each request.
_RETRY_SECONDS: Final = 600.0
#: Errors that may be temporary.
_TRANSIENT: Final = (
    TransportError,
    ServerError,
    RateLimitError,
    QueryError,
    IncompleteResponseError,
    TokenError,
)
#: URLs that expire within this time are renewed before a batch uses them, seconds.
_URL_MARGIN: Final = 60.0
#: URLs without a known expiration are renewed after this time, seconds.
_URL_LIFETIME: Final = 600.0
#: The hashes that an id may be, by its length.
_HASHES: Final = {32: "md5", 64: "sha256"}
#: Characters that a log's paths do not encode, besides letters and digits.
_PLAIN: Final = "!$&'()*+,-./:;=@_~"


class TableStream:
    """A streaming query over a shared table; offsets are JSON objects, partitions are bytes.

    The first call sends the first request to the server.

    Args:
        given: the options, by names in lower case.
        planned_version: the version whose columns Spark has; None if it did not request them.
        schema: the columns that Spark needs.
        cores: tasks that can run at a time, if known.
        settings: the encoded settings that the data source was registered with.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        planned_version: int | None,
        schema: SparkStruct,
        cores: int | None,
        settings: bytes = b"",
    ) -> None:
        self._options = parse_stream_options(given, SourceSettings.decode(settings))
        self._planned_version = planned_version
        self._schema = schema
        self._cores = cores
        self._rest = self._options.connect()
        self._poller = VersionPoller(self._rest, self._options)
        self._seen: Offset | None = None
        self._checked = False

    def initial_offset(self) -> dict[str, Any]:
        """Return the offset that the query begins with, or began with if it runs again."""
        return (self._seen.start if self._seen is not None else self._first).to_json()

    def default_limit(self) -> tuple[str, int]:
        """Return the limit of a batch that the options give: the name of Spark's class, and its number."""
        options = self._options
        if options.max_files is None and options.max_bytes is not None:
            return "ReadMaxBytes", options.max_bytes
        return "ReadMaxFiles", options.max_files or MAX_FILES

    def latest_offset(self, start: Mapping[str, Any] | None, limit: tuple[str, int] | None) -> dict[str, Any]:
        """Return the end of the next batch; Spark before 4.2 passes neither its start nor a limit.

        A limit is the name of Spark's class for it, and its number.

        Raises:
            StreamError, SchemaChangedError: the next version cannot be read.
            ChangesGoneError: the next versions were removed, or the table was replaced.
        """
        begin = Offset.from_json(start) if start is not None else self._seen or self._first
        settled = self._settled(begin)
        if not self._checked:
            self._schema_check.check_start(begin)
            self._checked = True
        self._listings.release(begin)
        # That trigger ends the query after this batch: it must not end in success without an answer.
        read_all = limit is not None and limit[0] == "ReadAllAvailable"
        self._poller.begin_batch(read_all=read_all)
        end = self._end_of_batch(settled, limit, defer_errors=limit is not None and not read_all)
        self._poller.end_batch()
        # Spark would run a batch for an offset of the same place that differs in its response format.
        return (begin if end == settled else end).to_json()

    def prepare_for_available_now(self) -> None:
        """Fix the version at which the query ends: the latest one now."""
        self._poller.frozen = self._poller.request()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
        """Return the encoded job and partition of each task of a batch.

        The same offsets give the same rows. A start of another query than `end` is ignored: Spark requests the
        initial offset again after a crash.

        Raises:
            ChangesGoneError, StreamError: the files of the batch are no longer available as they were.
        """
        first, last = Offset.from_json(start), Offset.from_json(end)
        self._seen = last
        if first.start != last.start:
            first = last.start
        if first.place >= last.place:
            return []
        if (first.version, first.is_initial_snapshot) == (last.version, last.is_initial_snapshot):
            # A batch that began the version again does so each time, even if its files are known by then.
            first = first if first.repeats == last.repeats else first.again(last.repeats)
        return list(self._parts(self._settled(first), self._settled(last, is_end=True)))

    def commit(self, end: Mapping[str, Any]) -> None:
        """Release what a finished batch needed."""
        self._listings.release(Offset.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        self._rest.close()

    @cached_property
    def _opened(self) -> tuple[StreamTable, SchemaLog | None]:
        options = self._options
        info, log = open_stream(self._rest, options, self._planned_version)
        table = StreamTable.of(options, info)
        with errors_naming(options.subject):
            return table.narrowed(requested_columns(self._schema, table.spec.output, options.variant)), log

    @property
    def _table(self) -> StreamTable:
        return self._opened[0]

    @cached_property
    def _listings(self) -> ListingCache:
        return ListingCache(self._rest, self._table)

    @cached_property
    def _schema_check(self) -> SchemaChangeCheck:
        return SchemaChangeCheck(self._rest, *self._opened)

    @cached_property
    def _first(self) -> Offset:
        """The offset of a query that has none yet."""
        table, options = self._table, self._options
        start, snapshot = options.starting_version, False
        if options.starting_timestamp is not None:
            version = self._rest.table_version(options.table, options.starting_timestamp)
        elif start is None:
            version, snapshot = table.version, True
        elif start == "latest":
            version = self._poller.request() + 1
        else:
            version, latest = int(start), self._poller.request()
            if version > latest:
                raise StreamError(
                    f"startingVersion is {version}, and the latest version of {options.subject} is {latest}: give "
                    "an existing version, or 'latest' to begin with the next one",
                    version=version,
                )
        return Offset.initial(table.info.metadata.id, version, snapshot=snapshot)

    def _settled(self, offset: Offset, *, is_end: bool = False) -> Offset:
        """Return the offset of this table that a batch begins or ends with."""
        self._table.check_offset(offset.table_id)
        return self._listings.settle(offset, self._poller.request, is_end=is_end)

    def _end_of_batch(self, begin: Offset, limit: tuple[str, int] | None, *, defer_errors: bool) -> Offset:
        """Admit files from an offset on; return the offset after them.

        With `defer_errors` an error after some files ends the batch, and the next batch raises it.
        """
        admission, position = self._admission(limit), begin
        while not admission.full:
            try:
                listing = self._next(position)
            except DeltaSharingError as error:
                if (position == begin and self._poller.may_wait(error)) or (position != begin and defer_errors):
                    break
                raise
            if listing is None:
                break
            if listing.stopped is not None:
                if position == begin:
                    raise self._schema_check.error(listing.stopped)
                break
            files = pending(listing.files, position)
            position = admission.advance(position, files, listing.last, listing.response_format)
        return position

    def _admission(self, limit: tuple[str, int] | None) -> Admission:
        options = self._options
        if limit is None:
            # Spark before 4.2 does not pass its trigger, and one that reads all must not stop at a default limit.
            return Admission(options.max_files, options.max_bytes)
        kind, number = limit
        if kind == "ReadMaxFiles":
            return Admission(number, options.max_bytes)
        if kind == "ReadMaxBytes":
            return Admission(options.max_files, number)
        return Admission()

    def _next(self, position: Offset) -> Listing | None:
        """Return the listing of the next files, cached or new; None if there is nothing new."""
        if position.is_initial_snapshot:
            return self._listings.covering(position, position.version)
        last = self._poller.end_for(position.version)
        if last is None:
            return None
        is_gone = position.version > last + 1
        if is_gone or self._poller.must_check_table:
            info = self._rest.table_metadata(self._options.table, self._options.query.formats)
            self._table.check_identity(info.metadata, last)
            self._poller.idle_requests = 0
        if is_gone:
            raise ChangesGoneError(
                f"{self._options.subject}: its latest version is {last}, and the query has read version "
                f"{position.version - 1}. Start it with a new checkpoint location",
                version=last + 1,
            )
        return None if position.version > last else self._listings.covering(position, last)

    def _parts(self, position: Offset, last: Offset) -> Iterator[tuple[bytes, bytes]]:
        """Yield the encoded partitions between two offsets, listing by listing."""
        until = last.version if last.index > BEFORE else last.version - 1
        while position.place < last.place and position.version <= until:
            snapshot = position.is_initial_snapshot
            ends_here = (position.version, snapshot) == (last.version, last.is_initial_snapshot)
            listing = self._listings.covering(
                position, position.version if snapshot else until, last if ends_here else None
            )
            if listing.stopped is not None:
                raise self._schema_check.error(listing.stopped)
            reached = min(listing.last, until)
            if not ends_here and reached == last.version and not listing.counts(last):
                reached -= 1  # the last version is listed by itself, as its offset has counted its files
            end = min((reached, _END), (last.version, last.index))
            if end == (last.version, last.index):
                listing.check(last, self._options.subject)
            files = pending(listing.files[: count_until(listing.files, end)], position)
            yield from self._encoded(listing, files, (position.version, reached))
            position = position.after(reached)

    def _encoded(
        self, listing: Listing, files: Sequence[StreamFile], versions: tuple[int, int]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the encoded partitions of files of a listing; their URLs are renewed for these versions alone."""
        options, table, request = self._options, self._table, listing.request
        if not isinstance(request, QueryRequest):
            request = structs.replace(request, starting_version=versions[0], ending_version=versions[1])
        plan = ScanPlan(
            table=options.table,
            version=listing.first,
            protocol=table.info.protocol,
            metadata=table.info.metadata,
            spec=table.spec,
            tasks=[file.task for file in files if options.reads(file.task)],
            skipped={},
            limit=None,
            request=request,
            source=listing.source,
        )
        if not plan.tasks:
            return
        names = tuple(field.name for field in self._schema.fields)
        job, encoded = encode_plan(self._rest, plan, options.executors, self._cores, names)
        for part in encoded:
            yield job, part


class VersionPoller:
    """Requests a table's latest version: at most once per batch, and not more often than the options allow.

    A query that runs waits while the server fails, and then requests again.

    Attributes:
        latest: the latest version that the server has returned.
        frozen: the version at which the query ends, if it ends.
        idle_requests: the number of requests that found no new version since the table's id was last checked.
    """

    def __init__(self, rest: RestClient, options: StreamOptions) -> None:
        self._rest = rest
        self._options = options
        self.latest: int | None = None
        self.frozen: int | None = None
        self.idle_requests = 0
        self._asked_at: float | None = None
        self._may_ask = True
        self._read_all = self._ran = False
        self._trouble_since: float | None = None

    def begin_batch(self, *, read_all: bool) -> None:
        """Allow one request; its answer is required if the batch must read all that is there."""
        self._may_ask = True
        self._read_all = read_all

    def end_batch(self) -> None:
        """Note that the query runs: from now on it waits for a server that fails."""
        self._ran = True

    def request(self) -> int:
        """Return the latest version, with a request."""
        self._may_ask = False
        self._asked_at = time.monotonic()
        self.latest = version = self._rest.table_version(self._options.table)
        self._trouble_since = None
        return version

    def end_for(self, version: int) -> int | None:
        """Return the last version to read, if a batch begins with `version`; None if a request is too early."""
        known = self.latest if self.frozen is None else self.frozen
        if known is not None and (self.frozen is not None or version <= known):
            return known
        waiting = self._asked_at is not None and time.monotonic() < self._asked_at + self._options.interval
        if not self._may_ask or (waiting and not self._read_all):
            return None
        latest = self.request()
        self.idle_requests = self.idle_requests + 1 if latest < version else 0
        return latest

    @property
    def must_check_table(self) -> bool:
        """Whether the table's id is to be checked: a table that was created again may have the same version."""
        return self.idle_requests >= self._options.check_table_every

    def may_wait(self, error: DeltaSharingError) -> bool:
        """Whether a batch without files may hide an error; raised, it would end the query."""
        now = time.monotonic()
        self._asked_at = now
        running = self._ran and self.frozen is None and not self._read_all and self.latest is not None
        if not running or not isinstance(error, _TRANSIENT):
            return False
        if self._trouble_since is None:
            self._trouble_since = now
        if now - self._trouble_since > _RETRY_SECONDS:
            return False
        logger.warning("the stream sends the next request in %g s: %s", self._options.interval, error)
        return True


class SchemaChangeCheck:
    """Checks whether one run of a query may read versions after a change of the table's columns.

    It uses the schema log if schemas are tracked.
    """

    def __init__(self, rest: RestClient, table: StreamTable, log: SchemaLog | None) -> None:
        self._rest = rest
        self._table = table
        self._log = log

    def check_start(self, begin: Offset) -> None:
        """Check the columns once, at the offset where this run begins.

        Everything before `begin` was read with the columns of the version before it.

        Raises:
            SchemaChangedError: the columns changed at the offset, and the query may not read on.
            StreamError: the schema log cannot be written.
        """
        table = self._table
        read = begin.version - 1 if begin.index == BEFORE and not begin.is_initial_snapshot else begin.version
        is_new = begin == begin.start
        if self._log is not None and not self._log.entries:
            self._start_log(self._log, None if is_new else read)
        elif self._log is not None:
            self._check_accepted(self._log, begin)
        elif not is_new and 0 <= read < table.version:
            before = self._metadata_of(read)
            changed = () if before is None else table.misfit(before)
            if changed:
                raise self.error(StoppingVersion(read, changed, before))

    def error(self, stop: StoppingVersion) -> DeltaSharingError:
        """Return the error for a version that stops the query; first writes its schema to the log, if tracked."""
        if stop.error is not None:
            return stop.error
        if stop.version <= self._table.version:
            version = self._changed_after(stop.version)
            return self._error(
                version,
                stop.changed,
                "A stream reads one schema, and this query has the columns of later versions, with rows before "
                f"the change still to read. Start it with {_restart_advice(version)}",
            )
        if self._log is not None and stop.info is not None:
            self._log = self._log.add(stop.info, stop.version)
            advice = (
                "The rows before it were read, and the columns from it on were written to schemaTrackingLocation: "
                "restart the query"
            )
            if not all(change.additive for change in stop.changed):
                advice += f", with {_accepting_options(stop.changed, stop.version)}"
        elif all(change.additive for change in stop.changed):
            advice = "Restart the query, load() included; it continues with the new columns"
        else:
            advice = (
                f"The rows before it were read. To read on, start a query with {_restart_advice(stop.version)}"
            )
        return self._error(stop.version, stop.changed, advice)

    def _start_log(self, log: SchemaLog, read: int | None) -> None:
        """Write the first schema: the query's own, or that of the last version read if the query runs already."""
        table = self._table
        if read is None or read >= table.version:
            self._log = log.add(table.info, table.version)
            return
        info = self._metadata_of(read) or table.info
        self._log = log.add(info, info.version or 0)
        if changes_between(info, table.info):
            raise SchemaChangedError(
                f"{table.options.subject}: the columns of version {info.version}, up to which the query has read, "
                "were written to schemaTrackingLocation: restart the query",
                version=info.version,
            )

    def _check_accepted(self, log: SchemaLog, begin: Offset) -> None:
        """Raise if the run begins at a change that the options do not accept."""
        if len(log.entries) < 2 or (begin.version, begin.index) != (log.entries[-1].version, BEFORE):
            return
        table, (before, after) = self._table, log.entries[-2:]
        changed = [c for c in changes_between(before, after) if not c.additive and table.is_read(c)]
        if not all(table.options.allows(change, begin.version) for change in changed):
            raise self._error(
                begin.version,
                changed,
                "If the query's sink is ready for that, restart the query with "
                f"{_accepting_options(changed, begin.version)}",
            )

    def _error(self, version: int | None, changed: Sequence[ColumnChange], advice: str) -> SchemaChangedError:
        where = "meanwhile" if version is None else f"in version {version}"
        return SchemaChangedError(
            f"{self._table.options.subject}: {where} {'; '.join(map(str, changed))}. {advice}",
            version=version,
            columns=list(dict.fromkeys(change.column for change in changed)),
        )

    def _changed_after(self, low: int) -> int | None:
        """Return the version after `low` that changed its columns into the query's, by binary search."""
        high = self._table.version
        while high - low > 1:
            middle = (low + high) // 2
            info = self._metadata_of(middle)
            if info is None:
                return None
            if self._table.misfit(info):
                low = middle
            else:
                high = middle
        return high

    def _metadata_of(self, version: int) -> TableInfo | None:
        return metadata_at(self._rest, self._table.options, version)


def _accepting_options(changed: Sequence[ColumnChange], version: int) -> str:
    """Return the options that accept the changes of a version."""
    kinds = {change.kind for change in changed}
    names = ["allowSourceColumnRenameAndDrop"] if kinds & {"renamed", "dropped"} else []
    names += ["allowSourceColumnTypeChange"] if "type" in kinds else []
    return " and ".join(f"{name}={version} (or 'always')" for name in names)


def _restart_advice(version: int | None) -> str:
    return (
        f"a new checkpoint location and startingVersion={'the version' if version is None else version}, or "
        "follow such changes with schemaTrackingLocation; or leave the column out with the option columns"
    )


class ListingCache:
    """Returns the listing that contains an offset, from memory or from the server.

    Listings are released once they are read.
    """

    def __init__(self, rest: RestClient, table: StreamTable) -> None:
        self._rest = rest
        self._table = table
        self._listings: list[Listing] = []
        self._repeated = set[int]()

    def covering(self, position: Offset, last: int, end: Offset | None = None) -> Listing:
        """Return the listing that contains an offset; it may contain later versions, up to `last`.

        A version in which a file was counted, by the offset or by the `end` of the batch, is listed alone.

        Raises:
            ChangesGoneError: the provider has removed the next versions.
            StreamError: the server no longer lists the files that were counted.
        """
        counted = next((offset for offset in (position, end) if offset and offset.index != BEFORE), None)
        listing = self._find(position, last, counted)
        listing.check(position, self._table.options.subject)
        return listing

    def _find(self, position: Offset, last: int, counted: Offset | None) -> Listing:
        for listing in self._listings:
            covers = listing.snapshot == position.is_initial_snapshot
            covers &= listing.first <= position.version <= listing.last
            if covers and (counted is None or listing.counts(counted)):
                if listing.is_fresh(self._rest.clock_offset.total_seconds()):
                    return listing
                self._listings.remove(listing)
                break
        listing = self._list(position, last) if counted is None else self._list_alone(position, counted)
        if listing.stopped is None and (counted is None or listing.counts(counted)):
            self._listings.append(listing)
        return listing

    def release(self, position: Offset) -> None:
        """Release the listings before an offset."""
        here = (position.version, not position.is_initial_snapshot)
        self._listings = [item for item in self._listings if (item.last, not item.snapshot) >= here]

    def settle(self, position: Offset, latest: Callable[[], int], *, is_end: bool = False) -> Offset:
        """Return an offset that the files after it can be determined from.

        If it is unknown which files of a version were read, and the version may be repeated, a batch begins before
        its first file, or ends after its last one. Nothing is lost: no batch has a part of such a version.
        `latest` returns the latest version.

        Raises:
            StreamError: the response format that the offset needs is unknown, and the version may not be repeated.
        """
        version, options = position.version, self._table.options
        if position.index == BEFORE:
            return position
        known = self._with_format(position, latest)
        if not options.repeats(version):
            if known is None:
                raise _unknown_files(
                    position,
                    f"{options.subject}: the checkpoint is of an older release, its last batch ended "
                    f"within version {version}, after {position.index + 1} of its files, and it lacks the "
                    "response format that they were counted in; the table has gained a feature since, so both "
                    "formats are possible",
                )
            return known
        if known is not None and self._find(known, version, known).counts(known):
            return known
        if version not in self._repeated:
            self._repeated.add(version)
            logger.warning(
                "%s: allowRepeatedVersion accepts version %d: it is unknown which of its files were read, so that "
                "all of them are read again, %d of them a second time",
                options.subject,
                version,
                position.index + 1,
            )
        return position.after(version) if is_end else position.again(position.repeats + 1)

    def _with_format(self, position: Offset, latest: Callable[[], int]) -> Offset | None:
        """Add to an offset of an early release the response format that its index depends on.

        Those releases listed a version alone or with later ones, in the format that the server chose. An offset
        with a format is returned unchanged. None if the two listings have different formats, because the table
        gained a feature, and the order of the files differs between them.
        """
        version, options = position.version, self._table.options
        if position.response_format is not None:
            return position
        alone = ahead = self._list(position, version, by_id=True)
        if not position.is_initial_snapshot:
            last = min(latest(), version + options.max_versions - 1)
            ahead = self._list(position, last, by_id=True)
        if ahead.response_format != alone.response_format and not _same_order(ahead, alone, version):
            return None
        return structs.replace(position, response_format=alone.response_format)

    def _list_alone(self, position: Offset, counted: Offset) -> Listing:
        """List the version of an offset alone, in the order and the response format that its index was counted in.

        If that format is no longer available, or has other ids, another one is used. The listing returned last
        need not count the offset.
        """
        version, by_id, wanted = position.version, counted.paths is None, counted.response_format
        if wanted is not None:
            with suppress(BadRequestError, ResponseFormatError):
                listing = self._request(position, version, (wanted,), by_id=by_id)
                if listing.response_format == wanted and listing.counts(counted):
                    return listing
        listing = self._list(position, version, by_id=by_id)  # raises if the version is gone
        if listing.lost:
            formats = listing.request.formats if wanted is None else (wanted,)
            return replace(listing, request=structs.replace(listing.request, formats=formats))
        return listing.in_order_of(counted) if by_id and not listing.counts(counted) else listing

    def _list(self, position: Offset, last: int, *, by_id: bool = False) -> Listing:
        """List the offset's version and later ones, in the format that the server chooses."""
        try:
            return self._request(position, last, self._table.options.query.formats, by_id=by_id)
        except BadRequestError as error:
            if position == position.start or is_unsupported(error):
                raise
            if not self._table.options.fail_on_data_loss and not position.is_initial_snapshot:
                return self._lost(position, error)
            raise ChangesGoneError(
                f"{error}. If the provider has removed these versions, this query cannot read them: start it with "
                "a new checkpoint location, and without startingVersion, to read the whole table first",
                version=position.version,
            ) from None

    def _lost(self, position: Offset, error: BadRequestError) -> Listing:
        """Return an empty listing of the versions that the provider has removed, found by binary search."""
        first, options = position.version, self._table.options
        formats, latest = options.query.formats, self._rest.table_version(options.table)
        low, high = first, latest + 1
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._request(position.after(middle - 1), middle, formats)
            except BadRequestError:
                low = middle
            else:
                high = middle
        if high > latest:
            raise error  # no version can be read: it need not be lost
        logger.warning("%s; failOnDataLoss is false: skipping versions %d to %d", error, first, low)
        request = VersionsRequest(formats=formats, starting_version=first, ending_version=low)
        return Listing(False, first, low, (), request, lost=True)

    def _request(
        self, position: Offset, last: int, formats: tuple[ResponseFormat, ...], *, by_id: bool = False
    ) -> Listing:
        version, table = position.version, self._table
        if position.is_initial_snapshot:
            return _list_snapshot(self._rest, table, version, formats, by_id=by_id)
        until = min(last, version + table.options.max_versions - 1)
        return _list_versions(self._rest, table, version, until, formats, by_id=by_id)


def _same_order(one: Listing, other: Listing, version: int) -> bool:
    """Whether two listings have the files of a version in one order, compared by their unsigned URLs."""
    first, second = (
        [unsigned_url(file.task.url) for file in listing.files if file.version == version]
        for listing in (one, other)
    )
    return first == second and len(set(first)) == len(first)


@dataclass(frozen=True)
class StoppingVersion:
    """A version that stops the query.

    Attributes:
        version: the version.
        changed: its column changes; empty if it stops the query for another reason.
        info: its metadata, if columns changed.
        error: the other reason.
    """

    version: int
    changed: tuple[ColumnChange, ...] = ()
    info: TableInfo | None = field(default=None, repr=False)
    error: DeltaSharingError | None = None


@dataclass(frozen=True)
class Listing:
    """The files of the whole table as of a version, or of a range of versions, in their order.

    Attributes:
        snapshot: whether it is the whole table.
        first, last: the versions; `last` is before `first` if the first one stops the query.
        files: the files.
        request: the request, with the response format of the answer alone.
        stop: the version after `last`, if it stops the query.
        lost: the provider has removed the versions, and the query skips them.
        listed: time of the request, in seconds since the epoch.
        source: the reader of the files and what renews their URLs, if the URLs are not pre-signed.
        id_format: the response format whose ids order the files, if it is not that of the answer.
    """

    snapshot: bool
    first: int
    last: int
    files: Sequence[StreamFile] = field(repr=False)
    request: QueryRequest | ChangesRequest | VersionsRequest = field(repr=False)
    stop: StoppingVersion | None = None
    lost: bool = False
    listed: float = field(default_factory=lambda: time.time())
    source: Any = field(default=None, repr=False)
    id_format: ResponseFormat | None = None

    @property
    def response_format(self) -> ResponseFormat:
        """The response format that the indexes of the files depend on."""
        return self.id_format or self.request.formats[0]

    @property
    def stopped(self) -> StoppingVersion | None:
        """The first version, if it stops the query."""
        return self.stop if self.last < self.first else None

    def is_fresh(self, ahead: float) -> bool:
        """Whether its URLs can be used for some time; `ahead`: seconds that the server's clock is ahead."""
        expires = [file.task.expiration for file in self.files if file.task.expiration is not None]
        if not expires:
            return time.time() < self.listed + _URL_LIFETIME
        return time.time() + ahead < min(expires) / 1000 - _URL_MARGIN or time.time() < self.listed + 1

    def counts(self, position: Offset) -> bool:
        """Whether the index of an offset stands for the same files as in the listing that it was made from."""
        if self.lost or position.index == BEFORE or not self.first <= position.version <= self.last:
            return True
        place = (position.version, position.index)
        number = count_until(self.files, place)
        found = self.files[number - 1] if number else None
        if found is None or (found.version, found.index) != place or found.paths != position.paths:
            return False
        # Ids differ between the response formats.
        same_format = position.response_format in (None, self.response_format)
        return found.paths is not None or (same_format and position.file_id in (None, found.file_id))

    def in_order_of(self, position: Offset) -> Listing:
        """Return the listing of one version in the order of the ids that an offset counts.

        If they cannot be computed, the listing is returned as it is, and does not count the offset.
        """
        tasks = [file.task for file in self.files]
        ids = _ids_like(position.file_id, tasks) if position.file_id is not None else None
        if not ids:
            return self
        ordered = _by_id(tasks, ids, position.version, self.files[0].whole)
        listing = replace(self, files=ordered, id_format=position.response_format)
        return listing if listing.counts(position) else self

    def check(self, position: Offset, subject: str) -> None:
        """Raise `StreamError` if the index of an offset does not stand for the same files as before."""
        if not self.counts(position):
            number = sum(file.version == position.version for file in self.files)
            raise _unknown_files(
                position,
                f"{subject}: a batch ended within version {position.version}, after {position.index + 1} of its "
                f"files, and the server now lists {number} files of that version, by other paths or ids",
            )


def _unknown_files(position: Offset, problem: str) -> StreamError:
    """Return the error for an offset whose files cannot be determined."""
    version = position.version
    elsewhere = "" if position.is_initial_snapshot else f" and startingVersion={version}"
    return StreamError(
        f"{problem}: it is unknown which of them were read. Start the query again with the option "
        f"allowRepeatedVersion={version} to read all files of that version, those {position.index + 1} a second "
        f"time; or start it with a new checkpoint location{elsewhere}, after removing the rows of that version "
        "from the query's output",
        version=version,
    )


def _list_snapshot(
    rest: RestClient,
    table: StreamTable,
    version: int,
    formats: tuple[ResponseFormat, ...],
    *,
    by_id: bool = False,
) -> Listing:
    """List the files of the whole table as of a version, with one request; `by_id`: in the order of their ids."""
    options = table.options
    answer = rest.query_table(options.table, QueryRequest(formats=formats, version=version))
    answer.protocol.check_readable(options.subject)
    table.check_identity(answer.metadata, version)
    info = TableInfo(version, answer.protocol, answer.metadata)
    changed = table.misfit(info)
    if changed:
        return Listing(True, version, version - 1, (), answer.request, StoppingVersion(version, changed, info))
    if isinstance(options.query, ChangeOptions):
        tasks = ChangeTasks(options.subject, options.query).of_snapshot(answer.items, version)
    else:
        tasks = _added(answer.items, table.spec)
    listed = in_order(tasks, version, by_id=by_id)
    return Listing(True, version, version, listed, answer.request, source=answer.source)


def _list_versions(
    rest: RestClient,
    table: StreamTable,
    first: int,
    last: int,
    formats: tuple[ResponseFormat, ...],
    *,
    by_id: bool = False,
) -> Listing:
    """List the files of a range of versions, with one request; the last version must exist.

    `by_id`: the files of a version are in the order of their ids.
    """
    options = table.options
    versions: dict[str, Any] = {
        "formats": formats,
        "starting_version": first,
        "ending_version": last,
        "include_historical_protocol": "delta" in formats,
    }
    if options.read_change_feed:
        answer = rest.table_changes(options.table, ChangesRequest(include_historical_metadata=True, **versions))
    else:
        answer = rest.table_changes(options.table, VersionsRequest(**versions))
    history = TableHistory.of(answer, last, options.subject)
    by_version = _by_version(answer.items, first, last, options.subject)
    stop = _schema_stop(table, history, first)
    files: list[StreamFile] = []
    for version in sorted(by_version):
        if stop is not None and version >= stop.version:
            break
        actions = by_version[version]
        if isinstance(options.query, ChangeOptions):
            tasks = ChangeTasks(options.subject, options.query, version).of_changes(actions)
        else:
            error = _forbidden(actions, version, options)
            if error is not None:
                stop = StoppingVersion(version, error=error)
                break
            tasks = _added_by_version(actions, table)
        # Change files: a batch with a part of them could separate the two rows of an update.
        whole = options.read_change_feed and any(CHANGE_TYPE not in task.constants for task in tasks)
        files += in_order(tasks, version, whole, by_id=by_id)
    until = last if stop is None else stop.version - 1
    return Listing(False, first, until, files, answer.request, stop, source=answer.source)


def _by_version(files: Sequence[FileAction], first: int, last: int, subject: str) -> dict[int, list[FileAction]]:
    versions: dict[int, list[FileAction]] = {}
    for file in files:
        if file.version is None or not first <= file.version <= last:
            raise ProtocolError(
                f"{subject}: the answer for versions {first} to {last} has file {file.id} of version "
                f"{file.version}"
            )
        versions.setdefault(file.version, []).append(file)
    return versions


def _added_by_version(files: Sequence[FileAction], table: StreamTable) -> list[FileScanTask]:
    if table.options.skip_change_commits and _removes(files):
        return []
    return _added([file for file in files if isinstance(file, AddFile) and file.data_change], table.spec)


def in_order(tasks: Sequence[FileScanTask], version: int, whole: bool = False, *, by_id: bool) -> list[StreamFile]:
    """Return the files of a version in the order of their paths, or of their ids if the paths are not distinct."""
    paths = [] if by_id else [_path(task) for task in tasks]
    if by_id or len(set(paths)) < len(paths):
        return _by_id(tasks, [task.file_id for task in tasks], version, whole)
    files, digest = list[StreamFile](), hashlib.sha256()
    for index, (path, task) in enumerate(sorted(zip(paths, tasks, strict=True), key=itemgetter(0))):
        digest.update(repr(path).encode())
        files.append(StreamFile(version, index, task, whole, digest.hexdigest()[:32]))
    return files


def _path(task: FileScanTask) -> tuple[str, str]:
    """The path of a file's URL, and its changes: a file with deleted and restored rows is there twice."""
    return unquote(urlsplit(task.url.reveal()).path), str(task.constants.get(CHANGE_TYPE) or "")


def _by_id(tasks: Sequence[FileScanTask], ids: Sequence[str], version: int, whole: bool) -> list[StreamFile]:
    """Return the files of a version in the order of ids."""
    ordered = sorted(zip(ids, tasks, strict=True), key=_sort_key)
    return [StreamFile(version, index, task, whole, file_id=id_) for index, (id_, task) in enumerate(ordered)]


def _sort_key(item: tuple[str, FileScanTask]) -> tuple[str, str, str]:
    file_id, task = item
    return file_id, str(task.constants.get(CHANGE_TYPE) or ""), task.deletion_vector_id or ""


def _added(files: Sequence[FileAction], spec: ReadSpec) -> list[FileScanTask]:
    return split_skipped(TaskPlanner(spec)(FileBlock.of(files)))[0]


def _removes(files: Sequence[FileAction]) -> bool:
    return any(isinstance(file, RemoveFile) and file.data_change for file in files)


def _forbidden(files: Sequence[FileAction], version: int, options: StreamOptions) -> StreamError | None:
    """Return the error for a version that deletes or rewrites rows, unless the options accept it."""
    if not _removes(files) or options.ignore_changes or options.skip_change_commits:
        return None
    if any(isinstance(file, AddFile) and file.data_change for file in files):
        return StreamError(
            f"{options.subject}: version {version} rewrites files (an update, merge, overwrite, or a "
            "delete of some rows), which a stream of new rows cannot represent. Read every change with "
            "readChangeFeed=true, skip such versions with skipChangeCommits=true, or read the files that they "
            "wrote, old rows included, with ignoreChanges=true",
            version=version,
        )
    if options.ignore_deletes:
        return None
    return StreamError(
        f"{options.subject}: version {version} deletes files, which a stream of new rows cannot represent. Read "
        "every change with readChangeFeed=true, or accept versions that only delete with ignoreDeletes=true "
        "(skipChangeCommits and ignoreChanges accept more of them)",
        version=version,
    )


def _schema_stop(table: StreamTable, history: TableHistory, first: int) -> StoppingVersion | None:
    """Return the first version of a range whose rows cannot be read with the query's columns."""
    protocols, mode = history.protocols, mode_of(table.info)
    for number, metadata in enumerate(history.metadata):
        version = first if number == 0 or metadata.version is None else metadata.version
        table.check_identity(metadata, version)
        # The answer has protocols only where they changed; they matter for the column mapping alone.
        protocol = protocols[0] if number == 0 or len(protocols) == 1 else protocols[-1]
        info = TableInfo(version, protocol, metadata)
        changed = table.misfit(info)
        if changed:
            return StoppingVersion(version, changed, info)
        if mode_of(info) not in ("none", mode) and mode != "none":
            error = StreamError(
                f"{table.options.subject}: version {version} changes its column mapping from {mode!r} to "
                f"{mode_of(info)!r}; start the query with a new checkpoint location",
                version=version,
            )
            return StoppingVersion(version, error=error)
    return None


def _ids_like(sample: str, tasks: Sequence[FileScanTask]) -> list[str] | None:
    """Return the ids of files by the hash that an id was made with.

    None if an id is not a hash of the end of its file's path: nothing is assumed about other ids.
    """
    name = _HASHES.get(len(sample))
    if name is None:
        return None
    ids = []
    for task in tasks:
        path = _hashed_path(task)
        if path is None:
            return None
        ids.append(_digest(name, path))
    return ids


def _hashed_path(task: FileScanTask) -> str | None:
    """Return the path, relative to the table, that the id of a file is the hash of."""
    name = _HASHES.get(len(task.file_id))
    if name is None:
        return None
    return next((path for path in _candidates(task) if _digest(name, path) == task.file_id), None)


def _candidates(task: FileScanTask) -> Iterator[str]:
    """Yield the ends of the path of a file's URL, in the encodings that a log may have them in."""
    decoded = unquote(urlsplit(task.url.reveal()).path)
    encoded = quote(decoded, safe=_PLAIN)
    ascii_encoded = re.sub(r"[\0-\x7f]+", lambda text: quote(text[0], safe=_PLAIN), decoded)  # as Spark does
    for text in dict.fromkeys((decoded, encoded, ascii_encoded)):
        parts = text.split("/")
        for start in reversed(range(len(parts))):
            yield "/".join(parts[start:])


def _digest(name: str, path: str) -> str:
    return hashlib.new(name, path.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()
