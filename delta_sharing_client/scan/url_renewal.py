"""Renewal of pre-signed URLs: one request for all files of an answer, matched by file id."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from delta_sharing_client.errors import (
    BadRequestError,
    DeltaSharingError,
    ResponseFormatError,
    StorageError,
)
from delta_sharing_client.model.actions import EndStreamAction, FileAction, Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.table_identity import check_same_table
from delta_sharing_client.parquet.fetch import is_unnamed_vector, vector_key
from delta_sharing_client.renewing import Renewing, lifetime_from
from delta_sharing_client.secrets import SecretUrl, unsigned_url
from delta_sharing_client.storage.byte_source import UrlRenewal
from delta_sharing_client.wire.answers import Answer
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ANY_FORMAT, ChangesRequest, QueryRequest, VersionsRequest

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.scan.planner import ScanPlan

#: The maximum time in seconds before the expiration at which URLs are renewed.
_LONGEST_MARGIN: Final = 60.0
#: Clock-skew tolerance in seconds: a `Date` header has whole seconds, and the answer was under way.
_CLOCK_SKEW_TOLERANCE: Final = 2.0


class ListedUrls(Struct, frozen=True):
    """The URLs of a listing, by the ids of the files and of their deletion vectors.

    Attributes:
        urls: the URLs; a file without one has that of the plan.
        expires: the first expiration in seconds since the epoch, by the clock of this machine, if known.
        renew_at: the time at which they are renewed.
    """

    urls: Mapping[str, SecretUrl]
    expires: float | None = None
    renew_at: float | None = None


class ListedUrlRenewal(UrlRenewal):
    """Renews the URLs of a table's files together, by a listing.

    Args:
        table: the table.
        version: the version of the listing that the URLs belong to.
        list_urls: lists all files again.
        first: the URLs before the first renewal.
    """

    def __init__(
        self, table: Table, version: int | None, list_urls: Callable[[], ListedUrls], first: ListedUrls
    ) -> None:
        self._table = table
        self._version = version
        name = f"the list of URLs of {table.full_name}"
        self._listed = Renewing(lambda needed: list_urls(), name, value=first, until_refused=True)

    def renew(self, file_id: str, refused: SecretUrl) -> SecretUrl:
        """Return a fresh URL for a file whose URL the store refused.

        Raises:
            StorageError: the server does not list the file any more.
        """
        url = self._listed.get(lambda listed: listed.urls.get(file_id, refused) == refused).urls.get(file_id)
        if url is None:
            raise StorageError(
                f"its URL expired, and the server does not list the file any more: "
                f"table {self._table.full_name} is now at a later version than {self._version}; load it again",
                file_id=file_id,
            )
        return url

    def current_url(self, file_id: str, url: SecretUrl) -> SecretUrl:
        """Return the URL to use now for a file: `url`, or a fresher one.

        Near the expiration one thread renews all URLs; the others do not wait while the URLs are valid. If the
        renewal fails, the URLs are used until the store refuses them.
        """
        try:
            return self._listed.get().urls.get(file_id, url)
        except DeltaSharingError:  # of a renewal of refused URLs
            return url


class UrlRenewer(ListedUrlRenewal):
    """Renews pre-signed URLs during a load: one request for all files that need it.

    URLs are renewed before their reported expiration time, and whenever the store refuses one, because the
    reported time is only a hint.

    Args:
        rest: the server.
        table: the table.
        listing: the answer, or the plan made of it, whose URLs are renewed.
        expirations: expiration times of its files in milliseconds since the epoch, if the answer has no first one.
    """

    def __init__(
        self,
        rest: RestClient,
        table: Table,
        listing: ScanPlan | Answer[Any, Any],
        expirations: Iterable[int | None] = (),
    ) -> None:
        first = _listed({}, _end_of_life(listing.end) or _first_of(expirations), rest)
        super().__init__(table, listing.version, UrlLister(rest, table, listing).list_urls, first)


class UrlLister:
    """Lists the files of an answer, or of the plan made of it, again. One thread at a time uses it.

    Files are matched by their ids, in the response format of these ids. The new listing is that of the refresh
    token, of the same version, or of the same changes. If the table has a new version, files that both versions
    have still get URLs.
    """

    def __init__(self, rest: RestClient, table: Table, listing: ScanPlan | Answer[Any, Any]) -> None:
        self._rest = rest
        self._table = table
        self._listing = listing
        self._token = listing.end.refresh_token if listing.end is not None else None
        self._has_history = True

    def list_urls(self) -> ListedUrls:
        """List all files again."""
        version = self._listing.version
        request = self._listing.request or QueryRequest()
        if isinstance(request, ChangesRequest | VersionsRequest):
            signed = _SignedUrls()
            changes = self._rest.table_changes(self._table, request, signed)
            self._check(changes)
            return _listed(dict(changes.items), _end_of_life(changes.end) or signed.expires, self._rest)
        if self._token is not None:
            token, self._token = self._token, None
            try:
                return self._urls_of(replace(request, refresh_token=token, include_refresh_token=True))
            except (BadRequestError, ResponseFormatError):
                pass  # the token has expired, or the server does not accept it any more
        if request.version is None and request.timestamp is None:
            if version is not None and self._has_history:
                try:
                    return self._urls_of(replace(request, version=version, include_refresh_token=False))
                except (BadRequestError, ResponseFormatError):
                    self._has_history = False
            return self._latest_urls(replace(request, include_refresh_token=False))
        return self._urls_of(request)

    def _check(self, answer: Answer[Any, Any]) -> None:
        """Raise `TableReplacedError` if the files are those of another table, which may have the same ids."""
        subject = f"table {self._table.full_name}"
        check_same_table(
            self._listing.metadata.id, answer.metadata, subject, "Load it again", version=answer.version
        )

    def _latest_urls(self, request: QueryRequest) -> ListedUrls:
        """Request the latest snapshot, which may still have the files."""
        try:
            return self._urls_of(request)
        except (BadRequestError, ResponseFormatError):
            # The table may now need the other format, in which older servers form other ids of files.
            return self._urls_of(replace(request, formats=ANY_FORMAT, file_id_hash=request.formats[0]))

    def _urls_of(self, request: QueryRequest) -> ListedUrls:
        version = self._listing.version
        signed = _SignedUrls()
        answer = self._rest.query_table(self._table, request, signed)
        self._check(answer)
        if answer.end is not None and answer.end.refresh_token is not None and answer.version == version:
            self._token = answer.end.refresh_token
        urls = dict(answer.items)
        if answer.version != version:
            # A vector without an id may have been replaced.
            urls = {key: url for key, url in urls.items() if not is_unnamed_vector(key)}
        return _listed(urls, _end_of_life(answer.end) or signed.expires, self._rest)


def _listed(urls: dict[str, SecretUrl], expires: int | None, rest: RestClient) -> ListedUrls:
    """Return URLs with the times of their renewal, from their expiration by the server's clock."""
    if expires is None:
        return ListedUrls(urls)
    ahead = rest.clock_offset.total_seconds()
    here = expires / 1000 - (ahead if abs(ahead) > _CLOCK_SKEW_TOLERANCE else 0.0)
    return ListedUrls(urls, *lifetime_from(time.time(), here, _LONGEST_MARGIN))


def _end_of_life(end: EndStreamAction | None) -> int | None:
    return end.min_url_expiration_timestamp if end is not None else None


def vector_file_id(file: FileAction) -> str | None:
    """Return the id of a file's deletion vector: the server's, or without one a hash of its unsigned URL.

    A change may have two vectors of one file, which must be distinct when their URLs are renewed.
    """
    vector = file.deletion_vector
    if file.deletion_vector_file_id is not None or vector is None or vector.is_inline:
        return file.deletion_vector_file_id
    return hashlib.sha256(unsigned_url(vector.path_or_inline).encode()).hexdigest()[:32]


class _SignedUrls:
    """Converts files to the URLs of data files and deletion vectors, by the ids under which they are renewed.

    expires: the first expiration time in milliseconds since the epoch, if known.
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
        self.expires = _first_of((self.expires, *files.expirations))
        return found


def _first_of(times: Iterable[int | None]) -> int | None:
    """Return the earliest of the times that are known."""
    return min((time for time in times if time), default=None)
