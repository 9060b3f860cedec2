"""Detection of files that an answer lists twice: a file counts once, and its entries must agree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count, repeat
from typing import Any

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.wire.file_block import FileBlock


class DuplicateFiles:
    """The files that an answer has listed so far.

    A snapshot has one entry per id; changes have one per action, id, deletion vector and version.

    Args:
        what: the requested object, for messages.
        changes: whether the answer lists changes.
    """

    def __init__(self, what: str, *, changes: bool) -> None:
        self._what = what
        self._changes = changes
        #: The position of each file in the columns: sizes, partition values, identities of deletion vectors. One
        #: tuple for each of 300,000 files would occupy the garbage collector.
        self._positions: dict[Hashable, int] = {}
        self._columns: tuple[list[Any], ...] = ([], [], [])
        self._committed = 0

    def begin_page(self) -> None:
        """Forget the files of an attempt that did not reach the end of its page."""
        self._forget_from(self._committed)
        for column in self._columns:
            del column[self._committed :]

    def _forget_from(self, position: int) -> None:
        while len(self._positions) > position:
            self._positions.popitem()

    def commit_page(self) -> None:
        """Keep the files of a page that was read to its end."""
        self._committed = len(self._positions)

    def new_files(self, files: FileBlock) -> FileBlock:
        """Return the files of a block that were not listed before, and note them.

        Raises:
            ProtocolError: a file was listed before with other contents.
        """
        keys: Sequence[Hashable] = files.ids
        if self._changes:
            keys = list(zip(repeat(files.kind), files.ids, files.vector_ids, files.versions, strict=False))
        listed: tuple[Sequence[Any], ...] = (files.sizes, files.partition_values, _identities(files))
        before = len(self._positions)
        if self._positions.keys().isdisjoint(keys):
            self._positions.update(zip(keys, count(before), strict=False))
        if len(self._positions) == before + len(keys):
            for column, values in zip(self._columns, listed, strict=True):
                column += values
            return files
        self._forget_from(before)
        new: list[int] = []
        for number, (key, *contents) in enumerate(zip(keys, *listed, strict=True)):
            position = self._positions.setdefault(key, len(self._positions))
            if position == len(self._columns[0]):
                new.append(number)
                for column, value in zip(self._columns, contents, strict=True):
                    column.append(value)
            elif [column[position] for column in self._columns] != contents:
                raise ProtocolError(
                    f"{self._what}: the server listed the file {files.ids[number]} twice, with different contents"
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
    path = None if vector.storage_type == "p" else vector.path_or_inline
    return vector.storage_type, vector.size_in_bytes, vector.cardinality, vector.offset, path
