"""Checkpoint of a poller: a file with a checksum, locked by the poller that uses it.

The file is replaced atomically, and its previous content is kept as a previous generation. If the file is damaged,
the previous generation is used: batches are repeated, and none is lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import uuid
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.errors import CheckpointError
from delta_sharing_client.locks import Timeout, file_lock, holder_of
from delta_sharing_client.log.durable_files import make_directories, replace_file
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.column_mapping import MappingMode
from delta_sharing_client.paths import local_path

if TYPE_CHECKING:
    from filelock import FileLock

logger = module_logger(__name__)
#: The version of the file format that is written, and those that are read. Version 1 has no response formats.
_FORMAT: Final = 2
_READABLE: Final = (1, 2)
_MAX_SIZE: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The versions of a batch.

    Attributes:
        first, last: its versions, both included.
        kind: ``changes``, or ``snapshot`` for the whole table as of `last`.
        response_format: the response format of its files, which determines their ids and their order; None before
            the files are listed, and in checkpoints of the first releases.
    """

    first: int
    last: int
    kind: Literal["changes", "snapshot"] = "changes"
    response_format: ResponseFormat | None = None


@dataclass(frozen=True, slots=True)
class SchemaMark:
    """The table's columns at the end of a batch, for a comparison with those of the next batch.

    Attributes:
        schema_string: the schema as JSON text.
        mapping: the column mapping in force.
    """

    schema_string: str
    mapping: MappingMode

    @classmethod
    def of(cls, history: TableHistory) -> SchemaMark:
        """Return the columns at the end of a range of versions."""
        return cls(history.last.schema_string, history.mapping)


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """The position of a poller.

    Attributes:
        table: the table's full name.
        next_version: the first version that is in no batch yet.
        committed: the last version that was committed; None before the first commit.
        pending: the batches that were returned and not committed; they are repeated after a crash.
        table_id: the table's id, if known.
        changes_returned: whether a batch of changes was returned; None in checkpoints of earlier releases, which
            have a table id only after one.
        schema: the columns at the end of the last committed batch.
        poller_id: the id of the poller, for sinks that record the batches of each poller.
        target: the name of what stores the batches; None if the poller has none.
        idle_polls: the number of polls without a new version since the table's id was last checked.
    """

    table: str
    next_version: int
    committed: int | None = None
    pending: tuple[BatchRange, ...] = ()
    table_id: str | None = None
    changes_returned: bool | None = None
    schema: SchemaMark | None = None
    poller_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    target: str | None = None
    idle_polls: int = 0

    @property
    def has_changes(self) -> bool:
        """Whether the server has answered a request for changes before."""
        return self.table_id is not None if self.changes_returned is None else self.changes_returned

    def identified(self, table_id: str) -> Position:
        """Return the position with the id of its table."""
        return replace(self, table_id=table_id, changes_returned=self.has_changes, idle_polls=0)

    def idle(self) -> Position:
        """Return the position after a poll that found no new version and did not check the table's id."""
        return replace(self, idle_polls=self.idle_polls + 1)

    def returned(self, batch: BatchRange, table_id: str) -> Position:
        """Return the position after a batch of changes was returned."""
        pending = (*self.pending, batch)
        return replace(
            self,
            pending=pending,
            next_version=batch.last + 1,
            table_id=table_id,
            changes_returned=True,
            idle_polls=0,
        )

    def listed(self, batch: BatchRange, again: BatchRange, table_id: str) -> Position:
        """Return the position after a pending batch was listed, perhaps in another response format."""
        pending = tuple(again if item == batch else item for item in self.pending)
        return replace(self.identified(table_id), pending=pending)

    def processed(self, batch: BatchRange, schema: SchemaMark) -> Position:
        """Return the position after a batch and those before it were committed."""
        if self.committed is not None and self.committed >= batch.last:
            return self
        left = tuple(item for item in self.pending if item.first > batch.last)
        return replace(self, pending=left, committed=batch.last, schema=schema)


class CheckpointFile:
    """A poller's position in a file; only one poller at a time may use it. Several threads of it may.

    Args:
        path: the file; its previous generation is `<path>.previous`, its lock `<path>.lock`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lock: FileLock | None = None
        #: Held while the file is locked, written and released. Reentrant: a signal handler may close the poller.
        self._using = threading.RLock()
        self._closed = False
        self.path = local_path(path, "checkpoint").absolute()

    def __del__(self) -> None:
        self._release()

    def lock(self) -> None:
        """Lock the file for this poller; does nothing if it is locked already.

        Raises:
            CheckpointError: another poller uses the file, it was closed, or the file system returns an error.
        """
        with self._using:
            if self._closed:
                raise self._error("the poller was closed")
            if not self._is_locked:
                self._acquire()

    def _acquire(self) -> None:
        path = self._beside(".lock")
        try:
            make_directories(self.path.parent)
            lock = file_lock(path, private=True)
            lock.acquire(blocking=False)
        except Timeout:
            process = holder_of(path)
            holder = "" if process is None else f" (process {process})"
            raise self._error(
                f"another poller{holder} uses it; stop that one, or give this one a checkpoint of its own"
            ) from None
        except OSError as error:
            raise self._error(f"cannot be used: {error.strerror}") from None
        self._lock = lock

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @property
    def _is_locked(self) -> bool:
        return self._lock is not None and self._lock.is_locked

    def close(self) -> None:
        """Release the file for another poller; waits until a position that is being saved is written."""
        with self._using:
            self._closed = True
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def load(self, table: str) -> Position | None:
        """Return the position in the table of that full name; None if there is no file yet.

        Raises:
            CheckpointError: neither the file nor its previous generation can be read, or it is another table's.
        """
        try:
            position = self._read(self.path)
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            raise self._error("it is a directory; name a file in it, which need not exist") from None
        except (ValueError, OSError) as error:
            position = self._load_previous(error)
        if position.table != table:
            raise self._error(f"it is for table {position.table}, not for {table}; give each table its own")
        return position

    def bound(self, position: Position, target: str | None, *, rebind: bool) -> Position:
        """Return a position that is bound to a target, and record that; None leaves it as it is.

        Raises:
            CheckpointError: it is bound to another target, and `rebind` is False.
        """
        if target is None or position.target == target:
            return position
        if position.target is not None and not rebind:
            raise self._error(
                f"its batches are in {position.target}, not in {target}; give each target its own checkpoint; "
                "rebind=True goes on from its position in the new target, without the rows before"
            )
        position = replace(position, target=target)
        self.save(position)
        return position

    def _load_previous(self, damage: Exception) -> Position:
        try:
            position = self._read(self._beside(".previous"))
        except (ValueError, OSError):
            raise self._error(
                f"it is damaged ({damage}), and its previous generation cannot be read either. Restore it, or "
                "delete it to start over from the starting version or the snapshot"
            ) from None
        logger.warning(
            "checkpoint %s is damaged (%s): its previous generation is used, and later batches are repeated",
            self.path,
            damage,
        )
        return position

    def save(self, position: Position) -> None:
        """Write the position durably; the previous content becomes the previous generation.

        Raises:
            CheckpointError: the lock is not held, or the file system returns an error.
        """
        with self._using:
            if not self._is_locked:
                raise self._error("the poller was closed; commit before that")
            try:
                self._keep_previous()
                replace_file(self.path, _encode(position), private=True)
            except OSError as error:
                raise self._error(f"it cannot be written: {error.strerror}; the batch is not committed") from None

    def _keep_previous(self) -> None:
        try:
            data = self.path.read_bytes()
            _decode(data)
        except (ValueError, FileNotFoundError):
            return  # a damaged file must not replace an intact one
        replace_file(self._beside(".previous"), data, private=True)

    @staticmethod
    def _read(path: Path) -> Position:
        with path.open("rb") as file:
            data = file.read(_MAX_SIZE + 1)
        return _decode(data)

    def _error(self, reason: str) -> CheckpointError:
        return CheckpointError(reason, path=str(self.path))


def _encode(position: Position) -> bytes:
    """Return a line with the checksum, and a line with the position."""
    text = json.dumps({"format": _FORMAT} | asdict(position), separators=(",", ":")).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text + b"\n"


def _decode(data: bytes) -> Position:
    """Return what `_encode` wrote; raises `ValueError` if the bytes differ, or are of a newer release."""
    checksum, _, text = data.partition(b"\n")
    text = text.removesuffix(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise ValueError("its checksum does not fit")
    fields: dict[str, Any] = json.loads(text)
    if fields.pop("format") not in _READABLE:
        raise ValueError("it was written by another release")
    return msgspec.convert(fields, Position)
