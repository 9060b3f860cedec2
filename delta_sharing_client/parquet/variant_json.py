"""JSON text of variants, in the format of Spark's `to_json`.

Decimals have no trailing zeros; floats and doubles have the shortest unique digits, in Java's layout. Times are
ISO 8601 with a space, instants in UTC. Binaries are base64; NaN and infinities are strings. Fields of an object
keep the variant's order, which is that of their names.
"""

from __future__ import annotations

import base64
import math
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import chain, repeat
from json.encoder import encode_basestring
from typing import Final

import numpy as np

from delta_sharing_client.parquet import variant_binary as vb
from delta_sharing_client.parquet.variant_binary import MalformedVariantError

#: Levels of objects and arrays.
MAX_DEPTH: Final = 2000
#: Maximum characters of names in one text: a few bytes can repeat a long name many times.
MAX_NAMES: Final = 256 * 1024 * 1024

_DAY_MICROS: Final = 86_400_000_000
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()

#: Escapes of Jackson, with capital digits for control characters.
_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(char): escape
    for char, escape in {
        '"': '\\"',
        "\\": "\\\\",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
    }.items()
}


def json_names(metadata: bytes) -> list[str]:
    """Return a dictionary's names as in an object's text: comma, quoted name, colon."""
    return [f",{_quoted(name)}:" for name in vb.parse_metadata(metadata)]


def to_json(value: bytes, names: Sequence[str]) -> str:
    """Return the JSON text of a variant's `value`, with the names from `json_names`.

    Raises:
        MalformedVariantError: the bytes are malformed, or nested deeper than `MAX_DEPTH`.
    """
    out: list[str] = []
    # The open containers: their remaining nodes and closing bracket.
    around: list[tuple[Iterator[tuple[str, int]], str]] = []
    nodes: Iterator[tuple[str, int]] = iter((("", 0),))
    closing = ""
    # Nodes must not overlap: a few bytes could otherwise stand for unlimited text.
    size = left = len(value)
    names_left = MAX_NAMES
    while True:
        for before, at in nodes:
            if at >= size:
                raise MalformedVariantError("an element lies outside of its bytes")
            basic = value[at] & 3
            if basic == vb.SHORT_STRING:
                end = at + 1 + (value[at] >> 2)
                text = _quoted(value[at + 1 : end])
            elif basic == vb.PRIMITIVE:
                text, end = _primitive(value, at)
            else:
                ids, starts, end = vb.container(value, at)
                text = "" if starts else "{}" if basic == vb.OBJECT else "[]"
            left -= end - at
            if end > size or left < 0:
                raise MalformedVariantError("its bytes end too soon" if end > size else "its elements overlap")
            out.append(before + text)
            if text:
                continue
            if len(around) >= MAX_DEPTH:
                raise MalformedVariantError(f"it is nested deeper than {MAX_DEPTH} levels")
            around.append((nodes, closing))
            if ids is None:
                nodes, closing = zip(chain(("[",), repeat(",")), starts, strict=False), "]"
            else:
                befores = _field_names(ids, names)
                names_left -= sum(map(len, befores))
                if names_left < 0:
                    raise MalformedVariantError(f"its JSON text has more than {MAX_NAMES:,} characters of names")
                nodes, closing = zip(befores, starts, strict=True), "}"
            break
        else:
            out.append(closing)
            if not around:
                return "".join(out)
            nodes, closing = around.pop()


def _field_names(ids: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the quoted names of an object's fields, with the text before each."""
    try:
        befores = [names[number] for number in ids]
    except IndexError:
        raise MalformedVariantError(
            f"field {max(ids)} is not among the {len(names)} names of its metadata"
        ) from None
    if len(set(befores)) != len(befores):
        raise MalformedVariantError("an object has the same field twice")
    befores[0] = "{" + befores[0][1:]
    return befores


def _quoted(text: bytes) -> str:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise MalformedVariantError("a text in it is not UTF-8") from None
    quoted = encode_basestring(decoded)
    return quoted if "\\u00" not in quoted else f'"{decoded.translate(_ESCAPES)}"'


def _primitive(value: bytes, at: int) -> tuple[str, int]:
    """Return the text of a node without children, and its end."""
    kind = value[at] >> 2
    if kind >= len(vb.WIDTHS):
        raise MalformedVariantError(f"it holds a value of type {kind}, which this release does not know")
    start = at + 1
    if kind in (vb.BINARY, vb.STRING):
        start += 4
        end = start + vb.unsigned(value, at + 1, 4)
    else:
        end = start + vb.WIDTHS[kind]
    if end > len(value):
        raise MalformedVariantError("its bytes end too soon")
    return _WRITERS[kind](value[start:end]), end


def _integer(data: bytes) -> str:
    return str(int.from_bytes(data, "little", signed=True))


def _double(data: bytes) -> str:
    number: float = struct.unpack("<d", data)[0]
    if number and abs(number) < 1e-300 and len(_digits(repr(number))[0]) == 1:
        shorter = f"{number:.1e}"  # Java uses two digits if the second one makes the text more exact
        return _java_number(number, shorter if float(shorter) == number else repr(number))
    return _java_number(number, repr(number))


def _float(data: bytes) -> str:
    number: float = struct.unpack("<f", data)[0]
    if not math.isfinite(number):
        return _java_number(number, "")
    single = np.float32(number)
    text = np.format_float_scientific(single, unique=True, trim="-")
    if number and abs(number) < 1e-36 and len(_digits(text)[0]) == 1:
        shorter = f"{number:.1e}"
        text = shorter if np.float32(shorter) == single else text
    return _java_number(number, text)


def _digits(text: str) -> tuple[str, int]:
    """Return the digits d1d2d3... and the exponent of a number 0.d1d2d3... times ten to the exponent."""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    shift = len(whole) - (len(whole + fraction) - len(digits))
    return digits.rstrip("0") or "0", shift + int(exponent or 0)


def _java_number(number: float, shortest: str) -> str:
    """Return a number in the layout of Java's `Double.toString`; NaN and infinities are quoted."""
    if not math.isfinite(number):
        return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return sign + "0.0"
    digits, point = _digits(shortest)
    if 1e-3 <= abs(number) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _decimal(data: bytes) -> str:
    scale = data[0]
    unscaled = int.from_bytes(data[1:], "little", signed=True)
    digits = str(abs(unscaled))
    if scale > 38 or len(digits) > 38:
        raise MalformedVariantError(f"it holds a decimal of {len(digits)} digits and scale {scale}")
    whole, fraction = digits, ""
    if scale:
        digits = digits.rjust(scale + 1, "0")
        whole, fraction = digits[:-scale], digits[-scale:].rstrip("0")
    return ("-" if unscaled < 0 else "") + whole + ("." + fraction if fraction else "")


def _date_text(days: int) -> str:
    """Return a day since 1970-01-01 in ISO 8601, for any year."""
    ordinal = days + _EPOCH_DAY
    if 1 <= ordinal <= _LAST_DAY:
        return date.fromordinal(ordinal).isoformat()
    # Each 400 years have the same number of days.
    cycles, rest = divmod(ordinal - 1, 146_097)
    within = date.fromordinal(rest + 1)
    year = within.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{within.month:02d}-{within.day:02d}"


def _time_text(micros: int, nanos: int = 0) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if fraction or nanos:
        text += "." + f"{fraction * 1000 + nanos:09d}".rstrip("0")
    return text


def _moment(data: bytes, *, nanos: bool, zone: str) -> str:
    micros, rest = int.from_bytes(data, "little", signed=True), 0
    if nanos:
        micros, rest = divmod(micros, 1000)
    days, within = divmod(micros, _DAY_MICROS)
    return f'"{_date_text(days)} {_time_text(within, rest)}{zone}"'


def _time(data: bytes) -> str:
    micros = int.from_bytes(data, "little", signed=True)
    if not 0 <= micros < _DAY_MICROS:
        raise MalformedVariantError("it holds a time that is not within a day")
    return f'"{_time_text(micros)}"'


_WRITERS: Final[tuple[Callable[[bytes], str], ...]] = (
    lambda _: "null",
    lambda _: "true",
    lambda _: "false",
    _integer,
    _integer,
    _integer,
    _integer,
    _double,
    _decimal,
    _decimal,
    _decimal,
    lambda data: f'"{_date_text(int.from_bytes(data, "little", signed=True))}"',
    lambda data: _moment(data, nanos=False, zone="+00:00"),
    lambda data: _moment(data, nanos=False, zone=""),
    _float,
    lambda data: f'"{base64.b64encode(data).decode()}"',
    _quoted,
    _time,
    lambda data: _moment(data, nanos=True, zone="+00:00"),
    lambda data: _moment(data, nanos=True, zone=""),
    lambda data: f'"{uuid.UUID(bytes=data)}"',
)
