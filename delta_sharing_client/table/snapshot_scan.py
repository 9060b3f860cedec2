"""`SnapshotScan`: the rows of a snapshot of a Delta log, read when a `to_...` method is called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from delta_sharing_client.delta.table.local_actions import FILE_ID
from delta_sharing_client.errors import SparkError
from delta_sharing_client.log import resolve_path
from delta_sharing_client.log.paths import is_absolute
from delta_sharing_client.log.store_path import StorePath, local_directory
from delta_sharing_client.log.symbolic_links import LinkCheck
from delta_sharing_client.model.actions import AddFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.file_tasks import errors_naming, project
from delta_sharing_client.scan.log_planner import LogPlanner, located
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.scan import Scan
from delta_sharing_client.secrets import SecretUrl, unsigned_url
from delta_sharing_client.storage.local import LogFileReader, is_web
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.views import html_view

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.table.delta_log import Snapshot


@dataclass(frozen=True)
class _LogTable(Table):
    """A table that is named by its directory."""

    @property
    def full_name(self) -> str:
        return self.name


@public_class
@dataclass(frozen=True)
class SnapshotScan(Scan):
    """A scan of a snapshot of a Delta log; made by `Snapshot.scan`.

    Attributes:
        snapshot: the snapshot.
        options: columns, filters and limit.
    """

    snapshot: Snapshot
    options: ScanOptions
    _add_files: Sequence[AddFile] | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        with errors_naming(self._subject):
            return arrow_schema(project(self.snapshot.metadata.schema, self.options.columns), self.options.variant)

    def plan(self) -> ScanPlan:
        """Return the files that must be read; opens none of them.

        Raises:
            DeltaTableNotFoundError: there is no table.
            ColumnError, FilterError: the projection or the filter does not fit the table.
            UnsupportedTableError: the table needs something that this release cannot read.
            DeltaLogError: a file is outside the table's directory, or is a link.
        """
        planner = LogPlanner(
            table=_LogTable(str(self.snapshot.table_path), "", ""),
            subject=self._subject,
            snapshot=self.snapshot,
            files=self._files,
            source=(self._reader(), None),
        )
        return planner.plan(self.options)

    @property
    def _subject(self) -> str:
        return f"the table in {self.snapshot.table_path}"

    def selected_files(self) -> tuple[AddFile, ...]:
        """Return the files of the log that may have matching rows; opens none of them."""
        selected = {task.url.reveal() for task in self.plan().tasks}
        return tuple(file for file in self._listed() if self._url(file.path).reveal() in selected)

    def to_spark(
        self,
        spark: SparkSession | None = None,
        *,
        add_files: Sequence[AddFile] | None = None,
        is_streaming: bool = False,
    ) -> SparkDataFrame:
        """Return a Spark DataFrame over the rows; see `Snapshot.to_spark`."""
        if is_streaming:
            raise SparkError(
                "a snapshot has fixed files, so a DataFrame over them is no stream: leave out is_streaming, or "
                "follow a shared table with spark.readStream.format('deltaSharing')"
            )
        from delta_sharing_client.spark.local_dataframe import local_dataframe

        scan = self if add_files is None else replace(self, _add_files=tuple(add_files))
        directory = local_directory(self.snapshot.table_path)
        return local_dataframe(scan.plan, directory, TransportOptions(), self.options.variant, spark)

    @representation
    def _repr_html_(self) -> str:
        facts = self.options.facts() | {"version": self.snapshot.version}
        return html_view(self, str(self.snapshot.table_path), facts)

    def _connections(self) -> tuple[None, LogFileReader]:
        return None, self._reader()

    def _reader(self) -> LogFileReader:
        table = self.snapshot.table_path
        if isinstance(table, StorePath):
            return LogFileReader(TransportOptions(), table.store)
        return LogFileReader(TransportOptions())

    def _listed(self) -> Sequence[AddFile]:
        return self.snapshot.files if self._add_files is None else self._add_files

    def _files(self) -> Iterator[AddFile]:
        """Yield the files with the paths or URLs by which they are read."""
        table = self.snapshot.table_path
        unchecked = self.snapshot.allow_absolute_paths or isinstance(table, StorePath)
        links = None if unchecked else LinkCheck(local_directory(table))
        for file in self._listed():
            if links is not None:
                links.file(resolve_path(local_directory(table), file.path))
            tags = file.raw.get("tags") or {}
            named = unsigned_url(SecretUrl(file.path)) if is_absolute(file.path) else unquote(file.path)
            yield located(file, self._url, file_id=str(tags.get(FILE_ID) or named))

    def _url(self, uri: str) -> SecretUrl:
        url = SecretUrl(uri)
        if is_web(url):
            return url
        table = self.snapshot.table_path
        if isinstance(table, StorePath):
            return SecretUrl(table.store.resolve(uri, absolute=self.snapshot.allow_absolute_paths))
        return SecretUrl(os.fspath(resolve_path(table, uri)))
