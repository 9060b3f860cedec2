"""Filters of polars as predicates, decoded from the JSON of its expressions.

polars has no other public form of an expression's tree. Its JSON differs between releases: parts that are not
known here become `UNKNOWN`, so that another release may disable pushdown, but never loses rows. NaN follows
polars: it is greater than every number, and equal to itself.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from delta_sharing_client.expressions.predicates import Operator, Predicate, is_float
from delta_sharing_client.expressions.pushdown import (
    EXCHANGED,
    UNKNOWN,
    Condition,
    all_of,
    any_of,
    comparison,
    is_null,
    membership,
)
from delta_sharing_client.model.schema import StructField, StructType

_COMPARISONS: Final[Mapping[str, Operator]] = {
    "Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=",
}  # fmt: skip
#: Comparisons that hold for NaN, by those that do not.
_WITH_NAN: Final[Mapping[Operator, Operator]] = {">": "<=", ">=": "<"}
#: The lower and the upper comparison of `is_between`.
_BETWEEN: Final[Mapping[str, tuple[Operator, Operator]]] = {
    "Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<"),
}  # fmt: skip
#: An expression is nested too deep, or has a function of Python; or this release of polars has no such form.
_NO_JSON: Final = (RecursionError, pl.exceptions.PolarsError, AttributeError, TypeError, ValueError)
#: Deeper expressions are not decoded.
_MAX_DEPTH: Final = 100


def pushed_predicate(expression: pl.Expr, columns: StructType, schema: pl.Schema) -> Predicate:
    """Return a predicate that holds for every row that a filter of polars selects.

    Args:
        expression: the filter.
        columns: the columns that it may name, as the table's schema has them.
        schema: the types of the same columns in polars.
    """
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except _NO_JSON:
        return UNKNOWN.maybe_true
    return _Decoder(columns, schema).condition(tree, 0).maybe_true


class _Decoder:
    """Decodes the expressions of one filter."""

    def __init__(self, columns: StructType, schema: pl.Schema) -> None:
        self._columns = {column.name: column for column in columns}
        self._schema = schema

    def condition(self, node: Any, depth: int) -> Condition:
        """Return the condition of an expression."""
        if depth > _MAX_DEPTH:
            return UNKNOWN
        match node:
            case {"Column": str()}:
                column = self._column(node)
                return UNKNOWN if column is None else comparison(column, "=", True)
            case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
                return all_of([self.condition(left, depth + 1), self.condition(right, depth + 1)])
            case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
                return any_of([self.condition(left, depth + 1), self.condition(right, depth + 1)])
            case {"BinaryExpr": {"left": left, "op": str(name), "right": right}} if name in _COMPARISONS:
                return self._comparison(_COMPARISONS[name], left, right)
            case {"Function": {"input": [*operands], "function": {"Boolean": function}}}:
                return self._function(function, operands, depth)
        return UNKNOWN

    def _function(self, function: Any, operands: list[Any], depth: int) -> Condition:
        match function, operands:
            case "Not", [operand]:
                return ~self.condition(operand, depth + 1)
            case (("IsNull" | "IsNotNull"), [operand]):
                column = self._column(operand)
                if column is None:
                    return UNKNOWN
                return is_null(column) if function == "IsNull" else ~is_null(column)
            case {"IsBetween": {"closed": str(closed)}}, [operand, lower, upper] if closed in _BETWEEN:
                above, below = _BETWEEN[closed]
                return all_of([self._comparison(above, operand, lower), self._comparison(below, operand, upper)])
            case {"IsIn": {"nulls_equal": bool(nulls_equal)}}, [operand, listed]:
                column = self._column(operand)
                values = None if column is None else self._values(listed, column)
                if column is None or values is None:
                    return UNKNOWN
                return membership(column, values, null_is_false=nulls_equal)
        return UNKNOWN

    def _comparison(self, op: Operator, left: Any, right: Any) -> Condition:
        column = self._column(left)
        if column is None:
            column, right, op = self._column(right), left, EXCHANGED[op]
        values = None if column is None else self._values(right, column)
        if column is None or values is None or len(values) != 1 or values[0] is None:
            return UNKNOWN
        if is_float(column.type) and op in _WITH_NAN:
            return ~comparison(column, _WITH_NAN[op], values[0])
        return comparison(column, op, values[0])

    def _column(self, node: Any) -> StructField | None:
        match node:
            case {"Column": str(name)}:
                return self._columns.get(name)
        return None

    def _values(self, node: Any, column: StructField) -> list[Any] | None:
        """Return the values of a literal, or of a literal list, of the column's type; None for others."""
        match node:
            case {"Alias": [inner, _]}:
                return self._values(inner, column)
            case {"Literal": _}:
                pass
            case _:
                return None
        try:
            literal = pl.select(pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")).to_series()
        except _NO_JSON:
            return None
        if isinstance(literal.dtype, pl.List):
            literal = literal.explode()
        kind = self._schema[column.name]
        # Decimals of every scale, and integers of every width, are compared exactly.
        decimals = literal.dtype.is_decimal() and kind.is_decimal()
        integers = literal.dtype.is_signed_integer() and kind.is_signed_integer()
        if not (literal.dtype == kind or decimals or integers):
            return None
        try:
            return literal.to_list()
        except (ValueError, OverflowError):  # a time outside the years of Python's types
            return None
