"""Geospatial columns, columns of types that this release does not know, and columns with a collation."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from loading_tables import File, array_of, column, struct_of, write_table

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import FilterError, UnsupportedTypeError
from delta_sharing_client.server import ServerOptions, SharingServer
from delta_sharing_client.table.shared_table import SharedTable

LCASE = {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}
TEXTS = ["Ab", "aB", "b", "ΣΑΣ", "σας", "İx", "i\u0307X", None]


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


@pytest.fixture
def load(
    serve: Callable[..., SharingServer], connect: Callable[..., SharingClient], tmp_path: Path
) -> Callable[..., SharedTable]:
    def write(columns: Any, *files: File, prefer: str = "delta", **options: Any) -> SharedTable:
        path = write_table(tmp_path / "t", columns, files, **options)
        server = serve({"s.s.t": path}, options=ServerOptions(prefer_format=prefer))
        return connect(server).table("s.s.t")

    return write


class TestGeospatial:
    GEOMETRY, GEOGRAPHY = "geometry(OGC:CRS84)", "geography(EPSG:4326, spherical)"
    COLUMNS = [
        column("id", "long"),
        column("g", GEOMETRY),
        column("h", GEOGRAPHY),
        column("n", struct_of(column("g", GEOMETRY))),
        column("l", array_of(GEOGRAPHY)),
    ]
    POINT = point(1.0, 2.0)
    ROWS = pa.table(
        {"id": [1, 2], "g": [POINT, None], "h": [None, POINT], "n": [{"g": POINT}, None], "l": [[POINT], []]}
    )
    STATS = {
        "numRecords": 2,
        "minValues": {"id": 1, "g": "POINT(1 2)"},
        "maxValues": {"id": 2, "g": "POINT(1 2)"},
        "nullCount": {"id": 0, "g": 1, "h": 1},
    }

    @pytest.fixture
    def table(self, load: Callable[..., SharedTable]) -> SharedTable:
        return load(self.COLUMNS, File(rows=self.ROWS, name="f", stats=self.STATS), features=["geospatial"])

    @pytest.mark.protocol("geospatial")
    def test_values_are_well_known_binary(self, table: SharedTable) -> None:
        rows = table.scan().to_arrow()
        assert rows.to_pylist() == self.ROWS.to_pylist()
        assert rows.schema.field("g").type == pa.binary()
        assert table.scan().to_pandas()["g"].tolist() == [self.POINT, None]

    def test_the_type_is_in_the_metadata_of_the_field(self, table: SharedTable) -> None:
        scan = table.scan()
        for schema in (scan.schema, scan.to_arrow().schema, scan.to_record_batch_reader().schema):
            nested = schema.field("n").type.field("g")
            for field, described in (
                (schema.field("g"), {"crs": "OGC:CRS84"}),
                (schema.field("h"), {"crs": "EPSG:4326", "edges": "spherical"}),
                (nested, {"crs": "OGC:CRS84"}),
            ):
                assert field.metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
                assert json.loads(field.metadata[b"ARROW:extension:metadata"]) == described

    def test_filters(self, table: SharedTable) -> None:
        assert table.scan(columns=["id"], filters=[("g", "is not", None)]).to_arrow()["id"].to_pylist() == [1]
        with pytest.raises(FilterError, match="cannot be compared"):
            table.scan(filters=[("g", "=", self.POINT)]).to_arrow()

    def test_other_libraries(self, table: SharedTable) -> None:
        scan = table.scan(columns=["id", "g"])
        assert scan.to_polars()["g"].to_list() == [self.POINT, None]
        assert scan.to_duckdb().fetchall() == [(1, self.POINT), (2, None)]

    def test_a_local_copy(self, table: SharedTable, tmp_path: Path) -> None:
        table.mirror(tmp_path / "m").sync()
        mirrored = table.mirror(tmp_path / "m").scan().to_arrow()
        assert mirrored.to_pylist() == self.ROWS.to_pylist()


class TestUnknownTypes:
    @pytest.mark.parametrize("name", ["timestamp_nanos", "timestamp(9)", {"type": "interval", "unit": "month"}])
    @pytest.mark.parametrize("feature", ["timestampNanos", "timestampNanos-preview"])
    @pytest.mark.protocol("timestampNanos")
    def test_the_other_columns_can_be_read(
        self, load: Callable[..., SharedTable], name: Any, feature: str
    ) -> None:
        rows = pa.table({"id": [1], "t": pa.array([1], pa.timestamp("ns"))})
        stats = {"numRecords": 1, "minValues": {"id": 1, "t": "2020"}, "maxValues": {"id": 1, "t": "2021"}}
        file = File(rows=rows, name="f", stats=stats)
        table = load([column("id", "long"), column("t", name)], file, features=[feature])
        assert table.scan(columns=["id"], filters=[("id", "=", 1)]).to_arrow().to_pylist() == [{"id": 1}]
        with pytest.raises(UnsupportedTypeError, match="column 't'"):
            table.scan().to_arrow()
        with pytest.raises(FilterError, match="'t' is"):
            table.scan(columns=["id"], filters=[("t", "=", 1)]).to_arrow()


@pytest.mark.parametrize("prefer", ["parquet", "delta"])
@pytest.mark.parametrize("partitioned", [False, True])
class TestCollations:
    """Statistics and hints compare bytes: they leave out no file of a collated column."""

    @pytest.fixture
    def table(self, load: Callable[..., SharedTable], prefer: str, partitioned: bool) -> SharedTable:
        bare = [column("id", "long"), column("s", "string", **LCASE)]
        files = []
        for number, text in enumerate(TEXTS):
            ids = pa.table({"id": [number]})
            rows = ids if partitioned else ids.append_column("s", pa.array([text], pa.string()))
            bounds = {"id": number} | ({} if partitioned or text is None else {"s": text})
            counts = {"numRecords": 1, "nullCount": {"id": 0, "s": int(text is None)}}
            stats = {"minValues": bounds, "maxValues": bounds} | counts
            values = {"s": text} if partitioned else {}
            files.append(File(rows=rows, name=f"f{number}", stats=stats, values=values))
        return load(bare, *files, prefer=prefer, partitions=["s"] if partitioned else [])

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ([("s", "=", "AB")], [0, 1]),
            ([("s", "!=", "AB")], [2, 3, 4, 5, 6]),
            ([("s", "in", ["ab", "B"])], [0, 1, 2]),
            ([("s", "not in", ["ab", "B"])], [3, 4, 5, 6]),
            ([("s", "<", "B")], [0, 1]),
            ([("s", "<=", "B"), ("id", ">", 0)], [1, 2]),
            ([("s", ">", "I")], [3, 4, 5, 6]),
            ([("s", "=", "σΑς")], [3, 4]),
            ([("s", "=", "İX")], [5, 6]),
            ([("s", "is", None)], [7]),
            ("s = 'AB' OR s IS NULL", [0, 1, 7]),
            ("NOT s = 'AB'", [2, 3, 4, 5, 6]),
        ],
    )
    def test_lower_case(self, table: SharedTable, filters: Any, expected: list[int]) -> None:
        assert sorted(table.scan(filters=filters).to_arrow()["id"].to_pylist()) == expected

    def test_no_part_of_the_filter_is_a_hint(self, table: SharedTable) -> None:
        scan = table.scan(filters=[("s", "=", "AB")])
        plan = scan.plan()
        assert plan.request is not None
        assert plan.request.json_predicate_hints is None  # type: ignore[union-attr]
        assert plan.request.predicate_hints == ()  # type: ignore[union-attr]
        assert len(plan.tasks) == len(TEXTS) - 1  # all but the null

    def test_engines_compare_bytes(self, table: SharedTable) -> None:
        """An engine that pushes its filter down does not know the collation."""
        lazy = table.scan().to_polars_lazy()
        assert lazy.filter(pl.col("s") == "ab").collect()["id"].to_list() == []
        assert sorted(lazy.filter(~(pl.col("s") == "AB")).collect()["id"].to_list()) == [0, 1, 2, 3, 4, 5, 6]
        assert sorted(lazy.filter(~pl.col("s").is_in(["AB"])).collect()["id"].to_list()) == [
            0,
            1,
            2,
            3,
            4,
            5,
            6,
        ]

    def test_like_is_refused(self, table: SharedTable) -> None:
        with pytest.raises(FilterError, match="collation"):
            table.scan(filters="s LIKE 'A%'").to_arrow()


@pytest.mark.parametrize("spelling", ["spark.UTF8_BINARY", "SPARK.utf8_binary", None])
def test_strings_without_a_collation(load: Callable[..., SharedTable], spelling: str | None) -> None:
    metadata = {} if spelling is None else {"__COLLATIONS": {"s": spelling}}
    rows = pa.table({"s": ["a", "A"]})
    table = load([column("s", "string", **metadata)], File(rows=rows, name="f"))
    assert table.scan(filters=[("s", "=", "A")]).to_arrow()["s"].to_pylist() == ["A"]
    assert table.scan(filters="s LIKE 'A%'").to_arrow()["s"].to_pylist() == ["A"]


@pytest.mark.parametrize(
    "collations", [{"s": "icu.UNICODE"}, {"s": "icu.en_US_CI.75.1"}, {"s": "spark.UTF8_LCASE_RTRIM"}, "x", [1]]
)
def test_collations_that_need_icu_are_refused(load: Callable[..., SharedTable], collations: Any) -> None:
    rows = pa.table({"s": ["a", None]})
    table = load([column("s", "string", __COLLATIONS=collations)], File(rows=rows, name="f"))
    for filters in ([("s", "=", "A")], [("s", "not in", ["A"])], "s < 'b'"):
        with pytest.raises(FilterError, match="collation"):
            table.scan(filters=filters).to_arrow()
    assert table.scan(filters=[("s", "is", None)]).count() == 1
    assert table.scan().to_arrow()["s"].to_pylist() == ["a", None]
