"""Scans as pyarrow datasets: rows as Arrow itself filters them, and only what is needed is fetched."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pushdown_tables import NAME, POOLS, TYPES, write
from thorough import examples

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DeltaSharingError, SchemaChangedError, StorageError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.server import ServerOptions, SharingServer

F = pc.field


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with SharingServer({NAME: write(tmp_path_factory.mktemp("mixed"))}) as started:
        yield started


@pytest.fixture(scope="module")
def table(server):
    with SharingClient(server.profile) as client:
        yield client.table(NAME)


@pytest.fixture(scope="module")
def everything(table):
    return table.scan().to_arrow()


@pytest.fixture(scope="module")
def dataset(table):
    return table.scan().to_dataset()


def ids(rows):
    return sorted(rows.column("id").to_pylist())


# ---- rows ----


def literals(name):
    values = [value for value in POOLS[name] if value is not None]
    return st.sampled_from(values).map(lambda value: pa.scalar(value, TYPES[name]))


@st.composite
def terms(draw):
    name = draw(st.sampled_from(list(POOLS)))
    form = draw(st.sampled_from(["compare", "exchanged", "list", "null", "nan", "function"]))
    column = F(name)
    if form == "null":
        return column.is_null() if draw(st.booleans()) else column.is_valid()
    if form == "nan" and name in "fg":
        return column.is_nan()
    if form == "list":
        values = draw(st.lists(st.sampled_from(POOLS[name]), max_size=3))
        return column.isin(pa.array(values, TYPES[name]))
    if form == "function" and name == "s":
        return draw(st.sampled_from([pc.starts_with(column, "x"), pc.utf8_length(column) > 1]))
    value = draw(literals(name))
    if name == "o":
        return column if draw(st.booleans()) else column == value
    compared = (value, column) if form == "exchanged" else (column, value)
    function = draw(
        st.sampled_from([pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal])
    )
    operands = [each if isinstance(each, pc.Expression) else pc.scalar(each) for each in compared]
    return function(*operands)


expressions = st.recursive(
    terms(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda each: ~each),
        st.tuples(inner, inner).map(
            lambda pair: pc.if_else(pair[0], pair[1], pc.scalar(pa.scalar(None, pa.bool_())))
        ),
    ),
    max_leaves=5,
)


@given(expression=expressions)
@settings(max_examples=examples(80))
def test_rows_are_those_that_arrow_selects(dataset, everything, expression):
    expected = pds.dataset(everything).to_table(filter=expression, columns=["id"])
    assert ids(dataset.to_table(filter=expression, columns=["id"])) == ids(expected)


@given(first=expressions, second=expressions)
@settings(max_examples=examples(25))
def test_filters_of_the_scan_of_the_dataset_and_of_the_scanner_are_joined(table, everything, first, second):
    scan = table.scan(columns=["ID", *POOLS], filters=[("i", ">=", 0)])
    found = scan.to_dataset().filter(first).to_table(filter=second)
    expected = pds.dataset(everything).to_table(filter=(F("i") >= 0) & first & second)
    assert ids(found) == ids(expected)
    assert found.schema.names == ["id", *POOLS]


def test_a_limit_of_the_scan_comes_before_the_filter(table):
    scan = table.scan(limit=40)
    assert ids(scan.to_dataset().to_table(filter=F("i") > 0)) == ids(
        pds.dataset(scan.to_arrow()).to_table(filter=F("i") > 0)
    )
    assert scan.to_dataset().head(100).num_rows == 40


@pytest.mark.parametrize(
    "projection",
    [["s", "id"], [], None, {"twice": F("id") * 2, "x": F("st", "x")}, ["li", "st", "s"]],
)
@pytest.mark.parametrize("expression", [None, F("st", "x") == 1, F(0) > 1])
def test_projections(dataset, everything, projection, expression):
    same = pds.dataset(everything)
    found = dataset.to_table(columns=projection, filter=expression)
    expected = same.to_table(columns=projection, filter=expression)
    assert str(found.to_pylist()) == str(expected.to_pylist())  # NaN does not equal itself
    assert found.schema == expected.schema
    assert found.num_rows == expected.num_rows
    scanner = dataset.scanner(columns=projection, filter=expression)
    assert scanner.projected_schema == expected.schema
    assert scanner.count_rows() == expected.num_rows
    assert scanner.to_reader().schema == expected.schema


def test_every_method_of_a_dataset(dataset, everything):
    same = pds.dataset(everything)
    expected = same.to_table(filter=F("i") == 1)["id"].to_pylist()
    assert dataset.schema == same.schema
    assert dataset.head(3, columns=["id"]) == same.head(3, columns=["id"])
    assert dataset.head(3, filter=F("i") == 1)["id"].to_pylist() == expected[:3]
    assert dataset.take([5, 0], columns=["id"]) == same.take([5, 0], columns=["id"])
    assert dataset.take([]).num_rows == 0
    assert dataset.count_rows() == 210
    assert dataset.count_rows(filter=F("i") == 1) == same.count_rows(filter=F("i") == 1)
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=["id"], batch_size=10)) == 210
    assert dataset.sort_by([("id", "descending")]).head(1)["id"].to_pylist() == [209]
    with pytest.raises(NotImplementedError, match="cast"):
        dataset.replace_schema(dataset.schema)
    with pytest.raises(NotImplementedError, match="files"):
        dataset.get_fragments()
    with pytest.raises(TypeError, match="to_dask"):
        pickle.dumps(dataset)
    methods = {name for name in dir(pds.Dataset) if not name.startswith("_")}
    assert methods - set(vars(type(dataset))) == {"schema", "partition_expression"}


def test_joins(table):
    dataset = table.scan(columns=["id", "i"]).to_dataset()
    assert dataset.join(pa.table({"id": [3, 500]}), "id", join_type="inner").count_rows() == 1
    assert dataset.join(dataset, "id", join_type="inner", right_suffix="_r").count_rows() == 210
    ordered = dataset.sort_by("id")
    assert ordered.count_rows() == 210
    with pytest.raises(ValueError, match="both tables"):
        table.scan(columns=["id", "i"]).to_dataset().join_asof(ordered, "id", [], 1)


def test_arrow_cannot_read_the_dataset_in_its_own_code(table):
    dataset = table.scan(columns=["id", "i"]).to_dataset()
    for read in (
        lambda: pds.Scanner.from_dataset(dataset).to_table(),
        lambda: pds.dataset(pa.table({"id": [1]})).join(dataset, "id"),
    ):
        with pytest.raises(FileNotFoundError, match="read it with its own scanner"):
            read()
    with pytest.raises(NotImplementedError, match="cast"):
        pds.dataset([dataset, dataset])


def test_mistakes_are_found_before_a_request(dataset, server):
    before = len(server.requests)
    with pytest.raises(pa.ArrowInvalid, match="No match"):
        dataset.scanner(columns=["nothing"])
    with pytest.raises(pa.ArrowInvalid, match="No match"):
        dataset.scanner(filter=F("nothing") == 1)
    with pytest.raises(pa.ArrowNotImplementedError):
        dataset.scanner(filter=F("s") == pa.scalar(1))
    assert len(server.requests) == before


def test_errors_of_a_load_are_raised_as_they_are(tmp_path):
    path = write(tmp_path / "mixed")
    options = TransportOptions(api_attempts=2)
    with SharingServer({NAME: path}) as server, SharingClient(server.profile, options=options) as client:
        dataset = client.table(NAME).scan().to_dataset()
        for file in path.rglob("*.parquet"):
            file.unlink()
        with pytest.raises(StorageError):
            dataset.to_table()
    with pytest.raises(DeltaSharingError):
        dataset.to_table()


def test_a_table_whose_columns_change_after_the_dataset_was_made(tmp_path):
    import deltalake

    deltalake.write_deltalake(tmp_path, pa.table({"a": [1]}))
    with SharingServer({NAME: tmp_path}) as server, SharingClient(server.profile) as client:
        dataset = client.table(NAME).scan().to_dataset()
        narrow = client.table(NAME).scan(filters=[("a", ">", 0)]).to_dataset()
        deltalake.write_deltalake(tmp_path, pa.table({"a": ["x"]}), mode="overwrite", schema_mode="overwrite")
        with pytest.raises(SchemaChangedError, match="changed"):
            dataset.to_table()
        with pytest.raises(DeltaSharingError, match="changed"):
            narrow.to_table()


def test_a_column_that_appears_later_is_not_in_the_dataset(tmp_path):
    import deltalake

    deltalake.write_deltalake(tmp_path, pa.table({"a": [1]}))
    with SharingServer({NAME: tmp_path}) as server, SharingClient(server.profile) as client:
        dataset = client.table(NAME).scan().to_dataset()
        deltalake.write_deltalake(tmp_path, pa.table({"a": [2], "b": [1]}), mode="append", schema_mode="merge")
        assert sorted(dataset.to_table().to_pydict()["a"]) == [1, 2]
        assert dataset.to_table().schema.names == ["a"]


# ---- what is fetched ----


def fetched(server, read):
    """Return the bytes and the number of the files' responses of a read, and its result."""
    before = len(server.requests)
    result = read()
    files = [request for request in server.requests[before:] if request.is_file]
    return sum(request.bytes_sent for request in files), len({request.path for request in files}), result


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A table of ten files, each of 16 columns of incompressible numbers, with `day` in order."""
    import deltalake
    import numpy as np

    directory = tmp_path_factory.mktemp("wide")
    random = np.random.default_rng(0)
    for day in range(10):
        columns = {f"c{n}": random.random(60_000) for n in range(15)}
        rows = pa.table({"day": pa.array([day] * 60_000, pa.int32())} | columns)
        deltalake.write_deltalake(directory, rows, mode="append")
    options = ServerOptions(url_lifetime=timedelta(hours=1))
    with SharingServer({NAME: directory}, options=options) as started, SharingClient(started.profile) as client:
        yield started, client.table(NAME).scan()


def test_projection_and_filter_are_pushed_down(wide):
    server, scan = wide
    dataset = scan.to_dataset()
    full, files, _ = fetched(server, scan.to_arrow)
    assert files == 10
    size, files, rows = fetched(server, lambda: dataset.to_table(columns=["c3"]))
    assert (files, rows.num_rows) == (10, 600_000)
    assert size < full / 10
    size, files, rows = fetched(server, lambda: dataset.to_table(columns=["c3"], filter=F("day") == 4))
    assert (files, rows.num_rows) == (1, 60_000)
    assert size < full / 100


def test_duckdb_reads_what_it_needs(wide):
    server, scan = wide
    shared = scan.to_dataset()
    full, _, _ = fetched(server, scan.to_arrow)
    query = "SELECT count(*), avg(c7) FROM shared WHERE day IN (2, 4) AND c7 >= 0"
    with duckdb.connect() as connection:
        connection.register("shared", shared)
        size, files, rows = fetched(server, lambda: connection.execute(query).fetchall())
    assert files == 2
    assert rows[0][0] == 120_000
    assert size < full / 50


def test_the_first_rows_need_no_more_than_their_files(wide):
    server, scan = wide
    dataset = scan.to_dataset()
    before = len(server.requests)
    _, files, rows = fetched(server, lambda: dataset.head(5))
    assert (files, rows.num_rows) == (1, 5)
    queries = [request.body for request in server.requests[before:] if request.body]
    assert [body["limitHint"] for body in queries] == [5]
    _, files, _ = fetched(server, dataset.count_rows)
    assert files == 0


def test_a_reader_that_is_closed_early_ends_the_load(wide):
    _, scan = wide
    reader = scan.to_dataset().scanner(columns=["c1"]).to_reader()
    reader.read_next_batch()
    reader.close()
    del reader
    batches = scan.to_dataset().to_batches()
    next(batches)
    batches.close()
    assert scan.to_dataset().head(1, filter=F("day") == 3)["day"].to_pylist() == [3]


# ---- DuckDB ----

LITERALS = {
    "i": ["0", "1", "2147483647", "1.5"],
    "f": ["0.0", "0.1", "1.5", "'nan'::DOUBLE", "'inf'::DOUBLE"],
    "g": ["0.1", "1.5::FLOAT", "-2"],
    "s": ["''", "'a'", "'it''s'", "'naïve'"],
    "d": ["0", "0.01", "-1.5", "1e3"],
    "day": ["DATE '2024-01-01'", "DATE '2024-02-29'"],
    "t": ["TIMESTAMPTZ '2024-01-01 00:00:00+00'", "TIMESTAMPTZ '2024-01-01 00:00:00.0015+00'"],
    "n": ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 00:00:00.0015'"],
    "b": ["'a'::BLOB", "''::BLOB"],
    "o": ["true", "false"],
    "p": ["1", "2"],
}


@st.composite
def sql_terms(draw):
    name = draw(st.sampled_from(list(LITERALS)))
    form = draw(st.sampled_from(["compare", "compare", "list", "null", "between", "distinct"]))
    pick = st.sampled_from(LITERALS[name])
    if form == "null":
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if form == "list":
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({draw(pick)}, {draw(pick)})"
    if form == "between":
        return f"{name} BETWEEN {draw(pick)} AND {draw(pick)}"
    if form == "distinct":
        return f"{name} IS DISTINCT FROM {draw(pick)}"
    return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(pick)}"


sql = st.recursive(
    sql_terms(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(" AND ".join).map("({})".format),
        st.tuples(inner, inner).map(" OR ".join).map("({})".format),
        inner.map("NOT ({})".format),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def connection(everything, dataset):
    with duckdb.connect() as opened:
        opened.register("everything", everything)
        opened.execute("CREATE TABLE copied AS SELECT * FROM everything")
        opened.register("shared", dataset)
        yield opened


@given(condition=sql)
@settings(max_examples=examples(80))
def test_duckdb_finds_the_rows_of_its_own_table(connection, condition):
    query = "SELECT id FROM {} WHERE {} ORDER BY id"
    expected = connection.execute(query.format("copied", condition)).fetchall()
    assert connection.execute(query.format("shared", condition)).fetchall() == expected


def test_duckdb_reads_nested_columns(connection):
    query = "SELECT id, st, li FROM {} WHERE st.x = 1 AND li IS NOT NULL ORDER BY id"
    expected = connection.execute(query.format("copied")).fetchall()
    assert expected
    assert connection.execute(query.format("shared")).fetchall() == expected


def test_literals_beyond_python(dataset, everything):
    for name, literal in [
        ("day", pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32())),
        ("t", pa.scalar(2**63 - 1, pa.int64()).cast(pa.timestamp("us", "UTC"))),
        ("n", pa.scalar(-(2**63), pa.int64()).cast(pa.timestamp("us"))),
        ("n", pa.scalar(datetime(2024, 1, 1), pa.timestamp("s"))),
        ("d", pa.scalar(Decimal("0.010"), pa.decimal128(20, 3))),
        ("s", pa.scalar("a", pa.large_string())),
        ("f", pa.scalar(None, pa.float64())),
    ]:
        for expression in (F(name) < literal, F(name) == literal, ~(F(name) == literal)):
            expected = ids(pds.dataset(everything).to_table(filter=expression))
            assert ids(dataset.to_table(filter=expression)) == expected, expression


@pytest.mark.parametrize("name", ["void", "variant", "nested", "special_names"])
def test_other_columns_do_not_prevent_pushdown(name):
    path = Path(__file__).parents[1] / "golden/tables" / name / "table"
    with SharingServer({NAME: path}) as server, SharingClient(server.profile) as client:
        dataset = client.table(NAME).scan().to_dataset()
        simple = [field for field in dataset.schema if field.type in (pa.int64(), pa.int32(), pa.string())]
        assert simple
        for field in simple:
            dataset.count_rows(filter=F(field.name) == pa.scalar("1").cast(field.type))
            queries = [request.body for request in server.requests if request.body is not None]
            assert json.dumps(field.name)[1:-1] in queries[-1]["jsonPredicateHints"]


def test_relations_push_down(wide):
    server, scan = wide
    full, _, _ = fetched(server, scan.to_arrow)
    with duckdb.connect() as connection:
        relation = scan.to_duckdb(connection)
        size, files, rows = fetched(server, relation.filter("day = 7").aggregate("count(*), min(c2)").fetchall)
    assert (files, rows[0][0]) == (1, 60_000)
    assert size < full / 100


def chain(count):
    expression = F("id") >= 100
    for number in range(count):
        expression = expression & (F("id") != number * 3)
    return expression


@pytest.mark.parametrize("count", [8, 11, 12, 30, 300])
def test_long_conjunctions_cost_no_more_than_their_length(dataset, server, count):
    """A message of Substrait doubles with each level: 300 levels would fill the memory."""
    kept = [row for row in range(100, 210) if row % 3 or row >= 3 * count]
    assert ids(dataset.to_table(columns=["id"], filter=chain(count))) == kept
    (body,) = [request.body for request in server.requests if request.body is not None][-1:]
    assert ("jsonPredicateHints" in body) == (count < 12)


def test_long_lists_become_a_range(dataset, server):
    values = list(range(150, 10_000))
    assert ids(dataset.to_table(columns=["id"], filter=F("id").isin(values))) == list(range(150, 210))
    (body,) = [request.body for request in server.requests if request.body is not None][-1:]
    assert "greaterThanOrEqual" in body["jsonPredicateHints"]
    assert ids(dataset.to_table(columns=["id"], filter=~F("id").isin(values))) == list(range(150))
    strings = [*map(str, range(2000)), "a"]
    assert set(dataset.to_table(columns=["s"], filter=F("s").isin(strings))["s"].to_pylist()) == {"a"}


def test_a_misspelt_argument_is_refused(table, everything):
    dataset = table.scan().to_dataset()
    for call in (
        lambda: dataset.to_table(filters=F("id") > 1),
        lambda: dataset.to_batches(column=["id"]),
        lambda: dataset.count_rows(filterr=F("id") > 1),
    ):
        with pytest.raises(TypeError, match="a scanner has no option"):
            call()
    assert dataset.to_table(["id"], use_threads=False, batch_size=10).equals(everything.select(["id"]))
    assert dataset.head(2, ["id"]).column_names == ["id"]
