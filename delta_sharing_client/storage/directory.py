"""Transport for the files of a table's directory, over pyarrow's file systems with temporary credentials.

A file's "URL" is its path in the store, and the numbers of its location and credentials, so that `Download` serves
these files too: a renewal of the URL renews the credentials.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec import Struct

from delta_sharing_client.errors import DataError, FileGoneError, StorageError, TransportError, UrlExpiredError
from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.model.storage_credentials import TemporaryCredentials
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.renewing import Renewing, lifetime_from
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import SecretUrl, redact_text
from delta_sharing_client.storage.byte_source import StorageReader, UrlRenewal
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.storage.file_systems import Directory, is_within, open_directory
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.url_rules import is_loopback

if TYPE_CHECKING:
    from delta_sharing_client.model.names import Table
    from delta_sharing_client.rest.client import RestClient

#: Maximum number of open files.
_KEPT_OPEN: Final = 64
#: Bytes of one read.
_BLOCK: Final = 8 * 1024 * 1024
#: The maximum time in seconds before the expiration at which credentials are renewed.
_LONGEST_MARGIN: Final = 60.0
_MAX_DETAIL: Final = 300

#: For an expired session S3 responds with 400, without a code to a HEAD.
_EXPIRED = re.compile(
    r"expired|EXPIRED_TOKEN|ExpiredToken|AuthenticationFailed|UNAUTHENTICATED|HTTP status 400", re.IGNORECASE
)
_REFUSED = re.compile(r"ACCESS_DENIED|AccessDenied|Forbidden|PERMISSION_DENIED|INVALID_ACCESS_KEY|\b403\b|\b401\b")
_GONE = re.compile(r"NO_SUCH_KEY|NO_SUCH_BUCKET|NoSuchKey|BlobNotFound|ContainerNotFound|NOT_FOUND|\b404\b")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class _Grant(Struct, frozen=True):
    """One location, opened with the credentials of the server for it.

    Attributes:
        number: how often it was opened.
        directory: the opened location.
        expires: the expiration of the credentials in seconds since the epoch, if known.
        renew_at: the time at which they are renewed.
    """

    number: int
    directory: Directory
    expires: float | None = None
    renew_at: float | None = None


class DirectoryFiles(UrlRenewal):
    """A table's directory and auxiliary locations, opened with temporary credentials that are renewed.

    Several threads may use it. An auxiliary location is opened when the first file in it is located.

    Args:
        fetch_credentials: requests credentials of the sharing server; None stands for the table's directory.
        options: time-outs, proxies, certificates.
        endpoint_is_loopback: whether the sharing server is on this machine.
        auxiliary: the table's auxiliary locations.

    Raises:
        DirectoryAccessError: the directory cannot be opened.
        DeltaSharingError: the server returns no credentials.
    """

    def __init__(
        self,
        fetch_credentials: Callable[[str | None], TemporaryCredentials],
        options: TransportOptions,
        *,
        endpoint_is_loopback: bool,
        auxiliary: Sequence[str] = (),
    ) -> None:
        self.auxiliary = tuple(auxiliary)

        def renewing(location: str | None) -> Renewing[_Grant]:
            numbers = itertools.count(1)

            def fetch(needed: bool) -> _Grant:
                credentials = fetch_credentials(location)
                opened = open_directory(credentials, options, endpoint_is_loopback=endpoint_is_loopback)
                expires = None if credentials.expires is None else credentials.expires / 1000
                return _Grant(next(numbers), opened, *lifetime_from(time.time(), expires, _LONGEST_MARGIN))

            return Renewing(fetch, "the temporary credential of a directory")

        self._grants = [renewing(location) for location in (None, *auxiliary)]
        self.directory()

    @representation
    def __repr__(self) -> str:
        opened = self._grants[0].present
        return f"DirectoryFiles({opened.directory.location if opened is not None else None!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the credentials of a directory cannot be pickled")

    def directory(self, place: int = 0) -> Directory:
        """Return the directory, or an auxiliary location, with credentials that do not expire soon."""
        return self._grants[place].get().directory

    def url(self, uri: str) -> SecretUrl:
        """Return the URL of a file by its path relative to the table's directory, or its URL in the store.

        Raises:
            DirectoryAccessError: no credentials open it, or its path is unusable.
            DeltaSharingError: the server returns no credentials.
        """
        place = 0
        if not is_within(uri, self.directory().location):
            place = next((n for n, location in enumerate(self.auxiliary, 1) if is_within(uri, location)), 0)
        grant = self._grants[place].get()
        return SecretUrl(f"{grant.directory.path_of(uri)}#{place}.{grant.number}")

    def system_and_path(self, url: SecretUrl) -> tuple[Any, str]:
        """Return the file system of a file by its URL, and its path there."""
        path, _, opened = url.reveal().rpartition("#")
        return self.directory(int(opened.partition(".")[0])).system, path

    def renew(self, file_id: str, refused: SecretUrl) -> SecretUrl:
        """Return the URL of a file with other credentials than the refused ones.

        Raises:
            DeltaSharingError: the server returns no credentials.
        """
        path, _, opened = refused.reveal().rpartition("#")
        place, _, number = opened.partition(".")
        grant = self._grants[int(place)].get(lambda grant: str(grant.number) == number)
        return SecretUrl(f"{path}#{place}.{grant.number}")

    def current_url(self, file_id: str, url: SecretUrl) -> SecretUrl:
        """Return the URL of a file with the present credentials."""
        path, _, opened = url.reveal().rpartition("#")
        place = opened.partition(".")[0]
        grant = self._grants[int(place)].present
        return url if grant is None else SecretUrl(f"{path}#{place}.{grant.number}")


class DirectoryTransport:
    """Transport for the files of a directory; pyarrow's file system opens the connections."""

    def __init__(self, files: DirectoryFiles) -> None:
        self._files = files
        self._open: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._open_lock = ForkSafeLock()

    def get(
        self,
        url: SecretUrl,
        *,
        headers: Mapping[str, str] | None = None,
        file_id: str = "",
        cancelled: threading.Event | None = None,
    ) -> Response:
        """Return a file or a range of it as the response to a GET; see `FileTransport.get`.

        Of the headers only `Range` counts: the files of a Delta table never change. A read of one block cannot be
        cancelled.
        """
        requested = _RANGE.fullmatch((headers or {}).get("Range", ""))
        with _store_errors(file_id):
            file = self._file(url)
            size = file.size()
        start = int(requested[1]) if requested else 0
        stop = min(int(requested[2]) + 1, size) if requested and requested[2] else size
        if start >= stop and requested:
            raise DataError(
                f"it ends before byte {start}; the size in the table's metadata is larger", file_id=file_id
            )
        part = _FilePart(file, start, stop, size, requested is not None, file_id)
        return Response(part, url=url, secrets=(), subject=f"file {file_id}")

    def _file(self, url: SecretUrl) -> Any:
        """The open file of a URL. To open one takes a request, so the last used ones stay open."""
        system, path = self._files.system_and_path(url)
        key = (id(system), url.reveal())
        with self._open_lock:
            known = self._open.pop(key, None)
            if known is not None:
                self._open[key] = known
                return known[1]
        file = system.open_input_file(path)
        with self._open_lock:
            self._open[key] = (system, file)
            while len(self._open) > _KEPT_OPEN:
                del self._open[next(iter(self._open))]
        return file

    def break_on(self, cancelled: Cancellation) -> None:
        """Do nothing: a read of one block cannot be aborted."""

    def abort(self) -> None:
        """Do nothing: a read of one block cannot be aborted."""

    def close(self) -> None:
        """Close the open files."""
        with self._open_lock:
            self._open.clear()


def open_files(rest: RestClient, table: Table) -> DirectoryFiles:
    """Open a table's directory with credentials of the server; see `DirectoryFiles`."""
    return DirectoryFiles(
        partial(rest.temporary_credentials, table),
        rest.options,
        endpoint_is_loopback=is_loopback(rest.profile.endpoint),
        auxiliary=table.auxiliary_locations,
    )


def directory_reader(files: DirectoryFiles, options: TransportOptions) -> StorageReader:
    """Return a reader of the files of a directory."""
    return DownloadReader(DirectoryTransport(files), options)


def list_files(files: DirectoryFiles, folder: str) -> dict[str, tuple[int, float]]:
    """Return the size and the time of change (seconds since the epoch) of each file in a folder, by name.

    The result is empty if there is no such folder.

    Raises:
        UrlExpiredError: the credentials have expired.
        StorageError: the store refuses access.
        TransportError: the store cannot be reached.
    """
    from pyarrow.fs import FileSelector, FileType

    directory = files.directory()
    with _store_errors(folder):
        selector = FileSelector(directory.join(folder), recursive=False, allow_not_found=True)
        found = directory.system.get_file_info(selector)
    return {
        info.base_name: (info.size or 0, info.mtime.timestamp() if info.mtime is not None else 0.0)
        for info in found
        if info.type == FileType.File
    }


class _FilePart:
    """A file, or a range of it, as what a `Response` reads."""

    def __init__(self, file: Any, start: int, stop: int, size: int, ranged: bool, file_id: str) -> None:
        self._file = file
        self._position = start
        self._stop = stop
        self._id = file_id
        self._block = memoryview(b"")
        self.status = 206 if ranged else 200
        self.headers = {"Content-Range": f"bytes {start}-{stop - 1}/{size}"} if ranged else {}

    def close(self) -> None:
        """Do nothing: the file stays open for its other ranges."""

    release_conn = close

    @property
    def length_remaining(self) -> int:
        return self._stop - self._position + len(self._block)

    def read1(self, amt: int, decode_content: bool = False) -> bytes:
        if not self._block:
            wanted = min(_BLOCK, self._stop - self._position)
            if not wanted:
                return b""
            with _store_errors(self._id):
                self._block = memoryview(self._file.read_at(wanted, self._position))
            if not self._block:
                raise TransportError("the store sent less of the file than its size")
            self._position += len(self._block)
        data = bytes(self._block[:amt])
        self._block = self._block[amt:]
        return data


@contextlib.contextmanager
def _store_errors(file_id: str) -> Iterator[None]:
    """Map exceptions of pyarrow's file systems to typed errors with redacted texts."""
    try:
        yield
    except (OSError, ValueError) as error:
        text = str(error)
        detail = " ".join(redact_text(text).split())[:_MAX_DETAIL]
        if isinstance(error, FileNotFoundError) or _GONE.search(text):
            raise FileGoneError(
                "the store has no such file; the provider may have vacuumed the table: load it again",
                file_id=file_id,
                status=404,
            ) from None
        if _EXPIRED.search(text):
            raise UrlExpiredError("the temporary credentials have expired", file_id=file_id, status=403) from None
        if isinstance(error, PermissionError) or _REFUSED.search(text):
            raise StorageError(
                f"the store refuses access ({detail}); ask the provider to check the permissions of the "
                "credentials that the sharing server issues",
                file_id=file_id,
                status=403,
            ) from None
        raise TransportError(f"file {file_id}: the store cannot be read: {detail}") from None
