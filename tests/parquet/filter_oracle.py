"""Random tables and filters, and a plain reading of what the filters mean: no Arrow, no shortcuts."""

import json
import math
import struct
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

from delta_sharing_client.model.actions import AddFile, Metadata
from delta_sharing_client.model.schema import StructField, StructType, parse_type_name
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.secrets import SecretUrl

EPOCH = datetime(1970, 1, 1)
DAY = 86_400_000_000
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
SCALES = {"decimal(7,2)": 2, "decimal(38,6)": 6}
KINDS = [*BITS, "float", "double", "string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", *SCALES]
OPERATORS = ["=", "==", "!=", "<>", "<", "<=", ">", ">="]


def data_type(kind):
    return parse_type_name(kind)


def as_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


# ---- values of columns: times are microseconds ----


def scaled(unscaled, scale):
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


_LAST = (datetime.max - EPOCH) // timedelta(microseconds=1)
#: Few values of each kind, so that filters meet them, and such as things go wrong with.
POOLS = {
    **{kind: [-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1] for kind, bits in BITS.items()},
    "double": [math.nan, 0.0, -0.0, 0.1, 1.0, math.inf, 2.0**53],
    "float": [math.nan, as_float32(0.1), -0.0, 1.0, -math.inf, 16777216.0],
    "string": ["", "a", "it's", "\ue000", "🦆", "x" * 32, "x" * 32 + "a", "x" * 31 + "🦆", "x" * 31 + "é"],
    "boolean": [False, True],
    "binary": [b"", b"a", b"a\x00", b"\xff"],
    "date": [date(1, 1, 1), date(1970, 1, 4), date(1970, 1, 5), date(9999, 12, 31)],
    "timestamp": [-1500, -1, 0, 1, 1500, _LAST],
    "timestamp_ntz": [-62_135_596_800_000_000, -1500, 0, 1, 1500],
    "decimal(7,2)": [scaled(n, 2) for n in (-150, 0, 1, 50, 9_999_999)],
    "decimal(38,6)": [scaled(n, 6) for n in (-1, 0, 500_000, 10**17 + 1, 10**38 - 1)],
}


def values(kind):
    """Values of a column."""
    return st.sampled_from(POOLS[kind])


def moment(micros):
    return EPOCH + timedelta(microseconds=micros)


# ---- literals, each with what it means: (as the user writes it, exact value) ----


def _exact(value):
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return Fraction(value)


def _meant(value, kind):
    """What a literal means; against decimals a float means what it is written as."""
    if kind in SCALES and isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))
    return _comparable(value)


@st.composite
def literals(draw, kind):
    """A literal for a column, and its exact meaning in terms of the column's values."""
    if kind in BITS or kind in SCALES:
        base = draw(values(kind) if kind in BITS else values(kind).map(Decimal))
        form = draw(st.sampled_from(["same", "half", "beyond", "float", "text", "decimal", "special", "numpy"]))
        if form == "half":
            base = Decimal(base) + Decimal("0.005")
        elif form == "beyond":
            base = draw(st.sampled_from([10**40, -(10**40), 2**63, -(2**63) - 1, 128, -129, 1e300]))
        elif form == "float":
            base = float(base)
            return base, _meant(base, kind)
        elif form == "special":
            base = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
        elif form == "text":
            return str(base), _exact(base)
        elif form == "decimal":
            base = Decimal(base)
        elif form == "numpy" and isinstance(base, int):
            return np.int64(base), Fraction(base)
        return base, _exact(base)
    if kind in ("float", "double"):
        base = draw(st.sampled_from([*POOLS[kind], 0.1, 0.1]))
        form = draw(st.sampled_from(["same", "int", "numpy", "text"]))
        if form == "int":
            base = draw(st.sampled_from([0, 1, 2**53 + 1, 2**53 + 3, 16777217, 10**400, -(10**400)]))
        elif form == "numpy":
            base = draw(st.sampled_from([np.float32, np.float64]))(base if not abs(base) > 1e38 else 0.0)
            return base, _exact(float(base))
        elif form == "text":
            return repr(base), _exact(base)
        return base, _exact(base)
    if kind == "date":
        day = draw(values(kind))
        form = draw(st.sampled_from(["date", "text", "datetime", "pandas", "numpy"]))
        shown = {
            "date": day,
            "text": day.isoformat(),
            "datetime": datetime(day.year, day.month, day.day),
            "pandas": pd.Timestamp(day.isoformat()),
            "numpy": np.datetime64(day.isoformat()),
        }[form]
        return shown, day
    if kind in ("timestamp", "timestamp_ntz"):
        micros = draw(values(kind))
        form = draw(st.sampled_from(["datetime", "aware", "text", "nanos", "numpy", "pandas"]))
        time = moment(micros)
        if form == "datetime":
            return time, Fraction(micros)
        if form == "aware" and kind == "timestamp" and 1 < time.year < 9999:
            return time.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=5, minutes=30))), Fraction(micros)
        if form == "nanos" and 1 < time.year < 9999:
            return time.isoformat(timespec="microseconds") + "500", Fraction(micros) + Fraction(1, 2)
        if form == "numpy":
            return np.datetime64(time.isoformat()), Fraction(micros)
        if form == "pandas" and 1700 < time.year < 2200:
            return pd.Timestamp(time) + pd.Timedelta(1, "ns"), Fraction(micros) + Fraction(1, 1000)
        return time.isoformat(), Fraction(micros)
    value = draw(values(kind))
    return value, value


def plain_literals(kind):
    """A literal for each value of the pool, and some between them: (as the user writes it, what it means)."""
    if kind in ("timestamp", "timestamp_ntz"):
        times = [(moment(micros), Fraction(micros)) for micros in POOLS[kind]]
        return [*times, ("1970-01-01T00:00:00.0000005", Fraction(1, 2))]
    more = []
    if kind in BITS or kind in SCALES or kind in ("float", "double"):
        more = [0.1, 0.5, 2**53 + 1, 10**40, math.nan, -math.inf, *map(float, POOLS[kind])]
    return [(value, _meant(value, kind)) for value in [*POOLS[kind], *more]]


# ---- what filters mean ----


def _comparable(value):
    return _exact(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else value


def compare(op, value, literal):
    """SQL's comparison of a column's value with the exact meaning of a literal: True, False or None."""
    if value is None or literal is None:
        return None
    left, right = _comparable(value), literal
    if left != left or right != right:  # NaN
        return op in ("!=", "<>")
    return {
        "=": left == right,
        "==": left == right,
        "!=": left != right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


@dataclass(frozen=True)
class Term:
    """One term of a filter: as the user writes it, and what its literals mean."""

    name: str
    op: str
    shown: object = field(compare=False)
    meaning: object = field(compare=False)

    def holds(self, row):
        value = row[self.name]
        if self.op in ("is", "is not"):
            return (value is None) == (self.op == "is")
        if self.op in ("in", "not in"):
            each = [compare("=", value, literal) for literal in self.meaning]
            found = True if True in each else None if None in each else False
            if not self.meaning and value is None:
                found = None
            return found if self.op == "in" or found is None else not found
        return compare(self.op, value, self.meaning)

    @property
    def as_tuple(self):
        return (self.name, self.op, self.shown)


@st.composite
def terms(draw, kinds, operators=(*OPERATORS, "in", "not in", "is", "is not")):
    name = draw(st.sampled_from(sorted(kinds)))
    kind = kinds[name]
    op = draw(st.sampled_from(operators))
    if op in ("is", "is not"):
        return Term(name, op, None, None)
    if op in ("in", "not in"):
        chosen = draw(st.lists(literals(kind), max_size=3))
        shown, meaning = [s for s, _ in chosen], [m for _, m in chosen]
        if op == "in" and draw(st.integers(0, 4)) == 0:
            shown.append(None)
            meaning.append(None)
        return Term(name, op, shown, meaning)
    shown, meaning = draw(literals(kind))
    return Term(name, op, shown, meaning)


def filters(kinds):
    """Groups of terms: OR of ANDs; most often one term."""
    one = st.tuples(st.tuples(terms(kinds, OPERATORS)))
    return one | st.lists(st.lists(terms(kinds), min_size=1, max_size=3), min_size=1, max_size=3)


def as_filters(groups):
    return [[term.as_tuple for term in group] for group in groups]


def matches(groups, row):
    """Whether a row remains: only where the whole is true."""
    return any(all(term.holds(row) is True for term in group) for group in groups)


# ---- tables ----


@st.composite
def tables(draw, *, max_columns=3, max_rows=6, kinds=KINDS):
    """Columns by name with their kinds, and rows."""
    names = ["c", "D", "e.f"][: draw(st.integers(1, max_columns))]
    columns = {name: draw(st.sampled_from(kinds)) for name in names}
    count = draw(st.integers(0, max_rows))
    rows = [{name: draw(st.none() | values(kind)) for name, kind in columns.items()} for _ in range(count)]
    return columns, rows


def schema_of(kinds):
    return StructType(tuple(StructField(name, data_type(kind)) for name, kind in kinds.items()))


def as_batch(kinds, rows):
    """The rows as Arrow, with a column that numbers them."""
    schema = arrow_schema(schema_of(kinds))
    arrays = []
    for position, name in enumerate(kinds):
        target = schema.field(position).type
        items = [row[name] for row in rows]
        plain = pa.int64() if pa.types.is_timestamp(target) else target
        arrays.append(pa.array(items, plain).cast(target))
    arrays.append(pa.array(range(len(rows)), pa.int64()))
    return pa.record_batch(arrays, names=[*kinds, "#"])


# ---- files: partition values and statistics, as writers make them ----


def partition_text(kind, value):
    """A value as a writer serializes it."""
    if value is None:
        return None
    if kind == "boolean":
        return str(value).lower()
    if kind in ("timestamp", "timestamp_ntz"):
        return moment(value).isoformat(" ")
    if kind == "binary":
        return value.decode()
    if kind == "float":
        return f"{value:.9g}".replace("inf", "Infinity").replace("nan", "NaN")
    return str(value)


def stats_json(draw, kinds, rows, deleted=()):
    """Statistics of a file as writers make them: complete, or parts missing; cut, rounded, loose."""
    complete = draw(st.booleans())
    tight = draw(st.booleans())
    counted = [row for i, row in enumerate(rows) if i not in deleted] if tight else rows
    stats = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    if not tight:
        stats["tightBounds"] = False
    elif draw(st.booleans()):
        stats["tightBounds"] = True
    for name, kind in kinds.items():
        found = [row[name] for row in counted if row[name] is not None]
        nulls = len(counted) - len(found)
        if complete or draw(st.booleans()):
            if not tight and 0 < nulls < len(rows):
                nulls = draw(st.integers(1, len(rows) - 1))
            stats["nullCount"][name] = nulls
        ordered = [v for v in found if v == v]
        if kind in ("boolean", "binary") or not ordered:
            continue
        low, high = min(ordered), max(ordered)
        if not tight:
            low, high = (
                min([low, *draw(st.lists(values(kind).filter(lambda v: v == v), max_size=1))]),
                max([high, *draw(st.lists(values(kind).filter(lambda v: v == v), max_size=1))]),
            )
        low_text, high_text = _bound(draw, kind, low, upper=False), _bound(draw, kind, high, upper=True)
        if low_text is not None and (complete or draw(st.integers(0, 3))):
            stats["minValues"][name] = low_text
        if high_text is not None and (complete or draw(st.integers(0, 3))):
            stats["maxValues"][name] = high_text
    if not complete and draw(st.booleans()):
        del stats["numRecords"]
    # Decimals are numbers in JSON, with all their digits.
    text = json.dumps(stats, default=lambda value: f"<{value}>")
    return text.replace('"<', "").replace('>"', "")


def _bound(draw, kind, value, *, upper):
    """A bound as writers put it: cut, rounded, saturated, in one of its spellings."""
    if kind == "string":
        return draw(st.sampled_from([value[:32], *_cuts(value, upper=upper)]))
    if kind == "date":
        return value.isoformat()
    if kind in ("timestamp", "timestamp_ntz"):
        towards_epoch = draw(st.booleans())
        cut = moment(-(-value // 1000 * 1000) if towards_epoch and value < 0 else value - value % 1000)
        if draw(st.booleans()) and kind == "timestamp" and 1 < cut.year < 9999:
            zoned = cut.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=-7)))
            return zoned.isoformat(timespec="milliseconds")
        return cut.isoformat(timespec="milliseconds") + ("Z" if draw(st.booleans()) else "")
    if kind in SCALES:
        saturated = max(min(value, Decimal(2**63 - 1)), Decimal(-(2**63)))
        unscaled = int(value.scaleb(SCALES[kind], Context(prec=60)))
        limit = scaled(max(min(unscaled, 2**63 - 1), -(2**63)), SCALES[kind])
        return draw(st.sampled_from([value, float(value), saturated, float(saturated), limit]))
    if kind in ("float", "double"):
        if math.isinf(value):
            # With no word for infinity, or saturated.
            most = math.copysign(3.4028234663852886e38 if draw(st.booleans()) else sys.float_info.max, value)
            return draw(st.sampled_from([None, most, "Infinity" if value > 0 else "-Infinity"]))
        single = as_float32(value)
        return draw(st.sampled_from([value, single, float(f"{single:.9g}")]))
    if kind == "long":
        return draw(st.sampled_from([value, float(value), int(float(value))]))
    return value


def _cuts(value, *, upper):
    """A string cut at 32 UTF-16 units, perhaps inside a character, or at 32 bytes."""
    units, data = value.encode("utf-16-le"), value.encode()
    if len(units) > 64:
        half = units[:64].decode("utf-16-le", "surrogatepass")
        for cut in (half, half.encode("utf-8", "replace").decode()):
            yield cut + ("\ufffd" if upper else "")
    if len(data) > 32:
        yield data[:32].decode(errors="replace")


def metadata_of(kinds, partition_columns):
    fields = [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in kinds.items()]
    return Metadata(
        "id",
        json.dumps({"type": "struct", "fields": fields}),
        partition_columns=tuple(partition_columns),
    )


def add_file(partition_values, stats):
    return AddFile(SecretUrl("https://h/p?sig=x"), "f1", partition_values, 10, stats)
