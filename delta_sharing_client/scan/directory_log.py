"""The log of a table that is shared by its directory: snapshots, versions and changes, as a server would answer.

The checkpoints and commits that a request needs are copied to a temporary folder.

Serves "accessModes" and "temporary-table-credentials".
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from msgspec import structs

from delta_sharing_client.errors import (
    BadRequestError,
    DeltaLogError,
    DirectoryAccessError,
    RestError,
    VersionNotFoundError,
)
from delta_sharing_client.log import DeltaLog, Snapshot
from delta_sharing_client.log.checkpoint_reader import sidecars
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, SIDECARS, Checkpoint, LogListing, list_log
from delta_sharing_client.log.snapshot import Commit
from delta_sharing_client.log.store_path import LogPath, local_directory
from delta_sharing_client.model.actions import AddFile, CdcFile, FileAction, Metadata, Protocol, RemoveFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.reader_features import canonical_feature
from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.parquet.size_limits import footer_limits
from delta_sharing_client.scan.log_planner import located
from delta_sharing_client.scan.options import OnFuture
from delta_sharing_client.storage.byte_source import StorageReader, Transfers
from delta_sharing_client.storage.directory import DirectoryFiles, directory_reader, list_files, open_files
from delta_sharing_client.transport.exception_mapping import with_message
from delta_sharing_client.transport.retry import Attempt, Retrier
from delta_sharing_client.wire.answers import Answer, Convert, TableInfo
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import (
    ChangesRequest,
    QueryRequest,
    Timestamp,
    VersionsRequest,
    format_timestamp,
)

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient

F = TypeVar("F", bound=FileAction)
#: A file of a log may have so many times the bytes of `TransportOptions.metadata_limit`: a checkpoint has some 100
#: bytes for each file of the table.
_LOG_FILE_SIZES: Final = 16
_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_NO_CREDENTIALS: Final = (
    "The table is shared by its directory only, which needs temporary credentials of the server: ask the provider "
    "to issue them, or to share the table by URL"
)


class DirectoryLog:
    """The log in the directory of a shared table, read with temporary credentials of the server.

    Its methods raise `DirectoryAccessError` if the directory cannot be opened, or names files that no credentials
    open, `DeltaLogError` if the log is damaged, and other errors if the server gives no credentials or the store
    cannot be read.

    Args:
        rest: the server.
        table: the table, with its auxiliary locations.
    """

    def __init__(self, rest: RestClient, table: Table) -> None:
        self.table = table
        self.subject = f"table {table.full_name}"
        try:
            self.files = open_files(rest, table)
        except RestError as error:
            raise with_message(error, f"{error}. {_NO_CREDENTIALS}") from None
        self.reader = directory_reader(self.files, rest.options)

    def version(self, starting_timestamp: Timestamp | None = None) -> int:
        """Return the latest version, or the first one at or after a time."""
        with self._copied() as copies, self._refusals():
            if starting_timestamp is None:
                return copies.listing.latest_version
            return copies.log_of_times().version_at_or_after(_milliseconds(starting_timestamp))

    def snapshot(
        self, version: int | None, timestamp: Timestamp | None, on_future: OnFuture = "raise"
    ) -> Snapshot:
        """Replay the requested version.

        Raises:
            VersionNotFoundError: the table does not have that version (any more), or the time is after its last
                commit and `on_future` is ``raise``.
            UnsupportedTableError: the table needs something that this release cannot read.
        """
        with self._copied() as copies:
            latest = copies.listing.latest_version
            if timestamp is not None:
                log, time = copies.log_of_times(), _milliseconds(timestamp)
                version = log.version_at_or_before(time)
                if version == latest and on_future == "raise" and log.commit_timestamp(version) < time:
                    raise VersionNotFoundError(
                        f"{format_timestamp(timestamp)} is after the last commit; request a time from the first "
                        "version to the latest, or on_future='latest'"
                    )
            elif version is None:
                version = latest
            if not 0 <= version <= latest:
                raise VersionNotFoundError(f"there is no version {version}; the latest is {latest}")
            snapshot = copies.log(version, version).snapshot_at(version)
            _ = snapshot.files_as_written
        self._check(snapshot.protocol)
        return snapshot

    def info(self, version: int | None, timestamp: Timestamp | None) -> TableInfo:
        """Return the protocol and metadata of a version."""
        with self._refusals():
            snapshot = self.snapshot(version, timestamp)
        metadata = replace(
            snapshot.metadata,
            access_modes=self.table.access_modes,
            location=self.table.location,
            auxiliary_locations=self.table.auxiliary_locations,
        )
        return TableInfo(snapshot.version, snapshot.protocol, metadata)

    def query(self, request: QueryRequest, convert: Convert[Any]) -> Answer[Any, QueryRequest]:
        """Return the files of a snapshot; a limit and hints are not applied."""
        with self._refusals():
            snapshot = self.snapshot(request.version, request.timestamp)
        head = TableInfo(snapshot.version, snapshot.protocol, snapshot.metadata)
        return self._answer(head, request, self.located(snapshot.files_as_written), convert)

    def changes(
        self, request: ChangesRequest | VersionsRequest, convert: Convert[Any]
    ) -> Answer[Any, ChangesRequest | VersionsRequest]:
        """Return the files of a range of versions, read from their commits.

        Raises:
            BadRequestError: the log does not have a version, or no change feed of it.
        """
        with self._copied() as copies, self._refusals():
            first, last = self._range(copies, request)
            log = copies.log(first, last)
            begin, commits = log.snapshot_at(first), list(log.changes(first, last))
        self._check(begin.protocol)
        later: list[Metadata] = []
        protocols: list[Protocol] = []
        files: list[FileAction] = []
        feed = isinstance(request, ChangesRequest)
        metadata = begin.metadata
        for commit in commits:
            for action in commit.actions if commit.version > first else ():
                if isinstance(action, Metadata):
                    metadata = replace(action, version=commit.version)
                    later.append(metadata)
                elif isinstance(action, Protocol):
                    self._check(action)
                    protocols.append(action)
            if feed and metadata.configuration.get(_CHANGE_FEED, "").lower() != "true":
                raise self._refused(f"the change data feed of version {commit.version} is not enabled")
            files += self.located(_changed_files(commit, feed))
        answer = self._answer(TableInfo(first, begin.protocol, begin.metadata), request, files, convert)
        return structs.replace(answer, historical=tuple(later), protocols=tuple(protocols))

    def located(self, files: Iterable[F]) -> Iterator[F]:
        """Yield files of the log as files of an answer; their ids are hashes of their paths."""
        for file in files:
            yield located(
                file, self.files.url, file_id=_short_hash(self.files.system_and_path(self.files.url(file.path))[1])
            )

    def _answer(
        self, head: TableInfo, request: Any, files: Iterable[FileAction], convert: Convert[Any]
    ) -> Answer[Any, Any]:
        make = convert(head.protocol, head.metadata)
        blocks = (FileBlock.of(list(kind)) for _, kind in groupby(files, type))
        items = [] if make is None else [item for block in blocks for item in make(block)]
        return Answer(
            head.version,
            head.protocol,
            head.metadata,
            items,
            None,
            request.in_format(head.protocol.response_format),
            source=(self.reader, self.files),
            complete=make is not None,
        )

    def _range(self, copies: LogCopies, request: ChangesRequest | VersionsRequest) -> tuple[int, int]:
        first, last = request.starting_version, request.ending_version
        if isinstance(request, ChangesRequest):
            times = request.starting_timestamp, request.ending_timestamp
            if times != (None, None):
                log = copies.log_of_times()
                if times[0] is not None:
                    first = log.version_at_or_after(_milliseconds(times[0]))
                if times[1] is not None:
                    last = log.version_at_or_before(_milliseconds(times[1]))
        latest = copies.listing.latest_version
        first, last = first or 0, latest if last is None else min(last, latest)
        if not first <= last:
            found = f"no version {first}" if first > latest else f"no version from {first} to {last}"
            raise self._refused(f"there is {found}; the latest is {latest}")
        return first, last

    def _check(self, protocol: Protocol) -> None:
        protocol.check_readable(self.subject)
        if any(canonical_feature(feature) == "catalogmanaged" for feature in protocol.required_features):
            raise DirectoryAccessError(
                f"{self.subject}: a catalog manages it, and its newest versions need not be in its directory; "
                "ask the provider to share it by URL",
                access_modes=self.table.access_modes,
            )

    def _refused(self, message: str) -> BadRequestError:
        subject = f"{self.subject} (its directory)"  # the client refuses it, not the server
        return with_message(
            BadRequestError(status=400, subject=subject, server_message=message), f"{subject}: {message}"
        )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise `BadRequestError` for versions that the log lacks, as for those that a server lacks."""
        try:
            yield
        except VersionNotFoundError as error:
            raise self._refused(str(error)) from None

    @contextmanager
    def _copied(self) -> Iterator[LogCopies]:
        """Provide copies of the log's files; messages of errors do not name their folder."""
        with tempfile.TemporaryDirectory(prefix="delta-sharing-log-") as folder:
            try:
                yield LogCopies(self.files, self.reader, Path(folder))
            except DeltaLogError as error:
                reason = str(error).removeprefix(f"{folder}: ").replace(folder, "the directory")
                shown = with_message(error, f"{self.subject}: {reason}")
                shown.path = None
                raise shown from None


def _changed_files(commit: Commit, feed: bool) -> Iterator[FileAction]:
    # If a version has change files, only they describe its changes.
    changes = [action for action in commit.actions if feed and isinstance(action, CdcFile)]
    for action in changes or commit.actions:
        if isinstance(action, CdcFile if changes else AddFile | RemoveFile) and (changes or action.data_change):
            yield structs.replace(action, version=commit.version, timestamp=commit.timestamp)


class LogCopies:
    """Copies of a log's files in a local folder; files that are not fetched are empty."""

    def __init__(self, files: DirectoryFiles, reader: StorageReader, folder: Path) -> None:
        self._files = files
        self._reader = reader
        self._folder = folder
        self._log = folder / LOG_DIRECTORY
        self._log.mkdir()
        self._listed = {LOG_DIRECTORY: self._list(LOG_DIRECTORY)}
        self._fetched: set[LogPath] = set()
        for name in self._listed[LOG_DIRECTORY]:
            if PurePosixPath(name).name == name and re.match(r"\d{20}\.", name):
                (self._log / name).touch()
                os.utime(self._log / name, (self._listed[LOG_DIRECTORY][name][1],) * 2)
        self.listing: LogListing = list_log(folder)

    def fetch(self, paths: list[LogPath]) -> None:
        """Fetch files concurrently; files that were fetched before are skipped."""
        wanted = [path for path in paths if path not in self._fetched]
        with ThreadPoolExecutor(max_workers=max(1, min(8, len(wanted)))) as pool:
            list(pool.map(self._fetch, wanted))
        self._fetched.update(wanted)

    def fetch_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        """Fetch a checkpoint, its sidecars included."""
        if checkpoint is None:
            return
        self.fetch([*checkpoint.files])
        named = sidecars(checkpoint)
        if named:
            (self._log / SIDECARS).mkdir(exist_ok=True)
            self._listed[SIDECARS] = self._list(f"{LOG_DIRECTORY}/{SIDECARS}")
            self.fetch(named)

    def remove_the_rest(self) -> None:
        """Remove the empty files of those that were not fetched."""
        for path in self._log.iterdir():
            if path.is_file() and path not in self._fetched:
                path.unlink()

    def log(self, first: int, last: int) -> DeltaLog:
        """Return the log of versions, from copies of the commits and of the newest checkpoint that they need."""
        checkpoint = _newest(self.listing, first)
        oldest = 0 if checkpoint is None else checkpoint.version
        self.fetch([path for number, path in self.listing.commits.items() if oldest <= number <= last])
        self.fetch_checkpoint(checkpoint)
        self.remove_the_rest()
        return self._opened()

    def log_of_times(self) -> DeltaLog:
        """Return the log with all of its commits, whose times it compares."""
        self.fetch([*self.listing.commits.values()])
        self.fetch_checkpoint(_newest(self.listing, self.listing.latest_version))
        return self._opened()

    def _opened(self) -> DeltaLog:
        return DeltaLog(self._folder, allow_absolute_paths=True, any_features=True)

    def _list(self, folder: str) -> Mapping[str, tuple[int, float]]:
        def once(attempt: Attempt) -> Mapping[str, tuple[int, float]]:
            attempt.answered()
            return list_files(self._files, folder)

        return Retrier(self._reader.options).call(once)

    def _fetch(self, copy: LogPath) -> None:
        path = local_directory(copy)
        folder = SIDECARS if path.parent.name == SIDECARS else LOG_DIRECTORY
        relative = path.relative_to(self._folder).as_posix()
        known = self._listed[folder].get(path.name)
        if known is None:
            raise DeltaLogError(f"the file {relative} of the log is missing")
        size, changed = known
        limit = self._reader.options.metadata_limit
        if size > _LOG_FILE_SIZES * limit:
            raise DeltaLogError(
                f"the file {relative} of the log has {size:,} bytes; {_LOG_FILE_SIZES} times "
                f"TransportOptions.metadata_limit ({limit:,}) are allowed"
            )
        url = self._files.url(quote(relative))
        data = self._reader.fetch(url, relative, size, Transfers(renewal=self._files)) if size else b""
        if path.suffix == ".parquet":
            footer_limits(data, limit, relative)
        path.write_bytes(memoryview(data) if data else b"")
        os.utime(path, (changed, changed))


def _newest(listing: LogListing, version: int) -> Checkpoint | None:
    """Return the newest checkpoint that is not after a version."""
    return next((checkpoint for checkpoint in listing.checkpoints if checkpoint.version <= version), None)


def _milliseconds(timestamp: Timestamp) -> int:
    moment: datetime = parse_iso8601(format_timestamp(timestamp))
    return int(moment.astimezone(UTC).timestamp() * 1000)


def _short_hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:32]
