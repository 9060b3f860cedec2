"""`SharedRows`: methods of shared tables that load rows, besides those of every table."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

from delta_sharing_client.scan.table_rows import Selection, TableRows
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.wire.requests import Timestamp, format_for

if TYPE_CHECKING:
    import dask.dataframe as dd
    import polars as pl
    import ray.data
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.frames.dataset import SharedDataset
    from delta_sharing_client.scan.options import OnFuture
    from delta_sharing_client.spark.engine import Engine
    from delta_sharing_client.table.table_scan import TableScan


@public_class
class SharedRows(TableRows):
    """Methods that take the arguments of `SharedTable.scan`, and load the rows of that scan."""

    __slots__ = ()

    @abstractmethod
    def scan(self, *args: Any, **kwargs: Any) -> TableScan:
        """Return a scan of the table."""

    def snapshot(
        self,
        limit: int | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        jsonPredicateHints: str | None = None,
        use_delta_format: bool | None = None,
        *,
        on_future: OnFuture = "raise",
    ) -> TableScan:
        """Return a scan of one version, by the names of the official client; arguments as for `load_as_pandas`."""
        given = None, None, limit, version, timestamp, format_for(use_delta_format)
        return self.scan(*given, json_predicate_hints=jsonPredicateHints, on_future=on_future)

    def to_dataset(self, **selection: Unpack[Selection]) -> SharedDataset:
        """Return the rows as a `pyarrow.dataset.Dataset`; see `TableScan.to_dataset`."""
        return self.scan(**selection).to_dataset()

    def to_polars_lazy(self, **selection: Unpack[Selection]) -> pl.LazyFrame:
        """Return the rows as a polars `LazyFrame`; see `TableScan.to_polars_lazy`."""
        return self.scan(**selection).to_polars_lazy()

    def to_dask(
        self,
        *,
        executor_credentials: bool = True,
        partition_size: int | None = None,
        **selection: Unpack[Selection],
    ) -> dd.DataFrame:
        """Return a Dask data frame over the rows; see `TableScan.to_dask`."""
        return self.scan(**selection).to_dask(
            executor_credentials=executor_credentials, partition_size=partition_size
        )

    def to_ray(
        self,
        *,
        executor_credentials: bool = True,
        partition_size: int | None = None,
        **selection: Unpack[Selection],
    ) -> ray.data.Dataset:
        """Return a Ray dataset over the rows; see `TableScan.to_ray`."""
        return self.scan(**selection).to_ray(
            executor_credentials=executor_credentials, partition_size=partition_size
        )

    def to_spark(
        self,
        spark: SparkSession | None = None,
        *,
        engine: Engine = "auto",
        executor_credentials: bool = True,
        partition_size: int | None = None,
        **selection: Unpack[Selection],
    ) -> SparkDataFrame:
        """Return a Spark DataFrame over the rows; see `TableScan.to_spark`."""
        return self.scan(**selection).to_spark(
            spark, engine=engine, executor_credentials=executor_credentials, partition_size=partition_size
        )
