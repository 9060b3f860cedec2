"""The sharing server's REST API: one method per endpoint, one iterator for every listing's pages.

Each request is retried as a whole: an answer is decoded to its end before anything of it counts, so a cut
one leaves no trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar, overload

from delta_sharing_client.auth.external import CredentialProvider
from delta_sharing_client.auth.provider import provider_for
from delta_sharing_client.auth.renewal import RenewingAuth
from delta_sharing_client.errors import ProtocolError, RestError
from delta_sharing_client.model import capabilities
from delta_sharing_client.model.actions import FileAction, ResponseFormat
from delta_sharing_client.model.credentials import BearerToken, ExternalCredential
from delta_sharing_client.model.names import Schema, Share, Table, check_name
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.model.storage_credentials import TemporaryCredentials, need_urls
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.async_query import TableQuery
from delta_sharing_client.rest.calls import Caller, next_page
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.retry import Retrier
from delta_sharing_client.transport.transports import ApiTransport
from delta_sharing_client.wire.answers import (
    ChangesAnswer,
    Convert,
    Page,
    QueryAnswer,
    TableInfo,
    keep_files,
    read_metadata,
    read_page,
)
from delta_sharing_client.wire.decoder import decode_actions
from delta_sharing_client.wire.duplicate_files import DuplicateFiles
from delta_sharing_client.wire.requests import (
    ANY_FORMAT,
    ChangesRequest,
    QueryRequest,
    VersionsRequest,
    check_version,
    format_timestamp,
    pinned,
)
from delta_sharing_client.wire.time_travel import check_time_travel
from delta_sharing_client.wire.typed_lines import Decoded

T = TypeVar("T")
R = TypeVar("R", QueryRequest, ChangesRequest | VersionsRequest)

_VERSION_HEADER: Final = "Delta-Table-Version"
#: Statuses by which servers say that they lack an endpoint.
_NO_ENDPOINT: Final = frozenset({404, 405, 501})

_DEFAULT_OPTIONS: Final = TransportOptions()


class RestClient:
    """Speaks the Delta Sharing protocol to one server. May be used by several threads.

    Args:
        profile: where the server is, and the credential for it.
        options: time-outs, retries, connections.
        transport: sends the requests; made from profile and options without.
        retrier: repeats them; made from the options without.
        credential_provider: gives the tokens instead of the profile.

    Raises:
        InsecureUrlError: the credential would travel in clear text.
    """

    def __init__(
        self,
        profile: Profile,
        options: TransportOptions = _DEFAULT_OPTIONS,
        *,
        transport: ApiTransport | None = None,
        retrier: Retrier | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self.profile = profile
        self.options = options
        transport = transport or ApiTransport(
            profile.endpoint, provider_for(profile, options, credential_provider), options
        )
        self._caller = Caller(transport, retrier or Retrier(options))

    @representation
    def __repr__(self) -> str:
        return f"RestClient({self._caller.transport.endpoint})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the pooled connections."""
        caller: Caller | None = getattr(self, "_caller", None)  # none if the constructor failed
        if caller is not None:
            caller.transport.close()

    def profile_elsewhere(self) -> Profile:
        """Return the profile that another process can use without this one.

        Tokens of a `credential_provider` cannot be renewed there: the present one goes into it.

        Raises:
            TokenError: there is no token to be had.
        """
        authorize = self._caller.transport.authorize
        if not isinstance(authorize, RenewingAuth) or not isinstance(self.profile.credential, ExternalCredential):
            return self.profile
        token = authorize.present()
        expires = None if token.expires is None else datetime.fromtimestamp(token.expires, UTC)
        return replace(self.profile, type=BearerToken.TYPE, credential=BearerToken(token.token, expires))

    @property
    def clock_offset(self) -> timedelta:
        """How far the server's clock is ahead of this machine's, by the `Date` of its last answer."""
        return timedelta(seconds=self._caller.clock_offset)

    # -- listings

    def list_shares(self, *, max_results: int | None = None) -> Iterator[Share]:
        """List the shares of the recipient, lazily ("List Shares").

        Args:
            max_results: items to a page; the server decides without.
        """
        hint = {404: f"Check the endpoint in the profile: there is no sharing server at {self.profile.endpoint}"}
        return self._caller.items(Share.from_json, ("shares",), "the shares", hint, max_results)

    def list_schemas(self, share: str | Share, *, max_results: int | None = None) -> Iterator[Schema]:
        """List the schemas of a share, lazily ("List Schemas in a Share").

        Args:
            share: the share or its name.
            max_results: items to a page; the server decides without.
        """
        path, what = _share_path(share)
        return self._caller.items(Schema.from_json, (*path, "schemas"), what, _NO_SHARE, max_results)

    def list_tables(self, schema: Schema, *, max_results: int | None = None) -> Iterator[Table]:
        """List the tables of a schema, lazily ("List Tables in a Schema").

        Args:
            schema: the schema.
            max_results: items to a page; the server decides without.
        """
        path, _ = _share_path(schema.share)
        path = (*path, "schemas", check_name(schema.name, "schema"), "tables")
        return self._caller.items(Table.from_json, path, f"schema {schema.full_name}", _NO_SCHEMA, max_results)

    def list_all_tables(self, share: str | Share, *, max_results: int | None = None) -> Iterator[Table]:
        """List the tables of all schemas of a share, lazily ("List all Tables in a Share").

        Of a server without that endpoint, each schema is listed in turn.

        Args:
            share: the share or its name.
            max_results: items to a page; the server decides without.
        """
        path, what = _share_path(share)
        tables = self._caller.items(Table.from_json, (*path, "all-tables"), what, _NO_SHARE, max_results)
        return self._all_tables(tables, share, max_results)

    def _all_tables(self, tables: Iterator[Table], share: str | Share, max_results: int | None) -> Iterator[Table]:
        try:
            first = next(tables, None)
        except RestError as error:
            if error.status not in _NO_ENDPOINT:
                raise
        else:
            if first is not None:
                yield first
                yield from tables
            return
        for schema in self.list_schemas(share, max_results=max_results):
            yield from self.list_tables(schema, max_results=max_results)

    def get_share(self, name: str) -> Share:
        """Return one share ("Get Share").

        Args:
            name: its name, in any case.
        """
        path, what = _share_path(name)
        answer = self._caller.call("GET", path, what, self._caller.json(what), hints=_NO_SHARE)
        share = answer.get("share")
        if not isinstance(share, dict):
            raise ProtocolError(f"{what}: the answer has no object 'share'")
        return Share.from_json(share)

    # -- tables

    def table_version(self, table: Table, starting_timestamp: str | datetime | date | None = None) -> int:
        """Return a table's version ("Query Table Version").

        Args:
            table: the table.
            starting_timestamp: asks for the earliest version at or after this time instead of the latest.

        Raises:
            NotFoundError: there is no such table.
            ProtocolError: the answer does not tell a version.
        """
        path, what = _table_path(table)
        params = {} if starting_timestamp is None else {"startingTimestamp": format_timestamp(starting_timestamp)}
        try:
            version = self._caller.call(
                "GET", (*path, "version"), what, _version_of, params=params, hints=_NO_TABLE
            )
        except RestError as error:
            if starting_timestamp is not None or error.status not in _NO_ENDPOINT:
                raise
            version = self._version_by_head(path, what)  # what servers had before GET .../version
            if version is None:
                raise
        if version is None:
            raise ProtocolError(f"{what}: the answer has no usable {_VERSION_HEADER} header")
        return version

    def _version_by_head(self, path: tuple[str, ...], what: str) -> int | None:
        try:
            return self._caller.call("HEAD", path, what, _version_of, hints=_NO_TABLE)
        except RestError:
            return None

    def table_metadata(
        self,
        table: Table,
        formats: tuple[ResponseFormat, ...] = ANY_FORMAT,
        *,
        version: int | None = None,
        timestamp: str | datetime | date | None = None,
    ) -> TableInfo:
        """Return a table's protocol and metadata ("Query Table Metadata").

        Args:
            table: the table.
            formats: response formats accepted, best first.
            version: the version to describe; the latest without.
            timestamp: the time to describe; not together with `version`.

        Raises:
            VersionMismatchError: the answer is for another version than the one asked for: an older server, which
                describes no version but the latest.
            ProtocolError: the answer breaks the protocol.
            RestError: the server refused.
        """
        path, what = _table_path(table)
        if version is not None and timestamp is not None:
            raise ValueError("version and timestamp cannot be given together")
        params: dict[str, str] = {}
        if check_version(version, "version") is not None:
            params["version"] = str(version)
        if timestamp is not None:
            params["timestamp"] = format_timestamp(timestamp)

        def read(response: Response) -> TableInfo:
            answered = _version_of(response)
            actions = check_time_travel(
                _actions(response, formats, what),
                version=version,
                timestamp=timestamp,
                answered=answered,
                what=what,
            )
            return read_metadata(actions, version=answered, what=what)

        return self._caller.call(
            "GET",
            (*path, "metadata"),
            what,
            read,
            params=params,
            headers={capabilities.HEADER: capabilities.request_capabilities(formats)},
            hints=_NO_TABLE,
        )

    @overload
    def query_table(self, table: Table, request: QueryRequest) -> QueryAnswer[FileAction]: ...
    @overload
    def query_table(self, table: Table, request: QueryRequest, convert: Convert[T]) -> QueryAnswer[T]: ...
    def query_table(
        self, table: Table, request: QueryRequest, convert: Convert[Any] = keep_files
    ) -> QueryAnswer[Any]:
        """Return the files of a table's snapshot, all pages of them ("Read Data from a Table").

        Args:
            table: the table.
            request: what to ask for.
            convert: called once per page attempt with protocol and metadata, returns what is made of each
                file; None leaves a file out. Without it the actions are kept.

        Raises:
            VersionMismatchError: the answer is for another version or a later time than the one asked for, or
                the table changed between two pages.
            ProtocolError: the answer breaks the protocol.
            QueryError: the server failed while answering.
            RestError: the server refused.
        """
        path, what = _table_path(table)
        need_urls(table)
        query = TableQuery(self._caller, path, what, self.options, _NO_TABLE)

        def fetch(asked: QueryRequest, duplicates: DuplicateFiles) -> Page[Any]:
            def read(response: Response, actions: Iterator[Decoded]) -> Page[Any]:
                answered = _version_of(response)
                actions = check_time_travel(
                    actions, version=asked.version, timestamp=asked.timestamp, answered=answered, what=what
                )
                return read_page(actions, version=answered, what=what, convert=convert, duplicates=duplicates)

            return query.page(asked, read)

        page = self._all_pages(request, fetch, what, changes=False)
        protocol, metadata = page.head(what)
        asked = pinned(request.without_hints() if query.hints_refused else request, protocol.response_format)
        return QueryAnswer(page.version, protocol, metadata, page.items, page.end, asked)

    @overload
    def table_changes(
        self, table: Table, request: ChangesRequest | VersionsRequest
    ) -> ChangesAnswer[FileAction]: ...
    @overload
    def table_changes(
        self, table: Table, request: ChangesRequest | VersionsRequest, convert: Convert[T]
    ) -> ChangesAnswer[T]: ...
    def table_changes(
        self, table: Table, request: ChangesRequest | VersionsRequest, convert: Convert[Any] = keep_files
    ) -> ChangesAnswer[Any]:
        """Return the files of a table's changes, all pages of them.

        Those of its change feed ("Read Change Data Feed from a Table"), or those that its versions added and
        removed ("Read Data from a Table" with `startingVersion`), as the request says. Files after the ending
        version asked for are dropped: to the server it is but a hint.

        Args:
            table: the table.
            request: what to ask for.
            convert: as for `query_table`.

        Raises:
            VersionMismatchError: the answer moved to another version between two pages.
            ProtocolError: the answer breaks the protocol.
            QueryError: the server failed while answering.
            RestError: the server refused.
        """
        need_urls(table)
        path, what = _table_path(table)
        query = TableQuery(self._caller, path, what, self.options, _NO_TABLE)

        def fetch(asked: ChangesRequest | VersionsRequest, duplicates: DuplicateFiles) -> Page[Any]:
            def read(response: Response, actions: Iterator[Decoded]) -> Page[Any]:
                return read_page(
                    actions,
                    version=_version_of(response),
                    what=what,
                    convert=convert,
                    duplicates=duplicates,
                    changes=True,
                    ending_version=asked.ending_version,
                )

            if isinstance(asked, VersionsRequest):
                return query.page(asked, read)
            return self._caller.call(
                "GET",
                (*path, "changes"),
                what,
                lambda response: read(response, _actions(response, asked.formats, what)),
                params=asked.params(),
                headers={capabilities.HEADER: capabilities.request_capabilities(asked.formats)},
                hints=_NO_TABLE,
            )

        page: Page[Any] = self._all_pages(request, fetch, what, changes=True)
        protocol, metadata = page.head(what)
        history = tuple(page.historical), tuple(page.protocols)
        asked = pinned(request, protocol.response_format)
        return ChangesAnswer(page.version, protocol, metadata, page.items, page.end, asked, *history)

    def temporary_credentials(self, table: Table, location: str | None = None) -> TemporaryCredentials:
        """Return credentials that open the directory of a table for a while ("temporary-table-credentials").

        Args:
            table: the table.
            location: one of its locations; its own without.

        Raises:
            ProtocolError: the answer is malformed, or holds a credential of an unknown kind.
            RestError: the server refused.
        """
        path, what = _table_path(table)
        answer = self._caller.call(
            "POST",
            (*path, "temporary-table-credentials"),
            what,
            self._caller.json(what),
            body={} if location is None else {"location": location},
            hints=_NO_TABLE,
        )
        return TemporaryCredentials.from_json(answer, what)

    # -- below the endpoints

    def _all_pages(
        self, request: R, fetch: Callable[[R, DuplicateFiles], Page[T]], what: str, *, changes: bool
    ) -> Page[T]:
        """Read an answer page by page; once more from the start if its first URLs expire meanwhile."""
        for _ in range(2):
            duplicates = DuplicateFiles(what, changes=changes)
            whole = fetch(request, duplicates)
            whole.head(what)
            expires = whole.end.min_url_expiration_timestamp if whole.end is not None else None
            tokens: set[str] = set()
            stale = False
            while (token := whole.next_token) and not stale:
                next_page(token, tokens, what)
                whole.append(fetch(replace(request, page_token=token), duplicates), what)
                stale = expires is not None and (time.time() + self._caller.clock_offset) * 1000 >= expires
            if not stale:
                return whole
        raise ProtocolError(
            f"{what}: listing the files takes longer than their URLs live, twice in a row; ask for fewer files "
            "at once, or ask the provider for URLs that live longer"
        )


def _share_path(share: str | Share) -> tuple[tuple[str, ...], str]:
    name = share.name if isinstance(share, Share) else share
    return ("shares", check_name(name, "share")), f"share {name}"


def _table_path(table: Table) -> tuple[tuple[str, ...], str]:
    path, _ = _share_path(table.share)
    schema, name = check_name(table.schema, "schema"), check_name(table.name, "table")
    return (*path, "schemas", schema, "tables", name), f"table {table.full_name}"


def _version_of(response: Response) -> int | None:
    """The answer's `Delta-Table-Version`; None without one that can be read."""
    text = (response.headers.get(_VERSION_HEADER) or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _actions(response: Response, formats: tuple[ResponseFormat, ...], what: str) -> Iterator[Decoded]:
    said = capabilities.parse_capabilities(response.headers.get(capabilities.HEADER))
    return decode_actions(response.chunks(), formats=formats, capabilities=said, what=what)


_FORBIDDEN: Final = "The token is valid, but not for this; ask the provider for access"
_NO_SHARE: Final = {403: _FORBIDDEN, 404: "Check the name with list_shares()"}
_NO_SCHEMA: Final = {403: _FORBIDDEN, 404: "Check the names with list_schemas()"}
_NO_TABLE: Final = {403: _FORBIDDEN, 404: "Check the name with list_all_tables()"}
