"""REST client that answers for tables shared by their directory from their logs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from delta_sharing_client.errors import RestError
from delta_sharing_client.model.access_modes import offers_directory_alone
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import ChangeRequest, RestClient
from delta_sharing_client.scan.table_planner import REFUSED, described
from delta_sharing_client.wire.answers import Answer, Convert, TableInfo, keep_files
from delta_sharing_client.wire.requests import ANY_FORMAT, QueryRequest

if TYPE_CHECKING:
    from delta_sharing_client.scan.directory_log import DirectoryLog

T = TypeVar("T")


class TableClient(RestClient):
    """Client of one sharing server that reads tables by URL or by directory, as the server offers them.

    A table that was named, not listed, is requested by URL first. If the server refuses that, the access modes in
    its metadata, or else in the listing of its schema, determine whether the directory is read.

    Args:
        rest: the client whose connections it uses.
    """

    def __init__(self, rest: RestClient) -> None:
        self.__dict__.update(rest.__dict__)
        self._plain = rest
        self._logs: dict[str, DirectoryLog | None] = {}

    def table_version(self, table: Table, starting_timestamp: str | datetime | date | None = None) -> int:
        """Return a table's version; see `RestClient.table_version`."""
        return self._read(
            table,
            lambda rest: rest.table_version(table, starting_timestamp),
            lambda log: log.version(starting_timestamp),
        )

    def table_metadata(
        self,
        table: Table,
        formats: tuple[ResponseFormat, ...] = ANY_FORMAT,
        *,
        version: int | None = None,
        timestamp: str | datetime | date | None = None,
    ) -> TableInfo:
        """Return a table's protocol and metadata; see `RestClient.table_metadata`."""
        return self._read(
            table,
            lambda rest: rest.table_metadata(table, formats, version=version, timestamp=timestamp),
            lambda log: log.info(version, timestamp),
        )

    def query_table(
        self, table: Table, request: QueryRequest, convert: Convert[Any] = keep_files
    ) -> Answer[Any, QueryRequest]:
        """Return the files of a snapshot; see `RestClient.query_table`."""
        return self._read(
            table,
            lambda rest: rest.query_table(table, request, convert),
            lambda log: log.query(request, convert),
            lists=True,
        )

    def table_changes(
        self, table: Table, request: ChangeRequest, convert: Convert[Any] = keep_files
    ) -> Answer[Any, ChangeRequest]:
        """Return the files of changes; see `RestClient.table_changes`."""
        return self._read(
            table,
            lambda rest: rest.table_changes(table, request, convert),
            lambda log: log.changes(request, convert),
            lists=True,
        )

    def _read(
        self,
        table: Table,
        by_url: Callable[[RestClient], T],
        by_log: Callable[[DirectoryLog], T],
        *,
        lists: bool = False,
    ) -> T:
        """Answer by URL or by directory; only a listing of files shows that a table is shared by URL."""
        key = table.full_name.lower()
        if key not in self._logs and offers_directory_alone(table.access_modes):
            self._logs[key] = self._log(table)
        known = self._logs.get(key)
        if known is not None:
            return by_log(known)
        try:
            answer = by_url(self._plain)
        except RestError as error:
            if key in self._logs or table.access_modes or error.status not in REFUSED:
                raise
            refused = error
        else:
            if lists:
                self._logs[key] = None
            return answer
        found = described(self._plain, table)
        if found is None or not offers_directory_alone(found.access_modes):
            self._logs[key] = None
            raise refused
        log = self._logs[key] = self._log(found)
        return by_log(log)

    def _log(self, table: Table) -> DirectoryLog:
        # Few tables are offered by their directory; the imports take as long as a request.
        from delta_sharing_client.scan.directory_log import DirectoryLog

        return DirectoryLog(self._plain, table)
