"""Which files an answer has listed already: one that comes again counts once, and has to be the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import repeat
from typing import TypeAlias

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.actions import FileAction
from delta_sharing_client.wire.typed_lines import FileBlock

#: What two entries of a file must agree in: its size, its partition values, and what tells its deletion vector.
_Contents: TypeAlias = tuple[int, Mapping[str, str | None], Hashable]


class Listed:
    """Files that an answer has listed, by a key of theirs, with what two entries of a file must agree in.

    Files come one by one, or many at once. Of those nothing but the ids is looked at, until one comes again.

    Args:
        many: whether files may come many at once; their keys are their ids then.
    """

    def __init__(self, *, many: bool) -> None:
        self._contents: dict[Hashable, _Contents] = {}
        # Of files that came many at once; few long lists, since the garbage collector looks at each new one.
        self._ids: list[str] = []
        self._sizes: list[int] = []
        self._values: list[Mapping[str, str | None]] = []
        #: All keys; None if files come one by one, as they do once one of many was listed before.
        self._keys: set[Hashable] | None = set() if many else None

    def get(self, key: Hashable) -> _Contents | None:
        """Return what is known of a file; None for one that is not listed yet."""
        if self._ids and self._keys is not None and key in self._keys:
            self._settle()
        return self._contents.get(key)

    def has_any_of(self, keys: Iterable[Hashable]) -> bool:
        """Tell whether any of some files is listed."""
        known = self._contents.keys() if self._keys is None else self._keys
        return bool(known) and not known.isdisjoint(keys)

    def note(self, key: Hashable, file: FileAction) -> None:
        """Add a file."""
        self._contents[key] = contents_of(file)
        if self._keys is not None:
            self._keys.add(key)

    def note_all(self, files: FileBlock) -> bool:
        """Add many files, unless one of them is listed already, or is among them twice; tell whether it did."""
        if self._keys is None:
            return False
        ids, before = files.ids, len(self._keys)
        self._keys.update(ids)
        if len(self._keys) < before + len(ids):
            self._settle()
            self._keys = None
            return False
        self._add(ids, files.sizes, files.partition_values)
        return True

    def update(self, other: Listed) -> None:
        """Add the files of another list, none of which is in this one, and which is not used any more."""
        self._contents.update(other._contents)
        self._add(other._ids, other._sizes, other._values)
        if self._keys is None or other._keys is None:
            self._settle()
            self._keys = None
        elif self._keys:
            self._keys |= other._keys
        else:
            self._keys = other._keys

    def _add(self, ids: list[str], sizes: list[int], values: list[Mapping[str, str | None]]) -> None:
        self._ids += ids
        self._sizes += sizes
        self._values += values

    def _settle(self) -> None:
        """Make what is known of files that came together the same as of the others."""
        contents = zip(self._sizes, self._values, repeat(None), strict=False)
        self._contents.update(zip(self._ids, contents, strict=True))
        self._ids, self._sizes, self._values = [], [], []


def contents_of(file: FileAction) -> _Contents:
    """Return what two entries of a file must agree in."""
    return file.size, file.partition_values, _vector(file)


def _vector(file: FileAction) -> Hashable:
    """What tells a file's deletion vector from others; None where it has none."""
    vector = file.deletion_vector
    if vector is None:
        return file.deletion_vector_file_id
    return (
        file.deletion_vector_file_id,
        vector.storage_type,
        vector.size_in_bytes,
        vector.cardinality,
        vector.offset,
        None if vector.storage_type == "p" else vector.path_or_inline,  # a signed URL differs each time
    )


class DuplicateFiles:
    """Which files an answer has listed already.

    In a snapshot there is one entry per id, in changes one per action, id, deletion vector and version.

    Args:
        what: the thing asked for, for messages.
        changes: whether the answer lists changes.
    """

    def __init__(self, what: str, *, changes: bool) -> None:
        self._what = what
        self._changes = changes
        self._seen = self.page()

    def page(self) -> Listed:
        """Return the list of the files of a page, none yet; it counts once it is committed."""
        return Listed(many=not self._changes)

    def commit(self, page: Listed) -> None:
        """Take over the files of a page that was read to its end."""
        self._seen.update(page)

    def all_new(self, files: FileBlock, page: Listed) -> bool:
        """Tell whether all of many files of a snapshot are listed for the first time; note them if so."""
        return not self._seen.has_any_of(files.ids) and page.note_all(files)

    def repeated(self, file: FileAction, page: Listed) -> bool:
        """Tell whether the file was listed before, on an earlier page or on this one; note it if not.

        Raises:
            ProtocolError: it was, but with other contents.
        """
        key: Hashable = file.id
        if self._changes:
            key = (type(file), file.id, file.deletion_vector_file_id, file.version)
        for listed in (self._seen, page):
            if (known := listed.get(key)) is not None:
                if known == contents_of(file):
                    return True
                raise ProtocolError(
                    f"{self._what}: the server listed the file {file.id} twice, with different contents"
                )
        page.note(key, file)
        return False
