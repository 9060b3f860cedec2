"""Syntax trees and literals of SQL text in Spark's dialect, parsed by sqlglot.

Releases of sqlglot differ from Spark, and from each other, in the meaning of backslashes and doubled quotes.
Strings are therefore replaced by placeholders before parsing, and unescaped by the rules of Spark 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import FilterError, MissingDependencyError
from delta_sharing_client.model.partition_values import (
    fit_decimal,
    parse_date,
    parse_partition_value,
    parse_timestamp,
    to_float32,
    zone_of,
)
from delta_sharing_client.model.schema import DecimalType, PrimitiveType

#: A node of sqlglot's syntax tree, whose class differs between its versions; `node.key` names its kind.
Node: TypeAlias = Any

SUPPORTED: Final = (
    "a filter as SQL text compares columns with literals: = == != <> < <= > >= <=>, [NOT] IN, [NOT] BETWEEN, "
    "[NOT] LIKE 'prefix%', IS [NOT] NULL, AND, OR, NOT; for example region = 'Europe' AND amount > 5"
)
#: Earlier versions of sqlglot give AND no precedence over OR, or read times with a zone as without.
_SQLGLOT: Final = 26
_INTEGERS: Final = {"TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long"}
_INSTANTS: Final = ("TIMESTAMPTZ", "TIMESTAMPLTZ")
_WALL_CLOCKS: Final = ("TIMESTAMP", "TIMESTAMPNTZ")
_EPOCH: Final = datetime(1970, 1, 1)
#: More digits before the point than any column has.
_FAR: Final = 40

#: Comments and quoted names, which may contain quotes, and strings. What has no end comes last, and takes the rest
#: of the text, so that a search takes linear time.
_TEXT = re.compile(
    r"""--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*+`|\b[xX]'[^']*'
    |\b[rR](?P<raw>'[^']*'|"[^"]*")
    |(?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    |(?:/\*|[`'"]).*""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final[Mapping[str, re.Pattern[str]]] = {
    quote: re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))|" + quote * 2, re.DOTALL)
    for quote in "'\""
}
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}
_PLACEHOLDER = re.compile(r"'\$string(\d+)\$'")


class SqlText:
    """A condition as SQL text.

    Args:
        text: a condition, as after WHERE.

    Raises:
        FilterError: a string in it has an invalid escape.
    """

    def __init__(self, text: str) -> None:
        self._strings: list[str] = []
        self._originals: list[str] = []
        self._text = _TEXT.sub(self._take, text)

    def _take(self, match: re.Match[str]) -> str:
        if match["raw"] is not None:
            value = match["raw"][1:-1]
        elif match["string"] is not None:
            value = _unescaped(match["string"])
        else:
            return match[0]
        self._strings.append(value)
        self._originals.append(match[0])
        return f"'$string{len(self._strings) - 1}$'"

    def parse(self) -> Node | None:
        """Return the syntax tree; None if the text has only comments.

        Raises:
            FilterError: the text is not one condition.
            MissingDependencyError: sqlglot is not installed.
        """
        Dialect, exp, SqlglotError = _sqlglot()  # noqa: N806
        try:
            nodes = [node for node in Dialect.get_or_raise("spark").parse_into(exp.Condition, self._text) if node]
        except SqlglotError as error:
            raise FilterError(
                f"filters: the SQL text cannot be parsed{self._where(error)}; a name that is a word of SQL, or no "
                f"plain name, needs `backticks`; {SUPPORTED}"
            ) from None
        except RecursionError:
            raise FilterError("filters: the SQL text is nested too deeply") from None
        if len(nodes) > 1:
            raise FilterError(f"filters: the SQL text holds {len(nodes)} statements; write one condition")
        return nodes[0] if nodes else None

    def _where(self, error: Exception) -> str:
        """Return the position of the parser's error, if known."""
        known = (getattr(error, "errors", None) or [{}])[0]  # only a ParseError has them
        near = self._original(f"{known.get('highlight') or ''}{known.get('end_context') or ''}").strip()
        return f" at {near[:60]!r}" if near else ""

    def _original(self, text: str) -> str:
        """Replace the placeholders by the strings."""
        return _PLACEHOLDER.sub(lambda match: self._originals[int(match[1])], text)

    def unsupported(self, node: Node, why: str) -> FilterError:
        """Return the error for an unsupported part of the text."""
        return FilterError(f"filters: {self._shown(node)} {why}; {SUPPORTED}")

    def never_true(self, node: Node) -> FilterError:
        """Return the error for a comparison of something other than a column with NULL."""
        return FilterError(f"filters: {self._shown(node)} is never true; write IS NULL or IS NOT NULL")

    def _shown(self, node: Node) -> str:
        part = self._original(node.sql(dialect="spark", comments=False))
        return part if len(part) <= 80 else part[:77] + "..."

    def check(self, node: Node, *known: str) -> None:
        """Raise if a node has other arguments than `known`."""
        if any(value and name not in known for name, value in node.args.items()):
            raise self.unsupported(node, "has a part that a filter cannot hold")

    @staticmethod
    def bare(node: Node) -> Node:
        """Return a node without parentheses."""
        while node.key == "paren":
            node = node.this
        return node

    def literal(self, node: Node) -> Any:
        """Return the Python value of a literal, None for NULL; times with a zone are in UTC, others are naive.

        Raises:
            FilterError: the node is not a literal.
        """
        node = self.bare(node)
        try:
            return self._value(node)
        except FilterError:
            raise
        except InvalidOperation:
            raise self.unsupported(node, "is not such a value") from None
        except (ValueError, ArithmeticError) as error:
            raise self.unsupported(node, f"is not such a value: {error}") from None

    def _value(self, node: Node) -> Any:
        key = node.key
        if key == "literal" and node.is_string:
            match = _PLACEHOLDER.fullmatch(f"'{node.this}'")
            return self._strings[int(match[1])] if match else node.this
        if key == "literal":
            return int(node.this) if node.this.isdigit() else Decimal(node.this)
        if key == "null":
            return None
        if key == "boolean":
            return bool(node.this)
        if key == "hexstring":
            return bytes.fromhex("0" * (len(node.this) % 2) + node.this)
        if key == "neg":
            value = self.literal(node.this)
            if value is None or isinstance(value, Decimal):
                # Not `-value`, which rounds to the digits of the context.
                return None if value is None else value.copy_negate()
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        if key in ("cast", "trycast"):
            self.check(node, "this", "to", "safe")
            if self.bare(node.this).key == "column":
                raise self.unsupported(node, "casts a column")
            return self._cast(self.literal(node.this), node)
        raise self.unsupported(node, "is neither a column nor a literal")

    def _cast(self, value: Any, node: Node) -> Any:
        """Return a literal as another type, if its value does not change."""
        target = node.args["to"]
        name = getattr(target.this, "name", "")  # a user-defined type is a text
        if value is None:
            return None
        text = value if isinstance(value, str) else None
        if name == "DATE" and (text is not None or type(value) is date):
            return value if text is None else parse_date(text)
        if name in _INSTANTS + _WALL_CLOCKS:
            if text is not None:
                return _moment(text, wall_clock=name in _WALL_CLOCKS)
            if isinstance(value, date):
                return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        if name == "BOOLEAN" and (text is not None or isinstance(value, bool)):
            return value if text is None else parse_partition_value(text, PrimitiveType("boolean"))
        if name in ("TEXT", "VARCHAR") and not target.expressions and (text is not None or type(value) is int):
            return str(value)
        if name == "BINARY" and isinstance(value, str | bytes):
            return value.encode() if isinstance(value, str) else value
        if isinstance(value, int | float | Decimal | str) and not isinstance(value, bool):
            number = Decimal(text.strip()) if text is not None else Decimal(value)
            if name in ("FLOAT", "DOUBLE"):
                return to_float32(float(number)) if name == "FLOAT" else float(number)
            if number.is_finite() and number.adjusted() > _FAR:
                raise ValueError("it is too large")
            if name in _INTEGERS:
                if number != int(number):
                    raise ValueError("it has digits behind the point")
                return parse_partition_value(str(int(number)), PrimitiveType(_INTEGERS[name]))
            if name == "DECIMAL":
                sizes = [int(parameter.name) for parameter in target.expressions]
                precision, scale = (*sizes, 10, 0)[:2] if not sizes else (*sizes, 0)[:2]
                return fit_decimal(number, DecimalType(precision, scale))
        raise self.unsupported(node, "is not a cast that a filter can hold")


def _moment(text: str, *, wall_clock: bool) -> datetime:
    """Return a time as a datetime: in UTC if it has a zone, naive otherwise.

    Raises:
        ValueError: the text is not a time, or has a zone although the type has none.
    """
    zone = zone_of(text)
    if wall_clock and zone:
        raise ValueError(f"it has the zone {zone}, and TIMESTAMP_NTZ has none; write the time without the zone")
    return _EPOCH.replace(tzinfo=UTC if zone else None) + timedelta(microseconds=parse_timestamp(text))


def _sqlglot() -> tuple[Any, Any, type[Exception]]:
    """Import the parts of a supported release of sqlglot."""
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
    except ImportError:
        major = "0"
    else:
        # sqlglot does not declare the version for type checkers, and builds from a checkout lack it.
        major = str(getattr(sqlglot, "__version__", "0")).partition(".")[0]
    if not major.isdigit() or int(major) < _SQLGLOT:
        raise MissingDependencyError(
            package=f"sqlglot>={_SQLGLOT}", extra="sql", purpose="a filter given as SQL text"
        )
    return sqlglot.Dialect, sqlglot.exp, SqlglotError


def _unescaped(string: str) -> str:
    """Return the value of a quoted string."""
    try:
        value = _ESCAPE[string[0]].sub(_character, string[1:-1])
        # Two escapes may be a surrogate pair.
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    except (ValueError, OverflowError):
        raise FilterError(f"filters: {string[:60]} in the SQL text has a code that is not a character") from None


def _character(match: re.Match[str]) -> str:
    """Return the character of an escape in Spark; unknown escapes stand for their last character."""
    short, long, octal, other = match.groups()
    if short or long:
        return chr(int(short or long, 16))
    if octal:
        return chr(int(octal, 8))
    return _ESCAPED.get(other, other) if other else match[0][0]
