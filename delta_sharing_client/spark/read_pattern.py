"""Columns and row groups that a query reads through a gateway, and those that it will probably read next."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

#: Seconds after which a request belongs to another query; fewer if a file is opened again. A file with several
#: splits is opened for each.
_IDLE: Final = 1.0
_IDLE_IF_OPENED_AGAIN: Final = 0.05
#: Maximum number of row groups that are requested ahead if the query skips some, and if it skips none.
_AHEAD_IF_SKIPPED: Final = 6
_AHEAD: Final = 64
#: Number of row groups, and bytes of them, that are requested ahead before the columns of the query are known; for
#: the first columns of a row group only.
_GUESSED: Final = 4
_GUESSED_BYTES: Final = 512 * 1024
_GUESSED_COLUMNS: Final = 2
#: Bytes of further row groups and files that are requested ahead.
_AHEAD_BYTES: Final = 128 * 1024 * 1024
#: Row groups of which the columns are compared.
_COMPARED: Final = 8

#: Number of a file, number of a row group in it.
RowGroup: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a reader that requested a column chunk will probably request next.

    Attributes:
        columns: columns of the same row group, and of the next ones.
        neighbours: number of chunks after the requested one in the same row group.
        row_groups: number of next row groups.
        size: maximum bytes of their columns to request.
        files: the files that the query has read.
    """

    columns: frozenset[int]
    neighbours: int
    row_groups: int
    size: int
    files: frozenset[int]


class ReadPattern:
    """The row groups that a query has read; not thread-safe.

    A row group is complete when its reader has gone on: its columns are then those of the query.

    Args:
        readers: number of row groups that are read at a time.
    """

    def __init__(self, readers: int) -> None:
        self._readers = max(readers, 1)
        #: The columns read of each row group, in order; the one that was read last is at the end.
        self._read: OrderedDict[RowGroup, dict[int, None]] = OrderedDict()
        self._opened: set[int] = set()
        self._skips = False
        self._last = 0.0

    def open(self, file: int) -> None:
        """Note that a footer is read: a row group of the file will be read unless the query skips all of them."""
        if file in self._opened and time.monotonic() - self._last > _IDLE_IF_OPENED_AGAIN:
            self._begin()
        self._opened.add(file)

    def has_read(self, row_group: RowGroup, column: int) -> bool:
        """Return whether the beginning of a column chunk was requested."""
        return column in self._read.get(row_group, ())

    def read(self, row_group: RowGroup, column: int, row_group_columns: Collection[int]) -> Expectation:
        """Note that the beginning of a column chunk is requested; return what follows.

        Args:
            row_group: the row group.
            column: the column.
            row_group_columns: the columns of the row group up to this one, in the order in which they are stored.
        """
        now = time.monotonic()
        if now - self._last > _IDLE or self.has_read(row_group, column):
            self._begin()
            self._opened.add(row_group[0])
        self._last = now
        begins = row_group not in self._read
        columns = self._read.setdefault(row_group, {})
        columns[column] = None
        self._read.move_to_end(row_group)
        complete = self._complete()
        if complete:
            known = {number for each in complete[-_COMPARED:] for number in self._read[each]}
            count = self._row_groups(row_group, len(complete)) if begins else 0
            return self._expect({column} | known, 0, count, _AHEAD_BYTES)
        similar = [each for key, each in self._read.items() if key != row_group and column in each]
        neighbours = _neighbours(columns, row_group_columns)
        guessed = 0 if self._skips_before(row_group) or len(columns) > _GUESSED_COLUMNS else _GUESSED
        return self._expect({column, *(similar[-1] if similar else ())}, neighbours, guessed, _GUESSED_BYTES)

    def _begin(self) -> None:
        """Forget what the query before has read."""
        self._read.clear()
        self._opened.clear()
        self._skips = False

    def _expect(self, columns: set[int], neighbours: int, row_groups: int, size: int) -> Expectation:
        files = frozenset(file for file, _ in self._read)
        return Expectation(frozenset(columns), neighbours, row_groups, size, files)

    def _complete(self) -> list[RowGroup]:
        """Return the row groups of which all columns have been read, the latest last."""
        latest: dict[int, int] = {}
        for file, group in self._read:
            latest[file] = max(latest.get(file, 0), group)
        running = [each for each in self._read if each[1] == latest[each[0]]][-self._readers :]
        return [each for each in self._read if each not in running]

    def _row_groups(self, row_group: RowGroup, complete: int) -> int:
        """Return how many row groups to request ahead: few if the query skips row groups by their statistics."""
        self._skips = self._skips or self._skips_before(row_group)
        return min(complete, _AHEAD_IF_SKIPPED) if self._skips else min(2 ** min(complete, 10), _AHEAD)

    def _skips_before(self, row_group: RowGroup) -> bool:
        """Return whether the query has skipped the row group before this one, or whole files."""
        file, group = row_group
        read = {number for number, _ in self._read}
        return (group > 0 and (file, group - 1) not in self._read) or len(self._opened - read) > self._readers


def _neighbours(read: Collection[int], stored: Collection[int]) -> int:
    """Return how many chunks to request after one, if those before it were read one after the other."""
    run = 0
    for column in reversed(list(stored)[:-1]):
        if column not in read:
            break
        run += 1
    return 1 << run if run else 0
