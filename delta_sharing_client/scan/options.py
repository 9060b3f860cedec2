"""`ScanOptions`: what to read of a table's snapshot; validated once and passed whole down to the request."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, SupportsIndex, TypeAlias, TypeVar

from delta_sharing_client.errors import BadRequestError, FilterError
from delta_sharing_client.expressions.filters import Filters, freeze_filters
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.names import Table
from delta_sharing_client.parquet.tasks import VariantForm, check_variant
from delta_sharing_client.wire.requests import (
    QueryRequest,
    RequestedFormat,
    Timestamp,
    check_version,
    formats_for,
    wire_timestamp,
)

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient

T = TypeVar("T")
#: What to do about a time after the last commit.
OnFuture: TypeAlias = Literal["raise", "latest"]
#: A time before every commit.
_FIRST_TIME: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options that scans and changes share.

    Attributes:
        columns: names of the table's columns to return, in that order, whatever their case; all of them without,
            none for an empty list. Held as a tuple.
        response_format: ``auto`` takes what the server prefers; ``delta`` or ``parquet`` force one.
        variant: ``struct`` reads a variant as a struct of its two binaries, ``json`` as the text of its JSON.
        on_future: ``raise`` an error for a time after the last commit, or read the ``latest`` version. A range of
            changes is empty then, if it starts after the last commit, and ends there if it ends later.

    Raises:
        ValueError: an option is out of range.
        TypeError: an option is of the wrong type.
    """

    columns: Iterable[str] | None = None
    response_format: RequestedFormat = "auto"
    variant: VariantForm = "struct"
    on_future: OnFuture = "raise"

    def __post_init__(self) -> None:
        if self.on_future not in ("raise", "latest"):
            raise ValueError(f"on_future is {self.on_future!r}; it takes 'raise' or 'latest'")
        self._set(columns=column_names(self.columns), variant=check_variant(self.variant))
        formats_for(self.response_format)

    def _set(self, **values: Any) -> None:
        """Set fields to their validated form; for `__post_init__` alone."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def formats(self) -> tuple[ResponseFormat, ...]:
        """The response formats accepted, best first."""
        return formats_for(self.response_format)

    def replace(self, **changes: Any) -> Self:
        """Return these options with some of them changed.

        Raises:
            TypeError: there is no option of such a name.
        """
        names = [item.name for item in fields(self)]
        if unknown := sorted(changes.keys() - set(names)):
            raise TypeError(f"there is no option {', '.join(unknown)}; there are {', '.join(names)}")
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class ScanOptions(ReadOptions):
    """What to read of a table's snapshot.

    Attributes:
        filters: rows to return, as `pandas.read_parquet` takes them, or SQL text. Held as tuples.
        limit: rows to return at the most.
        version, timestamp: the snapshot to read; at most one of them, the latest without.
        json_predicate_hints: a JSON predicate for the server alone; it skips files and filters no rows.
    """

    filters: Filters | None = None
    limit: int | None = None
    version: int | None = None
    timestamp: Timestamp | None = None
    json_predicate_hints: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version is not None and self.timestamp is not None:
            raise ValueError("version and timestamp cannot be given together")
        _check_json_hints(self.json_predicate_hints)
        self._set(
            filters=freeze_filters(self.filters),
            limit=_check_limit(self.limit),
            version=check_version(self.version, "version"),
            timestamp=wire_timestamp(self.timestamp),
        )

    def facts(self) -> dict[str, object]:
        """Return the options for people, by their names."""
        columns = None if self.columns is None else ", ".join(self.columns) or "(none)"
        of_rows = {"filters": self.filters, "limit": self.limit}
        return {"columns": columns, **of_rows, "version": self.version, "timestamp": self.timestamp}

    def request(self) -> QueryRequest:
        """Return the request for the files of the snapshot, without the hints that the filters give."""
        return QueryRequest(
            formats=self.formats,
            version=self.version,
            timestamp=self.timestamp,
            json_predicate_hints=self.json_predicate_hints,
        )


def column_names(columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the columns that a caller asks for; None for all of them.

    Raises:
        TypeError: it is one text, or a set, which has no order.
    """
    if isinstance(columns, str | bytes):
        raise TypeError(f"columns takes a list of names; for one column write [{columns!r}]")
    if isinstance(columns, Set):
        raise TypeError("columns takes a list of names: a set has no order")
    return None if columns is None else tuple(columns)


def _check_json_hints(hints: str | None) -> None:
    if hints is None:
        return
    if not isinstance(hints, str):
        raise TypeError(f"jsonPredicateHints takes JSON text, not {type(hints).__name__}")
    try:
        reason = "" if isinstance(json.loads(hints), dict) else ": it is another JSON value"
    except (ValueError, RecursionError) as error:
        reason = f": {error}"
    if reason:
        raise FilterError(f'jsonPredicateHints is not a JSON object, such as {{"op": ...}}{reason}')


def _check_limit(limit: int | None) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, SupportsIndex):
        raise TypeError(f"limit is an int, not {type(limit).__name__}")
    number = limit.__index__()
    if number < 0:
        raise ValueError(f"limit is {number}; it takes 0 or more rows")
    return min(number, 2**63 - 1)


def with_future_as_latest(
    rest: RestClient, table: Table, options: ScanOptions, run: Callable[[ScanOptions], T]
) -> T:
    """Return what a function returns for the options; with the latest version for a time after its commit.

    Raises:
        BadRequestError: the server refuses the time, and `on_future` is ``raise`` or the time is not after the
            last commit.
    """
    try:
        return run(options)
    except BadRequestError:
        if options.timestamp is None or options.on_future != "latest":
            raise
        version = latest_before(rest, table, options.timestamp)
        if version is None:
            raise
    return run(options.replace(version=version, timestamp=None))


def latest_before(rest: RestClient, table: Table, time: Timestamp) -> int | None:
    """Return the latest version if its commit is before a time; None if not, or if the server cannot tell."""
    latest = rest.table_version(table)
    try:
        rest.table_version(table, time)
    except BadRequestError:
        with contextlib.suppress(BadRequestError):  # a server without history refuses every time
            rest.table_version(table, _FIRST_TIME)
            return latest
    return None
