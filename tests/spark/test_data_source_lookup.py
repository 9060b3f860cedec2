"""The module that Spark finds by itself."""

import runpy
from pathlib import Path

import pytest

import delta_sharing_client.spark
from delta_sharing_client.spark import session

MODULE = Path(delta_sharing_client.spark.__file__).parent / "toplevel" / "pyspark_delta_sharing.py"


@pytest.mark.skipif(session.pyspark_version() < (4, 0), reason="Spark 3.5 has no Python data sources")
@pytest.mark.parametrize(("version", "found"), [((4, 0), False), ((4, 1), True), ((5, 0), True)])
def test_spark_finds_no_data_source_that_register_could_not_replace(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], found: bool
) -> None:
    monkeypatch.setattr(session, "pyspark_version", lambda: version)
    assert ("DefaultSource" in runpy.run_path(str(MODULE))) == found
