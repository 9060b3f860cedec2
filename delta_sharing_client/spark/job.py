"""Jobs and partitions as they are sent to the executors: pickled and compressed.

Spark shows names of functions and numbers of partitions in its plans, web pages and event log, but not these
bytes; compressed, they contain no URL as text.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from delta_sharing_client.model.schema import StructType
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec


@dataclass(frozen=True, kw_only=True)
class Job:
    """The part of a plan that all of its partitions share.

    Attributes:
        table: the table's name, for messages.
        spec: columns, filter and types to read.
        table_columns: all columns of the table.
        options: time-outs, retries, connections.
        endpoint_is_loopback: whether the sharing server is on this machine; then its files may be too.
        executor_credentials: a pickled `Renewal`, with the credential: the only field through which it leaves the
            driver. None if `executorCredentials` is off.
        names: names of the columns, if not those of the table.
        counting: return rows without columns, as one column of nulls.
        local: URLs are paths of a disk that the executors share.
    """

    table: str
    spec: ReadSpec
    table_columns: StructType
    options: TransportOptions
    endpoint_is_loopback: bool
    executor_credentials: bytes | None = field(default=None, repr=False)
    names: tuple[str, ...] | None = None
    counting: bool = False
    local: bool = False


@dataclass(frozen=True, kw_only=True)
class Part:
    """One partition.

    Attributes:
        tasks: its files, in order.
        limit: maximum number of rows.
    """

    tasks: Sequence[FileScanTask]
    limit: int | None = None


def encode(value: Job | Part) -> bytes:
    """Return a job or partition as compressed bytes."""
    return zlib.compress(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), level=6)


def decode(data: bytes) -> Any:
    """Return the job or partition that `encode` encoded; only for bytes of this application's own driver."""
    return pickle.loads(zlib.decompress(data))  # noqa: S301  # Spark itself sends pickles the same way
