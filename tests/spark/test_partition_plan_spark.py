"""Bin packing of files into partitions: their number, their order, and limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from delta_sharing_client.model.actions import DeletionVector, Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.spark import partition_plan
from delta_sharing_client.spark.job import Part, encode
from delta_sharing_client.spark.partition_plan import (
    MAX_PARTITIONS,
    MIN_PARTITION_SIZE,
    PARTITION_SIZE,
    ExecutorOptions,
    divide,
    encode_parts,
    pack,
)

MB = 1024 * 1024


def files(*sizes: int, rows: int | None = 10) -> list[FileScanTask]:
    return [
        FileScanTask(url=SecretUrl(f"https://host/{i}?sig=s"), file_id=str(i), size=size, num_records=rows)
        for i, size in enumerate(sizes)
    ]


def plan(tasks: list[FileScanTask], limit: int | None) -> ScanPlan:
    return ScanPlan(
        table=Table("t", "s", "d"),
        version=1,
        protocol=Protocol(1),
        metadata=Metadata(id="m", schema_string='{"type":"struct","fields":[]}'),
        spec=ReadSpec(output=StructType(())),
        tasks=tasks,
        skipped={},
        limit=limit,
    )


def counts(sizes: list[int], cores: int, **options: Any) -> list[int]:
    return [len(part) for part in pack(files(*sizes), cores, **options)]


def test_many_small_files_make_as_many_partitions_as_there_are_cores() -> None:
    assert counts([MB * 13 // 100] * 400, cores=2) == [200, 200]
    assert counts([MB * 13 // 100] * 400, cores=8) == [50] * 8


def test_cores_are_not_used_for_less_than_four_megabytes_each() -> None:
    assert counts([1000] * 50, cores=16) == [50]
    assert counts([MB] * 9, cores=16) == [3, 3, 3]


def test_large_files_stand_alone() -> None:
    assert counts([900 * MB, 900 * MB, 900 * MB], cores=2) == [1, 1, 1]
    assert counts([MB, 1024 * MB, MB], cores=2) == [1, 1, 1]


def test_files_below_the_partition_size_share_a_partition() -> None:
    assert counts([16 * MB] * 32, cores=2) == [8, 8, 8, 8]
    assert counts([16 * MB] * 32, cores=2, partition_size=32 * MB) == [2] * 16


def test_the_number_of_partitions_has_a_maximum() -> None:
    assert len(pack(files(*[200 * MB] * 9000), 8)) == MAX_PARTITIONS


def test_files_of_unknown_size_count_as_sixteen_megabytes() -> None:
    assert counts([0] * 16, cores=1) == [8, 8]


def test_no_files_make_no_partition() -> None:
    assert pack([], 4) == []


@given(
    st.lists(st.integers(0, 3 * PARTITION_SIZE), max_size=60),
    st.integers(1, 64),
    st.integers(MIN_PARTITION_SIZE, 4 * PARTITION_SIZE),
)
def test_every_file_is_read_once_and_in_order(sizes: list[int], cores: int, partition_size: int) -> None:
    tasks = files(*sizes)
    parts = pack(tasks, cores, partition_size)
    assert [task for part in parts for task in part] == tasks
    assert all(parts)
    assert len(parts) <= max(len(tasks), 1)


def test_a_limit_cuts_off_files_whose_rows_are_known() -> None:
    parts = divide(plan(files(*[64 * MB] * 10), limit=25), cores=4)
    assert [task.file_id for part in parts for task in part.tasks] == ["0", "1", "2"]
    assert [part.limit for part in parts] == [None, None, 5]


def test_a_limit_that_ends_with_a_file_needs_no_counting() -> None:
    parts = divide(plan(files(*[64 * MB] * 10), limit=20), cores=4)
    assert [task.file_id for part in parts for task in part.tasks] == ["0", "1"]
    assert all(part.limit is None for part in parts)


def test_a_limit_beyond_the_table_takes_all_of_it() -> None:
    parts = divide(plan(files(*[64 * MB] * 10), limit=1000), cores=4)
    assert sum(len(part.tasks) for part in parts) == 10
    assert all(part.limit is None for part in parts)


def test_a_limit_of_zero_reads_no_file() -> None:
    assert divide(plan(files(MB), limit=0), cores=4) == []


def test_deleted_rows_do_not_count_for_a_limit() -> None:
    vector = DeletionVector("i", SecretUrl("x"), 1, cardinality=9)
    tasks = [structs.replace(task, deletion_vector=vector) for task in files(*[64 * MB] * 10)]
    parts = divide(plan(tasks, limit=3), cores=4)
    assert [task.file_id for part in parts for task in part.tasks] == ["0", "1", "2"]


@pytest.mark.parametrize("how", ["unknown", "filtered"])
def test_a_limit_without_row_counts_makes_one_partition(how: str) -> None:
    tasks = files(*[64 * MB] * 10, rows=None if how == "unknown" else 10)
    if how == "filtered":
        tasks = [structs.replace(task, all_rows_match=False) for task in tasks]
    (part,) = divide(plan(tasks, limit=7), cores=4)
    assert (part.limit, len(part.tasks)) == (7, 10)


@pytest.mark.parametrize(
    ("size", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_invalid_partition_sizes_raise(size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="partition_size"):
        ExecutorOptions(partition_size=size)


def test_encoding_ends_as_soon_as_a_plan_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is too large is encoded again without URLs; its cost must not double with its size."""
    parts = [Part(tasks=tuple(files(1, 2))) for _ in range(100)]
    size = len(encode(parts[0]))
    monkeypatch.setattr(partition_plan, "MAX_PLAN", 10 * size)
    assert encode_parts(parts[:10]) == [encode(parts[0])] * 10
    left = iter(parts)
    assert encode_parts(left) is None
    assert len(list(left)) == 89
