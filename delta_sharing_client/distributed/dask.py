"""Scans as Dask data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.distributed.partitions import Partitions
from delta_sharing_client.errors import MissingDependencyError
from delta_sharing_client.frames.pandas import to_pandas
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.scan.file_tasks import project
from delta_sharing_client.spark.executor import decoded_job, read_columns

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd


def to_dask(partitions: Partitions) -> dd.DataFrame:
    """Return a Dask data frame of partitions; see `SharedScan.to_dask`.

    Raises:
        MissingDependencyError: Dask is not installed.
    """
    try:
        import dask.dataframe as dd
    except ImportError:
        raise MissingDependencyError(package="dask", extra="dask", purpose="Loading into Dask") from None
    read = _PartReader(partitions.job)
    frame: dd.DataFrame = dd.from_map(  # type: ignore[no-untyped-call]
        read, partitions.parts, meta=read.frame(iter(())), label="shared-table", enforce_metadata=False
    )
    return frame


@dataclass(frozen=True, repr=False)
class _PartReader:
    """Reads one partition; Dask passes the columns that a query needs."""

    job: bytes

    def __call__(self, part: bytes, columns: Iterable[str] | None = None) -> pd.DataFrame:
        names = None if columns is None else list(columns)
        return self.frame(read_columns(self.job, part, names), names)

    def frame(self, batches: Iterator[pa.RecordBatch], columns: Iterable[str] | None = None) -> pd.DataFrame:
        """Return batches of columns as a frame."""
        spec = decoded_job(self.job).spec
        # Other dtypes depend on the rows, and Dask turns columns of Python objects into strings.
        return to_pandas(batches, arrow_schema(project(spec.output, columns), spec.variant), "pyarrow")
