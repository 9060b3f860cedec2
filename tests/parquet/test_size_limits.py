"""Limits of footers and deletion vectors against bytes that announce or hold more than they should."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib

import pytest
from pyroaring import BitMap64

from delta_sharing_client.errors import DataError, ProtocolError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.parquet.deletion_vector import decode_stored, file_range
from delta_sharing_client.parquet.size_limits import footer_length
from delta_sharing_client.secrets import SecretUrl

#: Opens files of a few bytes, whose footers announce lists; reports the error, and the growth of the memory in MB.
CHILD = """
import json, resource, sys
from delta_sharing_client.errors import DataError
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl

spec = ReadSpec(StructType((StructField("a", PrimitiveType("integer")),)))
for text in json.loads(sys.argv[1]):
    data = bytes.fromhex(text)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        ParquetSource(data, FileScanTask(SecretUrl("https://h/x"), "f1", len(data)), spec)
        message = "no error"
    except DataError as error:
        message = str(error)
    print(json.dumps([message, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024]))
"""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def with_footer(footer: bytes) -> bytes:
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def test_announced_lists_take_no_memory() -> None:
    """200 million schema elements, row groups, and columns of a row group."""
    many = b"\xfc" + varint(200_000_000)
    schema = b"\x15\x02\x19\x2c" + b"\x48\x01r\x15\x02\x00" + b"\x15\x02\x25\x00\x18\x01a\x00" + b"\x16\x00"
    footers = [
        b"\x15\x02\x19" + many,
        schema + b"\x19" + many,
        schema + b"\x19\x1c" + b"\x19" + many,
    ]
    texts = [with_footer(footer).hex() for footer in footers]
    command = [sys.executable, "-c", CHILD, json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for message, grown in map(json.loads, done.stdout.splitlines()):
        assert "not a readable Parquet file" in message
        assert grown < 100


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
