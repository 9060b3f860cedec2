"""`TableScan`: a snapshot of a shared table, read when a `to_...` method is called."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from delta_sharing_client.paths import local_path
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.options import ScanOptions, with_future_as_latest
from delta_sharing_client.table.shared_scan import SharedScan
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.views import Explanation, html_view

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.delta.mirror.mirror import MirrorScan
    from delta_sharing_client.delta.table.materialize_snapshot import Materialized, MaterializedData
    from delta_sharing_client.frames.dataset import SharedDataset
    from delta_sharing_client.model.actions import Metadata
    from delta_sharing_client.model.schema import StructType
    from delta_sharing_client.scan.planner import ScanPlan
    from delta_sharing_client.spark.engine import Engine
    from delta_sharing_client.table.shared_table import SharedTable


@public_class
@dataclass(frozen=True)
class TableScan(SharedScan):
    """A scan of a table; see `SharedTable.scan` for the options.

    Each `to_...` method requests the table's files from the server, so it reads the latest version unless one is
    given. It fetches the files that can contain a matching row, and returns the rows in the server's order.
    """

    table: SharedTable
    options: ScanOptions

    def replace(self, **changes: Any) -> Self:
        """Return this scan with changed options."""
        return replace(self, options=self.options.replace(**changes))

    def plan(self) -> ScanPlan:
        """Request the files and skip those that cannot match; fetches none of them."""
        from delta_sharing_client.scan.table_planner import TablePlanner

        rest, name = self.table._rest, self.table.name
        return with_future_as_latest(rest, name, self.options, TablePlanner(rest, name).plan)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; requests the table's metadata."""
        from delta_sharing_client.parquet.arrow_types import arrow_schema
        from delta_sharing_client.scan.file_tasks import errors_naming, project

        with errors_naming(f"table {self.name.full_name}"):
            return arrow_schema(project(self.table_schema(), self.options.columns), self.options.variant)

    def metadata(self) -> Metadata:
        """Return the metadata of the table in the scan's version, which the server states for one request."""
        o = self.options
        return self.table.metadata(
            o.version, o.timestamp, response_format=o.response_format, on_future=o.on_future
        )

    def table_schema(self) -> StructType:
        """Return the Delta schema of the table in the scan's version; requests the table's metadata."""
        return self.metadata().schema

    def to_dataset(self) -> SharedDataset:
        """Return the scan as a `pyarrow.dataset.Dataset`, with projection, filter and limit pushdown.

        DuckDB (``SELECT ... FROM dataset WHERE ...``) and others read only the columns, files and row groups that
        their query needs. Conditions that cannot be pushed down are evaluated on the rows. Requests the table's
        metadata; each scan of the dataset requests the files again.

        Raises:
            DeltaSharingError: the metadata cannot be requested, or the scan does not fit the table.
        """
        from delta_sharing_client.frames.dataset import SharedDataset
        from delta_sharing_client.table.pushdown import ScanSource

        return SharedDataset(ScanSource.of(self))

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation over the scan, with projection and filter pushdown (extra ``duckdb``).

        Requests the table's metadata. Each run of the relation requests the files again, and reads the columns,
        files and row groups that it needs. An error while DuckDB reads is raised by DuckDB, with the message of
        this package.

        Args:
            connection: the connection of the relation; DuckDB's default connection if None.

        Raises:
            MissingDependencyError: DuckDB is not installed.
            ColumnError: the scan has no columns; DuckDB has no such relations.
            DeltaSharingError: the metadata cannot be requested, or the scan does not fit the table.
        """
        from delta_sharing_client.frames.duckdb import dataset_relation

        return dataset_relation(self.to_dataset(), connection)

    def to_polars_lazy(self) -> pl.LazyFrame:
        """Return the scan as a polars `LazyFrame`, with projection, filter and limit pushdown (extra ``polars``).

        A query reads only the columns, files and row groups that it needs, batch by batch. Conditions that cannot
        be pushed down are evaluated on the rows. Requests the table's metadata; each query requests the files.

        Raises:
            MissingDependencyError: polars is not installed.
            DeltaSharingError: the metadata cannot be requested, or the scan does not fit the table.
        """
        from delta_sharing_client.frames.polars import to_lazy
        from delta_sharing_client.table.pushdown import ScanSource

        return to_lazy(ScanSource.of(self))

    def materialize(
        self, directory: str | os.PathLike[str], data: MaterializedData = "files", *, progress: bool | None = None
    ) -> Materialized:
        """Write the snapshot to disk as a Delta table with one version; any Delta engine can read it.

        Files are copied whole, so `columns`, `filters` and `limit` are refused; `json_predicate_hints` may skip
        files.

        Args:
            directory: directory of the local table; it must not contain a table.
            data: ``files`` downloads the files. ``urls`` writes a log with their signed URLs, readable for its
                owner only, for `DeltaLog.for_table(directory, allow_absolute_paths=True)` of this package; it is
                valid until the URLs expire, and a `SignedUrlsWarning` is issued.
            progress: show a progress bar; by default only in a terminal or notebook.

        Raises:
            ValueError: the scan has columns, filters or a limit.
            DeltaLogError: the directory contains a table, or cannot be written.
        """
        from delta_sharing_client.delta.table.local_table import LocalTable
        from delta_sharing_client.delta.table.materialize_snapshot import materialize_snapshot

        path = local_path(directory, "directory").resolve()
        options = self.options
        narrowed = {"columns": options.columns, "filters": options.filters, "limit": options.limit}
        refused = [name for name, value in narrowed.items() if value is not None]
        if refused:
            raise ValueError(
                f"materialize copies whole files, and the scan has {' and '.join(refused)}: "
                "leave that out, or load the rows with to_arrow() and write those"
            )
        _, storage = self._connections()
        local = LocalTable(self.table._client(), storage, self.name, path, progress)
        return materialize_snapshot(local, options.request(), data)

    def mirrored(self, directory: str | os.PathLike[str], *, progress: bool | None = None) -> MirrorScan:
        """Sync the mirror in a directory, and return this scan over its local files.

        The scan ignores hints and the response format. A `version` that the mirror already has needs no request.

        Args:
            directory: the mirror's directory; created if it is missing.
            progress: show a progress bar for the download; by default only in a terminal or notebook.

        Raises:
            ValueError: the scan has a timestamp; mirrors are read by version.
            DeltaSharingError: as for `Mirror.sync`.
        """
        options = self.options
        if options.timestamp is not None:
            raise ValueError("a mirror is read by version, and the scan has a timestamp: give a version instead")
        mirror = self.table.mirror(directory)
        if options.version is None or not mirror.holds(options.version):
            mirror.sync(at_version=options.version, progress=progress)
        return mirror.scan_with(options)

    def to_spark(
        self,
        spark: SparkSession | None = None,
        *,
        engine: Engine = "auto",
        executor_credentials: bool = True,
        partition_size: int | None = None,
    ) -> SparkDataFrame:
        """Return a Spark DataFrame over the rows (extra ``spark``); needs no connector jar.

        This method lists the files, so it raises the errors of the query; they are fetched each time Spark runs
        the DataFrame. A variant has Spark's own type (Spark 4), or is text with ``variant="json"``.

        Args:
            spark: the session, classic or Connect; by default the active one, or a new local one.
            engine: ``arrow`` reads the files in Python on the executors; Spark pushes no projection and no filter
                down, so select columns and rows in this scan. ``native`` lets Spark's own Parquet reader read them
                through a gateway in this process, with projection and filter pushdown; it needs a classic session
                of Spark 4.2 or later, and a scan without `filters`. ``auto`` is ``native`` where that is faster:
                in such a session, for a scan without columns, filters, limit and partition size, if most bytes are
                in files of more than 1 MB, and there are at most 1,000 of these. The log (level INFO) has the
                choice.
            executor_credentials: send the profile's credential with the job, so that executors can renew expired
                URLs.
            partition_size: bytes of files per partition; 128 MB by default.

        Raises:
            ValueError: `engine` is unknown, or ``native`` for a scan with filters.
            MissingDependencyError: PySpark is not installed.
            SparkError: Spark cannot be started, is too old, cannot use a gateway, or there are too many files for
                one plan.
        """
        from delta_sharing_client.spark.engine import scan_dataframe
        from delta_sharing_client.spark.partition_plan import ExecutorOptions

        options = ExecutorOptions(credentials=executor_credentials, partition_size=partition_size)
        return scan_dataframe(self._connections(), self.plan, spark, self.options, options, engine)

    def explain(self) -> Explanation:
        """Return a description of what the scan reads: skipped and selected files, and the bytes to fetch.

        Requests the files, and fetches the footers of those of which it reads ranges.
        """
        from delta_sharing_client.scan.file_tasks import SkipReason

        plan = self.plan()
        fetch = plan.estimate_fetch(*self._connections())
        skipped = sum(plan.skipped.values())
        requests = "request" if fetch.requests == 1 else "requests"
        version = "version unknown" if plan.version is None else f"version {plan.version}"
        reasons = (
            f"{plan.skipped.get(SkipReason.PARTITION, 0)} by partition values, "
            f"{plan.skipped.get(SkipReason.STATS, 0)} by statistics"
        )
        listed = f"{len(plan.tasks) + skipped} listed by the server"
        facts = [
            ("table", f"{plan.table.full_name}, {version}, {plan.protocol.response_format} format"),
            ("columns", ", ".join(plan.spec.output.names) or "(none)"),
            ("files", f"{listed}, {skipped} skipped ({reasons}), {len(plan.tasks)} to read"),
            ("bytes", f"{fetch.bytes:,} to fetch of {plan.size:,}, in {fetch.requests} {requests}"),
        ]
        if fetch.ranged_files:
            ranged = f"{fetch.ranged_files} files are read in ranges"
            skipped_groups = f"{fetch.row_groups_skipped} of their {fetch.row_groups} row groups skipped"
            facts.append(("ranges", f"{ranged}: {skipped_groups}"))
        return Explanation.of(facts, [("files to read", len(plan.tasks)), ("files skipped", skipped)])

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, self.name.full_name, self.options.facts())
