"""Which files an answer has listed already: one that comes again counts once, and has to be the same."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.protocol.actions import FileAction


@dataclass(slots=True)
class Listed:
    """The files that an answer has listed, by a key of theirs, with what two entries of a file must agree in.

    Attributes:
        sizes: the size of each.
        values: the partition values of those that have some.
        vectors: what tells the deletion vectors apart, of those that have one.
    """

    sizes: dict[Hashable, int] = field(default_factory=dict)
    values: dict[Hashable, Mapping[str, str | None]] = field(default_factory=dict)
    vectors: dict[Hashable, Hashable] = field(default_factory=dict)

    def note(self, key: Hashable, file: FileAction) -> None:
        """Add a file."""
        self.sizes[key] = file.size
        if file.partition_values:
            self.values[key] = file.partition_values
        if (vector := _vector(file)) is not None:
            self.vectors[key] = vector

    @classmethod
    def of_ids(cls, files: Sequence[FileAction]) -> Listed:
        """Return the list of many files, by their ids; of those with the same id the last one is in it."""
        ids = [file.id for file in files]
        values = [file.partition_values for file in files]
        return cls(
            dict(zip(ids, [file.size for file in files], strict=True)),
            {key: value for key, value in zip(ids, values, strict=True) if value} if any(values) else {},
            {file.id: _vector(file) for file in files if file.deletion_vector_file_id or file.deletion_vector},
        )

    def agrees(self, key: Hashable, file: FileAction) -> bool:
        """Tell whether a file is the one that was listed under the same key."""
        return (
            self.sizes[key] == file.size
            and self.values.get(key, {}) == file.partition_values
            and self.vectors.get(key) == _vector(file)
        )

    def update(self, other: Listed) -> None:
        """Add the files of another list."""
        self.sizes.update(other.sizes)
        self.values.update(other.values)
        self.vectors.update(other.vectors)


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


class Duplicates:
    """Which files an answer has listed already.

    In a snapshot there is one entry per id, in changes one per action, id, deletion vector and version.

    Args:
        what: the thing asked for, for messages.
        changes: whether the answer lists changes.
    """

    def __init__(self, what: str, *, changes: bool) -> None:
        self._what = what
        self._changes = changes
        self._seen = Listed()

    def commit(self, page: Listed) -> None:
        """Take over the files of a page that was read to its end."""
        if self._seen.sizes:
            self._seen.update(page)
        else:
            self._seen = page

    def all_new(self, files: Sequence[FileAction], page: Listed) -> bool:
        """Tell whether all of many files of a snapshot are listed for the first time; note them if so."""
        if self._changes:
            return False
        new = Listed.of_ids(files)
        if len(new.sizes) < len(files) or not all(
            listed.sizes.keys().isdisjoint(new.sizes) for listed in (self._seen, page) if listed.sizes
        ):
            return False
        page.update(new)
        return True

    def repeated(self, file: FileAction, page: Listed) -> bool:
        """Tell whether the file was listed before, on an earlier page or on this one; note it if not.

        Raises:
            ProtocolError: it was, but with other contents.
        """
        key: Hashable = file.id
        if self._changes:
            key = (type(file), file.id, file.deletion_vector_file_id, file.version)
        for listed in (self._seen, page):
            if key in listed.sizes:
                if listed.agrees(key, file):
                    return True
                raise ProtocolError(
                    f"{self._what}: the server listed the file {file.id} twice, with different contents"
                )
        page.note(key, file)
        return False
