"""Large file that several threads fetch in chunks; a note beside it records its completed length."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

from delta_sharing_client.log.durable_files import remove_quietly, replace_file, sync_file
from delta_sharing_client.storage.byte_source import ByteSource
from delta_sharing_client.transport.retry import RetryBudget

CHUNK_SIZE: Final = 8 * 1024 * 1024
_THREADS: Final = 8
_NOTE_INTERVAL: Final = 64 * 1024 * 1024


def note_of(path: Path) -> Path:
    """Return the path of the note of an incomplete file."""
    return path.with_name(path.name + ".json")


def read_note(path: Path, size: int) -> tuple[str | None, int]:
    """Return the ETag and the completed length from the note of an earlier run; (None, 0) if it is not usable."""
    try:
        note: Any = json.loads(note_of(path).read_bytes())
        etag, done = note["etag"], note["done"]
        usable = note["size"] == size and isinstance(etag, str) and 0 < done < size and path.stat().st_size >= done
    except (OSError, ValueError, LookupError, TypeError):
        return None, 0
    return (etag, done) if usable else (None, 0)


class PartialFile:
    """An incomplete local file.

    Args:
        path: its path.
        source: the file to fetch.
        size: its complete size in bytes.
        report: called with the number of bytes fetched since the last call; negative after a restart.
    """

    def __init__(self, path: Path, source: ByteSource, size: int, report: Callable[[int], None]) -> None:
        self._path = path
        self._source = source
        self._size = size
        self._report = report
        self._reported = 0
        self._lock = Lock()
        self._next = self._done = 0
        self._finished: set[int] = set()

    def fetch(self, start: int, pool: Executor, budget: RetryBudget) -> int:
        """Fetch all bytes from `start` on, in this thread and in idle threads of its pool; return their number.

        A thread of the pool can wait for others here, because it starts no chunk that it does not finish itself.
        """
        if not start:
            remove_quietly(note_of(self._path))  # of chunks that are fetched again, in any order
        with self._path.open("r+b" if start else "wb") as file:
            file.truncate(start)
        self._next = self._done = start
        self._finished.clear()
        self._report_progress()
        helpers: list[Future[None]] = []
        with suppress(RuntimeError):  # no further thread can be started
            helpers += (pool.submit(self._fetch_rest, budget) for _ in range(_THREADS - 1))
        noted = start
        try:
            while self._fetch_next(budget):
                self._report_progress()
                if self._done - noted >= _NOTE_INTERVAL:
                    noted = self._done
                    self._write_note()
        finally:
            helpers = [helper for helper in helpers if not helper.cancel()]
            wait(helpers)
            if self._done < self._size:
                with suppress(OSError):  # the error of the chunk is raised
                    self._write_note()
        for helper in helpers:
            helper.result()
        sync_file(self._path)
        self._report_progress()
        return self._size - start

    def _fetch_rest(self, budget: RetryBudget) -> None:
        while self._fetch_next(budget):
            pass

    def _fetch_next(self, budget: RetryBudget) -> bool:
        """Fetch the next chunk; return False if none is left, or if another thread failed."""
        with self._lock:
            start = self._next
            self._next = stop = min(start + CHUNK_SIZE, self._size)
        if start == stop:
            return False
        try:
            data = self._source.range(start, stop)
            with self._path.open("r+b") as file:
                file.seek(start)
                file.write(data)
        except BaseException:
            with self._lock:
                self._next = self._size
            raise
        budget.give_back()
        with self._lock:
            self._finished.add(start)
            while self._done in self._finished:
                self._finished.remove(self._done)
                self._done = min(self._done + CHUNK_SIZE, self._size)
        return True

    def _report_progress(self) -> None:
        done = self._done
        self._report(done - self._reported)
        self._reported = done

    def _write_note(self) -> None:
        done, etag = self._done, self._source.etag
        if etag is not None:  # without one a later run could not resume the file
            sync_file(self._path)
            replace_file(
                note_of(self._path), json.dumps({"etag": etag, "size": self._size, "done": done}).encode()
            )
