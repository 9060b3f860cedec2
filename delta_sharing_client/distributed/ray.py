"""Scans as Ray datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delta_sharing_client.distributed.partitions import Partitions
from delta_sharing_client.errors import MissingDependencyError
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.spark.executor import read_columns

if TYPE_CHECKING:
    import ray.data

_PART: Final = "part"


def to_ray(partitions: Partitions) -> ray.data.Dataset:
    """Return a Ray dataset of partitions; see `SharedScan.to_ray`.

    Raises:
        MissingDependencyError: Ray is not installed.
    """
    try:
        import ray.data
    except ImportError:
        raise MissingDependencyError(package="ray", extra="ray", purpose="Loading into Ray") from None
    parts = ray.data.from_arrow([pa.table({_PART: [part]}) for part in partitions.parts])
    read = _PartReader(partitions.job, arrow_schema(partitions.columns, partitions.variant))
    dataset: ray.data.Dataset = parts.map_batches(read, batch_size=1, batch_format="pyarrow")
    return dataset


@dataclass(frozen=True, repr=False)
class _PartReader:
    """Reads the partitions of a batch, one after the other."""

    job: bytes
    schema: pa.Schema

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        yield self.schema.empty_table()  # Ray needs the columns of a partition without rows
        for part in batch.column(_PART).to_pylist():
            for rows in read_columns(self.job, part):
                yield pa.Table.from_batches([rows])
