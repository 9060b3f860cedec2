"""Scans of a mirror: local files, planned, decoded and filtered like shared files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from delta_sharing_client.delta.log import Snapshot, resolve_path
from delta_sharing_client.delta.log.symbolic_links import LinkCheck
from delta_sharing_client.delta.mirror.state import file_id_of, stored_files, tags_of
from delta_sharing_client.delta.table.local_actions import VECTOR_ID
from delta_sharing_client.model.actions import AddFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.log_planner import LogPlanner, located
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.scan import Scan
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.local import LocalStorage


@dataclass(frozen=True)
class MirrorScan(Scan):
    """A scan of a mirror; it sends no request to the server."""

    table: Table
    directory: Path
    snapshot: Snapshot = field(repr=False)
    options: ScanOptions = field(default_factory=ScanOptions)
    _storage: LocalStorage = field(repr=False, compare=False, kw_only=True)
    _rest: RestClient = field(repr=False, compare=False, kw_only=True)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        from delta_sharing_client.parquet.arrow_types import arrow_schema
        from delta_sharing_client.scan.data_skipping import project

        return arrow_schema(project(self.snapshot.metadata.schema, self.options.columns), self.options.variant)

    def plan(self) -> ScanPlan:
        """Return the files of the mirror that must be read; opens none of them.

        Raises:
            ColumnError, FilterError: the projection or the filter does not fit the table.
            UnsupportedTableError: the mirror needs something that this release cannot read.
            DeltaLogError: a file of the mirror, or its folder, is a link.
        """
        planner = LogPlanner(
            table=self.table,
            what=f"the mirror in {self.directory}",
            snapshot=self.snapshot,
            files=self._files,
            source=(self._storage, None),
        )
        return planner.plan(self.options)

    def _files(self) -> Iterator[AddFile]:
        """Yield the files of the mirror; their URLs are local paths."""
        links = LinkCheck(self.directory)
        for file in self.snapshot.files:
            for stored in stored_files(file):
                links.file(self.directory / stored.path)
            vector_id = tags_of(file).get(VECTOR_ID)
            yield located(file, self._url, file_id=file_id_of(file), vector_file_id=vector_id)

    def _url(self, uri: str) -> SecretUrl:
        return SecretUrl(str(resolve_path(self.directory, uri)))

    def _connections(self) -> tuple[RestClient, LocalStorage]:
        return self._rest, self._storage
