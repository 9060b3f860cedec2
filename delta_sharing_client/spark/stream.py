"""A streaming query in Spark's driver: its initial offset, the end of each batch, the partitions of a batch.

One process serves all planning calls of a query, so that listings are cached from call to call. Everything cached
can be restored from the offsets alone; executors receive everything with their partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from delta_sharing_client.errors import ChangesGoneError, DeltaSharingError, StreamError
from delta_sharing_client.scan.file_tasks import misfits_of
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.configuration import SourceSettings
from delta_sharing_client.spark.data_source_options import MAX_FILES, parse_stream_options
from delta_sharing_client.spark.listing_cache import ListingCache
from delta_sharing_client.spark.partition_plan import encode_plan
from delta_sharing_client.spark.schema_change_check import SchemaChangeCheck
from delta_sharing_client.spark.schema_log import SchemaLog
from delta_sharing_client.spark.spark_schema import requested_columns
from delta_sharing_client.spark.stream_files import Listing
from delta_sharing_client.spark.stream_offsets import BEFORE, Admission, Offset, StreamFile, count_until, pending
from delta_sharing_client.spark.stream_table import StreamTable, open_stream
from delta_sharing_client.spark.version_poller import VersionPoller
from delta_sharing_client.wire.requests import QueryRequest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

#: An index after any file.
_END: Final = 2**62


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
        with misfits_of(options.what):
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
                    f"startingVersion is {version}, and the latest version of {options.what} is {latest}: give an "
                    "existing version, or 'latest' to begin with the next one",
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
                f"{self._options.what}: its latest version is {last}, and the query has read version "
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
                listing.check(last, self._options.what)
            files = pending(listing.files[: count_until(listing.files, end)], position)
            yield from self._encoded(listing, files, (position.version, reached))
            position = position.after(reached)

    def _encoded(
        self, listing: Listing, files: Sequence[StreamFile], versions: tuple[int, int]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the encoded partitions of files of a listing; their URLs are renewed for these versions alone."""
        options, table, request = self._options, self._table, listing.request
        if not isinstance(request, QueryRequest):
            request = replace(request, starting_version=versions[0], ending_version=versions[1])
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
