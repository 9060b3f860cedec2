"""What the first load of a process imports, and what it requests before its imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from loading_tables import File, column, write_table
from waiting import HANG

from delta_sharing_client.server import SharingServer

ROOT = Path(__file__).parents[2]
OURS = "delta_sharing_client"

#: What no plain load imports, with the reason for which another one does.
UNUSED = {
    "IPython": "views in notebooks",
    "asyncio": "the embedded server",
    "difflib": "messages about unknown names",
    "filelock": "mirrors, sinks, the token cache",
    "fractions": "filters",
    "fsspec": "profiles of other schemes, logs in object stores",
    "html": "views in notebooks",
    "polars": "to_polars",
    "pyarrow.dataset": "to_dataset, Parquet files of more than one directory",
    "pyroaring": "deletion vectors",
    "pyspark": "to_spark",
    "sqlglot": "filters in SQL",
    "starlette": "the embedded server",
    "tqdm": "progress bars",
    f"{OURS}.auth.oauth": "profiles with a token endpoint",
    f"{OURS}.auth.user_tokens": "signing in as a person",
    f"{OURS}.cdf": "changes",
    f"{OURS}.delta": "mirrors, local logs",
    f"{OURS}.expressions.binding": "filters",
    f"{OURS}.expressions.hints": "filters",
    f"{OURS}.expressions.predicates": "filters",
    f"{OURS}.expressions.statistics": "filters",
    f"{OURS}.iceberg": "Iceberg catalogs",
    f"{OURS}.parquet.deletion_vector": "deletion vectors",
    f"{OURS}.parquet.residual_filter": "filters",
    f"{OURS}.parquet.variant": "variants",
    f"{OURS}.scan.directory_log": "tables that are shared by directory",
    f"{OURS}.scan.file_filter": "filters",
    f"{OURS}.server": "the embedded server",
    f"{OURS}.sinks": "sinks",
    f"{OURS}.spark": "to_spark",
    f"{OURS}.storage.directory": "tables that are shared by directory",
}

#: Waits in the import of pandas until a second connection is opened: the first one requests the files' URLs, the
#: second one a file.
GATE = """
import sys, threading
from importlib.machinery import PathFinder

connections, second = [], threading.Event()

def count(event, arguments):
    if event == "socket.connect":
        connections.append(event)
        if len(connections) == 2:
            second.set()

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name != "pandas":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            print(second.wait(float(sys.argv[1])))
            run(module)

        spec.loader.exec_module = exec_module
        return spec

sys.addaudithook(count)
sys.meta_path.insert(0, Gate())
"""


@pytest.fixture(scope="module")
def url(serve: Callable[..., SharingServer], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("first")
    columns = [column("id", "long"), column("name", "string")]
    write_table(folder / "t", columns, [File(rows=pa.table({"id": [1, 2], "name": ["a", "b"]}), name="1.parquet")])
    profile = serve({"s.s.t": folder / "t"}).write_profile(folder / "p.share")
    return f"{profile}#s.s.t"


@pytest.fixture(scope="module")
def partitioned(serve: Callable[..., SharingServer], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with partition values, statistics, and a deletion vector; two of its three rows are left."""
    folder = tmp_path_factory.mktemp("partitioned")
    kinds = {"id": "long", "name": "string", "flag": "boolean", "price": "decimal(5,2)", "at": "timestamp"}
    partitions = {"day": "date", "sum": "decimal(5,2)", "hour": "timestamp", "kind": "string", "n": "integer"}
    columns = [column(name, kind) for name, kind in {**kinds, **partitions}.items()]
    files = []
    for number in (1, 2):
        rows = pa.table(
            {
                "id": [number, number + 1],
                "name": ["a", "b"],
                "flag": [False, True],
                "price": pa.array([None, Decimal("2.50")], pa.decimal128(5, 2)),
                "at": pa.array([datetime(2024, 1, day, tzinfo=UTC) for day in (1, 3)], pa.timestamp("us", "UTC")),
            }
        )
        times = {"at": f"2024-01-0{number}T00:00:00.000Z", "id": number}
        stats = {"numRecords": 2, "minValues": times, "maxValues": times | {"at": "2024-01-09T00:00:00.000Z"}}
        values = {"day": f"2024-01-0{number}", "sum": "1.25", "hour": "2024-01-01 01:00:00", "kind": "x", "n": "1"}
        files.append(File(rows=rows, name=f"{number}.parquet", values=values, stats=stats, vector=[0]))
    write_table(folder / "t", columns, files, partitions=[*partitions], features=["deletionVectors"])
    profile = serve({"s.s.t": folder / "t"}).write_profile(folder / "p.share")
    return f"{profile}#s.s.t"


def run(code: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True, text=True, check=False, timeout=2 * HANG, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_modules(call: str, url: str) -> set[str]:
    """Load a table in a fresh process, and return the modules that it has imported.

    tenacity imports tornado, and that asyncio and more, where it is installed, as it is for notebooks.
    """
    code = f"""
import datetime, json, sys
sys.modules["tornado"] = None
import {OURS} as ds
from decimal import Decimal
assert len(ds.{call})"""
    return set(json.loads(run(code.replace("URL", repr(url)) + "\nprint(json.dumps([*sys.modules]))")))


@pytest.mark.parametrize("call", ["load_as_pandas(URL, limit=10)", "load_as_arrow(URL)"])
def test_a_plain_load_imports_what_it_uses(url: str, call: str) -> None:
    assert loaded_modules(call, url) & UNUSED.keys() == set()


def test_what_a_plain_load_does_not_import_exists() -> None:
    code = f"import importlib.util as u, sys\nprint([n for n in {[*UNUSED]!r} if u.find_spec(n) is None])"
    assert run(code) == "[]\n"


@pytest.mark.parametrize("call", ["load_as_arrow(URL)", "load_as_polars(URL)"])
def test_only_loads_to_pandas_import_pandas(url: str, call: str) -> None:
    assert "pandas" not in loaded_modules(call, url)


@pytest.mark.parametrize(
    "filters",
    [
        None,
        [("day", ">=", date(2024, 1, 2)), ("sum", "=", Decimal("1.25")), ("kind", "=", "x"), ("n", "in", [1, 2])],
        [("at", ">=", datetime(2024, 1, 2, tzinfo=UTC)), ("price", ">", Decimal("1.5")), ("name", "=", "b")],
        [("id", "in", [2, 3]), ("flag", "=", True), ("name", "not in", ["a"])],
    ],
)
def test_no_load_to_arrow_imports_pandas(partitioned: str, filters: object) -> None:
    """pyarrow would, to convert a Python value: partition values, literals, bounds, deleted rows."""
    assert "pandas" not in loaded_modules(f"load_as_arrow(URL, filters={filters!r})", partitioned)


def test_files_are_requested_before_pandas_is_imported(url: str) -> None:
    code = f"{GATE}\nimport {OURS} as ds\nassert len(ds.load_as_pandas({url!r})) == 2"
    assert run(code, str(HANG)) == "True\n"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_a_small_file_starts_no_threads_of_arrow(url: str) -> None:
    """A process that ended right after they had started was aborted, one time in a hundred."""
    code = f"""
import os, threading
import numpy, pyarrow.parquet
import {OURS} as ds

def native():
    return len(os.listdir("/proc/self/task")) - threading.active_count()

before = native()
assert len(ds.load_as_arrow({url!r})) == 2
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
for _ in range(1000):  # a thread of Python ends a moment after its object
    if native() == before or threading.Event().wait(0.01):
        break
print(native() - before)
"""
    assert run(code).split() == ["0"]
