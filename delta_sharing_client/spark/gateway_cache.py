"""Cache of byte ranges that a gateway fetches from stores, within a memory budget."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeAlias

from delta_sharing_client.parquet.read_units import ByteRange
from delta_sharing_client.scan.priority_pool import DaemonPool

#: Bytes of one request, and of one piece of a column chunk.
PIECE: Final = 4 * 1024 * 1024

State: TypeAlias = tuple[object, object]
_Key: TypeAlias = tuple[State, int]


class Fetches(Protocol):
    """A file of which ranges are cached."""

    @property
    def state(self) -> State:
        """The owner of the file, and an object that stands for its present content."""

    def fetch(self, start: int, stop: int) -> memoryview:
        """Return the bytes from `start` up to `stop`."""


class _Piece:
    __slots__ = ("data", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.data: Future[memoryview] = Future()


class RangeCache:
    """Ranges of files, fetched by a thread pool; the least recently used ones are dropped first.

    Args:
        budget: maximum number of bytes, of ranges kept and requested ahead. A range that a reader waits for is
            fetched in any case.
        threads: maximum number of requests at a time.
    """

    def __init__(self, budget: int, threads: int) -> None:
        self.budget = budget
        self._pool = DaemonPool(threads, "delta-sharing-gateway")
        self._lock = threading.Lock()
        self._pieces: OrderedDict[_Key, _Piece] = OrderedDict()
        self._size = 0
        self._tickets = itertools.count()

    @property
    def size(self) -> int:
        """Bytes kept or under way."""
        return self._size

    def get(self, file: Fetches, piece: ByteRange) -> memoryview:
        """Return a range; waits until it is fetched.

        Raises:
            DeltaSharingError: it cannot be fetched.
        """
        start, stop = piece
        kept = self._pieces.get((file.state, start))
        if kept is None:
            self.request(file, [piece], ahead=False)
            kept = self._pieces.get((file.state, start))
        return file.fetch(start, stop) if kept is None else kept.data.result()

    def request(self, file: Fetches, pieces: Sequence[ByteRange], *, ahead: bool) -> None:
        """Fetch the ranges that are neither kept nor under way, neighbours in one request.

        Args:
            file: the file.
            pieces: its ranges, in order.
            ahead: whether no reader waits for them; then none is fetched that exceeds the budget.
        """
        runs: list[list[tuple[ByteRange, _Piece]]] = []
        with self._lock:
            for start, stop in pieces:
                key = file.state, start
                if key in self._pieces:
                    self._pieces.move_to_end(key)
                    continue
                if not self._make_room(stop - start) and ahead:
                    break
                piece = self._pieces[key] = _Piece(stop - start)
                self._size += piece.size
                if runs and runs[-1][-1][0][1] == start and stop - runs[-1][0][0][0] <= PIECE:
                    runs[-1].append(((start, stop), piece))
                else:
                    runs.append([((start, stop), piece)])
        for run in runs:
            try:
                self._pool.submit((int(ahead), next(self._tickets)), self._fetch, file, file.state, run)
            except BaseException as error:
                self._fail(file.state, run, error)
                raise

    def forget(self, owner: object) -> None:
        """Drop the ranges of an owner's files."""
        with self._lock:
            for key in [key for key in self._pieces if key[0][0] is owner]:
                self._size -= self._pieces.pop(key).size

    def close(self) -> None:
        """Drop everything; running requests are not waited for."""
        self._pool.close()
        with self._lock:
            pieces = list(self._pieces.values())
            self._pieces.clear()
            self._size = 0
        for piece in pieces:
            piece.data.cancel()  # wakes a reader of one that was never begun

    def _make_room(self, size: int) -> bool:
        """Drop the least recently used ranges that are complete; return whether `size` bytes fit."""
        if self._size + size > self.budget:
            for key, piece in list(self._pieces.items()):
                if piece.data.done():
                    del self._pieces[key]
                    self._size -= piece.size
                    if self._size + size <= self.budget:
                        break
        return self._size + size <= self.budget

    def _fetch(self, file: Fetches, state: State, run: list[tuple[ByteRange, _Piece]]) -> None:
        first, last = run[0][0][0], run[-1][0][1]
        try:
            data = file.fetch(first, last)
        except BaseException as error:  # noqa: BLE001  # raised again in the threads that wait
            self._fail(state, run, error)
            return
        for (start, stop), piece in run:
            if piece.data.set_running_or_notify_cancel():
                piece.data.set_result(data[start - first : stop - first])

    def _fail(self, state: State, run: list[tuple[ByteRange, _Piece]], error: BaseException) -> None:
        with self._lock:
            for (start, _), piece in run:
                if self._pieces.get((state, start)) is piece:
                    del self._pieces[state, start]
                    self._size -= piece.size
        for _, piece in run:
            if piece.data.set_running_or_notify_cancel():
                piece.data.set_exception(error)
