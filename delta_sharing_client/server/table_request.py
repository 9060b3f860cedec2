"""A request for one table's data: the client's capabilities, and the limits that the server's options set."""

from __future__ import annotations

from dataclasses import dataclass

from delta_sharing_client.server.capabilities import Capabilities
from delta_sharing_client.server.catalog import ServedTable
from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.problems import Problem, bad_request
from delta_sharing_client.server.sign import Signer

#: The newest reader version that Delta Standalone reads.
_OLD_READER = 1


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """One request for a table's data; `base_url` is `http://host:port`, as the client reached the server."""

    table: ServedTable
    capabilities: Capabilities
    options: ServerOptions
    signer: Signer
    base_url: str

    def need_history(self, subject: str) -> None:
        """Raise `Problem` (400) if history is not shared; `subject` needs it."""
        if not self.options.history:
            raise bad_request(
                f"{subject} is not supported: history is not shared for table {self.table.full_name}."
            )

    def check_old_reader(self) -> None:
        """Raise `Problem` (400) if the imitated reference server's old reader cannot read the table.

        The reference server has two readers. Delta Kernel, the new one, reads snapshots, unless the query has an
        option that it does not support. Delta Standalone, the old one, reads everything else.
        """
        if self.options.imitate != "reference":
            return
        protocol = self.table.log.snapshot().protocol
        if protocol.min_reader_version > _OLD_READER:
            needed = f"({protocol.min_reader_version},{protocol.min_writer_version})"
            raise Problem(
                400,
                "UNSUPPORTED_OPERATION",
                f"Delta protocol version {needed} is too new for this version of Delta Standalone Reader (1,2). "
                "Please upgrade to a newer release.",
            )

    def page_limit(self, max_files: int | None) -> int | None:
        """Return the maximum number of files of an answer; None for no limit.

        The server's own limit applies only to clients that ask for an EndStreamAction or send `maxFiles`: other
        clients cannot page.
        """
        if not self.options.send_end_stream_action:
            return None
        own = self.options.max_files_per_page
        if max_files is None:
            return own if self.capabilities.end_stream_action else None
        return max_files if own is None else min(max_files, own)
