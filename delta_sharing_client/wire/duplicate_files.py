"""Detection of files that an answer lists twice: a file counts once, and its entries must agree."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.wire.file_block import FileBlock

#: What two entries of a file must agree in: size, partition values, and the identity of the deletion vector.
_Contents: TypeAlias = tuple[int, Mapping[str, str | None], Hashable]


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
        self._keys: set[Hashable] = set()
        # The listed files as few long columns: the garbage collector looks at each tuple of 300,000.
        self._order: list[Hashable] = []
        self._sizes: list[int] = []
        self._values: list[Mapping[str, str | None]] = []
        self._vectors: list[Hashable] = []
        #: The same by key, made for the first duplicate.
        self._contents: dict[Hashable, _Contents] | None = None
        self._committed = 0

    def begin_page(self) -> None:
        """Forget the files of an attempt that did not reach the end of its page."""
        self._keys.difference_update(self._order[self._committed :])
        for column in (self._order, self._sizes, self._values, self._vectors):
            del column[self._committed :]
        self._contents = None

    def commit_page(self) -> None:
        """Keep the files of a page that was read to its end."""
        self._committed = len(self._order)

    def new_files(self, files: FileBlock) -> FileBlock:
        """Return the files of a block that were not listed before, and note them.

        Raises:
            ProtocolError: a file was listed before with other contents.
        """
        keys: Sequence[Hashable] = files.ids
        if self._changes:
            keys = list(zip(repeat(files.kind), files.ids, files.vector_ids, files.versions, strict=False))
        before = len(self._keys)
        self._keys.update(keys)
        if len(self._keys) == before + len(keys):
            self._note(keys, files)
            return files
        if self._contents is None:
            contents = zip(self._sizes, self._values, self._vectors, strict=True)
            self._contents = dict(zip(self._order, contents, strict=True))
        new: list[int] = []
        listed = zip(keys, zip(files.sizes, files.partition_values, _identities(files), strict=True), strict=True)
        for position, (key, contents_of) in enumerate(listed):
            known = self._contents.get(key)
            if known is None:
                self._contents[key] = contents_of
                new.append(position)
            elif known != contents_of:
                raise ProtocolError(
                    f"{self._what}: the server listed the file {files.ids[position]} twice, with different "
                    "contents"
                )
        fresh = files.take(new)
        self._note([keys[position] for position in new], fresh)
        return fresh

    def _note(self, keys: Sequence[Hashable], files: FileBlock) -> None:
        identities = _identities(files)
        self._order += keys
        self._sizes += files.sizes
        self._values += files.partition_values
        self._vectors += identities
        if self._contents is not None:
            contents = zip(files.sizes, files.partition_values, identities, strict=True)
            self._contents.update(zip(keys, contents, strict=True))


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
