"""Planning of a shared table: by the files that the server lists, or by the table's directory."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from delta_sharing_client.errors import DeltaSharingError, NotFoundError, RestError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.access_modes import offers_directory_alone
from delta_sharing_client.model.names import Schema, Table
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan, ServerPlanner

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient

logger = module_logger(__name__)

#: Statuses by which a server may refuse a query of a table that it offers by its directory only.
REFUSED: Final = frozenset({400, 403, 405, 501})


class TablePlanner(Struct, frozen=True):
    """Plans scans of a shared table: by URLs if the server offers them, and by the table's directory otherwise.

    A table that was named, not listed, is queried first. If the server refuses, the access modes in its metadata,
    or else in the listing of its schema, determine whether the directory is read.
    """

    rest: RestClient
    table: Table

    def plan(self, options: ScanOptions) -> ScanPlan:
        """Plan a scan.

        Raises:
            DirectoryAccessError: the directory cannot be read, or names files that no credentials open.
            VersionNotFoundError: the directory does not have that version (any more).
            DeltaLogError: the log in the directory is damaged.
            DeltaSharingError: as `ServerPlanner.plan`.
        """
        if offers_directory_alone(self.table.access_modes):
            return self._plan_directory(self.table, options)
        try:
            return ServerPlanner(self.rest, self.table).plan(options)
        except RestError as error:
            if self.table.access_modes or error.status not in REFUSED:
                raise
            refused = error
        found = described(self.rest, self.table)
        if found is None or not offers_directory_alone(found.access_modes):
            raise refused
        return self._plan_directory(found, options)

    def _plan_directory(self, table: Table, options: ScanOptions) -> ScanPlan:
        """Plan a scan by the log in the table's directory, with temporary credentials of the server."""
        # Few tables are offered by their directory; the imports take as long as a request.
        from delta_sharing_client.scan.directory_log import DirectoryLog
        from delta_sharing_client.scan.log_planner import LogPlanner

        log = DirectoryLog(self.rest, table)
        snapshot = log.snapshot(options.version, options.timestamp, options.on_future)
        planner = LogPlanner(
            table=table,
            subject=log.subject,
            snapshot=snapshot,
            files=lambda: log.located(snapshot.files_as_written),
            source=(log.reader, log.files),
        )
        return planner.plan(options)


def described(rest: RestClient, table: Table) -> Table | None:
    """Return a table with its access modes and locations; None if the server does not describe it."""
    try:
        metadata = rest.table_metadata(table).metadata
        return replace(
            table,
            access_modes=metadata.access_modes,
            location=metadata.location,
            auxiliary_locations=metadata.auxiliary_locations,
        )
    except NotFoundError:
        return None
    except DeltaSharingError as error:
        logger.info("%s; looking for its access modes in the listing of its schema", error)
    name = table.name.lower()
    with contextlib.suppress(DeltaSharingError):
        tables = rest.list_tables(Schema(table.schema, table.share))
        return next((listed for listed in tables if listed.name.lower() == name), None)
    return None
