"""Servers that leave out files by `jsonPredicateHints`, as the reference server does and did."""

import json
import math
import struct
from datetime import datetime

UNKNOWN = object()


def java_day(text):
    """The day that Java makes of a date: in the Julian calendar before 15 October 1582, gaps carried over."""
    year, month, day = map(int, text.split("-"))
    julian = (year, month, day) < (1582, 10, 15)
    a = (14 - month) // 12
    y, m = year + 4800 - a, month + 12 * a - 3
    days = day + (153 * m + 2) // 5 + 365 * y + y // 4
    return days - 32083 if julian else days - y // 100 + y // 400 - 32045


def java_float(text, narrow):
    """A float by which Java orders: NaN after everything, -0.0 before 0.0."""
    number = float(text)
    if narrow:
        number = struct.unpack("f", struct.pack("f", number))[0] if math.isfinite(number) else number
    return (number != number, 0.0 if number != number else number, math.copysign(1, number) > 0)


def java(text, value_type):
    """A text as the value that Java compares; raises ValueError where it does."""
    if value_type == "bool":
        return {"true": True, "false": False}[text.lower()]
    if value_type in ("int", "long"):
        bits = 31 if value_type == "int" else 63
        number = int(text)
        if not -(2**bits) <= number < 2**bits:
            raise ValueError
        return number
    if value_type in ("float", "double"):
        return java_float(text, value_type == "float")
    if value_type == "date":
        return java_day(text)
    if value_type == "timestamp":
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None or "T" not in text:
            raise ValueError
        return moment.timestamp() * 1000 // 1
    return text.encode("utf-16-be")


class Reference:
    """Evaluates a tree over ranges: True is "some row may be so", and NOT just turns that around."""

    def __init__(self, partition, stats):
        self.partition = partition
        try:
            told = json.loads(stats, parse_float=str, parse_int=str) if stats else {}
        except ValueError:
            told = {}
        self.low, self.high = told.get("minValues", {}), told.get("maxValues", {})

    def keeps(self, hint):
        return self.evaluate(json.loads(hint)) is not False

    def range(self, column):
        name = column["name"]
        if name in self.partition:
            value = self.partition[name]
            return None if value is None else (value, value)
        if name in self.low and name in self.high:
            return str(self.low[name]), str(self.high[name])
        return None

    def evaluate(self, node):
        try:
            return self.result(node)
        except (ValueError, KeyError, OverflowError):
            return UNKNOWN

    def result(self, node):
        op, children = node["op"], node["children"]
        if op in ("and", "or"):
            each = [self.evaluate(child) for child in children]
            return (op == "or") if (op == "or") in each else UNKNOWN if UNKNOWN in each else op == "and"
        if op == "not":
            inner = self.evaluate(children[0])
            return inner if inner is UNKNOWN else not inner
        if op == "isNull":
            return self.range(children[0]) is None
        column, literal = children
        assert column["valueType"] == literal["valueType"]
        found = self.range(column)
        if found is None:
            return UNKNOWN
        low, high = (java(text, column["valueType"]) for text in found)
        point = java(literal["value"], literal["valueType"])
        if low > high:
            raise ValueError
        inside = low <= point <= high
        return {
            "equal": inside,
            "lessThan": low < point,
            "lessThanOrEqual": inside or low < point,
            "greaterThan": high > point,
            "greaterThanOrEqual": inside or high > point,
        }[op]


class Older(Reference):
    """Knows partition columns and some types; what it does not understand raises, and the file is kept."""

    def keeps(self, hint):
        if any(f'"valueType":"{kind}"' in hint for kind in ("float", "double", "timestamp")):
            return True
        try:
            return self.result(json.loads(hint))
        except (ValueError, KeyError):
            return True

    def range(self, column):
        value = self.partition.get(column["name"])
        return None if value is None else (value, value)

    def result(self, node):
        op, children = node["op"], node["children"]
        if op in ("and", "or"):
            decisive = op == "or"
            return decisive if any(self.result(child) is decisive for child in children) else not decisive
        if op == "not":
            return not self.result(children[0])
        found = super().result(node)
        if found is UNKNOWN:
            raise ValueError
        return found
