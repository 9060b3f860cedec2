"""Planning of a snapshot that was replayed from a Delta log: mirrors, and tables offered by their directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar, TypeVar

from msgspec import structs

from delta_sharing_client.log import Snapshot, deletion_vector_uri
from delta_sharing_client.model.actions import AddFile, FileAction
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.scan.file_tasks import TaskPlanner, scan_spec, split_skipped
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import StorageReader, UrlRenewal
from delta_sharing_client.wire.file_block import FileBlock

F = TypeVar("F", bound=FileAction)


class LogPlanner(RedactedStruct, frozen=True, kw_only=True):
    """Plans scans of one snapshot of a log.

    Attributes:
        table: the table.
        subject: the table, for messages.
        snapshot: the snapshot.
        files: returns the snapshot's files with the ids and URLs by which they are read.
        source: the reader of the files, and what renews their URLs.
        remedy: what to do about a damaged file, for messages.
    """

    redacted_fields: ClassVar = frozenset({"snapshot", "files", "source", "remedy"})

    table: Table
    subject: str
    snapshot: Snapshot
    files: Callable[[], Iterable[AddFile]]
    source: tuple[StorageReader, UrlRenewal | None]
    remedy: str | None = None

    def plan(self, options: ScanOptions) -> ScanPlan:
        """Plan a scan; `version` and `timestamp` of the options are ignored.

        Raises:
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError, FilterError: the projection or the filter does not fit the table.
            DeltaLogError: a file cannot be located.
        """
        snapshot = self.snapshot
        protocol, metadata = snapshot.protocol, snapshot.metadata
        spec = scan_spec(options, protocol, metadata, self.subject)
        files = [] if options.limit == 0 else list(self.files())
        tasks, skipped = split_skipped(TaskPlanner(spec)(FileBlock.of(files)))
        return ScanPlan(
            table=self.table,
            version=snapshot.version,
            protocol=protocol,
            metadata=replace(
                metadata,
                version=snapshot.version,
                size=snapshot.size_in_bytes,
                num_files=len(snapshot.files_as_written),
            ),
            spec=spec,
            tasks=tasks,
            skipped=skipped,
            limit=options.limit,
            source=self.source,
            remedy=self.remedy,
        )


def located(file: F, url_of: Callable[[str], SecretUrl], *, file_id: str, vector_file_id: str | None = None) -> F:
    """Return a file of a log with the ids and URLs by which it and its deletion vector are read.

    `url_of` returns the URL of a data file or deletion vector for its URI in the log.

    Raises:
        DeltaLogError: the storage type of the deletion vector is unknown, or its UUID is no Z85 text.
    """
    vector = file.deletion_vector
    if vector is not None and (uri := deletion_vector_uri(vector)) is not None:
        vector = vector.at(url_of(uri))
    return structs.replace(
        file,
        url=url_of(file.path),
        id=file_id,
        deletion_vector=vector,
        deletion_vector_file_id=vector_file_id,
    )
