"""`FileBlock`: files of an answer that follow each other, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Final

import msgspec
from msgspec import Raw, Struct

from delta_sharing_client.expressions.record_counts import decode_text, record_counts
from delta_sharing_client.model.actions import AddFile, DeletionVector, FileAction
from delta_sharing_client.model.partition_values import PartitionValues
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import SecretUrl

#: The fields of an action that are columns of a block, in their order.
_COLUMNS: Final = FileAction.__struct_fields__[:11]
_decode_texts: Final = msgspec.json.Decoder(list[str | None]).decode


class StatsUse(Struct):
    """Whether the statistics of an answer's files are read as text; then further lines are decoded with it."""

    as_text: bool = False


@dataclass(slots=True)
class FileBlock:
    """Files of one kind, one list for each field; iterated, they are actions.

    An action for each of 300,000 files takes longer to make than its line takes to decode, so planning works on
    the columns. See `FileAction` for their meanings.

    Attributes:
        kind: the class of the actions.
        partition_values: one mapping for all files with the same values.
        stats: the statistics as text, or as the JSON string of the line; see `stats_texts`.
        stats_use: shared by the blocks of an answer.
        counts: `record_counts`, once they are known.
    """

    kind: type[FileAction]
    urls: list[SecretUrl]
    ids: list[str]
    partition_values: list[PartitionValues]
    sizes: list[int]
    stats: Sequence[Raw | str | None]
    versions: list[int | None]
    timestamps: list[int | None]
    expirations: list[int | None]
    vectors: list[DeletionVector | None]
    vector_ids: list[str | None]
    data_changes: list[bool]
    counts: Sequence[int | None] | None = field(default=None, compare=False, kw_only=True)
    stats_use: StatsUse = field(default_factory=StatsUse, compare=False, kw_only=True)

    @classmethod
    def of(cls, files: Sequence[FileAction]) -> FileBlock:
        """Return actions of one kind, `AddFile` if there are none, as columns."""
        kind = type(files[0]) if files else AddFile
        urls, ids, values, sizes, stats, *others = ([getattr(file, name) for file in files] for name in _COLUMNS)
        known: dict[tuple[tuple[str, str | None], ...], PartitionValues] = {}
        values = [known.setdefault(tuple(each.items()), each) for each in values]
        return cls(kind, urls, ids, values, sizes, stats, *others)

    def take(self, positions: Sequence[int]) -> FileBlock:
        """Return the files at some positions."""
        if len(positions) == len(self):
            return self
        columns = [getattr(self, item.name) for item in fields(self)[1:-2]]
        taken = ([column[position] for position in positions] for column in columns)
        counts = None if self.counts is None else [self.counts[position] for position in positions]
        return FileBlock(self.kind, *taken, counts=counts, stats_use=self.stats_use)

    @property
    def record_counts(self) -> Sequence[int | None]:
        """The rows of the files by their statistics, deleted rows included."""
        if self.counts is None:
            self.counts = record_counts(self.stats)
        return self.counts

    def stats_texts(self) -> list[str | None]:
        """Return the texts of the statistics; None where there are none, or the JSON string is malformed."""
        self.stats_use.as_text = True
        if all(type(each) is Raw for each in self.stats):
            with suppress(msgspec.DecodeError, UnicodeError):
                texts = _decode_texts(b"[%b]" % b",".join(self.stats))  # type: ignore[arg-type]
                return [text or None for text in texts] if "" in texts else texts
        return list(map(_stats_text, self.stats))

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
            map(_stats_text, self.stats),
            self.versions,
            self.timestamps,
            self.expirations,
            self.vectors,
            self.vector_ids,
            self.data_changes,
        )


def _stats_text(stats: Raw | str | None) -> str | None:
    if not isinstance(stats, Raw):
        return stats or None
    try:
        return decode_text(stats) or None
    except (msgspec.DecodeError, UnicodeError):
        return None
