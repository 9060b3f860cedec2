"""What a table's scan and its changes can do that a batch of a poller cannot: hand the work to somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_sharing_client.scan.scan import Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession


class SparkScan(Scan):
    """Rows of a table: a scan, or changes."""

    __slots__ = ()

    def to_spark(
        self,
        spark: SparkSession | None = None,
        *,
        executor_credentials: bool = True,
        partition_size: int | None = None,
    ) -> SparkDataFrame:
        """Return a Spark DataFrame over the rows (extra ``spark``); needs no connector jar.

        The files are listed now, so that errors of the query show here, and fetched by the executors each time
        Spark runs the DataFrame. Spark pushes no projection and no filter down, so say what to read here. A
        variant becomes Spark's own type (Spark 4), or text with ``variant="json"``.

        Args:
            spark: the session, classic or Connect; without it the active one, or a new local one.
            executor_credentials: let executors renew URLs that expire before they are used; the profile's
                credential then travels with the job.
            partition_size: bytes of files that make one partition; 128 MB without.

        Raises:
            MissingDependencyError: PySpark is not installed.
            SparkError: Spark cannot be started, is too old, or there are too many files for one plan.
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        from delta_sharing_client.spark.frame import to_dataframe

        rest, _ = self._connections()
        return to_dataframe(
            rest,
            self.plan,
            spark=spark,
            executor_credentials=executor_credentials,
            partition_size=partition_size,
        )
