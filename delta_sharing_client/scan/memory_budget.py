"""Memory budget of a load: which read units may be fetched and decoded.

Before a unit is fetched, its estimated size is charged; afterwards the memory that it holds: its bytes until all
of it is decoded, its rows until they are taken. Decoding pauses between two steps while the budget is exhausted,
except for the unit whose rows are wanted next, because nothing else can make room.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from msgspec import Struct, field

from delta_sharing_client.parquet.decode import Decoded, ParquetSource
from delta_sharing_client.parquet.fetch import SparseFile
from delta_sharing_client.parquet.read_units import ReadUnit
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.priority_pool import Order
from delta_sharing_client.storage.byte_source import ByteSource
from delta_sharing_client.tracebacks import without_frames

#: Seconds; on Windows a wait without a time-out cannot be interrupted, not even by Ctrl-C.
_WAIT_SECONDS: Final = 0.5 if os.name == "nt" else None


class UnitReadState(Struct, eq=False):
    """The state of one read unit that is being fetched or decoded.

    Attributes:
        order: the position in the load.
        cost: the estimated size in bytes.
        encoded: the size to fetch in bytes.
        unit: the unit; None for a whole file.
        left: the number of ranges to fetch.
        steps: yields the rows, when the bytes are complete.
        rows: the number of decoded rows.
        waiting: decoded batches and their sizes in bytes, to be taken.
        held: the size in bytes of decoded rows that are not released.
        charged: the part of the budget in bytes that the unit uses.
        done: whether the unit is decoded, or failed.
        error: the failure.
    """

    order: Order
    cost: int
    encoded: int
    unit: ReadUnit | None = None
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
        """Whether rows can be taken, or the unit is done."""
        return bool(self.waiting) or self.done


class FileReadState(Struct, eq=False):
    """The state of one file that is being read; its units are known when its footer is fetched."""

    place: int
    task: FileScanTask
    download: ByteSource
    units: list[UnitReadState] | None = None
    started: int = 0
    sparse: SparseFile | None = None
    source: ParquetSource | None = None
    error: BaseException | None = None
    yielded: bool = False

    @property
    def ready(self) -> bool:
        """Whether the units are known, or the file failed."""
        return self.units is not None or self.error is not None


class MemoryBudget:
    """Memory accounting of a load, and the condition that its consumer waits for; safe for several threads.

    Attributes:
        lock: protects the units too.
        starved: whether a unit waits for memory before it is fetched.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self.lock = threading.Lock()
        self._wake = threading.Condition(self.lock)
        self._awaited: FileReadState | UnitReadState | None = None
        self._front: UnitReadState | None = None
        self._news = False
        self.starved = False
        self._paused: list[UnitReadState] = []
        self._closed = False

    def close(self) -> None:
        """Forget the units; none is decoded any further."""
        with self.lock:
            self._closed = True
            self._paused.clear()
            self._front = self._awaited = None

    def admits(self, cost: int, kept_free: int) -> bool:
        """Return whether there is memory to fetch a unit; if not, the consumer is woken when there may be."""
        with self.lock:
            self.starved = self._used + cost > self._size - min(kept_free, self._size // 2)
            return not self.starved

    def charge(self, unit: UnitReadState) -> None:
        """Charge the estimated size of a unit."""
        with self.lock:
            self._settle(unit)

    def may_decode(self, unit: UnitReadState) -> bool:
        """Return whether to decode the next rows of a unit now; if not, the unit is paused."""
        with self.lock:
            if unit.done or self._closed:
                return False
            if self._used <= self._size or (unit is self._front and not unit.waiting):
                return True
            self._paused.append(unit)
            return False

    def put(self, unit: UnitReadState, batches: list[pa.RecordBatch], *, last: bool) -> None:
        """Add decoded rows of a unit; after the last rows its bytes are released."""
        size = _size_of(batches)
        with self.lock:
            if unit.done:
                return
            if batches:
                unit.waiting.append((batches, size))
                unit.held += size
            if last:
                self._end(unit)
            else:
                self._settle(unit)
            self._notify(unit)

    def fail(self, unit: UnitReadState, error: BaseException) -> None:
        """Record that the rest of a unit cannot be read."""
        with self.lock:
            if not unit.done:
                unit.error = without_frames(error)
                self._end(unit)
                self._notify(unit)

    def drop(self, unit: UnitReadState) -> None:
        """Abandon a unit; rows that are decoded later are dropped."""
        with self.lock:
            unit.waiting.clear()
            unit.held = 0
            self._end(unit)

    def _end(self, unit: UnitReadState) -> None:
        unit.done = True
        unit.steps = None
        if unit in self._paused:
            self._paused.remove(unit)
        self._settle(unit)

    def _settle(self, unit: UnitReadState) -> None:
        due = unit.held if unit.done else max(unit.cost, unit.encoded + unit.held)
        self._used += due - unit.charged
        unit.charged = due

    def _notify(self, unit: UnitReadState) -> None:
        # A consumer that is woken without need competes with the working threads.
        self._news = self._news or (unit.done and self.starved)
        if self._news or self._awaited is unit:
            self._wake.notify_all()

    def notify_opened(self) -> None:
        """Wake the consumer: the units of a file are known."""
        with self.lock:
            self._news = True
            self._wake.notify_all()

    def sleep(self, item: FileReadState | UnitReadState) -> None:
        """Wait until a file or unit is ready, or something else has changed."""
        with self.lock:
            self._awaited = item
            while not item.ready and not self._news:
                self._wake.wait(_WAIT_SECONDS)
            self._news = False
            self._awaited = None

    def take(self, unit: UnitReadState) -> tuple[list[pa.RecordBatch], int] | None:
        """Return the next rows of a unit that is ready; None at its end."""
        with self.lock:
            return unit.waiting.popleft() if unit.waiting else None

    def release(self, unit: UnitReadState, size: int) -> None:
        """Release the memory of rows that were taken."""
        with self.lock:
            unit.held -= size
            self._settle(unit)

    def resumable(self, front: UnitReadState | None, most: int) -> list[UnitReadState]:
        """Return the paused units to continue with: `front`, and up to `most` if there is memory."""
        with self.lock:
            self._front = front
            if not self._paused:
                return []
            self._paused.sort(key=lambda unit: unit.order)
            room = most if self._used <= self._size else 0
            found = [p for n, p in enumerate(self._paused) if n < room or (p is front and not p.waiting)]
            self._paused = [unit for unit in self._paused if unit not in found]
            return found


def _size_of(batches: list[pa.RecordBatch]) -> int:
    """Return the size of batches in bytes; shared memory counts once."""
    if not batches:
        return 0
    held = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
    return int(held.get_total_buffer_size())
