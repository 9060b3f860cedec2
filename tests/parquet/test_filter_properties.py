"""Filters hold to their meaning everywhere: over rows, over files, and in the hints for the server."""

import itertools
import json
import math
import re
from datetime import UTC, date, datetime

import pytest
from filter_oracle import (
    KINDS,
    POOLS,
    Term,
    add_file,
    as_batch,
    as_filters,
    as_float32,
    data_type,
    filters,
    matches,
    metadata_of,
    moment,
    partition_text,
    plain_literals,
    schema_of,
    stats_json,
    tables,
    values,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.hints import HintColumns, json_hint, sql_hints
from delta_sharing_client.model.partition_values import parse_partition_value
from delta_sharing_client.parquet.residual_filter import filter_batch
from delta_sharing_client.scan.file_tasks import SkipReason, TaskPlanner, read_spec
from delta_sharing_client.wire.file_block import FileBlock

QUICK = settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# ---- one comparison with everything in the pools ----


def comparisons(kind, name="c"):
    """Every comparison of a column with every literal, bound."""
    schema = schema_of({name: kind})
    for op in ("=", "!=", "<", "<=", ">", ">="):
        for shown, meaning in plain_literals(kind):
            term = Term(name, op, shown, meaning)
            yield term, bind_filters([term.as_tuple], schema)


@pytest.mark.parametrize("kind", KINDS)
def test_every_comparison_keeps_the_rows_that_it_says(kind):
    rows = [{"c": value} for value in [None, *POOLS[kind]]]
    batch = as_batch({"c": kind}, rows)
    for term, predicate in comparisons(kind):
        expected = [i for i, row in enumerate(rows) if term.holds(row) is True]
        assert filter_batch(batch, predicate).column("#").to_pylist() == expected, term


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_keeps_the_rows_that_it_says(kind):
    rows = [{"c": value} for value in [None, *POOLS[kind]]]
    batch = as_batch({"c": kind}, rows)
    for literals in itertools.combinations(plain_literals(kind), 2):
        shown, meaning = ([literal[i] for literal in literals] for i in (0, 1))
        for op in ("in", "not in"):
            term = Term("c", op, shown, meaning)
            predicate = bind_filters([term.as_tuple], schema_of({"c": kind}))
            expected = [i for i, row in enumerate(rows) if term.holds(row) is True]
            assert filter_batch(batch, predicate).column("#").to_pylist() == expected, term


@pytest.mark.parametrize("kind", KINDS)
def test_every_comparison_with_every_file(kind):
    """Files of one or two rows with complete statistics, whatever form a writer gives them."""
    metadata = metadata_of({"c": kind}, [])
    files = []
    for pair in itertools.combinations_with_replacement([None, *POOLS[kind]], 2):
        rows = [{"c": value} for value in pair]
        files += [(rows, stats_json(Choices(choose), {"c": kind}, rows)) for choose in (min, max)]
    for term, predicate in comparisons(kind):
        make = TaskPlanner(read_spec(metadata, None, predicate))
        tasks = make(FileBlock.of([add_file({}, stats) for _, stats in files]))
        for (rows, stats), task in zip(files, tasks, strict=True):
            left = [term.holds(row) is True for row in rows]
            if isinstance(task, SkipReason):
                assert not any(left), (term, stats)
            elif task.all_rows_match:
                assert all(left), (term, stats)


class Choices:
    """Draws by a rule in place of chance; statistics are complete and tight."""

    def __init__(self, choose):
        self.choose = choose
        self.drawn = 0

    def __call__(self, strategy):
        self.drawn += 1
        if self.drawn <= 2:
            return True
        return self.choose(False, True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_comparison_with_every_partition_value(kind):
    metadata = metadata_of({"c": kind}, ["c"])
    makers = [(term, TaskPlanner(read_spec(metadata, None, predicate))) for term, predicate in comparisons(kind)]
    for value in [None, *POOLS[kind]]:
        if value in ("", b"", b"\xff"):
            continue  # null, or no text
        action = add_file({"c": partition_text(kind, value)}, None)
        for term, make in makers:
            task, holds = make(FileBlock.of([action]))[0], term.holds({"c": value}) is True
            if isinstance(task, SkipReason):
                assert not holds, (term, value)
            elif task.all_rows_match:
                assert holds, (term, value)


# ---- filters of several terms on several columns ----


@given(data=st.data())
@QUICK
def test_the_row_filter_keeps_the_rows_that_the_filter_says(data):
    kinds, rows = data.draw(tables(), label="table")
    groups = data.draw(filters(kinds), label="filters")
    predicate = bind_filters(as_filters(groups), schema_of(kinds))
    batch = as_batch(kinds, rows)
    expected = [i for i, row in enumerate(rows) if matches(groups, row)]
    assert filter_batch(batch, predicate).column("#").to_pylist() == expected
    # A slice has an offset into its buffers.
    assert filter_batch(batch.slice(1), predicate).column("#").to_pylist() == [i for i in expected if i]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(QUICK, max_examples=examples(30))
def test_pruning_by_statistics(kind, data):
    rows = [{"c": value} for value in data.draw(st.lists(st.none() | values(kind), min_size=1, max_size=3))]
    check_pruning(data, {"c": kind}, rows, [])


@given(data=st.data())
@settings(QUICK, max_examples=examples(120))
def test_pruning_by_several_columns(data):
    kinds, rows = data.draw(tables(), label="table")
    partitions = data.draw(st.lists(st.sampled_from(sorted(kinds)), unique=True), label="partitions")
    check_pruning(data, kinds, rows, partitions)


def check_pruning(data, kinds, rows, partitions):
    """No file with a matching row is left out, and it is never claimed wrongly that all rows match."""
    partition_values = {}
    for name in partitions:
        kind = kinds[name]
        value = data.draw(st.none() | values(kind), label=f"partition {name}")
        if kind == "string" and value == "":
            value = None
        if kind == "binary" and value in (b"", b"\xff"):
            value = None
        partition_values[name] = partition_text(kind, value)
        for row in rows:
            row[name] = value
    groups = data.draw(filters(kinds), label="filters")
    deleted = data.draw(st.sets(st.integers(0, max(len(rows) - 1, 0))), label="deleted")
    inside = {name: kind for name, kind in kinds.items() if name not in partitions}
    stats = stats_json(data.draw, inside, rows, deleted) if data.draw(st.integers(0, 5), label="stats?") else None

    metadata = metadata_of(kinds, partitions)
    spec = read_spec(metadata, None, bind_filters(as_filters(groups), metadata.schema))
    task = TaskPlanner(spec)(FileBlock.of([add_file(partition_values, stats)]))[0]

    left = [matches(groups, row) for i, row in enumerate(rows) if i not in deleted]
    if isinstance(task, SkipReason):
        assert not any(left), (task, stats)
    elif task.all_rows_match:
        assert all(left), stats


# ---- hints ----

HINT_KINDS = [kind for kind in KINDS if kind != "binary"]


def cast(text, value_type):
    """A partition value or a literal as a server casts it."""
    if value_type == "bool":
        return {"true": True, "false": False}[text.lower()]
    if value_type in ("int", "long"):
        number = int(text)
        assert -(2 ** (31 if value_type == "int" else 63)) <= number < 2 ** (31 if value_type == "int" else 63)
        return number
    if value_type in ("float", "double"):
        number = float(text)
        return as_float32(number) if value_type == "float" else number
    if value_type == "date":
        return date.fromisoformat(text)
    if value_type == "timestamp":
        zoned = datetime.fromisoformat(text)
        return zoned if zoned.tzinfo else zoned.replace(tzinfo=UTC)
    assert value_type == "string"
    return text


def evaluate(node, partition, *, utf16, null_is_false):
    """A server's reading of a JSON predicate: True, False or None."""
    op, children = node["op"], node.get("children", [])
    if op in ("and", "or"):
        assert len(children) >= 2
        each = [evaluate(child, partition, utf16=utf16, null_is_false=null_is_false) for child in children]
        strong = op == "or"
        return strong if strong in each else None if None in each else not strong
    if op == "not":
        (child,) = children
        inner = evaluate(child, partition, utf16=utf16, null_is_false=null_is_false)
        return None if inner is None else not inner
    if op == "isNull":
        (column,) = children
        return partition[column["name"]] is None
    column, literal = children
    assert (column["op"], literal["op"]) == ("column", "literal")
    assert column["valueType"] == literal["valueType"]
    assert isinstance(literal["value"], str)
    text = partition[column["name"]]
    if text is None:
        return False if null_is_false else None
    left, right = cast(text, column["valueType"]), cast(literal["value"], literal["valueType"])
    if utf16 and column["valueType"] == "string":
        left, right = left.encode("utf-16-be"), right.encode("utf-16-be")
    return {
        "equal": left == right,
        "lessThan": left < right,
        "lessThanOrEqual": left <= right,
        "greaterThan": left > right,
        "greaterThanOrEqual": left >= right,
    }[op]


SQL = re.compile(r"([A-Za-z_]\w*) (?:IS (?P<not>NOT )?NULL|(?P<op>=|<>|<=?|>=?) (?P<value>.+))", re.DOTALL)


def evaluate_sql(hint, partition, kinds, *, utf16):
    match = SQL.fullmatch(hint)
    name = match[1]
    text = partition[name]
    if match["op"] is None:
        return (text is None) != bool(match["not"])
    if text is None:
        return None
    literal = match["value"]
    quoted = re.fullmatch(r"'([^'\\]*)'", literal)
    value_type = {
        "byte": "int", "short": "int", "integer": "int", "boolean": "bool",
    }.get(kinds[name], kinds[name])  # fmt: skip
    assert bool(quoted) == (value_type in ("string", "date", "timestamp"))
    left, right = cast(text, value_type), cast(quoted[1] if quoted else literal, value_type)
    if utf16 and value_type == "string":
        left, right = left.encode("utf-16-be"), right.encode("utf-16-be")
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[match["op"]]


@pytest.mark.parametrize("kind", HINT_KINDS)
def test_every_comparison_as_a_hint(kind):
    for value in [None, *POOLS[kind]]:
        if value == "":
            continue
        partition = {"p": partition_text(kind, value)}
        for term, predicate in comparisons(kind, "p"):
            if term.holds({"p": value}) is True:
                hold(predicate, partition, {"p": kind})


@given(data=st.data())
@settings(QUICK, max_examples=examples(120))
def test_hints_on_several_columns(data):
    kinds = {name: data.draw(st.sampled_from(HINT_KINDS), label=name) for name in ("p", "q")}
    check_hints(data, kinds | {"x": "long"})


def check_hints(data, kinds):
    """No server that evaluates the hints rightly leaves out a file with a matching row."""
    partitions = [name for name in kinds if name != "x"]
    row = {name: data.draw(st.none() | values(kind), label=name) for name, kind in kinds.items()}
    partition = {}
    for name in partitions:
        if row[name] == "":
            row[name] = None
        partition[name] = partition_text(kinds[name], row[name])
        read = parse_partition_value(partition[name], data_type(kinds[name]))
        assert read == row[name] or (read != read and row[name] != row[name])
    groups = data.draw(filters(kinds), label="filters")
    predicate = bind_filters(as_filters(groups), schema_of(kinds))
    if matches(groups, row):
        hold(predicate, partition, kinds)


def hold(predicate, partition, kinds):
    """Assert that the hints are true of a partition, whatever way a server has of comparing."""
    columns = HintColumns(partitions=frozenset(partition))
    as_json, as_sql = json_hint(predicate, columns), sql_hints(predicate, columns)
    for utf16 in (False, True):
        for null_is_false in (False, True):
            if as_json is not None:
                assert evaluate(json.loads(as_json), partition, utf16=utf16, null_is_false=null_is_false) is True
        for hint in as_sql:
            assert evaluate_sql(hint, partition, kinds, utf16=utf16) is True, hint


def test_the_oracle_itself():
    """The plain reading, on cases that can be checked by eye."""
    assert matches([[Term("c", "not in", [1], [1])]], {"c": 2})
    assert not matches([[Term("c", "not in", [1], [1])]], {"c": None})
    assert matches([[Term("c", "in", [1, None], [1, None])]], {"c": 1})
    assert not matches([[Term("c", "!=", 1, 1)]], {"c": None})
    assert matches([[Term("c", "!=", 1, 1)]], {"c": math.nan})
    assert not matches([[Term("c", "=", math.nan, math.nan)]], {"c": math.nan})
    assert matches([[Term("c", "is", None, None)]], {"c": None})
    assert not matches([[Term("c", "<", 1, 1)]], {"c": math.nan})
    assert moment(1500).isoformat() == "1970-01-01T00:00:00.001500"
