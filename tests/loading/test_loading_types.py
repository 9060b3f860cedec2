"""Every type of the protocol, from file to frame, in both response formats."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from loading_tables import File, array_of, column, map_of, struct_of, write_table

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DataError, UnsupportedTypeError
from delta_sharing_client.server import SharingServer

D38 = Decimal("99999999999999999999.999999999999999999")
MINUS_D38 = D38.copy_negate()  # `-D38` would round
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
UTC_MICROS = pa.timestamp("us", tz="UTC")

#: Column, its type in the table, its Arrow type in the file and in the result, two values and then a null.
PRIMITIVES: list[tuple[str, str, pa.DataType, list[Any]]] = [
    ("string", "string", pa.string(), ["", "Zürich \U0001f30d\n\x00", None]),
    ("char", "char(5)", pa.string(), ["abc  ", "", None]),
    ("varchar", "varchar(9)", pa.string(), ["abc", "ø", None]),
    ("long", "long", pa.int64(), [-(2**63), 2**63 - 1, None]),
    ("integer", "integer", pa.int32(), [-(2**31), 2**31 - 1, None]),
    ("short", "short", pa.int16(), [-(2**15), 2**15 - 1, None]),
    ("byte", "byte", pa.int8(), [-128, 127, None]),
    ("float", "float", pa.float32(), [-3.4028234663852886e38, 1.401298464324817e-45, None]),
    ("double", "double", pa.float64(), [float("-inf"), 5e-324, None]),
    ("boolean", "boolean", pa.bool_(), [True, False, None]),
    ("binary", "binary", pa.binary(), [b"", bytes(range(256)), None]),
    ("date", "date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    ("timestamp", "timestamp", UTC_MICROS, [FIRST, LAST, None]),
    (
        "timestamp_ntz",
        "timestamp_ntz",
        pa.timestamp("us"),
        [FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None), None],
    ),
    ("decimal38", "decimal(38,18)", pa.decimal128(38, 18), [D38, MINUS_D38, None]),
    ("decimal9", "decimal(9,2)", pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01"), None]),
    ("decimal18", "decimal(18,0)", pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(-1), None]),
]
NAMES = [name for name, *_ in PRIMITIVES]
PRIMITIVE_ROWS = pa.table({name: pa.array(values, kind) for name, _, kind, values in PRIMITIVES})

INNER = struct_of(column("n", "integer"), column("deep", array_of(map_of("string", "long"))))
NESTED_COLUMNS = [
    column("id", "long"),
    column("tags", array_of("string")),
    column("grid", array_of(array_of("integer"))),
    column("counts", map_of("string", "integer")),
    column("by_day", map_of("date", array_of("double"))),
    column("inner", INNER),
    column("many", array_of(INNER)),
    column("named", map_of("integer", INNER)),
]
ARROW_INNER = pa.struct([("n", pa.int32()), ("deep", pa.list_(pa.map_(pa.string(), pa.int64())))])
NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("grid", pa.list_(pa.list_(pa.int32()))),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("by_day", pa.map_(pa.date32(), pa.list_(pa.float64()))),
        ("inner", ARROW_INNER),
        ("many", pa.list_(ARROW_INNER)),
        ("named", pa.map_(pa.int32(), ARROW_INNER)),
    ]
)


def inner(n: int | None) -> dict[str, Any]:
    deep = None if n is None else [[("k", n), ("z", None)], None, []]
    return {"n": n, "deep": deep}


NESTED_ROWS = pa.Table.from_pylist(
    [
        {
            "id": 1,
            "tags": ["a", None, ""],
            "grid": [[1, None], [], None],
            "counts": [("x", 1), ("y", None)],
            "by_day": [(date(2024, 2, 29), [1.5, None]), (date(1, 1, 1), None)],
            "inner": inner(7),
            "many": [inner(1), None, inner(None)],
            "named": [(1, inner(2**31 - 1)), (2, None)],
        },
        dict.fromkeys(NESTED.names),
        {
            "id": 3,
            "tags": [],
            "grid": [],
            "counts": [],
            "by_day": [],
            "inner": inner(None),
            "many": [],
            "named": [],
        },
        {"id": 4, "tags": None, "grid": [None], "counts": None, "inner": {"n": None, "deep": []}, "many": [None]},
    ],
    schema=NESTED,
)

#: The files of `times`: the same instants as writers spell them.
TIMES = [datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC), None, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]
SPELLINGS: dict[str, tuple[pa.DataType, dict[str, Any]]] = {
    "int96": (UTC_MICROS, {"use_deprecated_int96_timestamps": True}),
    "nanos": (pa.timestamp("ns", tz="UTC"), {"version": "2.6"}),
    "micros": (UTC_MICROS, {}),
    "millis": (pa.timestamp("ms", tz="UTC"), {}),
    "without_zone": (pa.timestamp("us"), {}),
    "elsewhere": (pa.timestamp("us", tz="Asia/Tokyo"), {}),
}


def times_file(name: str) -> File:
    kind, options = SPELLINGS[name]
    zoned = kind.tz is not None
    values = [value if zoned or value is None else value.replace(tzinfo=None) for value in TIMES]
    rows = pa.table({"at": pa.array(values, kind), "how": [name] * len(TIMES)})
    return File(rows=rows, name=f"{name}.parquet", options=options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]) -> SharingServer:
    root = tmp_path_factory.mktemp("types")
    primitive_columns = [column(name, kind) for name, kind, *_ in PRIMITIVES]
    far = pa.table({"at": pa.array([FIRST, LAST], UTC_MICROS)})
    with_void = [column("id", "long"), column("nothing", "void"), column("also", struct_of(column("v", "void")))]
    tables = {
        "primitives": write_table(
            root / "primitives",
            primitive_columns,
            [
                File(rows=PRIMITIVE_ROWS, name="a.parquet"),
                # As Spark stores them: decimals in integers, no Arrow schema in the footer.
                File(
                    rows=PRIMITIVE_ROWS,
                    name="b.parquet",
                    options={"store_decimal_as_integer": True, "store_schema": False},
                ),
                File(rows=PRIMITIVE_ROWS, name="c.parquet", options={"use_dictionary": False, "version": "1.0"}),
            ],
        ),
        "nested": write_table(
            root / "nested",
            NESTED_COLUMNS,
            [
                File(rows=NESTED_ROWS, name="a.parquet"),
                File(rows=NESTED_ROWS, name="b.parquet", options={"store_schema": False, "row_group_size": 1}),
                File(rows=NESTED_ROWS, name="c.parquet", options={"use_compliant_nested_type": False}),
            ],
        ),
        "times": write_table(
            root / "times",
            [column("at", "timestamp"), column("how", "string")],
            [times_file(name) for name in SPELLINGS],
        ),
        "far_int96": write_table(
            root / "far_int96",
            [column("at", "timestamp")],
            [File(rows=far, name="a.parquet", options={"use_deprecated_int96_timestamps": True})],
        ),
        "void": write_table(
            root / "void",
            with_void,
            [
                File(rows=pa.table({"id": [1, 2]}), name="a.parquet"),
                File(rows=pa.table({"id": [3], "nothing": pa.nulls(1)}), name="b.parquet"),
            ],
        ),
        "unknown": write_table(
            root / "unknown",
            [column("id", "long"), column("shape", "hologram(4326)")],
            [File(rows=pa.table({"id": [1], "shape": [b"x"]}), name="a.parquet")],
        ),
        "misfit": write_table(
            root / "misfit",
            [column("n", "integer"), column("s", "string")],
            [
                File(
                    rows=pa.table({"n": pa.array([1, 2**40], pa.int64()), "s": pa.array([1, 2], pa.int64())}),
                    name="a.parquet",
                )
            ],
        ),
    }
    return serve({f"s.s.{name}": path for name, path in tables.items()})


@pytest.fixture(scope="module")
def client(server: SharingServer, connect: Callable[..., SharingClient]) -> SharingClient:
    return connect(server)


def load(client: SharingClient, table: str, response_format: str, **scan: Any) -> pa.Table:
    return client.table(f"s.s.{table}").scan(response_format=response_format, **scan).to_arrow()


def test_every_primitive_type(client: SharingClient, response_format: str) -> None:
    loaded = load(client, "primitives", response_format)
    assert loaded.schema == PRIMITIVE_ROWS.schema
    assert loaded.equals(pa.concat_tables([PRIMITIVE_ROWS] * 3))


@pytest.mark.parametrize("name", NAMES)
def test_single_column_equals_the_column_of_the_whole_table(client: SharingClient, name: str) -> None:
    loaded = load(client, "primitives", "auto", columns=[name.upper()])
    assert loaded.equals(pa.concat_tables([PRIMITIVE_ROWS.select([name])] * 3))


def test_nested_types_with_nulls_everywhere(client: SharingClient, response_format: str) -> None:
    loaded = load(client, "nested", response_format)
    assert loaded.schema == NESTED
    assert loaded.to_pylist() == NESTED_ROWS.to_pylist() * 3
    loaded.validate(full=True)


@pytest.mark.parametrize("name", NESTED.names)
def test_a_nested_column_alone(client: SharingClient, name: str) -> None:
    loaded = load(client, "nested", "auto", columns=[name], filters=[("id", "!=", 3)])
    kept = [row[name] for row in NESTED_ROWS.to_pylist() if row["id"] in (1, 4)]
    assert loaded.column(name).to_pylist() == kept * 3


def test_timestamps_however_they_are_stored(client: SharingClient, response_format: str) -> None:
    loaded = load(client, "times", response_format)
    assert loaded.schema.field("at").type == UTC_MICROS
    assert loaded.column("at").to_pylist() == TIMES * len(SPELLINGS)
    assert loaded.column("how").to_pylist() == [name for name in SPELLINGS for _ in TIMES]
    at = load(client, "times", response_format, filters=[("at", "=", TIMES[0])], columns=["how"])
    assert at.column("how").to_pylist() == list(SPELLINGS)


def test_int96_beyond_what_nanoseconds_hold(client: SharingClient) -> None:
    assert load(client, "far_int96", "auto").column("at").to_pylist() == [FIRST, LAST]


def test_void_columns_are_null_whether_the_file_holds_them_or_not(
    client: SharingClient, response_format: str
) -> None:
    loaded = load(client, "void", response_format)
    assert loaded.schema.field("nothing").type == pa.null()
    assert loaded.schema.field("also").type == pa.struct([("v", pa.null())])
    assert loaded.column("nothing").to_pylist() == [None] * 3
    assert loaded.column("id").to_pylist() == [1, 2, 3]
    frame = client.table("s.s.void").scan(response_format=response_format).to_pandas()
    assert frame["nothing"].isna().all()


def test_unknown_type_raises_only_if_the_column_is_read(client: SharingClient, response_format: str) -> None:
    with pytest.raises(UnsupportedTypeError, match="hologram") as caught:
        load(client, "unknown", response_format)
    assert caught.value.type_name == "hologram(4326)"
    assert load(client, "unknown", response_format, columns=["id"]).to_pylist() == [{"id": 1}]
    assert client.table("s.s.unknown").schema().names == ["id", "shape"]


@pytest.mark.parametrize("name", ["n", "s"])
def test_values_that_do_not_fit_raise_rather_than_change(client: SharingClient, name: str) -> None:
    with pytest.raises(DataError, match=f"column '{name}'"):
        load(client, "misfit", "auto", columns=[name])


class TestPandas:
    """The dtypes that `load.pandas` documents."""

    def test_without_nulls_as_read_parquet_gives_them(self, client: SharingClient, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        pq.write_table(PRIMITIVE_ROWS.slice(0, 2), tmp_path / "plain.parquet")
        expected = pd.read_parquet(tmp_path / "plain.parquet")
        frame = client.table("s.s.primitives").scan(limit=2).to_pandas()
        pd.testing.assert_frame_equal(frame, expected)
        assert isinstance(frame.index, pd.RangeIndex)

    def test_integers_and_booleans_with_nulls_keep_their_values(self, client: SharingClient) -> None:
        frame = client.table("s.s.primitives").scan().to_pandas()
        dtypes = {name: str(frame.dtypes[name]) for name in ("long", "integer", "short", "byte", "boolean")}
        assert dtypes == {
            "long": "Int64",
            "integer": "Int32",
            "short": "Int16",
            "byte": "Int8",
            "boolean": "boolean",
        }
        assert frame["long"].tolist()[:2] == [-(2**63), 2**63 - 1]
        assert frame["long"].isna().tolist() == [False, False, True] * 3
        assert frame["boolean"].tolist()[:2] == [True, False]

    def test_the_other_types(self, client: SharingClient) -> None:
        frame = client.table("s.s.primitives").scan().to_pandas()
        kinds = {name: str(frame.dtypes[name]) for name in ("float", "double", "timestamp", "timestamp_ntz")}
        assert kinds == {
            "float": "float32",
            "double": "float64",
            "timestamp": "datetime64[us, UTC]",
            "timestamp_ntz": "datetime64[us]",
        }
        assert frame["timestamp"][0].year == 1
        assert frame["timestamp"][1] == pd.Timestamp(LAST)
        assert frame["date"].tolist()[:2] == [date(1, 1, 1), date(9999, 12, 31)]
        assert frame["decimal38"].tolist()[:2] == [D38, MINUS_D38]
        assert frame["binary"].tolist()[:2] == [b"", bytes(range(256))]
        assert frame["string"].tolist()[:2] == ["", "Zürich \U0001f30d\n\x00"]
        assert np.isneginf(frame["double"][0])

    def test_integers_inside_lists_maps_and_structs_stay_integers(self, client: SharingClient) -> None:
        frame = client.table("s.s.nested").scan(limit=4).to_pandas()
        grid = [list(row) if row is not None else None for row in frame["grid"][0]]
        assert grid == [[1, None], [], None]
        assert type(grid[0][0]) is int
        assert frame["counts"][0] == [("x", 1), ("y", None)]
        assert type(frame["counts"][0][0][1]) is int
        assert frame["inner"][0]["n"] == 7
        assert frame["inner"][2]["n"] is None
        assert frame["inner"][1] is None
        assert frame["many"][0][0]["n"] == 1
        assert frame["many"][0][2]["n"] is None

    @pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable"])
    def test_a_dtype_backend_depends_on_the_schema_alone(self, client: SharingClient, backend: Any) -> None:
        scan = client.table("s.s.primitives").scan()
        whole, first, none = (
            variant.to_pandas(dtype_backend=backend)
            for variant in (scan, scan.replace(limit=1), scan.replace(limit=0))
        )
        assert whole.dtypes.to_dict() == first.dtypes.to_dict() == none.dtypes.to_dict()
        assert whole["long"].tolist()[:2] == [-(2**63), 2**63 - 1]
        if backend == "pyarrow":
            assert {name: dtype.pyarrow_dtype for name, dtype in whole.dtypes.items()} == {
                field.name: field.type for field in PRIMITIVE_ROWS.schema
            }
        else:
            assert str(whole.dtypes["byte"]) == "Int8"
            assert str(whole.dtypes["float"]) == "Float32"
            assert str(whole.dtypes["string"]).startswith("string")

    def test_an_unknown_dtype_backend_is_refused_before_anything_is_sent(
        self, server: SharingServer, client: SharingClient
    ) -> None:
        server.reset_requests()
        with pytest.raises(ValueError, match="dtype_backend"):
            client.table("s.s.primitives").scan().to_pandas(dtype_backend="numpy")  # type: ignore[arg-type]
        assert server.requests == []

    def test_convert_in_batches_gives_the_same_frame(self, server: SharingServer, tmp_path: Path) -> None:
        profile = server.write_profile(tmp_path / "profile.share")
        url = f"{profile}#s.s.primitives"
        pd.testing.assert_frame_equal(ds.load_as_pandas(url, convert_in_batches=True), ds.load_as_pandas(url))


class TestOtherFrames:
    """polars and DuckDB get the same values through the Arrow C stream."""

    def test_polars(self, client: SharingClient) -> None:
        frame = client.table("s.s.primitives").scan().to_polars()
        assert frame.columns == NAMES
        rows = frame.to_dicts()
        for name, _, _, values in PRIMITIVES:
            assert [row[name] for row in rows] == values * 3, name

    def test_polars_nested(self, client: SharingClient) -> None:
        frame = client.table("s.s.nested").scan(columns=["id", "tags", "grid", "inner", "many"]).to_polars()
        expected = NESTED_ROWS.select(["id", "tags", "grid"]).to_pylist() * 3
        assert frame.select("id", "tags", "grid").to_dicts() == expected
        assert [row["n"] if row else None for row in frame["inner"]] == [7, None, None, None] * 3

    def test_duckdb(self, client: SharingClient) -> None:
        import duckdb

        with duckdb.connect() as connection:
            relation = client.table("s.s.primitives").scan().to_duckdb(connection)
            rows = relation.fetchall()
            assert relation.columns == NAMES
            for position, name in enumerate(NAMES):
                values = next(values for known, _, _, values in PRIMITIVES if known == name)
                assert [row[position] for row in rows] == values * 3, name
            instants = client.table("s.s.times").scan(columns=["at"]).to_duckdb(connection)
            assert instants.aggregate('count("at"), epoch_us(min("at"))').fetchall() == [
                (len(SPELLINGS) * 2, -1_000_000)
            ]
