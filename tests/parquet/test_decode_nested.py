"""Lists, maps and structs in each other: nulls at all levels, fields reordered, missing, extra, renamed."""

import datetime as dt
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parquet_files import array_of, column, field, map_of, mapped, parquet, read, struct_of
from thorough import examples

from delta_sharing_client.errors import DataError


def check(values, arrow, kind, expected=None):
    """A file with the values of an Arrow type, read as a type of the table."""
    got = column(pa.array(values, arrow), kind)
    assert got.to_pylist() == (values if expected is None else expected)
    return got


class TestNulls:
    def test_lists(self):
        check([[1, None, 2], None, [], [None]], pa.list_(pa.int64()), array_of("long"))

    def test_lists_of_lists(self):
        values = [[[1], None, []], None, [], [None], [[None]]]
        check(values, pa.list_(pa.list_(pa.int64())), array_of(array_of("long")))

    def test_structs(self):
        values = [{"x": 1, "y": "a"}, None, {"x": None, "y": None}, {"x": 2, "y": None}]
        check(values, pa.struct({"x": pa.int64(), "y": pa.string()}), struct_of(x="long", y="string"))

    def test_structs_of_structs(self):
        values = [{"s": {"x": 1}}, {"s": None}, None, {"s": {"x": None}}]
        check(values, pa.struct({"s": pa.struct({"x": pa.int64()})}), struct_of(s=struct_of(x="long")))

    def test_maps(self):
        values = [[("a", 1), ("b", None)], None, []]
        check(values, pa.map_(pa.string(), pa.int64()), map_of("string", "long"))

    def test_every_type_nested_in_every_type(self):
        values = [
            [("a", [{"m": [("k", Decimal("1.50"))], "d": date(2024, 1, 1)}, None]), ("b", None), ("c", [])],
            None,
            [],
            [("a", [{"m": None, "d": None}]), ("b", [{"m": [("k", None)], "d": None}])],
        ]
        inner = pa.struct({"m": pa.map_(pa.string(), pa.decimal128(5, 2)), "d": pa.date32()})
        check(
            values,
            pa.map_(pa.string(), pa.list_(inner)),
            map_of("string", array_of(struct_of(m=map_of("string", "decimal(5,2)"), d="date"))),
        )


class TestCasts:
    def test_leaves_are_cast_at_every_level(self):
        arrow = pa.list_(pa.struct({"x": pa.int32(), "m": pa.map_(pa.int8(), pa.timestamp("ms"))}))
        kind = array_of(struct_of(x="long", m=map_of("short", "timestamp")))
        moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000)
        values = [[{"x": 1, "m": [(1, moment), (2, None)]}, None], None, []]
        aware = moment.replace(tzinfo=dt.UTC)
        expected = [[{"x": 1, "m": [(1, aware), (2, None)]}, None], None, []]
        got = check(values, arrow, kind, expected)
        assert got.type == pa.list_(
            pa.struct({"x": pa.int64(), "m": pa.map_(pa.int16(), pa.timestamp("us", tz="UTC"))})
        )

    @pytest.mark.parametrize(
        "source",
        [pa.large_list(pa.int32()), pa.list_(pa.field("item", pa.int64(), nullable=False)), pa.list_(pa.int8())],
        ids=str,
    )
    def test_any_kind_of_list(self, source):
        values = [[1, 2], None, [], [3]]
        got = check(values, source, array_of("long"))
        assert got.type == pa.list_(pa.int64())

    def test_a_fixed_size_list(self):
        check([[1, 2], [3, None]], pa.list_(pa.int32(), 2), array_of("long"))
        check([[[1, 2]], [[3, None]]], pa.list_(pa.list_(pa.int32(), 2)), array_of(array_of("long")))
        if int(pa.__version__.split(".")[0]) < 20:
            pytest.skip("this pyarrow cannot write such lists with nulls")
        check([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2), array_of("long"))
        check([[[1, 2]], None, [[3, None], None]], pa.list_(pa.list_(pa.int32(), 2)), array_of(array_of("long")))

    @pytest.mark.skipif(not hasattr(pa, "list_view"), reason="this pyarrow has no views")
    def test_list_views(self):
        values = [[1, 2], None, [], [3, None]]
        for source in (pa.list_view(pa.int32()), pa.large_list_view(pa.int32())):
            try:
                data = parquet({"c": pa.array(values, source)})
            except pa.ArrowNotImplementedError:
                pytest.skip("this pyarrow cannot write views")
            assert read(data, ("c", array_of("long"))).column("c").to_pylist() == values

    def test_texts_inside(self):
        values = [["a", None], None, ["b"]]
        for source in (pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())):
            stored = (
                pa.array(values, pa.list_(pa.string())).cast(pa.list_(source))
                if not pa.types.is_dictionary(source)
                else pa.ListArray.from_arrays(
                    pa.array([0, 2, 2, 3]),
                    pa.array(["a", None, "b"]).dictionary_encode(),
                    mask=pa.array([False, True, False]),
                )
            )
            assert column(stored, array_of("string")).to_pylist() == values

    def test_a_value_that_does_not_fit(self):
        with pytest.raises(DataError, match=r"column 'c' is array<byte> in the table"):
            column(pa.array([[1], [1000]]), array_of("byte"))

    def test_a_value_behind_a_null_does_not_matter(self):
        stored = pa.StructArray.from_arrays([pa.array([1, 1000])], names=["x"], mask=pa.array([False, True]))
        assert column(stored, struct_of(x="byte")).to_pylist() == [{"x": 1}, None]

    def test_empty_columns(self):
        for arrow, kind in (
            (pa.list_(pa.int32()), array_of("long")),
            (pa.map_(pa.string(), pa.int32()), map_of("string", "long")),
            (pa.struct({"x": pa.int32()}), struct_of(x="long")),
        ):
            for values in ([], [None, None]):
                got = check(values, arrow, kind)
                assert not got.null_count or got.null_count == len(values)

    @pytest.mark.parametrize(
        ("source", "kind"),
        [
            (pa.array([1]), array_of("long")),
            (pa.array([1]), struct_of(x="long")),
            (pa.array([1]), map_of("long", "long")),
            (pa.array([[1]]), struct_of(x="long")),
            (pa.array([[1]]), "long"),
            (pa.array([{"x": 1}]), array_of("long")),
            (pa.array([{"x": 1}]), "string"),
            (pa.array([{"x": 1}]), map_of("string", "long")),
            (pa.array([[{"key": "a", "value": 1}]]), map_of("string", "long")),
            (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), array_of("long")),
            (pa.array([[[1]]]), array_of("long")),
            (pa.array([[1]]), array_of(array_of("long"))),
        ],
        ids=str,
    )
    def test_another_shape_is_a_data_error(self, source, kind):
        with pytest.raises(DataError, match=r"file file-1: column 'c' is .* in the table and .* in the file"):
            column(source, kind)


class TestFields:
    STORED = pa.array([{"b": "x", "A": 1, "extra": [1]}, None, {"b": None, "A": None, "extra": None}])

    def test_reordered_missing_extra_and_in_another_case(self):
        kind = struct_of(a="long", gone="date", B="string")
        got = column(self.STORED, kind)
        assert got.to_pylist() == [
            {"a": 1, "gone": None, "B": "x"},
            None,
            {"a": None, "gone": None, "B": None},
        ]
        assert got.type == pa.struct({"a": pa.int64(), "gone": pa.date32(), "B": pa.string()})

    def test_only_missing_fields_keep_the_nulls_of_the_struct(self):
        got = column(self.STORED, struct_of(gone="long"))
        assert got.to_pylist() == [{"gone": None}, None, {"gone": None}]

    def test_the_exact_name_first(self):
        stored = pa.array([{"X": 1, "x": 2}])
        assert column(stored, struct_of(x="long")).to_pylist() == [{"x": 2}]
        assert column(stored, struct_of(X="long")).to_pylist() == [{"X": 1}]

    def test_inside_lists_and_maps(self):
        inner = [{"b": 1, "a": 2}, None]
        stored = pa.array([inner, None, []])
        assert column(stored, array_of(struct_of(a="integer", c="long"))).to_pylist() == [
            [{"a": 2, "c": None}, None],
            None,
            [],
        ]
        stored = pa.array(
            [[("k", {"b": 1, "a": 2}), ("l", None)], None], pa.map_(pa.string(), stored.type.value_type)
        )
        assert column(stored, map_of("string", struct_of(A="long"))).to_pylist() == [
            [("k", {"A": 2}), ("l", None)],
            None,
        ]

    def test_missing_nested_columns_have_their_full_type(self):
        kind = struct_of(l=array_of("date"), m=map_of("string", struct_of(x="timestamp")))
        got = read({"other": pa.array([1, 2])}, ("c", kind)).column("c")
        assert got.to_pylist() == [None, None]
        assert got.type == pa.struct(
            {
                "l": pa.list_(pa.date32()),
                "m": pa.map_(pa.string(), pa.struct({"x": pa.timestamp("us", tz="UTC")})),
            }
        )

    @pytest.mark.parametrize(
        "name", ["a.b", "a b", "ünï", "🦆", "key", "element", "list", "item", "key_value", ""]
    )
    def test_unusual_column_names(self, name):
        stored = pa.array([{name: 1, "z": 2}, None])
        kind = {"type": "struct", "fields": [field("z", "long"), field(name, "long")]}
        assert column(stored, kind).to_pylist() == [{"z": 2, name: 1}, None]
        assert column(
            pa.array([[{name: 1}]]), array_of({"type": "struct", "fields": [field(name, "short")]})
        ).to_pylist() == [[{name: 1}]]


class TestColumnMapping:
    def test_by_name_with_names_swapped_inside(self):
        """`a` was renamed to `b` and `b` to `a`."""
        inner = {
            "type": "struct",
            "fields": [mapped("a", "long", "col-b", 3), mapped("b", "string", "col-a", 2)],
        }
        stored = {"col-s": pa.array([{"col-a": "x", "col-b": 1}, None]), "s": pa.array([0, 0])}
        for kind, values in [
            (inner, [{"a": 1, "b": "x"}, None]),
        ]:
            got = read(stored, mapped("s", kind, "col-s", 1), mapping="name")
            assert got.column("s").to_pylist() == values

    def test_plain_swapped_names(self):
        stored = {"x": pa.array([{"a": 1, "b": 2}])}
        inner = {"type": "struct", "fields": [mapped("a", "long", "b", 2), mapped("b", "long", "a", 3)]}
        assert read(stored, mapped("x", inner, "x", 1), mapping="name").to_pylist() == [{"x": {"a": 2, "b": 1}}]
        top = [mapped("a", "long", "b", 1), mapped("b", "long", "a", 2)]
        assert read({"a": pa.array([1]), "b": pa.array([2])}, *top, mapping="name").to_pydict() == {
            "a": [2],
            "b": [1],
        }

    def test_physical_names_are_ignored_without_mapping(self):
        stored = {"a": pa.array([1]), "b": pa.array([2])}
        assert read(stored, mapped("a", "long", "b", 1)).to_pydict() == {"a": [1]}

    @staticmethod
    def with_ids(arrow_field, number):
        return arrow_field.with_metadata({"PARQUET:field_id": str(number)})

    def test_by_id_at_every_level(self):
        ids = self.with_ids
        inner = pa.struct([ids(pa.field("whatever", pa.int32()), 12), ids(pa.field("other", pa.string()), 11)])
        schema = pa.schema(
            [
                ids(pa.field("b", pa.int64()), 2),
                ids(pa.field("a", pa.list_(ids(pa.field("element", inner), 13))), 1),
                ids(pa.field("m", pa.map_(pa.string(), inner)), 3),
            ]
        )
        rows = [{"b": 5, "a": [{"whatever": 1, "other": "x"}, None], "m": [("k", {"whatever": 2, "other": None})]}]
        data = parquet(pa.Table.from_pylist(rows, schema))
        kind = {
            "type": "struct",
            "fields": [
                mapped("other", "string", "p11", 11),
                mapped("n", "long", "p12", 12),
                mapped("new", "date", "p", 99),
            ],
        }
        got = read(
            data,
            mapped("x", array_of(kind), "px", 1),
            mapped("b", "long", "pb", 2),
            mapped("mm", map_of("string", kind), "pm", 3),
            mapped("later", "long", "pl", 50),
            mapping="id",
        )
        assert got.to_pylist() == [
            {
                "x": [{"other": "x", "n": 1, "new": None}, None],
                "b": 5,
                "mm": [("k", {"other": None, "n": 2, "new": None})],
                "later": None,
            }
        ]

    def test_fields_found_by_id_ignore_names(self):
        ids = self.with_ids
        schema = pa.schema([ids(pa.field("a", pa.int64()), 2), ids(pa.field("b", pa.int64()), 1)])
        data = parquet(pa.table([[1], [2]], schema=schema))
        got = read(data, mapped("a", "long", "a", 1), mapped("b", "long", "b", 2), mapping="id")
        assert got.to_pydict() == {"a": [2], "b": [1]}

    def test_a_file_without_ids(self):
        with pytest.raises(DataError, match=r"file file-1: .*no field ids"):
            read({"a": pa.array([1])}, mapped("a", "long", "a", 1), mapping="id")
        with pytest.raises(DataError, match="no field ids"):
            ids = self.with_ids
            schema = pa.schema([ids(pa.field("s", pa.struct({"x": pa.int64()})), 1)])
            data = parquet(pa.Table.from_pylist([{"s": {"x": 1}}], schema))
            inner = {"type": "struct", "fields": [mapped("x", "long", "x", 2)]}
            read(data, mapped("s", inner, "s", 1), mapping="id")


# ---- any nesting of any leaves comes back as it was ----

LEAVES = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "string": (pa.string(), st.text(max_size=3)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "decimal(7,2)": (pa.decimal128(7, 2), st.decimals(-9999, 9999, places=2)),
    "binary": (pa.binary(), st.binary(max_size=3)),
}


@st.composite
def nestings(draw, depth=3):
    """A type of the table, the same in Arrow, a strategy for its values, and one for a file's narrower type."""
    form = draw(st.sampled_from(["leaf", "array", "map", "struct"])) if depth else "leaf"
    if form == "leaf":
        name = draw(st.sampled_from(sorted(LEAVES)))
        arrow, values = LEAVES[name]
        return name, arrow, st.none() | values
    if form == "array":
        kind, arrow, values = draw(nestings(depth - 1))
        return array_of(kind), pa.list_(arrow), st.none() | st.lists(values, max_size=3)
    if form == "map":
        kind, arrow, values = draw(nestings(depth - 1))
        pairs = st.dictionaries(st.text(max_size=2), values, max_size=3).map(lambda d: list(d.items()))
        return map_of("string", kind), pa.map_(pa.string(), arrow), st.none() | pairs
    parts = {name: draw(nestings(depth - 1)) for name in ["x", "y.z", "Ü"][: draw(st.integers(1, 3))]}
    return (
        struct_of(**{name: part[0] for name, part in parts.items()}),
        pa.struct({name: part[1] for name, part in parts.items()}),
        st.none() | st.fixed_dictionaries({name: part[2] for name, part in parts.items()}),
    )


@given(data=st.data())
@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_any_nesting_comes_back(data):
    kind, arrow, strategy = data.draw(nestings(), label="type")
    values = data.draw(st.lists(strategy, max_size=5), label="values")
    stored = pa.table({"before": pa.array(range(len(values)), pa.int64()), "c": pa.array(values, arrow)})
    file = parquet(stored, row_group_size=data.draw(st.integers(1, 6), label="row group size"))
    # Once through as it is, once with every struct rebuilt because a field is asked for that is not there.
    assert read(file, ("c", kind)).column("c").to_pylist() == values
    wider = {"type": "struct", "fields": [field("c", kind), field("gone", "long")]}
    whole = pa.table({"s": pa.StructArray.from_arrays([stored.column("c").combine_chunks()], ["c"])})
    got = read(parquet(whole), ("s", wider)).column("s").to_pylist()
    assert got == [{"c": value, "gone": None} for value in values]
