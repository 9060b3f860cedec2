"""Bin packing of files into partitions of similar size, in the server's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delta_sharing_client.parquet.tasks import FileScanTask

#: Bytes of files that make one partition, as for files that Spark reads itself.
PARTITION_SIZE: Final = 128 * 1024 * 1024
#: Another partition of fewer bytes costs more time than another core saves.
MIN_PARTITION_SIZE: Final = 4 * 1024 * 1024
#: With more tasks, Spark's scheduler is busier than its executors.
MAX_PARTITIONS: Final = 4000

_UNKNOWN_SIZE: Final = 16 * 1024 * 1024


def partition_count(sizes: Sequence[int], cores: int, partition_size: int = PARTITION_SIZE) -> int:
    """Return the number of partitions for files.

    Args:
        sizes: bytes of each file.
        cores: tasks that can run at a time.
        partition_size: bytes of files that make one partition.

    Returns:
        One per `partition_size` bytes, and at least one per core if each has 4 MB; at most one per file, and at
        most 4,000.
    """
    total = sum(sizes)
    wanted = max(_parts(total, partition_size), min(cores, _parts(total, MIN_PARTITION_SIZE)), 1)
    return min(wanted, len(sizes), MAX_PARTITIONS)


def pack(
    tasks: Sequence[FileScanTask], cores: int, partition_size: int = PARTITION_SIZE
) -> list[list[FileScanTask]]:
    """Divide files among partitions of about the same size; see `partition_count`.

    Returns:
        Consecutive runs of `tasks`, none empty, so that collected rows are in the server's order.
    """
    sizes = [task.size or _UNKNOWN_SIZE for task in tasks]
    total = sum(sizes)
    count = partition_count(sizes, cores, partition_size)
    parts: list[list[FileScanTask]] = [[] for _ in range(count)]
    before = 0
    for task, size in zip(tasks, sizes, strict=True):
        # By the middle of the file among all bytes: the neighbours of a large file go to other partitions.
        parts[(2 * before + size) * count // (2 * total)].append(task)
        before += size
    return [part for part in parts if part]


def _parts(size: int, part: int) -> int:
    return -(-size // part)
