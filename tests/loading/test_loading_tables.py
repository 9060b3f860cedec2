"""Partitioned, evolved and empty tables, unusual names, deletion vectors, column mapping."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import eq, ge, lt, ne
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from loading_tables import File, array_of, column, map_of, struct_of, write_table

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import (
    BadRequestError,
    ColumnError,
    DataError,
    UnsupportedFeatureError,
    UnsupportedTableError,
)
from delta_sharing_client.server import SharingServer

UTC_MICROS = pa.timestamp("us", tz="UTC")
NOON = datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=UTC)

#: Type, texts of partition values as writers spell them, and what they stand for.
PARTITIONS: dict[str, tuple[pa.DataType, dict[str | None, Any]]] = {
    "string": (
        pa.string(),
        {"a b": "a b", "": None, None: None, "ø/%2F=:\U0001f30d": "ø/%2F=:\U0001f30d", " ": " ", "null": "null"},
    ),
    "long": (pa.int64(), {"-9223372036854775808": -(2**63), "007": 7, None: None}),
    "integer": (pa.int32(), {"2147483647": 2**31 - 1, "": None}),
    "short": (pa.int16(), {"-32768": -(2**15), None: None}),
    "byte": (pa.int8(), {"127": 127, None: None}),
    "double": (pa.float64(), {"1.5": 1.5, "-1E-5": -1e-5, "Infinity": float("inf"), None: None}),
    "float": (pa.float32(), {"0.1": 0.10000000149011612, None: None}),
    "boolean": (pa.bool_(), {"true": True, "false": False, "True": True, None: None}),
    "date": (pa.date32(), {"0001-01-01": date(1, 1, 1), "9999-12-31": date(9999, 12, 31), "": None}),
    "decimal(38,18)": (
        pa.decimal128(38, 18),
        {
            "12345678901234567890.000000000000000001": Decimal("12345678901234567890.000000000000000001"),
            None: None,
        },
    ),
    "timestamp": (
        UTC_MICROS,
        {
            "2024-02-29 12:00:00.25": NOON,
            "2024-02-29T12:00:00.250000Z": NOON,
            "2024-02-29T14:00:00.25+02:00": NOON,
            "1969-12-31 23:59:59": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
            None: None,
        },
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        {"2024-02-29 12:00:00.25": NOON.replace(tzinfo=None), "2024-02-29": datetime(2024, 2, 29), None: None},
    ),
    "binary": (pa.binary(), {"a\u0001b": b"a\x01b", None: None}),
}


def slug(data_type: str) -> str:
    return "by_" + data_type.partition("(")[0]


def partition_files(texts: dict[str | None, Any]) -> list[File]:
    return [
        File(rows=pa.table({"id": [n]}), name=f"part-{n}.parquet", values={"p": text})
        for n, text in enumerate(texts)
    ]


ODD_NAMES = ["a.b", "with space", "größe", "semi;colon", "back`tick", 'quo"te', "100%", "Tab\there", "\U0001f30d"]
WANTED = [column("id", "long"), column("name", "string"), column("added", "double"), column("at", "timestamp")]


def mapped(name: str, data_type: Any, number: int, physical: str) -> dict[str, Any]:
    return column(
        name, data_type, **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    )


def field(name: str, kind: pa.DataType, number: int | None = None) -> pa.Field:
    metadata = None if number is None else {b"PARQUET:field_id": str(number).encode()}
    return pa.field(name, kind, metadata=metadata)


MAPPED = [
    mapped("id", "long", 1, "col-1"),
    mapped("renamed", "string", 2, "col-2"),
    mapped("day", "date", 3, "col-3"),
    mapped("inner", struct_of(mapped("x", "integer", 5, "col-5"), mapped("y", "string", 6, "col-6")), 4, "col-4"),
    mapped("many", array_of(struct_of(mapped("z", "long", 8, "col-8"))), 7, "col-7"),
    mapped("table", map_of("string", struct_of(mapped("w", "long", 10, "col-10"))), 9, "col-9"),
    mapped("late", "long", 11, "col-11"),
]
MAPPED_ROWS = [
    {
        "id": 1,
        "renamed": "a",
        "day": date(2024, 1, 1),
        "inner": {"x": 1, "y": None},
        "many": [{"z": 1}, None],
        "table": [("k", {"w": 5})],
        "late": None,
    },
    {
        "id": 2,
        "renamed": None,
        "day": date(2024, 1, 1),
        "inner": None,
        "many": None,
        "table": [("k", None)],
        "late": None,
    },
]


def mapped_file(*, by_id: bool) -> File:
    """The rows of `MAPPED_ROWS`; by id the names in the file mean nothing, and are in another order."""

    def named(physical: str, number: int) -> str:
        return f"x{100 - number}" if by_id else physical

    def numbered(physical: str, kind: pa.DataType, number: int) -> pa.Field:
        return field(named(physical, number), kind, number)

    inner = pa.struct([numbered("col-6", pa.string(), 6), numbered("col-5", pa.int32(), 5)])
    many = pa.struct([numbered("col-8", pa.int64(), 8)])
    table = pa.struct([numbered("col-10", pa.int64(), 10)])
    schema = pa.schema(
        [
            numbered("col-9", pa.map_(pa.string(), table), 9),
            numbered("col-2", pa.string(), 2),
            numbered("col-4", inner, 4),
            numbered("col-1", pa.int64(), 1),
            numbered("col-7", pa.list_(many), 7),
        ]
    )
    rows = []
    for row in MAPPED_ROWS:
        inner_row, many_rows = row["inner"], row["many"]
        rows.append(
            {
                named("col-1", 1): row["id"],
                named("col-2", 2): row["renamed"],
                named("col-4", 4): inner_row
                and {named("col-5", 5): inner_row["x"], named("col-6", 6): inner_row["y"]},
                named("col-7", 7): many_rows and [item and {named("col-8", 8): item["z"]} for item in many_rows],
                named("col-9", 9): [
                    (key, value and {named("col-10", 10): value["w"]}) for key, value in row["table"]
                ],
            }
        )
    stats = {"numRecords": 2, "minValues": {"col-1": 1}, "maxValues": {"col-1": 2}, "nullCount": {"col-1": 0}}
    return File(
        rows=pa.Table.from_pylist(rows, schema=schema),
        name=f"mapped-{by_id}.parquet",
        values={"col-3": "2024-01-01"},
        stats=stats,
    )


def numbers(count: int, first: int = 0) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]) -> SharingServer:
    root = tmp_path_factory.mktemp("tables")
    tables = {
        slug(kind): write_table(
            root / slug(kind), [column("id", "long"), column("p", kind)], partition_files(texts), partitions=["p"]
        )
        for kind, (_, texts) in PARTITIONS.items()
    }
    n = [column("n", "long")]
    tables |= {
        "bad_partition": write_table(
            root / "bad_partition",
            [column("id", "long"), column("p", "integer")],
            [File(rows=pa.table({"id": [1]}), name="a.parquet", values={"p": "twelve"})],
            partitions=["p"],
        ),
        "partition_case": write_table(
            root / "partition_case",
            [column("id", "long"), column("Day", "date")],
            [File(rows=pa.table({"id": [1]}), name="a.parquet", values={"Day": "2024-01-01"})],
            partitions=["day"],
        ),
        "evolved": write_table(
            root / "evolved",
            WANTED,
            [
                File(rows=pa.table({"id": [1], "name": ["old"]}), name="a.parquet"),
                File(rows=pa.table({"gone": [9], "NAME": ["cased"], "Id": [2]}), name="b.parquet"),
                File(rows=pa.table({"added": [0.5], "at": pa.array([NOON], UTC_MICROS)}), name="c.parquet"),
                File(rows=pa.table({"gone": [1, 2]}), name="d.parquet"),
            ],
        ),
        "evolved_struct": write_table(
            root / "evolved_struct",
            [
                column("s", struct_of(column("a", "long"), column("b", "string"))),
                column("l", array_of(struct_of(column("a", "long"), column("b", "string")))),
            ],
            [
                File(
                    rows=pa.table({"s": [{"A": 1, "gone": True}, None], "l": [[{"a": 1}, None], None]}),
                    name="a.parquet",
                ),
                File(rows=pa.table({"s": [{"b": "x", "a": 2}], "l": [[]]}).slice(0, 1), name="b.parquet"),
            ],
        ),
        "odd_names": write_table(
            root / "odd_names",
            [column(name, "long") for name in ODD_NAMES],
            [File(rows=pa.table({name: [n] for n, name in enumerate(ODD_NAMES)}), name="a file +%.parquet")],
        ),
        "dotted": write_table(
            root / "dotted",
            [column("a.b", "long"), column("a", struct_of(column("b", "long")))],
            [File(rows=pa.table({"a.b": [1], "a": [{"b": 2}]}), name="a.parquet")],
        ),
        "empty": write_table(root / "empty", [*WANTED, column("many", array_of("string"))], []),
        "zero_rows": write_table(
            root / "zero_rows",
            n,
            [
                File(rows=numbers(0), name="a.parquet"),
                File(rows=numbers(2), name="b.parquet"),
                File(rows=numbers(0), name="c.parquet", stats=None),
            ],
        ),
        "only_zero_rows": write_table(root / "only_zero_rows", n, [File(rows=numbers(0), name="a.parquet")]),
        "vectors": write_table(
            root / "vectors",
            n,
            [
                File(rows=numbers(10), name="a.parquet", vector=[0, 3, 9], options={"row_group_size": 3}),
                File(rows=numbers(5, 10), name="b.parquet", vector=[1, 2], stored="inline"),
                File(rows=numbers(4, 20), name="c.parquet"),
                File(rows=numbers(3, 30), name="d.parquet", vector=range(3)),
            ],
            features=["deletionVectors"],
        ),
        "vector_beyond": write_table(
            root / "vector_beyond",
            n,
            [File(rows=numbers(3), name="a.parquet", vector=[7], stored="inline")],
            features=["deletionVectors"],
        ),
        "mapped_by_name": write_table(
            root / "mapped_by_name",
            MAPPED,
            [mapped_file(by_id=False)],
            partitions=["day"],
            configuration={"delta.columnMapping.mode": "name"},
            protocol=(2, 5),
        ),
        "mapped_by_id": write_table(
            root / "mapped_by_id",
            MAPPED,
            [mapped_file(by_id=True)],
            partitions=["day"],
            configuration={"delta.columnMapping.mode": "id"},
            features=["columnMapping"],
        ),
        "future": write_table(root / "future", n, [], features=["deletionVectors", "timeMachine"]),
        "far_future": write_table(root / "far_future", n, [], protocol=(9, 9)),
    }
    return serve({f"s.s.{name}": path for name, path in tables.items()})


@pytest.fixture(scope="module")
def client(server: SharingServer, connect: Callable[..., SharingClient]) -> SharingClient:
    return connect(server)


def load(client: SharingClient, table: str, response_format: str = "auto", **scan: Any) -> pa.Table:
    return client.table(f"s.s.{table}").scan(response_format=response_format, **scan).to_arrow()


@pytest.mark.parametrize("data_type", PARTITIONS)
def test_partition_values_of_every_type(client: SharingClient, response_format: str, data_type: str) -> None:
    kind, texts = PARTITIONS[data_type]
    loaded = load(client, slug(data_type), response_format)
    assert loaded.schema == pa.schema([("id", pa.int64()), ("p", kind)])
    assert loaded.column("p").to_pylist() == list(texts.values())
    assert loaded.column("id").to_pylist() == list(range(len(texts)))
    assert load(client, slug(data_type), response_format, columns=["p"]).column("p").equals(loaded.column("p"))


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, ">=": ge}


@pytest.mark.parametrize("data_type", [kind for kind in PARTITIONS if kind != "binary"])
def test_filters_on_partition_columns_of_every_type(client: SharingClient, data_type: str) -> None:
    """A filter gives the rows that a filter of the loaded rows gives, though the server prunes by hints."""
    _, texts = PARTITIONS[data_type]
    values = list(texts.values())
    scan = client.table(f"s.s.{slug(data_type)}").scan(columns=["id"])

    def found(op: str, wanted: Any, response_format: Any) -> list[int]:
        answer = scan.replace(filters=[("p", op, wanted)], response_format=response_format).to_arrow()
        return answer.column("id").to_pylist()

    for wanted, response_format in ((values[0], "parquet"), (values[-2], "delta")):
        for op, compare in COMPARISONS.items():
            expected = [n for n, value in enumerate(values) if value is not None and compare(value, wanted)]
            assert found(op, wanted, response_format) == expected, (op, wanted)
    assert found("is", None, "parquet") == [n for n, value in enumerate(values) if value is None]
    assert found("is not", None, "delta") == [n for n, value in enumerate(values) if value is not None]


def test_malformed_partition_value_names_column_and_file(client: SharingClient) -> None:
    with pytest.raises(DataError, match="partition column 'p': 'twelve' is not a number") as caught:
        load(client, "bad_partition")
    assert caught.value.file_id


def test_partition_columns_in_any_case(client: SharingClient) -> None:
    assert load(client, "partition_case").to_pylist() == [{"id": 1, "Day": date(2024, 1, 1)}]
    assert load(client, "partition_case", filters=[("DAY", "=", "2024-01-01")]).num_rows == 1
    assert load(client, "partition_case", filters=[("day", ">", "2024-01-01")]).num_rows == 0


def test_missing_columns_are_null_and_extra_columns_are_dropped(
    client: SharingClient, response_format: str
) -> None:
    loaded = load(client, "evolved", response_format)
    nothing = {"id": None, "name": None, "added": None, "at": None}
    assert loaded.to_pylist() == [
        nothing | {"id": 1, "name": "old"},
        nothing | {"id": 2, "name": "cased"},
        nothing | {"added": 0.5, "at": NOON},
        nothing,
        nothing,
    ]
    assert loaded.schema.field("at").type == UTC_MICROS
    assert load(client, "evolved", response_format, columns=["added"]).column("added").null_count == 4
    missing = load(client, "evolved", response_format, filters=[("name", "is", None)], columns=["added"])
    assert missing.column("added").to_pylist() == [0.5, None, None]


def test_missing_struct_fields_are_null(client: SharingClient, response_format: str) -> None:
    loaded = load(client, "evolved_struct", response_format)
    assert loaded.to_pylist() == [
        {"s": {"a": 1, "b": None}, "l": [{"a": 1, "b": None}, None]},
        {"s": None, "l": None},
        {"s": {"a": 2, "b": "x"}, "l": []},
    ]
    loaded.validate(full=True)


def test_column_names_with_special_characters(client: SharingClient, response_format: str) -> None:
    loaded = load(client, "odd_names", response_format)
    assert loaded.to_pylist() == [{name: n for n, name in enumerate(ODD_NAMES)}]
    for n, name in enumerate(ODD_NAMES):
        found = load(client, "odd_names", response_format, columns=[name], filters=[(name, "=", n)])
        assert found.to_pylist() == [{name: n}]
    assert load(client, "odd_names", columns=["WITH Space"]).column_names == ["with space"]


def test_a_dot_belongs_to_the_name(client: SharingClient) -> None:
    assert load(client, "dotted", columns=["a.b"]).to_pylist() == [{"a.b": 1}]
    assert load(client, "dotted").to_pylist() == [{"a.b": 1, "a": {"b": 2}}]
    assert load(client, "dotted", filters=[("a.b", "=", 1)]).num_rows == 1
    with pytest.raises(ColumnError, match=r"no column 'a\.c'"):
        load(client, "dotted", columns=["a.c"])


def test_an_empty_table_has_its_schema(client: SharingClient, response_format: str) -> None:
    loaded = load(client, "empty", response_format)
    assert loaded.num_rows == 0
    assert loaded.schema.names == ["id", "name", "added", "at", "many"]
    assert loaded.schema.field("many").type == pa.list_(pa.string())
    scan = client.table("s.s.empty").scan(response_format=response_format)
    frame = scan.to_pandas()
    assert frame.empty
    assert str(frame.dtypes["id"]) == "int64"
    assert str(frame.dtypes["at"]) == "datetime64[us, UTC]"
    assert scan.to_polars().columns == loaded.schema.names
    assert scan.count() == 0
    assert scan.to_duckdb().fetchall() == []
    assert scan.replace(columns=["at", "id"]).to_arrow().schema.names == ["at", "id"]


def test_files_without_rows(client: SharingClient, response_format: str) -> None:
    assert load(client, "zero_rows", response_format).column("n").to_pylist() == [0, 1]
    assert load(client, "zero_rows", response_format, limit=1).num_rows == 1
    assert load(client, "zero_rows", response_format, columns=[]).num_rows == 2
    assert client.table("s.s.zero_rows").scan().count() == 2
    loaded = load(client, "only_zero_rows", response_format)
    assert (loaded.num_rows, loaded.schema.names) == (0, ["n"])


DELETED = {0, 3, 9, 11, 12, 30, 31, 32}
LEFT = [n for n in [*range(15), *range(20, 24), *range(30, 33)] if n not in DELETED]


class TestDeletionVectors:
    @pytest.mark.protocol("deletionVectors")
    def test_deleted_rows_are_left_out(self, client: SharingClient) -> None:
        assert load(client, "vectors").column("n").to_pylist() == LEFT
        assert load(client, "vectors", "delta").column("n").to_pylist() == LEFT

    def test_with_limit_filter_and_no_columns(self, client: SharingClient) -> None:
        for limit in (0, 1, 3, 7, 8, 100):
            assert load(client, "vectors", limit=limit).column("n").to_pylist() == LEFT[:limit]
        assert load(client, "vectors", filters=[("n", "<", 12)]).column("n").to_pylist() == LEFT[:8]
        assert load(client, "vectors", columns=[]).num_rows == len(LEFT)
        assert load(client, "vectors", columns=[], filters=[("n", ">=", 12)]).num_rows == len(LEFT[8:])

    def test_count_subtracts_deleted_rows(self, client: SharingClient) -> None:
        scan = client.table("s.s.vectors").scan()
        assert scan.count() == len(LEFT)
        assert scan.replace(filters=[("n", ">=", 9)]).count() == len(LEFT[7:])
        assert scan.replace(limit=5).count() == 5

    def test_deletion_vectors_are_not_expressible_in_parquet_format(self, client: SharingClient) -> None:
        with pytest.raises(BadRequestError, match="deletionVectors"):
            load(client, "vectors", "parquet")

    def test_deletion_vector_beyond_its_file_raises(self, client: SharingClient) -> None:
        with pytest.raises(DataError, match="deletes row 7 of a file of 3 rows"):
            load(client, "vector_beyond")


@pytest.mark.parametrize("mode", ["name", "id"])
class TestColumnMapping:
    @pytest.mark.protocol("columnMapping")
    def test_columns_are_found_under_their_new_names(self, client: SharingClient, mode: str) -> None:
        loaded = load(client, f"mapped_by_{mode}", "delta")
        assert loaded.to_pylist() == MAPPED_ROWS
        loaded.validate(full=True)

    def test_columns_and_filters_take_the_new_names(self, client: SharingClient, mode: str) -> None:
        table = f"mapped_by_{mode}"
        assert load(client, table, columns=["RENAMED"]).to_pylist() == [{"renamed": "a"}, {"renamed": None}]
        assert load(client, table, filters=[("renamed", "=", "a")], columns=["id"]).to_pylist() == [{"id": 1}]
        assert load(client, table, filters=[("day", "=", date(2024, 1, 1)), ("id", ">", 1)]).num_rows == 1
        assert load(client, table, filters=[("day", "<", date(2024, 1, 1))]).num_rows == 0
        assert load(client, table, filters=[("id", ">", 2)]).num_rows == 0
        with pytest.raises(ColumnError, match="col-1"):
            load(client, table, columns=["col-1"])


def test_table_with_unsupported_features_is_refused_by_name(client: SharingClient) -> None:
    """The server refuses already, for the client does not list the feature."""
    for response_format in ("auto", "delta", "parquet"):
        with pytest.raises(BadRequestError, match="timeMachine"):
            load(client, "future", response_format)


@pytest.mark.parametrize("features", [["timeMachine"], ["deletionVectors", "timeMachine", "columnMapping"]])
def test_unsupported_feature_accepted_by_the_server_is_refused_by_the_client(
    faults: Any, connect: Callable[..., SharingClient], features: list[str]
) -> None:
    from faults.server import Reply

    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    metadata = {"id": "x", "format": {"provider": "parquet"}, "schemaString": '{"type":"struct","fields":[]}'}
    lines = (
        {"protocol": {"deltaProtocol": protocol}},
        {"metaData": {"deltaMetadata": metadata | {"partitionColumns": []}}},
        {"endStreamAction": {}},
    )
    path = "/shares/s/schemas/s/tables/t"
    headers = {"delta-sharing-capabilities": "responseformat=delta;includeendstreamaction=true"}
    faults.on("POST", f"{path}/query", Reply.of_lines(*lines, headers=headers))
    faults.on("GET", f"{path}/metadata", Reply.of_lines(*lines, headers=headers))
    scan = connect(faults).table("s.s.t").scan()
    for read in (scan.to_arrow, scan.count, scan.files, scan.explain, scan.replace(limit=0).to_arrow):
        with pytest.raises(UnsupportedFeatureError, match="timeMachine") as caught:
            read()
        assert caught.value.features == ("timeMachine",)


@pytest.mark.protocol("minReaderVersion")
def test_newer_reader_version_names_the_upgrade(client: SharingClient) -> None:
    for response_format in ("auto", "delta"):
        with pytest.raises(UnsupportedTableError, match=r"needs reader version 9 .* upgrade"):
            load(client, "far_future", response_format)
    with pytest.raises(BadRequestError, match="needs reader version 9"):
        load(client, "far_future", "parquet")


def test_a_table_written_and_changed_by_deltalake(
    tmp_path_factory: pytest.TempPathFactory,
    serve: Callable[..., SharingServer],
    connect: Callable[..., SharingClient],
) -> None:
    """Partitions, schema evolution, deletes and updates as a real writer leaves them, version by version."""
    path = str(tmp_path_factory.mktemp("real") / "t")
    for day, names in enumerate((["a/b", "ø", None], ["x=y", "a b", ""])):
        rows = pa.table(
            {"id": [day * 3 + n for n in range(3)], "name": names, "day": [date(2024, 1, day + 1)] * 3}
        )
        write_deltalake(path, rows, mode="append", partition_by=["day", "name"])
    late = pa.table({"id": [9], "name": ["late"], "day": [date(2024, 1, 9)], "more": [1]})
    write_deltalake(path, late, mode="append", schema_mode="merge")
    DeltaTable(path).delete("id = 1")
    DeltaTable(path).update(updates={"more": "id * 2"}, predicate="id >= 4")
    client = connect(serve({"s.s.t": path}))
    for version in range(DeltaTable(path).version() + 1):
        expected = pa.table(DeltaTable(path, version=version).to_pyarrow_table()).sort_by("id")
        for response_format in ("parquet", "delta"):
            loaded = client.table("s.s.t").scan(version=version, response_format=response_format).to_arrow()
            assert loaded.sort_by("id").to_pylist() == expected.to_pylist(), version
