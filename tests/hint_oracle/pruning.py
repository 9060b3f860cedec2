"""Data skipping by predicate hints ("Read Data from a Table"), as a server may do it.

It reads both notations, and evaluates them on partition values and statistics. Tests check the client's hints with
it. A hint that cannot be parsed or evaluated leaves everything in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, partial
from typing import Any, Final

from hint_oracle.notations import parse_json_hint, parse_sql_hint
from hint_oracle.predicates import (
    ANYTHING,
    NULL,
    Column,
    Kind,
    Predicate,
    PredicateError,
    Range,
    may_match,
    parse_value,
)

from delta_sharing_client.log import AddFile, Snapshot

_KIND_OF_TYPE: Final[dict[str, Kind]] = {
    "byte": "long",
    "short": "long",
    "integer": "long",
    "long": "long",
    "double": "double",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
    "boolean": "bool",
}

_STATS_KINDS: Final = ("long", "double", "string", "date", "timestamp")
_CUT_TIME: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = timedelta(microseconds=2**63 // 1000)
_TIME_LIMITS: Final = (
    *(limit.replace(tzinfo=UTC) for limit in (datetime.min, datetime.max)),
    *(_EPOCH + limit for limit in (_NANOSECONDS, -_NANOSECONDS)),
)
_CUT_TEXT: Final = 32
#: Characters that may replace an unpaired surrogate.
_HALVES: Final = re.compile("[\ud800-\U0010ffff]")
_FLOAT_MOST: Final = 3.4e38


@dataclass(frozen=True, kw_only=True)
class _Field:
    physical_name: str
    kind: Kind | None
    is_partition: bool


class _Fields:
    """The top-level columns of a table that predicates can be about."""

    def __init__(self, snapshot: Snapshot) -> None:
        partitions = {name.lower() for name in snapshot.metadata.partition_columns}
        protocol = snapshot.protocol
        features = {feature.lower() for feature in protocol.reader_features or ()}
        mode = snapshot.metadata.configuration.get("delta.columnMapping.mode", "none").lower()
        # The property alone maps nothing: some writers set it without the table feature.
        mapped = mode != "none" and (protocol.min_reader_version == 2 or "columnmapping" in features)
        self._fields: dict[str, _Field] = {}
        for field in json.loads(snapshot.schema_string)["fields"]:
            name, data_type = field["name"], field["type"]
            physical = field.get("metadata", {}).get("delta.columnMapping.physicalName", name) if mapped else name
            kind = _KIND_OF_TYPE.get(data_type) if isinstance(data_type, str) else None
            if kind is None and isinstance(data_type, str) and data_type.startswith("decimal"):
                kind = "decimal"
            self._fields[name.lower()] = _Field(
                physical_name=physical, kind=kind, is_partition=name.lower() in partitions
            )

    def find(self, name: str) -> _Field:
        field = self._fields.get(name.lower())
        if field is None:
            raise PredicateError("there is no such column")
        return field

    def kind_of(self, name: str) -> Kind:
        kind = self.find(name).kind
        if kind is None:
            raise PredicateError("columns of this type cannot be compared")
        return kind


class _FileValues:
    """What the columns of one file may hold."""

    def __init__(self, add: AddFile, fields: _Fields) -> None:
        self._add = add
        self._fields = fields

    def range(self, column: Column) -> Range:
        """Return what a column may hold, cast as the predicate wants it.

        Raises:
            PredicateError: there is no such column, or its partition value cannot be cast.
        """
        field = self._fields.find(column.name)
        # A type that has no kind (a 32-bit float, whose text is not its value; a struct) decides nothing.
        if field.kind is None:
            return ANYTHING
        kind = column.kind or field.kind
        if field.is_partition:
            text = self._add.partition_values.get(field.physical_name)
            if not text:
                return NULL
            try:
                value = parse_value(text, kind)
            except PredicateError:
                if text.lower() == "nan":
                    return ANYTHING
                raise
            return Range(low=value, high=value, exact=True, may_be_null=False)
        return self._from_stats(field, kind)

    def _from_stats(self, field: _Field, kind: Kind) -> Range:
        stats = self._stats
        nulls, rows = _leaf(stats, "nullCount", field.physical_name), stats.get("numRecords")
        nulls_known = isinstance(nulls, int)
        may_be_value = not (nulls_known and isinstance(rows, int) and nulls == rows)
        # With loose bounds only the two extremes of a null count are reliable.
        may_be_null = not nulls_known or nulls != 0
        low = high = None
        if kind == field.kind and kind in _STATS_KINDS:
            low = _bound(_leaf(stats, "minValues", field.physical_name), kind, upper=False)
            high = _bound(_leaf(stats, "maxValues", field.physical_name), kind, upper=True)
        return Range(low=low, high=high, may_be_null=may_be_null, may_be_value=may_be_value)

    @cached_property
    def _stats(self) -> dict[str, Any]:
        try:
            stats = json.loads(self._add.stats or "{}")
        except (ValueError, RecursionError):
            return {}
        return stats if isinstance(stats, dict) else {}


def _leaf(stats: dict[str, Any], group: str, name: str) -> Any:
    values = stats.get(group)
    return values.get(name) if isinstance(values, dict) else None


def _bound(value: Any, kind: Kind, *, upper: bool) -> Any:
    """A bound of the statistics, moved outwards where writers cut or round; None where it cannot be trusted."""
    in_text = kind in ("string", "date", "timestamp")
    if isinstance(value, bool) or not isinstance(value, str if in_text else int | float):
        return None
    try:
        found = parse_value(str(value), kind)
    except PredicateError:
        return None
    if kind == "string":
        return _text_bound(found, upper=upper)
    if kind == "date":
        return None if found in (date.min, date.max) else found
    if kind == "timestamp":
        return _time_bound(found, upper=upper)
    if kind == "double":
        # Statistics don't see NaN, which is greater than any number, and may have been rounded to 32 bits.
        slack = abs(found) * 2.0**-23 + 2.0**-149
        return None if upper or abs(found) > _FLOAT_MOST else found - slack
    # Long integers may have gone through a double.
    slack = abs(found) >> 46
    return found + slack if upper else found - slack


def _text_bound(value: str, *, upper: bool) -> str | None:
    """A text of 32 bytes may have been cut, even inside a character."""
    try:
        if len(value.encode()) < _CUT_TEXT:
            return value
    except UnicodeEncodeError:
        pass
    half = _HALVES.search(value)
    return None if upper else value[: half.start()] if half else value


def _time_bound(value: datetime, *, upper: bool) -> datetime | None:
    """Times are cut to milliseconds; the first and the last stand for those that are out of range."""
    if any(abs(value - limit) < timedelta(seconds=1) for limit in _TIME_LIMITS):
        return None
    if upper:
        return value + _CUT_TIME
    return value if value > _EPOCH else value - _CUT_TIME


def prune(snapshot: Snapshot, *, json_hints: str | None, sql_hints: Sequence[str]) -> Sequence[AddFile]:
    """Return the files that may hold rows for which all the hints are true.

    Args:
        snapshot: the snapshot.
        json_hints: the `jsonPredicateHints` of a query.
        sql_hints: its `predicateHints`.
    """
    files: Sequence[AddFile] = snapshot.files
    if json_hints is None and not sql_hints:
        return files
    fields = _Fields(snapshot)
    parsers: list[Callable[[], Predicate]] = []
    if json_hints is not None:
        parsers.append(partial(parse_json_hint, json_hints))
    parsers += [partial(parse_sql_hint, hint, fields.kind_of) for hint in sql_hints]
    predicates: list[Predicate] = []
    for parse in parsers:
        try:
            predicates.append(parse())
        except PredicateError:
            continue
    for predicate in predicates:
        try:
            files = [add for add in files if may_match(predicate, _FileValues(add, fields).range)]
        except (PredicateError, TypeError):
            # "If the server encounters any errors during predicate processing, it will skip filtering."
            continue
    return files
