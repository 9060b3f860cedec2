"""The package goes with what Spark sends: workers need not have it, and what they lack is named."""

from __future__ import annotations

import json
import subprocess
import zlib
from pathlib import Path

import pytest
import spark_processes
from waiting import HANG

from delta_sharing_client import __version__
from delta_sharing_client.spark.code_distribution import package_loader, package_source

RUN = """
import sys
from pyspark import cloudpickle
load = cloudpickle.loads(open(sys.argv[1], "rb").read())
{before}
module = load("spark.executor")
print(module.__name__, type(module.__spec__.loader).__name__, load("_version").__version__)
{after}
"""


def run(python: str, folder: Path, load: object, before: str = "", after: str = "", **env: str) -> str:
    from pyspark import cloudpickle

    sent = folder / "sent"
    sent.write_bytes(cloudpickle.dumps(load))
    script = folder / "script.py"
    script.write_text(RUN.format(before=before, after=after))
    done = subprocess.run(
        [python, str(script), str(sent)],
        capture_output=True,
        text=True,
        timeout=HANG,
        cwd=folder,
        env=spark_processes.environment(**env),
    )
    return done.stdout + done.stderr


def test_a_worker_without_the_package_imports_it_from_memory(bare_python: str, tmp_path: Path) -> None:
    said = run(
        bare_python, tmp_path, package_loader(), after='print(load("errors").__file__ if 0 else "still works")'
    )
    assert f"delta_sharing_client.spark.executor FromMemory {__version__}\nstill works\n" in said


def test_texts_beside_the_modules_go_along(bare_python: str, tmp_path: Path) -> None:
    """Without them files in the legacy calendar could not be read there."""
    after = 'print(load("parquet.legacy_calendar").find_zone("Europe/Berlin").standard)'
    assert run(bare_python, tmp_path, package_loader(), after=after).endswith("\n3600\n")


def test_a_worker_with_the_same_release_uses_that(bare_python: str, tmp_path: Path) -> None:
    said = run(bare_python, tmp_path, package_loader(), PYTHONPATH=str(spark_processes.ROOT))
    assert f"delta_sharing_client.spark.executor SourceFileLoader {__version__}" in said


def test_a_worker_with_another_release_uses_the_drivers(bare_python: str, tmp_path: Path) -> None:
    modules = json.loads(zlib.decompress(package_source()))
    modules["delta_sharing_client._version"][1] = '__version__ = "99.0"'
    newer = package_loader(zlib.compress(json.dumps(modules).encode()), "99.0")
    before = "import delta_sharing_client.errors"
    said = run(bare_python, tmp_path, newer, before, PYTHONPATH=str(spark_processes.ROOT))
    assert "delta_sharing_client.spark.executor FromMemory 99.0" in said


def test_a_library_that_a_worker_lacks_is_named(bare_python: str, tmp_path: Path) -> None:
    said = run(bare_python, tmp_path, package_loader(), "sys.modules['tenacity'] = None")
    last = said.strip().splitlines()[-1]
    assert last.startswith("ImportError: Spark's worker, ")
    assert f"cannot import tenacity: say pip install delta-sharing-client=={__version__} on the workers" in last


def test_what_is_sent_is_small_and_whole() -> None:
    modules = json.loads(zlib.decompress(package_source()))
    assert "delta_sharing_client.spark.url_renewal" in modules
    assert modules["delta_sharing_client"][0] is True
    assert not [name for name in modules if ".server" in name]
    assert len(package_source()) < 400_000


@pytest.mark.parametrize("name", ["spark.executor", "spark.url_renewal", "spark.data_source"])
def test_modules_are_those_that_are_imported_here(name: str) -> None:
    import importlib

    assert package_loader()(name) is importlib.import_module(f"delta_sharing_client.{name}")
