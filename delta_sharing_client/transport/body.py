"""The body of an answer as chunks of bytes: complete, decompressed, bounded."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from delta_sharing_client.errors import IncompleteResponseError, ProtocolError

#: A compressed answer may grow this much ...
MAX_RATIO: Final = 100
#: ... once it has given this many bytes; short answers of much repetition are fine.
RATIO_APPLIES_FROM: Final = 64 * 1024 * 1024

_PIECE: Final = 256 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


def decoded(chunks: Iterable[bytes], encoding: str, *, what: str) -> Iterator[bytes]:
    """Undo an answer's `Content-Encoding`.

    Args:
        chunks: the body as it came.
        encoding: the header's value; only gzip was asked for.
        what: the answer, for messages.

    Yields:
        Pieces of at most 256 kB of a compressed body, the chunks themselves of any other.

    Raises:
        IncompleteResponseError: the compressed stream ends before its end.
        ProtocolError: it is broken, of an encoding not asked for, or grows beyond all reason.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return iter(chunks)
    if encoding in ("gzip", "x-gzip"):
        return _gunzipped(chunks, what)
    raise ProtocolError(f"{what}: the answer is encoded as {encoding[:40]!r}; only gzip was asked for")


def _gunzipped(chunks: Iterable[bytes], what: str) -> Iterator[bytes]:
    decoder = zlib.decompressobj(_GZIP)
    taken = given = 0
    for chunk in chunks:
        taken += len(chunk)
        data = chunk
        while True:
            if decoder.eof:
                if not data:
                    break
                decoder = zlib.decompressobj(_GZIP)  # a further member of the stream
            try:
                piece = decoder.decompress(data, _PIECE)
            except zlib.error:
                raise ProtocolError(f"{what}: the answer's gzip stream is broken") from None
            given += len(piece)
            if given > RATIO_APPLIES_FROM and given > taken * MAX_RATIO:
                raise ProtocolError(f"{what}: the answer unpacks to more than {MAX_RATIO} times its size")
            if piece:
                yield piece
            data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            if not data and len(piece) < _PIECE:
                break
    if taken and not decoder.eof:
        raise IncompleteResponseError(f"{what}: the answer's gzip stream ends before its end")
