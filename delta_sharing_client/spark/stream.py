"""A streaming query's side in the driver: where it starts, how far a batch goes, which files are in it.

One process serves the planning calls of a query, so that what was listed for one call is there for the next; the
executors get everything with their partition. Whatever is kept can be had again from the offsets alone.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import (
    ChangesGoneError,
    DeltaSharingError,
    IncompleteResponseError,
    QueryError,
    RateLimitError,
    ServerError,
    StreamError,
    TableReplacedError,
    TokenError,
    TransportError,
)
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.spark.partition_plan import divide, encode_plan
from delta_sharing_client.spark.schema_change_check import SchemaGuard
from delta_sharing_client.spark.spark_schema import asked_columns
from delta_sharing_client.spark.stream_listings import Listings
from delta_sharing_client.spark.stream_offsets import BEFORE, Admission, Limit, Offset, pending
from delta_sharing_client.spark.stream_options import MAX_FILES, parse_stream_options
from delta_sharing_client.spark.stream_plan import Listing, batch_plan
from delta_sharing_client.spark.stream_reading import Reading
from delta_sharing_client.spark.stream_start import open_stream

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


@dataclass(frozen=True)
class _Opened:
    """What a query works with once the server was asked for the first time."""

    reading: Reading
    listings: Listings
    guard: SchemaGuard


@dataclass
class _Run:
    """Files of a batch that were listed in one response format, whose URLs are renewed together.

    Attributes:
        listing: the last listing of it.
        first, last: its versions.
        tasks: its files.
    """

    listing: Listing
    first: int
    last: int = -1
    tasks: list[FileScanTask] = field(default_factory=list)


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
        self._rest = RestClient(self._options.profile, self._options.transport)
        self._opened: _Opened | None = None
        self._start: Offset | None = None
        self._seen: Offset | None = None
        self._checked = self._ran = False
        self._latest: int | None = None
        self._frozen: int | None = None
        self._asked_at: float | None = None
        self._may_ask = True
        self._eager = False
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
        opened = self._open()
        begin = Offset.from_json(start) if start is not None else self._seen or self._first()
        self._check_table(begin)
        if not self._checked:
            opened.guard.check_start(begin)
            self._checked = True
        opened.listings.forget(begin)
        settled = opened.listings.settle(begin, self._ask_version)
        admission = Admission(self._limit(limit))
        # A trigger that takes all there is must not end well without having seen it.
        self._eager = limit is not None and limit[0] == "ReadAllAvailable"
        patient = self._ran and self._frozen is None and not self._eager
        position = settled
        self._may_ask = True
        while not admission.full:
            try:
                listing = self._next(position)
            except DeltaSharingError as error:
                if position != settled and limit is not None and not self._eager:
                    break  # what comes before is read first, and the next batch meets the error
                if not isinstance(error, _TRANSIENT) or not self._may_wait(error, patient and position == settled):
                    raise
                break
            if listing is None:
                break
            if listing.stop is not None and listing.last < listing.first:
                if position != settled:
                    break  # what comes before is read first
                raise opened.guard.error(listing.stop)
            position = admission.advance(
                position, pending(listing.files, position), listing.last, listing.response_format
            )
        self._ran = True
        # An offset that says more of the same place would be a batch of its own.
        return (begin if position == settled else position).to_json()

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
        listings = self._open().listings
        self._check_table(last)
        last = listings.settle(last, self._ask_version)
        if (first.version, first.is_snapshot) == (last.version, last.is_snapshot) and first.index > BEFORE:
            first = replace(first, response_format=last.response_format)
        position = listings.settle(first, self._ask_version)
        made: list[tuple[bytes, bytes]] = []
        if position.is_snapshot:
            wanted = last.response_format if last.is_snapshot else None
            whole = listings.covering(position, position.version, wanted)
            stop = last.index if last.is_snapshot else _END
            made += self._encoded(whole, self._chosen(whole, position, last, (position.version, stop)))
            if last.is_snapshot:
                return made
            position = position.after(position.version)
        runs: list[_Run] = []
        until = last.version if last.index > BEFORE else last.version - 1
        while position.place < last.place and position.version <= until:
            wanted = last.response_format if position.version == last.version else None
            listing = listings.covering(position, until, wanted)
            reached = min(listing.last, until)
            if reached == last.version and listing.response_format != last.response_format:
                reached -= 1  # the last version is looked up by itself, in the format of its offset
            tasks = self._chosen(listing, position, last, min((reached, _END), (last.version, last.index)))
            if not runs or runs[-1].listing.response_format != listing.response_format:
                runs.append(_Run(listing, position.version))
            runs[-1].tasks += tasks
            runs[-1].last = reached
            position = position.after(reached)
        for run in runs:
            made += self._encoded(run.listing, run.tasks, range(run.first, run.last + 1))
        return made

    def commit(self, end: Mapping[str, Any]) -> None:
        """Forget what is not needed once a batch is done."""
        self._open().listings.forget(Offset.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        self._opened = None
        self._rest.close()

    # -- the start

    def _open(self) -> _Opened:
        """Return what to read; found out when it is first needed."""
        if self._opened is None:
            options, rest = self._options, self._rest
            info, log = open_stream(rest, options, self._pinned)
            reading = Reading.of(options, info)
            reading = reading.narrowed(asked_columns(self._schema, reading.spec.output, options.variant))
            self._opened = _Opened(reading, Listings(rest, reading), SchemaGuard(rest, reading, log))
        return self._opened

    def _first(self) -> Offset:
        """Return where a query begins that has no offset yet."""
        if self._start is not None:
            return self._start
        reading, options = self._open().reading, self._options
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
                    f"startingVersion is {version}, and the latest version of {options.what} is {latest}: name "
                    "one that there is, or 'latest' to begin with the next one",
                    version=version,
                )
        self._start = Offset.initial(reading.info.metadata.id, version, snapshot=snapshot)
        return self._start

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

    def _next(self, position: Offset) -> Listing | None:
        """Return the files that come next, known ones or new ones; None if there is nothing new."""
        if position.is_snapshot:
            return self._open().listings.covering(position, position.version)
        last = self._latest if self._frozen is None else self._frozen
        if last is None or (self._frozen is None and position.version > last):
            if not self._due():
                return None
            last = self._ask_version()
        if position.version > last:
            if position.version > last + 1:
                self._check_not_behind(position, last)
            return None
        return self._open().listings.covering(position, last)

    def _chosen(
        self, listing: Listing, position: Offset, last: Offset, end: tuple[int, int]
    ) -> Sequence[FileScanTask]:
        """Return the files of a batch in a listing, and be sure that it ends where it did before.

        Args:
            listing: the listing.
            position: where the batch, or this part of it, begins.
            last: where the batch ends.
            end: the version and the index of the last file to return.
        """
        if listing.stop is not None and listing.last < listing.first:
            raise self._open().guard.error(listing.stop)
        files, tasks = listing.between((position.version, position.index), end)
        version, index = end
        if BEFORE < index < _END and listing.first <= version <= listing.last:
            listing.check(last, self._options.what)
            highest = max((f.index for f in files if f.version == version), default=BEFORE)
            if highest != index:
                raise StreamError(
                    f"{self._options.what}: a batch ended behind file {index} of version {version}, and the "
                    "server lists fewer files of it now. Start the query with a new checkpoint location",
                    version=version,
                )
        return tasks

    def _encoded(
        self, listing: Listing, tasks: Sequence[FileScanTask], versions: range = range(0)
    ) -> list[tuple[bytes, bytes]]:
        if not tasks:
            return []
        options = self._options
        plan = batch_plan(self._open().reading, listing, tasks, versions)
        parts = divide(plan, options.min_partitions or self._cores or os.cpu_count() or 1, options.partition_size)
        names = tuple(field.name for field in self._schema.fields)
        job, encoded = encode_plan(
            self._rest, plan, parts, executor_credentials=options.executor_credentials, names=names
        )
        return [(job, part) for part in encoded]

    # -- polling

    def _due(self) -> bool:
        """Whether the server may be asked for the version: once for a batch, and not too often."""
        if not self._may_ask or self._asked_at is None or self._eager:
            return self._may_ask
        return time.monotonic() >= self._asked_at + self._options.interval

    def _ask_version(self) -> int:
        self._may_ask = False
        self._asked_at = time.monotonic()
        self._latest = version = self._rest.table_version(self._options.table)
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

    def _check_not_behind(self, position: Offset, latest: int) -> None:
        """Raise if the table has fewer versions than it had; versions only ever come."""
        info = self._rest.table_metadata(self._options.table, self._options.formats)
        self._open().reading.check_identity(info.metadata.id, latest)
        raise ChangesGoneError(
            f"{self._options.what}: its latest version is {latest}, and the query has read version "
            f"{position.version - 1}. Start it with a new checkpoint location",
            version=latest + 1,
        )

    def _check_table(self, offset: Offset) -> None:
        """Raise if an offset of the checkpoint is one of another table."""
        actual = self._open().reading.info.metadata.id
        if offset.table_id != actual:
            raise TableReplacedError(
                f"{self._options.what} has the id {actual}, and the query's checkpoint is of a table with the id "
                f"{offset.table_id}: the table was made anew under its name, or the checkpoint location is that "
                "of another query. Start the query with a new checkpoint location",
                expected=offset.table_id,
                actual=actual,
            )
