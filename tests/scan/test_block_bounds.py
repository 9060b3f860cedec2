"""Predicates over the statistics of a block of files have the outcomes that they have over each file by itself."""

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.column_bounds import TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import And, Not, Or
from delta_sharing_client.expressions.record_counts import num_records
from delta_sharing_client.expressions.statistics import StatsDecoder, parse_stats
from delta_sharing_client.model.actions import AddFile
from delta_sharing_client.model.partition_values import parse_partition_value
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.file_filter import FileFilter, PartitionBounds, block_outcomes
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.wire.file_block import FileBlock

NESTED = StructType((StructField("c", PrimitiveType("long")),))
KINDS = {
    "byte": ["0", "127", "-128", "128", "1.0", '"1"'],
    "long": ["0", "5", "-7", str(10**15), str(-(2**63)), str(2**63), "9" * 30, "1e3", "5.5", "1e999999999", '"5"'],
    "float": ["0", "1.5", "-2", "1e39", '"NaN"', '"-Infinity"', "NaN", "0.1"],
    "double": [
        "0",
        "1.5",
        "-2.25",
        "1e39",
        "1e308",
        "1e999",
        '"NaN"',
        '"Infinity"',
        '"1.5"',
        "Infinity",
        "1e-320",
    ],
    "string": [
        '"a"',
        '"b"',
        '""',
        '"\\ud83d"',
        '"\\u00fc"',
        f'"{"x" * 40}"',
        f'"{"?" * 33}"',
        '"a\\u0000"',
        '"\\u0000"',
        "5",
    ],
    "date": [
        '"2024-01-01"',
        '"2024-06-01"',
        '"0001-01-01"',
        '"9999-12-31"',
        '"2024-1-1"',
        '"x"',
        '"2024-01-01T05"',
    ],
    "timestamp": [
        '"2024-01-01T00:00:00.000Z"',
        '"2024-01-01T00:00:00.001Z"',
        '"1969-12-31T23:59:59.999Z"',
        '"2024-01-01 00:00:00"',
        '"2024-01-01T00:00:00.123456+02:00"',
        '"2024-01-01T00:00:00.123456789Z"',
        '"0001-01-01T00:00:00.000Z"',
        '"0000-01-01T00:00:00.000Z"',
        '"9999-12-31T23:59:59.999Z"',
        '"2262-04-11T23:47:16.854Z"',
        '"2024-02-30T00:00:00.000Z"',
        '"2024-01-01T24:00:00.000Z"',
        '"2024-01-01T23:59:60.000Z"',
        '"2024-01-01"',
    ],
    "timestamp_ntz": [
        '"2024-01-01T00:00:00.000"',
        '"2024-01-01T00:00:00.001Z"',
        '"1969-12-31T23:59:59.999"',
        '"2024-01-01"',
        '"2024-01-01 00:00"',
        '"9999-12-31T23:59:59.999"',
    ],
    "decimal(5,2)": ["1.10", "1.1", "-3", '"1.1"', '"sNaN"', '"NaN"', "1e99", "100000"],
    "decimal(38,10)": ["1.10", "92233720368547758.07", "1e30", "1e99", "12345678901234567890.0123456789"],
    "boolean": ["true", "false"],
    "binary": ['"a"'],
    "struct": ["5", '{"c":5}'],
}
LITERALS = {
    "byte": [0, 1, 127],
    "long": [0, 5, 10**15, -(2**63), 2**63 - 1],
    "float": [0.0, 1.5, 0.1, float("nan"), float("inf")],
    "double": [0.0, 1.5, 1e308, float("nan"), float("-inf")],
    "string": ["", "a", "a\0", "\0", "ü", "x" * 40, "x" * 39 + "y"],
    "date": ["2024-01-01", "2024-03-01"],
    "timestamp": ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.001Z", "1969-12-31T23:59:59.999Z"],
    "timestamp_ntz": ["2024-01-01T00:00:00", "1969-12-31T23:59:59.999"],
    "decimal(5,2)": [Decimal("1.1"), Decimal("-3"), 7],
    "decimal(38,10)": [Decimal("1.1"), 10**20],
    "boolean": [True],
    "binary": [b"a"],
}
ODD = ["null", "true", "[1]", "{}", '"?"', "-0.0"]


def data_type(kind):
    if kind == "struct":
        return NESTED
    if kind.startswith("decimal"):
        precision, scale = kind[8:-1].split(",")
        return DecimalType(int(precision), int(scale))
    return PrimitiveType(kind)


def terms(kind):
    """Filters on column `c`."""
    null = st.sampled_from([("c", "is", None), ("c", "is not", None)])
    if kind not in LITERALS:
        return null
    literal = st.sampled_from(LITERALS[kind])
    compare = st.tuples(st.just("c"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), literal)
    member = st.tuples(st.just("c"), st.sampled_from(["in", "not in"]), st.lists(literal, max_size=3))
    return null | compare | member


@st.composite
def texts(draw, kind):
    """The statistics of a file."""
    value = st.sampled_from(KINDS[kind]) | st.sampled_from(ODD)
    count = st.sampled_from(["0", "1", "3", "3", "10", "-1", "1.5", "null", "true", '"3"', "9" * 25])

    def part(items):
        columns = st.one_of(
            items.map('{{"c":{}}}'.format),
            items.map('{{"other":{{"c":1}},"c":{}}}'.format),
            st.just("{}"),
            st.sampled_from(["null", "5", "[]"]),
        )
        return draw(columns)

    text = (
        f'{{"numRecords":{draw(count)},"minValues":{part(value)},"maxValues":{part(value)},'
        f'"nullCount":{part(count)},"tightBounds":{draw(st.sampled_from(["true", "false"]))}}}'
    )
    return draw(st.sampled_from([text, text, text, text, text, "nonsense", "", None, text[:-5], "{}"]))


def one_by_one(predicate, kind, texts, days):
    """The outcomes over each file."""
    found = []
    for text, day in zip(texts, days, strict=True):
        stats = parse_stats(text)

        def bounds_of(column, stats=stats, day=day):
            if column.name == "day":
                return ColumnBounds.constant(parse_partition_value(day, column.type))
            known = None if stats is None else stats.bounds("c", data_type(kind))
            return known or ColumnBounds(may_be_nan=kind in ("float", "double"))

        found.append(outcomes(predicate, bounds_of))
    return found


def as_block(predicate, kind, texts, days):
    distinct = sorted(set(days), key=str)
    partitions = PartitionBounds(
        [ColumnBounds.constant(parse_partition_value(day, PrimitiveType("date"))) for day in distinct],
        np.array([distinct.index(day) for day in days]),
    )
    stats = StatsDecoder({"c": data_type(kind)})([text or None for text in texts])
    assert stats.record_counts == [num_records(text) for text in texts]
    return block_outcomes(predicate, stats, {"c": "c"}, {"day": partitions}).tolist()


def schema(kind):
    return StructType((StructField("c", data_type(kind)), StructField("day", PrimitiveType("date"))))


DAYS = st.sampled_from(["2024-01-01", "2024-01-02", None])


def predicates(kind):
    """Filters on the columns `c` and `day`."""
    day = st.tuples(st.just("day"), st.sampled_from(["=", "<", ">="]), st.just("2024-01-02"))
    leaves = (terms(kind) | day).map(lambda term: bind_filters([term], schema(kind)))
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(lambda *parts: And(parts), inner, inner)
            | st.builds(lambda *parts: Or(parts), inner, inner)
            | st.builds(Not, inner)
        ),
        max_leaves=4,
    )


def kept(predicate, kind, texts, days):
    """Whether each file is planned."""
    partitions = {day: {"day": day} for day in set(days)}
    actions = [
        AddFile(SecretUrl("https://h/f"), str(number), partitions[day], 1, text)
        for number, (text, day) in enumerate(zip(texts, days, strict=True))
    ]

    def tasks(files, all_match):
        return (FileScanTask(action.url, action.id, 1) for action in files)

    spec = ReadSpec(schema(kind), partition_columns=frozenset({"day"}), predicate=predicate)
    planned = FileFilter(spec, predicate)(FileBlock.of(actions), tasks)
    assert len(planned) == len(texts)
    return [isinstance(task, FileScanTask) and task.file_id == str(n) for n, task in enumerate(planned)]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=examples(50), deadline=None)
def test_outcomes_of_a_block_equal_those_of_its_files(kind, data):
    found = data.draw(st.lists(texts(kind), min_size=1, max_size=6))
    days = data.draw(st.lists(DAYS, min_size=len(found), max_size=len(found)))
    predicate = data.draw(predicates(kind))
    each = one_by_one(predicate, kind, found, days)
    assert as_block(predicate, kind, found, days) == each
    assert kept(predicate, kind, found, days) == [bool(outcome & TRUE) for outcome in each]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_ordinary_values_beside_each_other(kind, data):
    """No file of the block leaves the arrays, unless its value has to be parsed by itself."""
    value = st.sampled_from(KINDS[kind])
    pairs = data.draw(st.lists(st.tuples(value, value), min_size=1, max_size=8))
    found = [
        f'{{"numRecords":3,"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}},"nullCount":{{"c":0}}}}'
        for low, high in pairs
    ]
    predicate = bind_filters([data.draw(terms(kind))], schema(kind))
    days = [None] * len(found)
    assert as_block(predicate, kind, found, days) == one_by_one(predicate, kind, found, days)


@pytest.mark.parametrize("name", ["a", "b.c", 'quo"te', "back\\slash", "", "ü", "a b", "\n"])
def test_names_of_columns(name):
    text = json.dumps({"numRecords": 2, "minValues": {name: 5}, "maxValues": {name: 7}, "nullCount": {name: 0}})
    column = StructField(name, PrimitiveType("long"))
    predicate = bind_filters([(name, "<", 5)], StructType((column,)))
    for block in ([text], [text, None]):
        stats = StatsDecoder({name: column.type})(block)
        assert block_outcomes(predicate, stats, {name: name}, {}).tolist()[0] == outcomes(
            predicate, lambda column: parse_stats(text).bounds(name, column.type)
        )


def test_a_constant_predicate_has_an_outcome_for_each_file():
    predicate = bind_filters([("c", "in", [])], schema("long"))
    assert len(as_block(predicate, "long", ["{}", None], ["2024-01-01", None])) == 2


@pytest.mark.parametrize("spelling", ["{}", '"{}"', "{}.0"], ids=["typed", "a text", "a float"])
def test_a_part_is_evaluated_over_the_files_that_the_parts_before_it_leave(spelling):
    """Each part after the first one has the partition values and the statistics of its own files."""

    def text(value):
        shown = spelling.format(value)
        return f'{{"numRecords":1,"minValues":{{"c":{shown}}},"maxValues":{{"c":{shown}}},"nullCount":{{"c":0}}}}'

    def term(*parts):
        return bind_filters([parts], schema("long"))

    of_days = Or((term("day", "=", "2024-01-02"), term("c", "=", 3)))
    predicate = And((term("c", "<", 5), of_days, term("c", "!=", 2)))
    values = [9, 0, 8, 0, 3, 7, 2, None]
    days = ["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-01", "2024-01-01", "2024-01-02", "2024-01-02", None]
    found = [None if value is None else text(value) for value in values]
    assert kept(predicate, "long", found, days) == [False, True, False, False, True, False, False, True]
