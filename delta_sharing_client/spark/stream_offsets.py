"""Where a streaming query is in a table, and how far it goes next; pure.

An offset names a version and a file within it, by the file's place among those of the version, which stand in the
order of their ids. So the same two offsets stand for the same files whenever they are asked for.

A server may give a file another id in another response format. So an offset within a version names the format that
the ids are of, and the version is asked for in it until all of it was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delta_sharing_client.errors import StreamError
from delta_sharing_client.model.actions import ResponseFormat

#: The form of the offsets, which stands in each of them.
OFFSET_VERSION: Final = 1
#: The index of the place before a version's first file.
BEFORE: Final = -1

_DELTA_OR_CONNECTOR: Final = frozenset({"reservoirId", "reservoirVersion", "tableVersion", "isStartingVersion"})


@dataclass(frozen=True, kw_only=True, order=False)
class Offset:
    """How far a streaming query has come: every file up to this one was read.

    Attributes:
        table_id: the table's id.
        version: the version that it is in.
        index: the last file that was read of that version; -1 before the first one.
        is_snapshot: whether the files are those of the whole table as of `version`, not those that it changed.
        initial_version: where the query began.
        initial_snapshot: whether it began with the whole table.
        response_format: the response format that `index` depends on; None before a version's first file, and in
            offsets of the first releases.
        file_id: the id of the last file that was read, in that format.
    """

    table_id: str
    version: int
    index: int = BEFORE
    is_snapshot: bool = False
    initial_version: int
    initial_snapshot: bool = False
    response_format: ResponseFormat | None = None
    file_id: str | None = None

    @classmethod
    def initial(cls, table_id: str, version: int, *, snapshot: bool) -> Offset:
        """Return the offset of a query that has read nothing yet.

        Args:
            table_id: the table's id.
            version: the version to begin with.
            snapshot: whether it begins with the whole table as of that version.
        """
        return cls(
            table_id=table_id,
            version=version,
            is_snapshot=snapshot,
            initial_version=version,
            initial_snapshot=snapshot,
        )

    @classmethod
    def from_json(cls, value: Any) -> Offset:
        """Return the offset that `to_json` wrote.

        Raises:
            StreamError: it is of another source, or of a later release.
        """
        if not isinstance(value, Mapping):
            raise StreamError(f"the checkpoint holds an offset that is no object: {str(value)[:80]!r}")
        if _DELTA_OR_CONNECTOR & value.keys():
            raise StreamError(
                "the checkpoint is one of another source (Delta's own, or the connector for the JVM), whose "
                "offsets count files differently: use a new checkpoint location, with the option startingVersion "
                "set to the version after the last one that was read"
            )
        if value.get("sourceVersion") != OFFSET_VERSION:
            raise StreamError(
                f"the checkpoint holds offsets of the form {value.get('sourceVersion')!r}, and this release knows "
                f"{OFFSET_VERSION}: use the release that wrote it, or a later one"
            )
        try:
            offset = cls(
                table_id=_typed(value["tableId"], str),
                version=_typed(value["version"], int),
                index=_typed(value["index"], int),
                is_snapshot=_typed(value["isInitialSnapshot"], bool),
                initial_version=_typed(value["initialVersion"], int),
                initial_snapshot=_typed(value["initialSnapshot"], bool),
                response_format=_format(value.get("responseFormat")),
                file_id=None if value.get("fileId") is None else _typed(value["fileId"], str),
            )
        except (KeyError, TypeError) as error:
            raise StreamError(f"the checkpoint holds a damaged offset: {error}") from None
        if offset.version < 0 or offset.index < BEFORE or offset.initial_version < 0:
            raise StreamError("the checkpoint holds a damaged offset: a number in it is negative")
        return offset

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark keeps it. Spark compares the texts, so the order of the keys counts."""
        told = {"responseFormat": self.response_format, "fileId": self.file_id}
        return {
            "sourceVersion": OFFSET_VERSION,
            "tableId": self.table_id,
            "version": self.version,
            "index": self.index,
            "isInitialSnapshot": self.is_snapshot,
            "initialVersion": self.initial_version,
            "initialSnapshot": self.initial_snapshot,
        } | {key: value for key, value in told.items() if value is not None}

    @property
    def start(self) -> Offset:
        """Where the query began."""
        return Offset.initial(self.table_id, self.initial_version, snapshot=self.initial_snapshot)

    @property
    def place(self) -> tuple[int, bool, int]:
        """What offsets of one query are ordered by: the whole table comes before what its version changed."""
        return (self.version, not self.is_snapshot, self.index)

    def after(self, version: int) -> Offset:
        """Return the offset behind the last file of a version."""
        return replace(
            self, version=version + 1, index=BEFORE, is_snapshot=False, response_format=None, file_id=None
        )

    def at(
        self,
        version: int,
        index: int,
        response_format: ResponseFormat | None = None,
        file_id: str | None = None,
    ) -> Offset:
        """Return the offset behind a file, in the same kind of files.

        Args:
            version: the file's version.
            index: its place in it.
            response_format: the response format that the place depends on.
            file_id: the file's id in that format.
        """
        return replace(self, version=version, index=index, response_format=response_format, file_id=file_id)


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:80]!r} is no {kind.__name__}")
    return value


def _format(value: Any) -> ResponseFormat | None:
    if value in (None, "parquet", "delta"):
        found: ResponseFormat | None = value
        return found
    raise TypeError(f"{str(value)[:80]!r} is no response format")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much one batch takes; None for any amount.

    Attributes:
        files: how many files at the most.
        size: bytes of files after which no further one is taken; the file that passes it is.
    """

    files: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """What counts of a file when a batch is made up.

    Attributes:
        version: its version.
        index: its place in it.
        size: its bytes.
        whole: whether the files of its version are taken together or not at all.
        file_id: its id.
    """

    version: int
    index: int
    size: int
    whole: bool = False
    file_id: str | None = None


@dataclass
class Admission:
    """Makes up a batch: takes files one by one until a limit is reached.

    Attributes:
        limit: how much it takes.
        files: files that were taken.
        size: bytes of them.
    """

    limit: Limit
    files: int = 0
    size: int = 0
    _whole: int | None = field(default=None, repr=False)

    @property
    def full(self) -> bool:
        """Whether nothing more is taken."""
        if self.limit.files is not None and self.files >= self.limit.files:
            return True
        return self.limit.size is not None and self.size >= self.limit.size

    def admit(self, file: Sized) -> bool:
        """Take a file, or tell that there is no room for it."""
        if self.full and not (file.whole and self._whole == file.version):
            return False
        self._whole = file.version if file.whole else None
        self.files += 1
        self.size += file.size
        return True

    def advance(
        self,
        position: Offset,
        files: Iterable[Sized],
        last: int,
        response_format: ResponseFormat | None = None,
    ) -> Offset:
        """Return how far a batch comes in a run of files.

        Args:
            position: where the batch, or this run of files, begins.
            files: the files behind `position`, in their order.
            last: the last version that they cover; a version may have none of them.
            response_format: the response format that their places depend on.
        """
        for file in files:
            if not self.admit(file):
                # What lies between the last file that was taken and this one is behind us already.
                return position if file.version == position.version else position.after(file.version - 1)
            position = position.at(file.version, file.index, response_format, file.file_id)
        return position.after(last)


def pending(files: Sequence[Sized], position: Offset) -> Sequence[Sized]:
    """Return the files of a run that lie behind a position."""
    return files[behind(files, (position.version, position.index)) :]


def behind(files: Sequence[Sized], place: tuple[int, int]) -> int:
    """Return how many files of a run lie at a place, a version and an index, or before it."""
    return bisect_right(files, place, key=lambda file: (file.version, file.index))
