"""Deletion vectors: which rows of a file do not count.

Serves "Deletion Vectors" of the Delta protocol. A vector is a 64-bit roaring bitmap of row positions, inline
in the action (Z85 text) or in a file, where its size stands before it and its CRC-32 behind it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.actions import DeletionVector

_MAGIC: Final = 1681511377
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUES: Final = {character: value for value, character in enumerate(_Z85)}
_PADDING: Final = "#"
#: A vector for four billion rows at its worst; anything longer is no vector.
MAX_BYTES: Final = 1 << 30


class RowPositions:
    """The positions of a file's rows that a deletion vector deletes, or of the only ones that count.

    Args:
        bitmap: the positions.
        file_id: the data file, for messages.
        kept: whether the rows at the positions are the ones that count, rather than those that do not.
    """

    def __init__(self, bitmap: BitMap64, file_id: str, *, kept: bool = False) -> None:
        self._bitmap = bitmap
        self._file_id = file_id
        self._kept = kept

    def __len__(self) -> int:
        return len(self._bitmap)

    @property
    def positions(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The positions, ascending."""
        return _array(self._bitmap)

    @property
    def leaves_nothing(self) -> bool:
        """Whether no row counts, whatever the file holds."""
        return self._kept and not len(self._bitmap)

    def touches(self, start: int, rows: int) -> bool:
        """Whether one of `rows` rows from position `start` on counts."""
        count = self._bitmap.intersection_cardinality(BitMap64(range(start, start + rows)))
        return bool(count > 0 if self._kept else count < rows)

    def less(self, others: RowPositions | None) -> RowPositions:
        """Return these positions, less others, as those of the only rows that count."""
        bitmap = self._bitmap if others is None else self._bitmap - others._bitmap
        return RowPositions(bitmap, self._file_id, kept=True)

    def check(self, rows: int) -> None:
        """Raise `DataError` if a row is meant that a file of `rows` rows does not have."""
        if len(self._bitmap) and self._bitmap.max() >= rows:
            raise DataError(
                f"its deletion vector deletes row {self._bitmap.max()} of a file of {rows} rows",
                file_id=self._file_id,
            )

    def keep_mask(self, start: int, rows: int) -> pa.Array | None:
        """Return which of `rows` rows from position `start` on count; None where all of them do."""
        # Few bytes can hold billions of positions: only those that are needed are listed.
        some = self._bitmap & BitMap64(range(start, start + rows))
        if len(some) == (rows if self._kept else 0):
            return None
        mask = np.full(rows, not self._kept)
        mask[_array(some) - start] = self._kept
        return pa.array(mask)


def _array(bitmap: BitMap64) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(bitmap.to_array(), dtype=np.int64)


def file_range(vector: DeletionVector) -> tuple[int, int]:
    """Return the bytes of the vector's file to fetch: first, and one past the last.

    They are the size (4 bytes), the bitmap and the checksum (4 bytes).
    """
    start = vector.offset or 0
    return start, start + vector.size_in_bytes + 8


def decode_inline(vector: DeletionVector, file_id: str) -> RowPositions:
    """Decode a vector whose bitmap stands in the action as Z85 text.

    Raises:
        DataError: the text is damaged, or does not hold what the descriptor says.
    """
    try:
        data = z85_decode(vector.path_or_inline.reveal())
    except ValueError as error:
        raise DataError(f"its inline deletion vector is damaged: {error}", file_id=file_id) from None
    if len(data) < vector.size_in_bytes:
        raise DataError(
            f"its inline deletion vector has {len(data)} bytes instead of {vector.size_in_bytes}", file_id=file_id
        )
    return _bitmap(data[: vector.size_in_bytes], vector, file_id)


def decode_stored(data: bytes, vector: DeletionVector, file_id: str) -> RowPositions:
    """Decode a vector from the bytes of its file that `file_range` names.

    Raises:
        DataError: size, checksum or bitmap are damaged, or not what the descriptor says.
    """
    size = vector.size_in_bytes
    if len(data) != size + 8:
        raise DataError(f"its deletion vector has {len(data)} bytes instead of {size + 8}", file_id=file_id)
    (stored,) = struct.unpack_from(">I", data, 0)
    if stored != size:
        raise DataError(f"its deletion vector has size {stored}, its descriptor says {size}", file_id=file_id)
    body = data[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", data, 4 + size)
    if zlib.crc32(body) != checksum:
        raise DataError("its deletion vector fails its checksum", file_id=file_id)
    return _bitmap(body, vector, file_id)


def z85_decode(text: str) -> bytes:
    """Decode Z85 text: five characters to four bytes.

    The last group may hold fewer bytes: it then begins with one `#` for each byte that is missing, as the Rust
    crate `z85` pads. No other group begins with `#`, since its number would not fit 32 bits.

    Raises:
        ValueError: the length is no multiple of five, a character is none of Z85's, or a group's number is too
            large for its bytes.
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are no multiple of 5")
    out = bytearray()
    for start in range(0, len(text), 5):
        group = text[start : start + 5]
        missing = 5 - len(group.lstrip(_PADDING)) if start + 5 == len(text) else 0
        number = 0
        for character in group[missing:]:
            value = _Z85_VALUES.get(character)
            if value is None:
                raise ValueError(f"{character!r} is no character of Z85")
            number = number * 85 + value
        size = 4 - missing
        if size < 1 or number >> 8 * size:
            raise ValueError("a group of five characters is out of range")
        out += number.to_bytes(size, "big")
    return bytes(out)


def _bitmap(body: bytes, vector: DeletionVector, file_id: str) -> RowPositions:
    if len(body) < 12 or int.from_bytes(body[:4], "little") != _MAGIC:
        raise DataError("its deletion vector is of an unknown form", file_id=file_id)
    try:
        bitmap = BitMap64.deserialize(body[4:])
    except (ValueError, IndexError) as error:
        raise DataError(f"its deletion vector is damaged: {error}", file_id=file_id) from None
    if len(bitmap) != vector.cardinality:
        raise DataError(
            f"its deletion vector deletes {len(bitmap)} rows, its descriptor says {vector.cardinality}",
            file_id=file_id,
        )
    return RowPositions(bitmap, file_id)
