"""Reading a mirror: the files on disk, through the same plan, decoding and filters as shared ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from delta_sharing_client.delta.log import AddFile, Snapshot, resolve_path
from delta_sharing_client.delta.log.symbolic_links import LinkCheck
from delta_sharing_client.delta.mirror.state import data_of, tags_of
from delta_sharing_client.delta.table.local_actions import FILE_ID, VECTOR_ID
from delta_sharing_client.model.actions import AddFile as SharedFile
from delta_sharing_client.model.actions import DeletionVector, Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import TaskPlanner, read_spec, split_skipped
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.pipeline import read_batches
from delta_sharing_client.scan.planner import ScanPlan, bind_query
from delta_sharing_client.scan.scan import Scan
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.local import LocalStorage


@dataclass(frozen=True)
class MirrorScan(Scan):
    """What to read of a mirror; see `Mirror.scan` for the options. Nothing is asked of the server."""

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

        return arrow_schema(project(metadata_of(self.snapshot).schema, self.options.columns), self.options.variant)

    def plan(self) -> ScanPlan:
        """Say which files of the mirror are left to read; opens none of them.

        Raises:
            ColumnError, FilterError: the projection or the filter does not fit the table.
            UnsupportedTableError: the mirror needs something that this release cannot read.
            DeltaLogError: a file of the mirror, or its folder, is a link.
        """
        protocol, metadata = protocol_of(self.snapshot), metadata_of(self.snapshot)
        protocol.check_readable(f"the mirror in {self.directory}")
        options = self.options
        spec = read_spec(metadata, options.columns, bind_query(options, metadata), options.variant, protocol)
        make = TaskPlanner(spec)
        links = LinkCheck(self.directory)
        files = () if options.limit == 0 else self.snapshot.files
        for file in files:
            for data in data_of(file, self.directory):
                links.file(self.directory / data.path)
        tasks, pruned = split_skipped([make(shared_form(file, self.directory)) for file in files])
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


def protocol_of(snapshot: Snapshot) -> Protocol:
    """Return the protocol of a local table in the form of a shared one."""
    raw = snapshot.protocol
    return Protocol(
        raw.min_reader_version, raw.min_writer_version, raw.reader_features, raw.writer_features, "delta"
    )


def metadata_of(snapshot: Snapshot) -> Metadata:
    """Return the metadata of a local table in the form of a shared one."""
    raw = snapshot.metadata
    return Metadata(
        id=raw.id,
        schema_string=raw.schema_string,
        partition_columns=raw.partition_columns,
        configuration=raw.configuration,
    )


def shared_form(file: AddFile, directory: Path) -> SharedFile:
    """Return a file of a local table in the form in which a server would name it; its URL is a local path."""
    tags = tags_of(file)
    vector = file.deletion_vector
    described = None
    if vector is not None:
        local = vector.resolve(directory)
        described = DeletionVector(
            "i" if local is None else "p",
            SecretUrl(vector.path_or_inline if local is None else str(local)),
            int(vector.raw.get("sizeInBytes") or 0),
            vector.cardinality,
            vector.offset,
        )
    return SharedFile(
        SecretUrl(str(resolve_path(directory, file.path))),
        tags.get(FILE_ID, file.path),
        file.partition_values,
        file.size or 0,
        file.stats,
        deletion_vector=described,
        deletion_vector_file_id=tags.get(VECTOR_ID),
    )
