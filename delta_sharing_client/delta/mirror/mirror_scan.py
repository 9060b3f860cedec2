"""Scans of a mirror: local files, planned, decoded and filtered like shared files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from delta_sharing_client.delta.log import AddFile, Snapshot, resolve_path
from delta_sharing_client.delta.log.symbolic_links import LinkCheck
from delta_sharing_client.delta.mirror.state import data_of, file_id_of, tags_of
from delta_sharing_client.delta.table.local_actions import VECTOR_ID
from delta_sharing_client.model.actions import AddFile as SharedFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import TaskPlanner, read_spec, split_skipped
from delta_sharing_client.scan.log_files import shared_file
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.pipeline import read_batches
from delta_sharing_client.scan.planner import ScanPlan, bind_query
from delta_sharing_client.scan.scan import Scan
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.local import LocalStorage
from delta_sharing_client.wire.file_block import FileBlock


@dataclass(frozen=True)
class MirrorScan(Scan):
    """A scan of a mirror, which sends no request to the server; see `Mirror.scan` for the options."""

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
        protocol, metadata = self.snapshot.protocol, self.snapshot.metadata
        protocol.check_readable(f"the mirror in {self.directory}")
        options = self.options
        spec = read_spec(metadata, options.columns, bind_query(options, metadata), options.variant, protocol)
        links = LinkCheck(self.directory)
        files = () if options.limit == 0 else self.snapshot.files
        for file in files:
            for data in data_of(file, self.directory):
                links.file(self.directory / data.path)
        shared = FileBlock.of([self._shared(file) for file in files])
        tasks, pruned = split_skipped(TaskPlanner(spec)(shared))
        return ScanPlan(
            table=self.table,
            version=self.snapshot.version,
            protocol=protocol,
            metadata=metadata,
            spec=spec,
            tasks=tasks,
            pruned=pruned,
            limit=options.limit,
        )

    def _shared(self, file: AddFile) -> SharedFile:
        """Return a file of the mirror as a file of an answer; its URL is a local path."""
        vector_id = tags_of(file).get(VECTOR_ID)
        return shared_file(file, self._url, file_id=file_id_of(file), vector_file_id=vector_id)

    def _url(self, uri: str) -> SecretUrl:
        return SecretUrl(str(resolve_path(self.directory, uri)))

    def _connections(self) -> tuple[RestClient, LocalStorage]:
        return self._rest, self._storage

    def _batches(
        self, plan: ScanPlan, progress: Any, memory_budget: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        return read_batches(
            plan.tasks,
            plan.spec,
            self._storage,
            limit=plan.limit,
            table_columns=plan.metadata.schema,
            memory_budget=memory_budget,
            progress=progress,
        )
