"""Deletion vectors: the positions of a file's deleted rows.

Serves "Deletion Vectors" of the Delta protocol. A vector is a 64-bit roaring bitmap of row positions, inline in
the action (Z85 text), or in a file between its size and its CRC-32.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from delta_sharing_client.errors import DataError, ProtocolError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.z85 import z85_decode
from delta_sharing_client.parquet.arrow_types import mask_of
from delta_sharing_client.parquet.size_limits import check_size

_MAGIC: Final = 1681511377
#: Maximum number of 32-bit bitmaps in a vector: each stands for four billion rows, and takes 150 bytes of memory.
_MAX_BITMAPS: Final = 64 * 1024


class RowPositions:
    """Positions of the deleted rows of a file, or of the selected ones.

    Args:
        bitmap: the positions.
        file_id: the data file, for messages.
        selected: whether the rows are selected; else they are deleted.
    """

    def __init__(self, bitmap: BitMap64, file_id: str, *, selected: bool = False) -> None:
        self._bitmap = bitmap
        self._file_id = file_id
        self._selected = selected

    def __len__(self) -> int:
        return len(self._bitmap)

    @property
    def positions(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The positions, ascending."""
        return _array(self._bitmap)

    @property
    def selects_nothing(self) -> bool:
        """Whether no row remains, for any number of rows."""
        return self._selected and not len(self._bitmap)

    def touches(self, start: int, rows: int) -> bool:
        """Whether any of `rows` rows from position `start` on remains."""
        count = self._bitmap.intersection_cardinality(BitMap64(range(start, start + rows)))
        return bool(count > 0 if self._selected else count < rows)

    def without(self, others: RowPositions | None) -> RowPositions:
        """Return these positions without others, as selected rows."""
        bitmap = self._bitmap if others is None else self._bitmap - others._bitmap
        return RowPositions(bitmap, self._file_id, selected=True)

    def check(self, rows: int) -> None:
        """Raise `DataError` if a position is not below `rows`."""
        if len(self._bitmap) and self._bitmap.max() >= rows:
            raise DataError(
                f"its deletion vector deletes row {self._bitmap.max()} of a file of {rows} rows",
                file_id=self._file_id,
            )

    def keep_mask(self, start: int, rows: int) -> pa.Array | None:
        """Return a mask of the remaining rows among `rows` rows from position `start` on; None if all remain."""
        # A few bytes can stand for billions of positions: only the needed ones are expanded.
        some = self._bitmap & BitMap64(range(start, start + rows))
        if len(some) == (rows if self._selected else 0):
            return None
        mask = np.full(rows, not self._selected)
        mask[_array(some) - start] = self._selected
        return mask_of(mask)


def _array(bitmap: BitMap64) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(bitmap.to_array(), dtype=np.int64)


def file_range(vector: DeletionVector, file_id: str, limit: int) -> tuple[int, int]:
    """Return the byte range of the vector in its file: size (4 bytes), bitmap, checksum (4 bytes).

    Args:
        vector: the descriptor.
        file_id: the data file, for messages.
        limit: the maximum bytes of the bitmap.

    Raises:
        ProtocolError: the descriptor has an impossible size or offset.
        DataError: the bitmap is longer than the limit.
    """
    start = vector.offset or 0
    if vector.size_in_bytes < 0 or start < 0:
        raise ProtocolError(f"file {file_id}: its deletion vector has an impossible size or offset")
    check_size("deletion vector", vector.size_in_bytes, limit, file_id)
    return start, start + vector.size_in_bytes + 8


def decode_inline(vector: DeletionVector, file_id: str) -> RowPositions:
    """Decode a vector from the Z85 text in its action; raises `DataError` if the text is damaged."""
    try:
        data = z85_decode(vector.path_or_inline.reveal())
    except ValueError as error:
        raise DataError(f"its inline deletion vector is damaged: {error}", file_id=file_id) from None
    if not 0 <= vector.size_in_bytes <= len(data):
        raise DataError(
            f"its inline deletion vector has {len(data)} bytes instead of {vector.size_in_bytes}", file_id=file_id
        )
    return _bitmap(data[: vector.size_in_bytes], vector, file_id)


def decode_stored(data: bytes | memoryview, vector: DeletionVector, file_id: str) -> RowPositions:
    """Decode a vector from the bytes of its `file_range`.

    Raises:
        DataError: size, checksum or bitmap are damaged, or contradict the descriptor.
    """
    size = vector.size_in_bytes
    if len(data) != size + 8:
        raise DataError(f"its deletion vector has {len(data)} bytes instead of {size + 8}", file_id=file_id)
    (stored,) = struct.unpack_from(">I", data, 0)
    if stored != size:
        raise DataError(f"its deletion vector has size {stored}, its descriptor has {size}", file_id=file_id)
    body = memoryview(data)[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", data, 4 + size)
    if zlib.crc32(body) != checksum:
        raise DataError("its deletion vector fails its checksum", file_id=file_id)
    return _bitmap(body, vector, file_id)


def _bitmap(body: bytes | memoryview, vector: DeletionVector, file_id: str) -> RowPositions:
    if len(body) < 12 or int.from_bytes(body[:4], "little") != _MAGIC:
        raise DataError("its deletion vector is of an unknown form", file_id=file_id)
    bitmaps = int.from_bytes(body[4:12], "little")
    if bitmaps > _MAX_BITMAPS:
        raise DataError(
            f"its deletion vector has {bitmaps:,} bitmaps of four billion rows each; at most {_MAX_BITMAPS:,} are "
            "read",
            file_id=file_id,
        )
    try:
        bitmap = BitMap64.deserialize(bytes(body[4:]))
    except (ValueError, IndexError) as error:
        raise DataError(f"its deletion vector is damaged: {error}", file_id=file_id) from None
    if len(bitmap) != vector.cardinality:
        raise DataError(
            f"its deletion vector deletes {len(bitmap)} rows, its descriptor has {vector.cardinality}",
            file_id=file_id,
        )
    return RowPositions(bitmap, file_id)
