"""Planning of tables that a server offers by their directory: the client replays the log in the table's store.

The newest checkpoint and the commits after it are copied to a temporary folder.

Serves "accessModes" and "temporary-table-credentials".
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from delta_sharing_client.delta.log import DeltaLog, Snapshot
from delta_sharing_client.delta.log.checkpoint_reader import sidecars
from delta_sharing_client.delta.log.log_segment import LOG_DIRECTORY, SIDECARS, Checkpoint, LogListing, list_log
from delta_sharing_client.errors import (
    DeltaLogError,
    DirectoryAccessError,
    VersionNotFoundError,
)
from delta_sharing_client.model.actions import AddFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.reader_features import canonical_feature
from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.scan.log_planner import LogPlanner, located
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.storage.byte_source import StorageReader, Transfers
from delta_sharing_client.storage.directory import DirectoryFiles, directory_reader, list_files
from delta_sharing_client.transport.exception_mapping import with_message
from delta_sharing_client.transport.retry import Attempt, Retrier
from delta_sharing_client.transport.url_rules import is_loopback
from delta_sharing_client.wire.requests import Timestamp, format_timestamp

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient


@dataclass(frozen=True)
class DirectoryPlanner:
    """Plans scans of a table by the log in its directory, with temporary credentials of the server."""

    rest: RestClient = field(repr=False)
    table: Table

    def plan(self, options: ScanOptions) -> ScanPlan:
        """Replay the log and plan a scan.

        Raises:
            DirectoryAccessError: the directory cannot be opened, or names files that no credentials open.
            VersionNotFoundError: the table does not have that version (any more).
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError, FilterError: the projection or the filter does not fit the table.
            DeltaLogError: the log is damaged.
            DeltaSharingError: the server gives no credentials, or the store cannot be read.
        """
        what = f"table {self.table.full_name}"
        files = DirectoryFiles(
            partial(self.rest.temporary_credentials, self.table),
            self.rest.options,
            endpoint_is_loopback=is_loopback(self.rest.profile.endpoint),
            auxiliary=self.table.auxiliary_locations,
        )
        reader = directory_reader(files, self.rest.options)
        snapshot = _snapshot(files, reader, options, what)
        protocol = snapshot.protocol
        protocol.check_readable(what)
        if any(canonical_feature(feature) == "catalogmanaged" for feature in protocol.required_features):
            raise DirectoryAccessError(
                f"{what}: a catalog manages it, and its newest versions need not be in its directory; "
                "ask the provider to share it by URL",
                access_modes=self.table.access_modes,
            )
        planner = LogPlanner(
            table=self.table,
            what=what,
            snapshot=snapshot,
            files=lambda: _shared_files(snapshot, files),
            source=(reader, files.renewed),
        )
        return planner.plan(options)


def _snapshot(files: DirectoryFiles, reader: StorageReader, query: ScanOptions, what: str) -> Snapshot:
    """Replay the requested version, from copies of the files of the log that it needs."""
    with tempfile.TemporaryDirectory(prefix="delta-sharing-log-") as folder:
        try:
            copies = _LogCopies(files, reader, Path(folder))
            listing = copies.listing
            if query.timestamp is not None:
                copies.fetch([*listing.commits.values()])
                copies.fetch_checkpoint(_newest(listing, listing.latest_version))
                log = DeltaLog(Path(folder), allow_absolute_paths=True, any_features=True)
                version = log.version_at_or_before(_milliseconds(query.timestamp))
            else:
                version = listing.latest_version if query.version is None else query.version
            if not 0 <= version <= listing.latest_version:
                raise VersionNotFoundError(
                    f"there is no version {version}; the latest is {listing.latest_version}"
                )
            checkpoint = _newest(listing, version)
            first = 0 if checkpoint is None else checkpoint.version
            copies.fetch([path for number, path in listing.commits.items() if first <= number <= version])
            copies.fetch_checkpoint(checkpoint)
            copies.remove_the_rest()
            snapshot = DeltaLog(Path(folder), allow_absolute_paths=True, any_features=True).snapshot_at(version)
            _ = snapshot.files_as_written
        except DeltaLogError as error:
            # Messages must not name the temporary folder.
            reason = str(error).removeprefix(f"{folder}: ").replace(folder, "the directory")
            shown = with_message(error, f"{what}: {reason}")
            shown.path = None
            raise shown from None
        return snapshot


class _LogCopies:
    """Copies of a log's files in a local folder; files that are not fetched are empty."""

    def __init__(self, files: DirectoryFiles, reader: StorageReader, folder: Path) -> None:
        self._files = files
        self._reader = reader
        self._folder = folder
        self._log = folder / LOG_DIRECTORY
        self._log.mkdir()
        self._listed = {LOG_DIRECTORY: self._list(LOG_DIRECTORY)}
        self._fetched: set[Path] = set()
        for name in self._listed[LOG_DIRECTORY]:
            if PurePosixPath(name).name == name and re.match(r"\d{20}\.", name):
                (self._log / name).touch()
        self.listing: LogListing = list_log(folder)

    def fetch(self, paths: list[Path]) -> None:
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

    def _list(self, folder: str) -> Mapping[str, tuple[int, float]]:
        def once(attempt: Attempt) -> Mapping[str, tuple[int, float]]:
            attempt.answered()
            return list_files(self._files, folder)

        return Retrier(self._reader.options).call(once)

    def _fetch(self, path: Path) -> None:
        folder = SIDECARS if path.parent.name == SIDECARS else LOG_DIRECTORY
        relative = path.relative_to(self._folder).as_posix()
        known = self._listed[folder].get(path.name)
        if known is None:
            raise DeltaLogError(f"the file {relative} of the log is missing")
        size, changed = known
        url = self._files.url(quote(relative))
        data = self._reader.fetch(url, relative, size, Transfers(renewal=self._files.renewed)) if size else b""
        path.write_bytes(memoryview(data) if data else b"")
        os.utime(path, (changed, changed))


def _newest(listing: LogListing, version: int) -> Checkpoint | None:
    """Return the newest checkpoint that is not after a version."""
    return next((checkpoint for checkpoint in listing.checkpoints if checkpoint.version <= version), None)


def _milliseconds(timestamp: Timestamp) -> int:
    moment: datetime = parse_iso8601(format_timestamp(timestamp))
    return int(moment.astimezone(UTC).timestamp() * 1000)


def _shared_files(snapshot: Snapshot, files: DirectoryFiles) -> Iterator[AddFile]:
    """Yield the files of a version as files of an answer; their ids are hashes of their paths."""
    for file in snapshot.files_as_written:
        path = files.system_and_path(files.url(file.path))[1]
        yield located(file, files.url, file_id=_short_hash(path))


def _short_hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:32]
