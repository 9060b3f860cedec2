"""The exact JSON of predicate hints, which never exclude a matching file (see the filter properties)."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest

from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.hints import HintColumns, json_hint, merge_json_hints, sql_hints
from delta_sharing_client.expressions.predicates import And, Compare, In, Not, Or
from delta_sharing_client.model.partition_values import to_float32
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField, StructType

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


#: Partition columns alone, without those that have statistics.
ONLY = HintColumns(partitions=frozenset(PARTITIONS))


def hint_of(predicate, columns=ONLY):
    text = json_hint(predicate, columns)
    return None if text is None else json.loads(text)


def as_json(*filters, columns=ONLY):
    return hint_of(bind(*filters), columns)


def as_sql(*filters, columns=ONLY):
    return sql_hints(bind(*filters), columns)


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

    def test_a_text_with_a_null_character_is_not_sent(self):
        for columns in (ONLY, HintColumns(partitions=frozenset(), data=frozenset(["string"]))):
            for op in ("=", "!=", "<=", ">"):
                assert as_json(("string", op, "a\0"), columns=columns) is None
            assert as_json(("string", "in", ["a", "a\0b"]), columns=columns) is None
            assert as_sql(("string", "=", "a\0"), columns=columns) == ()

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
            ("date", date(1583, 1, 1), "1583-01-01", "date"),
            ("timestamp", "2024-01-01 12:00:00", "2024-01-01T12:00:00Z", "timestamp"),
            ("timestamp", "0001-01-01T00:00:00.001Z", "0001-01-01T00:00:00.001000Z", "timestamp"),
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
            ("double", "=", 0.0),
            ("float", ">=", -0.0),
            ("date", "<", "1582-12-31"),
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
    def test_unsupported_comparisons_are_not_sent(self, term):
        """Not of a partition column, of no type of the protocol's, or read otherwise by some servers."""
        assert as_json(term) is None
        assert as_sql(term) == ()
        assert as_json(("integer", "=", 1), term) == equal("integer", "int", "1")
        assert as_json([("integer", "=", 1)], [term]) is None
        assert as_json([("integer", "=", 1)], [term, ("integer", "=", 2)])["op"] == "or"

    def test_a_negation_is_pushed_down_to_each_part(self):
        known, other = bind(("long", "=", 1)), bind(("data", "=", 1))
        unequal = {"op": "not", "children": [equal("long", "long", "1")]}
        assert hint_of(Not(And((known, other)))) is None
        assert hint_of(Not(Or((known, other)))) == unequal
        assert hint_of(Not(Or((known, known)))) == {"op": "and", "children": [unequal, unequal]}
        assert hint_of(Not(Not(known))) == equal("long", "long", "1")

    @pytest.mark.parametrize(
        ("op", "opposite"),
        [("<", "greaterThanOrEqual"), ("<=", "greaterThan"), (">", "lessThanOrEqual"), (">=", "lessThan")],
    )
    def test_a_negated_comparison(self, op, opposite):
        expected = {"op": opposite, "children": [column("long", "long"), literal("5", "long")]}
        assert hint_of(Not(bind(("long", op, 5)))) == expected

    def test_comparisons_with_nan_are_not_sent(self):
        less = {"op": "lessThan", "children": [column("double", "double"), literal("0.5", "double")]}
        assert hint_of(Not(bind(("double", "<", 0.5)))) == {"op": "not", "children": [less]}
        # For other engines NaN is greater than everything, so that it would be left out.
        assert hint_of(Not(bind(("double", ">", 0.5)))) is None
        assert hint_of(Not(bind(("double", "=", 0.5))))["op"] == "not"

    @pytest.mark.parametrize(
        ("op", "shown"),
        [
            ("<", [("lessThan", "12:00:00.124000")]),
            ("<=", [("lessThanOrEqual", "12:00:00.124000")]),
            (">", [("greaterThanOrEqual", "12:00:00.123000")]),
            (">=", [("greaterThanOrEqual", "12:00:00.123000")]),
            ("=", [("greaterThanOrEqual", "12:00:00.123000"), ("lessThanOrEqual", "12:00:00.124000")]),
        ],
    )
    def test_hints_on_times_between_milliseconds_are_widened(self, op, shown):
        nodes = [
            {
                "op": name,
                "children": [column("timestamp", "timestamp"), literal(f"2024-01-01T{time}Z", "timestamp")],
            }
            for name, time in shown
        ]
        expected = nodes[0] if len(nodes) == 1 else {"op": "and", "children": nodes}
        assert as_json(("timestamp", op, "2024-01-01T12:00:00.123456Z")) == expected

    def test_inequality_of_times_is_not_sent(self):
        assert as_json(("timestamp", "!=", "2024-01-01")) is None
        assert as_json(("timestamp", "not in", ["2024-01-01"])) is None

    def test_no_hint_without_a_supported_part(self):
        assert json_hint(None, ONLY) is None
        assert sql_hints(None, ONLY) == ()
        assert as_json(("long", "=", 1), columns=HintColumns(partitions=frozenset())) is None

    def test_names_of_partition_columns_in_another_case(self):
        columns = HintColumns.of(SCHEMA, ["LONG"])
        assert as_json(("long", "=", 1), columns=columns) == equal("long", "long", "1")
        assert columns.partitions == {"long"}

    def test_unusual_names_are_sent_as_json_hints(self):
        assert as_json(("a b", "=", 1)) == equal("a b", "long", "1")


#: Every column as one that only the statistics of files tell of.
DATA = HintColumns.of(SCHEMA, [])


class TestData:
    """Hints on data columns hold for each file that may have a matching row."""

    def test_comparisons(self):
        assert as_json(("long", ">=", 5), columns=DATA) == {
            "op": "greaterThanOrEqual",
            "children": [column("long", "long"), literal("5", "long")],
        }
        assert as_json(("long", "in", [1, 2]), columns=DATA) == {
            "op": "or",
            "children": [equal("long", "long", "1"), equal("long", "long", "2")],
        }

    def test_not_equal_is_less_or_greater(self):
        sides = [
            {"op": op, "children": [column("long", "long"), literal("5", "long")]}
            for op in ("lessThan", "greaterThan")
        ]
        assert as_json(("long", "!=", 5), columns=DATA) == {"op": "or", "children": sides}
        assert hint_of(Not(bind(("long", "=", 5))), DATA) == {"op": "or", "children": sides}

    @pytest.mark.parametrize(
        "predicate",
        [
            bind(("long", "is", None)),
            bind(("long", "is not", None)),
            bind(("long", "not in", [1])),
            bind(("double", "!=", 0.5)),
            bind(("double", "=", 1e39)),
            Not(bind(("double", "<", 0.5))),
            bind(("timestamp", "!=", "2024-01-01")),
            bind(("date", "=", "1500-01-01")),
            bind(("string", "=", "ü")),
            bind(("string", "<", "x" * 32)),
            bind(("string", "in", ["a", "x" * 40])),
            bind(("boolean", "=", True)),
            bind(("short", "=", 1)),
            bind(("byte", "=", 1)),
            bind(("decimal", "=", 1)),
            bind(("binary", "=", b"x")),
            bind(("timestamp_ntz", "=", "2024-01-01")),
        ],
        ids=lambda predicate: str(predicate)[:60],
    )
    def test_unsupported_comparisons_are_not_sent(self, predicate):
        """Statistics do not tell it, or some servers conclude too much from them."""
        assert hint_of(predicate, DATA) is None
        assert sql_hints(predicate, DATA) == ()

    def test_partition_columns_come_first(self):
        columns = HintColumns.of(SCHEMA, ["long"])
        both = as_json(("data", "=", 1), ("long", "=", 2), columns=columns)
        assert both == {"op": "and", "children": [equal("long", "long", "2"), equal("data", "long", "1")]}
        assert as_sql(("data", "=", 1), ("long", "=", 2), columns=columns) == ("long = 2",)
        either = as_json([("data", "=", 1)], [("long", "=", 2)], columns=columns)
        assert either == {"op": "or", "children": [equal("long", "long", "2"), equal("data", "long", "1")]}

    def test_a_column_that_was_a_float(self):
        metadata = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
        schema = StructType(
            (
                StructField("d", PrimitiveType("double"), metadata=metadata),
                StructField("l", PrimitiveType("long"), metadata=metadata),
            )
        )
        assert HintColumns.of(schema, []).data == {"d", "l"}

    @pytest.mark.parametrize("kind", ["float", "double"])
    @pytest.mark.parametrize("value", [0.5, -3.0, 0.0, 1e30])
    def test_bounds_of_floats_may_be_rounded_to_32_bits(self, kind, value):
        """The hint is slightly wider than the filter."""

        def sides(*filters):
            hint = as_json(*filters, columns=DATA)
            found = hint["children"] if hint["op"] == "and" else [hint]
            return {side["op"]: float(side["children"][1]["value"]) for side in found}

        (least, most) = (sides((kind, op, value)) for op in (">", "<="))
        assert least.keys() == {"greaterThanOrEqual"}
        assert most.keys() == {"lessThanOrEqual"}
        low, high = least["greaterThanOrEqual"], most["lessThanOrEqual"]
        assert low < value < high
        assert high - low <= abs(value) * 2**-20 + 1e-44
        assert sides((kind, "=", value)) == {**least, **most}
        assert kind == "double" or (to_float32(low), to_float32(high)) == (low, high)

    def test_integers_beyond_what_a_double_holds(self):
        value = 2**60 + 1
        hint = as_json(("long", "=", value), columns=DATA)
        low, high = (int(side["children"][1]["value"]) for side in hint["children"])
        assert low <= 2**60 <= value <= high < value + 2**20
        assert as_json(("long", "<", 2**63 - 1), columns=DATA)["children"][1]["value"] == str(2**63 - 1)

    def test_bounds_of_times_before_the_epoch_are_widened(self):
        hint = as_json(("timestamp", "<", "1969-12-31T23:59:59.999"), columns=DATA)
        assert hint["children"][1]["value"] == "1970-01-01T00:00:00Z"


class TestColumnMapping:
    """Servers may look for a column's values under its name where they lie under its physical name."""

    SCHEMA = StructType(
        tuple(
            StructField(name, PrimitiveType("long"), metadata={"delta.columnMapping.physicalName": physical})
            for name, physical in [("same", "same"), ("p", "col-1"), ("d", "col-2"), ("x", "y"), ("y", "x")]
        )
    )

    def columns(self, *partitions, mode="name"):
        return HintColumns.of(self.SCHEMA, partitions, mode)

    def test_hints_without_column_mapping(self):
        columns = self.columns("p", mode="none")
        assert (columns.partitions, columns.data, columns.renamed) == ({"p"}, {"same", "d", "x", "y"}, set())

    def test_renamed_columns(self):
        columns = self.columns("p", "x")
        assert (columns.partitions, columns.data, columns.renamed) == ({"p"}, {"same"}, {"p"})

    def test_a_renamed_partition_column_has_comparisons_only(self):
        def bound(*term):
            return bind_filters([term], self.SCHEMA)

        columns = self.columns("p", "same")
        assert hint_of(bound("p", "=", 1), columns) == equal("p", "long", "1")
        assert hint_of(bound("p", "is", None), columns) is None
        assert hint_of(bound("p", "is not", None), columns) is None
        assert sql_hints(bound("p", "=", 1), columns) == ()
        assert sql_hints(bound("same", "=", 1), columns) == ("same = 1",)


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

    def test_all_types_that_contain_variants(self):
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
    def test_literals_that_dialects_parse_differently_are_not_sent(self, term):
        assert as_sql(term) == ()

    def test_an_or_with_an_unsupported_part_is_not_sent(self):
        assert as_sql([("long", "=", 1)], [("long", "=", 2)]) == ()


class TestMerge:
    OURS = '{"op":"x"}'

    def test_a_single_hint_is_unchanged(self):
        assert merge_json_hints(None, None) is None
        assert merge_json_hints("given", None) == "given"
        assert merge_json_hints(None, self.OURS) == self.OURS

    def test_two_hints_are_joined_by_and(self):
        merged = merge_json_hints('{"op":"y"}', self.OURS)
        assert json.loads(merged) == {"op": "and", "children": [{"op": "y"}, {"op": "x"}]}


def test_a_hint_is_compact_json():
    text = json_hint(Compare(SCHEMA.find("string"), "=", "ü"), ONLY)
    assert text.isascii()
    assert ": " not in text
    assert json_hint(In(SCHEMA.find("decimal"), (Decimal(1),)), ONLY) is None
