"""Jobs and partitions as they are sent to the executors: pickled and compressed.

Spark shows names of functions and numbers of partitions in its plans, web pages and event log, but not these
bytes; compressed, they contain no URL as text.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.fetch import vector_key
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl


@dataclass(frozen=True, kw_only=True)
class Job:
    """The part of a plan that all of its partitions share.

    Attributes:
        table: the table's name, for messages.
        spec: columns, filter and types to read.
        table_columns: all columns of the table.
        options: time-outs, retries, connections; without headers, which only the sharing server may receive.
        endpoint_is_loopback: whether the sharing server is on this machine; then its files may be too.
        executor_credentials: a pickled `HostUrlRenewer` or `HostDirectory`, with the credential: the only field
            through which it leaves the driver. None if `executorCredentials` is off.
        names: names of the columns, if not those of the table.
        local: the files are those of a local log: on a disk that the executors share, or behind URLs that no
            server renews.
        in_directory: URLs are paths in the table's directory, which executors open with credentials of their own.
    """

    table: str
    spec: ReadSpec
    table_columns: StructType
    options: TransportOptions
    endpoint_is_loopback: bool
    executor_credentials: bytes | None = field(default=None, repr=False)
    names: tuple[str, ...] | None = None
    local: bool = False
    in_directory: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", replace(self.options, headers={}))


@dataclass(frozen=True, kw_only=True)
class Part:
    """One partition.

    Attributes:
        tasks: its files, in order.
        limit: maximum number of rows.
    """

    tasks: Sequence[FileScanTask]
    limit: int | None = None


def with_urls(task: FileScanTask, url_of: Callable[[str, SecretUrl], SecretUrl]) -> FileScanTask:
    """Return a task with other URLs for its data file and its deletion vectors.

    `url_of` returns the new URL, from the id under which it is renewed and the present URL.
    """

    def changed(vector: DeletionVector, vector_id: str | None) -> DeletionVector:
        if vector.is_inline:
            return vector
        return structs.replace(
            vector, path_or_inline=url_of(vector_key(task.file_id, vector_id), vector.path_or_inline)
        )

    selection = task.selection
    return structs.replace(
        task,
        url=url_of(task.file_id, task.url),
        deletion_vector=task.deletion_vector and changed(task.deletion_vector, task.deletion_vector_id),
        selection=selection and structs.replace(selection, vector=changed(selection.vector, selection.vector_id)),
    )


def encode(value: Job | Part) -> bytes:
    """Return a job or partition as compressed bytes."""
    return zlib.compress(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), level=6)


def decode(data: bytes) -> Any:
    """Return the job or partition that `encode` encoded; only for bytes of this application's own driver."""
    return pickle.loads(zlib.decompress(data))  # noqa: S301  # Spark itself sends pickles the same way
