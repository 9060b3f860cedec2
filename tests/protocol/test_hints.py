"""What the server is told of a filter: exactly spelt, and never more than is true (see the filter properties)."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest

from delta_sharing_client.protocol.hints import json_hint, merge_json_hints, sql_hints
from delta_sharing_client.protocol.predicates import And, Compare, In, Not, Or, bind_filters
from delta_sharing_client.protocol.schema import DecimalType, PrimitiveType, StructField, StructType

KINDS = ["boolean", "byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp"]
OTHERS = ["timestamp_ntz", "binary"]
SCHEMA = StructType(
    (
        *(StructField(kind, PrimitiveType(kind)) for kind in [*KINDS, *OTHERS]),
        StructField("decimal", DecimalType(5, 2)),
        StructField("a b", PrimitiveType("long")),
        StructField("current_date", PrimitiveType("long")),
        StructField("data", PrimitiveType("long")),
    )
)
PARTITIONS = [name for name in SCHEMA.names if name != "data"]


def bind(*filters):
    return bind_filters(list(filters), SCHEMA)


def as_json(*filters, partitions=PARTITIONS):
    text = json_hint(bind(*filters), partitions)
    return None if text is None else json.loads(text)


def as_sql(*filters, partitions=PARTITIONS):
    return sql_hints(bind(*filters), partitions)


def column(name, kind):
    return {"op": "column", "name": name, "valueType": kind}


def literal(value, kind):
    return {"op": "literal", "value": value, "valueType": kind}


def equal(name, kind, value):
    return {"op": "equal", "children": [column(name, kind), literal(value, kind)]}


class TestJson:
    def test_examples_of_the_protocol(self):
        assert as_json(("date", "=", "2021-04-29")) == equal("date", "date", "2021-04-29")
        assert as_json(("date", "=", "2021-04-29"), ("integer", "<", 25)) == {
            "op": "and",
            "children": [
                equal("date", "date", "2021-04-29"),
                {"op": "lessThan", "children": [column("integer", "int"), literal("25", "int")]},
            ],
        }
        assert as_json(("integer", "is not", None)) == {
            "op": "not",
            "children": [{"op": "isNull", "children": [column("integer", "int")]}],
        }

    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            ("=", "equal"),
            ("<", "lessThan"),
            ("<=", "lessThanOrEqual"),
            (">", "greaterThan"),
            (">=", "greaterThanOrEqual"),
        ],
    )
    def test_operators(self, op, expected):
        assert as_json(("long", op, 5)) == {
            "op": expected,
            "children": [column("long", "long"), literal("5", "long")],
        }

    def test_not_equal(self):
        assert as_json(("long", "!=", 5)) == {"op": "not", "children": [equal("long", "long", "5")]}

    @pytest.mark.parametrize(
        ("name", "value", "text", "kind"),
        [
            ("boolean", True, "true", "bool"),
            ("boolean", False, "false", "bool"),
            ("byte", -5, "-5", "int"),
            ("short", 5, "5", "int"),
            ("integer", 5, "5", "int"),
            ("long", 2**60 + 1, str(2**60 + 1), "long"),
            ("float", 0.5, "0.5", "float"),
            ("double", 0.1, "0.1", "double"),
            ("string", 'it\'s "ü"\\', 'it\'s "ü"\\', "string"),
            ("date", date(1, 2, 3), "0001-02-03", "date"),
            ("timestamp", "2024-01-01 12:00:00", "2024-01-01T12:00:00Z", "timestamp"),
            ("timestamp", "0001-01-01T00:00:00.000001Z", "0001-01-01T00:00:00.000001Z", "timestamp"),
        ],
    )
    def test_values(self, name, value, text, kind):
        assert as_json((name, "=", value)) == equal(name, kind, text)

    def test_in(self):
        assert as_json(("long", "in", [5])) == equal("long", "long", "5")
        assert as_json(("long", "in", [5, 6])) == {
            "op": "or",
            "children": [equal("long", "long", "5"), equal("long", "long", "6")],
        }
        assert as_json(("long", "not in", [5])) == {"op": "not", "children": [equal("long", "long", "5")]}

    def test_or(self):
        assert as_json([("long", "=", 1)], [("long", "=", 2)])["op"] == "or"

    @pytest.mark.parametrize(
        "term",
        [
            ("data", "=", 1),
            ("decimal", "=", 1),
            ("binary", "=", b"x"),
            ("timestamp_ntz", "=", "2024-01-01"),
            ("float", "=", 0.1),
            ("float", "in", [0.5, 0.1]),
            ("double", "=", float("nan")),
            ("double", "<", float("inf")),
            ("string", "<", "\ue000"),
            ("timestamp", ">", "0001-01-01T00:00:00+01:00"),
            ("timestamp", "<", datetime(9999, 12, 31, 23, 59, 59, 999_999).isoformat() + "-01:00"),
            ("long", "in", []),
            ("long", "not in", []),
            ("long", "=", 1.5),
            ("long", "in", list(range(500))),
        ],
        ids=str,
    )
    def test_what_is_not_said(self, term):
        """Not of a partition column, of no type of the protocol's, or read otherwise by some servers."""
        assert as_json(term) is None
        assert as_sql(term) == ()
        assert as_json(("integer", "=", 1), term) == equal("integer", "int", "1")
        assert as_json([("integer", "=", 1)], [term]) is None
        assert as_json([("integer", "=", 1)], [term, ("integer", "=", 2)])["op"] == "or"

    def test_a_part_of_a_negation_cannot_be_left_out(self):
        known, other = bind(("long", "=", 1)), bind(("data", "=", 1))
        assert json_hint(Not(And((known, other))), PARTITIONS) is None
        assert json_hint(Not(Or((known, other))), PARTITIONS) is None
        assert json.loads(json_hint(Not(Or((known, known))), PARTITIONS))["op"] == "not"

    def test_nothing_to_say(self):
        assert json_hint(None, PARTITIONS) is None
        assert sql_hints(None, PARTITIONS) == ()
        assert as_json(("long", "=", 1), partitions=[]) is None

    def test_names_of_partition_columns_in_another_case(self):
        assert as_json(("long", "=", 1), partitions=["LONG"]) == equal("long", "long", "1")

    def test_odd_names_are_said_in_json(self):
        assert as_json(("a b", "=", 1)) == equal("a b", "long", "1")


class TestSql:
    @pytest.mark.parametrize(
        ("term", "text"),
        [
            (("long", "=", 5), "long = 5"),
            (("long", "!=", 5), "long <> 5"),
            (("long", ">=", -5), "long >= -5"),
            (("double", "<", 0.5), "double < 0.5"),
            (("string", ">", "foo"), "string > 'foo'"),
            (("date", "<=", "2024-01-01"), "date <= '2024-01-01'"),
            (("timestamp", "<", "2024-01-01"), "timestamp < '2024-01-01T00:00:00Z'"),
            (("boolean", "=", True), "boolean = true"),
            (("long", "is", None), "long IS NULL"),
            (("long", "is not", None), "long IS NOT NULL"),
        ],
    )
    def test_simple_comparisons(self, term, text):
        assert as_sql(term) == (text,)

    def test_all_that_hold(self):
        assert as_sql(("long", ">", 1), ("data", "=", 5), ("date", "<", "2024-01-01")) == (
            "long > 1",
            "date < '2024-01-01'",
        )

    @pytest.mark.parametrize(
        "term",
        [
            ("string", "=", "it's"),
            ("string", "=", "a\\b"),
            ("a b", "=", 1),
            ("current_date", "=", 1),
            ("long", "in", [1, 2]),
            ("long", "not in", [1]),
        ],
    )
    def test_what_dialects_differ_in_is_not_said(self, term):
        assert as_sql(term) == ()

    def test_or_is_not_said(self):
        assert as_sql([("long", "=", 1)], [("long", "=", 2)]) == ()


class TestMerge:
    OURS = '{"op":"x"}'

    def test_one_of_them(self):
        assert merge_json_hints(None, None) is None
        assert merge_json_hints("given", None) == "given"
        assert merge_json_hints(None, self.OURS) == self.OURS

    def test_both(self):
        merged = merge_json_hints('{"op":"y"}', self.OURS)
        assert json.loads(merged) == {"op": "and", "children": [{"op": "y"}, {"op": "x"}]}

    @pytest.mark.parametrize("given", ["", "nonsense", "[]", "1", "null", "{"])
    def test_what_we_cannot_read_goes_alone(self, given):
        assert merge_json_hints(given, self.OURS) == given


def test_a_hint_is_compact_json():
    text = json_hint(Compare(SCHEMA.find("string"), "=", "ü"), PARTITIONS)
    assert text.isascii()
    assert ": " not in text
    assert json_hint(In(SCHEMA.find("decimal"), (Decimal(1),)), PARTITIONS) is None
