"""A streaming query's side in the driver: where it starts, how far a batch goes, which files are in it.

One process serves the planning calls of a query, so that what was listed for one call is there for the next; the
executors get everything with their partition. Whatever is kept can be had again from the offsets alone.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import (
    BadRequestError,
    ChangesGoneError,
    DeltaSharingError,
    IncompleteResponseError,
    QueryError,
    RateLimitError,
    SchemaChangedError,
    ServerError,
    StreamError,
    TableReplacedError,
    TokenError,
    TransportError,
)
from delta_sharing_client.http.options import TransportOptions
from delta_sharing_client.protocol.answers import TableInfo
from delta_sharing_client.rest import RestClient
from delta_sharing_client.scan.tasks import FileScanTask
from delta_sharing_client.spark.columns import asked_columns
from delta_sharing_client.spark.plan import divide, encode_plan
from delta_sharing_client.spark.stream_offsets import BEFORE, Admission, Limit, Offset, pending
from delta_sharing_client.spark.stream_options import MAX_FILES, parse_stream_options
from delta_sharing_client.spark.stream_plan import (
    Listing,
    Reading,
    Stop,
    batch_plan,
    list_snapshot,
    list_versions,
)
from delta_sharing_client.spark.stream_schemas import SchemaLog, changes_between, schema_error
from delta_sharing_client.spark.stream_start import metadata_at, open_stream

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

logger = logging.getLogger("delta_sharing_client.spark")

#: How long a query that runs waits for a server that does not answer, seconds; every call has its retries besides.
_PATIENCE: Final = 600.0
#: What may pass by itself.
_TRANSIENT: Final = (
    TransportError,
    ServerError,
    RateLimitError,
    QueryError,
    IncompleteResponseError,
    TokenError,
)
#: Where a file's place can lie at the most.
_END: Final = 2**62


class TableStream:
    """A streaming query over a shared table, in the terms of Spark: offsets are JSON, partitions are bytes.

    Nothing is asked of the server before the first call.

    Args:
        given: the options, by names in lower case.
        pinned: the version whose columns Spark was told; None where it was not asked.
        schema: the columns that Spark wants.
        cores: tasks that can run at a time, where known.
    """

    def __init__(
        self, given: Mapping[str, str], pinned: int | None, schema: SparkStruct, cores: int | None
    ) -> None:
        self._options = parse_stream_options(given)
        self._pinned = pinned
        self._schema = schema
        self._cores = cores
        self._rest = RestClient(self._options.profile, TransportOptions())
        self._reading: Reading | None = None
        self._log: SchemaLog | None = None
        self._start: Offset | None = None
        self._seen: Offset | None = None
        self._checked = False
        self._listings: list[Listing] = []
        self._latest: int | None = None
        self._frozen: int | None = None
        self._asked_at: float | None = None
        self._trouble_since: float | None = None

    # -- what Spark calls

    def initial_offset(self) -> dict[str, Any]:
        """Return where the query begins: where it began, if there is an offset of it."""
        self._open()
        return (self._seen.start if self._seen is not None else self._first()).to_json()

    def default_limit(self) -> tuple[str, int]:
        """Return the kind of limit that the options ask for, by Spark's name for it, and its number."""
        options = self._options
        if options.max_files is None and options.max_bytes is not None:
            return "ReadMaxBytes", options.max_bytes
        return "ReadMaxFiles", options.max_files or MAX_FILES

    def latest_offset(self, start: Mapping[str, Any] | None, limit: tuple[str, int] | None) -> dict[str, Any]:
        """Return how far the next batch goes.

        Args:
            start: where it begins; None of a Spark before 4.2, which does not tell.
            limit: the kind of limit by Spark's name for it, and its number; None of a Spark before 4.2.

        Raises:
            StreamError, SchemaChangedError: the next version cannot be read as it is.
            ChangesGoneError: the next versions can no longer be had, or the table is another one.
            DeltaSharingError: the server could not be asked, or its answer could not be used.
        """
        reading = self._open()
        if start is not None:
            begin = Offset.from_json(start)
        else:
            begin = self._seen or self._first()
        self._check_table(reading, begin)
        if not self._checked:
            self._check_restart(reading, begin)
            self._checked = True
        self._forget(begin)
        admission = Admission(self._limit(limit))
        patient = limit is not None and limit[0] != "ReadAllAvailable" and self._frozen is None
        position = begin
        while not admission.full:
            try:
                listing = self._next(reading, position)
            except _TRANSIENT as error:
                if not self._may_wait(error, patient and position == begin):
                    raise
                break
            if listing is None:
                break
            if listing.stop is not None and listing.last < listing.first:
                if position != begin:
                    break  # what comes before is read first
                raise self._stopped(reading, listing.stop)
            position = admission.advance(position, pending(listing.files, position), listing.last)
        return position.to_json()

    def report_latest_offset(self) -> dict[str, Any] | None:
        """Return the end of what is known of the table, for the query's progress; asks nothing."""
        if self._latest is None or self._seen is None:
            return None
        return self._seen.after(self._latest).to_json()

    def prepare_for_available_now(self) -> None:
        """Fix the version at which the query ends: the latest one now."""
        self._open()
        self._frozen = self._ask_version()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
        """Return the job and the partition, encoded, of each task of a batch.

        The same offsets give the same rows. A start that is not that of the query which `end` is of is one that
        was looked up again after a crash, and does not count.

        Raises:
            ChangesGoneError, StreamError: the files of the batch can no longer be had as they were.
            DeltaSharingError: the server could not be asked, or its answer could not be used.
        """
        first, last = Offset.from_json(start), Offset.from_json(end)
        self._seen = last
        if first.start != last.start:
            first = last.start
        if first.place >= last.place:
            return []
        reading = self._open()
        self._check_table(reading, last)
        made: list[tuple[bytes, bytes]] = []
        position = first
        if position.is_snapshot:
            whole = self._covering(reading, position, position.version)
            stop = last.index if last.is_snapshot else _END
            made += self._encoded(reading, whole, self._chosen(whole, position, (position.version, stop)))
            if last.is_snapshot:
                return made
            position = position.after(position.version)
        tasks: list[FileScanTask] = []
        until = last.version if last.index > BEFORE else last.version - 1
        listing: Listing | None = None
        while position.place < last.place and position.version <= until:
            listing = self._covering(reading, position, until)
            tasks += self._chosen(listing, position, (last.version, last.index))
            position = position.after(listing.last)
        if listing is not None:
            begin = first.version + 1 if first.is_snapshot else first.version
            made += self._encoded(reading, listing, tasks, range(begin, until + 1))
        return made

    def commit(self, end: Mapping[str, Any]) -> None:
        """Forget what is not needed once a batch is done."""
        self._seen = Offset.from_json(end)
        self._forget(self._seen)

    def stop(self) -> None:
        """Close the connections."""
        self._listings.clear()
        self._rest.close()

    # -- the start

    def _open(self) -> Reading:
        """Return what to read; found out when it is first needed."""
        if self._reading is not None:
            return self._reading
        options = self._options
        info, self._log = open_stream(self._rest, options, self._pinned)
        reading = Reading.of(options, info)
        self._reading = reading.narrowed(asked_columns(self._schema, reading.spec.output, options.variant))
        return self._reading

    def _first(self) -> Offset:
        """Return where a query begins that has no offset yet."""
        if self._start is not None:
            return self._start
        reading, options = self._open(), self._options
        start, snapshot = options.starting_version, False
        if options.starting_timestamp is not None:
            version = self._rest.table_version(options.table, options.starting_timestamp)
        elif start is None:
            version, snapshot = reading.version, True
        elif start == "latest":
            version = self._ask_version() + 1
        else:
            version, latest = int(start), self._ask_version()
            if version > latest:
                raise StreamError(
                    f"startingVersion is {version}, and the latest version of {options.what} is {latest}: name one "
                    "that there is, or 'latest' to begin with the next one",
                    version=version,
                )
        self._start = Offset.initial(reading.info.metadata.id, version, snapshot=snapshot)
        return self._start

    def _check_restart(self, reading: Reading, begin: Offset) -> None:
        """Raise where the columns changed just before the place at which the query goes on, or starts.

        Everything before `begin` was read with the columns of the version before it. Later changes show when
        their versions are listed.
        """
        behind = begin.version - 1 if begin.index == BEFORE and not begin.is_snapshot else begin.version
        fresh = begin == begin.start
        if self._log is not None:
            self._begin_log(reading, begin, fresh)
        elif not fresh and 0 <= behind < reading.version:
            before = self._metadata_of(behind)
            changed = () if before is None else reading.misfit(before)
            if before is not None and changed:
                raise self._stopped(reading, Stop(behind, changed, before))

    def _begin_log(self, reading: Reading, begin: Offset, fresh: bool) -> None:
        log = self._log
        assert log is not None  # noqa: S101
        if not log.entries:
            if fresh or begin.version > reading.version:
                self._log = log.add(reading.info, reading.version)
                return
            info = self._metadata_of(max(begin.version - 1, 0)) or reading.info
            self._log = log.add(info, begin.version)
            if changes_between(info, reading.info):
                raise SchemaChangedError(
                    f"{self._options.what}: the columns of version {begin.version}, where the query goes on, were "
                    "written down in schemaTrackingLocation: restart the query",
                    version=begin.version,
                )
            return
        if len(log.entries) < 2 or (begin.version, begin.index) != (log.entries[-1].version, BEFORE):
            return
        before, after = log.entries[-2:]
        changed = [c for c in changes_between(before, after) if not c.additive and reading.matters(c)]
        version = after.version or 0
        if changed and not self._options.allows(version):
            raise SchemaChangedError(
                f"{self._options.what}: in version {version} {'; '.join(map(str, changed))}. If what the query writes "
                f"to is ready for that, restart it with allowSourceColumnRenameAndDrop={version} (or 'always')",
                version=version,
                columns=[c.column for c in changed],
            )

    def _metadata_of(self, version: int) -> TableInfo | None:
        return metadata_at(self._rest, self._options, version)

    # -- the files

    def _limit(self, limit: tuple[str, int] | None) -> Limit:
        options = self._options
        if limit is None:
            # Which trigger it is cannot be told, and one that reads all there is must not end at a default.
            return Limit(files=options.max_files, size=options.max_bytes)
        kind, number = limit
        if kind == "ReadMaxFiles":
            return Limit(files=number, size=options.max_bytes)
        if kind == "ReadMaxBytes":
            return Limit(files=options.max_files, size=number)
        return Limit()

    def _next(self, reading: Reading, position: Offset) -> Listing | None:
        """Return the files that come next, known ones or new ones; None if there is nothing new."""
        if position.is_snapshot:
            return self._covering(reading, position, position.version)
        last = self._frozen
        if last is None:
            if self._latest is None or position.version > self._latest:
                if not self._may_ask():
                    return None
                self._latest = self._ask_version()
            last = self._latest
        if position.version > last:
            if position.version > last + 1:
                self._check_not_behind(reading, position, last)
            return None
        return self._covering(reading, position, last)

    def _covering(self, reading: Reading, position: Offset, last: int) -> Listing:
        """Return the listing that a position lies in."""
        version = position.version
        for listing in self._listings:
            if listing.snapshot == position.is_snapshot and listing.first <= version <= listing.last:
                if listing.fresh:
                    return listing
                self._listings.remove(listing)
                last = max(version, min(last, listing.last))
                break
        try:
            if position.is_snapshot:
                listing = list_snapshot(self._rest, reading, version)
            else:
                until = min(last, version + self._options.max_versions - 1)
                listing = list_versions(self._rest, reading, version, until)
        except BadRequestError as error:
            if position == position.start:
                raise
            raise ChangesGoneError(
                f"{error}. If the provider has cleaned these versions up, they are lost to this query: start it "
                "with a new checkpoint location, and without startingVersion, to read the whole table first",
                version=version,
            ) from None
        if listing.last >= listing.first:
            self._listings.append(listing)
        return listing

    def _chosen(self, listing: Listing, position: Offset, end: tuple[int, int]) -> list[FileScanTask]:
        """Return the files of a batch in a listing, and be sure that it ends where it did before."""
        if listing.stop is not None and listing.last < listing.first:
            assert self._reading is not None  # noqa: S101
            raise self._stopped(self._reading, listing.stop)
        files, tasks = listing.between((position.version, position.index), end)
        version, index = end
        if BEFORE < index < _END and listing.first <= version <= listing.last:
            last = max((f.index for f in files if f.version == version), default=BEFORE)
            if last != index:
                raise StreamError(
                    f"{self._options.what}: a batch ended behind file {index} of version {version}, and the server "
                    "lists fewer files of it now. Start the query with a new checkpoint location",
                    version=version,
                )
        return tasks

    def _encoded(
        self, reading: Reading, listing: Listing, tasks: list[FileScanTask], versions: range = range(0)
    ) -> list[tuple[bytes, bytes]]:
        if not tasks:
            return []
        options = self._options
        plan = batch_plan(reading, listing, tasks, versions)
        parts = divide(plan, options.min_partitions or self._cores or os.cpu_count() or 1, options.partition_size)
        names = tuple(field.name for field in self._schema.fields)
        job, encoded = encode_plan(
            self._rest, plan, parts, executor_credentials=options.executor_credentials, names=names
        )
        return [(job, part) for part in encoded]

    def _forget(self, position: Offset) -> None:
        """Let go of listings that lie behind a position."""
        self._listings = [
            listing
            for listing in self._listings
            if (listing.last, not listing.snapshot) >= (position.version, not position.is_snapshot)
        ]

    # -- polling

    def _may_ask(self) -> bool:
        return self._asked_at is None or time.monotonic() >= self._asked_at + self._options.interval

    def _ask_version(self) -> int:
        self._asked_at = time.monotonic()
        version = self._rest.table_version(self._options.table)
        self._trouble_since = None
        return version

    def _may_wait(self, error: DeltaSharingError, patient: bool) -> bool:
        """Whether to go on as if there were nothing new: an exception would end the query."""
        now = time.monotonic()
        self._asked_at = now
        if not patient or self._latest is None:
            return False
        if self._trouble_since is None:
            self._trouble_since = now
        if now - self._trouble_since > _PATIENCE:
            return False
        logger.warning("the stream asks again in %g s: %s", self._options.interval, error)
        return True

    # -- what ends a query

    def _check_not_behind(self, reading: Reading, position: Offset, latest: int) -> None:
        """Raise if the table has fewer versions than it had; versions only ever come."""
        info = self._rest.table_metadata(self._options.table, self._options.formats)
        reading.check_identity(info.metadata.id, latest)
        raise ChangesGoneError(
            f"{self._options.what}: its latest version is {latest}, and the query has read version "
            f"{position.version - 1}. Start it with a new checkpoint location",
            version=latest + 1,
        )

    def _check_table(self, reading: Reading, offset: Offset) -> None:
        """Raise if an offset of the checkpoint is one of another table."""
        actual = reading.info.metadata.id
        if offset.table_id != actual:
            raise TableReplacedError(
                f"{self._options.what} has the id {actual}, and the query's checkpoint is of a table with the id "
                f"{offset.table_id}: the table was made anew under its name, or the checkpoint location is that of "
                "another query. Start the query with a new checkpoint location",
                expected=offset.table_id,
                actual=actual,
            )

    def _stopped(self, reading: Reading, stop: Stop) -> DeltaSharingError:
        """The error for a version at which the query stops; where schemas are tracked, its own is written down."""
        if stop.error is not None:
            return stop.error
        version: int | None = stop.version
        tracked = False
        if stop.version <= reading.version:
            version = self._changed_in(reading, stop.version)
        elif self._log is not None and stop.info is not None:
            self._log = self._log.add(stop.info, stop.version)
            tracked = True
        return schema_error(
            self._options.what, version, stop.changed, late=stop.version <= reading.version, tracked=tracked
        )

    def _changed_in(self, reading: Reading, low: int) -> int | None:
        """The version that made the columns of version `low` into those that the query has; by halves."""
        high = reading.version
        while high - low > 1:
            middle = (low + high) // 2
            info = self._metadata_of(middle)
            if info is None:
                return None
            if reading.misfit(info):
                low = middle
            else:
                high = middle
        return high
