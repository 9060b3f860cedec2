r"""A row filter as SQL text, in Spark's dialect, to the same tree that tuples give.

    date >= '2024-01-01' AND (amount > 5 OR NOT active)

There are comparisons of a column with a literal, either way round (`=`, `==`, `!=`, `<>`, `<`, `<=`, `>`,
`>=`, `<=>`, `IS [NOT] DISTINCT FROM`), `[NOT] IN`, `[NOT] BETWEEN`, `[NOT] LIKE 'prefix%'`, `IS [NOT] NULL`,
`IS [NOT] TRUE`, columns of booleans by themselves, `AND`, `OR` and `NOT`. Literals are numbers, strings,
``DATE '...'``, ``TIMESTAMP '...'``, ``TIMESTAMP_NTZ '...'``, ``X'...'``, `TRUE`, `FALSE`, `NULL`, and a
`CAST` of these. A name that is no plain one stands in backticks. Times without a zone are UTC.

NULL is SQL's: what is neither true nor false matches no row. To that end a NOT is carried down to the
comparisons, where it leaves null as it is; a comparison that is null for every row is then as good as false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NoReturn

from delta_sharing_client.errors import ColumnError, FilterError, MissingDependencyError
from delta_sharing_client.protocol.partition_values import (
    fit_decimal,
    parse_date,
    parse_partition_value,
    parse_timestamp,
    to_float32,
)
from delta_sharing_client.protocol.predicates import (
    And,
    Compare,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    bind_comparison,
    bind_filters,
)
from delta_sharing_client.protocol.schema import DecimalType, PrimitiveType, StructField, StructType

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

_SUPPORTED: Final = (
    "a filter as SQL text compares columns with literals: = == != <> < <= > >= <=>, [NOT] IN, [NOT] BETWEEN, "
    "[NOT] LIKE 'prefix%', IS [NOT] NULL, AND, OR, NOT"
)
_OPERATORS: Final[Mapping[str, Operator]] = {
    "eq": "=",
    "neq": "!=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
}
_FLIPPED: Final[Mapping[Operator, Operator]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS: Final = {"TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long"}
_EPOCH: Final = datetime(1970, 1, 1)

#: What Spark's SQL text is made of, as far as strings go; the groups are those that hold a string.
_TEXT = re.compile(
    r"""--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`|\b[xX]'[^']*'
    |\b[rR](?P<raw>'[^']*'|"[^"]*")
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(
    r"""\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))|''|"" """.rstrip(), re.DOTALL
)
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}
_PLACEHOLDER = re.compile(r"'\$string(\d+)\$'")


def parse_sql_filter(text: str, schema: StructType) -> Predicate | None:
    """Bind a filter written as SQL text to a table's columns.

    Args:
        text: a condition, such as what stands behind WHERE.
        schema: the table's columns.

    Returns:
        The predicate; None where every row matches.

    Raises:
        FilterError: it is no SQL, or says what no filter can; the message names the part.
        ColumnError: a column is unknown.
        MissingDependencyError: sqlglot is not installed.
    """
    source = _Source(text)
    node = source.parse()
    if node is None:
        return None
    try:
        result = _Binder(source, schema).condition(node, negated=False)
    except RecursionError:
        raise FilterError("filters: the SQL text is nested too deeply") from None
    if isinstance(result, bool):
        return None if result else _never(schema)
    return result


def _never(schema: StructType) -> Predicate:
    if not schema.fields:
        raise FilterError("filters: the table has no column to filter by")
    return And((IsNull(schema.fields[0]), Not(IsNull(schema.fields[0]))))


class _Source:
    """SQL text whose strings are taken out of it, since no two parsers agree on what is in them."""

    def __init__(self, text: str) -> None:
        self.strings: list[str] = []
        self._originals: list[str] = []
        self._text = _TEXT.sub(self._take, text)

    def _take(self, match: re.Match[str]) -> str:
        if match["raw"] is not None:
            value = match["raw"][1:-1]
        elif match["string"] is not None:
            value = _ESCAPE.sub(_unescape, match["string"][1:-1])
        else:
            return match[0]
        self.strings.append(value)
        self._originals.append(match[0])
        return f"'$string{len(self.strings) - 1}$'"

    def parse(self) -> Expression | None:
        """Return the text's syntax tree; None where there is nothing in it."""
        try:
            from sqlglot import Dialect, exp
            from sqlglot.errors import SqlglotError
        except ImportError:
            raise MissingDependencyError(
                package="sqlglot", extra="sql", purpose="a filter given as SQL text"
            ) from None
        try:
            nodes = [n for n in Dialect.get_or_raise("spark").parse_into(exp.Condition, self._text) if n]
        except SqlglotError as error:
            raise FilterError(
                f"filters: the SQL text cannot be parsed{self._where(error)}; {_SUPPORTED}"
            ) from None
        except RecursionError:
            raise FilterError("filters: the SQL text is nested too deeply") from None
        if len(nodes) > 1:
            raise FilterError(f"filters: the SQL text holds {len(nodes)} statements; write one condition")
        return nodes[0] if nodes else None

    def _where(self, error: Exception) -> str:
        """Where the parser gave up, as far as it tells."""
        details = getattr(error, "errors", None)
        known = details[0] if details else {}
        near = self.original(f"{known.get('highlight') or ''}{known.get('end_context') or ''}").strip()
        return f" at {near[:60]!r}" if near else ""

    def original(self, text: str) -> str:
        """Put the strings back."""
        return _PLACEHOLDER.sub(lambda match: self._originals[int(match[1])], text)

    def show(self, node: Expression) -> str:
        """A part of the text, for messages."""
        text = self.original(node.sql(dialect="spark", comments=False))
        return text if len(text) <= 80 else text[:77] + "..."

    def string(self, text: str) -> str:
        """The string that stands in a literal of the syntax tree."""
        match = _PLACEHOLDER.fullmatch(f"'{text}'")
        return self.strings[int(match[1])] if match else text


def _unescape(match: re.Match[str]) -> str:
    """What an escape in a string stands for in Spark; an unknown one for its last character."""
    short, long, octal, other = match.groups()
    try:
        if short or long:
            return chr(int(short or long, 16))
    except (ValueError, OverflowError):
        raise FilterError(f"filters: {match[0]} in the SQL text is no character") from None
    if octal:
        return chr(int(octal, 8))
    return _ESCAPED.get(other, other) if other else match[0][0]


class _Binder:
    """Binds a syntax tree to a table's columns.

    A condition comes out as a predicate, or as a bool where it is the same for every row.
    """

    def __init__(self, source: _Source, schema: StructType) -> None:
        self._source = source
        self._schema = schema
        self._conditions: Mapping[str, Callable[[Expression, bool], Predicate | bool]] = {
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

    def condition(self, node: Expression, negated: bool) -> Predicate | bool:
        """Bind a condition, or its opposite."""
        node = _bare(node)
        bind = self._conditions.get(node.key)
        if bind is None:
            self._unsupported(node, "is no condition that a filter can hold")
        return bind(node, negated)

    def _connected(self, node: Expression, negated: bool) -> Predicate | bool:
        conjunction = (node.key == "and") != negated
        parts: list[Predicate] = []
        decided = False
        for operand in _operands(node):
            part = self.condition(operand, negated)
            if isinstance(part, bool):
                decided = decided or part != conjunction
            elif isinstance(part, And if conjunction else Or):
                parts.extend(part.parts)
            else:
                parts.append(part)
        if decided or not parts:
            return conjunction != decided
        if len(parts) == 1:
            return parts[0]
        return And(tuple(parts)) if conjunction else Or(tuple(parts))

    def _comparison(self, node: Expression, negated: bool) -> Predicate | bool:
        self._check(node, "this", "expression")
        return self._compare(node, node.this, _OPERATORS[node.key], node.expression, negated)

    def _compare(
        self, node: Expression, left: Expression, op: Operator, right: Expression, negated: bool
    ) -> Predicate | bool:
        one, other = self._operand(left), self._operand(right)
        if not isinstance(one, StructField):
            one, other, op = other, one, _FLIPPED[op]
        if isinstance(other, StructField):
            self._unsupported(node, "compares two columns")
        if isinstance(one, StructField):
            return False if other is None else _signed(bind_comparison(one, op, other), negated)
        if one is None or other is None:
            return False
        return self._constant(node, op, one, other) != negated

    def _constant(self, node: Expression, op: Operator, one: Any, other: Any) -> bool:
        """Compare two literals."""
        numbers = int | float | Decimal
        if type(one) is not type(other) and not (isinstance(one, numbers) and isinstance(other, numbers)):
            self._unsupported(node, "compares literals of two types")
        try:
            return bool(
                {
                    "=": one == other,
                    "!=": one != other,
                    "<": one < other,
                    "<=": one <= other,
                    ">": one > other,
                    ">=": one >= other,
                }[op]
            )
        except (TypeError, InvalidOperation):
            self._unsupported(node, "compares literals that cannot be compared")

    def _null_safe(self, node: Expression, negated: bool) -> Predicate | bool:
        self._check(node, "this", "expression")
        one, other = self._operand(node.this), self._operand(node.expression)
        if not isinstance(one, StructField):
            one, other = other, one
        if isinstance(other, StructField):
            self._unsupported(node, "compares two columns")
        if not isinstance(one, StructField):
            if one is None or other is None:
                return (one is other) != negated
            return self._constant(node, "=", one, other) != negated
        if other is None:
            return _signed(IsNull(one), negated)
        equal = bind_comparison(one, "=", other)
        return Or((IsNull(one), _signed(equal, True))) if negated else equal

    def _in(self, node: Expression, negated: bool) -> Predicate | bool:
        self._check(node, "this", "expressions", "negate")
        negated ^= bool(node.args.get("negate"))
        column = self._operand(node.this)
        if not isinstance(column, StructField):
            self._unsupported(node, "looks for something that is no column")
        if not node.expressions:
            self._unsupported(node, "has an empty list")
        values = [self._literal(item) for item in node.expressions]
        known = [value for value in values if value is not None]
        if not known or (negated and len(known) < len(values)):
            return False
        bound = bind_filters([(column.name, "in", known)], self._schema)
        return bound is not None and _signed(bound, negated)

    def _between(self, node: Expression, negated: bool) -> Predicate | bool:
        self._check(node, "this", "low", "high", "negate")
        negated ^= bool(node.args.get("negate"))
        bounds: list[tuple[Operator, str]] = [(">=", "low"), ("<=", "high")]
        parts = [self._compare(node, node.this, op, node.args[name], negated) for op, name in bounds]
        deciding = negated  # of a negated BETWEEN one true half is enough, else one false half
        if any(part is deciding for part in parts):
            return deciding
        rest = tuple(part for part in parts if not isinstance(part, bool))
        if len(rest) < 2:
            return rest[0] if rest else not deciding
        return Or(rest) if negated else And(rest)

    def _like(self, node: Expression, negated: bool) -> Predicate | bool:
        escape: Any = "\\"
        like = node
        if node.key == "escape":
            self._check(node, "this", "expression")
            like, escape = node.this, self._literal(node.expression)
            if like.key != "like" or not isinstance(escape, str) or len(escape) != 1:
                self._unsupported(node, "is no LIKE with one character as its escape")
        self._check(like, "this", "expression", "negate")
        negated ^= bool(like.args.get("negate"))
        column, pattern = self._operand(like.this), self._operand(like.expression)
        if not isinstance(column, StructField) or isinstance(pattern, StructField):
            self._unsupported(node, "is no column LIKE 'prefix%'")
        if column.type != PrimitiveType("string"):
            self._unsupported(node, f"takes a column of strings, and {column.name!r} is {column.type}")
        if pattern is None:
            return False
        prefix, more = _prefix(pattern, escape) if isinstance(pattern, str) else (None, False)
        if prefix is None:
            self._unsupported(node, "has a pattern that is no prefix: only a % at its end can be answered")
        if not more:
            return _signed(Compare(column, "=", prefix), negated)
        following = _after(prefix)
        halves: list[Predicate] = [Compare(column, ">=", prefix)]
        if following is not None:
            halves.append(Compare(column, "<", following))
        signed = tuple(_signed(half, negated) for half in halves)
        return signed[0] if len(signed) == 1 else (Or(signed) if negated else And(signed))

    def _is(self, node: Expression, negated: bool) -> Predicate | bool:
        self._check(node, "this", "expression", "negate")
        negated ^= bool(node.args.get("negate"))
        wanted = _bare(node.expression)
        what = self._operand(node.this)
        if wanted.key == "null":
            if isinstance(what, StructField):
                return _signed(IsNull(what), negated)
            return (what is None) != negated
        if wanted.key != "boolean":
            self._unsupported(node, "is no IS NULL, IS TRUE or IS FALSE")
        if not isinstance(what, StructField):
            return (what is wanted.this) != negated
        if what.type != PrimitiveType("boolean"):
            self._unsupported(node, f"takes a column of booleans, and {what.name!r} is {what.type}")
        equal = Compare(what, "=", bool(wanted.this))
        return Or((IsNull(what), Not(equal))) if negated else equal

    def _truth(self, node: Expression, negated: bool) -> Predicate:
        column = self._column(node)
        if column.type != PrimitiveType("boolean"):
            self._unsupported(node, f"is a column of type {column.type}, and no condition by itself")
        return _signed(Compare(column, "=", True), negated)

    def _operand(self, node: Expression) -> Any:
        """A column, or the value of a literal; None for NULL."""
        node = _bare(node)
        return self._column(node) if node.key == "column" else self._literal(node)

    def _column(self, node: Expression) -> StructField:
        self._check(node, "this", "table", "db", "catalog")
        names = [part for part in (node.args.get(key) for key in ("catalog", "db", "table", "this")) if part]
        if any(part.key != "identifier" for part in names):
            self._unsupported(node, "is no column")
        name = ".".join(part.name for part in names)
        column = self._schema.find(name)
        if len(names) > 1:
            hint = f"; for the column of that name write `{name}`" if column else ""
            self._unsupported(node, f"is no column of the table, but a field of one{hint}")
        if column is None:
            raise ColumnError(
                f"filters names the column {name!r}, which the table does not have; "
                f"it has {', '.join(self._schema.names)}",
                columns=[name],
            )
        return column

    def _literal(self, node: Expression) -> Any:
        node = _bare(node)
        try:
            return self._value(node)
        except FilterError:
            raise
        except (ValueError, ArithmeticError) as error:
            reason = "" if isinstance(error, InvalidOperation) else f": {error}"
            self._unsupported(node, f"is no such value{reason}")

    def _value(self, node: Expression) -> Any:
        key = node.key
        if key == "literal":
            if node.is_string:
                return self._source.string(node.this)
            return int(node.this) if node.this.isdigit() else Decimal(node.this)
        if key == "null":
            return None
        if key == "boolean":
            return bool(node.this)
        if key == "hexstring":
            return bytes.fromhex("0" * (len(node.this) % 2) + node.this)
        if key == "neg":
            value = self._literal(node.this)
            if value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool)):
                # Not `-value`, which rounds a decimal to the digits of the context.
                return value.copy_negate() if isinstance(value, Decimal) else None if value is None else -value
        if key in ("cast", "trycast"):
            self._check(node, "this", "to", "safe")
            if _bare(node.this).key == "column":
                self._unsupported(node, "casts a column")
            return self._cast(self._literal(node.this), node)
        self._unsupported(node, "is neither a column nor a literal")

    def _cast(self, value: Any, node: Expression) -> Any:
        """A literal as another type, where that changes nothing of it."""
        target = node.args["to"]
        name = getattr(target.this, "name", "")
        if value is None:
            return None
        text = value if isinstance(value, str) else None
        if name == "DATE" and (text is not None or type(value) is date):
            return value if text is None else parse_date(text)
        if name in ("TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMPLTZ"):
            if text is not None:
                wall_clock = name in ("TIMESTAMP", "TIMESTAMPNTZ")
                return _EPOCH + timedelta(microseconds=parse_timestamp(text, wall_clock=wall_clock))
            if isinstance(value, date):
                return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        if name == "BOOLEAN" and (text is not None or isinstance(value, bool)):
            return value if text is None else parse_partition_value(text, PrimitiveType("boolean"))
        if name in ("TEXT", "VARCHAR") and (text is not None or type(value) in (int, date)):
            return str(value)
        if name == "BINARY" and isinstance(value, str | bytes):
            return value.encode() if isinstance(value, str) else value
        if isinstance(value, int | float | Decimal | str) and not isinstance(value, bool):
            number = Decimal(text.strip()) if text is not None else value
            if name in _INTEGERS:
                if number != int(number):
                    self._unsupported(node, "would round a number")
                return parse_partition_value(str(int(number)), PrimitiveType(_INTEGERS[name]))
            if name in ("FLOAT", "DOUBLE"):
                return to_float32(float(number)) if name == "FLOAT" else float(number)
            if name == "DECIMAL":
                sizes = [int(parameter.name) for parameter in target.expressions] or [10]
                return fit_decimal(Decimal(number), DecimalType(sizes[0], sizes[1] if len(sizes) > 1 else 0))
        self._unsupported(node, "is no cast that a filter can hold")

    def _check(self, node: Expression, *known: str) -> None:
        """Raise if the syntax tree says more of a node than is understood here."""
        if any(value and name not in known for name, value in node.args.items()):
            self._unsupported(node, "has a part that a filter cannot hold")

    def _unsupported(self, node: Expression, why: str) -> NoReturn:
        raise FilterError(f"filters: {self._source.show(node)} {why}; {_SUPPORTED}")


def _bare(node: Expression) -> Expression:
    """What stands in parentheses."""
    while node.key == "paren":
        node = node.this
    return node


def _operands(node: Expression) -> Iterator[Expression]:
    """The parts of a chain of ANDs, or of ORs, however long it is."""
    chain: list[Expression] = []
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
    """The literal beginning of a LIKE pattern, and whether more may follow; None if the pattern is no prefix."""
    literal = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            if position + 1 == len(pattern) or pattern[position + 1] not in ("%", "_", escape):
                return None, False
            position += 1
            character = pattern[position]
        elif character in "%_":
            more = set(pattern[position:]) == {"%"}
            return ("".join(literal), True) if more else (None, False)
        literal.append(character)
        position += 1
    return "".join(literal), False


def _after(prefix: str) -> str | None:
    """The least string behind all that begin with `prefix`, by code points; None where there is none."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(0xE000 if following == 0xD800 else following)
