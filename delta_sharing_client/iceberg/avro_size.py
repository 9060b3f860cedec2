"""The decompressed size of an Avro file, such as a manifest, whose blocks pyiceberg decompresses without limit."""

from __future__ import annotations

import bz2
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_CHUNK: Final = 1024 * 1024
_CODEC: Final = b"avro.codec"


def decompressed_size(data: bytes, most: int) -> int:
    """Return the bytes of an Avro file's blocks when decompressed, or more than `most`.

    A block counts for at least one byte a record. The result is that up to the first malformed block, at which
    pyiceberg raises; 0 for other files.
    """
    if not data.startswith(_MAGIC):
        return 0
    total = 0
    try:
        file = io.BytesIO(data)
        file.seek(len(_MAGIC))
        decompress = _CODECS[dict(_header(file)).get(_CODEC, b"null")]
        file.seek(_SYNC, io.SEEK_CUR)
        while total <= most and file.tell() < len(data):
            records = _number(file)
            total += max(decompress(_bytes(file), most - total + 1), records)
            file.seek(_SYNC, io.SEEK_CUR)
    except (EOFError, ImportError, KeyError, OSError, ValueError, zlib.error):
        pass
    return total


def _header(file: io.BytesIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and values of the file's metadata."""
    while count := _number(file):
        if count < 0:
            _number(file)  # bytes of the entries
        for _ in range(abs(count)):
            yield _bytes(file), _bytes(file)


def _bytes(file: io.BytesIO) -> bytes:
    length = _number(file)
    data = file.read(max(length, 0))
    if length < 0 or len(data) < length:
        raise EOFError
    return data


def _number(file: io.BytesIO) -> int:
    """Return a number, of up to 64 bits."""
    number = 0
    for shift in range(0, 70, 7):
        (byte,) = file.read(1) or _end()
        number |= (byte & 127) << shift
        if byte < 128:
            return number >> 1 ^ -(number & 1)
    raise ValueError


def _end() -> bytes:
    raise EOFError


def _deflate(data: bytes, most: int) -> int:
    return len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most))


def _bzip2(data: bytes, most: int) -> int:
    return len(bz2.BZ2Decompressor().decompress(data, most))


def _zstandard(data: bytes, most: int) -> int:
    from zstandard import ZstdDecompressor

    size = 0
    with ZstdDecompressor().stream_reader(data) as reader:
        while size < most and (part := reader.read(_CHUNK)):
            size += len(part)
    return size


def _snappy(data: bytes, most: int) -> int:
    """Return the size that the block announces, which its decoder allocates."""
    number = 0
    for place, byte in enumerate(data[:5]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            break
    return number


#: Return the decompressed size of a block, or at least `most`.
_CODECS: Final[Mapping[bytes, Callable[[bytes, int], int]]] = {
    b"null": lambda data, most: len(data),
    b"deflate": _deflate,
    b"bzip2": _bzip2,
    b"zstandard": _zstandard,
    b"snappy": _snappy,
}
