"""`DeltaSink`: batches stored in a local Delta table by deltalake, with the poller's version in each commit."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delta_sharing_client.errors import CommitConflictError, MissingDependencyError
from delta_sharing_client.log.commit_reader import read_commit
from delta_sharing_client.log.durable_files import sync_directory, sync_file, writing
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, commit_name
from delta_sharing_client.log.paths import check_is_directory, resolve_path
from delta_sharing_client.log.symbolic_links import refuse_links
from delta_sharing_client.model.actions import AddFile, CdcFile
from delta_sharing_client.paths import local_path
from delta_sharing_client.sinks.base import Mode, Sink, WriteResult
from delta_sharing_client.sinks.incoming import Incoming
from delta_sharing_client.tracebacks import public_class

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ATTEMPTS: Final = 10


@public_class
class DeltaSink(Sink):
    """Stores batches in a local Delta table, written by deltalake (extra ``delta``); creates a missing table.

    The commit of a batch has a `txn` action with the poller's id and the batch's last version ("Transaction
    Identifiers"). If the table has an unsupported writer feature, the sink raises before it writes a file.

    Args:
        path: the table's directory.
        mode: ``append`` adds the rows of each batch; ``apply`` keeps the table equal to the shared one, with
            deltalake's MERGE.
        keys: the key columns, for ``apply``.
        change_columns: whether ``append`` stores `_change_type`, `_commit_version` and `_commit_timestamp` too;
            False accepts only batches of inserts.
        add_columns: whether new columns of a batch are added to the table.

    Raises:
        ValueError, TypeError: the arguments contradict each other.
        MissingDependencyError: deltalake is not installed.
        DeltaLogError: the path is that of a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode = "append",
        keys: Iterable[str] = (),
        change_columns: bool = True,
        add_columns: bool = True,
    ) -> None:
        super().__init__(mode, keys, change_columns=change_columns, add_columns=add_columns)
        try:
            import deltalake  # noqa: F401
        except ImportError:
            raise MissingDependencyError(package="deltalake", extra="delta", purpose="DeltaSink") from None
        self._path = Path(os.path.realpath(local_path(path, "path")))
        check_is_directory(self._path)

    @property
    def path(self) -> Path:
        """The table's directory."""
        return self._path

    @property
    def target(self) -> str:
        """A description of the target, for messages."""
        return f"Delta table {self.path}"

    def last_version(self, poller_id: str) -> int | None:
        """Return the last stored version of a poller; None if there is none.

        A batch without changes creates no commit and is not counted.

        Raises:
            DeltaLogError: the table's log is damaged, or has a symbolic link.
        """
        refuse_links(self.path, LOG_DIRECTORY)
        table = self._open()
        return None if table is None else table.transaction_version(poller_id)

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        from delta_sharing_client.sinks.delta_errors import typed_errors

        with typed_errors(self.path):
            return DeltaTable(self.path) if DeltaTable.is_deltatable(str(self.path)) else None

    def _write(self, incoming: Incoming) -> WriteResult:
        from delta_sharing_client.sinks.delta_write import DeltaWrite, create_table

        refuse_links(self.path)
        durable: int | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            table = self._open()
            held = None if table is None else table.transaction_version(incoming.poller_id)
            if held is not None and held >= incoming.last_version:
                return WriteResult(version=held, skipped=True)
            if durable is None:
                durable = -1 if table is None else table.version()
            try:
                if table is None:
                    table = create_table(self, incoming)
                result = DeltaWrite(self, table, incoming, -1 if held is None else held).run()
            except CommitConflictError:
                # Another writer committed first, so the table must be read again.
                if attempt == _ATTEMPTS:
                    raise
            else:
                self._sync(durable, table.version())
                return result
        raise AssertionError

    def _sync(self, after: int, version: int) -> None:
        """Flush the commits after a version, with the files that they add, to the disk.

        deltalake does not do that, and the poller's checkpoint is durable immediately.
        """
        log = self.path / LOG_DIRECTORY
        with writing("the data", self.path):
            folders = {log, self.path}
            for number in range(after + 1, version + 1):
                commit = log / commit_name(number)
                for action in read_commit(commit):
                    if isinstance(action, AddFile | CdcFile):
                        file = resolve_path(self.path, action.path)
                        sync_file(file)
                        folders.add(file.parent)
                sync_file(commit)
            for folder in folders:
                sync_directory(folder)
