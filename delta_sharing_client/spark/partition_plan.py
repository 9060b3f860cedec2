"""Plans for executors: bin packing of files into partitions, both encoded for Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from delta_sharing_client.errors import SparkError
from delta_sharing_client.model.access_modes import directory_only
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.spark.executor_url_renewal import encode_renewer
from delta_sharing_client.spark.job import Job, Part, encode, with_urls
from delta_sharing_client.transport.url_rules import is_loopback

#: Maximum size of a plan in the function, compressed bytes; a message of Spark Connect has at most 128 MB.
MAX_PLAN: Final = 64 * 1024 * 1024
#: Bytes of files that make one partition, as for files that Spark reads itself.
PARTITION_SIZE: Final = 128 * 1024 * 1024
#: Another partition of fewer bytes costs more time than another core saves.
MIN_PARTITION_SIZE: Final = 4 * 1024 * 1024
#: With more tasks, Spark's scheduler is busier than its executors.
MAX_PARTITIONS: Final = 4000

_UNKNOWN_SIZE: Final = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """How executors read a plan.

    Attributes:
        credentials: whether executors may renew URLs, with the profile's credential.
        partition_size: bytes of files that make one partition; 128 MB if None.
        min_partitions: minimum number of partitions, if the files are large enough; the number of cores if None.
    """

    credentials: bool = True
    partition_size: int | None = None
    min_partitions: int | None = None

    def __post_init__(self) -> None:
        size = self.partition_size
        if size is None:
            return
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"partition_size is an int, of bytes, not {type(size).__name__}")
        if size < 1:
            raise ValueError(f"partition_size is {size}; it takes at least 1 byte")


def pack(
    tasks: Sequence[FileScanTask], cores: int, partition_size: int = PARTITION_SIZE
) -> list[list[FileScanTask]]:
    """Divide files among partitions of about the same size.

    Returns:
        Consecutive runs of `tasks`, none empty, so that collected rows are in the server's order. One per
        `partition_size` bytes, and at least one per core if each has 4 MB; at most 4,000.
    """
    sizes = [task.size or _UNKNOWN_SIZE for task in tasks]
    total = sum(sizes)
    wanted = max(-(-total // partition_size), min(cores, -(-total // MIN_PARTITION_SIZE)), 1)
    count = min(wanted, len(sizes), MAX_PARTITIONS)
    parts: list[list[FileScanTask]] = [[] for _ in range(count)]
    before = 0
    for task, size in zip(tasks, sizes, strict=True):
        # By the middle of the file among all bytes: the neighbours of a large file go to other partitions.
        parts[(2 * before + size) * count // (2 * total)].append(task)
        before += size
    return [part for part in parts if part]


def divide(plan: ScanPlan, cores: int, partition_size: int = PARTITION_SIZE) -> list[Part]:
    """Divide a plan's files among partitions.

    A limit is exact: by the row counts of the statistics, files after it are left out; without them, one partition
    reads files until it has enough rows.
    """
    whole, cut = list(plan.tasks), []
    if plan.limit is not None:
        left = plan.limit
        for number, task in enumerate(plan.tasks):
            rows = task.row_count if task.all_rows_match else None
            if rows is None:
                return [Part(tasks=tuple(plan.tasks), limit=plan.limit)]
            if rows > left or left == 0:
                whole, cut = whole[:number], [Part(tasks=(task,), limit=left)] if left else []
                break
            left -= rows
    return [Part(tasks=tuple(tasks)) for tasks in pack(whole, cores, partition_size)] + cut


def encode_plan(
    rest: RestClient,
    plan: ScanPlan,
    options: ExecutorOptions,
    cores: int | None = None,
    names: tuple[str, ...] | None = None,
) -> tuple[bytes, list[bytes]]:
    """Return a plan's encoded job and partitions.

    A plan that is too large is sent without its URLs, which hardly compress: executors list them. `cores` is the
    number of tasks that can run at a time, by default the cores of this machine. `names` renames the columns.

    Raises:
        SparkError: the plan is still too large, or executors may not list URLs.
        DirectoryAccessError: the table is offered by its directory only, and executors have no credential.
    """
    in_directory = plan.source is not None
    if in_directory:
        if not options.credentials:
            raise directory_only(
                plan.table, "executors need executorCredentials to open it", "a mirror needs none"
            )
        plan = structs.replace(plan, tasks=list(map(_by_path, plan.tasks)))
    cores = options.min_partitions or cores or os.cpu_count() or 1
    parts = divide(plan, cores, options.partition_size or PARTITION_SIZE)
    renewer = None
    if options.credentials:
        bare = structs.replace(plan, spec=ReadSpec(output=StructType(())), tasks=(), skipped={}, limit=None)
        renewer = encode_renewer(rest.profile_elsewhere(), rest.options, bare)
    job = encode(
        Job(
            table=plan.table.full_name,
            spec=plan.spec,
            table_columns=plan.metadata.schema,
            options=rest.options,
            endpoint_is_loopback=is_loopback(rest.profile.endpoint),
            executor_credentials=renewer,
            names=names,
            in_directory=in_directory,
        )
    )
    encoded = encode_parts(parts)
    if encoded is None and options.credentials and not in_directory:
        encoded = encode_parts(map(_without_urls, parts))
    if encoded is None:
        remedy = "fewer of them with filters=" + (
            "" if options.credentials else ", or turn executorCredentials on"
        )
        raise SparkError(
            f"table {plan.table.full_name}: the {len(plan.tasks):,} files make a plan of more than the "
            f"{MAX_PLAN:,} bytes that Spark accepts: read {remedy}"
        )
    return job, encoded


def encode_parts(parts: Iterable[Part]) -> list[bytes] | None:
    """Return the encoded partitions; None as soon as they are too large, so that the rest is not encoded."""
    encoded: list[bytes] = []
    size = 0
    for part in parts:
        encoded.append(encode(part))
        size += len(encoded[-1])
        if size > MAX_PLAN:
            return None
    return encoded


def _by_path(task: FileScanTask) -> FileScanTask:
    """Return a task in a directory without the number of the driver's credentials; executors renew its URLs."""

    def place(_: str, url: SecretUrl) -> SecretUrl:
        return SecretUrl(url.reveal().rpartition(".")[0] + ".0")

    return structs.replace(with_urls(task, place), expiration=0)


def _without_urls(part: Part) -> Part:
    return replace(part, tasks=[with_urls(task, lambda _id, _url: SecretUrl("")) for task in part.tasks])
