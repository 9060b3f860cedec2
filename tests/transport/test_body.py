"""Decompression of response bodies: complete, in bounded chunks, limited growth."""

import gzip
import itertools
import os
import zlib

import pytest

from delta_sharing_client.errors import IncompleteResponseError, ProtocolError
from delta_sharing_client.transport import response
from delta_sharing_client.transport.response import decoded


def pieces(data, size):
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip"])
def test_gzip(size, encoding):
    data = os.urandom(3000) + b"a" * 700_000 + os.urandom(3000)
    given = list(decoded(pieces(gzip.compress(data), size), encoding, subject="x"))
    assert b"".join(given) == data
    assert max(map(len, given)) <= 256 * 1024


def test_several_gzip_members_and_an_exact_chunk():
    parts = [b"a" * 256 * 1024, b"", b"b" * 10]
    packed = b"".join(map(gzip.compress, parts))
    assert b"".join(decoded([packed], "gzip", subject="x")) == b"".join(parts)
    assert b"".join(decoded(pieces(packed, 3), "gzip", subject="x")) == b"".join(parts)


def test_an_empty_body():
    assert list(decoded([], "gzip", subject="x")) == []


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
def test_no_encoding_passes_the_chunks_on(encoding):
    assert list(decoded([b"a", b"b"], encoding, subject="x")) == [b"a", b"b"]


@pytest.mark.parametrize("missing", [1, 8, 20])
def test_truncated_stream_raises_incomplete_response(missing):
    packed = gzip.compress(os.urandom(1000))[:-missing]
    with pytest.raises(IncompleteResponseError, match="truncated"):
        list(decoded([packed], "gzip", subject="x"))


def test_broken_stream_raises():
    packed = bytearray(gzip.compress(os.urandom(1000)))
    packed[-6] ^= 0xFF  # the checksum
    for data in (b"no gzip at all", bytes(packed)):
        with pytest.raises(ProtocolError, match="broken"):
            list(decoded([data], "gzip", subject="x"))


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
def test_other_encodings_raise(encoding):
    with pytest.raises(ProtocolError, match="accepts gzip only"):
        decoded([b"x"], encoding, subject="x")


def test_decompression_bomb_raises(monkeypatch):
    monkeypatch.setattr(response, "RATIO_APPLIES_FROM", 1024 * 1024)
    packed = gzip.compress(bytes(20 * 1024 * 1024), 9)
    seen = 0
    with pytest.raises(ProtocolError, match="100 times"):
        for piece in decoded(pieces(packed, 4096), "gzip", subject="x"):
            seen += len(piece)
    assert seen < 3 * 1024 * 1024


def test_high_ratio_of_a_small_body_is_accepted():
    packed = gzip.compress(bytes(8 * 1024 * 1024), 9)
    assert sum(map(len, decoded([packed], "gzip", subject="x"))) == 8 * 1024 * 1024


def test_bytes_are_counted_across_members(monkeypatch):
    monkeypatch.setattr(response, "RATIO_APPLIES_FROM", 1024 * 1024)
    member = zlib.compressobj(9, wbits=31)
    packed = (member.compress(bytes(1 << 20)) + member.flush()) * 30
    with pytest.raises(ProtocolError, match="100 times"):
        list(decoded([packed], "gzip", subject="x"))


class TestStreamsWithoutOutput:
    """What decompresses to nothing ends; the number of bytes sent would have no bound otherwise."""

    @pytest.mark.parametrize("content", [b"", b"a"])
    @pytest.mark.parametrize("size", [1, 1000])
    def test_endless_members_are_refused(self, content, size):
        member = gzip.compress(content, mtime=0)
        received = 0

        def endless():
            nonlocal received
            while True:
                received += size * len(member)
                yield member * size

        with pytest.raises(ProtocolError, match="has no end"):
            for _ in decoded(endless(), "gzip", subject="x"):
                pass
        assert received < 4 * response.MAX_OVERHEAD

    def test_an_endless_name_in_the_header_is_refused(self):
        begin = b"\x1f\x8b\x08\x08" + bytes(6)
        with pytest.raises(ProtocolError, match="has no end"):
            for _ in decoded(itertools.chain([begin], itertools.repeat(b"n" * 4096)), "gzip", subject="x"):
                pass

    def test_endless_empty_blocks_of_one_member_are_refused(self):
        packer = zlib.compressobj(wbits=31)
        blocks = (packer.flush(zlib.Z_FULL_FLUSH) + b"\x00\x00\x00\xff\xff" * 100 for _ in itertools.count())
        with pytest.raises(ProtocolError, match="has no end"):
            for _ in decoded(blocks, "gzip", subject="x"):
                pass

    def test_what_cannot_be_compressed_is_accepted(self):
        data = os.urandom(4 * response.MAX_OVERHEAD)
        packed = gzip.compress(data, 1)
        for size in (4096, len(packed)):
            assert b"".join(decoded(pieces(packed, size), "gzip", subject="x")) == data

    def test_short_members_are_accepted(self):
        data = os.urandom(2 * response.MAX_OVERHEAD)
        packed = b"".join(gzip.compress(piece, 1) for piece in pieces(data, 200))
        assert b"".join(decoded(pieces(packed, 16384), "gzip", subject="x")) == data
