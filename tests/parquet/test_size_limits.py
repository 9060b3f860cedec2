"""Limits of footers and deletion vectors against bytes that announce or hold more than they should."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from delta_sharing_client.errors import DataError, ProtocolError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.parquet_footer import footer_problem
from delta_sharing_client.parquet.deletion_vector import decode_stored, file_range
from delta_sharing_client.parquet.size_limits import footer_length, footer_limits
from delta_sharing_client.secrets import SecretUrl

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
#: Opens files; reports the errors, and the growth of the memory in MB.
CHILD = """
import json, sys
from pathlib import Path
from delta_sharing_client.errors import DataError
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl


def peak():
    # The peak of getrusage begins with that of the parent process.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


spec = ReadSpec(StructType((StructField("a", PrimitiveType("integer")),)))
for path in sys.argv[1:]:
    data = Path(path).read_bytes()
    before = peak()
    try:
        ParquetSource(data, FileScanTask(SecretUrl("https://h/x"), "f1", len(data)), spec)
        message = "no error"
    except DataError as error:
        message = str(error)
    print(json.dumps([message, (peak() - before) // 1024]))
"""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def with_footer(footer: bytes) -> bytes:
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def thrift_list(count: int, kind: int = 12) -> bytes:
    return bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + varint(count)


#: A column; a column chunk with its position only; the smallest one with all that a chunk must have.
COLUMN = b"\x15\x02\x25\x00\x18\x01a\x00"
TINY_CHUNK = b"\x26\x00\x00"
CHUNK = bytes.fromhex("26001c1502191500191801611500160016001600260000") + b"\x00"


def footer_of(columns: int, groups: int, chunks: int, chunk: bytes) -> bytes:
    """A footer with row groups of some column chunks each."""
    schema = b"\x15\x02\x19" + thrift_list(columns + 1) + b"\x48\x01r\x15" + varint(2 * columns) + b"\x00"
    group = b"\x19" + thrift_list(chunks) + chunk * chunks + b"\x16\x00\x16\x00\x00"
    return schema + COLUMN * columns + b"\x16\x00\x19" + thrift_list(groups) + group * groups + b"\x00"


def open_in_child(folder: Path, footers: list[bytes]) -> list[tuple[str, int]]:
    """The error, and the growth of the memory in MB, of opening files with these footers, one after the other."""
    files = [folder / f"{number}.parquet" for number in range(len(footers))]
    for file, footer in zip(files, footers, strict=True):
        file.write_bytes(with_footer(footer))
    command = [sys.executable, "-c", CHILD, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@linux
@pytest.mark.parametrize("count", [900_000, 200_000_000])
def test_announced_lists_take_no_memory(tmp_path: Path, count: int) -> None:
    """Schema elements, row groups, and columns of a row group, in files of a few bytes."""
    many = b"\xfc" + varint(count)
    schema = b"\x15\x02\x19\x2c" + b"\x48\x01r\x15\x02\x00" + COLUMN + b"\x16\x00"
    footers = [b"\x15\x02\x19" + many, schema + b"\x19" + many, schema + b"\x19\x1c" + b"\x19" + many]
    for message, grown in open_in_child(tmp_path, footers):
        assert "not a readable Parquet file" in message
        assert grown < 100


@linux
def test_a_footer_of_tiny_items_takes_little_memory(tmp_path: Path) -> None:
    footers = [
        footer_of(1, 1, 900_000, TINY_CHUNK),
        footer_of(1, 300, 9_000, TINY_CHUNK),
        footer_of(400_000, 0, 0, b""),
    ]
    for message, grown in open_in_child(tmp_path, footers):
        assert "bytes of memory" in message
        assert "TransportOptions.metadata_limit" in message
        assert grown < 100


def test_footers_that_are_read() -> None:
    """The densest valid footers, and any shorter one, have no problem."""
    limit = 64 * 2**20
    dense = footer_of(1000, 40, 1000, CHUNK)
    assert len(dense) > 900_000
    assert footer_problem(dense, limit) == ""
    assert "metadata_limit of 1,000,000" in footer_problem(dense, 1_000_000)
    assert footer_problem(dense[:200_000], limit) == ""
    assert "its footer is damaged" in footer_problem(dense[:-1], limit)
    assert "nested too deeply" in footer_problem(b"\x1c" * 300_000, limit)
    assert "nested too deeply" in footer_problem(b"\x19" * 300_000, limit)


def test_a_large_footer_of_arrow(tmp_path: Path) -> None:
    """All kinds of fields that Arrow writes are skipped: statistics, indexes, metadata, sorting columns."""
    columns = {f"c{number}": [[{"a": 1, "b": "x" * 20}]] for number in range(400)}
    table = pa.table(columns).replace_schema_metadata({"k": "v" * 1000})
    order = [pq.SortingColumn(0)]
    options: dict[str, Any] = {"write_page_index": True, "write_page_checksum": True, "sorting_columns": order}
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, **options) as writer:
        for _ in range(4):
            writer.write_table(table)
    data = (tmp_path / "a.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    assert length > 256 * 1024
    limits = footer_limits(data, 64 * 2**20, "f1")
    assert pq.ParquetFile(pa.BufferReader(data), **limits).metadata.num_row_groups == 4


def test_the_length_of_a_footer() -> None:
    data = with_footer(b"x" * 100)
    assert footer_length(data[-8:], len(data), 100, "f1") == 100
    with pytest.raises(DataError, match=r"its footer has 100 bytes; .*metadata_limit allows 99"):
        footer_length(data[-8:], len(data), 99, "f1")
    with pytest.raises(DataError, match="does not end as one does"):
        footer_length(data[-8:], 99, 100, "f1")


def test_the_size_in_a_descriptor() -> None:
    vector = DeletionVector("p", SecretUrl("u"), 550_000_000, 6, 1)
    with pytest.raises(DataError, match=r"vector has 550,000,000 bytes; .*metadata_limit allows 1,000"):
        file_range(vector, "f1", 1000)
    assert file_range(vector, "f1", 550_000_000) == (1, 550_000_009)
    with pytest.raises(ProtocolError, match="impossible size or offset"):
        file_range(DeletionVector("p", SecretUrl("u"), -1, 6, 1), "f1", 1000)


@pytest.mark.parametrize("count", [100_000, 2**40, 2**64 - 1])
def test_the_number_of_bitmaps_in_a_vector(count: int) -> None:
    one = BitMap64([1]).serialize()[12:]
    body = struct.pack("<IQ", 1681511377, count)
    body += b"".join(struct.pack("<I", number) + one for number in range(min(count, 100_000)))
    stored = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    vector = DeletionVector("p", SecretUrl("u"), len(body), min(count, 100_000), 0)
    with pytest.raises(DataError, match=r"has [\d,]+ bitmaps of four billion rows"):
        decode_stored(stored, vector, "f1")
