"""`OptimisticTransaction`: reads a snapshot and writes the next version, unless another writer did."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from delta_sharing_client._version import __version__
from delta_sharing_client.errors import CommitConflictError, CommitUnknownError, DeltaLogError
from delta_sharing_client.log.actions import Action, make_action, name_of
from delta_sharing_client.log.commit_checks import check_commit
from delta_sharing_client.log.commit_reader import read_commit
from delta_sharing_client.log.commit_timestamps import first_in_commit_version
from delta_sharing_client.log.conflicts import conflict
from delta_sharing_client.log.durable_files import (
    make_directories,
    put_if_absent,
    remove_abandoned,
    writing,
)
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, SIDECARS, commit_name
from delta_sharing_client.log.snapshot import Commit, Snapshot
from delta_sharing_client.log.store_path import LogPath, StorePath
from delta_sharing_client.log.version_checksum import write_checksum
from delta_sharing_client.model.actions import Metadata

if TYPE_CHECKING:
    from delta_sharing_client.log.log import DeltaLog

#: An action, or the object that a line of a commit holds: ``{"add": {...}}``.
ActionLike: TypeAlias = Action | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CommitInfo:
    """The provenance of a commit ("Commit Provenance Information").

    Attributes:
        version: the table version.
        timestamp: when it was committed, in milliseconds since the epoch.
        operation: the operation, such as ``WRITE``; None if the commit has none.
        operation_parameters: the parameters of the operation.
        raw: the `commitInfo` action as written; empty if there is none.
    """

    version: int
    timestamp: int
    operation: str | None
    operation_parameters: Mapping[str, Any]
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, commit: Commit) -> CommitInfo:
        """Return the provenance of a commit."""
        raw: Mapping[str, Any] = next((dict(action.raw) for action in commit.actions if _is_info(action)), {})
        operation = raw.get("operation")
        return cls(
            version=commit.version,
            timestamp=commit.timestamp,
            operation=None if operation is None else str(operation),
            operation_parameters=dict(raw.get("operationParameters") or {}),
            raw=raw,
        )


class OptimisticTransaction:
    """Reads a snapshot and commits on top of it; made by `DeltaLog.start_transaction`.

    Attributes:
        snapshot: the table at the start of the transaction; version -1 if there was none.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot) -> None:
        self._log = log
        self.snapshot = snapshot

    @property
    def read_version(self) -> int:
        """The version that was read; -1 if there was no table."""
        return self.snapshot.version

    def txn_version(self, app_id: str) -> int:
        """Return the last version of an application ("Transaction Identifiers"); -1 if there is none."""
        transaction = self.snapshot.transactions.get(app_id)
        return -1 if transaction is None else transaction.version

    def commit(
        self,
        actions: Iterable[ActionLike],
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        *,
        private: bool = False,
        max_retries: int = 0,
    ) -> int:
        """Write the next version.

        The actions are checked by the protocol's rules first. The commit file is written atomically. Every 10
        commits (`delta.checkpointInterval`) a checkpoint follows.

        Args:
            actions: the actions, or the objects of a commit's lines.
            operation: the operation, for the history.
            operation_parameters: its parameters, for the history.
            private: only the owner may read the commit file, and no checkpoint and no checksum follow.
            max_retries: how often a commit that only adds files is repeated on top of the commits of other
                writers, if it conflicts with none of them.

        Returns:
            The version written.

        Raises:
            CommitConflictError: another writer committed that version first; start a new transaction. The error
                has the `commitInfo` of that commit.
            CommitUnknownError: an object store did not answer, and whether the version was written is unknown.
            ExclusiveCreateError: the object store cannot create a commit exclusively.
            DeltaLogError: a rule of the protocol is broken, or the file cannot be written.
            UnsupportedFeatureError: the table has features that this release cannot write.
        """
        typed = [_typed(action) for action in actions]
        while True:
            try:
                return self._commit(typed, operation, operation_parameters or {}, private=private)
            except CommitConflictError as error:
                if max_retries <= 0:
                    raise
                newest = self._log.snapshot()
                winners = self._log.changes(self.read_version + 1, newest.version)
                if (reason := conflict(typed, winners)) is not None:
                    raise CommitConflictError(
                        f"{error}; it is not repeated, because {reason}",
                        version=error.version,
                        commit_info=error.commit_info,
                    ) from None
                self.snapshot = newest
                max_retries -= 1

    def _commit(self, typed: list[Action], operation: str, parameters: Mapping[str, Any], *, private: bool) -> int:
        table = self._log.table_path
        metadata = check_commit(typed, self.snapshot)
        version = self.read_version + 1
        info = self._commit_info(typed, version, operation, parameters)
        lines = [{"commitInfo": info}]
        lines += [{name_of(action): dict(action.raw)} for action in typed if not _is_info(action)]
        text = "".join(_line(line, str(table)) for line in lines)
        file = table / LOG_DIRECTORY / commit_name(version)
        with writing(f"version {version}", table):
            make_directories(file.parent)
            for folder in (file.parent, file.parent / SIDECARS):
                remove_abandoned(folder)
            try:
                written = put_if_absent(file, text.encode("utf-8", "surrogatepass"), private=private)
            except CommitUnknownError as error:
                error.version, error.txn_id = version, info["txnId"]
                raise
        if not written:
            winner = _info_of(file)
            by = " by ".join(str(winner[name]) for name in ("operation", "engineInfo") if winner.get(name))
            raise CommitConflictError(
                f"version {version} was committed by another writer meanwhile ({by or 'unknown'}); "
                "nothing was written: read the table again, and commit to its newest version",
                path=str(table),
                version=version,
                commit_info=winner,
            )
        if not private:
            state = self.snapshot.state.copy()
            state.apply(typed)
            write_checksum(table, version, state, info.get("inCommitTimestamp"))
            self._log.checkpoint_if_due(self.snapshot, typed, metadata)
        return version

    def _commit_info(
        self, actions: list[Action], version: int, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        metadata = next((a for a in actions if isinstance(a, Metadata)), None) or self.snapshot.metadata
        now = int(time.time() * 1000)
        info: dict[str, Any] = {}
        first = first_in_commit_version(metadata)
        if first is not None and version >= first:
            if self.read_version >= 0 and first_in_commit_version(self.snapshot.metadata) is None:
                _check_enablement(metadata, version, str(self._log.table_path))
            # In-commit timestamps must be strictly increasing.
            info["inCommitTimestamp"] = now = max(now, self.snapshot.timestamp + 1)
        info |= {
            "timestamp": now,
            "operation": operation,
            "operationParameters": {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in parameters.items()
            },
            "engineInfo": f"delta-sharing-client/{__version__}",
        }
        if self.read_version >= 0:
            info["readVersion"] = self.read_version
        given = next((dict(action.raw) for action in actions if _is_info(action)), {})
        if isinstance(self._log.table_path, StorePath):
            # No other commit has this content, by which a commit without an answer is recognised.
            given["txnId"] = str(uuid.uuid4())
        return info | given


def _check_enablement(metadata: Metadata, version: int, table: str) -> None:
    names = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
    missing = [name for name in names if name not in metadata.configuration]
    if missing or metadata.configuration[names[0]] != str(version):
        raise DeltaLogError(
            f"in-commit timestamps begin with version {version}: set {' and '.join(names)} to it",
            path=table,
        )


def _line(action: Mapping[str, Any], table: str) -> str:
    try:
        return json.dumps(action, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        reason = f"the action {next(iter(action))!r}: a field is no JSON value: {error}"
        raise DeltaLogError(f"the commit is refused: {reason}", path=table) from None


def _typed(action: ActionLike) -> Action:
    if isinstance(action, Action):
        return action
    if not isinstance(action, Mapping) or len(action) != 1:
        raise DeltaLogError(
            f"the commit is refused: among its actions is a {type(action).__name__}; it takes a list of actions, "
            'each an object with one key: [{"add": {...}}]'
        )
    ((name, raw),) = action.items()
    return make_action(name, raw, where="the commit is refused", strict=True)


def _info_of(file: LogPath) -> Mapping[str, Any]:
    """Return the `commitInfo` of a commit file; empty if it has none, or cannot be read."""
    with contextlib.suppress(DeltaLogError):
        return next((dict(action.raw) for action in read_commit(file) if _is_info(action)), {})
    return {}


def _is_info(action: Action) -> bool:
    return name_of(action) == "commitInfo"
