"""docs/spark.md: its code runs, and its tables and figures are those of the code."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import HANG

import delta_sharing_client as ds
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.spark.code_distribution import code_archive
from delta_sharing_client.spark.job import encode
from delta_sharing_client.spark.native_dataframe import NATIVE_SINCE
from delta_sharing_client.spark.option_parsers import OPTIONS
from delta_sharing_client.spark.partition_plan import MAX_PARTITIONS, MAX_PLAN, MIN_PARTITION_SIZE, PARTITION_SIZE
from delta_sharing_client.spark.session import OLDEST, pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
MB = 1024 * 1024

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


def first_cells(head: str) -> list[str]:
    """The code in the first column of the table whose head begins so."""
    table = PAGE.read_text(encoding="utf-8").split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0]
    lines = table.splitlines()[2:]
    return [name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])]


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    spark: SparkSession, sample_profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if pyspark_version() < (4, 0):
        pytest.skip("Spark 3.5 has no Python data sources")
    text = PAGE.read_text(encoding="utf-8").replace("config.share", sample_profile)
    namespace: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) * 2:
        if pyspark_version() >= NATIVE_SINCE or "# Spark 4.2 and later" not in block:
            exec(block, namespace)
    output = capsys.readouterr().out
    assert "sum(amount)" in output
    assert "address.city" in output or "city" in output
    asian = ds.load_as_arrow(
        f"{sample_profile}#retail.sales.orders", columns=[], filters="region = 'Asia'"
    ).num_rows
    assert f"|{asian:>8}|" in output
    assert namespace["spark"] is not None


def test_the_arguments_are_those_of_the_function() -> None:
    assert set(first_cells("argument")) == set(inspect.signature(ds.load_as_spark).parameters) - {"url"}


def test_the_options_are_those_of_the_data_source() -> None:
    assert first_cells("option") == sorted(OPTIONS, key=first_cells("option").index)
    assert len(first_cells("option")) == len(OPTIONS)


def test_the_figures_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"partitions of about {PARTITION_SIZE // MB} MB" in text
    assert f"as cores if each has {MIN_PARTITION_SIZE // MB} MB, and at most {MAX_PARTITIONS:,}" in text
    assert f"exceeds {MAX_PLAN // MB} MB compressed" in text
    assert f"a zip of it ({code_archive().stat().st_size / 1e6:.1f} MB)" in text
    assert f"| {OLDEST[0]}.{OLDEST[1]} | 4.0 and later |" in text


def test_the_libraries_of_executors_are_those_that_their_modules_import() -> None:
    code = "import sys, delta_sharing_client.spark.executor, delta_sharing_client.spark.executor_url_renewal"
    code += "; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=True)
    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    dependencies = {re.split("[<>=]", text)[0] for text in project["dependencies"]} | {"numpy"}
    listed = PAGE.read_text(encoding="utf-8").split("the libraries for reading (", 1)[1].split(")", 1)[0]
    later = {"pyroaring"}  # imported by the first task with deletion vectors
    assert set(re.findall(r"`(\w+)`", listed)) == dependencies & (set(done.stdout.split()) | later)


def test_a_plan_of_half_a_million_files_keeps_its_urls() -> None:
    import secrets
    import uuid

    from delta_sharing_client.parquet.tasks import FileScanTask
    from delta_sharing_client.spark.job import Part

    def url() -> str:
        return (
            f"https://bucket.s3.eu-central-1.amazonaws.com/warehouse/table/part-00000-{uuid.uuid4()}-c000.parquet"
            "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20240101T000000Z&X-Amz-SignedHeaders=host"
            f"&X-Amz-Expires=3600&X-Amz-Credential=AKIA%2Fs3%2Faws4_request&X-Amz-Signature={secrets.token_hex(32)}"
        )

    tasks = [
        FileScanTask(url=SecretUrl(url()), file_id=secrets.token_hex(32), size=secrets.randbelow(10**8))
        for _ in range(125)
    ]
    assert len(encode(Part(tasks=tasks))) * 4000 < MAX_PLAN
