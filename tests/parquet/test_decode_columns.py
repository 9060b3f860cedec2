"""Which column of a file is which of the table; row groups, rows without columns, partition values."""

import struct
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import FILE_ID, array_of, batches, mapped, micros, parquet, read, struct_of, table_schema

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.predicates import Compare
from delta_sharing_client.frames.arrow import to_table
from delta_sharing_client.parquet.arrow_types import arrow_type, scalar_of

ABC = {"a": pa.array([1, 2]), "b": pa.array(["x", None]), "c": pa.array([True, False])}
A, B, C = ("a", "long"), ("b", "string"), ("c", "boolean")


class TestProjection:
    @pytest.mark.parametrize("order", [[A, B, C], [C, A, B], [B], [C, B], [B, A, C]], ids=str)
    def test_any_order(self, order):
        got = read(ABC, *order)
        assert got.column_names == [name for name, _ in order]
        assert got.to_pydict() == {name: ABC[name].to_pylist() for name, _ in order}

    def test_missing_columns_are_nulls_of_their_type(self):
        kinds = {
            "n1": ("long", pa.int64()),
            "n2": ("string", pa.string()),
            "n3": ("decimal(38,2)", pa.decimal128(38, 2)),
            "n4": ("timestamp", pa.timestamp("us", tz="UTC")),
            "n5": (array_of(struct_of(x="date")), pa.list_(pa.struct({"x": pa.date32()}))),
            "n6": ("void", pa.null()),
            "n7": ("boolean", pa.bool_()),
        }
        got = read(ABC, ("n1", "long"), A, *((name, kind) for name, (kind, _) in list(kinds.items())[1:]))
        assert got.column("a").to_pylist() == [1, 2]
        for name, (_, arrow) in kinds.items():
            assert got.schema.field(name).type == arrow
            assert got.column(name).to_pylist() == [None, None]

    def test_nothing_but_missing_columns(self):
        assert read(ABC, ("x", "long"), ("y", "string")).to_pylist() == [{"x": None, "y": None}] * 2

    def test_extra_columns_are_left_out_even_where_they_cannot_be_read(self):
        assert read(ABC | {"odd": pa.array([1, 2], pa.time64("us"))}, A).column_names == ["a"]

    @pytest.mark.parametrize("threads", [1, 2, 3, 8])
    def test_threads_for_columns(self, threads):
        assert read(ABC, C, A, threads=threads).to_pydict() == {"c": [True, False], "a": [1, 2]}

    def test_the_schema_is_the_tables_alone(self):
        stored = pa.table(ABC).replace_schema_metadata({"pandas": "{}", "x": "y"})
        got = read(parquet(stored), A, ("b", "string"))
        assert got.schema.metadata is None
        assert all(f.metadata is None and f.nullable for f in got.schema)

    def test_any_buffer(self):
        data = parquet(ABC)
        for buffer in (data, bytearray(data), memoryview(data), pa.py_buffer(data)):
            assert read(buffer, A).to_pydict() == {"a": [1, 2]}


class TestNames:
    def test_another_case(self):
        assert read(
            {"Id": pa.array([1]), "NAME": pa.array(["x"])}, ("ID", "long"), ("name", "string")
        ).to_pydict() == {
            "ID": [1],
            "name": ["x"],
        }

    def test_the_exact_name_first(self):
        stored = {"ID": pa.array([1]), "id": pa.array([2]), "Id": pa.array([3])}
        for name, value in (("id", 2), ("ID", 1), ("Id", 3), ("iD", 1)):
            assert read(stored, (name, "long")).to_pydict() == {name: [value]}
        assert read(stored, ("Id", "long"), ("ID", "long"), ("id", "long")).to_pydict() == {
            "Id": [3],
            "ID": [1],
            "id": [2],
        }

    def test_two_columns_of_the_table_for_one_of_the_file(self):
        """They differ in case alone; the columns behind them stay where they are."""
        stored = {"a": pa.array([1]), "b": pa.array([2]), "z": pa.array([3])}
        got = read(stored, ("a", "long"), ("A", "long"), ("z", "long"), ("b", "long"))
        assert got.to_pydict() == {"a": [1], "A": [1], "z": [3], "b": [2]}

    def test_a_name_twice_in_the_file(self):
        """The first one, as Spark reads it; the columns behind stay where they are."""
        stored = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
        assert read(parquet(stored), ("b", "long"), ("a", "long")).to_pydict() == {"b": [3], "a": [1]}

    def test_a_dot_in_a_name_is_no_path(self):
        stored = {
            "a.b": pa.array([1]),
            "a": pa.array([{"b": 2, "c.d": 3}]),
            "a.b.c": pa.array([4]),
            "x": pa.array([{"y": {"z": 5}, "y.z": 6}]),
        }
        fields = [
            ("a", struct_of(**{"b": "long", "c.d": "long"})),
            ("a.b.c", "long"),
            ("x", struct_of(**{"y.z": "long", "y": struct_of(z="long")})),
            ("a.b", "long"),
        ]
        got = read(stored, *fields)
        assert got.to_pylist() == [{"a": {"b": 2, "c.d": 3}, "a.b.c": 4, "x": {"y.z": 6, "y": {"z": 5}}, "a.b": 1}]
        for one in fields:
            assert read(stored, one).column(0).to_pylist() == got.column(one[0]).to_pylist()
        assert read(stored, ("a.c", "long")).to_pydict() == {"a.c": [None]}

    @pytest.mark.parametrize("name", ["a b", "ünï", "🦆", "`a`", '"', "'", "a\nb", "", "list", "1", "a/b", "#"])
    def test_unusual_column_names(self, name):
        stored = {"before": pa.array([1]), name: pa.array([2]), "after": pa.array([3])}
        assert read(stored, (name, "long"), ("after", "long")).to_pydict() == {name: [2], "after": [3]}

    def test_many_columns_around_nested_ones(self):
        stored = {
            "n1": None,
            "x": pa.array([10]),
            "n2": pa.array([[("k", {"v": [1, 2]})]], pa.map_(pa.string(), pa.struct({"v": pa.list_(pa.int64())}))),
            "y": pa.array([20]),
            "e": pa.array(["z"]).dictionary_encode(),
            "z": pa.array([30]),
        }
        stored["n1"] = pa.array(
            [{"a": 1, "b": [{"c": 2, "d": [("k", 3)]}]}],
            pa.struct(
                {
                    "a": pa.int64(),
                    "b": pa.list_(pa.struct({"c": pa.int64(), "d": pa.map_(pa.string(), pa.int64())})),
                }
            ),
        )
        for name, value in (("x", 10), ("y", 20), ("z", 30)):
            assert read(stored, (name, "long")).to_pydict() == {name: [value]}
        assert read(stored, ("z", "long"), ("e", "string"), ("y", "long")).to_pydict() == {
            "z": [30],
            "e": ["z"],
            "y": [20],
        }


class TestRowGroups:
    def test_many(self):
        stored = {"a": pa.array(range(1000)), "s": pa.array([str(i) for i in range(1000)])}
        data = parquet(stored, row_group_size=7)
        schema = table_schema(("s", "string"), ("a", "integer"))
        got = batches(data, schema, partition_columns=["p"])
        assert [b.num_rows for b in got] == [7] * 142 + [6]
        assert to_table(got, schema).to_pydict() == {"s": [str(i) for i in range(1000)], "a": list(range(1000))}

    def test_batches_come_as_they_are_decoded(self):
        data = bytearray(parquet({"a": pa.array(range(100))}, row_group_size=10))
        assert batches(bytes(data), table_schema(A))[0].num_rows == 10

    def test_no_rows(self):
        for table in (pa.table({"a": pa.array([], pa.int32()), "b": pa.array([], pa.string())}),):
            assert batches(parquet(table), table_schema(A, B)) == []
            got = read(parquet(table), A, B)
            assert got.num_rows == 0
            assert got.schema == pa.schema({"a": pa.int64(), "b": pa.string()})

    def test_no_row_groups(self, tmp_path):
        path = tmp_path / "empty.parquet"
        pq.ParquetWriter(path, pa.schema({"a": pa.int64()})).close()
        assert pq.ParquetFile(path).metadata.num_row_groups == 0
        assert batches(path.read_bytes(), table_schema(A)) == []
        assert batches(path.read_bytes(), table_schema()) == []

    def test_an_empty_row_group_among_others(self, tmp_path):
        path = tmp_path / "gap.parquet"
        schema = pa.schema({"a": pa.int64()})
        with pq.ParquetWriter(path, schema) as writer:
            for values in ([1], [], [2, 3]):
                writer.write_table(pa.table([pa.array(values, pa.int64())], schema=schema))
        data = path.read_bytes()
        assert [b.num_rows for b in batches(data, table_schema(A))] == [1, 2]
        assert sum(b.num_rows for b in batches(data, table_schema())) == 3

    @pytest.mark.parametrize("version", ["1.0", "2.0"])
    @pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
    def test_pages_and_codecs(self, version, compression):
        stored = {"a": pa.array([1, None, 3] * 100), "b": pa.array(["x", "y", None] * 100)}
        data = parquet(stored, data_page_version=version, compression=compression, data_page_size=64)
        assert read(data, A, B).to_pydict() == {k: v.to_pylist() for k, v in stored.items()}


class TestRowsWithoutColumns:
    def test_counts_stay(self):
        data = parquet({"a": pa.array(range(10))}, row_group_size=4)
        got = batches(data, table_schema())
        assert [(b.num_rows, b.num_columns) for b in got] == [(4, 0), (4, 0), (2, 0)]
        assert to_table(got, table_schema()).num_rows == 10

    def test_filtered_by_a_column_that_is_not_returned(self):
        schema = table_schema(A)
        predicate = bind_filters([("a", ">", 6)], schema)
        data = parquet({"a": pa.array(range(10))}, row_group_size=4)
        got = batches(data, table_schema(), predicate=predicate, extra=schema.fields)
        assert sum(b.num_rows for b in got) == 3
        assert all(b.num_columns == 0 for b in got)
        assert to_table(got, table_schema()).num_rows == 3

    def test_by_a_partition_value(self):
        schema = table_schema(("p", "integer"))
        predicate = Compare(schema.fields[0], "=", 5)
        data = parquet({"a": pa.array(range(3))})
        for text, rows in (("5", 3), ("6", 0), (None, 0)):
            got = batches(
                data,
                table_schema(),
                predicate=predicate,
                extra=schema.fields,
                partition_columns=["p"],
                partition_values={"p": text},
            )
            assert sum(b.num_rows for b in got) == rows


class TestFilters:
    SCHEMA = table_schema(A, B, C)

    def filtered(self, *filters, output=(A, B, C), data=None, **more):
        predicate = bind_filters(list(filters), self.SCHEMA)
        names = [name for name, _ in output]
        extra = tuple(f for f in self.SCHEMA.fields if f.name not in names)
        schema = table_schema(*output)
        got = batches(data or parquet(ABC), schema, predicate=predicate, extra=extra, **more)
        return to_table(got, schema).to_pylist()

    def test_rows(self):
        assert self.filtered(("a", "=", 2)) == [{"a": 2, "b": None, "c": False}]
        assert self.filtered(("b", "is", None)) == [{"a": 2, "b": None, "c": False}]
        assert self.filtered(("a", ">", 5)) == []

    def test_columns_that_only_the_filter_needs_are_left_out(self):
        assert self.filtered(("a", "=", 2), output=(C,)) == [{"c": False}]
        assert self.filtered(("b", "=", "x"), ("a", "<", 5), output=(C,)) == [{"c": True}]

    def test_all_rows_match_saves_the_filter(self):
        assert len(self.filtered(("a", "=", 2), all_rows_match=True)) == 2

    def test_a_missing_column_is_null_to_the_filter(self):
        data = parquet({"a": pa.array([1, 2])})
        assert self.filtered(("b", "=", "x"), data=data) == []
        assert len(self.filtered(("b", "is", None), data=data)) == 2

    def test_a_narrower_column_in_the_file(self):
        data = parquet({"a": pa.array([1, 2], pa.int8())})
        assert self.filtered(("a", ">=", 2), output=(A,), data=data) == [{"a": 2}]

    @pytest.mark.parametrize("source", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str)
    def test_unsigned_columns_in_the_file(self, source):
        most = min(2**source.bit_width - 1, 2**63 - 1)
        data = parquet({"a": pa.array([1, most], source)})
        assert self.filtered(("a", ">", 1), output=(A,), data=data) == [{"a": most}]
        assert self.filtered(("a", "<", 2), output=(A,), data=data) == [{"a": 1}]
        assert self.filtered(("a", "<", 0), output=(A,), data=data) == []


class TestDeletedRows:
    def test_across_row_groups(self):
        roaring = pytest.importorskip("pyroaring")
        from delta_sharing_client.parquet.deletion_vector import RowPositions

        positions = RowPositions(roaring.BitMap64([0, 4, 5, 9]), FILE_ID)
        data = parquet({"a": pa.array(range(10))}, row_group_size=4)
        got = to_table(batches(data, table_schema(A), deleted=positions), table_schema(A))
        assert got.column("a").to_pylist() == [1, 2, 3, 6, 7, 8]
        assert sum(b.num_rows for b in batches(data, table_schema(), deleted=positions)) == 6
        schema = table_schema(A)
        predicate = bind_filters([("a", ">", 6)], schema)
        kept = batches(data, schema, predicate=predicate, deleted=positions)
        assert to_table(kept, schema).column("a").to_pylist() == [7, 8]
        none = batches(data, table_schema(), predicate=predicate, extra=schema.fields, deleted=positions)
        assert sum(b.num_rows for b in none) == 2


class TestPartitionValues:
    VALUES = [
        ("byte", "-128", -128),
        ("short", "5", 5),
        ("integer", "5", 5),
        ("long", str(2**60 + 1), 2**60 + 1),
        ("double", "0.1", 0.1),
        ("float", "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
        ("string", "ünï/ö=x", "ünï/ö=x"),
        ("boolean", "TRUE", True),
        ("binary", "ab", b"ab"),
        ("date", "0001-01-01", date(1, 1, 1)),
        ("decimal(38,10)", "-1.5", Decimal("-1.5")),
        ("void", "x", None),
        *((kind, text, None) for kind in ("long", "string", "date", "timestamp") for text in (None, "")),
    ]

    @pytest.mark.parametrize(("kind", "text", "value"), VALUES)
    def test_every_type(self, kind, text, value):
        got = read(ABC, A, ("p", kind), partition_columns=["p"], partition_values={"p": text})
        assert got.column("p").to_pylist() == [value, value]
        assert got.column("a").to_pylist() == [1, 2]

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1970-01-01 00:00:00", 0),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("0001-01-01 00:00:00+18:00", -62_135_596_800_000_000 - 18 * 3_600_000_000),
            ("9999-12-31 23:59:59.999999", 253_402_300_799_999_999),
        ],
    )
    def test_times(self, text, value):
        got = read(ABC, ("p", "timestamp"), partition_columns=["p"], partition_values={"p": text})
        assert got.schema.field("p").type == pa.timestamp("us", tz="UTC")
        assert micros(got.column("p")) == [value, value]
        got = read(ABC, ("p", "timestamp_ntz"), partition_columns=["p"], partition_values={"p": text[:26]})
        assert got.schema.field("p").type == pa.timestamp("us")

    def test_the_actions_value_wins_over_the_files(self):
        for text, value in (("7", 7), (None, None)):
            got = read(ABC, A, partition_columns=["a"], partition_values={"a": text})
            assert got.to_pydict() == {"a": [value, value]}

    def test_a_value_of_a_column_that_does_not_partition(self):
        """What the file holds is the truth; what it does not hold may be told by the action."""
        assert read(ABC, A, partition_values={"a": "7"}).to_pydict() == {"a": [1, 2]}
        assert read(ABC, ("x", "long"), partition_values={"x": "7"}).to_pydict() == {"x": [7, 7]}

    def test_a_partition_column_without_a_value(self):
        assert read(ABC, A, partition_columns=["a"]).to_pydict() == {"a": [1, 2]}
        assert read(ABC, ("p", "long"), partition_columns=["p"]).to_pydict() == {"p": [None, None]}

    def test_names_in_another_case(self):
        got = read(ABC, ("Day", "integer"), partition_columns=["Day"], partition_values={"dAY": "3"})
        assert got.to_pydict() == {"Day": [3, 3]}

    def test_physical_names(self):
        for values in ({"col-1": "3"}, {"p": "3"}, {"col-1": "3", "p": "4"}):
            got = read(
                ABC,
                mapped("p", "integer", "col-1", 9),
                partition_columns=["p"],
                partition_values=values,
                mapping="name",
            )
            assert got.to_pydict() == {"p": [3, 3]}

    def test_a_malformed_value_names_file_and_column(self):
        for kind, text in (("integer", "x"), ("date", "-0001-01-01"), ("byte", "500"), ("string", "\ud800")):
            with pytest.raises(DataError, match=rf"file {FILE_ID}: partition column 'p': ") as caught:
                read(ABC, A, ("p", kind), partition_columns=["p"], partition_values={"p": text})
            assert caught.value.file_id == FILE_ID

    def test_a_malformed_value_that_is_not_read_does_no_harm(self):
        assert read(ABC, A, partition_columns=["p"], partition_values={"p": "x"}).num_rows == 2

    def test_constants(self):
        got = read(
            ABC,
            A,
            ("_change_type", "string"),
            ("_commit_version", "long"),
            ("_commit_timestamp", "timestamp"),
            constants={"_change_type": "insert", "_commit_version": 7, "_commit_timestamp": 5},
        )
        assert got.column("_change_type").to_pylist() == ["insert"] * 2
        assert got.column("_commit_version").to_pylist() == [7, 7]
        assert micros(got.column("_commit_timestamp")) == [5, 5]

    def test_a_constant_wins_over_the_file(self):
        assert read(ABC, B, constants={"b": "z"}).to_pydict() == {"b": ["z", "z"]}

    def test_a_long_text_in_very_many_rows(self):
        """More bytes than one array of texts can hold."""
        rows = 2_200_000
        data = parquet({"a": pa.nulls(rows, pa.int8())})
        schema = table_schema(("p", "string"))
        text = "x" * 1000
        total = 0
        for batch in batches(data, schema, partition_columns=["p"], partition_values={"p": text}):
            total += batch.num_rows
            assert batch.column(0)[batch.num_rows - 1].as_py() == text
            del batch
        assert total == rows

    @pytest.mark.parametrize(("kind", "text", "value"), VALUES)
    def test_scalars(self, kind, text, value):
        from delta_sharing_client.model.partition_values import parse_partition_value

        data_type = table_schema(("p", kind)).fields[0].type
        scalar = scalar_of(parse_partition_value(text, data_type), arrow_type(data_type))
        assert scalar.as_py() == value
