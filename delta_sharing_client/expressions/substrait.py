"""Arrow's filter expressions as predicates, decoded from their Substrait message.

pyarrow has no other public form of an expression's tree. Only the parts of Substrait that pyarrow writes for
filters are decoded (https://substrait.io, `substrait/extended_expression.proto` and `substrait/algebra.proto`).
All other parts become `UNKNOWN`: messages of another release may disable pushdown, but they never lose rows.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from delta_sharing_client.expressions.predicates import Operator, Predicate
from delta_sharing_client.expressions.pushdown import (
    EXCHANGED,
    NULL,
    UNKNOWN,
    Condition,
    all_of,
    any_of,
    comparison,
    constant,
    is_null,
    membership,
    otherwise_null,
)
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField, StructType

#: The fields of a message: numbers, or the bytes of texts and messages, by the number of the field.
_Message: TypeAlias = Mapping[int, list[Any]]

#: Wire types of Protocol Buffers: the sizes of fields of fixed size.
_VARINT: Final = 0
_FIXED: Final = {1: 8, 5: 4}
_LENGTH: Final = 2
#: Deeper expressions are not decoded.
_MAX_DEPTH: Final = 100

_COMPARISONS: Final[Mapping[str, Operator]] = {
    "equal": "=", "not_equal": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=",
}  # fmt: skip
#: Fields of `Expression.Literal` by the column's type; those of decimals have a scale.
_LITERALS: Final[Mapping[str, tuple[int, ...]]] = {
    "boolean": (1,), "byte": (2,), "short": (3,), "integer": (5,), "long": (7,), "float": (10,), "double": (11,),
    "string": (12,), "binary": (13,), "timestamp_ntz": (14, 34), "date": (16,), "timestamp": (27, 35),
}  # fmt: skip
_DECIMAL: Final = 24
_NULL: Final = 29
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS: Final = 6


class _UndecodableError(Exception):
    """The message is not as expected."""


def pushed_predicate(message: bytes, columns: StructType) -> Predicate:
    """Return a predicate that holds for every row that the filter of a Substrait `ExtendedExpression` selects.

    Args:
        message: the message of one expression.
        columns: the columns that the expression is bound to, in their order.
    """
    try:
        whole = _fields(message)
        functions = {}
        for extension in whole[2]:
            for declared in map(_fields, _fields(extension)[3]):
                functions[_one(declared, 2, 0)] = _one(declared, 3).decode().partition(":")[0]
        expression = _one(_fields(_one(whole, 3)), 1)
        return _Decoder(functions, columns).condition(expression, 0).maybe_true
    except (_UndecodableError, UnicodeDecodeError):
        return UNKNOWN.maybe_true


def _fields(data: bytes) -> _Message:
    """Split a message into its fields."""
    found: dict[int, list[Any]] = defaultdict(list)
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        value: Any
        if kind == _VARINT:
            value, place = _varint(data, place)
        elif kind == _LENGTH or kind in _FIXED:
            size, place = _varint(data, place) if kind == _LENGTH else (_FIXED[kind], place)
            value, place = data[place : place + size], place + size
            if len(value) < size:
                raise _UndecodableError
        else:
            raise _UndecodableError
        found[key >> 3].append(value)
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70 and place < len(data):
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise _UndecodableError


def _one(message: _Message, field: int, default: Any = None) -> Any:
    values = message.get(field, [])
    if len(values) > 1 or (not values and default is None):
        raise _UndecodableError
    return values[0] if values else default


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


class _Decoder:
    """Decodes the expressions of one message."""

    def __init__(self, functions: Mapping[int, str], columns: StructType) -> None:
        self._functions = functions
        self._columns = columns
        self._forms: Mapping[int, Callable[[bytes, int], Condition]] = {
            1: self._constant,
            2: self._boolean_column,
            3: self._function,
            6: self._if_then,
            8: self._in_list,
        }

    def condition(self, data: bytes, depth: int) -> Condition:
        """Return the condition of an `Expression`."""
        message = _fields(data)
        if len(message) != 1 or depth > _MAX_DEPTH:
            return UNKNOWN
        ((form, (content, *_)),) = message.items()
        decode = self._forms.get(form)
        return UNKNOWN if decode is None else decode(content, depth + 1)

    def _constant(self, data: bytes, _: int) -> Condition:
        literal = _fields(data)
        if _NULL in literal:
            return NULL
        return constant(bool(_one(literal, 1))) if 1 in literal else UNKNOWN

    def _boolean_column(self, data: bytes, _: int) -> Condition:
        column = self._referenced(data)
        return UNKNOWN if column is None else comparison(column, "=", True)

    def _function(self, data: bytes, depth: int) -> Condition:
        message = _fields(data)
        name = self._functions.get(_one(message, 1, 0), "")
        operands = [_one(_fields(argument), 3, b"") for argument in message[4]]
        if name in ("and", "or"):
            parts = [self.condition(operand, depth) for operand in operands]
            return all_of(parts) if name == "and" else any_of(parts)
        if name == "not" and len(operands) == 1:
            return ~self.condition(operands[0], depth)
        if name in ("is_null", "is_not_null") and len(operands) == 1:
            column = self._column(operands[0])
            if column is None:
                return UNKNOWN
            return is_null(column) if name == "is_null" else ~is_null(column)
        if name in _COMPARISONS and len(operands) == 2:
            return self._comparison(_COMPARISONS[name], *operands)
        return UNKNOWN

    def _comparison(self, op: Operator, left: bytes, right: bytes) -> Condition:
        column = self._column(left)
        if column is None:
            column, right, op = self._column(right), left, EXCHANGED[op]
        literal = _fields(right)
        if column is None or 1 not in literal:
            return UNKNOWN
        content = _fields(_one(literal, 1))
        if _NULL in content:
            return NULL
        value = _literal(content, column)
        return UNKNOWN if value is None else comparison(column, op, value)

    def _if_then(self, data: bytes, depth: int) -> Condition:
        """Decode the form of DuckDB's lists: a condition, a result, and NULL where the condition is not true."""
        message = _fields(data)
        clause = _fields(_one(message, 1))
        alternative = self._constant(_one(_fields(_one(message, 2)), 1, b""), depth)
        if alternative != NULL:
            return UNKNOWN
        condition, result = (self.condition(_one(clause, part), depth) for part in (1, 2))
        return otherwise_null(condition, result)

    def _in_list(self, data: bytes, _: int) -> Condition:
        message = _fields(data)
        column = self._column(_one(message, 1))
        if column is None:
            return UNKNOWN
        values = [_literal(_fields(_one(_fields(option), 1, b"")), column) for option in message[2]]
        return membership(column, values, null_is_false=True)

    def _column(self, data: bytes) -> StructField | None:
        """Return the column that an `Expression` is; None for all other expressions."""
        message = _fields(data)
        return self._referenced(_one(message, 2)) if 2 in message else None

    def _referenced(self, data: bytes) -> StructField | None:
        """Return the column of a `FieldReference`; None for a field within a column."""
        segment = _fields(_one(_fields(data), 1, b""))
        if 2 not in segment:
            return None
        position = _fields(_one(segment, 2))
        index = _one(position, 1, 0)
        return None if 2 in position or index >= len(self._columns.fields) else self._columns.fields[index]


def _literal(message: _Message, column: StructField) -> Any:
    """Return the value of a literal of the column's type; None for other types and values beyond Python's."""
    kind = column.type
    if isinstance(kind, DecimalType):
        content = _fields(_one(message, _DECIMAL, b""))
        if not content or _one(content, 3, 0) != kind.scale:
            return None
        digits = int.from_bytes(_one(content, 1), "little", signed=True)
        return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -kind.scale))
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    field = next((field for field in _LITERALS.get(name, ()) if field in message), None)
    if field is None:
        return None
    value = _one(message, field)
    if field in (34, 35):
        precise = _fields(value)
        if _one(precise, 1, 0) != _MICROSECONDS:
            return None
        value = _one(precise, 2, 0)
    return _plain(name, value)


def _plain(name: str, value: Any) -> Any:
    if name in ("float", "double"):
        return struct.unpack("<f" if name == "float" else "<d", value)[0]
    if name == "boolean":
        return bool(value)
    if name == "string":
        return value.decode()
    if name == "binary":
        return value
    number = _signed(value)
    try:
        if name == "date":
            return date(1970, 1, 1) + timedelta(days=number)
        if name == "timestamp":
            return _EPOCH + timedelta(microseconds=number)
        if name == "timestamp_ntz":
            return (_EPOCH + timedelta(microseconds=number)).replace(tzinfo=None)
    except OverflowError:
        return None
    return number
