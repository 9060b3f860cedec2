"""Rebasing of dates and timestamps from Spark's legacy calendar to the proleptic Gregorian calendar.

Spark before 3.0, and later releases on request, use Java's hybrid calendar: Julian up to 4 October 1582, Gregorian
from the next day, 15 October. A date is rebased to the day with the same year, month and day.

A timestamp keeps its wall-clock time in the writer's time zone. Java's old time zones have no history before 1900
and use the present standard offset; the rebased instant uses the true offset of that time, mostly local mean time.
`legacy_zones.txt` has the offsets with which Spark itself reads such files, because the time zones of systems
differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from delta_sharing_client.errors import UnsupportedTableError

#: Whether values are in the legacy calendar; `maybe` if the file does not have the information.
Legacy: TypeAlias = Literal["no", "yes", "maybe"]
Numbers: TypeAlias = npt.NDArray[np.int64]

_VERSION: Final = b"org.apache.spark.version"
_TIME_ZONE: Final = b"org.apache.spark.timeZone"
_ROW_METADATA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_LEGACY_TIMES: Final = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96: Final = b"org.apache.spark.legacyINT96"

_DAY: Final = 86_400
#: 1582-10-15, the first day on which both calendars are equal.
_GREGORIAN: Final = -141_427
#: 1900-01-01 UTC, the first instant at which both kinds of time zones are equal.
_HISTORY: Final = -25_567 * _DAY
#: Days from 0000-03-01 of the Julian calendar to 1970-01-01; the year begins in March, with the leap day last.
_JULIAN_MARCH: Final = 719_470
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_VERSION_TEXT = re.compile(rb"(\d{1,9})\.(\d{1,9})")
#: Offsets that Spark accepts as a time zone; Java's old time zones parse those without "GMT" as GMT.
_OFFSET_TEXT = re.compile(r"Z|(?:UTC?)?[+-]\d{1,2}(?::?\d{2}){0,2}|GMT([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)


class Zone(Struct, frozen=True):
    """A time zone before 1900.

    Attributes:
        standard: seconds east of UTC in Java's old time zones.
        first: seconds east of UTC before the first of `changes`.
        changes: instants in seconds since the epoch, each with the offset from then on.
    """

    standard: int
    first: int
    changes: tuple[tuple[int, int], ...] = ()


@cache
def _zones() -> Mapping[str, Zone]:
    from importlib import resources

    zones: dict[str, Zone] = {}
    text = resources.files(__package__).joinpath("legacy_zones.txt").read_text("ascii")
    for line in text.splitlines():
        if not line.startswith("#"):
            numbers, _, names = line.partition(": ")
            standard, first, *changes = map(int, numbers.split())
            zone = Zone(standard, first, tuple(zip(changes[::2], changes[1::2], strict=True)))
            zones.update(dict.fromkeys(names.split(), zone))
    return zones


def find_zone(name: str) -> Zone | None:
    """Return a time zone by its name in Java; None if it is unknown."""
    if match := _OFFSET_TEXT.fullmatch(name):
        sign, hours, minutes = match.groups()
        if sign is None:
            return Zone(0, 0)
        seconds = int(hours) * 3600 + int(minutes or 0) * 60
        if int(hours) > 23 or int(minutes or 0) > 59:
            return None
        offset = -seconds if sign == "-" else seconds
        return Zone(offset, offset)
    return _zones().get(name)


def gregorian_days(days: Numbers) -> Numbers:
    """Rebase days since 1970-01-01; a 29 February that the Gregorian calendar lacks becomes 1 March."""
    # The calendars differ by the leap days of centuries, constant from March to February.
    years = (4 * (days + _JULIAN_MARCH) + 3) // 1461
    shift = 2 - years // 100 + years // 400
    return np.where(days < _GREGORIAN, days + shift, days)


def gregorian_times(times: Numbers, zone: Zone, per_second: int) -> Numbers:
    """Rebase instants of the writer's time zone; `per_second` is the number of their units in a second."""
    changes = np.array([(at + to - zone.standard) * per_second for at, to in zone.changes], np.int64)
    offsets = np.array([zone.first, *(to for _, to in zone.changes)], np.int64)
    day = _DAY * per_second
    # Divided first: the sum of an instant and an offset might be too large.
    days = times // day + (times % day + zone.standard * per_second) // day
    offset = offsets[np.searchsorted(changes, times, side="right")]
    shift = (gregorian_days(days) - days) * day + (zone.standard - offset) * per_second
    return np.where(times < _HISTORY * per_second, times + shift, times)


class LegacyCalendar(Struct, frozen=True):
    """Which values of a file are in the legacy calendar.

    Attributes:
        times: dates, and timestamps of 64 bits.
        int96: timestamps of 96 bits.
        time_zone: the writer's time zone, if the file has it.
    """

    times: Legacy
    int96: Legacy
    time_zone: str | None

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes] | None) -> LegacyCalendar | None:
        """Return the calendar from the key-value metadata of a footer; None if no value is legacy.

        Spark writes its version, and since 3.0 a flag for the legacy calendar. Files with Spark's metadata but
        without a version may be of an older Spark.
        """
        known = metadata or {}
        version = known.get(_VERSION)
        number = None if version is None else _version(version)
        unknown: Legacy = "maybe" if number is None and (version is not None or _ROW_METADATA in known) else "no"
        times = "yes" if _LEGACY_TIMES in known or (number is not None and number < (3, 0)) else unknown
        int96 = "yes" if _LEGACY_INT96 in known or (number is not None and number < (3, 1)) else unknown
        if times == int96 == "no":
            return None
        zone = known.get(_TIME_ZONE)
        return cls(times, int96, None if zone is None else zone.decode("utf-8", "replace"))

    def rebase(self, column: pa.ChunkedArray, physical_types: Sequence[str], subject: str) -> pa.ChunkedArray:
        """Return a decoded column, with the physical types of its leaves, in the Gregorian calendar.

        Raises:
            UnsupportedTableError: the column has times for which the calendar or time zone matters, and the file
                lacks the information.
        """
        chunks = [self._rebase(chunk, iter(physical_types), subject) for chunk in column.chunks]
        return pa.chunked_array(chunks, column.type)

    def _rebase(self, array: pa.Array, leaves: Iterator[str], subject: str) -> pa.Array:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(kind, self._rebase(array.storage, leaves, subject))
        if not pa.types.is_nested(kind):
            return self._rebase_leaf(array, next(leaves), subject)
        if pa.types.is_struct(kind):
            if array.offset:
                array = array.take(pa.array(np.arange(len(array))))
            before = [array.field(position) for position in range(kind.num_fields)]
        elif pa.types.is_map(kind):
            before = [array.keys, array.items]
        else:
            before = [array.values]
        after = [self._rebase(child, leaves, subject) for child in before]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return array
        return _with_children(array, after)

    def _rebase_leaf(self, array: pa.Array, physical: str, subject: str) -> pa.Array:
        kind = array.type
        if pa.types.is_date32(kind):
            legacy, limit = self.times, _GREGORIAN
        elif pa.types.is_timestamp(kind) and physical == "INT96":
            legacy, limit = self.int96, _HISTORY * _PER_SECOND[kind.unit]
        elif pa.types.is_timestamp(kind) and kind.tz is not None:
            legacy, limit = self.times, _HISTORY * _PER_SECOND[kind.unit]
        else:  # timestamp_ntz, for example, which never was in the legacy calendar
            return array
        if legacy == "no" or array.null_count == len(array):
            return array
        numbers: Numbers = (
            array.view(pa.int32() if pa.types.is_date(kind) else pa.int64())
            .cast(pa.int64())
            .fill_null(0)
            .to_numpy(zero_copy_only=False)
        )
        if numbers.min() >= limit:
            return array
        if legacy == "maybe":
            raise self._unsupported(
                subject, kind, "and the file does not state whether they are in Spark's legacy calendar"
            )
        if pa.types.is_date(kind):
            return _replaced(array, gregorian_days(numbers).astype(np.int32))
        zone = None if self.time_zone is None else find_zone(self.time_zone)
        if zone is None:
            problem = (
                "the file does not state" if self.time_zone is None else f"{self.time_zone[:60]!r} is not known"
            )
            raise self._unsupported(subject, kind, f"in Spark's legacy calendar and a time zone that {problem}")
        return _replaced(array, gregorian_times(numbers, zone, _PER_SECOND[kind.unit]))

    def _unsupported(self, subject: str, kind: pa.DataType, why: str) -> UnsupportedTableError:
        before = "1582-10-15" if pa.types.is_date(kind) else "1900"
        return UnsupportedTableError(
            f"{subject} holds times from before {before}, {why}; "
            "ask the provider to rewrite the table, or leave the column out with columns=[...]"
        )


def _version(text: bytes) -> tuple[int, int] | None:
    match = _VERSION_TEXT.match(text)
    return (int(match[1]), int(match[2])) if match else None


def _replaced(array: pa.Array, numbers: npt.NDArray[Any]) -> pa.Array:
    """Return an array with other values, and the same nulls and type."""
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(numbers, mask=mask).view(array.type)


def _with_children(array: pa.Array, children: list[pa.Array]) -> pa.Array:
    """Return a nested array with other children."""
    kind = array.type
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, len(array), [array.buffers()[0]], array.null_count, 0, children)
    if pa.types.is_map(kind):
        children = [pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)
