"""`Completeness`: whether a mirror's files are confirmed, and when a sync compares them with a whole listing.

A sync that requests changes relies on the server for the files that versions removed. A number confirms the result
if the server gives one: the number of the table's files, or the sum of their sizes. Otherwise a whole listing must
confirm it after some syncs. The rules:

- A number of the server that differs from the mirror's files leads to a whole listing in the same sync.
- A number that differs from the whole listing too is wrong; it is ignored until a later listing agrees with it.
- Without a number that counts, the sync after 1, 2, 4 and so on syncs lists the whole table, up to a maximum of
  syncs. After a difference the intervals begin with 1 again.

The state is a file in the mirror's private folder, bound to the local version. There is no file while there is
nothing to remember: the files are confirmed, the interval is 1, and no number was wrong. It is written before the
commit and removed after it. If it is of another version, because a sync ended between the two, the next sync lists
the whole table.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from delta_sharing_client.delta.mirror.file_comparison import Comparison
from delta_sharing_client.delta.table.file_download import PRIVATE_FOLDER
from delta_sharing_client.log.durable_files import (
    make_directories,
    remove_quietly,
    sync_directory,
    write_durably,
    writing,
)
from delta_sharing_client.model.actions import Metadata

#: The maximum number of syncs without a whole listing, if no number of the server confirms them.
COMPARE_EVERY: Final = 10

_FILE: Final = "completeness.json"
_MAX_SIZE: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """What confirms the files of a mirror's version.

    Attributes:
        version: the local version.
        unconfirmed: the number of syncs since the mirror's files were confirmed by a number or a whole listing.
        interval: a whole listing is due after this number of syncs.
        wrong: the numbers of the server that the last whole listing contradicted, by their names in the protocol.
    """

    version: int
    unconfirmed: int = 0
    interval: int = 1
    wrong: tuple[str, ...] = ()

    @classmethod
    def load(cls, directory: Path, version: int) -> Completeness:
        """Return the state of a mirror's version."""
        try:
            with _path(directory).open("rb") as file:
                found = msgspec.json.decode(file.read(_MAX_SIZE), type=cls)
        except FileNotFoundError:
            return cls(version=version)
        except (OSError, ValueError, RecursionError):
            return cls(version=version, unconfirmed=1)
        return found if found.version == version else cls(version=version, unconfirmed=1)

    @property
    def is_initial(self) -> bool:
        """Whether there is nothing to remember."""
        return self == Completeness(version=self.version)

    def save(self, directory: Path) -> None:
        """Record the state, or remove the record if there is nothing to remember.

        Raises:
            DeltaLogError: it cannot be written.
        """
        path = _path(directory)
        if self.is_initial:
            remove_quietly(path)
            return
        with writing("the data", directory):
            make_directories(path.parent)
            write_durably(path, json.dumps(asdict(self)).encode())
            sync_directory(path.parent)

    @property
    def is_confirmed(self) -> bool:
        """Whether the mirror's files are confirmed."""
        return self.unconfirmed == 0

    def is_due(self, compare_every: int) -> bool:
        """Whether a sync without a number that counts must list the whole table."""
        return self.unconfirmed + 1 >= min(self.interval, compare_every)

    def confirmed_by(self, metadata: Metadata | None, totals: tuple[int, int]) -> bool | None:
        """Return whether the numbers of the server confirm a mirror's files; None if none of them counts."""
        if metadata is None:
            return None
        wrong = _contradicted(metadata, totals)
        counted = {name for name, given in _numbers(metadata).items() if given is not None} - {*self.wrong}
        return not counted & wrong if counted else None

    def after_changes(self, *, confirmed: bool) -> Completeness:
        """Return the state after a sync without a whole listing."""
        return replace(self, unconfirmed=0 if confirmed else self.unconfirmed + 1)

    def after_listing(
        self, metadata: Metadata | None, totals: tuple[int, int], *, agrees: bool | None, compare_every: int
    ) -> Completeness:
        """Return the state after a whole listing.

        Args:
            metadata: the metadata of the listed version, if known.
            totals: the number of the mirror's files and the sum of their sizes.
            agrees: whether the mirror would have had the same files without the listing; None if that is unknown.
            compare_every: the maximum interval.
        """
        interval = self.interval if agrees is None else min(self.interval * 2, compare_every) if agrees else 1
        wrong = () if metadata is None else tuple(sorted(_contradicted(metadata, totals)))
        return replace(self, unconfirmed=0, interval=interval, wrong=wrong)


def totals_after(before: tuple[int, int], compared: Comparison) -> tuple[int, int]:
    """Return the number and the size of a mirror's files after the differences of a comparison."""
    count, size = before
    return (
        count + len(compared.new) - len(compared.gone),
        size + sum(file.action.size for file in compared.new) - sum(add.size for add in compared.gone),
    )


def _numbers(metadata: Metadata) -> dict[str, int | None]:
    return {"numFiles": metadata.num_files, "size": metadata.size}


def _contradicted(metadata: Metadata, totals: tuple[int, int]) -> AbstractSet[str]:
    """Return the numbers of the server that differ from those of the mirror's files."""
    return {
        name
        for (name, given), actual in zip(_numbers(metadata).items(), totals, strict=True)
        if given is not None and given != actual
    }


def _path(directory: Path) -> Path:
    return directory / PRIVATE_FOLDER / _FILE
