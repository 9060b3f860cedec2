"""How two answers differ: a set of kinds, each of which `known_differences.py` explains."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from plain_values import NAN, NULL, Cell, Column

#: An answer: its columns, or what went wrong.
Answer = list[Column] | str

#: What errors of the other clients, and of servers in answer to them, are about.
_FAILURES = (
    (r"(?s)reader\s+'?\s*'?features\s+'?\s*'?\[|Unsupported table features required", "feature"),
    (r"Could not parse datatype: void|Unsupported Delta table type: 'void'", "void"),
    (r"Cannot cast list to non-list", "nested times"),
    (r"year -?\d+ is out of range|date value out of range", "beyond Python"),
    (r"Failed to parse value '.*' as 'decimal", "widened partition"),
    (r"In-commit timestamp is enabled but not found", "in-commit timestamps"),
    (r"Start and end version schemas are different", "changed schema"),
)
_NANOSECONDS = 2**64


def kinds_of(ours: Answer, theirs: Answer, key: list[str], *, ordered: bool = True) -> set[str]:
    """The kinds of differences between two answers; empty where they agree, as when both refuse.

    Args:
        ours: our answer.
        theirs: the other client's.
        key: the columns that tell the rows apart.
        ordered: whether the order of the rows counts.
    """
    if isinstance(ours, str):
        return set() if isinstance(theirs, str) else {"only we refuse"}
    if isinstance(theirs, str):
        return {next((f"fails: {what}" for text, what in _FAILURES if re.search(text, theirs)), theirs)}
    names = [name for name, _ in ours]
    if names != [name for name, _ in theirs]:
        return {"columns"}
    rows, rows_other = (list(zip(*[values for _, values in some], strict=True)) for some in (ours, theirs))
    places = [names.index(name) for name in key]
    keys, keys_other = ([[_bare(row[i]) for i in places] for row in some] for some in (rows, rows_other))
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


def _bare(cell: Cell) -> object:
    """A key's value without its kind, which may differ."""
    if cell in (NULL, NAN):
        return None
    return Decimal(float.fromhex(cell[1])) if cell[0] == "float" else cell[1]


def _kinds(ours: Cell, theirs: Cell) -> set[str]:
    """The kinds of differences between two values that are not equal."""
    mine, other = ours[0], theirs[0]
    if mine == "int" and other == "float":
        return {"integers as floats" if float.fromhex(theirs[1]) == ours[1] else "integers rounded"}
    if ours == NULL and theirs == NAN:
        return {"null as NaN"}
    if mine == "int" and other == "time" and ours[1] // 1000 == theirs[1] // 1_000_000:
        whole = ours[1] * 1000 == theirs[1]
        return {"commit times as timestamps"} if whole else {"commit times as timestamps", "commit times cut"}
    if mine == "time" and other == "int":
        return {"times as integers"}
    if mine == other == "time":
        found = {"times without zone"} if ours[2] != theirs[2] else set()
        # Off by what 64 bits of nanoseconds hold; a microsecond more or less, as it was rounded.
        off = abs((ours[1] - theirs[1]) * 1000 + _NANOSECONDS // 2) % _NANOSECONDS - _NANOSECONDS // 2
        if ours[1] != theirs[1]:
            found.add("times wrapped" if abs(off) < 1000 else "other times")
        return found
    if mine == other == "list" and len(ours) == len(theirs):
        return _all(list(zip(ours[1:], theirs[1:], strict=True)))
    if mine == other == "pair":
        return _all(list(zip(ours[1:], theirs[1:], strict=True)))
    if mine == other == "struct":
        fields, fields_other = dict(ours[1:]), dict(theirs[1:])
        if fields.keys() == fields_other.keys():
            return _all([(value, fields_other[name]) for name, value in fields.items()])
        missing = fields.keys() - fields_other.keys()
        if fields_other.keys() < fields.keys() and all(fields[name] == NULL for name in missing):
            return {"struct fields"} | _all([(fields[name], value) for name, value in fields_other.items()])
    return {f"{mine} is {other}" if mine != other else f"other {mine}s"}


def _all(pairs: list[tuple[Cell, Cell]]) -> set[str]:
    return set().union(*(_kinds(*pair) for pair in pairs if pair[0] != pair[1]))
