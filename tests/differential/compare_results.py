"""Comparison of the results of two clients: the kinds of differences, as in `known_differences.py`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from plain_values import NAN, NULL, Cell, Column

#: The columns, or the text of the error that was raised.
Result = list[Column] | str

#: The kinds of errors of the other clients, by a regular expression that their text matches.
_ERRORS = (
    (r"(?s)reader\s+'?\s*'?features\s+'?\s*'?\[|Unsupported table features required", "table feature"),
    (r"Could not parse datatype: void|Unsupported Delta table type: 'void'", "void"),
    (r"Cannot cast list to non-list", "nested timestamps"),
    (r"year -?\d+ is out of range|date value out of range", "date out of range"),
    (r"Failed to parse value '.*' as 'decimal", "widened partition"),
    (r"In-commit timestamp is enabled but not found", "in-commit timestamps"),
    (r"Start and end version schemas are different", "changed schema"),
)
_NANOSECONDS = 2**64


def kinds_of_differences(ours: Result, theirs: Result, key: list[str], *, ordered: bool = True) -> set[str]:
    """Return the kinds of differences between two results; none if they are equal or if both are errors.

    Args:
        ours: the result of this package.
        theirs: the result of the other client.
        key: the columns that identify a row.
        ordered: whether the order of the rows is compared.
    """
    if isinstance(ours, str):
        return set() if isinstance(theirs, str) else {"error here only"}
    if isinstance(theirs, str):
        return {next((f"error: {kind}" for text, kind in _ERRORS if re.search(text, theirs)), theirs)}
    names = [name for name, _ in ours]
    if names != [name for name, _ in theirs]:
        return {"columns"}
    rows, rows_other = (list(zip(*[values for _, values in some], strict=True)) for some in (ours, theirs))
    places = [names.index(name) for name in key]
    keys, keys_other = ([[_key_value(row[i]) for i in places] for row in some] for some in (rows, rows_other))
    found: set[str] = set()
    if keys != keys_other:
        if sorted(map(repr, keys)) != sorted(map(repr, keys_other)):
            return {"rows"}
        if ordered:
            found.add("row order")
        rows, rows_other = _sorted(rows, keys), _sorted(rows_other, keys_other)
    for row, row_other in zip(rows, rows_other, strict=True):
        for value, value_other in zip(row, row_other, strict=True):
            if value != value_other:
                found |= _kinds(value, value_other)
    return found


def _sorted(rows: list[Any], keys: list[Any]) -> list[Any]:
    return [row for _, row in sorted(zip(map(repr, keys), rows, strict=True), key=lambda pair: pair[0])]


def _key_value(cell: Cell) -> object:
    """Return the value of a key column without its type, which may differ."""
    if cell in (NULL, NAN):
        return None
    return Decimal(float.fromhex(cell[1])) if cell[0] == "float" else cell[1]


def _kinds(ours: Cell, theirs: Cell) -> set[str]:
    """Return the kinds of differences between two unequal values."""
    mine, other = ours[0], theirs[0]
    if mine == "int" and other == "float":
        return {"integers as floats" if float.fromhex(theirs[1]) == ours[1] else "integers rounded"}
    if ours == NULL and theirs == NAN:
        return {"null as NaN"}
    if mine == "int" and other == "time" and ours[1] // 1000 == theirs[1] // 1_000_000:
        exact = ours[1] * 1000 == theirs[1]
        return (
            {"commit timestamps as timestamps"}
            if exact
            else {"commit timestamps as timestamps", "commit timestamps truncated"}
        )
    if mine == "time" and other == "int":
        return {"timestamps as integers"}
    if mine == other == "time":
        found = {"timestamps without time zone"} if ours[2] != theirs[2] else set()
        # An overflow changes the value by a multiple of 2**64 nanoseconds; rounding, by up to a microsecond.
        error = abs((ours[1] - theirs[1]) * 1000 + _NANOSECONDS // 2) % _NANOSECONDS - _NANOSECONDS // 2
        if ours[1] != theirs[1]:
            found.add("timestamp overflow" if abs(error) < 1000 else "different timestamps")
        return found
    if mine == other == "list" and len(ours) == len(theirs):
        return _kinds_of_pairs(list(zip(ours[1:], theirs[1:], strict=True)))
    if mine == other == "pair":
        return _kinds_of_pairs(list(zip(ours[1:], theirs[1:], strict=True)))
    if mine == other == "struct":
        fields, fields_other = dict(ours[1:]), dict(theirs[1:])
        if fields.keys() == fields_other.keys():
            return _kinds_of_pairs([(value, fields_other[name]) for name, value in fields.items()])
        missing = fields.keys() - fields_other.keys()
        if fields_other.keys() < fields.keys() and all(fields[name] == NULL for name in missing):
            return {"missing struct fields"} | _kinds_of_pairs(
                [(fields[name], value) for name, value in fields_other.items()]
            )
    return {f"{mine} is {other}" if mine != other else f"different {mine}s"}


def _kinds_of_pairs(pairs: list[tuple[Cell, Cell]]) -> set[str]:
    return set().union(*(_kinds(*pair) for pair in pairs if pair[0] != pair[1]))
