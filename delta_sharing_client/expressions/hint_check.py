"""Check of a caller's `jsonPredicateHints` against the table ("JSON predicates for Filtering").

A server ignores a hint that it cannot evaluate, and does not report it. The hint is sent as it is; a warning
states what is wrong with it. Where the protocol leaves something open, the rule is that of the reference server:
names and value types are compared with their case, both sides of a comparison have one value type, null is no
literal, and a column of booleans is a condition.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

from delta_sharing_client.messages import warn
from delta_sharing_client.model.partition_values import parse_partition_value
from delta_sharing_client.model.schema import DataType, PrimitiveType, StructType

_COMPARISONS: Final = ("equal", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")
#: The smallest and the greatest number of operands.
_OPERANDS: Final = {
    "and": (2, None),
    "or": (2, None),
    "not": (1, 1),
    "isNull": (1, 1),
    **dict.fromkeys(_COMPARISONS, (2, 2)),
}
#: By value type: the types of columns that it fits, of which the last one has its literals.
_COLUMN_TYPES: Final = {
    "bool": ("boolean",),
    "int": ("byte", "short", "long", "integer"),
    "long": ("byte", "short", "integer", "long"),
    "string": ("string",),
    "date": ("date",),
    "float": ("double", "float"),
    "double": ("float", "double"),
    "timestamp": ("timestamp",),
}
#: The notations of literals that all servers parse; partition values have more of them.
_NOTATIONS: Final = {
    "bool": re.compile(r"true|false", re.IGNORECASE),
    "int": (_INTEGER := re.compile(r"[+-]?[0-9]+")),
    "long": _INTEGER,
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "float": (_NUMBER := re.compile(r"\S+")),
    "double": _NUMBER,
    "timestamp": re.compile(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})",
        re.IGNORECASE,
    ),
}
_FORMS: Final = {"date": " (yyyy-mm-dd)", "timestamp": " (as in 2022-01-01T00:00:00Z)"}
_PACKAGE: Final = __name__.partition(".")[0]


class PredicateHintWarning(UserWarning):
    """Warning that `jsonPredicateHints` are malformed or do not fit the table, so that servers ignore them."""


class _HintError(Exception):
    """What is wrong with a hint."""


def warn_about_hint(text: str | None, schema: StructType, subject: str) -> None:
    """Warn if a caller's hint has an unknown operator, value type or column, or a value that does not fit.

    Args:
        text: the hint, a JSON object; None without.
        schema: the table's schema.
        subject: the table, for the message.

    Warns:
        PredicateHintWarning: servers ignore the hint. The warning is that of the caller outside this package.
    """
    if text is None:
        return
    try:
        _check_condition(json.loads(text), schema)
    except _HintError as error:
        warn(
            f"{subject}: jsonPredicateHints {error}; the server may ignore the hint, which filters no rows in any "
            "case: use filters= to filter rows",
            PredicateHintWarning,
            stacklevel=_frames_of_package() + 1,
        )
    except RecursionError:
        pass  # nobody writes such a hint by hand


def _frames_of_package() -> int:
    """Return the number of frames of this package from its caller on."""
    frame, count = sys._getframe(1), 0
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        frame, count = frame.f_back, count + 1
    return count


def _check_condition(node: Any, schema: StructType) -> None:
    op = _operator(node)
    if op == "column" and _check_operand(node, schema) == "bool":
        return
    if not isinstance(op, str) or op not in _OPERANDS:
        raise _HintError(f"have the unknown operator {_shown(op)}; there are {', '.join(_OPERANDS)}")
    least, most = _OPERANDS[op]
    children = node.get("children")
    if not isinstance(children, list) or len(children) < least or (most is not None and len(children) > most):
        count = f"{least} or more" if most is None else str(most)
        raise _HintError(f"have the operator {op!r} with other children than a list of {count}")
    if op in ("and", "or", "not"):
        for child in children:
            _check_condition(child, schema)
        return
    types = {_check_operand(child, schema) for child in children}
    if len(types) > 1:
        raise _HintError(f"compare values of the types {' and '.join(sorted(types))}; both sides need the same")
    if all(child["op"] == "literal" for child in children):
        raise _HintError(f"have the operator {op!r} without a column")


def _check_operand(node: Any, schema: StructType) -> str:
    """Check a column or a literal; return its value type."""
    op = _operator(node)
    if op not in ("column", "literal"):
        raise _HintError(f"have the operand {_shown(op)}; an operand is a column or a literal")
    kind = node.get("valueType")
    if not isinstance(kind, str) or kind not in _COLUMN_TYPES:
        raise _HintError(f"have the unknown valueType {_shown(kind)}; there are {', '.join(_COLUMN_TYPES)}")
    if op == "column":
        _check_column(node.get("name"), kind, schema)
    else:
        _check_literal(node.get("value"), kind)
    return kind


def _check_column(name: Any, kind: str, schema: StructType) -> None:
    column = schema.find(name) if isinstance(name, str) else None
    if column is None:
        hint = f"; {schema.suggestion([name])}" if isinstance(name, str) else ""
        raise _HintError(f"name the column {_shown(name)}, which the table does not have{hint}")
    if column.name != name:
        raise _HintError(
            f"name the column {name!r}, which is {column.name!r} in the table: servers compare the case"
        )
    if _type_name(column.type) not in _COLUMN_TYPES[kind]:
        raise _HintError(f"give the column {column.name!r} the valueType {kind!r}, and it is {column.type}")


def _check_literal(value: Any, kind: str) -> None:
    if not _is_literal(value, kind):
        form = _FORMS.get(kind, "")
        raise _HintError(f"have the literal {_shown(value)}, which is not of the valueType {kind!r}{form}")


def _is_literal(value: Any, kind: str) -> bool:
    """Return whether a value, or its JSON text, is a literal of a value type; null is none."""
    if kind == "string":
        return isinstance(value, str)
    if not isinstance(value, str | bool | int | float):
        return False
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        parsed = parse_partition_value(text, PrimitiveType(_COLUMN_TYPES[kind][-1]))
    except ValueError:
        return False
    return parsed is not None and _NOTATIONS[kind].fullmatch(text) is not None


def _operator(node: Any) -> Any:
    if not isinstance(node, dict):
        raise _HintError(f"have {_shown(node)} in the place of an object with 'op'")
    return node.get("op")


def _type_name(data_type: DataType) -> str | None:
    return data_type.name if isinstance(data_type, PrimitiveType) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
