"""The exact row filter: SQL's NULL, IEEE's NaN, and every type; the properties are in test_filter_properties."""

import math
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from delta_sharing_client.expressions.predicates import And, Compare, In, IsNull, Not, Or
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.parquet.residual_filter import filter_batch

NAN = math.nan


def column(kind, name="c"):
    return StructField(name, PrimitiveType(kind) if isinstance(kind, str) else kind)


def batch(kind, items):
    schema = arrow_schema(StructType((column(kind),)))
    target = schema.field(0).type
    array = pa.array(items, pa.int64() if pa.types.is_timestamp(target) else target).cast(target)
    return pa.record_batch([array, pa.array(range(len(items)), pa.int64())], names=["c", "#"])


def kept(kind, items, predicate):
    return filter_batch(batch(kind, items), predicate).column("#").to_pylist()


LONG = column("long")


class TestNull:
    ITEMS = [1, None, 2]

    @pytest.mark.parametrize(
        ("predicate", "expected"),
        [
            (Compare(LONG, "=", 1), [0]),
            (Compare(LONG, "!=", 1), [2]),
            (Not(Compare(LONG, "=", 1)), [2]),
            (IsNull(LONG), [1]),
            (Not(IsNull(LONG)), [0, 2]),
            (In(LONG, (1,)), [0]),
            (Not(In(LONG, (1,))), [2]),
            (In(LONG, ()), []),
            (Not(In(LONG, ())), [0, 2]),
            (Or((IsNull(LONG), Compare(LONG, "=", 1))), [0, 1]),
            (Or((Compare(LONG, "=", 1), IsNull(LONG))), [0, 1]),
            (And((Compare(LONG, ">", 0), Compare(LONG, "<", 2))), [0]),
            (Not(And((Compare(LONG, ">", 0), IsNull(LONG)))), [0, 2]),
            (Not(And((Compare(LONG, ">", 5), IsNull(LONG)))), [0, 2]),
            (Not(Or((Compare(LONG, ">", 1), IsNull(LONG)))), [0]),
            (And((IsNull(LONG), Not(IsNull(LONG)))), []),
        ],
        ids=str,
    )
    def test_three_values(self, predicate, expected):
        assert kept("long", self.ITEMS, predicate) == expected

    def test_not_in_with_null(self):
        null = Compare(LONG, "=", None)
        assert kept("long", [1, 2, None], Not(Or((Compare(LONG, "=", 1), null)))) == []


class TestNan:
    ITEMS = [1.0, NAN, None, -0.0, math.inf]

    @pytest.mark.parametrize("kind", ["float", "double"])
    @pytest.mark.parametrize(
        ("op", "value", "expected"),
        [
            ("=", 1.0, [0]),
            ("!=", 1.0, [1, 3, 4]),
            ("<", 2.0, [0, 3]),
            (">", 0.0, [0, 4]),
            (">=", 0.0, [0, 3, 4]),
            ("=", NAN, []),
            ("!=", NAN, [0, 1, 3, 4]),
            ("<=", NAN, []),
            ("=", math.inf, [4]),
            ("=", 0.0, [3]),
        ],
    )
    def test_compare(self, kind, op, value, expected):
        assert kept(kind, self.ITEMS, Compare(column(kind), op, value)) == expected

    @pytest.mark.parametrize("kind", ["float", "double"])
    def test_in(self, kind):
        assert kept(kind, self.ITEMS, In(column(kind), (NAN,))) == []
        assert kept(kind, self.ITEMS, Not(In(column(kind), (NAN, 1.0)))) == [1, 3, 4]
        assert kept(kind, self.ITEMS, In(column(kind), (1.0, math.inf))) == [0, 4]

    @pytest.mark.parametrize("kind", ["float", "double"])
    @pytest.mark.parametrize("zero", [0.0, -0.0])
    def test_the_two_zeros_are_equal(self, kind, zero):
        items = [0.0, -0.0, 1.0]
        assert kept(kind, items, In(column(kind), (zero,))) == [0, 1]
        assert kept(kind, items, Not(In(column(kind), (zero,)))) == [2]
        assert kept(kind, items, Compare(column(kind), "=", zero)) == [0, 1]

    def test_a_float_is_compared_exactly(self):
        items = [0.1, 0.5]
        assert kept("float", items, Compare(column("float"), "=", 0.1)) == []
        assert kept("float", items, Compare(column("float"), ">", 0.1)) == [0, 1]
        assert kept("float", items, In(column("float"), (0.1, 0.5))) == [1]


@pytest.mark.parametrize(
    ("kind", "items", "middle"),
    [
        ("byte", [-128, 0, 127], 0),
        ("short", [-(2**15), 0, 2**15 - 1], 0),
        ("integer", [-(2**31), 0, 2**31 - 1], 0),
        ("long", [-(2**63), 2**60 + 1, 2**63 - 1], 2**60 + 1),
        ("float", [-1.5, 0.25, 3.0], 0.25),
        ("double", [-1.5, 0.1, 3.0], 0.1),
        ("string", ["a", "ä", "🦆"], "ä"),
        ("boolean", [False, True], True),
        ("binary", [b"", b"\x00", b"\xff"], b"\x00"),
        ("date", [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)], date(1970, 1, 1)),
        ("timestamp", [-(10**16), 1, 10**17], 1),
        ("timestamp_ntz", [-(10**16), 1, 10**17], 1),
        (DecimalType(38, 2), [Decimal("-1.25"), Decimal("9" * 36 + ".99")], Decimal("9" * 36 + ".99")),
    ],
    ids=str,
)
def test_every_type_in_order(kind, items, middle):
    place = items.index(middle)
    every = range(len(items))
    for op, expected in [
        ("=", [place]),
        ("!=", [i for i in every if i != place]),
        ("<", [i for i in every if i < place]),
        ("<=", [i for i in every if i <= place]),
        (">", [i for i in every if i > place]),
        (">=", [i for i in every if i >= place]),
    ]:
        assert kept(kind, items, Compare(column(kind), op, middle)) == expected, op
    assert kept(kind, [*items, None], In(column(kind), (middle, items[0]))) == sorted({0, place})
    assert kept(kind, [*items, None], Not(In(column(kind), (middle,)))) == [i for i in every if i != place]


def test_names_are_exact():
    lower, upper = column("long", "a"), column("long", "A")
    both = pa.record_batch([pa.array([1, 2]), pa.array([2, 1])], names=["a", "A"])
    assert filter_batch(both, Compare(upper, "=", 1)).to_pydict() == {"a": [2], "A": [1]}
    assert filter_batch(both, Compare(lower, "=", 1)).to_pydict() == {"a": [1], "A": [2]}


def test_an_empty_batch():
    empty = batch("long", [])
    assert filter_batch(empty, Compare(LONG, "=", 1)).num_rows == 0
    assert filter_batch(empty, Not(In(LONG, (1,)))).num_rows == 0
