"""Offsets of a streaming query, and the admission of files to a batch; pure.

An offset is a version of the table and the index of a file in it. The files of a version are in the order of the
paths of their URLs, which are the same in each answer and each response format; the offset records a digest of the
paths up to the file, so that the same files stand before it each time the server lists them.

Offsets of earlier releases, and those of versions whose URLs have no distinct paths, count the files in the order
of their ids. A server may give a file another id in another response format: such an offset records the format and
the last id. The version is listed in that format until all of it was read, or its ids of that format are computed.
If neither is possible, it is unknown which files were read, and the version can only be read again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, structs

from delta_sharing_client.errors import StreamError
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.parquet.tasks import FileScanTask

#: Versions of the offsets' format: files in the order of their ids, or of their paths.
BY_ID: Final = 1
BY_PATH: Final = 2
#: The index before a version's first file.
BEFORE: Final = -1

_DELTA_OR_CONNECTOR: Final = frozenset({"reservoirId", "reservoirVersion", "tableVersion", "isStartingVersion"})


class Offset(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
):
    """The position of a streaming query: it has read every file up to this one.

    Spark compares the JSON texts of offsets, so the order of the fields matters.

    Attributes:
        table_id: the table's id.
        version: the version.
        index: the last file of that version that was read; -1 before the first one.
        is_initial_snapshot: whether the files are those of the whole table as of `version`, not those that it
            changed.
        initial_version: the version that the query began with.
        initial_snapshot: whether it began with the whole table.
        response_format: the response format of the listing that `index` counts; None before a version's first
            file, and in offsets of early releases.
        file_id: the id of the last file that was read, in that format, if the files are in the order of their ids.
        paths: the digest of the paths of the files that were read, if the files are in the order of their paths.
        repeats: how many times the version was begun again, because it was unknown which files were read.
    """

    table_id: str
    version: Annotated[int, Meta(ge=0)]
    index: Annotated[int, Meta(ge=BEFORE)]
    is_initial_snapshot: bool
    initial_version: Annotated[int, Meta(ge=0)]
    initial_snapshot: bool
    response_format: ResponseFormat | None = None
    file_id: str | None = None
    paths: str | None = None
    repeats: Annotated[int, Meta(ge=0)] = 0

    @classmethod
    def initial(cls, table_id: str, version: int, *, snapshot: bool) -> Offset:
        """Return the offset of a query that begins with a version, or with the whole table as of it."""
        return cls(
            table_id=table_id,
            version=version,
            index=BEFORE,
            is_initial_snapshot=snapshot,
            initial_version=version,
            initial_snapshot=snapshot,
        )

    @classmethod
    def from_json(cls, value: Any) -> Offset:
        """Return the offset that `to_json` wrote.

        Raises:
            StreamError: it belongs to another source, or to a later release, or is damaged.
        """
        if not isinstance(value, Mapping):
            raise StreamError(f"the checkpoint has an offset that is not an object: {str(value)[:80]!r}")
        if _DELTA_OR_CONNECTOR & value.keys():
            raise StreamError(
                "the checkpoint is one of another source (Delta's own, or the connector for the JVM), whose "
                "offsets count files differently: use a new checkpoint location, with the option startingVersion "
                "set to the version after the last one that was read"
            )
        if value.get("sourceVersion") not in (BY_ID, BY_PATH):
            raise StreamError(
                f"the checkpoint has offsets of version {value.get('sourceVersion')!r}, and this release reads "
                f"{BY_ID} and {BY_PATH}: use the release that wrote it, or a later one"
            )
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise StreamError(f"the checkpoint has a damaged offset: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        # Releases that know the order by id alone refuse an offset of the other order.
        return {"sourceVersion": BY_ID if self.paths is None else BY_PATH, **msgspec.to_builtins(self)}

    @property
    def start(self) -> Offset:
        """The offset that the query began with."""
        return Offset.initial(self.table_id, self.initial_version, snapshot=self.initial_snapshot)

    @property
    def place(self) -> tuple[int, bool, int, int]:
        """The order of a query's offsets: the whole table comes before the changes of its version."""
        return (self.version, not self.is_initial_snapshot, self.repeats, self.index)

    def again(self, repeats: int) -> Offset:
        """Return the offset before the first file of its version, which is read again for the given time."""
        return structs.replace(self, index=BEFORE, response_format=None, file_id=None, paths=None, repeats=repeats)

    def after(self, version: int) -> Offset:
        """Return the offset after the last file of a version."""
        return structs.replace(self.again(0), version=version + 1, is_initial_snapshot=False)

    def at(
        self,
        version: int,
        index: int,
        response_format: ResponseFormat | None = None,
        *,
        file_id: str | None = None,
        paths: str | None = None,
    ) -> Offset:
        """Return the offset after a file; `is_initial_snapshot` stays as it is."""
        return structs.replace(
            self, version=version, index=index, response_format=response_format, file_id=file_id, paths=paths
        )


@dataclass(frozen=True, slots=True)
class StreamFile:
    """A file of a stream.

    Attributes:
        version: its version.
        index: its index in that version.
        task: how to read it.
        whole: whether all files of its version must be in one batch.
        paths: the digest of the paths of its version's files up to this one; None if they are in the order of
            their ids.
        file_id: its id in that order, if they are.
    """

    version: int
    index: int
    task: FileScanTask
    whole: bool = False
    paths: str | None = None
    file_id: str | None = None


@dataclass
class Admission:
    """Admits files to a batch until a limit is reached.

    Attributes:
        max_files: maximum number of files.
        max_bytes: bytes of files after which no other file is admitted; the file that exceeds them is.
        files: number of admitted files.
        size: bytes of admitted files.
    """

    max_files: int | None = None
    max_bytes: int | None = None
    files: int = 0
    size: int = 0
    _whole: int | None = field(default=None, repr=False)

    @property
    def full(self) -> bool:
        """Whether a limit is reached."""
        if self.max_files is not None and self.files >= self.max_files:
            return True
        return self.max_bytes is not None and self.size >= self.max_bytes

    def advance(
        self,
        position: Offset,
        files: Iterable[StreamFile],
        last: int,
        response_format: ResponseFormat | None = None,
    ) -> Offset:
        """Admit the files after an offset; return the offset after the last admitted one.

        `last` is the last version of the listing, which may be without files.
        """
        for file in files:
            if self.full and not (file.whole and self._whole == file.version):
                # Versions between the last admitted file and this one have no files: they are passed.
                return position if file.version == position.version else position.after(file.version - 1)
            self._whole = file.version if file.whole else None
            self.files += 1
            self.size += file.task.size
            position = position.at(
                file.version, file.index, response_format, file_id=file.file_id, paths=file.paths
            )
        return position.after(last)


def pending(files: Sequence[StreamFile], position: Offset) -> Sequence[StreamFile]:
    """Return the files after an offset."""
    return files[count_until(files, (position.version, position.index)) :]


def count_until(files: Sequence[StreamFile], end: tuple[int, int]) -> int:
    """Return the number of files up to a version and an index in it."""
    return bisect_right(files, end, key=lambda file: (file.version, file.index))
