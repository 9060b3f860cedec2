"""Materialization of changes as a local Delta table, from which engines read the same change rows."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.delta.log import DeltaLog
from delta_sharing_client.delta.log.actions import make_action
from delta_sharing_client.delta.log.checkpoint_writer import write_checkpoint
from delta_sharing_client.delta.log.durable_files import make_directories, rename_durably, writing
from delta_sharing_client.delta.log.log_segment import LOG_DIRECTORY, commit_name
from delta_sharing_client.delta.log.snapshot import LogState, Snapshot
from delta_sharing_client.delta.table.file_download import PRIVATE_FOLDER, Fetched
from delta_sharing_client.delta.table.local_actions import Copier, LocalFile, now_in_ms
from delta_sharing_client.delta.table.local_metadata import local_metadata, local_protocol
from delta_sharing_client.delta.table.materialize_snapshot import (
    Materialized,
    fetch_all,
    new_log,
    note_format,
    noted_format,
    remove_private,
    table_id,
)
from delta_sharing_client.delta.table.shared_listing import Listing
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.actions import AddFile, CdcFile, FileAction, Metadata
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import read_spec
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.url_renewal import UrlRenewer, first_of
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.wire.answers import Answer
from delta_sharing_client.wire.requests import ChangesRequest, ask_again

#: Where engines keep files of change rows.
_CHANGE_FOLDER: Final = "_change_data/"
#: Its commits are the data: however old they are, none may expire.
_FEED: Final = {"delta.enableChangeDataFeed": "true", "delta.enableExpiredLogCleanup": "false"}


def materialize_changes(
    rest: RestClient,
    storage: StorageReader,
    table: Table,
    request: ChangesRequest,
    directory: str | os.PathLike[str],
    *,
    progress: bool | None = None,
) -> Materialized:
    """Write the changes of a shared table as a local Delta table, one commit for each version of it.

    Versions have the numbers and the times that they have in the shared table. Before the first one stands a
    checkpoint with the protocol and the metadata alone. The log appears at once, after all data.

    Serves "Read Change Data Feed from a Table".

    Args:
        rest: the server.
        storage: fetches the files.
        table: the table.
        request: which changes.
        directory: the local table's directory, made where it is missing.
        progress: show a progress bar; by default in a terminal or notebook only.

    Raises:
        SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
        DeltaLogError: there is a table in the directory already, or it cannot be written.
        DeltaSharingError: the server could not be asked, or a file could not be fetched.
    """
    log = new_log(directory)
    what = f"table {table.full_name}"
    if request.ending_version is None and request.ending_timestamp is None:
        request = replace(request, ending_version=rest.table_version(table))
    answer = ask_again(request, noted_format(log.table_path), lambda asked: rest.table_changes(table, asked))
    history = TableHistory.of(answer, request.ending_version, what)
    history.check(None, what)
    commits = _Commits(what, table, history, answer, request)
    plan = ScanPlan(
        table=table,
        version=answer.version,
        protocol=history.protocol,
        metadata=history.last,
        spec=read_spec(history.last, [], None, protocol=history.protocol),
        tasks=(),
        skipped={},
        limit=None,
        request=answer.request,
        end=answer.end,
    )
    listing = Listing(
        table=table,
        version=answer.version,
        protocol=history.protocol,
        metadata=history.last,
        files=answer.items,
        refresh=UrlRenewer(rest, plan, first_of(file.expiration_timestamp for file in answer.items)),
    )
    files = [file for version in commits.files.values() for file in version]
    note_format(log.table_path, answer.protocol.response_format)
    fetched = fetch_all(storage, log.table_path, listing, files, progress)
    last = commits.write(log.table_path, fetched)
    remove_private(log.table_path)
    return Materialized(
        path=log.table_path,
        version=last,
        shared_version=last,
        files=len(files),
        bytes_fetched=sum(item.fetched for item in fetched.values()),
    )


class _Commits:
    """The commits of a range of versions."""

    def __init__(
        self,
        what: str,
        table: Table,
        history: TableHistory,
        answer: Answer[FileAction, Any],
        request: ChangesRequest,
    ) -> None:
        self._what = what
        self._table = table
        self._history = history
        self._base = answer.metadata
        # One protocol for all versions: the least that reads the whole range.
        self._protocol = history.protocol
        self._changed = {item.version: item for item in history.metadata[1:] if item.version is not None}
        versions = [file.version for file in answer.items if file.version is not None]
        if len(versions) != len(answer.items):
            raise ProtocolError(f"{what}: the changes name a file without its version")
        lowest = min([*versions, *self._changed], default=None)
        first = answer.version if request.starting_version is None else request.starting_version
        start = lowest if first is None else first
        if start is None:
            raise ProtocolError(f"{what}: there are no changes, and the server does not state the first version")
        self.first = start
        if lowest is not None and lowest < self.first:
            raise ProtocolError(f"{what}: the server names version {lowest}, before {self.first}")
        self.last = max([self.first, *versions, *self._changed, request.ending_version or 0])
        self.files: dict[int, list[LocalFile]] = {}
        self._times: dict[int, int] = {}
        copier = Copier(answer.protocol, answer.metadata)
        by_version: dict[int, list[FileAction]] = {}
        for file in answer.items:
            by_version.setdefault(file.version or 0, []).append(file)
        for version in sorted({*by_version, *self._changed}):
            if version in self._changed:
                copier = Copier(self._protocol, self._changed[version])
            for file in by_version.get(version, ()):
                folder = _CHANGE_FOLDER if isinstance(file, CdcFile) else ""
                self.files.setdefault(version, []).append(copier.file(file, folder))
                if file.timestamp is not None:
                    self._times[version] = max(self._times.get(version, 0), file.timestamp)

    def write(self, directory: Path, fetched: dict[str, Fetched]) -> int:
        """Write the log beside the table, and put it into its place at once; return the last version."""
        staging = directory / PRIVATE_FOLDER / uuid.uuid4().hex
        with writing("the log", directory):
            make_directories(staging / LOG_DIRECTORY)
            log = DeltaLog.for_table(staging)
            base = self._head(self._base)
            if self.first > 0:
                state = LogState()
                for action in base:
                    state.apply(make_action(name, raw, where="the base") for name, raw in action.items())
                write_checkpoint(
                    staging,
                    Snapshot(version=self.first - 1, timestamp=0, state=state, table_path=staging),
                )
            for version, time in self._versions():
                head = base if version == 0 else []
                if version in self._changed:
                    head = [*(head[:1]), self._head(self._changed[version])[1]]
                actions = [*head, *self._actions(version, time, fetched)]
                log.commit([{"commitInfo": {"timestamp": time}}, *actions], "CHANGES")
                file = staging / LOG_DIRECTORY / commit_name(version)
                # What the time of a version is to an engine.
                os.utime(file, ns=(time * 1_000_000, time * 1_000_000))
            rename_durably(staging / LOG_DIRECTORY, directory / LOG_DIRECTORY)
            staging.rmdir()
        DeltaLog.invalidate_cache(staging)
        return self.last

    def _versions(self) -> Iterator[tuple[int, int]]:
        """Yield each version with its time; an unknown time lies between those of its neighbours."""
        first, time = min(self._times.items(), default=(self.first, now_in_ms()))
        previous = time - (first - self.first) - 1
        for version in range(self.first, self.last + 1):
            previous = max(self._times.get(version, 0), previous + 1)
            yield version, previous

    def _head(self, metadata: Metadata) -> list[dict[str, Any]]:
        protocol = local_protocol(self._protocol, self._history.last, change_feed=True)
        described = local_metadata(self._protocol, metadata, table_id(self._table), extra=_FEED)
        return [{"protocol": protocol}, {"metaData": described}]

    def _actions(self, version: int, time: int, fetched: dict[str, Fetched]) -> Iterator[dict[str, Any]]:
        for file in self.files.get(version, ()):
            action = file.action
            if isinstance(action, CdcFile):
                yield file.change(fetched)
            elif isinstance(action, AddFile):
                yield file.add(fetched, now_ms=time, data_change=action.data_change)
            else:
                raw = file.remove(fetched[file.path].size, now_ms=time)
                raw["remove"]["dataChange"] = action.data_change
                yield raw
