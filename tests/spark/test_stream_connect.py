"""A stream through Spark Connect, whose server does not have the package installed: it is sent what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_processes import SPARK_HOME, Jobs
from test_clusters import expected

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not list((SPARK_HOME / "jars").glob("spark-connect_*.jar")),
        reason="this PySpark comes without a Connect server, as 3.5 does; with its jar the test runs",
    ),
]


def test_it_is_planned_and_read_with_what_was_sent(
    spark_connect: Jobs, sample_profile: str, tmp_path: Path
) -> None:
    orders = f"{sample_profile}#retail.sales.orders"
    (told,) = spark_connect.run({"job": "followed", "url": orders, "folder": str(tmp_path)})
    assert told == [expected(orders)] * 2
