"""Materialization of changes as a local Delta table, from which engines read the same change rows."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.delta.table.file_download import PRIVATE_FOLDER, StoredFile
from delta_sharing_client.delta.table.local_actions import LocalFile, LocalLayout, now_in_ms
from delta_sharing_client.delta.table.local_metadata import local_metadata, local_protocol
from delta_sharing_client.delta.table.local_table import LocalTable
from delta_sharing_client.delta.table.materialize_snapshot import Materialized
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.log.actions import make_action
from delta_sharing_client.log.checkpoint_writer import write_checkpoint
from delta_sharing_client.log.durable_files import make_directories, rename_durably, writing
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, commit_name
from delta_sharing_client.log.snapshot import LogState, Snapshot
from delta_sharing_client.model.actions import AddFile, CdcFile, FileAction, Metadata
from delta_sharing_client.model.names import Table
from delta_sharing_client.wire.answers import Answer
from delta_sharing_client.wire.requests import ChangesRequest, send_in_format

#: The folder of files with change rows.
_CHANGE_FOLDER: Final = "_change_data/"
#: The commits are the data, so that none may expire.
_PROPERTIES: Final = {"delta.enableChangeDataFeed": "true", "delta.enableExpiredLogCleanup": "false"}


def materialize_changes(local: LocalTable, request: ChangesRequest) -> Materialized:
    """Write the changes of a shared table as a local Delta table, one commit for each version of it.

    Versions have the same numbers and times as in the shared table. A checkpoint with the protocol and the
    metadata precedes the first one. The log is written after all data, and becomes visible at once.

    Serves "Read Change Data Feed from a Table".

    Raises:
        SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
        DeltaLogError: the directory contains a table, or cannot be written.
        DeltaSharingError: a request failed, or a file cannot be fetched.
    """
    local.new_log()
    rest, table, path = local.rest, local.shared, local.directory
    subject = f"table {table.full_name}"
    if request.ending_version is None and request.ending_timestamp is None:
        request = replace(request, ending_version=rest.table_version(table))
    answer = send_in_format(request, local.unfinished_format, lambda request: rest.table_changes(table, request))
    history = TableHistory.of(answer, request.ending_version, subject)
    history.check(None, subject)
    commits = _Commits(subject, table, history, answer, request)
    files = [file for version in commits.files.values() for file in version]
    with local.alone():
        stored = local.download(answer, (part for file in files for part in file.remote_files()))
        commits.write(path, stored)
        local.finish()
    return Materialized(
        path=path,
        version=commits.last,
        shared_version=commits.last,
        files=len(files),
        bytes_fetched=sum(file.fetched for file in stored.values()),
    )


class _Commits:
    """The commits of a range of versions."""

    def __init__(
        self,
        subject: str,
        table: Table,
        history: TableHistory,
        answer: Answer[FileAction, Any],
        request: ChangesRequest,
    ) -> None:
        self._subject = subject
        self._table = table
        self._history = history
        # One protocol for all versions: the least that reads the whole range.
        self._protocol = history.protocol
        self._changed = {item.version: item for item in history.metadata[1:] if item.version is not None}
        versions = [file.version for file in answer.items if file.version is not None]
        if len(versions) != len(answer.items):
            raise ProtocolError(f"{subject}: the changes name a file without its version")
        lowest = min([*versions, *self._changed], default=None)
        first = answer.version if request.starting_version is None else request.starting_version
        start = lowest if first is None else first
        if start is None:
            raise ProtocolError(
                f"{subject}: there are no changes, and the server does not state the first version"
            )
        self.first = start
        if lowest is not None and lowest < self.first:
            raise ProtocolError(f"{subject}: the server names version {lowest}, before {self.first}")
        self.last = max([self.first, *versions, *self._changed, request.ending_version or 0])
        self.files: dict[int, list[LocalFile]] = {}
        self._times: dict[int, int] = {}
        by_version: dict[int, list[FileAction]] = {}
        for file in answer.items:
            by_version.setdefault(file.version or 0, []).append(file)
        layout = LocalLayout(answer.protocol, answer.metadata)
        for version in sorted({*by_version, *self._changed}):
            if version in self._changed:
                layout = LocalLayout(self._protocol, self._changed[version])
            for file in by_version.get(version, ()):
                folder = _CHANGE_FOLDER if isinstance(file, CdcFile) else ""
                self.files.setdefault(version, []).append(layout.file(file, folder))
                if file.timestamp is not None:
                    self._times[version] = max(self._times.get(version, 0), file.timestamp)

    def write(self, directory: Path, stored: dict[str, StoredFile]) -> None:
        """Write the log beside the table, and move it to its place at once."""
        staging = directory / PRIVATE_FOLDER / uuid.uuid4().hex
        with writing("the log", directory):
            make_directories(staging / LOG_DIRECTORY)
            log = DeltaLog.for_table(staging)
            protocol = {"protocol": local_protocol(self._protocol, self._history.last, change_feed=True)}
            base = self._metadata(self._history.metadata[0])
            if self.first > 0:
                state = LogState()
                for action in (protocol, base):
                    state.apply(make_action(name, raw, where="the base") for name, raw in action.items())
                before = Snapshot(version=self.first - 1, timestamp=0, state=state, table_path=staging)
                write_checkpoint(before)
            for version, time in self._versions():
                actions = [protocol] if version == 0 else []
                if version in self._changed:
                    actions.append(self._metadata(self._changed[version]))
                elif version == 0:
                    actions.append(base)
                actions += (self._action(file, time, stored) for file in self.files.get(version, ()))
                log.commit([{"commitInfo": {"timestamp": time}}, *actions], "CHANGES")
                # Engines take the time of a version from its file.
                os.utime(staging / LOG_DIRECTORY / commit_name(version), ns=(time * 1_000_000, time * 1_000_000))
            rename_durably(staging / LOG_DIRECTORY, directory / LOG_DIRECTORY)
            staging.rmdir()
        DeltaLog.invalidate_cache(staging)

    def _versions(self) -> Iterator[tuple[int, int]]:
        """Yield each version with its time; an unknown time is between those of its neighbours."""
        first, time = min(self._times.items(), default=(self.first, now_in_ms()))
        previous = time - (first - self.first) - 1
        for version in range(self.first, self.last + 1):
            previous = max(self._times.get(version, 0), previous + 1)
            yield version, previous

    def _metadata(self, metadata: Metadata) -> dict[str, Any]:
        return {"metaData": local_metadata(self._protocol, metadata, self._table, _PROPERTIES)}

    def _action(self, file: LocalFile, time: int, stored: dict[str, StoredFile]) -> dict[str, Any]:
        if isinstance(file.action, CdcFile):
            return file.change(stored)
        if isinstance(file.action, AddFile):
            return file.add(stored, now_ms=time, data_change=file.action.data_change)
        return file.remove(stored, now_ms=time)
