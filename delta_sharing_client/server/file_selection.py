"""Data skipping by partition values (`jsonPredicateHints`) and by row counts (`limitHint`).

Both are best effort ("Read Data from a Table"). Predicates on other columns skip no file. `predicateHints` are
ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import accumulate, takewhile
from math import isnan
from operator import ge, gt, le, lt
from typing import Any, Final, TypeAlias

from delta_sharing_client.log import AddFile, Snapshot
from delta_sharing_client.model.partition_values import MISSING, PartitionValues, partition_text

#: Whether a predicate may be true, and whether it may be false, in the rows of a file; neither if it is NULL.
_Truth: TypeAlias = tuple[bool, bool]
#: The physical and logical names of partition columns, by the logical names in lower case.
_Keys: TypeAlias = Mapping[str, tuple[str, str]]

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "equal": lambda left, right: left <= right <= left,  # an error where the types do not compare
    "lessThan": lt,
    "lessThanOrEqual": le,
    "greaterThan": gt,
    "greaterThanOrEqual": ge,
}


def select_files(
    snapshot: Snapshot, json_hints: str | None, limit: int | None, *, count_deleted: bool = False
) -> Sequence[AddFile]:
    """Return the files that may match a query's `jsonPredicateHints`, up to its `limitHint` of rows.

    Args:
        snapshot: the table.
        json_hints: the `jsonPredicateHints`, if any.
        limit: the `limitHint`, if any.
        count_deleted: count the rows that deletion vectors delete, too.
    """
    files: Sequence[AddFile] = snapshot.files
    if json_hints is not None:
        try:
            tree = json.loads(json_hints)
            keys = _partition_keys(snapshot)
            files = [add for add in files if _evaluate(tree, add.partition_values, keys)[0]]
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            # "If the server encounters any errors during predicate processing, it will skip filtering."
            files = snapshot.files
    return files if limit is None else _first_rows(files, limit, count_deleted=count_deleted)


def _partition_keys(snapshot: Snapshot) -> _Keys:
    partitions = {name.lower() for name in snapshot.metadata.partition_columns}
    fields = [
        field for field in json.loads(snapshot.schema_string)["fields"] if field["name"].lower() in partitions
    ]
    physical = "delta.columnMapping.physicalName"
    named = ((field["name"], field["metadata"].get(physical) or field["name"]) for field in fields)
    return {logical.lower(): (name, logical) for logical, name in named}


def _evaluate(node: Mapping[str, Any], values: PartitionValues, keys: _Keys) -> _Truth:
    op, children = node["op"], node["children"]
    if op in ("and", "or", "not"):
        trues, falses = zip(*(_evaluate(child, values, keys) for child in children), strict=True)
        if op == "not":
            (true,), (false,) = trues, falses
            return false, true
        return (all(trues), any(falses)) if op == "and" else (any(trues), all(falses))
    operands = [_operand(child, values, keys) for child in children]
    if any(value is _UNKNOWN for value in operands):
        return True, True
    if op == "isNull":
        (value,) = operands
        return value is None, value is not None
    compare = _COMPARISONS[op]
    left, right = operands
    if left is None or right is None:
        return False, False
    result = compare(left, right)
    return result, not result


def _operand(node: Mapping[str, Any], values: PartitionValues, keys: _Keys) -> Any:
    """Return the value of a column or a literal; None is NULL."""
    if node["op"] == "column":
        names = keys.get(node["name"].lower())
        found = MISSING if names is None else partition_text(values, *names)
        if found is MISSING:
            return _UNKNOWN
        text = found or None
    elif node["op"] == "literal":
        text = None if node["value"] is None else str(node["value"])
    else:
        raise ValueError("neither a column nor a literal")
    parse = _PARSERS[node["valueType"].lower()]
    return None if text is None else parse(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _double(text: str) -> Any:
    value = float(text)
    return _UNKNOWN if isnan(value) else value  # NaN has no place in Python's order


def _timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


_UNKNOWN: Final = object()
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "bool": _boolean,
    "boolean": _boolean,
    "int": int,
    "long": int,
    "string": str,
    "date": date.fromisoformat,
    "double": _double,
    "timestamp": _timestamp,
    "float": lambda _: _UNKNOWN,  # the text of a 32-bit float is not its value
}


def _first_rows(files: Sequence[AddFile], limit: int, *, count_deleted: bool) -> Sequence[AddFile]:
    """Return the first files with at least `limit` rows; a file without a row count has none."""
    rows_before = accumulate((_row_count(add, count_deleted=count_deleted) for add in files), initial=0)
    return [add for add, _ in takewhile(lambda pair: pair[1] < limit, zip(files, rows_before, strict=False))]


def _row_count(add: AddFile, *, count_deleted: bool) -> int:
    try:
        rows = json.loads(add.stats or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return 0
    if not isinstance(rows, int):
        return 0
    return max(0, rows if count_deleted or add.deletion_vector is None else rows - add.deletion_vector.cardinality)
