"""Row groups are left out by their own statistics, and never one with a row that matches."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filter_oracle import as_batch, as_filters, filters, matches, schema_of, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parquet_files import batches, parquet
from thorough import examples

from delta_sharing_client.expressions.binding import bind_filters


@given(data=st.data())
@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_a_file_gives_the_rows_that_the_filter_says(data):
    kinds, rows = data.draw(tables(max_rows=8), label="table")
    groups = data.draw(filters(kinds), label="filters")
    table = pa.Table.from_batches([as_batch(kinds, rows)])
    options = {
        "row_group_size": data.draw(st.integers(1, 4), label="row group size"),
        # Older releases of pyarrow write INT96 times before 1970 wrongly.
        "use_deprecated_int96_timestamps": data.draw(st.booleans(), label="int96") and hasattr(pa, "json_"),
        "store_decimal_as_integer": data.draw(st.booleans(), label="decimals as integers"),
    }
    try:
        file = parquet(table, **options)
    except TypeError:  # an older pyarrow
        del options["store_decimal_as_integer"]
        file = parquet(table, **options)
    schema = schema_of(kinds | {"#": "long"})
    predicate = bind_filters(as_filters(groups), schema)
    got = [n for batch in batches(file, schema, predicate=predicate) for n in batch.column("#").to_pylist()]
    assert got == [i for i, row in enumerate(rows) if matches(groups, row)]


@pytest.mark.parametrize(
    ("source", "kind", "low", "high"),
    [
        (pa.int8(), "long", -5, 5),
        (pa.int32(), "double", -5, 5),
        (pa.int64(), "decimal(38,2)", -5, 5),
        (pa.uint32(), "long", 1, 2**32 - 1),
        (pa.uint64(), "long", 1, 2**63 - 1),
        (pa.float32(), "double", 0.5, 1.5),
        (pa.timestamp("ms"), "timestamp", -5, 5),
        (pa.timestamp("ns"), "timestamp", -5001, 5001),
        (pa.timestamp("us", tz="UTC"), "timestamp", -5, 5),
        (pa.date32(), "timestamp_ntz", 0, 10),
        (pa.binary(), "string", b"a", b"b"),
    ],
    ids=str,
)
def test_narrower_or_other_types_in_the_file(source, kind, low, high):
    """Two row groups with one value each; every comparison with either finds what it should."""
    values = pa.array([low, high], pa.int32() if pa.types.is_date(source) else None).cast(source)
    file = parquet({"c": values, "#": pa.array([0, 1])}, row_group_size=1)
    schema = schema_of({"c": kind, "#": "long"})
    (first,), (second,) = (b.column("c").to_pylist() for b in batches(file, schema))
    assert pq.ParquetFile(pa.BufferReader(file)).metadata.num_row_groups == 2
    for literal, expected in ((first, {"<=": [0], "<": [], "=": [0], ">": [1], ">=": [0, 1], "!=": [1]}),):
        for op, numbers in expected.items():
            predicate = bind_filters([("c", op, literal)], schema)
            got = [n for b in batches(file, schema, predicate=predicate) for n in b.column("#").to_pylist()]
            assert got == numbers, op
    predicate = bind_filters([("c", "in", [second])], schema)
    assert [b.column("#").to_pylist() for b in batches(file, schema, predicate=predicate)] == [[1]]
