"""Download of one file with resumption: a retry requests the missing bytes, bound to the first ETag by `If-Match`.

Received bytes are kept across resets, stalls and expired URLs. A file that changed, or has the wrong size, is
read again from its start.
"""

from __future__ import annotations

import itertools
import mmap
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    IncompleteResponseError,
    StorageError,
    UrlExpiredError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.renewing import Renewing
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import (
    PRIVATE,
    SINGLE_FILE,
    Buffer,
    BufferPool,
    ByteSource,
    Cancelled,
    FileChanged,
    StorageReader,
    Transfers,
)
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.retry import JITTER, Attempt, Retrier

T = TypeVar("T")

#: The renewals of a URL that the store refuses at once.
_MAX_RENEWALS: Final = 2
_MAX_RESTARTS: Final = 2
_CHUNK: Final = 256 * 1024
_MAX_RECEIVE: Final = 1024 * 1024
#: Number of new bytes that counts as progress, at most.
_PROGRESS: Final = 64 * 1024
#: Buffers up to this size are from the interpreter's heap or the buffer pool.
_SMALL: Final = 512 * 1024
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


class _WrongSize(Exception):  # noqa: N818
    """The file's size differs from the table's metadata."""


class _NoRanges(Exception):  # noqa: N818
    """The store ignores ranges: it sends the whole file."""


class _WholeFile(Struct, frozen=True):
    """The bytes of a file, which do not expire."""

    data: Buffer
    expires: None = None
    renew_at: None = None


class FileTransport(Protocol):
    """Transport for files: `StorageTransport` over HTTP, `DirectoryTransport` over a file system of pyarrow."""

    def get(
        self,
        url: SecretUrl,
        *,
        headers: Mapping[str, str] | None = None,
        file_id: str = "",
        cancelled: threading.Event | None = None,
    ) -> Response:
        """Send one GET, without retries, and return the response with any status."""

    def break_on(self, cancelled: Cancellation) -> None:
        """Break the transfers made for an event when it is set."""

    def abort(self) -> None:
        """Abort the active transfers."""

    def close(self) -> None:
        """Close the connections or files kept open."""


class DownloadReader(StorageReader):
    """Fetches files by a transport, with retries: behind pre-signed URLs, or in directories of object stores.

    Args:
        transport: sends the requests.
        options: attempts and back-off.
        sleep: waits for some seconds; without it a cancelled wait ends at once.
        rng: returns a number from 0 to 1, for the back-off.
    """

    def __init__(
        self,
        transport: FileTransport,
        options: TransportOptions,
        *,
        sleep: Callable[[float], None] | None = None,
        rng: Callable[[], float] = JITTER,
    ) -> None:
        super().__init__(options)
        self.transport = transport
        self.retrier = Retrier(options, random=rng, downloads=True)
        self.sleep = sleep

    def source(
        self,
        url: SecretUrl,
        file_id: str,
        size: int = 0,
        transfers: Transfers = SINGLE_FILE,
        *,
        etag: str | None = None,
    ) -> ByteSource:
        """Return a download; see `StorageReader.source`."""
        return Download(self, url, file_id, size, transfers, etag)

    def abort(self) -> None:
        """Abort the active transfers of all loads."""
        self.transport.abort()

    def close(self) -> None:
        """Close the pooled connections."""
        self.transport.close()


class Download:
    """Download of one file, a `ByteSource`; the arguments are those of `StorageReader.source`."""

    def __init__(
        self,
        reader: DownloadReader,
        url: SecretUrl,
        file_id: str,
        size: int,
        transfers: Transfers,
        etag: str | None,
    ) -> None:
        self._reader = reader
        self._url = url
        self._id = file_id
        self._size = size
        self._transfers = transfers
        self._lock = threading.Lock()
        self._etag = etag
        #: The file for ranges from a store that ignores ranges; None until that is known.
        self._whole: Renewing[_WholeFile] | None = None
        if isinstance(transfers.cancelled, Cancellation):
            reader.transport.break_on(transfers.cancelled)

    @property
    def etag(self) -> str | None:
        """The strong ETag that all ranges are bound to, once it is known."""
        return self._etag

    def restarting(self, read: Callable[[], T]) -> T:
        """Read again from the start if the file changed, and once if its size is wrong."""
        changes = sizes = 0
        while True:
            try:
                result = read()
            except FileChanged:
                changes += 1
                if changes > _MAX_RESTARTS:
                    raise StorageError("the file changes while it is being read", file_id=self._id) from None
            except _WrongSize as error:
                sizes += 1
                if sizes > 1:
                    raise DataError(str(error), file_id=self._id) from None
            else:
                if self._transfers.budget is not None:
                    self._transfers.budget.give_back()
                return result
            self._etag = None
            self._pause(self._reader.retrier.backoff(1))

    def whole(self, buffers: BufferPool | None = None) -> Buffer:
        """Read the whole file."""
        part = _ReceivedRange(self._id, 0, self._size or None, buffers=buffers)
        self._fill(part, ranged=False)
        return part.result()

    def range(self, start: int, stop: int, view: memoryview | None = None) -> Buffer:
        """Read a range; from a store that ignores ranges the whole file is fetched once."""
        if self._whole is None:
            part = _ReceivedRange(self._id, start, stop, view)
            try:
                self._fill(part, ranged=True)
            except _NoRanges:
                with self._lock:
                    self._whole = self._whole or Renewing(lambda needed: _WholeFile(self.whole()), "a file")
            except _WrongSize as error:
                if view is None:
                    raise
                raise DataError(str(error), file_id=self._id) from None
            else:
                return part.result() if view is None else view
        data = memoryview(self._whole.get().data).cast("B")[start:stop]
        if view is None:
            return data
        view[:] = data
        return view

    def _fill(self, part: _ReceivedRange, *, ranged: bool) -> None:
        """Request the missing bytes of a range until it is complete."""

        def request(attempt: Attempt) -> None:
            try:
                self._request_range(part, ranged=ranged)
            except DeltaSharingError:
                self._check_cancelled()
                raise
            finally:
                attempt.has_progress = part.has_progress()

        self._reader.retrier.call(
            request, sleep=self._pause, budget=self._transfers.budget, give_up=self._given_up
        )

    def _given_up(self, error: DeltaSharingError, message: str) -> StorageError:
        status = error.status if isinstance(error, StorageError) else None
        return StorageError(message.removeprefix(f"file {self._id}: "), file_id=self._id, status=status)

    def _request_range(self, part: _ReceivedRange, *, ranged: bool) -> None:
        """Request the missing bytes of a range once, and again with each URL that replaces an expired one."""
        renewal = self._transfers.renewal
        for renewals in itertools.count():
            self._check_cancelled()
            url = self._url if renewal is None else renewal.current_url(self._id, self._url)
            try:
                self._send(url, part, ranged=ranged)
                return
            except UrlExpiredError:
                if renewal is None or renewals == _MAX_RENEWALS:
                    raise
                renewal.renew(self._id, url)

    def _send(self, url: SecretUrl, part: _ReceivedRange, *, ranged: bool) -> None:
        """Request the missing bytes of a range, and receive them."""
        headers: dict[str, str] = {}
        if ranged or part.position > part.start:
            headers["Range"] = f"bytes={part.position}-{'' if part.stop is None else part.stop - 1}"
        etag = self._etag
        if etag is not None:
            headers["If-Match"] = etag
        with self._reader.transport.get(
            url, headers=headers, file_id=self._id, cancelled=self._transfers.cancelled
        ) as response:
            if response.status == 200:
                self._bind(response)
                if ranged:
                    raise _NoRanges
                length = response.length
                self._check_size(length)
                part.back_to_start()
                if length is not None:
                    part.end_at(length)
            elif response.status == 206 and "Range" in headers:
                self._bind(response)
                self._check_range(response, part)
            elif response.status == 412 and etag is not None:
                raise FileChanged
            elif response.status == 416 and "Range" in headers:
                expected = self._size or "more"
                raise _WrongSize(f"it ends before byte {part.position}; the table's metadata has {expected}")
            else:
                from delta_sharing_client.storage.store_errors import store_error

                raise store_error(response, self._id)
            self._receive(response, part)

    def _receive(self, response: Response, part: _ReceivedRange) -> None:
        """Receive the body up to the end of the range; raises _WrongSize if it is longer."""
        while part.stop is None or part.position < part.stop:
            self._check_cancelled()
            if part.receive(response):
                continue
            if part.stop is None:
                return
            raise IncompleteResponseError(f"the response was cut: {part.stop - part.position} bytes are missing")
        if response.length == 0:
            return
        try:
            surplus = response.read_some(1)  # at the end this also releases the connection
        except DeltaSharingError:
            return
        if surplus:
            raise _WrongSize(f"it has more than {part.stop} bytes, its size in the table's metadata")

    def _bind(self, response: Response) -> None:
        """Compare a strong ETag with that of the first response."""
        etag = (response.headers.get("ETag") or "").strip()
        if not etag.startswith('"'):
            return
        with self._lock:
            if self._etag is None:
                self._etag = etag
            elif self._etag != etag:
                raise FileChanged

    def _check_size(self, length: int | None) -> None:
        if self._size and length is not None and length != self._size:
            raise _WrongSize(f"it has {length} bytes; the table's metadata has {self._size}")

    def _check_range(self, response: Response, part: _ReceivedRange) -> None:
        """Compare the `Content-Range` of a 206 with the requested range."""
        match = _CONTENT_RANGE.fullmatch((response.headers.get("Content-Range") or "").strip())
        if match is None or int(match[1]) != part.position or int(match[2]) < part.position:
            raise IncompleteResponseError("the store sent another range than the requested one")
        end = int(match[2]) + 1
        total = None if match[3] == "*" else int(match[3])
        self._check_size(total)
        if end > (part.stop or total or end):
            raise IncompleteResponseError("the store sent more than the requested range")
        if response.length is not None and response.length != end - part.position:
            raise IncompleteResponseError("the store sent a range whose Content-Length and Content-Range differ")
        if part.stop is None:
            part.end_at(end if total is None else total)

    def _check_cancelled(self) -> None:
        if self._transfers.cancelled is not None and self._transfers.cancelled.is_set():
            raise Cancelled

    def _pause(self, seconds: float) -> None:
        if self._reader.sleep is not None:
            self._reader.sleep(seconds)
        elif self._transfers.cancelled is not None:
            self._transfers.cancelled.wait(seconds)
        else:
            time.sleep(seconds)


class _ReceivedRange:
    """The bytes of a file from `start` to `stop` (None: the end, not known yet), received up to `position`.

    The memory is `view`, or else a new buffer; a small one is from `buffers`.
    """

    def __init__(
        self,
        file_id: str,
        start: int,
        stop: int | None,
        view: memoryview | None = None,
        buffers: BufferPool | None = None,
    ) -> None:
        self._id = file_id
        self.start = start
        self.stop = stop
        self.position = start
        self._buffer: Buffer = None
        self._view = view
        self._buffers = buffers
        self._grown: bytearray | None = bytearray() if stop is None else None
        self._furthest = start
        self._progress = _PROGRESS if stop is None else min(_PROGRESS, max(1, (stop - start) // 16))

    def receive(self, response: Response) -> int:
        """Receive at most 1 MB of a response; return the number of bytes, 0 at its end."""
        if self._grown is None:
            count = response.read_into(self._missing())
        else:
            data = response.read_some(_CHUNK if self.stop is None else min(_CHUNK, self.stop - self.position))
            self._grown += data
            count = len(data)
        self.position += count
        return count

    def _missing(self) -> memoryview:
        if self._view is None:
            self._view = self._allocate((self.stop or 0) - self.start)
        offset = self.position - self.start
        return self._view[offset : offset + _MAX_RECEIVE]

    def has_progress(self) -> bool:
        """Return whether the position is further than at any time before, by enough to count as progress."""
        if self.position - self._furthest < self._progress:
            return False
        self._furthest = self.position
        return True

    def end_at(self, stop: int) -> None:
        """Set the end of the range; raises FileChanged if another end is known."""
        if self.stop is None:
            self.stop = stop
            if not self._grown:
                self._grown = None
        elif self.stop != stop:
            raise FileChanged

    def back_to_start(self) -> None:
        """Go back to the start; the buffer is kept."""
        self.position = self.start
        if self._grown is not None:
            self._grown.clear()

    def result(self) -> Buffer:
        """Return the bytes of the complete range."""
        if self._grown is not None:
            return self._grown
        return b"" if self._buffer is None else self._buffer

    def _allocate(self, size: int) -> memoryview:
        # Not Arrow's memory pool: it would keep a heap for each of dozens of threads.
        try:
            # For small buffers the allocation of pages takes longer than the receive.
            if size > _SMALL:
                self._buffer = mmap.mmap(-1, size, **PRIVATE)
            else:
                self._buffer = bytearray(size) if self._buffers is None else self._buffers.take(size)
        except (OSError, OverflowError, MemoryError):
            raise StorageError(f"not enough memory for its {size:,} bytes", file_id=self._id) from None
        return memoryview(self._buffer)
