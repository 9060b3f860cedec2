"""Listings of a stream's files: of the whole table or of a range of versions, with their versions and indexes.

The files of a version are in the order of the paths of their URLs, so that an index names the same file in each
answer; see `stream_offsets` for the order by ids.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from delta_sharing_client.cdf.change_tasks import ChangeTasks
from delta_sharing_client.cdf.options import CHANGE_TYPE, ChangeOptions
from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, StreamError
from delta_sharing_client.model.actions import AddFile, FileAction, RemoveFile, ResponseFormat
from delta_sharing_client.model.schema_evolution import ColumnChange
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.file_tasks import TaskPlanner, split_skipped
from delta_sharing_client.spark.data_source_options import StreamOptions
from delta_sharing_client.spark.path_ids import ids_like
from delta_sharing_client.spark.schema_log import mode_of
from delta_sharing_client.spark.stream_offsets import BEFORE, Offset, StreamFile, count_until
from delta_sharing_client.spark.stream_table import StreamTable
from delta_sharing_client.wire.answers import TableInfo
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

#: URLs that expire within this time are renewed before a batch uses them, seconds.
_URL_MARGIN: Final = 60.0
#: URLs without a known expiration are renewed after this time, seconds.
_URL_LIFETIME: Final = 600.0


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
        ids = ids_like(position.file_id, tasks) if position.file_id is not None else None
        if not ids:
            return self
        ordered = _by_id(tasks, ids, position.version, self.files[0].whole)
        listing = replace(self, files=ordered, id_format=position.response_format)
        return listing if listing.counts(position) else self

    def check(self, position: Offset, what: str) -> None:
        """Raise `StreamError` if the index of an offset does not stand for the same files as before."""
        if not self.counts(position):
            number = sum(file.version == position.version for file in self.files)
            raise unknown_files(
                position,
                f"{what}: a batch ended within version {position.version}, after {position.index + 1} of its "
                f"files, and the server now lists {number} files of that version, by other paths or ids",
            )


def unknown_files(position: Offset, problem: str) -> StreamError:
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


def list_snapshot(
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
    answer.protocol.check_readable(options.what)
    table.check_identity(answer.metadata, version)
    info = TableInfo(version, answer.protocol, answer.metadata)
    changed = table.misfit(info)
    if changed:
        return Listing(True, version, version - 1, (), answer.request, StoppingVersion(version, changed, info))
    if isinstance(options.query, ChangeOptions):
        tasks = ChangeTasks(options.what, options.query).of_snapshot(answer.items, version)
    else:
        tasks = _added(answer.items, table.spec)
    listed = in_order(tasks, version, by_id=by_id)
    return Listing(True, version, version, listed, answer.request, source=answer.source)


def list_versions(
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
    history = TableHistory.of(answer, last, options.what)
    by_version = _by_version(answer.items, first, last, options.what)
    stop = _schema_stop(table, history, first)
    files: list[StreamFile] = []
    for version in sorted(by_version):
        if stop is not None and version >= stop.version:
            break
        actions = by_version[version]
        if isinstance(options.query, ChangeOptions):
            tasks = ChangeTasks(options.what, options.query, version).of_changes(actions)
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


def _by_version(files: Sequence[FileAction], first: int, last: int, what: str) -> dict[int, list[FileAction]]:
    versions: dict[int, list[FileAction]] = {}
    for file in files:
        if file.version is None or not first <= file.version <= last:
            raise ProtocolError(
                f"{what}: the answer for versions {first} to {last} has file {file.id} of version {file.version}"
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
            f"{options.what}: version {version} rewrites files (an update, merge, overwrite, or a delete of some "
            "rows), which a stream of new rows cannot represent. Read every change with readChangeFeed=true, skip "
            "such versions with skipChangeCommits=true, or read the files that they wrote, old rows included, "
            "with ignoreChanges=true",
            version=version,
        )
    if options.ignore_deletes:
        return None
    return StreamError(
        f"{options.what}: version {version} deletes files, which a stream of new rows cannot represent. Read "
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
                f"{table.options.what}: version {version} changes its column mapping from {mode!r} to "
                f"{mode_of(info)!r}; start the query with a new checkpoint location",
                version=version,
            )
            return StoppingVersion(version, error=error)
    return None
