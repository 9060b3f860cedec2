"""Deletion vectors: their bytes, their checks, and the rows they take away."""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from parquet_files import decode_file
from pyroaring import BitMap64
from thorough import examples

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.deletion_vector import (
    RowPositions,
    decode_inline,
    decode_stored,
    file_range,
    z85_decode,
)
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
SPEC = ReadSpec(StructType((StructField("n", PrimitiveType("long")),)))
TASK = FileScanTask(SecretUrl("http://127.0.0.1/x"), "file-1", 0)


def body_of(rows):
    return struct.pack("<I", 1681511377) + BitMap64(rows).serialize()


def stored_of(body):
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def z85_encode(data):
    """The last group holds as many bytes as there are, and begins with a `#` for each that is missing."""
    out = []
    for start in range(0, len(data), 4):
        group = data[start : start + 4]
        number = int.from_bytes(group, "big")
        digits = [ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0)]
        out.append("#" * (4 - len(group)) + "".join(digits[4 - len(group) :]))
    return "".join(out)


def descriptor(rows, kind="p", text="http://127.0.0.1/dv", offset=1):
    return DeletionVector(kind, SecretUrl(text), len(body_of(rows)), len(set(rows)), offset)


def read_with(rows, total=10, group=4):
    table = pa.table({"n": pa.array(range(total), pa.int64())})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=group)
    positions = decode_stored(stored_of(body_of(rows)), descriptor(rows), "file-1")
    batches = decode_file(sink.getvalue(), TASK, SPEC, deleted=positions)
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_the_text_of_the_z85_standard_decodes():
    assert z85_decode("HelloWorld") == bytes.fromhex("864FD26FB559F75B")


@given(st.binary(max_size=70))
@settings(max_examples=examples(200), deadline=None)
def test_z85_text_of_any_length_decodes(data):
    assert z85_decode(z85_encode(data)) == data


@pytest.mark.parametrize(
    ("text", "data"),
    [("###00", "00"), ("###30", "ff"), ("##960", "ffff"), ("#rr90", "ffffff"), ("##093", "0300")],
)
def test_a_padded_last_group_holds_fewer_bytes(text, data):
    assert z85_decode(text) == bytes.fromhex(data)
    assert z85_decode("HelloWorld" + text) == bytes.fromhex("864FD26FB559F75B" + data)
    with pytest.raises(ValueError, match="range"):
        z85_decode(text + "Hello")


@pytest.mark.parametrize("text", ["abcd", "abc d", "#####", "####0", "###31", "##961", "#rr91"])
def test_text_that_is_no_z85_is_refused(text):
    with pytest.raises(ValueError, match=r"Z85|multiple|range"):
        z85_decode(text)


def test_an_inline_vector_that_delta_wrote_with_padding_decodes():
    text = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"
    positions = decode_inline(DeletionVector("i", SecretUrl(text), 34, 1), "file-1")
    assert positions.positions.tolist() == [3]


@given(st.sets(st.integers(0, 2**33), min_size=1, max_size=20))
@settings(max_examples=examples(60), deadline=None)
def test_inline_vectors_decode_whichever_way_they_are_padded(rows):
    body = body_of(rows)
    for text in (z85_encode(body), z85_encode(body + bytes(-len(body) % 4))):
        vector = DeletionVector("i", SecretUrl(text), len(body), len(rows))
        assert decode_inline(vector, "file-1").positions.tolist() == sorted(rows)


def test_an_inline_vector_of_known_bytes_decodes():
    # Written out by hand: magic, one 32-bit map with key 0, a roaring array of 6 positions.
    body = bytes.fromhex(
        "d1d33964" "0100000000000000" "00000000" "3a300000" "01000000" "00000500" "10000000"
        "0300" "0400" "0700" "0b00" "1200" "1d00"
    )  # fmt: skip
    vector = DeletionVector("i", SecretUrl(z85_encode(body)), len(body), 6)
    positions = decode_inline(vector, "file-1")
    mask = positions.keep_mask(0, 30).to_pylist()
    assert [row for row, keep in enumerate(mask) if not keep] == [3, 4, 7, 11, 18, 29]


@settings(max_examples=examples(50), deadline=None)
@given(st.sets(st.integers(0, 2**34), max_size=50))
@pytest.mark.protocol("deletionVectors")
def test_inline_and_stored_vectors_hold_the_same_rows(rows):
    body = body_of(rows)
    padded = body + b"\0" * (-len(body) % 4)
    inline = decode_inline(descriptor(rows, "i", z85_encode(padded), None), "f")
    stored = decode_stored(stored_of(body), descriptor(rows), "f")
    assert len(inline) == len(stored) == len(rows)
    for row in rows:
        assert inline.keep_mask(row, 1).to_pylist() == [False]
        assert stored.keep_mask(row, 1).to_pylist() == [False]


def test_the_range_of_a_stored_vector_takes_in_size_and_checksum():
    assert file_range(DeletionVector("p", SecretUrl("u"), 34, 6, 1), "f", 34) == (1, 1 + 4 + 34 + 4)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "bytes instead of"),
        (lambda data: struct.pack(">I", 1) + data[4:], "its descriptor has"),
        (lambda data: data[:10] + bytes([data[10] ^ 1]) + data[11:], "checksum"),
        (lambda data: stored_of(b"\1" + data[5:-4]), "unknown form"),
        (lambda data: stored_of(data[4:8] + b"\xff" * (len(data) - 12)), "bitmaps of four billion rows"),
        (lambda data: stored_of(data[4:16] + b"\xff" * (len(data) - 20)), "damaged"),
    ],
)
def test_a_damaged_vector_is_refused_and_names_the_file(damage, message):
    rows = [1, 5, 9]
    with pytest.raises(DataError, match=message) as caught:
        decode_stored(damage(stored_of(body_of(rows))), descriptor(rows), "file-1")
    assert caught.value.file_id == "file-1"


def test_a_vector_of_another_cardinality_is_refused():
    vector = structs.replace(descriptor([1, 2, 3]), cardinality=2)
    with pytest.raises(DataError, match="deletes 3 rows, its descriptor has 2"):
        decode_stored(stored_of(body_of([1, 2, 3])), vector, "file-1")


def test_rows_are_taken_away_by_position_across_row_groups():
    assert read_with([0, 3, 4, 9]) == [1, 2, 5, 6, 7, 8]
    assert read_with([]) == list(range(10))
    assert read_with(range(10)) == []
    assert read_with([4, 5, 6, 7]) == [0, 1, 2, 3, 8, 9]


def test_a_row_beyond_the_file_is_refused():
    with pytest.raises(DataError, match="row 10 of a file of 10 rows"):
        read_with([10])


def test_rows_without_columns_are_counted_without_the_deleted_ones():
    table = pa.table({"n": pa.array(range(10), pa.int64())})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=4)
    spec = ReadSpec(StructType(()))
    batches = decode_file(sink.getvalue(), TASK, spec, deleted=RowPositions(BitMap64([0, 1, 8]), "f"))
    assert sum(batch.num_rows for batch in batches) == 7
