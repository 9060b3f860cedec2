"""Binding of row filters in SQL text (Spark's dialect) to predicates.

    date >= '2024-01-01' AND (amount > 5 OR NOT active)

Supported are comparisons of a column with a literal in either order (`=`, `==`, `!=`, `<>`, `<`, `<=`, `>`,
`>=`, `<=>`, `IS [NOT] DISTINCT FROM`), `[NOT] IN`, `[NOT] BETWEEN`, `[NOT] LIKE 'prefix%'`, `IS [NOT] NULL`,
`IS [NOT] TRUE`, columns of booleans by themselves, `AND`, `OR` and `NOT`. Literals are numbers, strings,
``DATE '...'``, ``TIMESTAMP '...'``, ``TIMESTAMP_NTZ '...'``, ``X'...'``, `TRUE`, `FALSE`, `NULL`, and a
`CAST` of these. Names that are no plain identifiers need backticks. Times without a zone are UTC.

NULL follows SQL: a condition that is null matches no row. NOT is pushed down to the comparisons, where null stays
null. A comparison that is null for all rows is then equivalent to false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from delta_sharing_client.errors import ColumnError, FilterError
from delta_sharing_client.expressions.binding import bind_comparison, bind_filters
from delta_sharing_client.expressions.predicates import And, Compare, In, IsNull, Not, Operator, Or, Predicate
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
    """Bind a filter written as SQL text to a table's columns.

    Args:
        text: a condition, as after WHERE.
        schema: the table's columns.

    Returns:
        The predicate; None if all rows match.

    Raises:
        FilterError: the text is no SQL, or has an unsupported part.
        ColumnError: a column is unknown.
        MissingDependencyError: sqlglot is not installed.
    """
    source = SqlText(text)
    node = source.parse()
    if node is None:
        return None
    try:
        result = _Binder(source, schema).condition(node, negated=False)
    except RecursionError:
        raise FilterError("filters: the SQL text is nested too deeply") from None
    if not isinstance(result, bool):
        return result
    if result:
        return None
    if not schema.fields:
        raise FilterError("filters: the table has no columns to filter by")
    return In(schema.fields[0], ())


class _Binder:
    """Binds a syntax tree to a table's columns.

    A condition becomes a predicate, or a bool if it is constant.
    """

    def __init__(self, source: SqlText, schema: StructType) -> None:
        self._source = source
        self._schema = schema
        self._conditions: Mapping[str, Callable[[Node, bool], Predicate | bool]] = {
            "and": self._connected,
            "or": self._connected,
            "not": lambda node, negated: self.condition(node.this, not negated),
            "nullsafeeq": self._null_safe,
            "nullsafeneq": lambda node, negated: self._null_safe(node, not negated),
            "in": self._in,
            "between": self._between,
            "like": self._like,
            "escape": self._like,
            "is": self._is,
            "column": self._truth,
            "boolean": lambda node, negated: bool(node.this) != negated,
            "null": lambda node, negated: False,
            **dict.fromkeys(_OPERATORS, self._comparison),
        }

    def condition(self, node: Node, negated: bool) -> Predicate | bool:
        """Bind a condition or its negation."""
        node = bare(node)
        bind = self._conditions.get(node.key)
        if bind is None:
            raise self._source.unsupported(node, "is not a condition that a filter can hold")
        return bind(node, negated)

    def _connected(self, node: Node, negated: bool) -> Predicate | bool:
        conjunction = (node.key == "and") != negated
        return _join([self.condition(operand, negated) for operand in _operands(node)], conjunction)

    def _comparison(self, node: Node, negated: bool) -> Predicate | bool:
        self._source.check(node, "this", "expression")
        return self._compare(node, node.this, _OPERATORS[node.key], node.expression, negated)

    def _compare(self, node: Node, left: Node, op: Operator, right: Node, negated: bool) -> Predicate | bool:
        column, value = self._operand(left), self._operand(right)
        if not isinstance(column, StructField):
            column, value, op = value, column, _FLIPPED[op]
        if isinstance(value, StructField):
            raise self._source.unsupported(node, "compares two columns")
        if isinstance(column, StructField):
            return value is not None and _signed(bind_comparison(column, op, value), negated)
        if column is None or value is None:
            return False
        return self._constant(node, column, op, value) != negated

    def _constant(self, node: Node, left: Any, op: Operator, right: Any) -> bool:
        """Compare two literals."""
        for side in (left, right):
            if isinstance(side, str) and self._schema.find(side) is not None:
                shown = side if side.isidentifier() else f"`{side}`"
                raise self._source.unsupported(
                    node, f"compares the text {side!r}, for quotes make a text: write the column as {shown}"
                )
        numbers = [
            isinstance(side, int | float | Decimal) and not isinstance(side, bool) for side in (left, right)
        ]
        if type(left) is not type(right) and not all(numbers):
            raise self._source.unsupported(node, "compares literals of two types")
        try:
            results: Mapping[str, bool] = {"=": left == right, "<": left < right, ">": left > right}
        except ArithmeticError:  # a decimal against a NaN
            raise self._source.unsupported(node, "compares what has no order") from None
        return not results["="] if op == "!=" else any(results.get(part, False) for part in op)

    def _null_safe(self, node: Node, negated: bool) -> Predicate | bool:
        self._source.check(node, "this", "expression")
        column, value = self._operand(node.this), self._operand(node.expression)
        if not isinstance(column, StructField):
            column, value = value, column
        if isinstance(value, StructField):
            raise self._source.unsupported(node, "compares two columns")
        if not isinstance(column, StructField):
            if column is None or value is None:
                return (column is value) != negated
            return self._constant(node, column, "=", value) != negated
        if value is None:
            return _signed(IsNull(column), negated)
        equal = bind_comparison(column, "=", value)
        return Or((IsNull(column), _signed(equal, True))) if negated else equal

    def _in(self, node: Node, negated: bool) -> Predicate | bool:
        self._source.check(node, "this", "expressions", "negate")
        negated ^= bool(node.args.get("negate"))
        column = self._operand(node.this)
        if not isinstance(column, StructField) or not node.expressions:
            raise self._source.unsupported(node, "is not a column IN a list of literals")
        values = [self._source.literal(item) for item in node.expressions]
        known = [value for value in values if value is not None]
        if not known or (negated and len(known) < len(values)):
            return False
        bound = bind_filters([(column.name, "in", known)], self._schema)
        return bound is not None and _signed(bound, negated)

    def _between(self, node: Node, negated: bool) -> Predicate | bool:
        self._source.check(node, "this", "low", "high", "negate")
        negated ^= bool(node.args.get("negate"))
        lower = self._compare(node, node.this, ">=", node.args["low"], negated)
        upper = self._compare(node, node.this, "<=", node.args["high"], negated)
        return _join([lower, upper], not negated)

    def _like(self, node: Node, negated: bool) -> Predicate | bool:
        like, escape = node, "\\"
        if node.key == "escape":
            self._source.check(node, "this", "expression")
            like, escape = node.this, self._source.literal(node.expression)
        if like.key != "like" or not isinstance(escape, str) or len(escape) != 1:
            raise self._source.unsupported(node, "is not a LIKE with one character as its escape")
        self._source.check(like, "this", "expression", "negate")
        negated ^= bool(like.args.get("negate"))
        column, pattern = self._operand(like.this), self._operand(like.expression)
        if isinstance(pattern, StructField):
            raise self._source.unsupported(node, "has a column as its pattern")
        if not isinstance(column, StructField) or column.type != _STRING:
            raise self._source.unsupported(node, "has no column of strings before LIKE")
        if pattern is None:
            return False
        prefix, more = _prefix(pattern, escape) if isinstance(pattern, str) else (None, False)
        if prefix is None:
            raise self._source.unsupported(node, "has a pattern other than a prefix: '...%' or no wildcard at all")
        if not more:
            return _signed(Compare(column, "=", prefix), negated)
        following = _after(prefix)
        bounds: list[Predicate | bool] = [_signed(Compare(column, ">=", prefix), negated)]
        if following is not None:
            bounds.append(_signed(Compare(column, "<", following), negated))
        return _join(bounds, not negated)

    def _is(self, node: Node, negated: bool) -> Predicate | bool:
        self._source.check(node, "this", "expression", "negate")
        negated ^= bool(node.args.get("negate"))
        wanted, column = bare(node.expression), self._operand(node.this)
        if wanted.key not in ("null", "boolean"):
            raise self._source.unsupported(node, "is not an IS NULL, IS TRUE or IS FALSE")
        value = None if wanted.key == "null" else bool(wanted.this)
        if not isinstance(column, StructField):
            return (column is value) != negated
        if value is None:
            return _signed(IsNull(column), negated)
        if column.type != _BOOLEAN:
            raise self._source.unsupported(
                node, f"takes a column of booleans, and {column.name!r} is {column.type}"
            )
        equal = Compare(column, "=", value)
        return Or((IsNull(column), Not(equal))) if negated else equal

    def _truth(self, node: Node, negated: bool) -> Predicate:
        column = self._column(node)
        if column.type != _BOOLEAN:
            raise self._source.unsupported(node, f"is {column.type}, and not a condition by itself")
        return _signed(Compare(column, "=", True), negated)

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
            hint = f" (for the column of that name write `{name}`)" if column else ""
            raise self._source.unsupported(node, f"is not a column of the table, but a part of something{hint}")
        if column is None:
            raise ColumnError(
                f"filters names the column {name!r}, which the table does not have; "
                f"{self._schema.suggestion([name])}",
                columns=[name],
            )
        return column


def _join(parts: list[Predicate | bool], conjunction: bool) -> Predicate | bool:
    """Return the conjunction or the disjunction of conditions."""
    rest: list[Predicate] = []
    for part in parts:
        if isinstance(part, bool):
            if part != conjunction:
                return part
        elif isinstance(part, And if conjunction else Or):
            rest.extend(part.parts)
        else:
            rest.append(part)
    if len(rest) < 2:
        return rest[0] if rest else conjunction
    return And(tuple(rest)) if conjunction else Or(tuple(rest))


def _operands(node: Node) -> Iterator[Node]:
    """Yield the operands of a chain of ANDs or ORs of any length."""
    chain: list[Node] = []
    inner = node
    while inner.key == node.key:
        chain.append(inner.expression)
        inner = inner.this
    yield inner
    yield from reversed(chain)


def _signed(predicate: Predicate, negated: bool) -> Predicate:
    if not negated:
        return predicate
    return predicate.part if isinstance(predicate, Not) else Not(predicate)


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


def _after(prefix: str) -> str | None:
    """Return the least string after all strings with a prefix, by code points; None if there is none."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(0xE000 if following == 0xD800 else following)
