"""Lazy frames of polars: rows as polars itself filters them, and only what is needed is fetched."""

from __future__ import annotations

import functools
import math
import operator

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from pushdown_tables import NAME, POOLS, write
from thorough import examples

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.errors import StorageError
from delta_sharing_client.expressions.predicates import Constant
from delta_sharing_client.frames.polars_predicates import pushed_predicate
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.server import SharingServer

C = pl.col


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    with (
        SharingServer({NAME: write(tmp_path_factory.mktemp("mixed"))}) as server,
        SharingClient(server.profile) as client,
    ):
        yield client.table(NAME)


@pytest.fixture(scope="module")
def everything(table):
    return table.scan().to_polars()


@pytest.fixture(scope="module")
def lazy(table):
    return table.scan().to_polars_lazy()


@st.composite
def terms(draw, schema):
    name = draw(st.sampled_from(list(POOLS)))
    column = C(name)
    form = draw(
        st.sampled_from(["compare", "exchanged", "list", "null", "between", "missing", "function", "wide"])
    )
    pool = [value for value in POOLS[name] if value is not None]
    pick = st.sampled_from(pool)
    if form == "null":
        return column.is_null() if draw(st.booleans()) else column.is_not_null()
    if form == "list":
        values = pl.Series(draw(st.lists(st.sampled_from(POOLS[name]), max_size=3)), dtype=schema[name])
        return column.is_in(values.implode(), nulls_equal=draw(st.booleans()))
    if form == "between" and name != "o":
        closed = draw(st.sampled_from(["both", "left", "right", "none"]))
        return column.is_between(pl.lit(draw(pick)), pl.lit(draw(pick)), closed=closed)
    if form == "missing":
        return column.eq_missing(pl.lit(draw(pick)))
    if form == "function":
        return {"s": column.str.starts_with("x"), "f": column.is_nan(), "o": column}.get(name, column == column)
    if form == "wide" and name in "ifg":
        return column > draw(st.sampled_from([1.5, 2**40, 0.1, -1]))
    operator = draw(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]))
    operands = (pl.lit(draw(pick)), column) if form == "exchanged" else (column, pl.lit(draw(pick)))
    return getattr(operands[0], operator)(operands[1])


def expressions(schema):
    return st.recursive(
        terms(schema),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
            inner.map(lambda each: ~each),
        ),
        max_leaves=5,
    )


@given(data=st.data())
@settings(max_examples=examples(100))
def test_rows_are_those_that_polars_selects(lazy, everything, data):
    expression = data.draw(expressions(everything.schema))
    expected = everything.filter(expression).select("id").sort("id")
    assert_frame_equal(lazy.filter(expression).select("id").collect().sort("id"), expected)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_queries(lazy, everything, engine):
    for query in (
        lambda frame: frame.sort("id"),
        lambda frame: frame.select("st", "li", "id").filter(C("st").struct.field("x") == 1).sort("id"),
        lambda frame: frame.select(pl.len()),
        lambda frame: frame.filter(C("f") > 1).select(pl.len()),
        lambda frame: frame.group_by("p").agg(C("id").sum()).sort("p"),
        lambda frame: frame.filter(pl.lit(False)),
        lambda frame: frame.filter(C("id") < 0).select("s", "id"),
        lambda frame: frame.join(frame.select("id", other="i"), on="id").sort("id"),
    ):
        assert_frame_equal(query(lazy).collect(engine=engine), query(everything.lazy()).collect(engine=engine))


def test_a_limit_comes_before_a_filter(table, everything):
    first = set(everything["id"].head(50))
    expected = everything.head(50).filter(C("i") > 0).select("id")
    lazy = table.scan().to_polars_lazy()
    assert_frame_equal(lazy.head(50).filter(C("i") > 0).select("id").collect(), expected)
    limited = table.scan(limit=50).to_polars_lazy()
    assert set(limited.collect()["id"]) == first
    assert_frame_equal(limited.filter(C("i") > 0).select("id").collect(), expected)
    assert lazy.filter(C("i") > 0).head(2).collect().height == 2


def test_nan_follows_polars(lazy, everything):
    assert everything.filter(C("f") > 1)["f"].is_nan().any()
    for expression in (
        C("f") > 1,
        C("f") >= 1,
        ~(C("f") < 1),
        C("f") == math.nan,
        C("f") <= math.nan,
        C("g") > 0.1,
    ):
        expected = everything.filter(expression).sort("id")
        assert_frame_equal(lazy.filter(expression).collect().sort("id"), expected)


def test_projection_filter_and_limit_are_pushed_down(tmp_path):
    for day in range(5):
        columns = {f"c{n}": pa.array(range(day * n, 50_000 + day * n)) for n in range(12)}
        rows = pa.table({"day": pa.array([day] * 50_000, pa.int32())} | columns)
        deltalake.write_deltalake(tmp_path, rows, mode="append")
    with SharingServer({NAME: tmp_path}) as server, SharingClient(server.profile) as client:

        def fetched(read):
            before = len(server.requests)
            frame = read()
            files = [request for request in server.requests[before:] if request.is_file]
            return sum(request.bytes_sent for request in files), len({request.path for request in files}), frame

        scan = client.table(NAME).scan()
        lazy = scan.to_polars_lazy()
        full, files, _ = fetched(scan.to_arrow)
        assert files == 5
        for condition in (C("day") == 3, C("day").is_in([3]), C("day").is_between(3, 3), ~(C("day") != 3)):
            size, files, frame = fetched(lazy.filter(condition).select("c4").collect)
            assert (files, frame.shape) == (1, (50_000, 1))
            assert size < full / 20
        before = len(server.requests)
        _, files, frame = fetched(lazy.head(7).collect)
        assert (files, frame.height) == (1, 7)
        assert [request.body["limitHint"] for request in server.requests[before:] if request.body] == [7]


def test_errors_of_a_load_are_raised_as_they_are(tmp_path):
    path = write(tmp_path / "mixed")
    with SharingServer({NAME: path}) as server, SharingClient(server.profile) as client:
        lazy = client.table(NAME).scan().to_polars_lazy()
        for file in path.rglob("*.parquet"):
            file.unlink()
        for engine in ("in-memory", "streaming"):
            with pytest.raises(StorageError):
                lazy.collect(engine=engine)


def test_filters_that_cannot_be_decoded(lazy, everything):
    for expression in (
        C("s").map_elements(lambda text: len(text.split("x")) > 1, return_dtype=pl.Boolean),
        pl.all_horizontal([C("id") != number for number in range(0, 200, 3)]),
        functools.reduce(operator.and_, [C("id") != number for number in range(0, 200, 3)]),
        C("id").rank() > 5,
        C("id") > C("id").mean(),
    ):
        expected = sorted(everything.filter(expression)["id"])
        assert sorted(lazy.filter(expression).collect()["id"]) == expected


@pytest.mark.parametrize(("count", "pushed"), [(50, True), (2000, False)])
def test_expressions_that_are_nested_too_deep_are_not_pushed_down(count, pushed):
    expression = functools.reduce(operator.and_, [C("id") != number for number in range(count)])
    columns = StructType((StructField("id", PrimitiveType("long")),))
    predicate = pushed_predicate(expression, columns, pl.Schema({"id": pl.Int64}))
    assert (predicate != Constant(True)) == pushed


def test_scan_polars_takes_a_table_url(tmp_path):
    path = write(tmp_path / "mixed")
    with SharingServer({NAME: path}) as server:
        profile = server.write_profile(tmp_path / "config.share")
        lazy = ds.scan_polars(f"{profile}#{NAME}", columns=["id", "i"], filters=[("i", "=", 2)])
        assert lazy.collect_schema().names() == ["id", "i"]
        assert set(lazy.filter(C("id") > 100).collect()["i"]) == {2}


@pytest.mark.parametrize(
    "literal",
    [
        pl.lit(4_000_000, dtype=pl.Int32).cast(pl.Date),
        pl.lit(2**60).cast(pl.Datetime("us", "UTC")),
        pl.lit(2**60).cast(pl.Datetime("us")),
    ],
)
def test_times_beyond_the_years_of_python_are_compared_by_polars(lazy, everything, literal):
    kind = pl.select(literal).to_series().dtype
    names = [name for name, dtype in everything.schema.items() if dtype == kind]
    assert names
    for name in names:
        for expression in (C(name) < literal, C(name) >= literal):
            assert_frame_equal(lazy.filter(expression).collect(), everything.filter(expression))


@pytest.mark.parametrize("error", [AttributeError, TypeError, ValueError])
@pytest.mark.parametrize(("owner", "name"), [("meta", "serialize"), ("Expr", "deserialize")])
def test_a_polars_without_this_form_of_expressions_reads_the_same_rows(
    lazy, everything, owner, name, error, monkeypatch
):
    def missing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pl.Expr if owner == "Expr" else type(C("id").meta), name, missing)
    expression = C("id") > 5
    assert sorted(lazy.filter(expression).collect()["id"]) == sorted(everything.filter(expression)["id"])
