"""Renewal of pre-signed URLs: one request for all files of a plan, matched by file id."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delta_sharing_client.errors import (
    BadRequestError,
    DeltaSharingError,
    ResponseFormatError,
    StorageError,
)
from delta_sharing_client.model.actions import EndStreamAction, FileAction, Metadata, Protocol
from delta_sharing_client.parquet.fetch import is_unnamed_vector, vector_key
from delta_sharing_client.secrets import SecretUrl, unsigned_url
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ANY_FORMAT, ChangesRequest, QueryRequest, VersionsRequest

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.scan.planner import ScanPlan

logger = logging.getLogger(__name__)

#: URLs are renewed this part of their lifetime before they expire ...
_MARGIN: Final = 0.2
#: ... but no more than this many seconds.
_LONGEST_MARGIN: Final = 60.0
#: Clocks that differ by fewer seconds are taken to agree: a `Date` has whole ones, and the answer took its time.
_CLOCKS_AGREE: Final = 2.0


class UrlRenewer:
    """Renews pre-signed URLs during a load: one request for all files that need it.

    That is done ahead of the time at which the server said that they expire, and whenever the store refuses one:
    the time is a hint, the store's word the truth. Files are matched by their ids, and asked for in the response
    format that these are of. The renewed listing is that of the refresh token, of the same version, or of the same
    changes; a table that moved on is still good for the files that both versions hold.

    Args:
        rest: the server.
        plan: the plan whose URLs are renewed.
        expires: when the first of them expires, in milliseconds since the epoch; without it the plan tells.
    """

    def __init__(self, rest: RestClient, plan: ScanPlan, expires: int | None = None) -> None:
        self._rest = rest
        self._plan = plan
        self._lock = threading.Lock()
        self._urls: dict[str, SecretUrl] = {}
        self._token = plan.end.refresh_token if plan.end is not None else None
        self._has_history = True
        #: When URLs are renewed, and when they are of no use any more, by the clock of this machine.
        self._due: float | None = None
        self._dead = 0.0
        self._expect(_end_of_life(plan.end) or expires or first_of(task.expiration for task in plan.tasks))

    def __call__(self, file_id: str, expired: SecretUrl) -> SecretUrl:
        """Return a fresh URL for a file.

        Args:
            file_id: the file's id.
            expired: the URL that the store refused.

        Raises:
            StorageError: the server does not list the file any more.
        """
        with self._lock:
            known = self._urls.get(file_id)
            if known is None or known == expired:
                self._urls = self.list_urls()
                known = self._urls.get(file_id)
        if known is None:
            raise StorageError(
                f"its URL expired, and the server does not list the file any more: "
                f"table {self._plan.table.full_name} moved on from version {self._plan.version}; load it again",
                file_id=file_id,
            )
        return known

    def ahead(self, file_id: str, url: SecretUrl) -> SecretUrl:
        """Return the URL to use now for a file: `url`, or a fresher one.

        Near their end all URLs are renewed by whoever comes first; while they still work nobody else waits for
        it. If that fails, the URLs are used until the store refuses them.
        """
        due = self._due
        if due is not None and time.time() >= due and self._lock.acquire(blocking=time.time() >= self._dead):
            try:
                if self._due == due:
                    self._due = None
                    self._urls = self.list_urls()
            except DeltaSharingError as error:
                logger.info("URLs of %s could not be renewed ahead: %s", self._plan.table.full_name, error)
            finally:
                self._lock.release()
        return self._urls.get(file_id, url)

    def list_urls(self) -> dict[str, SecretUrl]:
        """Ask for all files again; return the URLs by the ids of the files and of their deletion vectors."""
        plan = self._plan
        request = plan.request or QueryRequest()
        if isinstance(request, ChangesRequest | VersionsRequest):
            signed = _SignedUrls()
            changes = self._rest.table_changes(plan.table, request, signed)
            self._expect(_end_of_life(changes.end) or signed.expires)
            return dict(changes.items)
        if self._token is not None:
            token, self._token = self._token, None
            try:
                return self._urls_of(replace(request, refresh_token=token, include_refresh_token=True))
            except (BadRequestError, ResponseFormatError):
                pass  # it is too old, or the server takes it no more
        if request.version is None and request.timestamp is None:
            if plan.version is not None and self._has_history:
                try:
                    return self._urls_of(replace(request, version=plan.version, include_refresh_token=False))
                except (BadRequestError, ResponseFormatError):
                    self._has_history = False
            return self._latest_urls(replace(request, include_refresh_token=False))
        return self._urls_of(request)

    def _latest_urls(self, request: QueryRequest) -> dict[str, SecretUrl]:
        """Ask for the latest snapshot, which may still hold the files."""
        try:
            return self._urls_of(request)
        except (BadRequestError, ResponseFormatError):
            # It may need the other format by now, in which files may have the same ids, or others.
            return self._urls_of(replace(request, formats=ANY_FORMAT))

    def _urls_of(self, request: QueryRequest) -> dict[str, SecretUrl]:
        plan = self._plan
        signed = _SignedUrls()
        answer = self._rest.query_table(plan.table, request, signed)
        self._expect(_end_of_life(answer.end) or signed.expires)
        if answer.end is not None and answer.end.refresh_token is not None and answer.version == plan.version:
            self._token = answer.end.refresh_token
        urls = dict(answer.items)
        if answer.version != plan.version:
            # A vector without an id of its own may be another one by now.
            urls = {key: url for key, url in urls.items() if not is_unnamed_vector(key)}
        return urls

    def _expect(self, expires: int | None) -> None:
        """Note when URLs that have just come are to be renewed."""
        self._due = None
        if expires is None:
            return
        ahead = self._rest.clock_offset.total_seconds()
        self._dead = expires / 1000 - (ahead if abs(ahead) > _CLOCKS_AGREE else 0.0)
        lifetime = self._dead - time.time()
        if lifetime > 0:  # or else the clocks are wrong, and the store will tell
            self._due = self._dead - min(_MARGIN * lifetime, _LONGEST_MARGIN)


def _end_of_life(end: EndStreamAction | None) -> int | None:
    return end.min_url_expiration_timestamp if end is not None else None


def vector_file_id(file: FileAction) -> str | None:
    """Return the id of a file's deletion vector: the server's, or without one a hash of its unsigned URL.

    A change may have two vectors of one file, which must be distinct when their URLs are renewed.
    """
    vector = file.deletion_vector
    if file.deletion_vector_file_id is not None or vector is None or vector.storage_type == "i":
        return file.deletion_vector_file_id
    return hashlib.sha256(unsigned_url(vector.path_or_inline).encode()).hexdigest()[:32]


class _SignedUrls:
    """Keeps of each file its URL and that of its deletion vector, by the ids that they are renewed under.

    expires: when the first of them expires, in milliseconds since the epoch, where told.
    """

    def __init__(self) -> None:
        self.expires: int | None = None

    def __call__(
        self, protocol: Protocol, metadata: Metadata
    ) -> Callable[[FileBlock], list[tuple[str, SecretUrl]]]:
        return self._of

    def _of(self, files: FileBlock) -> list[tuple[str, SecretUrl]]:
        found = list(zip(files.ids, files.urls, strict=True))
        for file in files if any(files.vectors) else ():
            if file.deletion_vector is not None:
                for vector_id in (file.deletion_vector_file_id, vector_file_id(file)):
                    found.append((vector_key(file.id, vector_id), file.deletion_vector.path_or_inline))
        self.expires = first_of((self.expires, *files.expirations))
        return found


def first_of(times: Iterable[int | None]) -> int | None:
    """Return the earliest of the times that are known."""
    return min((time for time in times if time), default=None)
