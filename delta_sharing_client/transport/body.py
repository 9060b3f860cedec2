"""Decompression of response bodies, with limits on their growth, and on parts that decompress to nothing."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from delta_sharing_client.errors import IncompleteResponseError, ProtocolError

#: Maximum ratio of the decompressed to the compressed size of a response.
MAX_RATIO: Final = 100
#: The ratio is checked from this many decompressed bytes on, because short responses may be very repetitive.
RATIO_APPLIES_FROM: Final = 64 * 1024 * 1024

#: Maximum bytes of a gzip stream beyond its output: headers of its members, and members without output.
MAX_OVERHEAD: Final = 1024 * 1024

_CHUNK: Final = 256 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


def decoded(chunks: Iterable[bytes], encoding: str, *, what: str) -> Iterator[bytes]:
    """Decode the body of a response by its `Content-Encoding`, in chunks of at most 256 kB.

    Raises:
        IncompleteResponseError: the compressed stream is truncated.
        ProtocolError: the stream is broken, has another encoding than gzip, or grows beyond the limits.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return iter(chunks)
    if encoding in ("gzip", "x-gzip"):
        return _gunzipped(chunks, what)
    raise ProtocolError(f"{what}: the response has the encoding {encoding[:40]!r}; the request accepts gzip only")


def _gunzipped(chunks: Iterable[bytes], what: str) -> Iterator[bytes]:
    decoder = zlib.decompressobj(_GZIP)
    received = produced = 0
    for chunk in chunks:
        received += len(chunk)
        data = chunk
        while True:
            if decoder.eof:
                if not data:
                    break
                decoder = zlib.decompressobj(_GZIP)  # a further member of the stream
            try:
                piece = decoder.decompress(data, _CHUNK)
            except zlib.error:
                raise ProtocolError(f"{what}: the gzip stream of the response is broken") from None
            produced += len(piece)
            if produced > RATIO_APPLIES_FROM and produced > received * MAX_RATIO:
                raise ProtocolError(f"{what}: the response decompresses to more than {MAX_RATIO} times its size")
            if piece:
                yield piece
            data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            # Data that cannot be compressed grows by less than 1 %.
            if received - len(data) > 2 * produced + MAX_OVERHEAD:
                raise ProtocolError(f"{what}: the response has no end: its gzip stream decompresses to nothing")
            if not data and len(piece) < _CHUNK:
                break
    if received and not decoder.eof:
        raise IncompleteResponseError(f"{what}: the gzip stream of the response is truncated")
