"""Binding of row filters in SQL text (Spark's dialect) to predicates.

    date >= '2024-01-01' AND (amount > 5 OR NOT active)

Supported are comparisons of a column with a literal in either order (`=`, `==`, `!=`, `<>`, `<`, `<=`, `>`,
`>=`, `<=>`, `IS [NOT] DISTINCT FROM`), `[NOT] IN`, `[NOT] BETWEEN`, `[NOT] LIKE 'prefix%'`, `IS [NOT] NULL`,
`IS [NOT] TRUE`, columns of booleans by themselves, `AND`, `OR` and `NOT`. Literals are numbers, strings,
``DATE '...'``, ``TIMESTAMP '...'``, ``TIMESTAMP_NTZ '...'``, ``X'...'``, `TRUE`, `FALSE`, `NULL`, and a
`CAST` of these. Names that are no plain identifiers need backticks. Times without a zone are UTC.

NULL follows SQL: a condition that is null matches no row. A comparison with NULL, which is never true, raises an
error as in tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from delta_sharing_client.errors import ColumnError, FilterError
from delta_sharing_client.expressions.binding import bind_comparison, bind_membership
from delta_sharing_client.expressions.literals import following_text
from delta_sharing_client.expressions.predicates import (
    And,
    Compare,
    Constant,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    is_collated,
    joined,
)
from delta_sharing_client.expressions.sql_syntax import Node, SqlText, bare
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType

_OPERATORS: Final[Mapping[str, Operator]] = {
    "eq": "=", "neq": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=",
}  # fmt: skip
_FLIPPED: Final[Mapping[Operator, Operator]] = {
    "=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip
_STRING: Final = PrimitiveType("string")
_BOOLEAN: Final = PrimitiveType("boolean")


def parse_sql_filter(text: str, schema: StructType) -> Predicate | None:
    """Bind a condition in SQL text to a table's columns; return None if the text has only comments.

    Raises:
        FilterError: the text is not SQL, or has an unsupported part.
        ColumnError: a column is unknown.
        MissingDependencyError: sqlglot is not installed.
    """
    source = SqlText(text)
    node = source.parse()
    try:
        return None if node is None else _Binder(source, schema).condition(node)
    except RecursionError:
        raise FilterError("filters: the SQL text is nested too deeply") from None


class _Binder:
    """Binds a syntax tree to a table's columns."""

    def __init__(self, source: SqlText, schema: StructType) -> None:
        self._source = source
        self._schema = schema
        self._negated = False
        self._conditions: Mapping[str, Callable[[Node], Predicate]] = {
            "and": lambda node: joined(And, map(self.condition, _operands(node))),
            "or": lambda node: joined(Or, map(self.condition, _operands(node))),
            "not": lambda node: self._negation(self.condition, node.this),
            "nullsafeeq": self._null_safe,
            "nullsafeneq": lambda node: Not(self._null_safe(node)),
            "in": self._in,
            "between": self._between,
            "like": self._like,
            "escape": self._like,
            "is": self._is,
            "column": self._truth,
            "boolean": lambda node: Constant(bool(node.this)),
            "null": lambda node: Constant(None),
            **dict.fromkeys(_OPERATORS, self._comparison),
        }

    def condition(self, node: Node) -> Predicate:
        """Bind a condition."""
        node = bare(node)
        bind = self._conditions.get(node.key)
        if bind is None:
            raise self._source.unsupported(node, "is not a condition that a filter can hold")
        return self._negation(bind, node) if node.args.get("negate") else bind(node)

    def _negation(self, bind: Callable[[Node], Predicate], node: Node) -> Predicate:
        """Bind the negation of a condition."""
        self._negated = not self._negated
        predicate = bind(node)
        self._negated = not self._negated
        return predicate.part if isinstance(predicate, Not) else Not(predicate)

    def _comparison(self, node: Node) -> Predicate:
        self._source.check(node, "this", "expression")
        return self._compare(node, node.this, _OPERATORS[node.key], node.expression)

    def _compare(self, node: Node, left: Node, op: Operator, right: Node) -> Predicate:
        column, value = self._operand(left), self._operand(right)
        if not isinstance(column, StructField):
            column, value, op = value, column, _FLIPPED[op]
        if isinstance(value, StructField):
            raise self._source.unsupported(node, "compares two columns")
        if isinstance(column, StructField):
            return bind_comparison(column, op, value)
        if column is None or value is None:
            raise self._source.never_true(node)
        return self._constant(node, column, op, value)

    def _constant(self, node: Node, left: Any, op: Operator, right: Any) -> Constant:
        """Compare two literals."""
        for side in (left, right):
            if isinstance(side, str) and self._schema.find(side) is not None:
                shown = side if side.isidentifier() else f"`{side}`"
                raise self._source.unsupported(
                    node,
                    f"compares the string literal {side!r}; in this dialect quotes delimit strings; "
                    f"write the column as {shown}",
                )
        numbers = [
            isinstance(side, int | float | Decimal) and not isinstance(side, bool) for side in (left, right)
        ]
        if type(left) is not type(right) and not all(numbers):
            raise self._source.unsupported(node, "compares literals of two types")
        try:
            results: Mapping[str, bool] = {"=": left == right, "<": left < right, ">": left > right}
        except (ArithmeticError, TypeError):  # a decimal against a NaN; a time with a zone against one without
            raise self._source.unsupported(node, "compares values that have no order") from None
        return Constant(not results["="] if op == "!=" else any(results.get(part, False) for part in op))

    def _null_safe(self, node: Node) -> Predicate:
        self._source.check(node, "this", "expression")
        left, right = self._operand(node.this), self._operand(node.expression)
        if left is not None and right is not None:
            equal = self._compare(node, node.this, "=", node.expression)
            column = left if isinstance(left, StructField) else right
            return _not_null(column, equal) if isinstance(column, StructField) else equal
        column = right if left is None else left
        return IsNull(column) if isinstance(column, StructField) else Constant(left is right)

    def _in(self, node: Node) -> Predicate:
        self._source.check(node, "this", "expressions", "negate")
        column = self._operand(node.this)
        if not isinstance(column, StructField) or not node.expressions:
            raise self._source.unsupported(node, "is not a column IN a list of literals")
        values = [self._source.literal(item) for item in node.expressions]
        return bind_membership(column, values, negated=self._negated)

    def _between(self, node: Node) -> Predicate:
        self._source.check(node, "this", "low", "high", "negate")
        lower = self._compare(node, node.this, ">=", node.args["low"])
        return joined(And, [lower, self._compare(node, node.this, "<=", node.args["high"])])

    def _like(self, node: Node) -> Predicate:
        like, escape = node, "\\"
        if node.key == "escape":
            self._source.check(node, "this", "expression")
            like, escape = node.this, self._source.literal(node.expression)
        if like.key != "like" or not isinstance(escape, str) or len(escape) != 1:
            raise self._source.unsupported(node, "is not a LIKE with one character as its escape")
        self._source.check(like, "this", "expression", "negate")
        column, pattern = self._operand(like.this), self._operand(like.expression)
        if isinstance(pattern, StructField):
            raise self._source.unsupported(node, "has a column as its pattern")
        if not isinstance(column, StructField) or column.type != _STRING:
            raise self._source.unsupported(node, "has no column of strings before LIKE")
        if is_collated(column):
            raise self._source.unsupported(node, f"has the column {column.name!r}, which has a collation")
        if pattern is None:
            raise self._source.never_true(node)
        prefix, more = _prefix(pattern, escape) if isinstance(pattern, str) else (None, False)
        if prefix is None:
            raise self._source.unsupported(node, "has a pattern other than a prefix: '...%' or no wildcard at all")
        if not more:
            matches: Predicate = Compare(column, "=", prefix)
        else:
            matches, following = Compare(column, ">=", prefix), following_text(prefix)
            if following is not None:
                matches = And((matches, Compare(column, "<", following)))
        # `condition` negates a LIKE itself, but not the LIKE within an ESCAPE.
        return Not(matches) if like is not node and like.args.get("negate") else matches

    def _is(self, node: Node) -> Predicate:
        self._source.check(node, "this", "expression", "negate")
        wanted, column = bare(node.expression), self._operand(node.this)
        if wanted.key not in ("null", "boolean"):
            raise self._source.unsupported(node, "is not an IS NULL, IS TRUE or IS FALSE")
        value = None if wanted.key == "null" else bool(wanted.this)
        if not isinstance(column, StructField):
            return Constant(column is value)
        if value is None:
            return IsNull(column)
        if column.type != _BOOLEAN:
            raise self._source.unsupported(
                node, f"takes a column of booleans, and {column.name!r} is {column.type}"
            )
        return _not_null(column, Compare(column, "=", value))

    def _truth(self, node: Node) -> Predicate:
        column = self._column(node)
        if column.type != _BOOLEAN:
            raise self._source.unsupported(node, f"is {column.type}, and not a condition by itself")
        return Compare(column, "=", True)

    def _operand(self, node: Node) -> Any:
        """Return a column, or the value of a literal; None for NULL."""
        node = bare(node)
        return self._column(node) if node.key == "column" else self._source.literal(node)

    def _column(self, node: Node) -> StructField:
        self._source.check(node, "this", "table", "db", "catalog")
        names = [part for part in (node.args.get(key) for key in ("catalog", "db", "table", "this")) if part]
        if any(part.key != "identifier" for part in names):
            raise self._source.unsupported(node, "is not a column")
        name = ".".join(part.name for part in names)
        column = self._schema.find(name)
        if len(names) > 1:
            hint = (
                f" (for the column of that name write `{name}`)"
                if column
                else f"; {self._schema.suggestion([name])}"
            )
            raise self._source.unsupported(node, f"is not a column of the table, but a part of something{hint}")
        if column is None:
            hint = self._schema.suggestion([name])
            if name.lower() in ("nan", "infinity", "inf"):
                hint = f"the number is written '{name}', in quotes; no value equals NaN"
            raise ColumnError(
                f"filters names the column {name!r}, which the table does not have; {hint}", columns=[name]
            )
        return column


def _operands(node: Node) -> Iterator[Node]:
    """Yield the operands of a chain of ANDs or ORs of any length."""
    chain: list[Node] = []
    inner = node
    while inner.key == node.key:
        chain.append(inner.expression)
        inner = inner.this
    yield inner
    yield from reversed(chain)


def _not_null(column: StructField, predicate: Predicate) -> Predicate:
    """Return a predicate on a column, false instead of null."""
    return And((Not(IsNull(column)), predicate))


def _prefix(pattern: str, escape: str) -> tuple[str | None, bool]:
    """Return the prefix of a LIKE pattern (None for other patterns), and whether more characters may follow."""
    characters: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            character = pattern[position] if position < len(pattern) else ""
            if character not in ("%", "_", escape):
                return None, False
        elif character in "%_":
            more = set(pattern[position:]) == {"%"}
            return ("".join(characters) if more else None), more
        characters.append(character)
        position += 1
    return "".join(characters), False
