"""`DeltaLog` and `Snapshot` of the public API: the log of a Delta table, with the rows of its snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.expressions.filters import Filters
from delta_sharing_client.log import log as base
from delta_sharing_client.log import snapshot as replayed
from delta_sharing_client.log.checkpoint_writer import DELETED_FILE_RETENTION
from delta_sharing_client.log.log import OptimisticTransaction
from delta_sharing_client.log.log_segment import LOG_DIRECTORY
from delta_sharing_client.log.store_path import LogPath
from delta_sharing_client.log.table_properties import interval_property, number_property
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import AddFile, Metadata
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.table_rows import TableRows
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.views import html_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.table.snapshot_scan import SnapshotScan

T = TypeVar("T")

logger = module_logger(__name__)


class FileList(tuple[AddFile, ...]):
    """The files of a snapshot; ``snapshot.files(filters=...)`` selects those that may have matching rows."""

    _snapshot: Snapshot

    @classmethod
    def of(cls, snapshot: Snapshot, files: Iterable[AddFile]) -> FileList:
        """Return the files of a snapshot as a list that can be filtered."""
        found = cls(files)
        found._snapshot = snapshot
        return found

    def __call__(self, filters: Filters | None = None) -> tuple[AddFile, ...]:
        """Return the files that may have matching rows, by partition values and statistics; opens none of them.

        Raises:
            ColumnError, FilterError: the filter does not fit the table.
        """
        return tuple(self) if filters is None else self._snapshot.scan([], filters).selected_files()

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


@public_class
@dataclass(eq=False, repr=False, kw_only=True)
class Snapshot(replayed.Snapshot, TableRows):
    """The table at one version, and its rows.

    The methods that load rows (`to_pandas`, `to_arrow`, `to_csv`, `to_spark`, `head`, `count` and the others) take
    the arguments of `scan`, such as ``columns=["id"]``, ``filters="id > 5"``, ``limit=100``.
    """

    @representation
    def _repr_html_(self) -> str:
        count, size = self.state.totals()
        facts = {"version": self.version, "files": count, "bytes": f"{size:,}"}
        parts = [] if self.state.metadata is None else [self.metadata._repr_html_()]
        return html_view(self, str(self.table_path), facts, *parts)

    @cached_property
    def files(self) -> FileList:
        """The table's files, sorted by modification time and path; ``files(filters=...)`` selects some of them.

        Raises:
            DeltaLogError: a file is named by an absolute path, and the log was opened without
                `allow_absolute_paths`.
        """
        return FileList.of(self, super().files)

    def scan(
        self,
        columns: Iterable[str] | None = None,
        filters: Filters | None = None,
        limit: int | None = None,
        *,
        variant: VariantForm = "struct",
    ) -> SnapshotScan:
        """Return a scan of the snapshot; opens no file.

        Args:
            columns: names of the columns, in the order of the result; all by default.
            filters: row filter, as for `SharedTable.scan`.
            limit: maximum number of rows.
            variant: ``struct`` or ``json``, as for `SharedTable.scan`.

        Raises:
            ValueError: an argument is out of range.
            TypeError: an argument is of the wrong type.
        """
        from delta_sharing_client.scan.options import ScanOptions
        from delta_sharing_client.table.snapshot_scan import SnapshotScan

        options = ScanOptions(columns=columns, filters=filters, limit=limit, variant=variant)
        return SnapshotScan(self, options)

    def to_spark(
        self,
        spark: SparkSession | None = None,
        *,
        add_files: Sequence[AddFile] | None = None,
        is_streaming: bool = False,
        **selection: Any,
    ) -> SparkDataFrame:
        """Return a Spark DataFrame over the rows (extra ``spark``).

        Spark's own Parquet reader reads the local files, with projection and filter pushdown. Files that it would
        read differently, files behind URLs, and scans with `filters` or `limit` are read by this package on the
        executors, which must see the files under the same paths.

        Args:
            spark: the session, classic or Connect; by default the active one, or a new local one.
            add_files: files of the snapshot, such as those of ``files(filters=...)``; all by default.
            is_streaming: only False. The flag of Delta's `createDataFrame` marks the files of one micro-batch
                inside a streaming source; no query can be started on such a DataFrame.
            **selection: `columns`, `filters`, `limit` and `variant`, as for `scan`.

        Raises:
            MissingDependencyError: PySpark is not installed.
            FileGoneError: a file is missing.
            DataError: a file is damaged.
            DeltaLogError: the table is in an object store.
            SparkError: Spark cannot be started, or is too old; or `is_streaming` is True.
        """
        return self.scan(**selection).to_spark(spark, add_files=add_files, is_streaming=is_streaming)


@public_class
class DeltaLog(base.DeltaLog):
    """The transaction log of one Delta table; safe to use from several threads.

    Each call lists the directory again, so that new commits are seen. The last few snapshots are cached, and newer
    ones are replayed on top of them.

    Args:
        table: the table's directory, or its URL; it need not exist yet. `for_table` takes options for a URL too,
            and caches the log.
        allow_absolute_paths: see `for_table`.
        any_features: see `for_table`.

    Attributes:
        table_path: the table's directory, with every link resolved, or its place in an object store.
        allow_absolute_paths: whether the log may name files outside that directory.
    """

    _snapshot_type: ClassVar[type[replayed.Snapshot]] = Snapshot

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, str(self.table_path))

    @property
    def data_path(self) -> LogPath:
        """The table's directory, as `table_path`."""
        return self.table_path

    @property
    def log_path(self) -> LogPath:
        """The directory of the log."""
        return self.table_path / LOG_DIRECTORY

    @property
    def metadata(self) -> Metadata:
        """The metadata of the newest version; raises `DeltaTableNotFoundError` without a table."""
        return self.snapshot().metadata

    @property
    def checkpoint_interval(self) -> int:
        """The number of commits from one checkpoint to the next (`delta.checkpointInterval`); 10 by default."""
        return number_property(self.metadata.configuration, "delta.checkpointInterval", base.CHECKPOINT_INTERVAL)

    @property
    def tombstone_retention(self) -> timedelta:
        """How long checkpoints keep removed files (`delta.deletedFileRetentionDuration`); 7 days by default."""
        return interval_property(
            self.metadata.configuration, "delta.deletedFileRetentionDuration", DELETED_FILE_RETENTION
        )

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot; without a table, a snapshot of version -1 without files.

        Raises:
            UnsupportedFeatureError: the table lists unknown reader features.
            DeltaLogError: the log is damaged.
        """
        return cast(Snapshot, super().snapshot())

    def snapshot_at(self, version: int | None = None, timestamp: int | None = None) -> Snapshot:
        """Return the snapshot of a version, or the one that was current at a time.

        Args:
            version: a table version.
            timestamp: milliseconds since the epoch; selects the newest version committed then or before.

        Raises:
            ValueError: both are given, or neither.
            VersionNotFoundError: the table does not have that version, or no longer has it.
            DeltaTableNotFoundError: there is no table.
            DeltaLogError: the log is damaged.
        """
        return cast(Snapshot, super().snapshot_at(version, timestamp))

    def update(self, staleness_acceptable: bool | timedelta = False, *, asynchronous: bool = False) -> Snapshot:
        """Return the newest snapshot, or a recent one.

        Args:
            staleness_acceptable: the maximum age of the last listing of the directory; True for an hour, False for
                a new listing.
            asynchronous: return the snapshot of the last update at once, and update in a background thread; a
                failure there is logged. The first update is never asynchronous.
        """
        seen = self._seen
        if not asynchronous or seen is None:
            return cast(Snapshot, super().update(staleness_acceptable))
        if self._refreshing.acquire(blocking=False):
            try:
                threading.Thread(target=self._refresh, name="delta-sharing-log-update", daemon=True).start()
            except BaseException:
                self._refreshing.release()
                raise
        return cast(Snapshot, seen[1])

    def _refresh(self) -> None:
        try:
            super().update()
        except DeltaSharingError as error:
            logger.warning("the log was not updated: %s", error)
        finally:
            self._refreshing.release()

    def with_new_transaction(self, run: Callable[[OptimisticTransaction], T]) -> T:
        """Call a function with a transaction on the newest version, and return its result.

        Args:
            run: the function, which calls `commit` of the transaction.
        """
        return run(self.start_transaction())
