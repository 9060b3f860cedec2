"""`SharedScan`: base class of scans and changes of shared tables, which Spark can load, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_sharing_client.scan.scan import Scan
from delta_sharing_client.tracebacks import public_class

if TYPE_CHECKING:
    import dask.dataframe as dd
    import ray.data
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.distributed.partitions import Partitions
    from delta_sharing_client.model.names import Table
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.storage.byte_source import StorageReader
    from delta_sharing_client.table.shared_table import SharedTable


@public_class
class SharedScan(Scan):
    """Rows of a shared table: a scan, or changes.

    Attributes:
        table: the table.
    """

    __slots__ = ()

    table: SharedTable

    @property
    def name(self) -> Table:
        """The table's three names."""
        return self.table.name

    def _connections(self) -> tuple[RestClient, StorageReader]:
        return self.table._rest, self.table._storage

    def to_spark(
        self,
        spark: SparkSession | None = None,
        *,
        executor_credentials: bool = True,
        partition_size: int | None = None,
    ) -> SparkDataFrame:
        """Return a Spark DataFrame over the rows (extra ``spark``); needs no connector jar.

        This method lists the files, so it raises the errors of the query; the executors fetch them each time Spark
        runs the DataFrame. Spark pushes no projection and no filter down: select columns and rows in this scan. A
        variant has Spark's own type (Spark 4), or is text with ``variant="json"``.

        Args:
            spark: the session, classic or Connect; by default the active one, or a new local one.
            executor_credentials: send the profile's credential with the job, so that executors can renew expired
                URLs.
            partition_size: bytes of files per partition; 128 MB by default.

        Raises:
            MissingDependencyError: PySpark is not installed.
            SparkError: Spark cannot be started, is too old, or there are too many files for one plan.
        """
        from delta_sharing_client.spark.frame import to_dataframe
        from delta_sharing_client.spark.partition_plan import ExecutorOptions

        options = ExecutorOptions(credentials=executor_credentials, partition_size=partition_size)
        return to_dataframe(self._connections()[0], self.plan, spark, options)

    def to_dask(self, *, executor_credentials: bool = True, partition_size: int | None = None) -> dd.DataFrame:
        """Return a Dask data frame over the rows (extra ``dask``), with projection pushdown.

        This method lists the files, so it raises the errors of the query; Dask's workers fetch them each time the
        frame is computed, and only the columns that it needs. Dask pushes no filter down: select rows in this
        scan. The columns have pandas' dtypes for Arrow, because these are the same in all partitions.

        Args:
            executor_credentials: as for `to_spark`.
            partition_size: as for `to_spark`.

        Raises:
            MissingDependencyError: Dask is not installed.
            SparkError: there are too many files for one plan.
        """
        from delta_sharing_client.distributed.dask import to_dask

        return to_dask(self._partitions(executor_credentials, partition_size))

    def to_ray(self, *, executor_credentials: bool = True, partition_size: int | None = None) -> ray.data.Dataset:
        """Return a Ray dataset over the rows (extra ``ray``).

        This method lists the files, so it raises the errors of the query; Ray's workers fetch them each time the
        dataset is read. Ray pushes no projection and no filter down: select columns and rows in this scan. Ray is
        started on this machine if it is not running.

        Args:
            executor_credentials: as for `to_spark`.
            partition_size: as for `to_spark`.

        Raises:
            MissingDependencyError: Ray is not installed.
            SparkError: there are too many files for one plan.
        """
        from delta_sharing_client.distributed.ray import to_ray

        return to_ray(self._partitions(executor_credentials, partition_size))

    def _partitions(self, executor_credentials: bool, partition_size: int | None) -> Partitions:
        from delta_sharing_client.distributed.partitions import Partitions
        from delta_sharing_client.spark.partition_plan import ExecutorOptions

        options = ExecutorOptions(credentials=executor_credentials, partition_size=partition_size)
        return Partitions.of(self._connections()[0], self.plan(), options)
