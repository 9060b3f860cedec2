"""Binding of row filters to a table's schema: names to columns, literals to the columns' types.

Filters have the form of `pandas.read_parquet`, or are SQL text in Spark's dialect:

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

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import ColumnError, FilterError
from delta_sharing_client.expressions.filters import Filters, freeze_filters
from delta_sharing_client.expressions.literals import (
    date_literal,
    following_text,
    is_null,
    plain_value,
    time_literal,
)
from delta_sharing_client.expressions.predicates import (
    LOWER_CASE,
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    collation_of,
    columns_of,
    is_collated,
    is_float,
    joined,
)
from delta_sharing_client.model.partition_values import INTEGER_BITS
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField, StructType

if TYPE_CHECKING:
    from fractions import Fraction

    from delta_sharing_client.expressions.sql_syntax import Node, SqlText

#: More decimal digits than any column has before or after the point.
_FAR: Final = 100
_OPERATORS: Final[Mapping[str, Operator]] = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_SQL_OPERATORS: Final[Mapping[str, Operator]] = {
    "eq": "=", "neq": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=",
}  # fmt: skip
_FLIPPED: Final[Mapping[Operator, Operator]] = {
    "=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip
_STRING: Final = PrimitiveType("string")
_BOOLEAN: Final = PrimitiveType("boolean")


def bind_filters(filters: Filters, schema: StructType) -> Predicate | None:
    """Bind filters to a table's columns; return None for empty filters.

    The operators of tuples are ``=  ==  !=  <>  <  <=  >  >=  in  not in  is  is not``; the last two take None.
    `in` ignores nulls of Python, pandas, numpy and Arrow in its list. In the list of `not in`, and as the value of
    a comparison, they raise an error: such a term is never true.

    Raises:
        FilterError: a term is malformed, its operator is unknown, or its value does not fit the column's type.
        ColumnError: a column is unknown.
        MissingDependencyError: `filters` is SQL text, and sqlglot is not installed.
    """
    filters = freeze_filters(filters)
    if isinstance(filters, str):
        return _bind_sql(filters, schema)
    if isinstance(filters, Predicate):
        return _bound_again(filters, schema)
    items = () if filters is None else filters
    if any(map(_is_term, items)):
        if any(isinstance(item, list | tuple) and item and all(map(_is_term, item)) for item in items):
            raise FilterError(
                "filters mixes tuples and lists of tuples: write [(column, operator, value), ...] for AND, or put "
                "each alternative of an OR in a list of its own"
            )
        return joined(And, [_bind_term(item, schema) for item in items])
    groups = [joined(And, [_bind_term(term, schema) for term in _terms_of(item)]) for item in items]
    return joined(Or, groups) if groups else None


def _bound_again(predicate: Predicate, schema: StructType) -> Predicate:
    """Return a predicate whose columns the table still has; raise `ColumnError` if it does not."""
    for column in columns_of(predicate):
        if schema.find(column.name) != column:
            raise ColumnError(
                f"filters: the table's column {column.name!r} has changed since the filter was bound",
                columns=[column.name],
            )
    return predicate


def _terms_of(group: Any) -> Sequence[Any]:
    if not isinstance(group, list | tuple):
        raise _not_a_term(group)
    if not group:
        raise FilterError("filters has an empty group; an empty AND would match every row")
    return group


def _is_term(item: Any) -> bool:
    if not isinstance(item, Sequence) or isinstance(item, str | bytes) or len(item) != 3:
        return False
    return isinstance(item[0], str) and isinstance(item[1], str)


def _not_a_term(item: Any) -> FilterError:
    return FilterError(f"{item!r} in filters is not a (column, operator, value) tuple")


def _bind_term(term: Any, schema: StructType) -> Predicate:
    if not _is_term(term):
        raise _not_a_term(term)
    name, operator, value = term
    column = schema.find(name)
    if column is None:
        raise ColumnError(
            f"filters names the column {name!r}, which the table does not have; {schema.suggestion([name])}",
            columns=[name],
        )
    op = " ".join(operator.lower().split())
    if op in ("is", "is not"):
        if not is_null(value):
            raise FilterError(f"filters: {operator!r} takes None, not {value!r}")
        return IsNull(column) if op == "is" else Not(IsNull(column))
    if op in ("in", "not in"):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise FilterError(f"filters: {operator!r} on {column.name!r} takes a list, not {value!r}")
        membership = bind_membership(column, list(value), negated=op == "not in")
        return membership if op == "in" else Not(membership)
    if op not in _OPERATORS:
        raise FilterError(
            f"filters: unknown operator {operator!r} on {column.name!r}; "
            "there are = != < <= > >= in, not in, is, is not"
        )
    if isinstance(value, list | tuple | set | frozenset | range):
        word = "not in" if _OPERATORS[op] == "!=" else "in"
        raise FilterError(
            f"filters: {column.name!r} {operator} takes one value, not a {type(value).__name__}; "
            f"write ({column.name!r}, {word!r}, [...]) for several"
        )
    return bind_comparison(column, _OPERATORS[op], value)


def bind_membership(column: StructField, values: list[Any], *, negated: bool) -> Predicate:
    """Bind ``column IN (values)``; a null among the values is left out, because no value equals it.

    Args:
        column: the column.
        values: the literals.
        negated: whether the negation of the result selects rows, which is never true if there is a null.

    Raises:
        FilterError: a value does not fit the column's type, the type cannot be compared, or there is a null in the
            list of a negated membership.
    """
    if column.type == PrimitiveType("variant"):
        raise FilterError(f"filters: {column.name!r} is variant; there are only is and is not for it")
    known = [value for value in values if not is_null(value)]
    terms = [bind_comparison(column, "=", value) for value in known]
    if negated and len(known) < len(values):
        raise FilterError(
            f"filters: {column.name!r} not in a list with a null is never true; leave the null out: rows whose "
            f"{column.name!r} is null never match 'not in'"
        )
    return In(column, tuple(dict.fromkeys(term.value for term in terms if isinstance(term, Compare))))


def bind_comparison(column: StructField, op: Operator, value: Any) -> Predicate:
    """Bind one comparison: convert the literal to the column's type without changing the result.

    Raises:
        FilterError: the literal is null or does not fit the column's type, or the type cannot be compared.
    """
    if is_null(value):
        raise FilterError(
            f"filters: {column.name!r} {op} null is never true; write ({column.name!r}, 'is', None) or "
            f"({column.name!r}, 'is not', None), in SQL text IS NULL or IS NOT NULL"
        )
    try:
        return _bind_comparison(column, op, plain_value(value))
    except InvalidOperation:
        raise FilterError(f"filters: {column.name!r} is {column.type}, and {value!r} is not a number") from None
    except ValueError as error:
        if isinstance(error, FilterError):
            raise
        raise FilterError(f"filters: {column.name!r} is {column.type}: {error}") from None


def _bind_comparison(column: StructField, op: Operator, value: Any) -> Predicate:
    kind = column.type
    if isinstance(kind, PrimitiveType):
        name = kind.name
        if name in INTEGER_BITS or name in ("float", "double"):
            return _bind_number(column, op, value)
        if name == "string" and isinstance(value, str):
            value.encode()  # raises for a lone surrogate
            check_collation(column)
            return Compare(column, op, value)
        if name == "boolean" and isinstance(value, bool):
            return Compare(column, op, value)
        if name == "binary" and isinstance(value, bytes | bytearray | memoryview):
            return Compare(column, op, bytes(value))
        if name == "date":
            return Compare(column, op, date_literal(value))
        if name in ("timestamp", "timestamp_ntz"):
            return _bind_time(column, op, value, wall_clock=name == "timestamp_ntz")
    elif isinstance(kind, DecimalType):
        return _bind_number(column, op, value)
    else:
        raise FilterError(f"filters: {column.name!r} is {kind}, which cannot be compared")
    raise FilterError(
        f"filters: {column.name!r} is {kind}; {value!r} ({type(value).__name__}) cannot be compared with it"
    )


def check_collation(column: StructField) -> None:
    """Raise `FilterError` if values of a column compare by a collation that this release does not know."""
    collation = collation_of(column)
    if collation not in (None, LOWER_CASE):
        raise FilterError(
            f"filters: strings of {column.name!r} compare by the collation {collation}, which needs ICU; filter "
            "the loaded rows instead"
        )


def _bind_number(column: StructField, op: Operator, value: Any) -> Predicate:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise FilterError(
            f"filters: {column.name!r} is {column.type}; "
            f"{value!r} ({type(value).__name__}) cannot be compared with it"
        )
    number = Decimal(value.strip()) if isinstance(value, str) else value
    kind = column.type
    if is_float(kind):
        return (
            _bind_int_to_float(column, op, number)
            if isinstance(number, int)
            else Compare(column, op, float(number))
        )
    if isinstance(number, float | Decimal) and not math.isfinite(number):
        return _never_or_always(column, op, above=not _is_nan(number) and number > 0, nan=_is_nan(number))
    if isinstance(number, float) and isinstance(kind, DecimalType):
        # 0.05 means five hundredths here, not the nearest double, which equals no decimal.
        number = Decimal(repr(float(number)))
    scale = kind.scale if isinstance(kind, DecimalType) else 0
    digits = 10**kind.precision - 1 if isinstance(kind, DecimalType) else 0
    bits = INTEGER_BITS[kind.name] if isinstance(kind, PrimitiveType) else 0
    least, most = (-digits, digits) if digits else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    exact = _exact(number) * 10**scale
    unscaled = math.floor(exact)
    if exact != unscaled:
        # Between two values of the type: x < 1.5 is x < 2, x > 1.5 is x > 1, x = 1.5 is false.
        if op in ("=", "!="):
            return _never_or_always(column, op, above=False, nan=True)
        if op in ("<", ">="):
            unscaled += 1
    if not least <= unscaled <= most:
        return _never_or_always(column, op, above=unscaled > most, nan=False)
    return Compare(column, op, _scaled(unscaled, scale) if digits else unscaled)


def _bind_int_to_float(column: StructField, op: Operator, number: int) -> Predicate:
    """Bind an integer to a column of floats, exactly even if no float equals it."""
    try:
        real = float(number)
    except OverflowError:
        real = sys.float_info.max if number > 0 else -sys.float_info.max
    nearest = int(real)
    if nearest != number:
        if op in ("=", "!="):
            return _never_or_always(column, op, above=False, nan=True)
        # No float is between the integer and the nearest float.
        less_or_greater: tuple[Operator, Operator] = ("<=", ">") if nearest < number else ("<", ">=")
        op = less_or_greater[op not in ("<", "<=")]
    return Compare(column, op, real)


def _exact(number: int | float | Decimal) -> int | Fraction:
    """Return the exact number; far beyond all columns' range or scale, another number beyond them."""
    if isinstance(number, int):
        return number
    from fractions import Fraction  # most filters compare with integers and texts

    if isinstance(number, Decimal) and number:
        if number.adjusted() > _FAR:
            return Fraction(10**_FAR) * (-1 if number < 0 else 1)
        if number.adjusted() < -_FAR:
            return Fraction(-1 if number < 0 else 1, 10**_FAR)
    return Fraction(number) if number else Fraction(0)


def _scaled(unscaled: int, scale: int) -> Decimal:
    """Return `unscaled / 10**scale` without rounding by the decimal context."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _is_nan(value: float | Decimal) -> bool:
    return value != value


def _never_or_always(column: StructField, op: Operator, *, above: bool, nan: bool) -> Predicate:
    """Return a predicate that has the same value for all values of the column; null stays null."""
    always = op == "!=" if nan or op in ("=", "!=") else (op in ("<", "<=")) == above
    return Not(In(column, ())) if always else In(column, ())


def _bind_time(column: StructField, op: Operator, value: Any, *, wall_clock: bool) -> Predicate:
    micros, beyond = time_literal(value, wall_clock=wall_clock)
    if beyond:
        # Between two microseconds, as with numbers.
        if op in ("=", "!="):
            return _never_or_always(column, op, above=False, nan=True)
        if op in ("<", ">="):
            micros += 1
    return Compare(column, op, micros)


def _bind_sql(text: str, schema: StructType) -> Predicate | None:
    """Bind a condition in SQL text to a table's columns; return None if the text has only comments.

    Raises:
        FilterError: the text is not SQL, or has an unsupported part.
        ColumnError: a column is unknown.
        MissingDependencyError: sqlglot is not installed.
    """
    from delta_sharing_client.expressions.sql_syntax import SqlText  # most filters are tuples

    source = SqlText(text)
    node = source.parse()
    try:
        return None if node is None else _SqlBinder(source, schema).condition(node)
    except RecursionError:
        raise FilterError("filters: the SQL text is nested too deeply") from None


class _SqlBinder:
    """Binds the syntax tree of SQL text to a table's columns."""

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
            **dict.fromkeys(_SQL_OPERATORS, self._comparison),
        }

    def condition(self, node: Node) -> Predicate:
        """Bind a condition."""
        node = self._source.bare(node)
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
        return self._compare(node, node.this, _SQL_OPERATORS[node.key], node.expression)

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
        wanted, column = self._source.bare(node.expression), self._operand(node.this)
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
        node = self._source.bare(node)
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
