"""Arrays brought to the table's types where they are parts of larger ones, or come in several chunks.

The Parquet reader gives a column in several chunks where one array cannot hold it: texts of 2 GB and more.
"""

from contextlib import nullcontext
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_files import array_of, map_of, parquet, struct_of, table_schema
from thorough import examples

from delta_sharing_client.errors import DataError, ProtocolError
from delta_sharing_client.model.schema import DataType, PrimitiveType
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.parquet.cast import FieldFinder, cast_leaf, cast_to_schema, check_texts
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.read_units import ReadUnit
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl

FINDER = FieldFinder("none", "file-1")


def cast(array, kind):
    data_type = table_schema(("c", kind)).fields[0].type
    got = cast_to_schema(array, data_type, arrow_type(data_type), FINDER)
    got.validate(full=True)
    assert got.type == arrow_type(data_type)
    return got


CASES = {
    "integers": (pa.array([1, None, 3, 4, 5], pa.int8()), "long"),
    "nanoseconds": (pa.array([-1, None, 1001, 5, -1001], pa.timestamp("ns")), "timestamp"),
    "texts": (pa.array([b"a", None, "ü".encode(), b"", b"xyz"]), "string"),
    "dictionary": (pa.array(["a", None, "b", "a", "c"]).dictionary_encode(), "string"),
    "lists": (pa.array([[1], None, [], [2, None], [3, 4]], pa.list_(pa.int32())), array_of("long")),
    "large lists": (pa.array([[1], None, [], [2, None], [3, 4]], pa.large_list(pa.int32())), array_of("long")),
    "fixed lists": (
        pa.array([[1, 2], None, [3, None], [4, 5], [6, 7]], pa.list_(pa.int32(), 2)),
        array_of("long"),
    ),
    "structs": (
        pa.array([{"y": "a", "x": 1}, None, {"y": None, "x": None}, {"y": "b", "x": 2}, {"y": "c", "x": 3}]),
        struct_of(x="long", gone="date", y="string"),
    ),
    "maps": (
        pa.array([[("a", 1)], None, [], [("b", None), ("c", 2)], [("d", 3)]], pa.map_(pa.string(), pa.int32())),
        map_of("string", "long"),
    ),
    "lists of structs": (
        pa.array([[{"x": 1}, None], None, [], [{"x": None}], [{"x": 2}, {"x": 3}]]),
        array_of(struct_of(x="long", y="string")),
    ),
    "structs of lists": (
        pa.array([{"l": [1]}, None, {"l": None}, {"l": [2, 3]}, {"l": []}]),
        struct_of(l=array_of("short"), z="long"),
    ),
    "maps of structs": (
        pa.array(
            [[("a", {"x": 1})], None, [], [("b", None)], [("c", {"x": 2}), ("d", {"x": None})]],
            pa.map_(pa.string(), pa.struct({"x": pa.int8()})),
        ),
        map_of("string", struct_of(x="long", y="string")),
    ),
    "structs of structs": (
        pa.array([{"s": {"x": 1}}, None, {"s": None}, {"s": {"x": None}}, {"s": {"x": 5}}]),
        struct_of(s=struct_of(y="long", x="long"), t="date"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cast_slice_equals_the_slice_of_the_cast(name):
    array, kind = CASES[name]
    whole = cast(array, kind).to_pylist()
    assert sum(value is None for value in whole) == 1
    for start in range(len(array) + 1):
        for stop in range(start, len(array) + 1):
            assert cast(array.slice(start, stop - start), kind).to_pylist() == whole[start:stop]


@pytest.mark.parametrize("name", CASES)
def test_slices_of_nested_arrays_are_cast(name):
    """A child of a slice, and a slice of a child."""
    array, kind = CASES[name]
    whole = cast(array, kind).to_pylist()
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 5]), array)
    expected = [whole[0:1], [], whole[1:3], whole[3:5]]
    for start in range(4):
        assert cast(lists.slice(start), array_of(kind)).to_pylist() == expected[start:]
    sliced = pa.ListArray.from_arrays(pa.array([0, 2]), array.slice(2, 2))
    assert cast(sliced, array_of(kind)).to_pylist() == [whole[2:4]]
    structs = pa.StructArray.from_arrays([array.slice(1, 3)], names=["c"]).slice(1)
    assert cast(structs, struct_of(c=kind, z="long")).to_pylist() == [
        {"c": value, "z": None} for value in whole[2:4]
    ]


@pytest.mark.parametrize("name", CASES)
def test_empty_arrays_are_cast(name):
    array, kind = CASES[name]
    assert cast(array.slice(0, 0), kind).to_pylist() == []
    assert cast(pa.nulls(3, array.type), kind).to_pylist() == [None] * 3
    assert cast(pa.nulls(3), kind).to_pylist() == [None] * 3


@pytest.mark.parametrize("name", CASES)
def test_chunks_are_cast_one_by_one(name, monkeypatch):
    array, kind = CASES[name]
    whole = cast(array, kind).to_pylist()
    schema = table_schema(("c", kind), ("n", "integer"), ("gone", "date"))
    table = pa.table({"c": pa.chunked_array([array.slice(0, 2), array.slice(2)]), "n": pa.array(range(5))})

    class Reader:
        """Gives the column in two chunks."""

        def read_row_groups(self, groups, column_indices, use_threads):
            return table

    source = ParquetSource(parquet(table), FileScanTask(SecretUrl("u"), "file-1", 1), ReadSpec(schema))
    monkeypatch.setattr(source, "_reader", lambda _indexed: nullcontext(Reader()))
    got = [batch for decoded in source.decode(ReadUnit((0,), (), 0)) for batch in decoded.batches]
    assert [batch.num_rows for batch in got] == [2, 3]
    rows = pa.Table.from_batches(got)
    rows.validate(full=True)
    assert rows.column("c").to_pylist() == whole
    assert rows.column("n").to_pylist() == list(range(5))
    assert rows.column("gone").to_pylist() == [None] * 5


def test_a_cast_does_not_change_its_input():
    for array, kind in CASES.values():
        before = array.to_pylist()
        cast(array, kind)
        assert array.to_pylist() == before


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=10),
    st.sampled_from([None, "UTC", "Asia/Kolkata"]),
    st.integers(0, 5),
)
@settings(max_examples=examples(80), deadline=None)
def test_nanoseconds_are_rounded_down(nanos, zone, start):
    array = pa.array(nanos, pa.int64()).cast(pa.timestamp("ns", tz=zone)).slice(start)
    got = cast_leaf(array, pa.timestamp("us", tz="UTC"))
    assert got.cast(pa.int64()).to_pylist() == [None if n is None else n // 1000 for n in nanos[start:]]


def test_maps_with_structs_as_keys_are_cast():
    keys = pa.array([{"x": 1}, {"x": 2}])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2]), keys, pa.array([2, 3]))
    assert cast(maps, map_of(struct_of(x="long", y="date"), "long")).to_pylist() == [
        [({"x": 1, "y": None}, 2)],
        [({"x": 2, "y": None}, 3)],
    ]


class TestTexts:
    BROKEN = pa.array([b"ok", b"\xff", b"more"]).view(pa.string())

    def test_only_the_texts_of_the_slice_are_validated(self):
        check_texts(self.BROKEN.slice(0, 1))
        check_texts(self.BROKEN.slice(2))
        check_texts(self.BROKEN.slice(1, 0))
        with pytest.raises(pa.ArrowInvalid):
            check_texts(self.BROKEN.slice(1, 1))

    def test_arrays_without_buffers_are_valid(self):
        for array in (
            pa.array([], pa.string()),
            pa.nulls(2, pa.string()),
            pa.array(["", ""]),
            pa.array([[]], pa.list_(pa.string())),
            pa.array([], pa.map_(pa.string(), pa.string())),
            pa.array([1]),
            pa.array([date(2024, 1, 1)]),
        ):
            check_texts(array)

    @given(st.lists(st.none() | st.text(max_size=5), max_size=8), st.integers(0, 4))
    @settings(max_examples=examples(60), deadline=None)
    def test_valid_texts_pass(self, texts, start):
        check_texts(pa.array(texts, pa.string()).slice(start))
        check_texts(pa.array([texts], pa.list_(pa.string())))


class TestFinder:
    FIELDS = [pa.field("A", pa.int64()), pa.field("a", pa.int64()), pa.field("b", pa.int64())]

    def test_fields_are_found_by_name(self):
        for name, position in (("a", 1), ("A", 0), ("B", 2), ("c", None)):
            wanted = table_schema((name, "long")).fields[0]
            assert FINDER.find(wanted, self.FIELDS) == position
            assert FINDER.find(wanted, []) is None

    def test_fields_are_found_by_id(self):
        finder = FieldFinder("id", "file-1")
        wanted = table_schema(
            {
                "name": "x",
                "type": "long",
                "metadata": {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "p"},
            }
        ).fields[0]
        fields = [pa.field("x", pa.int64()), pa.field("y", pa.int64(), metadata={"PARQUET:field_id": "7"})]
        assert finder.find(wanted, fields) == 1
        assert finder.find(wanted, [pa.field("z", pa.int64(), metadata={"PARQUET:field_id": "8"})]) is None
        assert finder.find(wanted, []) is None
        with pytest.raises(DataError, match=r"file file-1: .*no field ids"):
            finder.find(wanted, self.FIELDS)


def test_a_nested_target_of_a_primitive_type_raises():
    with pytest.raises(ProtocolError):
        cast_to_schema(pa.array([[1]]), PrimitiveType("long"), pa.list_(pa.int64()), FINDER)
    with pytest.raises(ProtocolError):
        cast_to_schema(pa.array([[1]]), DataType(), pa.list_(pa.int64()), FINDER)
