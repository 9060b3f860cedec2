"""The files of a table's directory, fetched through pyarrow's file systems as if by pre-signed URL.

A file's "URL" is its path in the store and the number of the credentials that open it. So downloads, their
retries and their renewals are those of all other files; only how bytes are fetched differs.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from delta_sharing_client.errors import FileGoneError, StorageError, TransportError, UrlExpiredError
from delta_sharing_client.http.connections import Cancellation
from delta_sharing_client.http.options import TransportOptions
from delta_sharing_client.http.response import Response
from delta_sharing_client.http.transport import StorageTransport
from delta_sharing_client.protocol.storage_credentials import TemporaryCredentials
from delta_sharing_client.read.file_systems import Directory, open_directory
from delta_sharing_client.read.storage import StorageReader
from delta_sharing_client.secrets import redact_text

#: Bytes that are asked of a store at once.
_BLOCK: Final = 8 * 1024 * 1024
#: Credentials that expire within this are renewed before they are used, seconds.
_TOO_LATE: Final = 60
_MAX_SAID: Final = 300

_EXPIRED = re.compile(r"expired|EXPIRED_TOKEN|ExpiredToken|AuthenticationFailed|UNAUTHENTICATED", re.IGNORECASE)
_REFUSED = re.compile(r"ACCESS_DENIED|AccessDenied|Forbidden|PERMISSION_DENIED|INVALID_ACCESS_KEY|\b403\b|\b401\b")
_GONE = re.compile(r"NO_SUCH_KEY|NO_SUCH_BUCKET|NoSuchKey|BlobNotFound|ContainerNotFound|NOT_FOUND|\b404\b")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class DirectoryFiles:
    """A table's directory, opened with temporary credentials that are renewed. Used by several threads.

    Args:
        ask: asks the sharing server for credentials.
        options: time-outs, proxies, certificates.
        endpoint_is_loopback: whether the sharing server is on this machine.
        now: gives the seconds since the epoch.

    Raises:
        DirectoryAccessError: the directory cannot be opened.
        DeltaSharingError: the server gives no credentials.
    """

    def __init__(
        self,
        ask: Callable[[], TemporaryCredentials],
        options: TransportOptions,
        *,
        endpoint_is_loopback: bool,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._options = options
        self._endpoint_is_loopback = endpoint_is_loopback
        self._now = now
        self._lock = threading.Lock()
        self._number = 0
        self._open()

    def __repr__(self) -> str:
        return f"DirectoryFiles({self._directory.location!r})"

    def directory(self) -> Directory:
        """Return the directory, with credentials that are good for a while."""
        with self._lock:
            if self._expires is not None and self._expires / 1000 - self._now() < self._ahead:
                self._open()
            return self._directory

    def url(self, path: str) -> str:
        """Return what stands for the URL of a file.

        Args:
            path: its path in the file system.
        """
        return f"{path}#{self._number}"

    def renewed(self, file_id: str, url: str) -> str:
        """Return the URL of a file with other credentials than those that were refused.

        Args:
            file_id: the file's id.
            url: its URL until now.

        Raises:
            DeltaSharingError: the server gives none.
        """
        path, _, number = url.rpartition("#")
        with self._lock:
            if number == str(self._number):
                self._open()
            return self.url(path)

    def _open(self) -> None:
        credentials = self._ask()
        self._directory = open_directory(
            credentials, self._options, endpoint_is_loopback=self._endpoint_is_loopback
        )
        self._expires = credentials.expires
        left = 0.0 if credentials.expires is None else credentials.expires / 1000 - self._now()
        # Credentials that live shorter than that would be renewed at each file.
        self._ahead = min(_TOO_LATE, max(left, 0.0) / 5)
        self._number += 1


class DirectoryTransport(StorageTransport):
    """Fetches the files of a directory; opens no connection of its own, pyarrow's file system does.

    Args:
        files: the directory.
        options: time-outs, connections.
    """

    def __init__(self, files: DirectoryFiles, options: TransportOptions) -> None:
        super().__init__(options, endpoint_is_loopback=False)
        self._files = files

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        file_id: str = "",
        cancelled: threading.Event | None = None,
    ) -> Response:
        """Return a file, or a range of it, as if it were an answer to a GET.

        Args:
            url: what `DirectoryFiles.url` gave.
            headers: `Range`; conditions are not looked at, for the files of a Delta table never change.
            file_id: the file's id, for messages.
            cancelled: not looked at: what is under way ends with its block.

        Raises:
            UrlExpiredError: the credentials have expired.
            FileGoneError: there is no such file.
            StorageError: the store refuses.
            TransportError: it cannot be reached.
        """
        directory = self._files.directory()
        path = url.rpartition("#")[0]
        asked = _RANGE.fullmatch((headers or {}).get("Range", ""))
        start = int(asked[1]) if asked else 0
        stop = int(asked[2]) + 1 if asked and asked[2] else None
        with _StoreErrors(file_id):
            file, size = _opened(directory.system, path, stop)
        return _FileResponse(file, start, stop, size, file_id, url)

    def break_on(self, cancelled: Cancellation) -> None:
        """Do nothing: what is under way ends with its block."""


def directory_reader(files: DirectoryFiles, options: TransportOptions) -> StorageReader:
    """Return what fetches the files of a directory."""
    return StorageReader(DirectoryTransport(files, options), options)


def list_files(files: DirectoryFiles, folder: str) -> dict[str, tuple[int, float]]:
    """List the files in a folder of a directory, those of its own folders left out.

    Args:
        files: the directory.
        folder: the folder's path below it.

    Returns:
        The size and the time of change (seconds since the epoch) of each file, by name; empty where there is no
        such folder.

    Raises:
        UrlExpiredError: the credentials have expired.
        StorageError: the store refuses.
        TransportError: it cannot be reached.
    """
    from pyarrow.fs import FileSelector, FileType

    directory = files.directory()
    with _StoreErrors(folder):
        selector = FileSelector(directory.join(folder), recursive=False, allow_not_found=True)
        found = directory.system.get_file_info(selector)
    return {
        info.base_name: (info.size or 0, info.mtime.timestamp() if info.mtime is not None else 0.0)
        for info in found
        if info.type == FileType.File
    }


def _opened(system: Any, path: str, stop: int | None) -> tuple[Any, int | None]:
    """Open a file; with its size where that has to be known, which takes a request."""
    from pyarrow.fs import FileInfo, FileType

    if stop is not None:
        # The size that is told here only spares asking for it.
        return system.open_input_file(FileInfo(path, type=FileType.File, size=stop)), None
    file = system.open_input_file(path)
    return file, file.size()


class _FileResponse(Response):
    """A file, or a range of it, as an answer."""

    def __init__(
        self, file: Any, start: int, stop: int | None, size: int | None, file_id: str, url: str
    ) -> None:
        stop = size if stop is None else stop
        self._file = file
        self._position = start
        self._stop: int = start if stop is None else stop
        self._id = file_id
        self._block = memoryview(b"")
        self.url = url
        ranged = start > 0 or size is None
        self.status = 206 if ranged else 200
        total = "*" if size is None else size
        self.headers = {"Content-Range": f"bytes {start}-{self._stop - 1}/{total}"} if ranged else {}

    def close(self) -> None:
        with _StoreErrors(self._id):
            self._file.close()

    @property
    def length(self) -> int | None:
        return self._stop - self._position + len(self._block)

    def read_some(self, limit: int) -> bytes:
        if not self._block:
            wanted = min(_BLOCK, self._stop - self._position)
            if not wanted:
                return b""
            with _StoreErrors(self._id):
                self._block = memoryview(self._file.read_at(wanted, self._position))
            if not self._block:
                raise TransportError("the store sent less of the file than the table says")
            self._position += len(self._block)
        data = bytes(self._block[:limit])
        self._block = self._block[limit:]
        return data

    def read_into(self, view: memoryview) -> int:
        data = self.read_some(len(view))
        view[: len(data)] = data
        return len(data)


class _StoreErrors:
    """Turns what pyarrow's file systems raise into typed errors; no word of theirs shows unredacted."""

    def __init__(self, file_id: str) -> None:
        self._id = file_id

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError | ValueError):
            return
        text = str(error)
        said = " ".join(redact_text(text).split())[:_MAX_SAID]
        if isinstance(error, FileNotFoundError) or _GONE.search(text):
            raise FileGoneError(
                "the store has no such file; the provider may have vacuumed the table: load it again",
                file_id=self._id,
                status=404,
            ) from None
        if _EXPIRED.search(text):
            raise UrlExpiredError("the temporary credentials have expired", file_id=self._id, status=403) from None
        if isinstance(error, PermissionError) or _REFUSED.search(text):
            raise StorageError(f"the store refuses the credentials: {said}", file_id=self._id, status=403) from None
        raise TransportError(f"file {self._id}: the store cannot be read: {said}") from None
