"""Metadata files of Iceberg whose blocks expand far beyond their size."""

from __future__ import annotations

import bz2
import re
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from iceberg_server import IcebergServer

from delta_sharing_client import errors
from delta_sharing_client.iceberg.avro_size import decompressed_size

SYNC = b"0123456789abcdef"
ZEROS = bytes(1_000_000)


def number(value: int) -> bytes:
    rest, out = value << 1 ^ value >> 63, b""
    while rest > 127:
        rest, out = rest >> 7, out + bytes([rest & 127 | 128])
    return out + bytes([rest])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def head(codec: bytes | None) -> bytes:
    fields = b"" if codec is None else number(1) + text(b"avro.codec") + text(codec)
    return b"Obj\x01" + fields + number(0) + SYNC


def block(data: bytes, records: int = 1) -> bytes:
    return number(records) + text(data) + SYNC


def deflated(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


def zstandard(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    ("codec", "compress"),
    [(None, bytes), (b"null", bytes), (b"deflate", deflated), (b"bzip2", bz2.compress), (b"zstandard", zstandard)],
)
def test_blocks_are_counted_up_to_the_limit(codec, compress) -> None:
    file = head(codec) + 3 * block(compress(ZEROS))
    assert decompressed_size(file, 10_000_000) == 3_000_000
    assert 1_500_000 < decompressed_size(file, 1_500_000) <= 3_000_000
    assert decompressed_size(file, 0) > 0


def test_announced_sizes_and_records_count() -> None:
    announced = b"\xff\xff\xff\xff\x07"  # a block of snappy begins with its size
    assert decompressed_size(head(b"snappy") + block(announced), 10**9) > 10**9
    assert decompressed_size(head(b"null") + block(b"", records=10**15), 10**9) == 10**15


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"PAR1",
        b"Obj\x01",
        b"Obj\x01" + b"\xff" * 20,
        head(b"other") + block(ZEROS),
        head(b"deflate") + b"\x02\x01",
    ],
)
def test_other_and_malformed_files_have_no_size(file) -> None:
    assert decompressed_size(file, 10**9) == 0


def test_a_malformed_block_ends_the_count() -> None:
    assert decompressed_size(head(b"deflate") + block(deflated(ZEROS)) + block(b"\xff\xff"), 10**9) == 1_000_000


def test_a_manifest_that_expands_beyond_the_limit_is_named(iceberg: IcebergServer) -> None:
    table = iceberg.create("sales.orders", pa.table({"id": range(100)}))
    folder = Path(table.location().removeprefix("file://"))
    manifest = next(folder.rglob("*-m0.avro"))
    data = manifest.read_bytes()
    with iceberg.client(metadata_limit=50_000) as client:
        shared = client.iceberg.table("retail.sales.orders")
        assert shared.scan().to_arrow().num_rows == 100
        manifest.write_bytes(data + number(1) + text(deflated(ZEROS)) + data[-16:])
        expected = r"-m0\.avro has 200,001 bytes or more when decompressed; .*metadata_limit allows 200,000"
        with pytest.raises(errors.IcebergError, match=expected) as caught:
            shared.scan().to_arrow()
    assert re.search("retail|sales|orders", str(caught.value))
