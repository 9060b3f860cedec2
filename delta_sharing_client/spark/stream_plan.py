"""What a streaming query reads: the files of the whole table, or of some versions, each with its place.

The files of a version stand in the order of their ids, so that a place names the same file whenever the server is
asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from delta_sharing_client.changes.history import TableHistory
from delta_sharing_client.changes.options import ChangeOptions
from delta_sharing_client.changes.plan import (
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    change_spec,
    change_tasks,
    inserted_tasks,
)
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, StreamError, TableReplacedError
from delta_sharing_client.protocol.actions import AddFile, FileAction, RemoveFile
from delta_sharing_client.protocol.answers import TableInfo
from delta_sharing_client.protocol.evolution import ColumnChange
from delta_sharing_client.protocol.request import ChangesRequest, QueryRequest, VersionsRequest
from delta_sharing_client.query import ScanPlan
from delta_sharing_client.rest import RestClient
from delta_sharing_client.scan.plan import Pruned, TaskMaker, project, read_spec
from delta_sharing_client.scan.tasks import FileScanTask, ReadSpec
from delta_sharing_client.spark.stream_offsets import Sized, behind
from delta_sharing_client.spark.stream_options import StreamOptions
from delta_sharing_client.spark.stream_schemas import changes_between, mode_of

#: Seconds: URLs that expire within this are asked for again before a batch gets them.
_TOO_LATE: Final = 60.0
#: Seconds after which URLs of unknown life are asked for again.
_OLD: Final = 600.0


@dataclass(frozen=True)
class Reading:
    """What a streaming query makes of every file, from its start to its end.

    Attributes:
        options: what the user asks for.
        info: the table's metadata, as of the version whose columns Spark was told.
        spec: what to read of each file.
        chosen: the names of the table's columns that are read, where they were chosen; None for all.
    """

    options: StreamOptions
    info: TableInfo
    spec: ReadSpec = field(repr=False)
    chosen: frozenset[str] | None

    @classmethod
    def of(cls, options: StreamOptions, info: TableInfo) -> Reading:
        """Return what to read of a table, all columns that the options name.

        Raises:
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError: the options name columns that it lacks.
        """
        info.protocol.check_readable(options.what)
        spec = read_spec(info.metadata, options.columns, None, options.variant, info.protocol)
        if options.read_change_feed:
            spec = change_spec(spec, "timestamp", what=options.what)
        chosen = None if options.columns is None else _table_columns(spec.output.names)
        return cls(options, info, spec, chosen)

    def narrowed(self, names: Sequence[str]) -> Reading:
        """Return what to read when Spark wants but these columns."""
        output = project(self.spec.output, names)
        if len(output.fields) == len(self.spec.output.fields):
            return replace(self, spec=replace(self.spec, output=output))
        return replace(self, spec=replace(self.spec, output=output), chosen=_table_columns(output.names))

    @property
    def version(self) -> int:
        """The version whose columns Spark was told."""
        return self.info.version or 0

    @property
    def changes_query(self) -> ChangeOptions:
        """In which form the rows of changes are wanted."""
        options = self.options
        return ChangeOptions(
            columns=options.columns,
            response_format=options.response_format,
            commit_timestamp="timestamp",
            variant=options.variant,
        )

    def matters(self, change: ColumnChange) -> bool:
        """Whether a change of a column is one of those that are read."""
        return self.chosen is None or change.top.lower() in self.chosen

    def misfit(self, info: TableInfo) -> tuple[ColumnChange, ...]:
        """Return what keeps the files of another version from being read with these columns.

        Of a version before that of the columns, whatever is not an addition; of one after it, additions too:
        after a restart they are read.
        """
        if (info.version or 0) <= self.version:
            return tuple(c for c in changes_between(info, self.info) if not c.additive and self.matters(c))
        return tuple(c for c in changes_between(self.info, info) if self.matters(c))

    def check_identity(self, table_id: str, version: int) -> None:
        """Raise `TableReplacedError` if the server tells of another table than the one that is read."""
        if table_id != self.info.metadata.id:
            raise TableReplacedError(
                f"{self.options.what}: it was made anew under its name (its id was {self.info.metadata.id}, and "
                f"is {table_id}). To read the new one, start the query with a new checkpoint location",
                version=version,
                expected=self.info.metadata.id,
                actual=table_id,
            )


def _table_columns(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name not in CHANGE_COLUMNS)


@dataclass(frozen=True)
class Stop:
    """A version that the query cannot read as it is.

    Attributes:
        version: the version.
        changed: its columns that changed; empty where something else is the matter.
        info: its metadata, where columns changed.
        error: what else is the matter.
    """

    version: int
    changed: tuple[ColumnChange, ...] = ()
    info: TableInfo | None = field(default=None, repr=False)
    error: DeltaSharingError | None = None


@dataclass(frozen=True)
class Listing:
    """The files of the whole table as of a version, or those of a run of versions, in the order of their places.

    Attributes:
        snapshot: whether it is the whole table.
        first, last: the versions; `last` is before `first` where the first one stops the query.
        files: what counts of each file when a batch is made up.
        tasks: what to read, file by file.
        request: what was asked.
        stop: the version after `last`, where it stops the query.
        listed: when it was asked for, in seconds since the epoch.
    """

    snapshot: bool
    first: int
    last: int
    files: Sequence[Sized] = field(repr=False)
    tasks: Sequence[FileScanTask] = field(repr=False)
    request: QueryRequest | ChangesRequest | VersionsRequest = field(repr=False)
    stop: Stop | None = None
    listed: float = field(default_factory=time.time)

    @property
    def fresh(self) -> bool:
        """Whether its URLs can be used for some time."""
        expires = [task.expiration for task in self.tasks if task.expiration is not None]
        if not expires:
            return time.time() < self.listed + _OLD
        return time.time() < min(expires) / 1000 - _TOO_LATE or time.time() < self.listed + 1

    def between(
        self, place: tuple[int, int], end: tuple[int, int]
    ) -> tuple[Sequence[Sized], Sequence[FileScanTask]]:
        """Return the files behind a place, up to another place; places are versions and indexes."""
        chosen = slice(behind(self.files, place), behind(self.files, end))
        return self.files[chosen], self.tasks[chosen]


def list_snapshot(rest: RestClient, reading: Reading, version: int) -> Listing:
    """Ask for the files of the whole table as of a version: one request.

    Raises:
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    options = reading.options
    request = QueryRequest(formats=options.formats, version=version)
    answer = rest.query_table(options.table, request)
    answer.protocol.check_readable(options.what)
    reading.check_identity(answer.metadata.id, version)
    info = TableInfo(version, answer.protocol, answer.metadata)
    changed = reading.misfit(info)
    if changed:
        return Listing(True, version, version - 1, (), (), request, Stop(version, changed, info))
    files = sorted(answer.items, key=lambda file: file.id)
    if options.read_change_feed:
        tasks = list(inserted_tasks(files, version, reading.changes_query, options.what))
    else:
        tasks = list(_added(files, reading.spec))
    sized = [Sized(version, i, file.size) for i, file in enumerate(files)]
    return Listing(True, version, version, sized, tasks, request)


def list_versions(rest: RestClient, reading: Reading, first: int, last: int) -> Listing:
    """Ask for the files of a run of versions: one request.

    Args:
        rest: the server.
        reading: what to read.
        first: the first version.
        last: the last version, which there has to be.

    Raises:
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    options = reading.options
    request: ChangesRequest | VersionsRequest
    protocols = "delta" in options.formats
    if options.read_change_feed:
        request = ChangesRequest(
            formats=options.formats,
            starting_version=first,
            ending_version=last,
            include_historical_metadata=True,
            include_historical_protocol=protocols,
        )
    else:
        request = VersionsRequest(
            formats=options.formats,
            starting_version=first,
            ending_version=last,
            include_historical_protocol=protocols,
        )
    answer = rest.table_changes(options.table, request)
    history = TableHistory.of(answer, last, options.what)
    by_version = _by_version(answer.items, first, last, options.what)
    stop = _schema_stop(reading, history, first)
    sized: list[Sized] = []
    tasks: list[FileScanTask] = []
    for version in sorted(by_version):
        if stop is not None and version >= stop.version:
            break
        error = None if options.read_change_feed else _forbidden(by_version[version], version, options)
        if error is not None:
            stop = Stop(version, error=error)
            break
        made = _of_version(by_version[version], version, reading)
        whole = any(CHANGE_TYPE not in task.constants for task in made) if options.read_change_feed else False
        sized.extend(Sized(version, i, task.size, whole) for i, task in enumerate(made))
        tasks.extend(made)
    return Listing(False, first, last if stop is None else stop.version - 1, sized, tasks, request, stop)


def batch_plan(reading: Reading, listing: Listing, tasks: Sequence[FileScanTask], versions: range) -> ScanPlan:
    """Return the plan of a part of a listing.

    Args:
        reading: what to read.
        listing: where the files are from.
        tasks: the files.
        versions: the versions that they are of, which are asked for again if their URLs expire.
    """
    request = listing.request
    if not isinstance(request, QueryRequest) and len(versions):
        request = replace(request, starting_version=versions[0], ending_version=versions[-1])
    return ScanPlan(
        table=reading.options.table,
        version=listing.first,
        protocol=reading.info.protocol,
        metadata=reading.info.metadata,
        spec=reading.spec,
        tasks=tasks,
        pruned={},
        limit=None,
        request=request,
    )


def _by_version(files: Sequence[FileAction], first: int, last: int, what: str) -> dict[int, list[FileAction]]:
    versions: dict[int, list[FileAction]] = {}
    for file in files:
        if file.version is None or not first <= file.version <= last:
            raise ProtocolError(
                f"{what}: asked for the versions {first} to {last}, the server names the file {file.id} of "
                f"version {file.version}"
            )
        versions.setdefault(file.version, []).append(file)
    return versions


def _of_version(files: Sequence[FileAction], version: int, reading: Reading) -> list[FileScanTask]:
    """The tasks of one version, in the order of their places."""
    options = reading.options
    if options.read_change_feed:
        tasks = change_tasks(files, reading.changes_query, options.what, version)
        return sorted(tasks, key=_place)
    if options.skip_change_commits and any(isinstance(file, RemoveFile) and file.data_change for file in files):
        return []
    added = [file for file in files if isinstance(file, AddFile) and file.data_change]
    return sorted(_added(added, reading.spec), key=_place)


def _place(task: FileScanTask) -> tuple[str, str, str]:
    """What the files of a version are ordered by; of a file whose rows were deleted and restored there are two."""
    change = task.constants.get(CHANGE_TYPE)
    return task.file_id, str(change or ""), task.deletion_vector_id or ""


def _added(files: Sequence[FileAction], spec: ReadSpec) -> Iterator[FileScanTask]:
    make = TaskMaker(spec)
    for file in files:
        task = make(file)
        if not isinstance(task, Pruned):  # nothing is pruned without a row filter
            yield task


def _forbidden(files: Sequence[FileAction], version: int, options: StreamOptions) -> StreamError | None:
    """What to say of a version that deletes or rewrites rows, unless the options let it pass."""
    removed = any(isinstance(file, RemoveFile) and file.data_change for file in files)
    added = any(isinstance(file, AddFile) and file.data_change for file in files)
    if not removed or options.ignore_changes or options.skip_change_commits:
        return None
    if added:
        return StreamError(
            f"{options.what}: version {version} rewrites files (an update, merge, overwrite, or a delete of some "
            "rows), which a stream of new rows cannot tell. Read every change with readChangeFeed=true, leave "
            "such versions out with skipChangeCommits=true, or read what they wrote, old rows again, with "
            "ignoreChanges=true",
            version=version,
        )
    if options.ignore_deletes:
        return None
    return StreamError(
        f"{options.what}: version {version} deletes files, which a stream of new rows cannot tell. Read every "
        "change with readChangeFeed=true, or let versions that only delete pass with ignoreDeletes=true "
        "(skipChangeCommits and ignoreChanges let more of them pass)",
        version=version,
    )


def _schema_stop(reading: Reading, history: TableHistory, first: int) -> Stop | None:
    """The first version of a range whose rows the query cannot read with its columns."""
    protocols = history.protocols
    for number, metadata in enumerate(history.metadata):
        version = first if number == 0 or metadata.version is None else metadata.version
        reading.check_identity(metadata.id, version)
        # With which protocol a version came is only told where it changed; the mode of the columns is what counts.
        protocol = protocols[0] if number == 0 or len(protocols) == 1 else protocols[-1]
        info = TableInfo(version, protocol, metadata)
        changed = reading.misfit(info)
        if changed:
            return Stop(version, changed, info)
        if mode_of(reading.info) != "none" != mode_of(info) and mode_of(info) != mode_of(reading.info):
            return Stop(
                version,
                error=StreamError(
                    f"{reading.options.what}: version {version} changes its column mapping from "
                    f"{mode_of(reading.info)!r} to {mode_of(info)!r}; start the query with a new checkpoint "
                    "location",
                    version=version,
                ),
            )
    return None
