"""What travels to the executors: one job for all of a table's partitions, and each partition's files.

Both are compressed, so that no URL stands anywhere as text: Spark shows names of functions and counts of
partitions in its plans, its web pages and its event log, never what these bytes hold.
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
    """What every partition of a table needs.

    Attributes:
        table: the table's name, for messages.
        spec: what to read of each file.
        table_columns: all columns of the table.
        options: time-outs, retries, connections.
        endpoint_is_loopback: whether the sharing server is on this machine; then its files may be too.
        executor_credentials: what renews URLs that expire, the credential in it: the one field by which it
            leaves the driver. None where `executorCredentials` is off.
        names: what to call the columns; as the table does without.
        counting: give rows without columns, as one column of nulls.
        local: the files lie on a disk that the executors see; their URLs are paths.
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
        limit: rows to give at the most.
    """

    tasks: Sequence[FileScanTask]
    limit: int | None = None


def encode(value: Job | Part) -> bytes:
    """Return a job or partition as compressed bytes."""
    return zlib.compress(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), level=6)


def decode(data: bytes) -> Any:
    """Return what `encode` was given; only for bytes that this application's own driver made."""
    return pickle.loads(zlib.decompress(data))  # noqa: S301  # Spark itself sends pickles the same way
