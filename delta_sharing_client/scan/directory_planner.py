"""Planning of scans of tables that a server offers by their directory: the client replays the log in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from delta_sharing_client.model.names import Table
from delta_sharing_client.scan.directory_log import DirectoryLog
from delta_sharing_client.scan.log_planner import LogPlanner
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient


class DirectoryPlanner(Struct, frozen=True):
    """Plans scans of a table by the log in its directory, with temporary credentials of the server."""

    rest: RestClient
    table: Table

    def plan(self, options: ScanOptions) -> ScanPlan:
        """Replay the log and plan a scan.

        Raises:
            DirectoryAccessError: the directory cannot be opened, or names files that no credentials open.
            VersionNotFoundError: the table does not have that version (any more).
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError, FilterError: the projection or the filter does not fit the table.
            DeltaLogError: the log is damaged.
            DeltaSharingError: the server gives no credentials, or the store cannot be read.
        """
        log = DirectoryLog(self.rest, self.table)
        snapshot = log.snapshot(options.version, options.timestamp, options.on_future)
        planner = LogPlanner(
            table=self.table,
            what=log.what,
            snapshot=snapshot,
            files=lambda: log.located(snapshot.files_as_written),
            source=(log.reader, log.files),
        )
        return planner.plan(options)
