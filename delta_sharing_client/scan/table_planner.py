"""Planning of a shared table: by the files that the server lists, or by the table's directory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delta_sharing_client.errors import BadRequestError, ForbiddenError, RestError
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.storage_credentials import offers_directory_alone
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan, ServerPlanner

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient

#: Texts of errors of servers that offer a table by its directory only.
_DIRECTORY_ONLY: Final = re.compile(
    r"access.?modes?|temporary.{0,20}credential|\bdir\b|directory.based", re.IGNORECASE
)


@dataclass(frozen=True)
class TablePlanner:
    """Plans scans of a shared table: by URLs if the server offers them, and by the table's directory otherwise.

    A table that was named, not listed, is queried first. If the server refuses because the table is offered
    by its directory, the directory is read.
    """

    rest: RestClient = field(repr=False)
    table: Table

    def plan(self, options: ScanOptions) -> ScanPlan:
        """Plan a scan.

        Raises:
            DirectoryAccessError: the directory cannot be read.
            DeltaSharingError: as `ServerPlanner.plan`.
        """
        if offers_directory_alone(self.table.access_modes):
            return self._plan_directory(options)
        try:
            return ServerPlanner(self.rest, self.table).plan(options)
        except (BadRequestError, ForbiddenError) as error:
            if self.table.access_modes or not _is_directory_only(error):
                raise
            refused = error
        try:
            return self._plan_directory(options)
        except RestError:
            raise refused from None

    def _plan_directory(self, options: ScanOptions) -> ScanPlan:
        # Few tables are offered by their directory; the imports take as long as a request.
        from delta_sharing_client.scan.directory_planner import DirectoryPlanner

        return DirectoryPlanner(self.rest, self.table).plan(options)


def _is_directory_only(error: RestError) -> bool:
    return _DIRECTORY_ONLY.search(f"{error.error_code or ''} {error.server_message or ''}") is not None
