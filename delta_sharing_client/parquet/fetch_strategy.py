"""Whether a file is fetched whole or in pieces, from what is known before anything of it is fetched.

A request that spares bytes costs a round trip. Small files, and files of which nearly everything is read,
are therefore fetched with one GET; large ones are worth several connections in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delta_sharing_client.model.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from delta_sharing_client.parquet.fetch import TAIL
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

#: Up to here a file is always fetched whole: a second request takes longer than the bytes it would spare.
WHOLE: Final = 1024 * 1024
#: From here on row groups may be left out, where a filter or a limit says so.
SELECTIVE: Final = 4 * 1024 * 1024
#: From here on a file is worth several connections, whatever is read of it.
LARGE: Final = 12 * 1024 * 1024
#: In between, a file is fetched in pieces if at most this part of it is read.
FRACTION: Final = 0.6

_WIDTHS: Final = {
    "boolean": 1,
    "byte": 1,
    "short": 2,
    "integer": 4,
    "float": 4,
    "date": 4,
    "void": 0,
    "string": 20,
    "binary": 40,
    "variant": 80,
}


@dataclass(frozen=True, slots=True)
class FetchEstimate:
    """What reading files would fetch.

    Attributes:
        bytes: bytes of files, footers included and deletion vectors not.
        requests: how many requests that takes.
        in_pieces: how many of the files are fetched in pieces.
        row_groups: row groups of those files.
        row_groups_pruned: how many of them hold no row that can match.
    """

    bytes: int
    requests: int
    in_pieces: int
    row_groups: int
    row_groups_pruned: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the files of a scan are fetched.

    Attributes:
        fraction: about what part of each file is read, going by its columns.
        selective: whether row groups may be left out.
    """

    fraction: float
    selective: bool

    @classmethod
    def of(cls, spec: ReadSpec, table_columns: StructType | None, *, limited: bool) -> Strategy:
        """Make the strategy of a scan.

        Args:
            spec: what is read of each file.
            table_columns: all columns of the table; None where not known.
            limited: whether the scan ends after some rows.
        """
        return cls(_fraction(spec, table_columns), limited or spec.predicate is not None)

    def in_pieces(self, task: FileScanTask) -> bool:
        """Whether to fetch a file's footer first, and then only what is read of it."""
        if not self.fraction:
            return task.size > 2 * TAIL  # only rows are counted: the footer is enough
        if task.size <= WHOLE:
            return False
        return task.size >= (SELECTIVE if self.selective else LARGE) or self.fraction <= FRACTION


def _fraction(spec: ReadSpec, table_columns: StructType | None) -> float:
    if table_columns is None:
        return 1.0
    stored = sum(_width(f.type) for f in table_columns.fields if f.name not in spec.partition_columns)
    read = sum(_width(f.type) for f in spec.fields if f.name not in spec.partition_columns)
    return read / stored if stored else 0.0


def _width(kind: DataType) -> int:
    """About how many bytes a value takes; only good for comparing columns."""
    if isinstance(kind, PrimitiveType):
        return _WIDTHS.get(kind.name, 8)
    if isinstance(kind, StructType):
        return sum(_width(f.type) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return 3 * _width(kind.element)
    if isinstance(kind, MapType):
        return 3 * (_width(kind.key) + _width(kind.value))
    return 8
