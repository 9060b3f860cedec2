"""Mirrors of golden tables in Spark without delta-spark, compared with the rows of the Arrow loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from golden.test_golden import CASES, READABLE, TABLES, Case
from test_golden_spark import collected, same_rows

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.local_dataframe import mirror_dataframe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[SharingClient]:
    tables = {case.table_name: TABLES / case.name / "table" for case in CASES.values()}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


@pytest.mark.parametrize("case", READABLE)
def test_rows_and_types_of_golden_mirrors_are_those_of_the_arrow_loader(
    spark: SparkSession, client: SharingClient, case: Case, tmp_path: Path
) -> None:
    table = client.table(case.table_name)
    mirror = table.mirror(tmp_path / "mirror")
    mirror.sync(progress=False)
    frame = mirror_dataframe(mirror.scan(variant="json"), spark)
    same_rows(collected(frame), table.scan(variant="json").to_arrow(), case.key)
    assert frame.count() == case.facts["versions"][str(case.latest)]["rows"]
