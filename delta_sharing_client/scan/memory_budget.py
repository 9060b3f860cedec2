"""The memory budget of a load: which pieces may be fetched and decoded, and what those hold that are.

A piece is charged with what it is thought to take before it is fetched, and with what it holds from then on: its
bytes until all of it is decoded, its rows until they are taken. Decoding pauses between two steps where the budget
is used up, except for the piece whose rows are waited for: nothing else would make room.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from delta_sharing_client.parquet.decode import Decoded, ParquetSource
from delta_sharing_client.parquet.fetch import SparseFile
from delta_sharing_client.parquet.layout import ReadUnit
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.priority_pool import Order
from delta_sharing_client.storage.download import Download

#: Seconds; on Windows nobody gets through to a thread that waits without end, not even with Ctrl-C.
_PATIENCE: Final = 0.5 if os.name == "nt" else None


@dataclass(eq=False)
class PieceRead:
    """One piece on its way.

    Attributes:
        order: its place.
        cost: bytes that it is thought to take.
        encoded: bytes of it that are fetched.
        piece: what it is of its file; None for the whole file.
        left: ranges that are still to be fetched.
        steps: gives its rows, once its bytes are there.
        rows: how many rows were decoded.
        waiting: rows that wait to be taken, decoded together, each with its bytes.
        held: bytes of rows that were decoded and are not done with.
        charged: bytes of the budget that it takes.
        done: whether all of it is decoded, or cannot be had.
        error: why it cannot be had.
    """

    order: Order
    cost: int
    encoded: int
    piece: ReadUnit | None = None
    left: int = 0
    steps: Iterator[Decoded] | None = None
    rows: int = 0
    waiting: deque[tuple[list[pa.RecordBatch], int]] = field(default_factory=deque)
    held: int = 0
    charged: int = 0
    done: bool = False
    error: BaseException | None = None

    @property
    def ready(self) -> bool:
        """Whether rows of it are there, or cannot be had."""
        return bool(self.waiting) or self.done


@dataclass(eq=False)
class FileRead:
    """One file on its way, with its place; its pieces are known once its footer is there."""

    place: int
    task: FileScanTask
    download: Download
    pieces: list[PieceRead] | None = None
    started: int = 0
    sparse: SparseFile | None = None
    source: ParquetSource | None = None
    error: BaseException | None = None
    yielded: bool = False

    @property
    def ready(self) -> bool:
        """Whether its pieces are known, or cannot be had."""
        return self.pieces is not None or self.error is not None


class MemoryBudget:
    """What a load holds, and what its consumer waits for. Several threads may use it.

    Args:
        size: bytes that may be held.

    Attributes:
        lock: guards the pieces too.
        starved: whether a piece waits for room to be fetched.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self.lock = threading.Lock()
        self._wake = threading.Condition(self.lock)
        self._awaited: FileRead | PieceRead | None = None
        self._front: PieceRead | None = None
        self._news = False
        self.starved = False
        self._paused: list[PieceRead] = []

    def admits(self, cost: int, kept_free: int) -> bool:
        """Whether there is room to fetch a piece; else the consumer is woken as soon as there may be."""
        with self.lock:
            self.starved = self._used + cost > self._size - min(kept_free, self._size // 2)
            return not self.starved

    def charge(self, piece: PieceRead) -> None:
        """Take the room that a piece is thought to need."""
        with self.lock:
            self._settle(piece)

    def may_decode(self, piece: PieceRead) -> bool:
        """Whether to decode the next rows of a piece; it is resumed later where that has to wait."""
        with self.lock:
            if piece.done:
                return False
            if self._used <= self._size or (piece is self._front and not piece.waiting):
                return True
            self._paused.append(piece)
            return False

    def put(self, piece: PieceRead, batches: list[pa.RecordBatch], *, last: bool) -> None:
        """Note rows of a piece that were decoded together; after the last ones its bytes are let go."""
        size = _size_of(batches)
        with self.lock:
            if piece.done:
                return
            if batches:
                piece.waiting.append((batches, size))
                piece.held += size
            if last:
                self._end(piece)
            else:
                self._settle(piece)
            self._tell(piece)

    def fail(self, piece: PieceRead, error: BaseException) -> None:
        """Note that the rest of a piece cannot be had."""
        with self.lock:
            if not piece.done:
                piece.error = error
                self._end(piece)
                self._tell(piece)

    def drop(self, piece: PieceRead) -> None:
        """Give a piece up; whatever still comes of it is dropped."""
        with self.lock:
            piece.waiting.clear()
            piece.held = 0
            self._end(piece)

    def _end(self, piece: PieceRead) -> None:
        piece.done = True
        piece.steps = None
        if piece in self._paused:
            self._paused.remove(piece)
        self._settle(piece)

    def _settle(self, piece: PieceRead) -> None:
        due = piece.held if piece.done else max(piece.cost, piece.encoded + piece.held)
        self._used += due - piece.charged
        piece.charged = due

    def _tell(self, piece: PieceRead) -> None:
        # Woken for nothing, the consumer would only be in the way of those who work.
        self._news = self._news or (piece.done and self.starved)
        if self._news or self._awaited is piece:
            self._wake.notify_all()

    def tell_opened(self) -> None:
        """Wake the consumer: a file's pieces are known and can be started."""
        with self.lock:
            self._news = True
            self._wake.notify_all()

    def sleep(self, item: FileRead | PieceRead) -> None:
        """Wait until an item is there, or something else has come."""
        with self.lock:
            self._awaited = item
            while not item.ready and not self._news:
                self._wake.wait(_PATIENCE)
            self._news = False
            self._awaited = None

    def take(self, piece: PieceRead) -> tuple[list[pa.RecordBatch], int] | None:
        """Return the next rows of a piece that is ready; None at its end."""
        with self.lock:
            return piece.waiting.popleft() if piece.waiting else None

    def release(self, piece: PieceRead, size: int) -> None:
        """Note that rows of a piece are done with."""
        with self.lock:
            piece.held -= size
            self._settle(piece)

    def resumable(self, front: PieceRead | None, most: int) -> list[PieceRead]:
        """Return the paused pieces to decode on: the one whose rows are wanted next, others as there is room.

        Args:
            front: the piece whose rows are wanted next.
            most: how many can be decoded at a time.
        """
        with self.lock:
            self._front = front
            if not self._paused:
                return []
            self._paused.sort(key=lambda piece: piece.order)
            room = most if self._used <= self._size else 0
            found = [p for n, p in enumerate(self._paused) if n < room or (p is front and not p.waiting)]
            self._paused = [piece for piece in self._paused if piece not in found]
            return found


def _size_of(batches: list[pa.RecordBatch]) -> int:
    """Bytes that batches hold; memory that several share counts once."""
    if not batches:
        return 0
    held = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
    return int(held.get_total_buffer_size())
