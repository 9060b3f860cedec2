"""Frames have the dtypes that the documentation says, and every value exactly."""

import datetime as dt
import math
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame_helpers import to_pandas
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.frames import check_dtype_backend

BIG = 2**60 + 1
UTC_TIME = pa.timestamp("us", tz="UTC")
PANDAS_3 = int(pd.__version__.split(".")[0]) >= 3
TEXT = "str" if PANDAS_3 else "object"
SCHEMA = pa.schema(
    {
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": UTC_TIME,
        "timestamp_ntz": pa.timestamp("us"),
        "decimal": pa.decimal128(38, 10),
        "void": pa.null(),
        "array": pa.list_(pa.int64()),
        "map": pa.map_(pa.string(), pa.int64()),
        "struct": pa.struct({"x": pa.int64()}),
    }
)
VALUES = {
    "byte": -128,
    "short": 2**15 - 1,
    "integer": -(2**31),
    "long": BIG,
    "float": 0.5,
    "double": 0.1,
    "boolean": True,
    "string": "ünï 🦆",
    "binary": b"\x00\xff",
    "date": date(1, 1, 1),
    "timestamp": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    "timestamp_ntz": datetime(2024, 1, 2, 3, 4, 5, 6),
    "decimal": Decimal("1234567890123456789012345678.0123456789"),
    "void": None,
    "array": [1, BIG],
    "map": [("k", BIG)],
    "struct": {"x": BIG},
}
PLAIN = {
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool",
    "string": TEXT,
    "binary": "object",
    "date": "object",
    "timestamp": "datetime64[us, UTC]",
    "timestamp_ntz": "datetime64[us]",
    "decimal": "object",
    "void": "object",
    "array": "object",
    "map": "object",
    "struct": "object",
}
WITH_NULLS = PLAIN | {
    "byte": "Int8",
    "short": "Int16",
    "integer": "Int32",
    "long": "Int64",
    "boolean": "boolean",
}
NULLABLE = WITH_NULLS | {"float": "Float32", "double": "Float64", "string": "string"}


def rows(*items):
    return pa.Table.from_pylist(list(items), SCHEMA)


def dtypes(frame):
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


def frame_of(**columns):
    return to_pandas(pa.table(columns))


class TestDtypes:
    def test_without_nulls(self):
        frame = to_pandas(rows(VALUES, VALUES))
        assert dtypes(frame) == PLAIN
        assert isinstance(frame.index, pd.RangeIndex)
        assert len(frame) == 2

    def test_with_nulls(self):
        assert dtypes(to_pandas(rows(VALUES, dict.fromkeys(VALUES)))) == WITH_NULLS

    def test_columns_of_nulls_alone(self):
        assert dtypes(to_pandas(rows(dict.fromkeys(VALUES), dict.fromkeys(VALUES)))) == WITH_NULLS

    def test_only_the_columns_that_hold_nulls_become_nullable(self):
        frame = frame_of(
            a=pa.array([1, None]), b=pa.array([1, 2]), c=pa.array([True, None]), d=pa.array([True, False])
        )
        assert dtypes(frame) == {"a": "Int64", "b": "int64", "c": "boolean", "d": "bool"}

    def test_a_null_in_any_chunk(self):
        chunked = pa.chunked_array([pa.array([1]), pa.array([None], pa.int64()), pa.array([BIG])])
        frame = frame_of(a=chunked)
        assert dtypes(frame) == {"a": "Int64"}
        assert frame["a"].tolist() == [1, pd.NA, BIG]

    @pytest.mark.parametrize("chunks", [[], [pa.RecordBatch.from_pylist([], SCHEMA)]])
    def test_an_empty_frame_has_the_full_dtypes(self, chunks):
        frame = to_pandas(pa.Table.from_batches(chunks, SCHEMA))
        assert len(frame) == 0
        assert dtypes(frame) == PLAIN
        assert isinstance(frame.index, pd.RangeIndex)

    def test_as_read_parquet_where_nothing_is_null(self, tmp_path):
        table = rows(VALUES, VALUES).drop_columns(["void"])
        pq.write_table(table, tmp_path / "x.parquet")
        pd.testing.assert_frame_equal(to_pandas(table), pd.read_parquet(tmp_path / "x.parquet"))

    def test_no_columns(self):
        table = pa.table({"x": pa.nulls(3)}).select([])
        for backend in (None, "numpy_nullable", "pyarrow"):
            frame = to_pandas(table, backend)
            assert frame.shape == (3, 0)
            assert isinstance(frame.index, pd.RangeIndex)
        assert to_pandas(pa.table({})).shape == (0, 0)


class TestBackends:
    SOME = (VALUES, dict.fromkeys(VALUES))

    @pytest.mark.parametrize("table", [rows(), rows(VALUES), rows(*SOME), rows(dict.fromkeys(VALUES))], ids=len)
    def test_numpy_nullable_depends_on_the_schema_alone(self, table):
        assert dtypes(to_pandas(table, "numpy_nullable")) == NULLABLE

    @pytest.mark.parametrize("table", [rows(), rows(VALUES), rows(*SOME), rows(dict.fromkeys(VALUES))], ids=len)
    def test_pyarrow_depends_on_the_schema_alone(self, table):
        frame = to_pandas(table, "pyarrow")
        assert [dtype.pyarrow_dtype for dtype in frame.dtypes] == [f.type for f in SCHEMA]
        assert pa.Table.from_pandas(frame, SCHEMA).to_pylist() == table.to_pylist()

    def test_numpy_nullable_values(self):
        frame = to_pandas(rows(*self.SOME), "numpy_nullable")
        assert frame["long"].tolist() == [BIG, pd.NA]
        assert frame["boolean"].tolist() == [True, pd.NA]
        assert frame["string"].tolist() == ["ünï 🦆", pd.NA]
        assert frame["double"].tolist() == [0.1, pd.NA]

    @pytest.mark.parametrize("backend", ["numpy", "", "PYARROW", 5, True])
    def test_unknown(self, backend):
        for call in (check_dtype_backend, lambda b: to_pandas(pa.table({"a": [1]}), b)):
            with pytest.raises(ValueError, match="dtype_backend is"):
                call(backend)

    def test_known(self):
        for backend in (None, "numpy_nullable", "pyarrow"):
            check_dtype_backend(backend)


class TestValues:
    @pytest.mark.parametrize(
        ("arrow", "low", "high"),
        [
            (pa.int8(), -128, 127),
            (pa.int16(), -(2**15), 2**15 - 1),
            (pa.int32(), -(2**31), 2**31 - 1),
            (pa.int64(), -(2**63), 2**63 - 1),
            (pa.int64(), BIG, -BIG),
        ],
        ids=str,
    )
    def test_integers_with_nulls_stay_exact(self, arrow, low, high):
        frame = frame_of(a=pa.array([low, None, high], arrow))
        assert frame["a"].isna().tolist() == [False, True, False]
        assert [int(v) for v in frame["a"].dropna()] == [low, high]

    def test_booleans_with_nulls(self):
        assert frame_of(a=pa.array([True, None, False]))["a"].tolist() == [True, pd.NA, False]

    def test_floats(self):
        values = frame_of(a=pa.array([0.1, None, math.nan, -math.inf]))["a"].tolist()
        assert values[0] == 0.1
        assert math.isnan(values[1])
        assert math.isnan(values[2])
        assert values[3] == -math.inf

    @pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
    def test_whether_nan_is_null_in_a_nullable_dtype_is_up_to_pandas(self, kind, tmp_path):
        table = pa.table({"a": pa.array([0.5, None, math.nan], kind), "b": pa.array([0.5, 1.0, math.nan], kind)})
        pq.write_table(table, tmp_path / "f.parquet")
        as_pandas = pd.read_parquet(tmp_path / "f.parquet", dtype_backend="numpy_nullable")
        frame = to_pandas(table, "numpy_nullable")
        pd.testing.assert_frame_equal(frame, as_pandas)
        pd.testing.assert_frame_equal(frame.isna(), as_pandas.isna())

    def test_texts_and_bytes(self):
        frame = frame_of(s=pa.array(["", None, "🦆"]), b=pa.array([b"", None, b"\xff"]))
        assert frame["s"].isna().tolist() == [False, True, False]
        assert frame["s"].dropna().tolist() == ["", "🦆"]
        assert frame["b"].tolist() == [b"", None, b"\xff"]

    def test_dates_are_dates(self):
        values = [date(1, 1, 1), None, date(1969, 12, 31), date(9999, 12, 31)]
        assert frame_of(a=pa.array(values))["a"].tolist() == values

    def test_decimals_keep_their_scale(self):
        values = [Decimal("1.50"), None, Decimal("-0.01")]
        got = frame_of(a=pa.array(values, pa.decimal128(5, 2)))["a"].tolist()
        assert got == values
        assert [str(v) for v in got if v is not None] == ["1.50", "-0.01"]

    @pytest.mark.parametrize("zone", [None, "UTC"])
    def test_times_in_years_that_nanoseconds_cannot_reach(self, zone):
        values = [
            datetime(1, 1, 1),
            None,
            datetime(1600, 2, 29, 1, 2, 3, 4),
            datetime(9999, 12, 31, 23, 59, 59, 999_999),
        ]
        series = frame_of(a=pa.array(values, pa.timestamp("us", tz=zone)))["a"]
        assert str(series.dtype) == ("datetime64[us]" if zone is None else "datetime64[us, UTC]")
        assert series.isna().tolist() == [False, True, False, False]
        micros = (
            series.dt.tz_localize(None).to_numpy().astype("int64") if zone else series.to_numpy().astype("int64")
        )
        expected = [
            None if v is None else (v - datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for v in values
        ]
        assert [m for m, v in zip(micros.tolist(), values, strict=True) if v is not None] == [
            e for e in expected if e is not None
        ]

    def test_instants_have_their_zone(self):
        series = frame_of(a=pa.array([datetime(2024, 1, 1, 12)], UTC_TIME))["a"]
        assert series[0] == pd.Timestamp("2024-01-01 12:00", tz="UTC")

    def test_every_value_of_a_row(self):
        frame = to_pandas(rows(VALUES, VALUES))
        for name, value in VALUES.items():
            got = frame[name][1]
            if name == "array":
                assert list(got) == value
            elif name == "void":
                assert got is None
            else:
                assert got == value, name


class TestNested:
    """Integers inside lists, maps and structs stay integers, nulls or not."""

    def test_lists_of_integers_with_nulls(self):
        got = frame_of(a=pa.array([[1, None, BIG], None, [], [None]]))["a"].tolist()
        assert got[1] is None
        assert list(got[0]) == [1, None, BIG]
        assert all(isinstance(v, int) for v in got[0] if v is not None)
        assert list(got[2]) == []
        assert list(got[3]) == [None]

    def test_lists_without_nulls(self):
        (values,) = frame_of(a=pa.array([[1, BIG]]))["a"]
        assert isinstance(values, np.ndarray)
        assert values.dtype == np.int64
        assert values.tolist() == [1, BIG]

    def test_structs(self):
        kind = pa.struct({"x": pa.int64(), "b": pa.bool_(), "d": pa.date32(), "s": pa.string()})
        values = [
            {"x": BIG, "b": True, "d": date(1, 1, 1), "s": "a"},
            {"x": None, "b": None, "d": None, "s": None},
            None,
        ]
        assert frame_of(a=pa.array(values, kind))["a"].tolist() == values

    def test_maps(self):
        values = [[("a", BIG), ("b", None)], None, []]
        assert frame_of(a=pa.array(values, pa.map_(pa.string(), pa.int64())))["a"].tolist() == values

    def test_lists_maps_and_structs_within_each_other(self):
        kind = pa.list_(pa.struct({"m": pa.map_(pa.string(), pa.list_(pa.int64()))}))
        values = [[{"m": [("k", [BIG, None]), ("l", None)]}, None], None]
        (first, second) = frame_of(a=pa.array(values, kind))["a"].tolist()
        assert second is None
        assert first[1] is None
        ((key, inner), other) = first[0]["m"]
        assert (key, list(inner)) == ("k", [BIG, None])
        assert other == ("l", None)

    def test_decimals_and_times_inside(self):
        far = datetime(9999, 12, 31, 23, 59, 59, 999_999)
        kind = pa.struct({"d": pa.decimal128(38, 10), "t": pa.timestamp("us")})
        (got,) = frame_of(a=pa.array([{"d": VALUES["decimal"], "t": far}], kind))["a"]
        assert got["d"] == VALUES["decimal"]
        assert got["t"] == far
        (got,) = frame_of(a=pa.array([[far, None, datetime(1, 1, 1)]], pa.list_(pa.timestamp("us"))))["a"]
        assert np.asarray(got).astype("datetime64[us]").astype("int64").tolist()[::2] == [
            (moment - datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for moment in (far, datetime(1, 1, 1))
        ]
        aware = far.replace(tzinfo=dt.UTC)
        (got,) = frame_of(a=pa.array([{"t": aware}], pa.struct({"t": UTC_TIME})))["a"]
        assert got["t"] == aware

    def test_booleans_in_lists(self):
        (got,) = frame_of(a=pa.array([[True, None, False]]))["a"]
        assert list(got) == [True, None, False]

    @given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=4))
    @settings(max_examples=examples(60), deadline=None)
    def test_any_integers_in_lists(self, values):
        got = frame_of(a=pa.array(values, pa.list_(pa.int64())))["a"].tolist()
        assert [None if v is None else [None if i is None else int(i) for i in v] for v in got] == values


class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["a.b", "", " ", "ünï", "🦆", "1", "None", "__index_level_0__", "index", 'q"uote', "a\nb", "columns"],
    )
    @pytest.mark.parametrize("values", [[1, 2], [1, None]])
    def test_any_name(self, name, values):
        for backend in (None, "numpy_nullable", "pyarrow"):
            frame = to_pandas(pa.table({name: pa.array(values), "z": pa.array(["x", "y"])}), backend)
            assert list(frame.columns) == [name, "z"]
            assert frame[name].isna().tolist() == [v is None for v in values]
            assert frame.index.tolist() == [0, 1]
            assert frame.columns.nlevels == 1

    def test_names_that_differ_in_case(self):
        frame = to_pandas(pa.table({"a": pa.array([1, None]), "A": pa.array([2, 3])}))
        assert dtypes(frame) == {"a": "Int64", "A": "int64"}


class TestIndependence:
    def test_pandas_metadata_of_a_file_is_ignored(self):
        stored = pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 6], name="key")))
        assert b"pandas" in stored.schema.metadata
        frame = to_pandas(stored)
        assert list(frame.columns) == ["a", "key"]
        assert frame.index.tolist() == [0, 1]

    def test_the_callers_table_stays(self):
        table = rows(VALUES, dict.fromkeys(VALUES))
        before = table.to_pylist()
        for backend in (None, "numpy_nullable", "pyarrow"):
            to_pandas(table, backend)
        assert table.to_pylist() == before

    @pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
    @pytest.mark.parametrize("name", [name for name in VALUES if name not in ("void", "array", "map", "struct")])
    @pytest.mark.parametrize("chunks", [1, 2])
    def test_the_frame_can_be_written_to(self, name, chunks, backend):
        """Memory that Arrow lent would be read-only."""
        items = [VALUES, VALUES] if chunks == 1 else [VALUES]
        table = pa.concat_tables([rows(*items)] * chunks)
        frame = to_pandas(table.select([name]), backend)
        frame.iloc[0, 0] = frame.iloc[1, 0]
        other = (
            type(VALUES[name])(7)
            if name in ("byte", "short", "integer", "long", "float", "double")
            else VALUES[name]
        )
        frame.loc[1, name] = other
        assert frame[name].tolist()[1] == other
        assert frame[name].dtype == to_pandas(table.select([name]), backend)[name].dtype
        assert table.column(name)[1].as_py() == VALUES[name]
