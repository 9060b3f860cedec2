"""What a cluster loses it does again, and no row comes twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_processes import Jobs
from test_clusters import expected


@pytest.mark.slow
def test_a_lost_executor_and_a_failed_task_give_no_row_twice(
    local_cluster: Jobs, sample_profile: str, tmp_path: Path
) -> None:
    orders = f"{sample_profile}#retail.sales.orders"
    # Small partitions: some have been read when one of them is broken off, some have not.
    job = {"job": "interrupted", "url": orders, "marks": str(tmp_path), "partition_size": 100_000}
    unbroken = {**expected(orders), "broken": True}
    for told in local_cluster.run({**job, "how": "executor"}, {**job, "how": "task"}):
        assert told.pop("partitions") >= 3
        assert told == unbroken
