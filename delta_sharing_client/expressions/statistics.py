"""Per-file statistics: column bounds, with row counts.

Statistics may be missing, truncated, rounded or loose (see `bound_values`), and bounds ignore NaN. Files are
skipped by them, but rows are always filtered. Serves "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from delta_sharing_client.expressions.bound_values import parse_bound
from delta_sharing_client.expressions.column_bounds import ColumnBounds
from delta_sharing_client.expressions.predicates import is_float
from delta_sharing_client.expressions.record_counts import MOST_ROWS, checked_count, parse_object
from delta_sharing_client.model.partition_values import INTEGER_BITS
from delta_sharing_client.model.schema import DataType, DecimalType, PrimitiveType, StructType

_REJECTED: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_RecordCount: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_ROWS)]


class Stats(Struct, frozen=True):
    """The statistics of one file.

    Attributes:
        num_records: rows of the file, deleted ones included; None if unknown.
        lower, upper: bounds by column name, as JSON values.
        null_count: numbers of nulls by column name.
    """

    num_records: int | None
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]
    null_count: Mapping[str, Any]

    def bounds(self, name: str, data_type: DataType) -> ColumnBounds | None:
        """Return the bounds of a column; None if unknown.

        Args:
            name: the column's name in the statistics (physical under column mapping).
            data_type: its type in the table's schema.
        """
        nulls = self.null_count.get(name)
        nulls = nulls if isinstance(nulls, int) and not isinstance(nulls, bool) else None
        # With loose bounds, only null counts of 0 and of all rows are reliable.
        if nulls is not None and nulls == self.num_records:
            return ColumnBounds(has_value=False)
        lower: Any = parse_bound(self.lower.get(name), data_type, upper=False)
        upper: Any = parse_bound(self.upper.get(name), data_type, upper=True)
        if lower is not None and upper is not None and lower > upper:
            lower = upper = None
        if nulls is None and lower is None and upper is None:
            return None
        return ColumnBounds(lower, upper, has_null=nulls != 0, may_be_nan=is_float(data_type))


def parse_stats(text: str | None) -> Stats | None:
    """Decode the `stats` of a file; return None if they are missing or malformed."""
    item = parse_object(text)
    if item is None:
        return None
    parts = [item.get(key) for key in ("minValues", "maxValues", "nullCount")]
    lower, upper, nulls = (part if isinstance(part, dict) else {} for part in parts)
    return Stats(checked_count(item.get("numRecords")), lower, upper, nulls)


class BlockStats:
    """The statistics of some columns of the files of a block.

    Attributes:
        record_counts: the rows of each file; None if unknown.
        irregular: the statistics of files that the typed decoder rejects, by position; for the other methods these
            files have none.
    """

    def __init__(self, rows: Sequence[Any], keys: Mapping[str, str], irregular: Mapping[int, Stats]) -> None:
        self.record_counts: list[int | None] = list(map(attrgetter("numRecords"), rows))
        for position, item in irregular.items():
            self.record_counts[position] = item.num_records
        parts = ("minValues", "maxValues", "nullCount")
        self._lower, self._upper, self._nulls = (list(map(attrgetter(part), rows)) for part in parts)
        self._rows = rows
        self._keys = keys
        self.irregular = irregular

    def take(self, positions: Sequence[int]) -> BlockStats:
        """Return the statistics of the files at some positions."""
        irregular = {n: self.irregular[old] for n, old in enumerate(positions) if old in self.irregular}
        return BlockStats([self._rows[position] for position in positions], self._keys, irregular)

    def __len__(self) -> int:
        return len(self._nulls)

    def lower(self, name: str) -> list[Any]:
        """Return the lower bounds of a column that `has_bounds`, one per file; None if unknown."""
        return list(map(attrgetter(self._keys[name]), self._lower))

    def upper(self, name: str) -> list[Any]:
        """Return the upper bounds of a column that `has_bounds`, one per file; None if unknown."""
        return list(map(attrgetter(self._keys[name]), self._upper))

    def null_counts(self, name: str) -> list[Any]:
        """Return the numbers of a column's nulls, one per file; None or the object of a struct if unknown."""
        return list(map(attrgetter(self._keys[name]), self._nulls))


class StatsDecoder:
    """Decodes the statistics of some columns, in blocks of files.

    A decoder that is compiled for the columns' types skips all others. It rejects what a writer of that type does
    not write; `parse_stats` decodes such statistics.

    Args:
        columns: the types of the columns, by their names in the statistics.
    """

    def __init__(self, columns: Mapping[str, DataType]) -> None:
        self._keys = {name: f"c{number}" for number, name in enumerate(columns)}
        bounds = {name: _json_type(kind) for name, kind in columns.items() if has_bounds(kind)}
        # The null count of a struct is an object of its fields' counts.
        counts: dict[str, Any] = {
            name: int | dict[str, Any] | None if isinstance(kind, StructType) else int | None
            for name, kind in columns.items()
        }
        parts = {"minValues": bounds, "maxValues": bounds, "nullCount": counts}
        self._decode: Callable[[Any], Any] | None = None
        try:
            whole = self._statistics(parts, renamed=True)
            self._decode = msgspec.json.Decoder(whole).decode
        except ValueError:  # a name with a quote or the like
            whole = self._statistics(parts, renamed=False)
        self._none = whole()

    def __call__(self, texts: Sequence[str | None]) -> BlockStats:
        """Return the statistics of files; those that are missing or malformed are unknown."""
        irregular: dict[int, Stats] = {}
        if self._decode is not None and None not in texts:
            try:
                return BlockStats(list(map(self._decode, texts)), self._keys, irregular)
            except _REJECTED:
                pass
        rows: list[Any] = []
        for position, text in enumerate(texts):
            row = self._row(text)
            if row is None and (stats := parse_stats(text)) is not None:
                irregular[position] = stats
            rows.append(row or self._none)
        return BlockStats(rows, self._keys, irregular)

    def _row(self, text: str | None) -> Any:
        """Return the decoded statistics; None if the typed decoder rejects them."""
        try:
            return None if text is None or self._decode is None else self._decode(text)
        except _REJECTED:
            return None

    def _statistics(self, parts: Mapping[str, Mapping[str, Any]], *, renamed: bool) -> Any:
        names = {key: name for name, key in self._keys.items()} if renamed else None
        fields: list[tuple[str, Any, Any]] = [("numRecords", _RecordCount | None, None)]
        for part, types in parts.items():
            columns = [(self._keys[name], kind, None) for name, kind in types.items()]
            kind = msgspec.defstruct("Columns", columns, rename=names, gc=False, frozen=True)
            fields.append((part, kind, kind()))
        return msgspec.defstruct("Statistics", fields, gc=False)


def has_bounds(data_type: DataType) -> bool:
    """Whether the bounds of columns of a type are used."""
    return _json_type(data_type) is not None


def _json_type(data_type: DataType) -> Any:
    """Return the type of a column's bounds in JSON; None if they are not used."""
    if isinstance(data_type, DecimalType):
        return Decimal | None
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in INTEGER_BITS:
        return int | None
    if name in ("float", "double"):
        return float | str | None
    return str | None if name in ("string", "date", "timestamp", "timestamp_ntz") else None
