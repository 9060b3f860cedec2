"""Variant columns on their way from a file, or a share, to the reader: types, nesting, filters, pruning."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import decode_file
from variant_encoder import array, mapping, metadata, number, primitive, text

import delta_sharing_client as ds
from delta_sharing_client.errors import DataError, FilterError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.hints import HintColumns, json_hint, sql_hints
from delta_sharing_client.expressions.statistics import parse_stats
from delta_sharing_client.model.actions import AddFile, Metadata, Protocol
from delta_sharing_client.model.capabilities import request_capabilities
from delta_sharing_client.model.reader_features import SUPPORTED_FEATURES
from delta_sharing_client.model.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
)
from delta_sharing_client.parquet import assemble
from delta_sharing_client.parquet.arrow_types import VARIANT, arrow_schema, arrow_type
from delta_sharing_client.parquet.cast import FieldFinder, cast_to_schema, holds_variant
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec, check_variant
from delta_sharing_client.parquet.variant import cast_variant, variant_to_json
from delta_sharing_client.scan.file_tasks import SkipReason, TaskPlanner, read_spec
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.server import SharingServer
from delta_sharing_client.wire.file_block import FileBlock

GOLDEN = Path(__file__).parent / "golden_variant"
EMPTY = bytes.fromhex("010000")
ONE = b"\x0c\x01"
A = metadata(["a"])
KIND = PrimitiveType("variant")


def variant(value, names=EMPTY):
    return {"metadata": names, "value": value}


def column(kind, name="v", **meta):
    return StructField(name, kind, True, meta)


def parquet_of(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read(data, *columns, **options):
    schema = StructType(columns)
    spec = ReadSpec(schema, **options)
    task = FileScanTask(SecretUrl(""), "file-7", len(data), all_rows_match=spec.predicate is None)
    batches = list(decode_file(data, task, spec))
    return pa.Table.from_batches(batches, arrow_schema(schema, spec.variant))


def both(data, *columns, **options):
    """The rows, with variants as structs and as JSON."""
    structs = read(data, *columns, **options)
    structs.validate(full=True)
    texts = read(data, *columns, **options, variant="json")
    texts.validate(full=True)
    return structs.to_pylist(), texts.to_pylist()


class TestTypes:
    def test_arrow_types(self):
        assert arrow_type(KIND) == VARIANT == pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
        assert arrow_type(KIND, "json") == pa.string()
        nested = MapType(PrimitiveType("string"), ArrayType(StructType((column(KIND, "x"),))))
        assert arrow_type(nested) == pa.map_(pa.string(), pa.list_(pa.struct([("x", VARIANT)])))
        assert arrow_type(nested, "json") == pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.string())])))
        schema = StructType((column(KIND),))
        assert arrow_schema(schema).field("v").type == VARIANT
        assert arrow_schema(schema, "json").field("v").type == pa.string()

    def test_the_schema_of_a_table(self):
        text = '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}'
        assert parse_schema(text) == StructType((column(KIND),))

    def test_holds_variant(self):
        inner = StructType((column(KIND, "x"),))
        assert all(map(holds_variant, [KIND, inner, ArrayType(inner), MapType(PrimitiveType("string"), inner)]))
        assert not holds_variant(ArrayType(StructType((column(PrimitiveType("binary")),))))

    def test_what_variants_are_read_as(self):
        assert check_variant("struct") == "struct"
        assert check_variant("json") == "json"
        with pytest.raises(ValueError, match=r"variant is 'text'; it must be 'struct' or 'json'"):
            check_variant("text")
        spec = ReadSpec(StructType((column(KIND),)), variant="json")
        assert pickle.loads(pickle.dumps(spec)) == spec

    def test_features(self):
        assert {"varianttype", "variantshredding"} <= SUPPORTED_FEATURES
        assert "varianttype" in request_capabilities(("delta",))
        features = ("variantType", "variantType-preview", "variantShredding", "variantShredding-preview")
        Protocol(3, 7, features, features, "delta").check_readable("table t")


class TestFiles:
    def test_top_level(self):
        rows = [variant(ONE), None, variant(b"\x00"), variant(mapping({"a": ONE}, {"a": 0}), A)]
        for kind in (VARIANT, pa.struct([VARIANT.field("value"), VARIANT.field("metadata")])):
            data = parquet_of(pa.table({"v": pa.array(rows, kind)}))
            structs, texts = both(data, column(KIND))
            assert structs == [{"v": row} for row in rows]
            assert texts == [{"v": "1"}, {"v": None}, {"v": "null"}, {"v": '{"a":1}'}]

    def test_plain_variants_are_not_copied(self):
        source = pa.array([variant(ONE)] * 3, VARIANT)
        made = cast_variant(source)
        for position in range(2):
            assert made.field(position).buffers()[2].address == source.field(position).buffers()[2].address

    @pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view()], ids=str)
    def test_other_arrow_types_of_bytes(self, kind):
        fields = [pa.array([EMPTY, None]).cast(kind), pa.array([ONE, None]).cast(kind)]
        source = pa.StructArray.from_arrays(fields, ["metadata", "value"], mask=pa.array([False, True]))
        assert cast_variant(source).equals(pa.array([variant(ONE), None], VARIANT))
        with_dictionary = pa.StructArray.from_arrays(
            [pa.array([EMPTY]).dictionary_encode(), pa.array([ONE])], ["metadata", "value"]
        )
        assert cast_variant(with_dictionary).to_pylist() == [variant(ONE)]

    def test_an_extension_type(self):
        class VariantExtension(pa.ExtensionType):
            def __init__(self):
                super().__init__(VARIANT, "test.variant")

            def __arrow_ext_serialize__(self):
                return b""

            @classmethod
            def __arrow_ext_deserialize__(cls, storage_type, serialized):
                return cls()

        source = pa.ExtensionArray.from_storage(VariantExtension(), pa.array([variant(ONE), None], VARIANT))
        assert cast_variant(source).to_pylist() == [variant(ONE), None]
        pa.register_extension_type(VariantExtension())
        try:
            data = parquet_of(pa.table({"n": pa.array([1, 2]), "v": source, "m": pa.array([3, 4])}))
            columns = (column(PrimitiveType("long"), "m"), column(KIND))
            assert both(data, *columns) == (
                [{"m": 3, "v": variant(ONE)}, {"m": 4, "v": None}],
                [{"m": 3, "v": "1"}, {"m": 4, "v": None}],
            )
        finally:
            pa.unregister_extension_type("test.variant")

    def test_nested(self):
        rows = [
            {"s": {"v": variant(ONE), "n": 1}, "l": [variant(ONE), None], "m": [("k", variant(b"\x00"))]},
            {"s": None, "l": None, "m": None},
            {"s": {"v": None, "n": 2}, "l": [], "m": [("k", None), ("l", variant(b"\x04"))]},
        ]
        schema = pa.schema(
            [
                ("s", pa.struct([("n", pa.int32()), ("v", VARIANT)])),
                ("l", pa.list_(VARIANT)),
                ("m", pa.map_(pa.string(), VARIANT)),
            ]
        )
        columns = (
            column(StructType((column(KIND), column(PrimitiveType("long"), "n"))), "s"),
            column(ArrayType(KIND), "l"),
            column(MapType(PrimitiveType("string"), KIND), "m"),
        )
        data = parquet_of(pa.Table.from_pylist(rows, schema))
        structs, texts = both(data, *columns)
        assert structs == rows
        assert texts == [
            {"s": {"v": "1", "n": 1}, "l": ["1", None], "m": [("k", "null")]},
            {"s": None, "l": None, "m": None},
            {"s": {"v": None, "n": 2}, "l": [], "m": [("k", None), ("l", "true")]},
        ]

    def test_required_variants_in_a_struct_that_is_null(self):
        required = [pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]
        kind = pa.struct([pa.field("v", pa.struct(required), False)])
        data = parquet_of(pa.table({"s": pa.array([{"v": variant(ONE)}, None], kind)}))
        wanted = column(StructType((column(KIND),)), "s")
        assert both(data, wanted) == (
            [{"s": {"v": variant(ONE)}}, {"s": None}],
            [{"s": {"v": "1"}}, {"s": None}],
        )

    def test_slices_of_nested_variants(self):
        rows = [{"v": variant(primitive(3, bytes([n])))} if n % 3 else None for n in range(10)]
        source = pa.array(rows, pa.struct([("v", VARIANT)]))
        kind = StructType((column(KIND),))
        for start in range(9):
            made = cast_to_schema(source[start:], kind, arrow_type(kind, "json"), FieldFinder("none", "f", "s"))
            assert made.to_pylist() == [row and {"v": str(n)} for n, row in enumerate(rows)][start:]

    def test_from_spark(self):
        names = ("s", "gap")
        columns = [
            *(column(StructType((column(KIND),)), name) for name in names),
            column(ArrayType(KIND), "l"),
            column(MapType(PrimitiveType("string"), KIND), "m"),
        ]
        _, texts = both((GOLDEN / "nested.parquet").read_bytes(), *columns)
        assert texts == [
            {
                "s": {"v": f'{{"a":{n}}}'},
                "gap": None if n == 1 else {"v": '"q"'},
                "l": ["[1]", None, str(n)],
                "m": [("x", "null"), ("y", None)],
            }
            for n in range(3)
        ]
        _, texts = both((GOLDEN / "nested_object.parquet").read_bytes(), columns[0])
        assert texts == [{"s": {"v": f'{{"a":{n},"b":[]}}'}} for n in range(3)]

    @pytest.mark.parametrize("name", ["documents", "documents_object", "typed_object"])
    def test_through_the_reader(self, name):
        data = (GOLDEN / f"{name}.parquet").read_bytes()
        _, texts = both(
            data, column(PrimitiveType("long"), "id"), column(KIND), column(PrimitiveType("string"), "j")
        )
        assert [row["v"] for row in texts] == [row["j"] for row in texts]
        # The columns of a shredded variant are counted: what stands behind it is found.
        assert [row["id"] for row in texts] == list(range(len(texts)))

    def test_zero_rows_and_no_column(self):
        for kind in (VARIANT, pa.struct([*VARIANT, pa.field("typed_value", pa.int64())])):
            assert both(parquet_of(pa.table({"v": pa.array([], kind)})), column(KIND)) == ([], [])
            assert cast_variant(pa.array([], kind)).type == VARIANT
            assert variant_to_json(pa.array([], kind)).type == pa.string()
        data = parquet_of(pa.table({"n": [1, 2]}))
        assert both(data, column(KIND)) == ([{"v": None}] * 2, [{"v": None}] * 2)
        nulls = parquet_of(pa.table({"v": pa.nulls(2)}))
        assert both(nulls, column(KIND)) == ([{"v": None}] * 2, [{"v": None}] * 2)

    @pytest.mark.parametrize("mode", ["name", "id"])
    def test_column_mapping(self, mode):
        names = {"delta.columnMapping.physicalName": "col-9", "delta.columnMapping.id": 9}
        plain = pa.field("col-9", VARIANT, metadata={"PARQUET:field_id": "9"})
        other = pa.field("v", pa.string(), metadata={"PARQUET:field_id": "8"})
        table = pa.table([pa.array(["x"]), pa.array([variant(ONE)], VARIANT)], pa.schema([other, plain]))
        structs, texts = both(parquet_of(table), column(KIND, **names), mapping=mode)
        assert (structs, texts) == ([{"v": variant(ONE)}], [{"v": "1"}])

    def test_a_variant_without_value_is_a_json_null(self):
        source = pa.array([variant(None), None], VARIANT)
        assert both(parquet_of(pa.table({"v": source})), column(KIND)) == (
            [{"v": variant(b"\x00")}, {"v": None}],
            [{"v": "null"}, {"v": None}],
        )

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            (pa.array(['{"a":1}']), "string where metadata and value are expected"),
            (pa.array([[1]]), "where metadata and value are expected"),
            (pa.array([{"value": ONE}]), "no metadata"),
            (pa.array([{"metadata": EMPTY}]), "neither value nor typed_value"),
            (pa.array([{"metadata": "x", "value": ONE}]), "bytes are expected"),
            (pa.array([variant(ONE), variant(ONE, None)], VARIANT), "has no metadata"),
            (pa.StructArray.from_arrays([pa.array([EMPTY])] * 2, ["metadata", "metadata"]), "same name"),
        ],
    )
    def test_columns_that_are_no_variants_raise(self, source, reason):
        data = parquet_of(pa.table({"doc": source}))
        for form in ("struct", "json"):
            with pytest.raises(DataError, match=reason) as caught:
                read(data, column(KIND, "doc"), variant=form)
            assert caught.value.file_id == "file-7"
            assert "'doc'" in str(caught.value)

    def test_malformed_bytes_are_an_error_of_json_alone(self):
        data = parquet_of(pa.table({"doc": pa.array([[variant(b"\xfc")]], pa.list_(VARIANT))}))
        wanted = column(ArrayType(KIND), "doc")
        assert read(data, wanted).to_pylist() == [{"doc": [variant(b"\xfc")]}]
        with pytest.raises(
            DataError, match=r"file file-7: variant column 'doc' cannot be read: row 0 of its batch: .* type 63"
        ):
            read(data, wanted, variant="json")

    def test_long_columns_are_read_in_parts(self, monkeypatch):
        monkeypatch.setattr(assemble, "_VARIANT_BYTES", 1000)
        rows = [None if n % 7 == 0 else variant(text(str(n) * 9)) for n in range(500)]
        data = parquet_of(pa.table({"v": pa.array(rows, VARIANT), "n": range(500)}))
        table = read(data, column(KIND), column(PrimitiveType("long"), "n"), variant="json")
        assert table.column("v").to_pylist() == [None if n % 7 == 0 else f'"{str(n) * 9}"' for n in range(500)]
        assert table.column("n").to_pylist() == list(range(500))


class TestFilters:
    SCHEMA = StructType((column(KIND), column(PrimitiveType("long"), "n")))

    @pytest.mark.parametrize(
        ("op", "value"),
        [("=", "x"), ("!=", 1), ("<", b""), ("in", ["x"]), ("in", []), ("not in", []), ("in", [None]),
         ("not in", [None]), ("=", variant(ONE)), ("=", None)],
    )  # fmt: skip
    def test_variants_are_not_compared(self, op, value):
        with pytest.raises(FilterError, match="'v'"):
            bind_filters([("v", op, value)], self.SCHEMA)

    @pytest.mark.parametrize("form", ["struct", "json"])
    @pytest.mark.parametrize("projected", [True, False])
    def test_null_or_not(self, form, projected):
        kind = pa.struct([*VARIANT, pa.field("typed_value", pa.int64())])
        rows = [variant(b"\x00"), None, {"metadata": EMPTY, "typed_value": 5}, None]
        data = parquet_of(pa.table({"v": pa.array(rows, kind), "n": [0, 1, 2, 3]}), row_group_size=2)
        info = Metadata("id", json.dumps(SCHEMA_JSON))
        columns = ["v", "n"] if projected else ["n"]
        for op, expected in (("is", [1, 3]), ("is not", [0, 2])):
            predicate = bind_filters([("v", op, None)], self.SCHEMA)
            spec = read_spec(info, columns, predicate, form)
            task = FileScanTask(SecretUrl(""), "f", len(data), all_rows_match=False)
            batches = list(decode_file(data, task, spec))
            assert [n for batch in batches for n in batch.column("n").to_pylist()] == expected
            assert {tuple(batch.schema.names) for batch in batches} == {("v", "n") if projected else ("n",)}

    def test_row_groups_are_not_pruned_by_the_columns_of_a_variant(self):
        kind = pa.struct([*VARIANT, pa.field("typed_value", pa.int64())])
        rows = [{"metadata": EMPTY, "value": ONE}] * 4
        data = parquet_of(pa.table({"v": pa.array(rows, kind), "n": range(4)}), row_group_size=2)
        for op in ("is", "is not"):
            predicate = bind_filters([("v", op, None)], self.SCHEMA)
            task = FileScanTask(SecretUrl(""), "f", len(data), all_rows_match=False)
            with ParquetSource(data, task, ReadSpec(self.SCHEMA, predicate=predicate)) as source:
                assert [piece.groups for piece in source.read_units(unit_size=1)] == [(0,), (1,)]

    def test_hints_and_statistics(self):
        predicate = bind_filters([("v", "is", None)], self.SCHEMA)
        for partitions in ([], ["v", "n"]):
            assert json_hint(predicate, HintColumns.of(self.SCHEMA, partitions)) is None
            assert sql_hints(predicate, HintColumns.of(self.SCHEMA, partitions)) == ()
        bounds = {"minValues": {"v": "0S&u501fk+ze0"}, "maxValues": {"v": "0S&u500&]LC42"}}
        stats = parse_stats(json.dumps({"numRecords": 2, "nullCount": {"v": 1}} | bounds))
        domain = stats.bounds("v", KIND)
        assert (domain.lower, domain.upper) == (None, None)
        assert domain.has_null
        assert domain.has_value

    @pytest.mark.parametrize(("nulls", "pruned"), [(0, True), (1, False), (2, False)])
    def test_files_are_pruned_by_their_count_of_nulls(self, nulls, pruned):
        info = Metadata("id", json.dumps(SCHEMA_JSON))
        make = TaskPlanner(read_spec(info, None, bind_filters([("v", "is", None)], self.SCHEMA)))
        stats = json.dumps({"numRecords": 2, "nullCount": {"v": nulls}, "minValues": {"v": "0S&u501fk+ze0"}})
        action = AddFile(url=SecretUrl("u"), id="f", size=1, partition_values={}, stats=stats)
        (made,) = make(FileBlock.of([action]))
        assert (made is SkipReason.STATS) == pruned


SCHEMA_JSON = {
    "type": "struct",
    "fields": [
        {"name": "v", "type": "variant", "nullable": True, "metadata": {}},
        {"name": "n", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "l",
            "type": {"type": "array", "elementType": "variant", "containsNull": True},
            "nullable": True,
            "metadata": {},
        },
    ],
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A shared table with variants in two files, the second one shredded; the URL of it."""
    root = tmp_path_factory.mktemp("tables")
    log = root / "docs" / "_delta_log"
    log.mkdir(parents=True)
    features = {"readerFeatures": ["variantType", "variantShredding-preview"]}
    features["writerFeatures"] = features["readerFeatures"]
    kind = pa.struct([*VARIANT, pa.field("typed_value", pa.int64())])
    elements = pa.list_(VARIANT)
    tables = [
        pa.table({"v": pa.array([variant(mapping({"a": ONE}, {"a": 0}), A), None], VARIANT), "n": [1, 2],
                  "l": pa.array([[variant(array([ONE, b"\x00"]))], None], elements)}),
        pa.table({"v": pa.array([variant(None) | {"typed_value": 7}, variant(b"\x00")], kind), "n": [3, 4],
                  "l": pa.array([[], [None]], elements)}),
    ]  # fmt: skip
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features},
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(SCHEMA_JSON),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    for position, table in enumerate(tables):
        path = root / "docs" / f"{position}.parquet"
        pq.write_table(table, path)
        stats = json.dumps({"numRecords": 2, "nullCount": {"v": int(position == 0), "n": 0}})
        add = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "dataChange": True}
        actions.append({"add": add | {"modificationTime": position, "stats": stats}})
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    with SharingServer(root) as server:
        profile = root / "profile.share"
        profile.touch(0o600)
        profile.write_text(json.dumps(server.profile))
        with ds.SharingClient(server.profile) as client:
            (table,) = client.list_all_tables()
        yield f"{profile}#{table.full_name}"


SEVEN = b"\x18" + number(7, 8)
STRUCTS = [variant(mapping({"a": ONE}, {"a": 0}), A), None, variant(SEVEN), variant(b"\x00")]
TEXTS = ['{"a":1}', None, "7", "null"]
LISTS = [["[1,null]"], None, [], [None]]


class TestShared:
    def test_arrow(self, shared):
        table = ds.load_as_arrow(shared, progress=False)
        assert table.schema == pa.schema([("v", VARIANT), ("n", pa.int64()), ("l", pa.list_(VARIANT))])
        assert table.column("v").to_pylist() == STRUCTS
        texts = ds.load_as_arrow(shared, variant="json", progress=False)
        assert texts.schema == pa.schema([("v", pa.string()), ("n", pa.int64()), ("l", pa.list_(pa.string()))])
        assert texts.column("v").to_pylist() == TEXTS
        assert texts.column("l").to_pylist() == LISTS
        assert ds.load_as_arrow(shared, limit=0, variant="json").schema == texts.schema

    def test_pandas(self, shared):
        frame = ds.load_as_pandas(shared, progress=False)
        assert frame["v"].tolist() == STRUCTS
        assert frame["l"][0].tolist() == [variant(array([ONE, b"\x00"]))]
        texts = ds.load_as_pandas(shared, variant="json", progress=False)
        assert [None if pd.isna(item) else item for item in texts["v"]] == TEXTS
        assert texts["l"][0].tolist() == ["[1,null]"]
        for backend in ("pyarrow", "numpy_nullable"):
            texts = ds.load_as_pandas(shared, variant="json", dtype_backend=backend, columns=["v"], progress=False)
            assert [None if pd.isna(item) else item for item in texts["v"]] == TEXTS
            structs = ds.load_as_pandas(shared, dtype_backend=backend, columns=["v"], progress=False)
            assert [item if isinstance(item, dict) else None for item in structs["v"]] == STRUCTS

    def test_scan(self, shared):
        profile, name = shared.split("#")
        with ds.SharingClient(profile) as client:
            scan = client.table(name).scan(variant="json")
            assert scan.options.variant == "json"
            assert scan.schema == scan.to_arrow(progress=False).schema == scan.to_record_batch_reader().schema
            assert scan.schema.field("v").type == pa.string()
            assert scan.replace(variant="struct").schema.field("v").type == VARIANT
            assert scan.replace(limit=1).to_arrow(progress=False).column("v").to_pylist() == TEXTS[:1]
            assert client.table(name).scan().schema.field("v").type == VARIANT
            assert pa.table(scan).column("v").to_pylist() == TEXTS
            assert scan.replace(variant="struct").options.variant == "struct"
            assert scan.count() == 4
            for op, expected in (("is", [2]), ("is not", [1, 3, 4])):
                for form in ("struct", "json"):
                    filtered = scan.replace(filters=[("v", op, None)], variant=form)
                    assert filtered.to_arrow(progress=False).column("n").to_pylist() == expected
                    assert filtered.replace(columns=["n"]).to_arrow(progress=False).to_pydict() == {"n": expected}
                    assert filtered.count() == len(expected)
            with pytest.raises(FilterError):
                scan.replace(filters=[("v", "=", "7")]).to_arrow(progress=False)

    def test_polars_and_duckdb(self, shared):
        pytest.importorskip("polars")
        assert ds.load_as_polars(shared, variant="json", columns=["v"])["v"].to_list() == TEXTS
        pytest.importorskip("duckdb")
        relation = ds.load_as_duckdb(shared, variant="json", columns=["v"])
        assert [row[0] for row in relation.fetchall()] == TEXTS

    @pytest.mark.parametrize("bad", ["text", "", None, "JSON"])
    def test_malformed_filters_raise(self, shared, bad):
        profile, name = shared.split("#")
        for load in (ds.load_as_pandas, ds.load_as_arrow):
            with pytest.raises(ValueError, match="variant is"):
                load(shared, variant=bad)
        with ds.SharingClient(profile) as client, pytest.raises(ValueError, match="variant is"):
            client.table(name).scan(variant=bad)
