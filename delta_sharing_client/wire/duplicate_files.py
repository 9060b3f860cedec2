"""Detection of files that an answer lists twice: a file counts once, and its entries must agree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import repeat
from typing import Any

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.wire.file_block import FileBlock


class DuplicateFiles:
    """The files that an answer has listed so far.

    A snapshot has one entry per id; changes have one per action, id, deletion vector and version, or time if they
    have no versions.

    Args:
        subject: the requested object, for messages.
        changes: whether the answer lists changes.
    """

    def __init__(self, subject: str, *, changes: bool) -> None:
        self._subject = subject
        self._changes = changes
        self._keys: set[Hashable] = set()
        #: Keys, sizes, partition values and identities of deletion vectors of the listed files. One tuple for each
        #: of 300,000 files would occupy the garbage collector.
        self._columns: tuple[list[Any], ...] = ([], [], [], [])
        #: The position of each key in the columns, created for the first duplicate of a page.
        self._positions: dict[Hashable, int] | None = None
        self._committed = 0

    def begin_page(self) -> None:
        """Forget the files of an attempt that did not reach the end of its page."""
        self._keys.difference_update(self._columns[0][self._committed :])
        self._positions = None
        for column in self._columns:
            del column[self._committed :]

    def commit_page(self) -> None:
        """Keep the files of a page that was read to its end."""
        self._committed = len(self._columns[0])

    def new_files(self, files: FileBlock) -> FileBlock:
        """Return the files of a block that were not listed before, and note them.

        Raises:
            ProtocolError: a file was listed before with other contents.
        """
        keys: Sequence[Hashable] = files.ids
        if self._changes:
            commits = files.timestamps if None in files.versions else files.versions
            keys = list(zip(repeat(files.kind), files.ids, files.vector_ids, commits, strict=False))
        listed: tuple[Sequence[Any], ...] = (keys, files.sizes, files.partition_values, _identities(files))
        before = len(self._keys)
        self._keys.update(keys)
        if self._positions is None and len(self._keys) == before + len(keys):
            for column, values in zip(self._columns, listed, strict=True):
                column += values
            return files
        if self._positions is None:
            self._positions = {key: position for position, key in enumerate(self._columns[0])}
        new: list[int] = []
        for number, entry in enumerate(zip(*listed, strict=True)):
            position = self._positions.setdefault(entry[0], len(self._positions))
            if position == len(self._columns[0]):
                new.append(number)
                for column, value in zip(self._columns, entry, strict=True):
                    column.append(value)
            elif any(column[position] != value for column, value in zip(self._columns, entry, strict=True)):
                raise ProtocolError(
                    f"{self._subject}: the server listed the file {files.ids[number]} twice, with "
                    "different contents"
                )
        return files.take(new)


def _identities(files: FileBlock) -> Sequence[Hashable]:
    """Return the identity of the deletion vector of each file; None for a file without one."""
    if not any(files.vectors):
        return files.vector_ids
    return [
        vector_id if vector is None else (vector_id, *_identity(vector))
        for vector, vector_id in zip(files.vectors, files.vector_ids, strict=True)
    ]


def _identity(vector: DeletionVector) -> tuple[Hashable, ...]:
    # A signed URL differs in each answer.
    path = None if vector.is_absolute else vector.path_or_inline
    return vector.storage_type, vector.size_in_bytes, vector.cardinality, vector.offset, path
