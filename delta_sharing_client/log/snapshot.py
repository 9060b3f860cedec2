"""Snapshots of a table, and the state that replay builds ("Action Reconciliation")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from delta_sharing_client.errors import DeltaLogError, DeltaTableNotFoundError
from delta_sharing_client.log.actions import Action, FileKey, OtherAction, Transaction, file_key
from delta_sharing_client.log.checkpoint_files import CheckpointFiles
from delta_sharing_client.log.commit_reader import read_commit
from delta_sharing_client.log.log_segment import LogListing
from delta_sharing_client.log.paths import is_absolute
from delta_sharing_client.log.store_path import LogPath
from delta_sharing_client.model.actions import AddFile, Metadata, Protocol, RemoveFile
from delta_sharing_client.representation import representation


@dataclass(kw_only=True)
class LogState:
    """The state that replay builds; path and deletion vector identify a file.

    Attributes:
        protocol: the latest protocol action.
        metadata: the latest metadata action.
        checkpoint: the files of the checkpoint on which the state is built; None if `added` has all files.
        added: the files that are not in the checkpoint.
        changed: the keys of the files that were added or removed since the checkpoint.
        removes: the tombstones.
        transactions: the latest transaction of each application.
        domains: the latest metadata of each domain.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    checkpoint: CheckpointFiles | None = None
    added: dict[FileKey, AddFile] = field(default_factory=dict)
    changed: set[FileKey] = field(default_factory=set)
    removes: dict[FileKey, RemoveFile] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    domains: dict[str, OtherAction] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> None:
        """Reconcile the actions of the next version, or of a checkpoint, with the state."""
        for action in actions:
            match action:
                case AddFile():
                    key = file_key(action)
                    self.removes.pop(key, None)
                    self.added[key] = action
                    self._note_change(key)
                case RemoveFile():
                    key = file_key(action)
                    self.added.pop(key, None)
                    self.removes[key] = action
                    self._note_change(key)
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case Transaction():
                    self.transactions[action.app_id] = action
                case OtherAction(name="domainMetadata"):
                    domain = str(action.raw.get("domain"))
                    self.domains.pop(domain, None)
                    if not action.raw.get("removed"):
                        self.domains[domain] = action
                case _:
                    pass

    def _note_change(self, key: FileKey) -> None:
        if self.checkpoint is not None:
            self.changed.add(key)

    def begin_with(self, checkpoint: CheckpointFiles) -> None:
        """Add the files of a checkpoint, whose other actions the state has."""
        self.checkpoint = checkpoint
        self.changed = {*self.added, *self.removes}

    @property
    def adds(self) -> Mapping[FileKey, AddFile]:
        """The files of the table; makes an action of each file of the checkpoint."""
        if self.checkpoint is None:
            return self.added
        kept = {key: add for add in self.checkpoint.all_actions if (key := file_key(add)) not in self.changed}
        return kept | self.added

    def find(self, key: FileKey) -> AddFile | None:
        """Return a file of the table; None if it has no file with this key."""
        if self.checkpoint is None or key in self.changed:
            return self.added.get(key)
        return next(iter(self.checkpoint.actions(self.checkpoint.rows_of([key]))), None)

    def totals(self) -> tuple[int, int]:
        """Return the number of the table's files and the sum of their sizes."""
        count, size = len(self.added), sum(add.size for add in self.added.values())
        if self.checkpoint is not None:
            others, bytes_of_others = self.checkpoint.totals(without=self.checkpoint.rows_of(self.changed))
            count, size = count + others, size + bytes_of_others
        return count, size

    @cached_property
    def hidden_rows(self) -> list[int]:
        """The rows of the checkpoint's files that are not files of the table any more, ascending."""
        return [] if self.checkpoint is None else self.checkpoint.rows_of(self.changed)

    def copy(self) -> LogState:
        """Return a copy to which further actions can be applied."""
        return replace(
            self,
            added=dict(self.added),
            changed=set(self.changed),
            removes=dict(self.removes),
            transactions=dict(self.transactions),
            domains=dict(self.domains),
        )


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One version of the table, as it was committed.

    Attributes:
        version: the table version.
        timestamp: when it was committed, in milliseconds since the epoch.
        actions: the actions in the order written.
    """

    version: int
    timestamp: int
    actions: tuple[Action, ...]

    @classmethod
    def read(cls, version: int, timestamp: int, listing: LogListing) -> Commit:
        """Read the commit of a version from the log; raise `DeltaLogError` if it is damaged."""
        return cls(version=version, timestamp=timestamp, actions=tuple(read_commit(listing.commits[version])))


@dataclass(eq=False, repr=False, kw_only=True)
class Snapshot:
    """The table at one version.

    Attributes:
        version: the table version; -1 if there is no table.
        timestamp: when it was committed, in milliseconds since the epoch.
        state: the replayed state; must not be changed.
        table_path: the table's directory, local or in an object store.
        allow_absolute_paths: whether files may be outside the table's directory.
    """

    version: int
    timestamp: int
    state: LogState
    table_path: LogPath
    allow_absolute_paths: bool = False

    @property
    def protocol(self) -> Protocol:
        """The protocol, with the action as written in `raw`; raises `DeltaTableNotFoundError` without a table."""
        if self.state.protocol is None:
            raise self._no_table()
        return self.state.protocol

    @property
    def metadata(self) -> Metadata:
        """The metadata, with the action as written in `raw`; raises `DeltaTableNotFoundError` without a table."""
        if self.state.metadata is None:
            raise self._no_table()
        return self.state.metadata

    @property
    def schema_string(self) -> str:
        """The table's schema as JSON text."""
        return self.metadata.schema_string

    @cached_property
    def files(self) -> tuple[AddFile, ...]:
        """The table's files, sorted by modification time and path: the same order with and without checkpoints.

        Raises:
            DeltaLogError: a file is named by an absolute path, and the log was opened without
                `allow_absolute_paths`.
        """
        if not self.allow_absolute_paths and any(is_absolute(path) for path, _ in self.state.added):
            raise DeltaLogError(
                "the log names files by absolute paths, outside the table's directory; if you trust its "
                "writer, open it with allow_absolute_paths=True",
                path=str(self.table_path),
            )
        return self.files_as_written

    @cached_property
    def files_as_written(self) -> tuple[AddFile, ...]:
        """The table's files, those with absolute paths included."""
        ordered = sorted(self.state.adds.items(), key=lambda item: (item[1].modification_time, item[0]))
        return tuple(add for _, add in ordered)

    @property
    def tombstones(self) -> tuple[RemoveFile, ...]:
        """The removed files that the log still lists."""
        return tuple(self.state.removes.values())

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The latest transaction of each application."""
        return MappingProxyType(self.state.transactions)

    @cached_property
    def size_in_bytes(self) -> int:
        """The sum of the files' sizes."""
        return self.state.totals()[1]

    def _no_table(self) -> DeltaTableNotFoundError:
        return DeltaTableNotFoundError("there is no Delta table here", path=str(self.table_path))

    @representation
    def __repr__(self) -> str:
        return f"Snapshot(version={self.version}, files={len(self.files_as_written)})"
