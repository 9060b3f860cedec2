"""Arrow tables and readers, from batches."""

import pyarrow as pa
import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.frames.arrow import to_reader, to_table
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType

SCHEMA = StructType((StructField("a", PrimitiveType("long")), StructField("t", PrimitiveType("timestamp"))))
NOTHING = StructType(())
ARROW = pa.schema({"a": pa.int64(), "t": pa.timestamp("us", tz="UTC")})


def batch(*numbers):
    return pa.RecordBatch.from_pylist([{"a": n, "t": None} for n in numbers], ARROW)


def rows(count):
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


class TestTable:
    def test_the_batches_are_its_chunks(self):
        table = to_table(iter([batch(1, 2), batch(3)]), SCHEMA)
        assert table.schema == ARROW
        assert table.column("a").num_chunks == 2
        assert table.column("a").to_pylist() == [1, 2, 3]

    def test_an_empty_one_has_the_full_schema(self):
        table = to_table([], SCHEMA)
        assert table.schema == ARROW
        assert table.num_rows == 0

    def test_rows_without_columns(self):
        table = to_table([rows(3), rows(4)], NOTHING)
        assert (table.num_rows, table.num_columns) == (7, 0)
        assert to_table([], NOTHING).num_rows == 0

    def test_batches_of_another_schema_are_a_mistake(self):
        with pytest.raises(pa.ArrowInvalid):
            to_table([pa.record_batch({"b": [1]})], SCHEMA)


class TestReader:
    def test_the_reader_pulls_batches_lazily(self):
        pulled = []

        def batches():
            for number in range(3):
                pulled.append(number)
                yield batch(number)

        reader = to_reader(batches(), SCHEMA)
        assert reader.schema == ARROW
        assert pulled == []
        assert reader.read_next_batch().column("a").to_pylist() == [0]
        assert pulled == [0]
        assert reader.read_all().column("a").to_pylist() == [1, 2]

    def test_a_typed_error_passes_through_the_stream(self):
        def batches():
            yield batch(1)
            raise DataError("is damaged", file_id="f1")

        with pytest.raises(DataError, match="file f1: is damaged"):
            to_reader(batches(), SCHEMA).read_all()

    def test_an_empty_one_has_the_full_schema(self):
        assert to_reader(iter([]), SCHEMA).read_all().schema == ARROW
