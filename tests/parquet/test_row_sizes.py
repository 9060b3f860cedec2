"""Decoding in steps: the same rows whatever the limits, and bounds that hold for the pages of a file."""

from __future__ import annotations

import json
import random
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from parquet_files import FILE_ID, array_of, decode_file, map_of, parquet, struct_of, table_schema
from pyroaring import BitMap64
from variant_encoder import array as variant_array
from variant_encoder import mapping, metadata, primitive

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.parquet import page_headers, variant
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.read_units import LocatedColumn, chunk_range
from delta_sharing_client.parquet.row_sizes import DecodeLimits, DecodePlan, Widths, plan_steps
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl

ROWS = 3000
FIELDS = (
    ("n", "long"),
    ("few", "string"),
    ("many", "string"),
    ("raw", "binary"),
    ("lists", array_of("string")),
    ("maps", map_of("string", "long")),
    ("parts", struct_of(text="string", deep=array_of(array_of("integer")))),
    ("price", "decimal(22,2)"),
)
MAPS = pa.map_(pa.string(), pa.int64())
TINY = DecodeLimits(step=2_000, batch=1_000_000)


def rows_of_every_kind() -> pa.Table:
    chance = random.Random(1)
    words = [f"word {n}" * (n % 9) for n in range(50)]
    lists = [None if n % 11 == 0 else [chance.choice([*words, None]) for _ in range(n % 7)] for n in range(ROWS)]
    return pa.table(
        {
            "n": pa.array(range(ROWS)),
            "few": pa.array([None if n % 13 == 0 else words[n % 50] for n in range(ROWS)]),
            "many": pa.array([f"{n:x}-{chance.random()}" for n in range(ROWS)]),
            "raw": pa.array([bytes([n % 5]) * (n % 40) for n in range(ROWS)]),
            "lists": pa.array(lists, pa.list_(pa.string())),
            "maps": pa.array(
                [[(f"k{m}", m) for m in range(n % 4)] for n in range(ROWS)], pa.map_("string", "int64")
            ),
            "parts": pa.array(
                [{"text": words[n % 50], "deep": [[n, None], [], None][: n % 4]} for n in range(ROWS)],
                pa.struct([("text", pa.string()), ("deep", pa.list_(pa.list_(pa.int32())))]),
            ),
            "price": pa.array(range(ROWS)).cast(pa.decimal128(22, 2)),
        }
    )


WHOLE = rows_of_every_kind()


def decode(data: bytes, schema, limits: DecodeLimits, **more) -> list[pa.RecordBatch]:
    predicate = more.pop("predicate", None)
    deleted = more.pop("deleted", None)
    task = FileScanTask(SecretUrl("https://h/x"), FILE_ID, len(data), all_rows_match=predicate is None, **more)
    spec = ReadSpec(schema, predicate=predicate, **({"variant": "json"} if "v" in schema.names else {}))
    return list(decode_file(data, task, spec, deleted=deleted, limits=limits))


@pytest.mark.parametrize(
    "codec",
    ["none", "snappy", "zstd", *(pytest.param(c, marks=pytest.mark.slow) for c in ("gzip", "lz4", "brotli"))],
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_steps_return_the_same_rows(codec: str, version: str) -> None:
    data = parquet(WHOLE, compression=codec, data_page_version=version, data_page_size=500, row_group_size=1200)
    schema = table_schema(*FIELDS)
    batches = decode(data, schema, TINY)
    assert len(batches) > 20
    assert pa.Table.from_batches(batches).to_pylist() == WHOLE.to_pylist()


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": False},
        {
            "use_dictionary": False,
            "column_encoding": {"many": "DELTA_BYTE_ARRAY", "few": "DELTA_LENGTH_BYTE_ARRAY"},
        },
        {"dictionary_pagesize_limit": 300},
        {"store_schema": False},
    ],
    ids=["plain", "delta", "dictionary given up", "no Arrow schema"],
)
def test_steps_return_the_same_rows_for_every_encoding(options) -> None:
    columns = ["n", "few", "many", "raw"]
    table = WHOLE.select(columns)
    data = parquet(table, data_page_size=500, **options)
    schema = table_schema(*(f for f in FIELDS if f[0] in columns))
    assert pa.Table.from_batches(decode(data, schema, TINY)).to_pylist() == table.to_pylist()


def test_dictionary_columns_are_decoded_in_steps() -> None:
    table = pa.table({"few": WHOLE["few"].combine_chunks().dictionary_encode(), "n": WHOLE["n"]})
    batches = decode(parquet(table), table_schema(("few", "string"), ("n", "long")), TINY)
    assert len(batches) > 3
    assert pa.Table.from_batches(batches).to_pylist() == WHOLE.select(["few", "n"]).to_pylist()


def test_deleted_rows_and_a_filter_are_left_out_of_each_step() -> None:
    data = parquet(WHOLE, row_group_size=1000)
    schema = table_schema(("n", "long"), ("few", "string"))
    deleted = RowPositions(BitMap64(range(0, ROWS, 3)), FILE_ID)
    predicate = bind_filters([("few", "!=", "")], schema)
    batches = decode(data, schema, TINY, deleted=deleted, predicate=predicate)
    expected = [row for row in WHOLE.select(["n", "few"]).to_pylist() if row["n"] % 3 and row["few"]]
    assert [row for batch in batches for row in batch.to_pylist()] == expected


def test_invalid_utf_8_in_a_dictionary_raises() -> None:
    raw = pa.array([b"\xff\xfe" if n == 2500 else b"fine" for n in range(ROWS)])
    data = parquet({"t": raw}, store_schema=False)
    with pytest.raises(DataError, match=r"column 't' .*(?i:utf)"):
        decode(data, table_schema(("t", "string")), TINY)


def test_a_long_text_in_a_few_rows_does_not_make_all_steps_small() -> None:
    texts = ["x" * 100_000 if n == 1500 else "short" for n in range(ROWS)]
    data = parquet({"t": pa.array(texts)}, dictionary_pagesize_limit=1 << 20)
    batches = decode(data, table_schema(("t", "string")), DecodeLimits(step=200_000, batch=10_000_000))
    assert [text for batch in batches for text in batch.column("t").to_pylist()] == texts
    assert len(batches) < 10


@pytest.mark.parametrize("batch", [99_000, 101_000])
def test_a_row_is_refused_only_beyond_the_limit(batch: int) -> None:
    data = parquet({"t": pa.array(["x" * 100_000] * 30)}, dictionary_pagesize_limit=1 << 20)
    schema, limits = table_schema(("t", "string")), DecodeLimits(step=2_000, batch=batch)
    if batch < 100_000:
        with pytest.raises(DataError, match=rf"file {FILE_ID}.*batch_memory_limit allows 99,000"):
            decode(data, schema, limits)
    else:
        assert sum(one.num_rows for one in decode(data, schema, limits)) == 30


class TestLargeRowsAfterSmallOnes:
    """The size of rows that were decoded is no bound for those that follow."""

    LIMITS = DecodeLimits(step=200_000, batch=1_000_000)

    @pytest.mark.parametrize("use_dictionary", [True, False])
    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_long_texts(self, codec: str, use_dictionary: bool) -> None:
        texts = ["a"] * 3_000 + ["x" * 100_000] * 300
        data = parquet(
            {"t": texts},
            compression=codec,
            use_dictionary=use_dictionary,
            write_batch_size=1,
            dictionary_pagesize_limit=1 << 20,
            data_page_size=1 << 16,
        )
        rows = 0
        for batch in decode(data, table_schema(("t", "string")), self.LIMITS):
            assert batch.nbytes <= 4 * self.LIMITS.step
            assert batch.column("t").to_pylist() == texts[rows : rows + batch.num_rows]
            rows += batch.num_rows
        assert rows == len(texts)

    @pytest.mark.parametrize("text", [False, True])
    def test_a_long_list(self, text: bool) -> None:
        lengths, values = [1] * 3_000 + [1_000_000], pa.repeat("text" if text else 7, 1_003_000)
        lists = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), values)
        data = parquet({"l": lists})
        assert len(data) < 10_000
        kind = array_of("string" if text else "long")
        with pytest.raises(DataError, match="batch_memory_limit allows 1,000,000"):
            decode(data, table_schema(("l", kind)), self.LIMITS)
        whole = decode(data, table_schema(("l", kind)), DecodeLimits())
        assert sum(batch.num_rows for batch in whole) == 3_001


@pytest.mark.parametrize("kind", ["string", "binary"])
@pytest.mark.parametrize("declared", [True, False], ids=["dictionary in the schema", "plain schema"])
def test_a_rare_long_text_reserves_no_memory_for_the_other_rows(kind: str, declared: bool) -> None:
    """Arrow reserves the mean length of the dictionary's texts for each row: here 2 TB."""
    length, rows = 20_000_000, 200_000
    texts = pa.array(["a", "x" * length]).cast(kind)
    indices = pa.array([None] + [0] * (rows - 2) + [1], pa.int32())
    data = parquet(
        {"t": pa.DictionaryArray.from_arrays(indices, texts)},
        write_statistics=False,
        store_schema=declared,
        dictionary_pagesize_limit=2 * length,
    )
    column = pa.chunked_array([b.column("t") for b in decode(data, table_schema(("t", kind)), DecodeLimits())])
    assert pc.sum(pc.binary_length(column)).as_py() == rows - 2 + length
    assert column.null_count == 1
    assert column[1].as_py() == ("a" if kind == "string" else b"a")


class TestPageHeaders:
    @pytest.mark.parametrize("version", ["1.0", "2.0"])
    @pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip"])
    def test_pages_hold_the_values_of_the_chunk(self, codec: str, version: str) -> None:
        data = parquet(WHOLE, compression=codec, data_page_version=version, data_page_size=500)
        metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(0).column(number)
            pages = page_headers.read_pages(memoryview(data), *chunk_range(chunk), chunk.num_values)
            kinds = [page.kind for page in pages]
            assert kinds.count(page_headers.DICTIONARY) == chunk.has_dictionary_page
            values = sum(page.values for page in pages if page.kind != page_headers.DICTIONARY)
            assert values == chunk.num_values

    @pytest.mark.parametrize("version", ["1.0", "2.0"])
    @pytest.mark.parametrize("seed", range(8))
    def test_the_longest_row_is_found_from_the_levels(self, version: str, seed: int) -> None:
        chance = random.Random(seed)
        lengths = [chance.choice([0, 1, 1, 2, 5, 40, 3000 if seed % 2 else 7]) for _ in range(2000)]
        lists = [list(range(length)) for length in lengths]
        data = parquet({"l": pa.array(lists, pa.list_(pa.int64()))}, data_page_version=version, data_page_size=700)
        metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
        chunk = metadata.row_group(0).column(0)
        pages = page_headers.read_pages(memoryview(data), *chunk_range(chunk), chunk.num_values)
        pages = [page for page in pages if page.kind != page_headers.DICTIONARY]
        found = page_headers.longest_row(memoryview(data), pages, chunk.compression, 1)
        assert found == max(max(lengths), 1)


@pytest.mark.parametrize("shape", ["text", "list", "struct", "map", "lists of structs"])
@pytest.mark.parametrize("first", [["a"], [], [None]], ids=["text first", "nothing first", "null first"])
def test_the_longest_text_of_a_dictionary_is_found_or_unknown(shape: str, first: list) -> None:
    texts = [*first, "bb", "x" * 70_000, "", "bb"]
    nested = {
        "text": pa.array(texts),
        "list": pa.array([first, texts], pa.list_(pa.string())),
        "struct": pa.array([{"t": text, "n": 1} for text in texts]),
        "map": pa.array([[(text or "", 1)] for text in texts], MAPS),
        "lists of structs": pa.array([[{"t": text} for text in texts]]),
    }
    data = parquet({"c": nested[shape]}, dictionary_pagesize_limit=1 << 20)
    path = pq.ParquetFile(pa.BufferReader(data)).schema.column(0).path
    found = page_headers.longest_text(pq.ParquetFile(pa.BufferReader(data), read_dictionary=[path]).reader, 0, 0)
    assert found == 70_000 or (found is None and not first)


def test_texts_that_partly_use_a_dictionary_come_in_large_steps() -> None:
    texts = [f"{n % 400:0100}" if n < 2_000 else f"{n:0100}" for n in range(ROWS)]
    data = parquet({"t": pa.array(texts)}, dictionary_pagesize_limit=60_000, data_page_size=1_000)
    batches = decode(data, table_schema(("t", "string")), DecodeLimits(step=200_000, batch=10_000_000))
    assert [text for batch in batches for text in batch.column("t").to_pylist()] == texts
    assert len(batches) < 10


def test_rows_are_halved_if_their_json_texts_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "n" * 1000
    value, names = variant_array([mapping({name: primitive(0)}, {name: 0})] * 20), metadata([name])
    stored = pa.array([{"metadata": names, "value": value}] * 64, variant.VARIANT)
    schema = table_schema(("v", "variant"))
    whole = decode(parquet({"v": stored}), schema, DecodeLimits())
    monkeypatch.setattr(variant, "_MOST_TEXT", 100_000)
    parts = decode(parquet({"v": stored}), schema, DecodeLimits())
    assert len(whole) == 1
    assert len(parts) >= 16
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches(whole).combine_chunks())
    assert len(json.loads(parts[0].column("v")[0].as_py())) == 20


def test_only_the_needed_positions_of_a_deletion_vector_are_expanded() -> None:
    vector = RowPositions(BitMap64(range(2**26)), FILE_ID)
    tracemalloc.start()
    try:
        assert vector.keep_mask(5, 10).to_pylist() == [False] * 10
        assert vector.keep_mask(2**26 - 2, 4).to_pylist() == [False, False, True, True]
        assert vector.keep_mask(2**26, 10) is None
        assert not vector.touches(1000, 1000)
        assert vector.touches(2**26 - 1, 2)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert np.array_equal(RowPositions(BitMap64([3, 9]), FILE_ID).positions, [3, 9])


class TestSmallChunks:
    """Chunks whose stored bytes are too few for large rows are planned without their page headers."""

    SCHEMA = table_schema(("t", "string"), ("n", "long"))

    def plan(self, data: bytes, pages: bytes, limits: DecodeLimits) -> DecodePlan:
        file = pq.ParquetFile(pa.BufferReader(data))
        columns = [LocatedColumn(field, (n,)) for n, field in enumerate(self.SCHEMA.fields)]
        widths = Widths.of(file.schema, columns, [pa.string(), pa.int64()])
        group = file.metadata.row_group(0)
        return plan_steps(memoryview(pages), group, widths.leaves, widths.row, limits, lambda leaf: None)

    @pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "lz4"])
    def test_a_small_file_is_decoded_at_once_without_page_headers(self, codec: str) -> None:
        data = parquet({"t": ["a", "b"], "n": [1, 2]}, compression=codec)
        assert self.plan(data, b"", DecodeLimits()) == DecodePlan(2)

    @pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "brotli"])
    def test_page_headers_decide_if_the_stored_bytes_may_hold_large_rows(self, codec: str) -> None:
        data = parquet({"t": ["x" * 5_000] * 1_000, "n": range(1_000)}, compression=codec)
        limits = DecodeLimits(step=100_000, batch=10_000_000)
        assert self.plan(data, data, limits).indexed == ("t",)
        assert sum(one.num_rows for one in decode(data, self.SCHEMA, limits)) == 1_000

    def test_only_columns_of_large_texts_are_decoded_as_dictionary_indices(self) -> None:
        rows = 1_000
        table = {"t": [f"{n % 10}" + "x" * 5_000 for n in range(rows)], "n": range(rows), "s": ["a", "b"] * 500}
        data = parquet(table, compression="snappy")
        file = pq.ParquetFile(pa.BufferReader(data))
        fields = table_schema(("t", "string"), ("n", "long"), ("s", "string"))
        columns = [LocatedColumn(field, (n,)) for n, field in enumerate(fields.fields)]
        widths = Widths.of(file.schema, columns, [pa.string(), pa.int64(), pa.string()])
        group, limits = file.metadata.row_group(0), DecodeLimits(step=100_000, batch=10_000_000)
        plan = plan_steps(memoryview(data), group, widths.leaves, widths.row, limits, lambda leaf: None)
        assert plan == DecodePlan(rows, ("t",))
        batches = decode(data, fields, limits)
        assert len(batches) > 20
        assert pa.Table.from_batches(batches).to_pydict() == pa.table(table).to_pydict()

    @pytest.mark.parametrize(("rows", "indexed"), [(500, ()), (20_000, ("t",))])
    def test_texts_of_many_rows_are_looked_up_in_their_dictionary(self, rows: int, indexed: tuple) -> None:
        table = {"t": [f"text {n % 10}" for n in range(rows)], "n": range(rows)}
        data = parquet(table)
        assert self.plan(data, data, DecodeLimits()) == DecodePlan(rows, indexed)
        assert (
            pa.Table.from_batches(decode(data, self.SCHEMA, DecodeLimits())).to_pydict()
            == pa.table(table).to_pydict()
        )

    def test_a_negative_chunk_size_raises(self) -> None:
        data = parquet({"t": ["text"] * 1_000}, compression="snappy")
        size = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0).total_compressed_size
        assert 64 <= size < 8_192  # two bytes in the footer
        number = bytes([2 * size & 127 | 128, 2 * size >> 7])
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        assert data[footer:].count(b"\x16" + number) >= 1
        damaged = data[:footer] + data[footer:].replace(
            b"\x16" + number, b"\x16" + bytes([number[0] | 1, number[1]])
        )
        with pytest.raises(DataError, match=FILE_ID):
            decode(damaged, table_schema(("t", "string")), DecodeLimits())


def test_page_headers_with_long_statistics_are_read() -> None:
    texts = [f"{n:04}" + "y" * 2_000 for n in range(200)]
    data = parquet({"t": texts}, use_dictionary=False, data_page_size=10_000, write_batch_size=5)
    chunk = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    pages = page_headers.read_pages(memoryview(data), *chunk_range(chunk), chunk.num_values)
    assert len(pages) > 20
    assert sum(page.values for page in pages) == 200
    assert pages[0].start - chunk_range(chunk)[0] > 256  # the first header
