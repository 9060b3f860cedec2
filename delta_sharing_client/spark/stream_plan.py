"""What a streaming query reads: the files of the whole table, or of some versions, each with its place.

The files of a version stand in the order of their ids, so that a place names the same file whenever the server is
asked in the same response format.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from delta_sharing_client.cdf.planner import CHANGE_TYPE, change_tasks, inserted_tasks
from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, StreamError
from delta_sharing_client.model.actions import AddFile, FileAction, RemoveFile, ResponseFormat
from delta_sharing_client.model.schema_evolution import ColumnChange
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import TaskPlanner, split_skipped
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.stream_offsets import BEFORE, Offset, Sized, behind
from delta_sharing_client.spark.stream_options import StreamOptions
from delta_sharing_client.spark.stream_reading import Reading
from delta_sharing_client.spark.stream_schemas import mode_of
from delta_sharing_client.wire.answers import TableInfo
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

#: Seconds: URLs that expire within this are asked for again before a batch gets them.
_TOO_LATE: Final = 60.0
#: Seconds after which URLs of unknown life are asked for again.
_OLD: Final = 600.0


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
        request: what was asked, in the response format of the answer alone.
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
    def response_format(self) -> ResponseFormat:
        """The response format that the places of the files depend on."""
        return self.request.formats[0]

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

    def check(self, position: Offset, what: str) -> None:
        """Check that a position lies behind the file that it names.

        Raises:
            StreamError: the server gives the files of the version other ids than it did.
        """
        if position.index == BEFORE or position.file_id is None or not self.first <= position.version <= self.last:
            return
        number = behind(self.files, (position.version, position.index))
        found = self.files[number - 1] if number else None
        if found is None or (found.version, found.index, found.file_id) != (
            position.version,
            position.index,
            position.file_id,
        ):
            raise StreamError(
                f"{what}: a batch ended within version {position.version} behind the file {position.file_id}, and "
                "the server gives the files of that version other ids now: which were read cannot be told. "
                "Start the query with a new checkpoint location",
                version=position.version,
            )


def list_snapshot(
    rest: RestClient, reading: Reading, version: int, formats: tuple[ResponseFormat, ...]
) -> Listing:
    """Ask for the files of the whole table as of a version: one request.

    Args:
        rest: the server.
        reading: what to read.
        version: the version.
        formats: response formats accepted.

    Raises:
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    options = reading.options
    answer = rest.query_table(options.table, QueryRequest(formats=formats, version=version))
    request = answer.request
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
        tasks = _added(files, reading.spec)
    sized = [Sized(version, i, file.size, file_id=file.id) for i, file in enumerate(files)]
    return Listing(True, version, version, sized, tasks, request)


def list_versions(
    rest: RestClient, reading: Reading, first: int, last: int, formats: tuple[ResponseFormat, ...]
) -> Listing:
    """Ask for the files of a run of versions: one request.

    Args:
        rest: the server.
        reading: what to read.
        first: the first version.
        last: the last version, which there has to be.
        formats: response formats accepted.

    Raises:
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    options = reading.options
    request: ChangesRequest | VersionsRequest
    protocols = "delta" in formats
    if options.read_change_feed:
        request = ChangesRequest(
            formats=formats,
            starting_version=first,
            ending_version=last,
            include_historical_metadata=True,
            include_historical_protocol=protocols,
        )
    else:
        request = VersionsRequest(
            formats=formats,
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
        sized.extend(Sized(version, i, task.size, whole, task.file_id) for i, task in enumerate(made))
        tasks.extend(made)
    return Listing(False, first, last if stop is None else stop.version - 1, sized, tasks, answer.request, stop)


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


def _added(files: Sequence[FileAction], spec: ReadSpec) -> list[FileScanTask]:
    return split_skipped(TaskPlanner(spec)(FileBlock.of(files)))[0]


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
