"""A file that is cut, garbled or not Parquet at all is a data error that names it; never a wrong value."""

import random
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_files import FILE_ID, array_of, batches, parquet, read, struct_of, table_schema
from thorough import examples
from waiting import run_program

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.parquet import read_units
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl

STORED = pa.table(
    {
        "a": pa.array(range(200)),
        "b": pa.array([f"text {i % 17}" for i in range(200)]),
        "c": pa.array([None if i % 3 else [i, None] for i in range(200)]),
        "d": pa.array([{"x": i / 7, "y": bool(i % 2)} for i in range(200)]),
    }
)
FIELDS = (
    ("a", "long"),
    ("b", "string"),
    ("c", array_of("long")),
    ("d", struct_of(x="double", y="boolean")),
)
CHECKED = parquet(STORED, write_page_checksum=True, row_group_size=64, compression="snappy", data_page_size=256)
PLAIN = parquet(STORED, row_group_size=64, compression="none")
EXPECTED = STORED.to_pydict()


def footer_length(data):
    return struct.unpack("<I", data[-8:-4])[0]


def flip(data, position, bit):
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"P",
        b"PAR1",
        b"PAR1PAR1",
        b"PAR1" + b"\x00" * 4 + b"PAR1",
        b"PAR1" + b"\xff" * 4 + b"PAR1",
        b"PAR1" + b"\x01\x00\x00\x00" + b"PAR1",
        b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
        b"\x00" * 1000,
        b"PARE" + b"x" * 100 + b"PARE",
        b"ORC" + b"x" * 100,
        PLAIN[:-1],
        PLAIN[1:],
        PLAIN + b"x",
        PLAIN[: len(PLAIN) // 2],
        PLAIN[:-8] + b"\xff\xff\xff\x7fPAR1",
    ],
    ids=lambda data: f"{data[:12]!r}+{len(data)}",
)
def test_bytes_that_are_no_parquet_file_raise(data):
    for fields in (FIELDS, ()):
        if not fields and data == PLAIN[1:]:
            continue  # to count rows the footer is enough, and it is whole
        with pytest.raises(DataError, match=f"^file {FILE_ID}: ") as caught:
            batches(data, table_schema(*fields))
        assert caught.value.file_id == FILE_ID
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500


def attempt(call):
    """What the call returns, or the data error that it raises."""
    try:
        return call()
    except DataError as error:
        return error


def test_every_truncated_file_raises():
    data = parquet({"a": pa.array([1, 2, 3])})
    for length in range(len(data)):
        with pytest.raises(DataError):
            batches(data[:length], table_schema(("a", "long")))


def test_a_gap_in_the_middle_raises():
    """As a download would leave it that skipped a range."""
    start = 200
    for hole in (b"\x00", b"\xff"):
        with pytest.raises(DataError, match=f"file {FILE_ID}"):
            read(CHECKED[:start] + hole * 500 + CHECKED[start + 500 :], *FIELDS)


def chunks_of(data):
    """Where the pages of each column chunk are."""
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            start = min(start, chunk.data_page_offset)
            yield start, start + chunk.total_compressed_size


def test_a_flipped_bit_is_never_a_wrong_value_where_checksums_are():
    """In the pages: the checksum tells. In their headers: the header makes no sense, or says the same."""
    assert read(CHECKED, *FIELDS).to_pydict() == EXPECTED
    noticed = 0
    chance = random.Random(7)
    positions = [p for start, stop in chunks_of(CHECKED) for p in range(start, stop)]
    for position in chance.sample(positions, 400):
        damaged = flip(CHECKED, position, chance.randrange(8))
        got = attempt(lambda damaged=damaged: read(damaged, *FIELDS).to_pydict())
        noticed += isinstance(got, DataError)
        assert got == EXPECTED or str(got).startswith(f"file {FILE_ID}: ")
    assert noticed > 300


def test_page_checksums_are_verified():
    """A flip that decodes without any error but for the checksum."""
    stored, plain = {"a": pa.array([0x1122334455667788])}, bytes.fromhex("8877665544332211")
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    for checked in (True, False):
        data = parquet(stored, write_page_checksum=checked, **options)
        assert data.count(plain) == 1
        damaged = flip(data, data.index(plain), 0)
        if checked:
            with pytest.raises(
                DataError, match=rf"file {FILE_ID}: row group 0 cannot be decoded: .*(?i:crc|checksum)"
            ):
                read(damaged, ("a", "long"))
        else:
            assert read(damaged, ("a", "long")).to_pydict() == {"a": [0x1122334455667789]}


def test_a_name_that_is_no_text():
    data = parquet({"aaaa": pa.array([1]), "b": pa.array([2])}, store_schema=False)
    start = len(data) - 8 - footer_length(data)
    damaged = data[:start] + data[start:].replace(b"aaaa", b"a\xff\xffa")
    assert damaged != data
    for fields in ((("b", "long"),), ()):
        got = attempt(lambda fields=fields: batches(damaged, table_schema(*fields)))
        assert FILE_ID in str(got) if isinstance(got, DataError) else sum(b.num_rows for b in got) == 1


FLIP_ALL = """
import sys
sys.path[:0] = sys.argv[1:]
import test_damaged_files as suite
print(suite.flip_the_footer())
"""


def flip_the_footer():
    """Read a file with bits of each byte of its footer flipped in turn; count the data errors."""
    schema = table_schema(("a", "long"), ("b", "string"), ("c", array_of("integer")))
    predicate = bind_filters([("a", ">", 0), ("b", "<", "y")], schema)
    data = parquet(
        {"a": pa.array([1, None]), "b": pa.array(["x", "y"]), "c": pa.array([[1], None], pa.list_(pa.int32()))},
        store_schema=False,
    )
    noticed = 0
    for position in range(len(data) - 8 - footer_length(data), len(data)):
        for bit in (position % 8, (position + 3) % 8):
            damaged = flip(data, position, bit)
            for columns, more in ((schema, {}), (table_schema(), {}), (schema, {"predicate": predicate})):
                try:
                    for batch in batches(damaged, columns, **more):
                        batch.validate(full=True)
                except DataError:
                    noticed += 1
    return noticed


def test_no_flipped_bit_of_the_footer_ends_the_process():
    """In a process of its own: what goes wrong inside the Parquet library may not come back as an error."""
    here = Path(__file__).parent
    done = run_program([sys.executable, "-c", FLIP_ALL, here, here.parent])
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 300


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_flipped_bits_anywhere_are_a_data_error_or_do_no_harm(data):
    """In the footer too, which has no checksum: an error must be typed; a value may be wrong there."""
    damaged = data.draw(st.sampled_from([PLAIN, CHECKED]))
    in_footer = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(1, 3))):
        low = (
            len(damaged) - 8 - footer_length(PLAIN if len(damaged) == len(PLAIN) else CHECKED) if in_footer else 0
        )
        position = data.draw(st.integers(max(low, 0), len(damaged) - 1))
        damaged = flip(damaged, position, data.draw(st.integers(0, 7)))
    for fields in (FIELDS, (), FIELDS[:1]):
        got = attempt(lambda fields=fields: batches(damaged, table_schema(*fields)))
        if isinstance(got, DataError):
            assert str(got).startswith(f"file {FILE_ID}: ")
        else:
            for batch in got:
                batch.validate(full=True)


@given(st.binary(max_size=300))
@settings(max_examples=examples(100), deadline=None)
def test_any_footer_bytes_raise_a_data_error(middle):
    for data in (b"PAR1" + middle + b"PAR1", b"PAR1" + middle + struct.pack("<I", len(middle)) + b"PAR1", middle):
        with pytest.raises(DataError):
            batches(data, table_schema(("a", "long")))


def varint(number):
    """A whole number as the footer writes it."""
    number = (number << 1) ^ (number >> 63)
    out = []
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("rows", [-1, -38, 36, 38, 63])
@pytest.mark.parametrize(
    "fields",
    [(("a", "long"),), (), (("x", "long"),), (("p", "string"),), (("a", "long"), ("p", "string"))],
    ids=str,
)
def test_a_footer_with_a_wrong_number_of_rows_raises(fields, rows):
    """The count of the row group, of a column chunk or of the file is another one: noticed, or without effect."""
    data = parquet({"a": pa.array(range(37)), "s": pa.array([[1]] * 37)})
    options = {"partition_columns": ["p"], "partition_values": {"p": "x"}}
    start = len(data) - 8 - footer_length(data)
    places = [
        position
        for position in range(start, len(data) - 8)
        if data[position : position + 1] == varint(37) and data[position - 1] in (0x16, 0x26)
    ]
    assert len(places) >= 3
    noticed = 0
    for position in places:
        damaged = data[:position] + varint(rows) + data[position + 1 :]
        got = attempt(lambda damaged=damaged: batches(damaged, table_schema(*fields), **options))
        if isinstance(got, DataError):
            assert str(got).startswith(f"file {FILE_ID}: ")
            noticed += 1
        else:
            assert sum(b.num_rows for b in got) == 37
    assert noticed


def test_overstated_chunk_sizes_end_a_file_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet({"n": pa.array(range(100))}, row_group_size=10)
    monkeypatch.setattr(read_units, "chunk_range", lambda chunk: (4, 4 + len(data)))
    task = FileScanTask(SecretUrl("https://h/x"), FILE_ID, len(data))
    with ParquetSource(data, task, ReadSpec(table_schema(("n", "long")))) as source:
        ends = [decoded.last for decoded in source.decode_all()]
    assert ends == [False] * 9 + [True]
