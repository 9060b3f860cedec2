"""`FileBlock`: files of an answer that follow each other, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

from delta_sharing_client.expressions.statistics import decode_text, num_records
from delta_sharing_client.model.actions import AddFile, DeletionVector, FileAction
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import SecretUrl

#: The fields of an action that are columns of a block, in their order.
_COLUMNS: Final = FileAction.__struct_fields__[:11]


@dataclass(slots=True)
class FileBlock:
    """Files of one kind, one list for each field; iterated, they are actions.

    An action for each of 300,000 files takes longer to make than its line takes to decode, so planning works on
    the columns. See `FileAction` for their meanings.

    Attributes:
        kind: the class of the actions.
        partition_values: one mapping for all files with the same values.
        stats: the statistics as text, or as the JSON string of the line; see `stats_text`.
        record_counts: the rows of the files by their statistics, deleted rows included.
    """

    kind: type[FileAction]
    urls: list[SecretUrl]
    ids: list[str]
    partition_values: list[Mapping[str, str | None]]
    sizes: list[int]
    stats: Sequence[Raw | str | None]
    record_counts: Sequence[int | None]
    versions: list[int | None]
    timestamps: list[int | None]
    expirations: list[int | None]
    vectors: list[DeletionVector | None]
    vector_ids: list[str | None]
    data_changes: list[bool]

    @classmethod
    def of(cls, files: Sequence[FileAction]) -> FileBlock:
        """Return actions of one kind, `AddFile` if there are none, as columns."""
        kind = type(files[0]) if files else AddFile
        urls, ids, values, sizes, stats, *others = ([getattr(file, name) for file in files] for name in _COLUMNS)
        known: dict[tuple[tuple[str, str | None], ...], Mapping[str, str | None]] = {}
        values = [known.setdefault(tuple(each.items()), each) for each in values]
        return cls(kind, urls, ids, values, sizes, stats, list(map(num_records, stats)), *others)

    def take(self, positions: Sequence[int]) -> FileBlock:
        """Return the files at some positions."""
        if len(positions) == len(self):
            return self
        files = list(self)
        return FileBlock.of([files[position] for position in positions])

    def __len__(self) -> int:
        return len(self.ids)

    @representation
    def __repr__(self) -> str:
        return f"<FileBlock of {len(self)} files>"

    def __iter__(self) -> Iterator[FileAction]:
        return map(
            self.kind,
            self.urls,
            self.ids,
            self.partition_values,
            self.sizes,
            map(stats_text, self.stats),
            self.versions,
            self.timestamps,
            self.expirations,
            self.vectors,
            self.vector_ids,
            self.data_changes,
        )


def stats_text(stats: Any) -> str | None:
    """Return the text of statistics of a block; None if there are none, or the JSON string is malformed."""
    if not isinstance(stats, Raw):
        return stats or None
    try:
        return decode_text(stats) or None
    except (msgspec.DecodeError, UnicodeError):
        return None
