"""Code distribution: workers import the package from a zip; errors name missing libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import spark_processes
from waiting import HANG

from delta_sharing_client import __version__
from delta_sharing_client.spark.code_distribution import code_archive, distribute_code
from delta_sharing_client.spark.entry_points import package_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A Python worker of Spark puts the zip at the front of its path before it unpickles a function.
RUN = """
import sys
from pyspark import cloudpickle
sys.path.insert(1, sys.argv[2])
{before}
package_module = cloudpickle.loads(open(sys.argv[1], "rb").read())
module = package_module("spark.executor", {given})
print(module.__name__, type(module.__spec__.loader).__name__, package_module("_version").__version__)
{after}
"""
#: Metadata of an installed release, as pip leaves it.
METADATA = "Metadata-Version: 2.1\nName: delta-sharing-client\nVersion: {}\n"


def run(
    python: str, folder: Path, before: str = "", after: str = "", archive: Path | None = None, given: str = ""
) -> str:
    """Run a worker; return what it prints."""
    from pyspark import cloudpickle

    sent = folder / "sent"
    sent.write_bytes(cloudpickle.dumps(package_module))
    script = folder / "script.py"
    script.write_text(RUN.format(before=before, after=after, given=given))
    done = subprocess.run(
        [python, str(script), str(sent), str(archive or code_archive())],
        capture_output=True,
        text=True,
        timeout=HANG,
        cwd=folder,
        env=spark_processes.environment(),
    )
    return done.stdout + done.stderr


def installed(folder: Path, version: str) -> str:
    """Install a release as a worker's site-packages have it; return a line that puts them on the path."""
    site = folder / "site"
    with zipfile.ZipFile(code_archive()) as archive:
        archive.extractall(site)
    (site / "delta_sharing_client" / "_version.py").write_text(f'__version__ = "{version}"\n')
    information = site / f"delta_sharing_client-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA.format(version))
    return f"sys.path.append({str(site)!r})"


def test_a_worker_without_the_package_imports_it_from_the_zip(bare_python: str, tmp_path: Path) -> None:
    output = run(bare_python, tmp_path, after='print(package_module("errors").__file__)')
    assert f"delta_sharing_client.spark.executor zipimporter {__version__}\n" in output
    assert str(code_archive()) in output


def test_the_zip_has_the_text_files_of_the_package(bare_python: str, tmp_path: Path) -> None:
    """Without them files in the legacy calendar could not be read there."""
    after = 'print(package_module("parquet.legacy_calendar").find_zone("Europe/Berlin").standard)'
    assert run(bare_python, tmp_path, after=after).endswith("\n3600\n")


def test_a_worker_with_the_same_release_uses_the_installed_package(bare_python: str, tmp_path: Path) -> None:
    output = run(bare_python, tmp_path, installed(tmp_path, __version__))
    assert f"delta_sharing_client.spark.executor SourceFileLoader {__version__}\n" in output


def test_a_worker_with_another_release_uses_the_zip(bare_python: str, tmp_path: Path) -> None:
    output = run(bare_python, tmp_path, installed(tmp_path, "99.0"))
    assert f"delta_sharing_client.spark.executor zipimporter {__version__}\n" in output


def test_another_imported_release_raises_an_error_that_names_both(bare_python: str, tmp_path: Path) -> None:
    """A worker that is used again, and that has imported its own release for something else."""
    before = installed(tmp_path, "99.0").replace("append(", "insert(0, ") + "\nimport delta_sharing_client.errors"
    last = run(bare_python, tmp_path, before).strip().splitlines()[-1]
    assert last.startswith("delta_sharing_client.errors.SparkError: Spark's worker, ")
    assert (
        f"has imported delta-sharing-client 99.0, and the driver has {__version__}. Install the same release"
        in last
    )


@pytest.mark.parametrize("above", [True, False])
def test_a_worker_whose_path_names_a_missing_zip_finds_it(bare_python: str, tmp_path: Path, above: bool) -> None:
    """It is in the folder above, or an argument of the pickled function."""
    named = tmp_path / "files" / "streaming_job" / code_archive().name
    named.parent.parent.mkdir()
    if above:
        shutil.copy(code_archive(), named.parent.parent)
    given = "" if above else f"open({str(code_archive())!r}, 'rb').read()"
    output = run(
        bare_python, tmp_path, after='print(package_module("errors").__file__)', archive=named, given=given
    )
    where = named.parent.parent / named.name if above else named
    assert output.endswith(f"\n{where}/delta_sharing_client/errors.py\n")


def test_a_missing_library_is_named_in_the_error(bare_python: str, tmp_path: Path) -> None:
    output = run(bare_python, tmp_path, "sys.modules['httptools'] = None")
    last = output.strip().splitlines()[-1]
    assert last.startswith("ImportError: Spark's worker, ")
    assert (
        f"cannot import httptools: pip install delta-sharing-client=={__version__} (or its wheel) on the workers"
        in last
    )


def test_the_error_without_package_and_zip_names_the_remedy(bare_python: str, tmp_path: Path) -> None:
    last = run(bare_python, tmp_path, archive=tmp_path / "missing.zip").strip().splitlines()[-1]
    assert "cannot import delta_sharing_client" in last
    assert "delta_sharing_client.spark.register(spark) on the driver gives it to the workers" in last


def test_the_zip_is_small_and_holds_what_executors_run() -> None:
    with zipfile.ZipFile(code_archive()) as archive:
        names = archive.namelist()
    assert {"delta_sharing_client/__init__.py", "delta_sharing_client/spark/executor_url_renewal.py"} <= set(names)
    assert {Path(name).suffix for name in names} == {".py", ".txt"}
    assert not [name for name in names if "/server/" in name or "/sinks/" in name]
    assert code_archive().stat().st_size < 700_000


ARCHIVE = """
import os, sys
from delta_sharing_client.spark.code_distribution import code_archive
path = code_archive()
assert path is code_archive()
if os.fork() == 0:
    sys.exit()  # a forked child that ends leaves the zip alone
os.wait()
print(path.name, path.exists(), path, sep="\\n")
"""


def test_the_zip_is_reproducible_and_removed_with_its_process(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(spark_processes.ROOT), "TOKEN": "canary"}
    done = subprocess.run(
        [sys.executable, "-c", ARCHIVE], capture_output=True, text=True, timeout=HANG, env=environment, check=True
    )
    name, existed, path = done.stdout.splitlines()
    assert (name, existed) == (code_archive().name, "True")
    assert not Path(path).parent.exists()


@pytest.mark.parametrize("name", ["spark.executor", "spark.executor_url_renewal", "spark.data_source"])
def test_package_module_returns_the_imported_module(name: str) -> None:
    import importlib

    assert package_module(name) is importlib.import_module(f"delta_sharing_client.{name}")


def test_a_session_gets_the_zip_once_and_the_driver_keeps_its_path(spark: SparkSession) -> None:
    for _ in range(2):
        distribute_code(spark)
        distribute_code(spark.newSession())
    assert spark.sparkContext._python_includes.count(code_archive().name) == 1
    assert not [path for path in sys.path if path.endswith(code_archive().name)]


WAITING = """
import sys
from delta_sharing_client.spark.code_distribution import code_archive
print(code_archive().parent, flush=True)
sys.stdin.read()
"""


def test_folders_of_killed_processes_are_removed_a_day_later(tmp_path: Path) -> None:
    """The folder of a process that runs stays, however old it is."""
    environment = os.environ | {"PYTHONPATH": str(spark_processes.ROOT), "TMPDIR": str(tmp_path)}

    def start() -> tuple[subprocess.Popen[str], Path]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-c", WAITING], env=environment, stdin=pipe, stdout=pipe, text=True
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (running, old), (killed, abandoned), (killed_today, recent) = start(), start(), start()
    for process in (killed, killed_today):
        process.kill()
        process.communicate()
    two_days_ago = time.time() - 2 * 24 * 3600
    for folder in (old, abandoned):
        os.utime(folder, (two_days_ago, two_days_ago))
    last, own = start()
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {old, recent, own}
    for process in (last, running):
        process.communicate()
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {recent}
