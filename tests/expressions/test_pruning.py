"""Outcomes of predicates over column bounds: a superset of the outcomes for the rows."""

import itertools
import math

import pytest

from delta_sharing_client.expressions.column_bounds import ANY, FALSE, NULL, TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import And, Compare, In, IsNull, Not, Or
from delta_sharing_client.model.schema import PrimitiveType, StructField

X = StructField("x", PrimitiveType("long"))
F = StructField("f", PrimitiveType("double"))
S = StructField("s", PrimitiveType("string"))
NAN = math.nan
NAMES = {TRUE: "T", FALSE: "F", NULL: "N"}


def show(result):
    return "".join(name for bit, name in NAMES.items() if result & bit)


def over(predicate, domain=None, **domains):
    """The outcomes where every column has one domain, or each has its own."""
    return show(outcomes(predicate, lambda column: domains.get(column.name, domain)))


class TestCompare:
    @pytest.mark.parametrize(
        ("op", "value", "expected"),
        [
            ("=", 0, "F"),
            ("=", 1, "TF"),
            ("=", 3, "TF"),
            ("=", 5, "TF"),
            ("=", 6, "F"),
            ("!=", 0, "T"),
            ("!=", 3, "TF"),
            ("!=", 6, "T"),
            ("<", 1, "F"),
            ("<", 2, "TF"),
            ("<", 5, "TF"),
            ("<", 6, "T"),
            ("<=", 0, "F"),
            ("<=", 1, "TF"),
            ("<=", 5, "T"),
            (">", 0, "T"),
            (">", 1, "TF"),
            (">", 5, "F"),
            (">=", 1, "T"),
            (">=", 5, "TF"),
            (">=", 6, "F"),
        ],
    )
    def test_bounds(self, op, value, expected):
        assert over(Compare(X, op, value), ColumnBounds(1, 5, has_null=False)) == expected
        assert over(Compare(X, op, value), ColumnBounds(1, 5)) == expected + "N"

    @pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
    def test_one_value(self, op):
        for value, constant in itertools.product(range(3), repeat=2):
            expected = {
                "=": constant == value,
                "!=": constant != value,
                "<": constant < value,
                "<=": constant <= value,
                ">": constant > value,
                ">=": constant >= value,
            }[op]
            assert over(Compare(X, op, value), ColumnBounds.constant(constant)) == ("T" if expected else "F")

    def test_one_bound(self):
        assert over(Compare(X, "<", 5), ColumnBounds(upper=4)) == "TN"
        assert over(Compare(X, ">", 5), ColumnBounds(upper=4)) == "FN"
        assert over(Compare(X, "<", 5), ColumnBounds(lower=4)) == "TFN"
        assert over(Compare(X, "<", 5), ColumnBounds(lower=5)) == "FN"
        assert over(Compare(X, "=", 5), ColumnBounds(lower=6)) == "FN"

    def test_unknown_bounds_allow_every_outcome(self):
        assert over(Compare(X, "=", 5)) == "TFN"
        assert outcomes(Compare(X, "=", 5), lambda column: None) == ANY
        assert over(Compare(X, "=", 5), ColumnBounds()) == "TFN"

    def test_a_column_of_nulls(self):
        assert over(Compare(X, "=", 5), ColumnBounds.constant(None)) == "N"
        assert over(In(X, (5,)), ColumnBounds.constant(None)) == "N"
        assert over(IsNull(X), ColumnBounds.constant(None)) == "T"

    def test_bounds_of_another_type_are_ignored(self):
        assert over(Compare(X, "=", 5), ColumnBounds("a", "b", has_null=False)) == "TF"
        assert over(Compare(S, "<", "x"), ColumnBounds(1, 2, has_null=False)) == "TF"


class TestNan:
    BOUNDED = ColumnBounds(1.0, 5.0, has_null=False, may_be_nan=True)

    @pytest.mark.parametrize(
        ("op", "value", "expected"),
        [
            ("<", 6.0, "TF"),
            ("<=", 5.0, "TF"),
            (">", 0.0, "TF"),
            (">=", 1.0, "TF"),
            ("!=", 6.0, "T"),
            ("=", 6.0, "F"),
            ("!=", 3.0, "TF"),
            (">", 5.0, "F"),
        ],
    )
    def test_bounds_do_not_exclude_nan(self, op, value, expected):
        assert over(Compare(F, op, value), self.BOUNDED) == expected

    def test_equal_bounds_do_not_exclude_nan(self):
        known = ColumnBounds(2.0, 2.0, has_null=False, may_be_nan=True)
        assert over(Compare(F, "=", 2.0), known) == "TF"
        assert over(Compare(F, "!=", 2.0), known) == "TF"
        assert over(In(F, (2.0,)), known) == "TF"

    def test_a_constant_excludes_nan(self):
        assert over(Compare(F, "=", 2.0), ColumnBounds.constant(2.0)) == "T"
        assert over(Compare(F, "!=", 2.0), ColumnBounds.constant(2.0)) == "F"

    def test_a_constant_nan(self):
        known = ColumnBounds.constant(NAN)
        assert not known.has_null
        for op in ("=", "<", "<=", ">", ">="):
            assert "F" in over(Compare(F, op, 2.0), known)
        assert "T" in over(Compare(F, "!=", 2.0), known)
        assert "F" in over(In(F, (2.0, NAN)), known)

    def test_a_literal_nan(self):
        for op in ("=", "<", "<=", ">", ">="):
            assert over(Compare(F, op, NAN), self.BOUNDED) == "F"
        assert over(Compare(F, "!=", NAN), self.BOUNDED) == "T"
        assert over(In(F, (NAN,)), self.BOUNDED) == "F"


class TestIn:
    KNOWN = ColumnBounds(1, 5, has_null=False)

    @pytest.mark.parametrize(
        ("values", "expected"),
        [((), "F"), ((0,), "F"), ((0, 6), "F"), ((0, 3), "TF"), ((1, 2, 3, 4, 5), "TF"), ((5,), "TF")],
    )
    def test_bounds(self, values, expected):
        assert over(In(X, values), self.KNOWN) == expected
        assert over(Not(In(X, values)), self.KNOWN) == {"F": "T", "TF": "TF"}[expected]

    def test_constant(self):
        assert over(In(X, (1, 2)), ColumnBounds.constant(2)) == "T"
        assert over(In(X, (1, 2)), ColumnBounds.constant(3)) == "F"

    def test_an_empty_list_and_nulls(self):
        assert over(In(X, ()), ColumnBounds(1, 5)) == "FN"
        assert over(In(X, ())) == "FN"


class TestIsNull:
    def test_from_column_bounds(self):
        assert over(IsNull(X), ColumnBounds(1, 5)) == "TF"
        assert over(IsNull(X), ColumnBounds(1, 5, has_null=False)) == "F"
        assert over(IsNull(X)) == "TF"
        assert over(Not(IsNull(X)), x=ColumnBounds(1, 5, has_null=False)) == "T"


class TestLogic:
    """Three-valued logic: the outcomes of a tree are those of all combinations of its leaves'."""

    LEAVES = {
        "": None,
        "T": ColumnBounds.constant(1),
        "F": ColumnBounds.constant(2),
        "N": ColumnBounds.constant(None),
        "TN": ColumnBounds(1, 1),
        "FN": ColumnBounds(2, 2),
        "TF": ColumnBounds(1, 2, has_null=False),
    }

    @staticmethod
    def combine(kind, left, right):
        if kind == "and":
            return "F" if "F" in (left, right) else "N" if "N" in (left, right) else "T"
        return "T" if "T" in (left, right) else "N" if "N" in (left, right) else "F"

    @pytest.mark.parametrize("left", LEAVES)
    @pytest.mark.parametrize("right", LEAVES)
    @pytest.mark.parametrize(("kind", "node"), [("and", And), ("or", Or)])
    def test_two_columns(self, kind, node, left, right):
        one = Compare(StructField("l", PrimitiveType("long")), "=", 1)
        two = Compare(StructField("r", PrimitiveType("long")), "=", 1)
        domains = {"l": self.LEAVES[left], "r": self.LEAVES[right]}
        expected = {self.combine(kind, a, b) for a in left or "TFN" for b in right or "TFN"}
        assert set(over(node((one, two)), **domains)) == expected
        assert set(over(Not(node((one, two))), **domains)) == {{"T": "F", "F": "T", "N": "N"}[e] for e in expected}

    def test_many_parts(self):
        parts = tuple(Compare(StructField(f"c{i}", PrimitiveType("long")), "=", 1) for i in range(20))
        assert over(And(parts), **{f"c{i}": ColumnBounds.constant(1) for i in range(20)}) == "T"
        assert over(And(parts), **{f"c{i}": ColumnBounds.constant(1 + (i == 7)) for i in range(20)}) == "F"
        assert over(Or(parts), **{f"c{i}": ColumnBounds.constant(2 - (i == 7)) for i in range(20)}) == "T"
        assert over(Or(parts), **{f"c{i}": ColumnBounds.constant(2) for i in range(20)}) == "F"
