"""Whether a file is fetched whole or in pieces, from what is known before anything of it is fetched.

A request that spares bytes costs a round trip. Small files, and files of which nearly everything is read,
are therefore fetched with one GET; large ones are worth several connections in any case.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from delta_sharing_client.model.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from delta_sharing_client.parquet.fetch import TAIL
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec

#: Up to here a file is always fetched whole: a second request takes longer than the bytes it would spare.
WHOLE: Final = 1024 * 1024
#: Files from this size on are fetched in ranges if a filter or a limit may skip row groups.
SELECTIVE: Final = 4 * 1024 * 1024
#: Files from this size on are always fetched in ranges, over several connections; smaller ones if the load has so
#: few bytes that connections would be idle.
LARGE: Final = 12 * 1024 * 1024
#: The ranges of a file that are worth the request of its footer.
_RANGES: Final = 4
#: Bytes of a request for a range: all connections are used, but a request costs a round trip.
_LEAST_RANGE: Final = 1024 * 1024
_MOST_RANGE: Final = 8 * 1024 * 1024
#: Smaller files are fetched in ranges if at most this part of them is read.
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


class FetchEstimate(Struct, frozen=True):
    """What reading files would fetch.

    Attributes:
        bytes: bytes of files and footers, without deletion vectors.
        requests: number of requests.
        ranged_files: number of files that are fetched in ranges.
        row_groups: number of row groups of those files.
        row_groups_skipped: number of these row groups that cannot have matching rows.
    """

    bytes: int
    requests: int
    ranged_files: int
    row_groups: int
    row_groups_skipped: int


class FetchStrategy(Struct, frozen=True):
    """Whether the files of a scan are fetched whole, or by footer and then ranges.

    Attributes:
        fraction: the estimated part of each file that is read, by its columns.
        selective: whether row groups may be skipped.
        range_size: the maximum bytes of a range.
    """

    fraction: float
    selective: bool
    range_size: int = _MOST_RANGE

    @classmethod
    def of(
        cls,
        spec: ReadSpec,
        table_columns: StructType | None,
        *,
        limited: bool,
        size: int,
        connections: int,
    ) -> FetchStrategy:
        """Return the strategy of a scan.

        Args:
            spec: what is read of each file.
            table_columns: the columns of the table; None if they are unknown.
            limited: whether the scan has a limit.
            size: the total size of the files.
            connections: the maximum number of connections.
        """
        fraction = _fraction(spec, table_columns)
        range_size = min(max(int(fraction * size) // connections, _LEAST_RANGE), _MOST_RANGE)
        return cls(fraction, limited or spec.predicate is not None, range_size)

    def uses_ranges(self, task: FileScanTask) -> bool:
        """Whether to fetch a file's footer first, and then only the ranges that are read."""
        if not self.fraction:
            return task.size > 2 * TAIL  # rows are only counted: the footer is enough
        if task.size <= WHOLE:
            return False
        least = SELECTIVE if self.selective else min(max(_RANGES * self.range_size, SELECTIVE), LARGE)
        return task.size >= least or self.fraction <= FRACTION


def _fraction(spec: ReadSpec, table_columns: StructType | None) -> float:
    if table_columns is None:
        return 1.0
    stored = sum(_width(f.type) for f in table_columns.fields if f.name not in spec.partition_columns)
    read = sum(_width(f.type) for f in spec.fields if f.name not in spec.partition_columns)
    return read / stored if stored else 0.0


def _width(kind: DataType) -> int:
    """Return the estimated bytes of a value, to compare columns."""
    if isinstance(kind, PrimitiveType):
        return _WIDTHS.get(kind.name, 8)
    if isinstance(kind, StructType):
        return sum(_width(f.type) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return 3 * _width(kind.element)
    if isinstance(kind, MapType):
        return 3 * (_width(kind.key) + _width(kind.value))
    return 8
