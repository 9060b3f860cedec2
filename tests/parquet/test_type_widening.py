"""Files from before a column's type was widened: their values are read exactly, and pruning knows their bounds."""

import io
import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from parquet_files import decode_file

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.model.actions import AddFile, Metadata, Protocol
from delta_sharing_client.model.capabilities import request_capabilities
from delta_sharing_client.model.reader_features import SUPPORTED_FEATURES
from delta_sharing_client.model.schema import (
    ArrayType,
    MapType,
    StructField,
    StructType,
    parse_schema,
    parse_type_name,
)
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.file_tasks import SkipReason, TaskPlanner, read_spec
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.wire.file_block import FileBlock

D = Decimal
BYTES = [-128, -1, 0, 1, 127]
SHORTS = [-32768, -1, 0, 1, 32767]
INTS = [-(2**31), -1, 0, 1, 2**31 - 1]
LONGS = [-(2**63), -1, 0, 1, 2**63 - 1]
#: What 32 bits hold of numbers that take more digits in decimal than they seem to.
FLOATS = [-3.4028234663852886e38, -0.10000000149011612, 0.0, 0.10000000149011612, 1.401298464324817e-45]
DATES = [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1970, 1, 1), date(9999, 12, 31)]


def midnights(days):
    return [datetime(day.year, day.month, day.day) for day in days]


def decimals(*texts):
    return [D(text) for text in texts]


#: The type in the file, its values, the type in the table, the values there.
WIDENINGS = [
    (pa.int8(), BYTES, "short", BYTES),
    (pa.int8(), BYTES, "integer", BYTES),
    (pa.int8(), BYTES, "long", BYTES),
    (pa.int16(), SHORTS, "integer", SHORTS),
    (pa.int16(), SHORTS, "long", SHORTS),
    (pa.int32(), INTS, "long", INTS),
    (pa.float32(), FLOATS, "double", FLOATS),
    (pa.int8(), BYTES, "double", [float(v) for v in BYTES]),
    (pa.int16(), SHORTS, "double", [float(v) for v in SHORTS]),
    (pa.int32(), INTS, "double", [float(v) for v in INTS]),
    (pa.date32(), DATES, "timestamp_ntz", midnights(DATES)),
    (pa.int8(), BYTES, "decimal(10,0)", [D(v) for v in BYTES]),
    (pa.int8(), BYTES, "decimal(12,2)", [D(v) for v in BYTES]),
    (pa.int16(), SHORTS, "decimal(10,0)", [D(v) for v in SHORTS]),
    (pa.int16(), SHORTS, "decimal(15,5)", [D(v) for v in SHORTS]),
    (pa.int32(), INTS, "decimal(10,0)", [D(v) for v in INTS]),
    (pa.int32(), INTS, "decimal(18,3)", [D(v) for v in INTS]),
    (pa.int32(), INTS, "decimal(38,28)", [D(v) for v in INTS]),
    (pa.int64(), LONGS, "decimal(20,0)", [D(v) for v in LONGS]),
    (pa.int64(), LONGS, "decimal(22,2)", [D(v) for v in LONGS]),
    (pa.int64(), LONGS, "decimal(38,18)", [D(v) for v in LONGS]),
    (pa.decimal128(5, 2), v := decimals("-999.99", "-0.01", "0.00", "0.01", "999.99"), "decimal(6,2)", v),
    (pa.decimal128(5, 2), v, "decimal(9,4)", v),
    (pa.decimal128(5, 2), v, "decimal(18,2)", v),
    (pa.decimal128(5, 2), v, "decimal(38,35)", v),
    (pa.decimal128(18, 2), v := decimals("-9999999999999999.99", "-0.01", "0.00", "9999999999999999.99"),
     "decimal(38,22)", v),
    (pa.decimal128(20, 0), v := decimals("-99999999999999999999", "0", "99999999999999999999"),
     "decimal(38,18)", v),
]  # fmt: skip
IDS = [f"{old} to {new}" for old, _, new, _ in WIDENINGS]

#: How writers store decimals: as bytes, or as integers where they fit.
STORAGE = [{"store_decimal_as_integer": False}, {"store_decimal_as_integer": True}]


def parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def source_of(data, schema, filters=None):
    predicate = bind_filters(filters, schema) if filters else None
    spec = ReadSpec(output=schema, predicate=predicate)
    task = FileScanTask(url=SecretUrl(""), file_id="old", size=len(data), all_rows_match=predicate is None)
    return ParquetSource(data, task, spec)


def read(data, schema, filters=None):
    """The rows of a file, the same whether row groups are pruned or not."""
    with source_of(data, schema, filters) as source:
        batches = [
            batch
            for piece in source.read_units(unit_size=1)
            for decoded in source.decode(piece)
            for batch in decoded.batches
        ]
    return [row for batch in batches for row in batch.to_pylist()]


def column(kind, name="c"):
    data_type = parse_type_name(kind) if isinstance(kind, str) else kind
    return StructType((StructField(name, data_type),))


def same(values, expected):
    return [repr(v.normalize() if isinstance(v, D) else v) for v in values] == [
        repr(v.normalize() if isinstance(v, D) else v) for v in expected
    ]


@pytest.mark.parametrize("options", STORAGE, ids=["bytes", "integers"])
@pytest.mark.parametrize(("old", "values", "new", "expected"), WIDENINGS, ids=IDS)
class TestValues:
    @pytest.mark.protocol("typeWidening")
    def test_plain(self, old, values, new, expected, options):
        data = parquet(pa.table({"c": pa.array([None, *values], old)}), **options)
        schema = column(new)
        task = FileScanTask(url=SecretUrl(""), file_id="old", size=len(data))
        batches = list(decode_file(data, task, ReadSpec(output=schema)))
        assert {batch.schema.field("c").type for batch in batches} == {arrow_type(schema.fields[0].type)}
        rows = [value for batch in batches for value in batch.column("c").to_pylist()]
        assert rows[0] is None
        assert same(rows[1:], expected)

    def test_nested(self, old, values, new, expected, options):
        leaf = parse_type_name(new)
        nested = StructType(
            (
                StructField(
                    "s",
                    StructType(
                        (
                            StructField("list", ArrayType(StructType((StructField("x", leaf),)))),
                            StructField("map", MapType(leaf, ArrayType(leaf))),
                        )
                    ),
                ),
            )
        )
        kind = pa.struct(
            [("list", pa.list_(pa.struct([("x", old)]))), ("map", pa.map_(old, pa.list_(old)))],
        )
        rows = [
            None,
            {"list": None, "map": None},
            {"list": [None, {"x": None}, *({"x": v} for v in values)], "map": [(v, [v, None]) for v in values]},
            {"list": [], "map": []},
        ]
        data = parquet(pa.table({"s": pa.array(rows, kind)}), **options)
        got = [row["s"] for row in read(data, nested)]
        assert got[0] is None
        assert got[1] == {"list": None, "map": None}
        assert got[2]["list"][:2] == [None, {"x": None}]
        assert same([item["x"] for item in got[2]["list"][2:]], expected)
        assert same([key for key, _ in got[2]["map"]], expected)
        assert same([value[0] for _, value in got[2]["map"]], expected)
        assert all(value[1] is None for _, value in got[2]["map"])
        assert got[3] == {"list": [], "map": []}

    @pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">=", "in", "not in"])
    def test_filters_and_row_group_bounds(self, old, values, new, expected, options, op):
        """Each value is a row group: what is left of them is what holds the rows that match."""
        table = pa.table({"c": pa.array(values, old)})
        data = parquet(table, row_group_size=1, **options)
        schema = column(new)
        everything = [row["c"] for row in read(data, schema)]
        for value in everything:
            wanted = [v for v in everything if _holds(op, v, value)]
            filters = [("c", op, [value] if "in" in op else value)]
            assert same([row["c"] for row in read(data, schema, filters)], wanted)
            with source_of(data, schema, filters) as source:
                pieces = source.read_units(unit_size=1)
            # Floats prune no inequality: a NaN, which no bound tells of, would satisfy it.
            if not pa.types.is_floating(arrow_type(schema.fields[0].type)) or op not in ("!=", "not in"):
                assert sum(len(piece.groups) for piece in pieces) == len(wanted)


def _holds(op, left, right):
    return {
        "=": left == right,
        "in": left == right,
        "!=": left != right,
        "not in": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


class TestWhatIsNoWidening:
    @pytest.mark.parametrize(
        ("old", "values", "new"),
        [
            (pa.int64(), [2**31], "integer"),
            (pa.int32(), [128], "byte"),
            (pa.int64(), [2**53 + 1], "double"),
            (pa.int32(), [10**9], "decimal(9,0)"),
            (pa.int32(), [10**8], "decimal(10,2)"),
            (pa.decimal128(10, 2), [D("0.01")], "decimal(10,1)"),
            (pa.decimal128(10, 2), [D("1.00")], "long"),
            (pa.decimal128(10, 2), [D("1.00")], "double"),
            (pa.float64(), [1.5], "float"),
            (pa.float32(), [1.5], "long"),
            (pa.float32(), [1.5], "decimal(10,2)"),
            (pa.bool_(), [True], "integer"),
            (pa.string(), ["1"], "integer"),
            (pa.int32(), [1], "string"),
            (pa.date32(), [date(2020, 1, 1)], "timestamp"),
            (pa.date32(), [date(2020, 1, 1)], "long"),
            (pa.timestamp("us"), [datetime(2020, 1, 1)], "date"),
            (pa.timestamp("us"), [datetime(2020, 1, 1)], "long"),
        ],
        ids=str,
    )
    def test_raises(self, old, values, new):
        data = parquet(pa.table({"c": pa.array(values, old)}))
        with pytest.raises(DataError, match="column 'c'"):
            read(data, column(new))

    def test_narrowing_that_loses_nothing_is_read(self):
        # A file may be newer than the schema asked for, in time travel and in change feeds.
        data = parquet(pa.table({"c": pa.array([1, None, -5], pa.int64())}))
        assert [row["c"] for row in read(data, column("integer"))] == [1, None, -5]


class TestFiles:
    """Statistics and partition values of files as they were written under the old type."""

    def plan(self, kind, filters, *, stats=None, partition=None):
        schema = {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
        metadata = Metadata(
            id="t",
            schema_string=json.dumps(schema),
            partition_columns=("c",) if partition is not None else (),
        )
        spec = read_spec(metadata, None, bind_filters(filters, metadata.schema))
        values = {"c": partition} if partition is not None else {}
        action = AddFile(SecretUrl("https://s/x"), "x", values, 10, stats=stats)
        return TaskPlanner(spec)(FileBlock.of([action]))[0], spec

    def stats(self, lower, upper):
        return f'{{"numRecords":3,"minValues":{{"c":{lower}}},"maxValues":{{"c":{upper}}},"nullCount":{{"c":0}}}}'

    @pytest.mark.parametrize(
        ("kind", "lower", "upper", "inside", "outside"),
        [
            ("long", "-5", "7", [-5, 7], [-6, 8, 2**40]),
            ("double", "-5", "7", [-5, 6.5, 7], [-5.01, 7.01]),
            ("decimal(12,2)", "-5", "7", ["-5", "6.99", "7.00"], ["-5.01", "7.01"]),
            ("decimal(38,18)", "-5", "7", ["-5", "6.99", "7.00"], ["-5.01", "7.01"]),
            ("decimal(22,2)", str(-(2**62)), str(2**62), [D(-(2**62)), D(2**62)], ["-5e18", "5e18"]),
            ("decimal(22,2)", str(-(2**63)), str(2**63 - 1), [D(-(2**63)), D(2**63 - 1), "1e19"], []),
            ("decimal(10,4)", "1.25", "1.5", ["1.25", "1.4999", "1.5"], ["1.2499", "1.5001"]),
            ("timestamp_ntz", '"2020-01-01"', '"2020-01-03"',
             ["2020-01-01", "2020-01-02 23:59:59.999999", "2020-01-03"],
             ["2019-12-31 23:59:59.999999", "2020-01-03 00:00:01"]),
        ],
    )  # fmt: skip
    def test_statistics(self, kind, lower, upper, inside, outside):
        for value in inside:
            task, _ = self.plan(kind, [("c", "=", value)], stats=self.stats(lower, upper))
            assert isinstance(task, FileScanTask), value
        for value in outside:
            task, _ = self.plan(kind, [("c", "=", value)], stats=self.stats(lower, upper))
            assert task is SkipReason.STATS, value

    def test_float_bounds_of_a_double_column(self):
        """A float prints as 0.1 and is a little more; under the wider type that little shows."""
        held = 0.10000000149011612
        for op, value in [("=", held), (">", 0.1), (">=", held), ("<", 0.1000001)]:
            task, _ = self.plan("double", [("c", op, value)], stats=self.stats("0.1", "0.1"))
            assert isinstance(task, FileScanTask), (op, value)
        held = 0.30000001192092896
        task, _ = self.plan("double", [("c", ">", 0.3)], stats=self.stats("0.3", "0.3"))
        assert isinstance(task, FileScanTask)
        held = 0.699999988079071
        task, _ = self.plan("double", [("c", "<=", held)], stats=self.stats("0.7", "0.7"))
        assert isinstance(task, FileScanTask)
        assert self.plan("double", [("c", ">", 0.8)], stats=self.stats("0.1", "0.7"))[0] is SkipReason.STATS

    @pytest.mark.parametrize(
        ("lower", "upper", "true_low", "true_high"),
        [
            ("1.2345678901234567e17", "1.2345678901234567e17", "123456789012345672.49", "123456789012345667.51"),
            ("0.1", "0.1", "0.099999999999999999", "0.100000000000000001"),
            ("12345678901234567890", "12345678901234567890", "12345678901234567168", "12345678901234568191"),
        ],
    )
    def test_decimal_bounds_that_went_through_a_double(self, lower, upper, true_low, true_high):
        for value in (true_low, true_high):
            task, _ = self.plan("decimal(38,18)", [("c", "=", value)], stats=self.stats(lower, upper))
            assert isinstance(task, FileScanTask), value

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            ("long", "5", 5),
            ("double", "5", 5.0),
            ("double", "0.1", 0.1),
            ("decimal(12,2)", "5", D("5.00")),
            ("decimal(12,2)", "-7", D("-7.00")),
            ("decimal(22,2)", str(-(2**63)), D(-(2**63))),
            ("decimal(12,4)", "1.25", D("1.2500")),
            ("timestamp_ntz", "2020-01-01", datetime(2020, 1, 1)),
            ("timestamp_ntz", "0001-01-01", datetime(1, 1, 1)),
        ],
    )
    def test_partition_values(self, kind, text, value):
        task, spec = self.plan(kind, [("c", "=", value)], partition=text)
        assert isinstance(task, FileScanTask)
        assert task.all_rows_match
        data = parquet(pa.table({"other": pa.array([1, 2])}))
        rows = [row["c"] for batch in decode_file(data, task, spec) for row in batch.to_pylist()]
        assert same(rows, [value, value])
        assert self.plan(kind, [("c", "!=", value)], partition=text)[0] is SkipReason.PARTITION


class TestFeature:
    @pytest.mark.parametrize("name", ["typeWidening", "typeWidening-preview", "typewidening"])
    def test_is_supported(self, name):
        protocol = Protocol(3, 7, (name,), (name,), "delta")
        protocol.check_readable("table t")

    @pytest.mark.protocol("typeWidening")
    def test_is_advertised(self):
        assert "typewidening" in SUPPORTED_FEATURES
        assert "typewidening" in request_capabilities(("delta", "parquet"))

    def test_schema_with_its_history_of_changes(self):
        """The history that writers keep in a field's metadata is no part of the type."""
        text = json.dumps(
            {
                "type": "struct",
                "fields": [
                    {
                        "name": "c",
                        "type": "decimal(12,2)",
                        "nullable": True,
                        "metadata": {
                            "delta.typeChanges": [
                                {"fromType": "short", "toType": "integer"},
                                {"fromType": "integer", "toType": "decimal(12,2)", "tableVersion": 3},
                            ]
                        },
                    },
                    {
                        "name": "m",
                        "type": {
                            "type": "map",
                            "keyType": "double",
                            "valueType": "long",
                            "valueContainsNull": True,
                        },
                        "nullable": True,
                        "metadata": {
                            "delta.typeChanges": [{"fromType": "float", "toType": "double", "fieldPath": "key"}]
                        },
                    },
                ],
            }
        )
        schema = parse_schema(text)
        assert [str(f.type) for f in schema] == ["decimal(12,2)", "map<double,long>"]
        generations = [
            (pa.int16(), [1, 2]),
            (pa.int32(), [70_000, -1]),
            (pa.decimal128(12, 2), [D("0.25"), None]),
        ]
        rows = []
        for kind, values in generations:
            table = pa.table(
                {
                    "c": pa.array(values, kind),
                    "m": pa.array([[(0.5, 1)], None], pa.map_(pa.float32(), pa.int32())),
                }
            )
            rows += read(parquet(table), schema, [[("c", ">=", "0.25")], [("c", "is", None)]])
        assert [row["c"] for row in rows] == [D(1), D(2), D(70_000), D("0.25"), None]
        assert [row["m"] for row in rows] == [[(0.5, 1)], None, [(0.5, 1)], [(0.5, 1)], None]


def test_casts_are_what_the_values_say():
    """A float that becomes a double is the same number, not the number its text would give."""
    data = parquet(pa.table({"c": pa.array([0.1], pa.float32())}))
    value = read(data, column("double"))[0]["c"]
    assert value == pc.cast(pa.array([0.1], pa.float32()), pa.float64())[0].as_py() != 0.1
