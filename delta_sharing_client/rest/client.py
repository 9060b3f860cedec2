"""REST client of the sharing protocol: one method per endpoint.

A request is retried as a whole: an answer is used only after it has been decoded to its end.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final, Self, TypeAlias, TypeVar, overload

from msgspec import structs

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.provider import provider_for, with_bearer_token
from delta_sharing_client.errors import ProtocolError, RestError
from delta_sharing_client.fork_safe import ForkAware, ForkSafeLock
from delta_sharing_client.model.access_modes import need_urls
from delta_sharing_client.model.actions import FileAction, ResponseFormat
from delta_sharing_client.model.capabilities import HEADER, parse_capabilities
from delta_sharing_client.model.names import Schema, Share, Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.model.storage_credentials import TemporaryCredentials
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.async_query import TableQuery
from delta_sharing_client.rest.calls import VERSION_HEADER, Caller, version_of
from delta_sharing_client.rest.missing_names import listed, names_checked
from delta_sharing_client.rest.resources import (
    Resource,
    changes_advice,
    schema_resource,
    share_resource,
    snapshot_advice,
    table_resource,
)
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.rest_transport import ApiTransport
from delta_sharing_client.transport.retry import Retrier
from delta_sharing_client.transport.tls import TlsContext
from delta_sharing_client.wire.answers import (
    Answer,
    AnswerReader,
    Convert,
    TableInfo,
    keep_files,
    read_metadata,
)
from delta_sharing_client.wire.decoder import Decoded
from delta_sharing_client.wire.requests import (
    ANY_FORMAT,
    ChangesRequest,
    QueryRequest,
    VersionsRequest,
    check_version,
    format_timestamp,
)

T = TypeVar("T")
ChangeRequest: TypeAlias = ChangesRequest | VersionsRequest
R = TypeVar("R", QueryRequest, ChangeRequest)

#: Tables whose metadata is kept in memory.
_MAX_TABLES: Final = 256
#: Statuses of servers that lack an endpoint.
_NO_ENDPOINT: Final = frozenset({404, 405, 501})


class RestClient:
    """Client of one sharing server; thread-safe.

    Its methods raise `RestError` for an error status, `ProtocolError` for an answer that breaks the protocol,
    `QueryError` for an error within an answer, and `TransportError` if there is no answer.

    Args:
        profile: endpoint and credential.
        options: time-outs, retries, connections.
        transport: sends the requests; by default one for the profile and the options.
        retrier: retries them; by default one for the options.
        tls: the TLS context of the connections; by default one for the options.
        credential_provider: returns tokens in place of the profile's credential.

    Raises:
        InsecureUrlError: the credential would be sent over plain http.
    """

    _transport: ApiTransport | None = None  # so that `close` works if the constructor has failed

    def __init__(
        self,
        profile: Profile,
        options: TransportOptions | None = None,
        *,
        transport: ApiTransport | None = None,
        retrier: Retrier | None = None,
        tls: TlsContext | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self.profile = profile
        self.options = options = options or TransportOptions()
        self.tls = tls or TlsContext(options)
        self._transport = transport or ApiTransport(
            profile.endpoint, provider_for(profile, options, credential_provider, self.tls), options, self.tls
        )
        self.authorizer = self._transport.authorize
        self.known_tables = KnownTables()
        self._caller = Caller(self._transport, retrier or Retrier(options), options.max_results)

    @representation
    def __repr__(self) -> str:
        return f"RestClient({self._caller.transport.endpoint})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the pooled connections."""
        if self._transport is not None:
            self._transport.close()

    def profile_elsewhere(self) -> Profile:
        """Return a profile for another process; the token of a `credential_provider` becomes a bearer token.

        Raises:
            TokenError: the provider returns no token.
        """
        return with_bearer_token(self.profile, self.authorizer)

    @property
    def clock_offset(self) -> timedelta:
        """Offset of the server's clock to this machine's, from the `Date` header of its last answer."""
        return timedelta(seconds=self._caller.clock_offset)

    def list_shares(self, *, max_results: int | None = None) -> Iterator[Share]:
        """Yield the shares of the recipient ("List Shares"); listings request pages of `max_results` lazily.

        `max_results` is that of the options if it is None. With 0 a listing has no items.
        """
        return self._items(Share.from_json, Resource(("shares",), "the shares", {}), max_results)

    def list_schemas(self, share: str | Share, *, max_results: int | None = None) -> Iterator[Schema]:
        """Yield the schemas of a share ("List Schemas in a Share")."""
        return self._items(Schema.from_json, share_resource(share).at("schemas"), max_results)

    def list_tables(self, schema: Schema, *, max_results: int | None = None) -> Iterator[Table]:
        """Yield the tables of a schema ("List Tables in a Schema")."""
        return self._items(Table.from_json, schema_resource(schema).at("tables"), max_results)

    def list_all_tables(self, share: str | Share, *, max_results: int | None = None) -> Iterator[Table]:
        """Yield the tables of all schemas of a share ("List all Tables in a Share").

        If the server lacks that endpoint, the tables of each schema are listed.
        """
        tables = self._caller.items(Table.from_json, share_resource(share).at("all-tables"), max_results)
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

    def _items(
        self, build: Callable[[Mapping[str, Any]], T], resource: Resource, max_results: int | None
    ) -> Iterator[T]:
        return listed(self._caller, self.options, resource, self._caller.items(build, resource, max_results))

    def get_share(self, name: str) -> Share:
        """Return one share by its name, in any case ("Get Share")."""
        resource = share_resource(name)
        with names_checked(self._caller, self.options, resource):
            share = self._caller.call_json("GET", resource).get("share")
        if not isinstance(share, dict):
            raise ProtocolError(f"{resource.subject}: the answer has no object 'share'")
        return Share.from_json(share)

    def table_version(self, table: Table, starting_timestamp: str | datetime | date | None = None) -> int:
        """Return a table's version ("Query Table Version").

        Args:
            table: the table.
            starting_timestamp: requests the first version at or after this time instead of the latest one.
        """
        resource = table_resource(table)
        params: dict[str, str] = {}
        if starting_timestamp is not None:
            params["startingTimestamp"] = time = format_timestamp(starting_timestamp, "starting_timestamp")
            remedy = f"The first version at or after {time} was requested: request an earlier time"
            resource = resource.with_advice(400, remedy)
        with names_checked(self._caller, self.options, resource):
            version = self._version(resource, params)
        if version is None:
            raise ProtocolError(f"{resource.subject}: the answer has no usable {VERSION_HEADER} header")
        return version

    def _version(self, resource: Resource, params: dict[str, str]) -> int | None:
        try:
            return self._caller.call("GET", resource.at("version"), version_of, params=params)
        except RestError as error:
            if params or error.status not in _NO_ENDPOINT:
                raise
            with contextlib.suppress(RestError):  # servers without GET .../version answer HEAD
                version = self._caller.call("HEAD", resource, version_of)
                if version is not None:
                    return version
            raise

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
            formats: accepted response formats, in the order of preference.
            version: the version to describe; None for the latest.
            timestamp: the time to describe; not together with `version`.

        Raises:
            VersionMismatchError: the answer is for another version than the requested one; older servers describe
                the latest version only.
        """
        request = QueryRequest(formats=formats, version=check_version(version, "version"), timestamp=timestamp)
        resource = table_resource(table).with_advice(400, snapshot_advice(version, timestamp))

        def read(response: Response, actions: Iterator[Decoded]) -> TableInfo:
            return read_metadata(actions, request=request, version=version_of(response), subject=resource.subject)

        with names_checked(self._caller, self.options, resource):
            return self._caller.get_actions(resource.at("metadata"), request, read)

    @overload
    def query_table(self, table: Table, request: QueryRequest) -> Answer[FileAction, QueryRequest]: ...
    @overload
    def query_table(self, table: Table, request: QueryRequest, convert: Convert[T]) -> Answer[T, QueryRequest]: ...
    def query_table(
        self, table: Table, request: QueryRequest, convert: Convert[Any] = keep_files
    ) -> Answer[Any, QueryRequest]:
        """Return the files of a table's snapshot, of all pages ("Read Data from a Table").

        Args:
            table: the table.
            request: the query.
            convert: called once per page attempt with protocol and metadata; returns the function that converts
                the files, or None if the answer is of no use: then it is not `complete`. By default the actions
                are returned.

        Raises:
            VersionMismatchError: the answer is for another version or a later time than requested, or the table
                changed between two pages.
        """
        return self._files(table, request, convert, snapshot_advice(request.version, request.timestamp))

    @overload
    def table_changes(self, table: Table, request: ChangeRequest) -> Answer[FileAction, ChangeRequest]: ...
    @overload
    def table_changes(
        self, table: Table, request: ChangeRequest, convert: Convert[T]
    ) -> Answer[T, ChangeRequest]: ...
    def table_changes(
        self, table: Table, request: ChangeRequest, convert: Convert[Any] = keep_files
    ) -> Answer[Any, ChangeRequest]:
        """Return the files of a table's changes, of all pages.

        The request selects the change feed ("Read Change Data Feed from a Table"), or the files that versions
        added and removed ("Read Data from a Table" with `startingVersion`). Files after the requested ending
        version are dropped, because servers may ignore it.

        Args:
            table: the table.
            request: the range of changes.
            convert: as for `query_table`.
        """
        return self._files(table, request, convert, changes_advice(request))

    def _files(self, table: Table, request: R, convert: Convert[Any], remedy: str | None) -> Answer[Any, R]:
        need_urls(table)
        if request.max_files is None:
            request = structs.replace(request, max_files=self.options.max_files)
        resource = table_resource(table).with_advice(400, remedy)
        query = TableQuery(self._caller, resource, self.options)

        def fetch(wanted: R, reader: AnswerReader[Any, R]) -> Answer[Any, R]:
            def read(response: Response, actions: Iterator[Decoded]) -> Answer[Any, R]:
                of_view = parse_capabilities(response.headers.get(HEADER)).changes_of_view
                return reader.read_page(actions, version=version_of(response), of_view=of_view)

            if isinstance(wanted, ChangesRequest):
                return self._caller.get_actions(resource.at("changes"), wanted, read)
            return query.page(wanted, read)

        with names_checked(self._caller, self.options, resource):
            answer = self._caller.all_pages(request, fetch, resource.subject, convert)
        if query.hints_refused and isinstance(request, QueryRequest):
            request = request.without_hints()
        return structs.replace(answer, request=request.in_format(answer.protocol.response_format))

    def temporary_credentials(self, table: Table, location: str | None = None) -> TemporaryCredentials:
        """Return temporary credentials for a table's directory ("temporary-table-credentials").

        Args:
            table: the table.
            location: one of its locations; None for its main one.
        """
        resource = table_resource(table)
        body = {} if location is None else {"location": location}
        with names_checked(self._caller, self.options, resource):
            answer = self._caller.call_json("POST", resource.at("temporary-table-credentials"), body=body)
        return TemporaryCredentials.from_json(answer, resource.subject)


class KnownTables(ForkAware):
    """The metadata of the tables that one client queried last. May be used by several threads.

    It may be outdated: hints for the server are made of it, and the metadata of the answer confirms them.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._tables: OrderedDict[Table, TableInfo] = OrderedDict()
        super().__init__()

    def get(self, table: Table) -> TableInfo | None:
        """Return the metadata of a table; None if it is not known."""
        with self._lock:
            return self._tables.get(table)

    def put(self, table: Table, info: TableInfo) -> None:
        """Keep the metadata of a table; beyond 256 tables the one queried longest ago is removed."""
        with self._lock:
            self._tables[table] = info
            self._tables.move_to_end(table)
            if len(self._tables) > _MAX_TABLES:
                self._tables.popitem(last=False)

    def after_fork(self) -> None:
        """Know no table."""
        self._tables = OrderedDict()
