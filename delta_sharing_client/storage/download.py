"""One file's download: what has come is kept across resets, stalls and expired URLs.

Bytes go straight into one buffer of the known size. After a fault the next request asks for the rest, bound
to the same file by its ETag; a file that changed, or whose size is wrong, is begun again.
"""

from __future__ import annotations

import mmap
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    IncompleteResponseError,
    StorageError,
    UrlExpiredError,
)
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.buffer_pool import Slabs
from delta_sharing_client.storage.byte_source import Buffer, Cancelled, FileChanged, Refresh, UrlRenewal
from delta_sharing_client.storage.file_transport import FileResponse, FileTransport
from delta_sharing_client.storage.retry_budget import RetryBudget
from delta_sharing_client.storage.store_errors import store_error
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.retry import Backoff, RetryLater, is_retryable

T = TypeVar("T")

#: Pages that no other process shares, so that they can be given back one by one.
PRIVATE: Final[dict[str, Any]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}  # Windows
)
_CHUNK: Final = 256 * 1024
_MOST: Final = 1024 * 1024
#: Files of so many bytes are kept in the interpreter's memory, which is used again.
_SMALL: Final = 512 * 1024
_MAX_RENEWALS: Final = 2
_MAX_RESTARTS: Final = 2
#: A download that got this much further than ever before has made progress.
_PROGRESS: Final = 64 * 1024
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


class _WrongSize(Exception):  # noqa: N818
    """The file's size is not what the table says."""


class _NoRanges(Exception):  # noqa: N818
    """The store sends the whole file whatever is asked."""


class _Span:
    """A contiguous piece of a file, from `start` to `stop` (None: the end, not known yet), filling up.

    It fills `view` where one is given, a buffer of its own otherwise; a small one may be of `slabs`.
    """

    def __init__(
        self, start: int, stop: int | None, view: memoryview | None = None, slabs: Slabs | None = None
    ) -> None:
        self.start = start
        self.stop = stop
        self.position = start
        self._buffer: Buffer = None
        self._view = view
        self._slabs = slabs
        self._grown: bytearray | None = bytearray() if stop is None else None

    def put(self, data: bytes) -> None:
        """Add bytes at the position reached, of a piece whose end is not known."""
        if self._grown is None:
            self._room(len(data))[:] = data
        else:
            self._grown += data
        self.position += len(data)

    def take(self, response: FileResponse) -> int:
        """Take what comes of an answer, a megabyte at the most; return how many bytes, 0 at its end."""
        if self.stop is None or self._grown is not None:
            data = response.read_some(_CHUNK if self.stop is None else min(_CHUNK, self.stop - self.position))
            self.put(data)
            return len(data)
        count = response.read_into(self._room(min(_MOST, self.stop - self.position)))
        self.position += count
        return count

    def _room(self, size: int) -> memoryview:
        if self._view is None:
            self._view = self._allocate((self.stop or 0) - self.start)
        offset = self.position - self.start
        return self._view[offset : offset + size]

    def end_at(self, stop: int) -> None:
        """Learn where the piece ends."""
        if self.stop is None:
            self.stop = stop
            if not self._grown:
                self._grown = None
        elif self.stop != stop:
            raise FileChanged

    def back_to_start(self) -> None:
        """Begin again; the buffer is filled anew."""
        self.position = self.start
        if self._grown is not None:
            self._grown.clear()

    def result(self) -> Buffer:
        """Return the bytes of the finished piece."""
        if self._grown is not None:
            return self._grown
        return b"" if self._buffer is None else self._buffer

    def _allocate(self, size: int) -> memoryview:
        # Not Arrow's pool: it would keep a heap for each of dozens of fetching threads.
        try:
            # Pages of its own take longer than the bytes' way from the socket, unless there are many of them.
            if size > _SMALL:
                self._buffer = mmap.mmap(-1, size, **PRIVATE)
            else:
                self._buffer = bytearray(size) if self._slabs is None else self._slabs.take(size)
        except (OSError, OverflowError, MemoryError):
            raise StorageError(f"there is no memory for {size:,} bytes of it") from None
        return memoryview(self._buffer)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How downloads are retried.

    Attributes:
        attempts: how often in a row a download may fail without getting further.
        longest_wait: seconds that a store may ask to wait.
        backoff: the waits between attempts.
        sleep: waits for some seconds; without it a cancelled wait ends at once.
    """

    attempts: int
    longest_wait: float
    backoff: Backoff
    sleep: Callable[[float], None] | None = None


class Download:
    """One file being fetched: its present URL, the ETag that its pieces are bound to, its renewals.

    Args:
        transport: sends the requests.
        settings: how it is retried.
        url: the file's pre-signed URL.
        file_id: its id in the sharing protocol.
        size: its size in bytes; 0 where not told.
        refresh: gives a fresh URL when this one has expired.
        cancelled: set when nobody wants the file any more.
        budget: the retries that the load shares.
        etag: the strong ETag of the file of which an earlier download left a part.
    """

    def __init__(
        self,
        transport: FileTransport,
        settings: Settings,
        *,
        url: SecretUrl,
        file_id: str,
        size: int,
        refresh: Refresh | None,
        cancelled: threading.Event | None,
        budget: RetryBudget | None,
        etag: str | None = None,
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._url = url
        self._id = file_id
        self._size = size
        self._refresh = refresh
        self._ahead = refresh.ahead if isinstance(refresh, UrlRenewal) else None
        self._cancelled = cancelled
        self._budget = budget
        self._lock = threading.Lock()
        self._whole_lock = threading.Lock()
        self._etag = etag
        self._renewals = 0
        self._accepted: SecretUrl | None = None
        self._whole: Buffer = None
        if isinstance(cancelled, Cancellation):
            transport.break_on(cancelled)

    @property
    def etag(self) -> str | None:
        """The strong ETag that all pieces are bound to, once the store told one."""
        return self._etag

    def restarting(self, read: Callable[[], T]) -> T:
        """Read again from the start if the file changed, and once if its size is wrong.

        Args:
            read: reads all that is wanted of the file.

        Raises:
            DataError: its size is wrong.
            DeltaSharingError: what `read` raises.
        """
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
                if self._budget is not None:
                    self._budget.give_back()
                return result
            self._etag = None
            self._pause(self._settings.backoff.seconds(1))

    def whole(self, slabs: Slabs | None = None) -> Buffer:
        """Read the whole file; a small one into memory of `slabs`, where it belongs when it is done with."""
        span = _Span(0, self._size or None, slabs=slabs)
        self._fill(span, ranged=False)
        return span.result()

    def range_into(self, view: memoryview, start: int, stop: int) -> None:
        """Read the bytes from `start` up to `stop` into `view`, which has that length; several threads may.

        Raises:
            FileChanged: the file is another one than when the first piece of it was read.
            DeltaSharingError: it cannot be read.
        """
        data = self.range(start, stop, view)
        if data is not view:
            view[:] = data

    def range(self, start: int, stop: int, view: memoryview | None = None) -> Buffer:
        """Read the bytes from `start` up to `stop`, into `view` if that is given; several threads may."""
        if self._whole is None:
            span = _Span(start, stop, view)
            try:
                self._fill(span, ranged=True)
            except _NoRanges:
                with self._whole_lock:
                    if self._whole is None:
                        self._whole = self.whole()
            except _WrongSize as error:
                if view is None:
                    raise
                raise DataError(str(error), file_id=self._id) from None
            else:
                return span.result() if view is None else view
        return memoryview(self._whole).cast("B")[start:stop]

    def _fill(self, span: _Span, *, ranged: bool) -> None:
        """Ask for what is missing of a span until nothing is, or until it gets no further."""
        failures = tries = 0
        furthest = span.position
        started = time.monotonic()
        enough = _PROGRESS if span.stop is None else min(_PROGRESS, max(1, (span.stop - span.start) // 16))
        while True:
            self._check_cancelled()
            url = self._present_url()
            tries += 1
            asked = 0.0
            try:
                self._ask(url, span, ranged=ranged)
                return
            except UrlExpiredError as expired:
                self._renew(url, expired)
                continue
            except RetryLater as later:
                error, asked = later.error, later.seconds
            except DeltaSharingError as failure:
                self._check_cancelled()
                if not is_retryable(failure):
                    if isinstance(failure, StorageError) and not failure.file_id:
                        raise StorageError(str(failure), file_id=self._id) from None
                    raise
                error = failure
            if span.position - furthest >= enough:
                furthest = span.position
                failures = 0
            else:
                failures += 1
            if failures >= self._settings.attempts:
                why = f"{failures} times in a row without getting further"
            elif asked > self._settings.longest_wait:
                why = f"the store asks to wait {asked:.0f} s, more than {self._settings.longest_wait:g} s"
            elif failures and self._budget is not None and not self._budget.take(error):
                why = "the retries that all files of the load share are used up"
            else:
                self._pause(max(self._settings.backoff.seconds(max(failures, 1)), asked))
                continue
            raise self._given_up(error, tries, time.monotonic() - started, why)

    def _given_up(self, error: DeltaSharingError, tries: int, seconds: float, why: str) -> StorageError:
        status = error.status if isinstance(error, StorageError) else None
        text = str(error).removeprefix(f"file {self._id}: ")
        times = "1 attempt" if tries == 1 else f"{tries} attempts"
        return StorageError(
            f"{text} (gave up after {times} over {seconds:.1f} s: {why})", file_id=self._id, status=status
        )

    def _ask(self, url: SecretUrl, span: _Span, *, ranged: bool) -> None:
        """Send one request for the rest of a span, and take what comes."""
        headers: dict[str, str] = {}
        if ranged or span.position > span.start:
            headers["Range"] = f"bytes={span.position}-{'' if span.stop is None else span.stop - 1}"
        etag = self._etag
        if etag is not None:
            headers["If-Match"] = etag
        with self._transport.get(url, headers=headers, file_id=self._id, cancelled=self._cancelled) as response:
            if response.status == 200:
                self._bind(response)
                if ranged:
                    raise _NoRanges
                length = response.length
                self._check_size(length)
                span.back_to_start()
                if length is not None:
                    span.end_at(length)
            elif response.status == 206 and "Range" in headers:
                self._bind(response)
                self._check_range(response, span)
            elif response.status == 412 and etag is not None:
                raise FileChanged
            elif response.status == 416 and "Range" in headers:
                raise _WrongSize(f"it ends before byte {span.position}; the table says {self._size or 'more'}")
            else:
                raise store_error(response, self._id)
            self._accepted = url
            self._take(response, span)

    def _take(self, response: FileResponse, span: _Span) -> None:
        """Read the body up to the span's end and not a byte further, save one to see that there is none."""
        while span.stop is None or span.position < span.stop:
            self._check_cancelled()
            if span.take(response):
                continue
            if span.stop is None:
                return
            raise IncompleteResponseError(f"the answer was cut: {span.stop - span.position} bytes are missing")
        if response.length == 0:
            return
        try:
            more = response.read_some(1)  # this also gives the connection back
        except DeltaSharingError:
            return
        if more:
            raise _WrongSize(f"it has more than the {span.stop} bytes that the table says")

    def _bind(self, response: FileResponse) -> None:
        """Hold the answer against the ETag of the first one; only strong ones bind."""
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
            raise _WrongSize(f"it has {length} bytes; the table says {self._size}")

    def _check_range(self, response: FileResponse, span: _Span) -> None:
        """Hold a 206 against what was asked for."""
        match = _CONTENT_RANGE.fullmatch((response.headers.get("Content-Range") or "").strip())
        if match is None or int(match[1]) != span.position or int(match[2]) < span.position:
            raise IncompleteResponseError("the store sent another range than the one asked for")
        end = int(match[2]) + 1
        total = None if match[3] == "*" else int(match[3])
        self._check_size(total)
        if end > (span.stop or total or end):
            raise IncompleteResponseError("the store sent more than the range asked for")
        if response.length is not None and response.length != end - span.position:
            raise IncompleteResponseError("the store sent a range of another length than it says")
        if span.stop is None:
            span.end_at(end if total is None else total)

    def _present_url(self) -> SecretUrl:
        """The URL to use now: another one where the present one is about to expire."""
        if self._ahead is None:
            return self._url
        url = self._ahead(self._id, self._url)
        with self._lock:
            self._url = url
        return url

    def _renew(self, used: SecretUrl, expired: UrlExpiredError) -> None:
        """Get a fresh URL; once for all pieces that find the same one expired."""
        with self._lock:
            if self._url != used:
                return
            if self._accepted == used:
                self._renewals = 0  # it was good once: only URLs that never were are counted
            if self._refresh is None or self._renewals >= _MAX_RENEWALS:
                raise expired
            self._renewals += 1
            self._url = self._refresh(self._id, used)

    def _check_cancelled(self) -> None:
        if self._cancelled is not None and self._cancelled.is_set():
            raise Cancelled

    def _pause(self, seconds: float) -> None:
        if self._settings.sleep is not None:
            self._settings.sleep(seconds)
        elif self._cancelled is not None:
            self._cancelled.wait(seconds)
        else:
            time.sleep(seconds)
