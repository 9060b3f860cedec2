"""The benchmarks return correct results: tiny tables, this client only, no timing."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from waiting import run_program

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = ("data", "store", "cases", "measure")


class Bench:
    """The modules of the benchmarks, their tables, and a store that serves them without delay."""

    def __init__(self, modules: dict[str, ModuleType], running: Any, profile: Path) -> None:
        self.data, self.store, self.measure = modules["data"], modules["store"], modules["measure"]
        self.cases: dict[str, Any] = modules["cases"].cases("tiny")
        self.running = running
        self.profile = profile

    def run(self, name: str, client: str = "ours") -> dict[str, Any]:
        """Run a case; return counts and sums of its result, and the counters of the store."""
        self.store.counters(self.running.base, reset=True)
        result = self.measure.run(client, self.cases[name], str(self.profile), "tiny")
        return {**self.measure.describe(result), **self.store.counters(self.running.base)}

    def table(self, name: str) -> pa.Table:
        """The rows of the files of a table, with the partition values."""
        parts = []
        for entry in self.data.read_manifest(name, "tiny")["files"]:
            part = pq.read_table(self.data.table_dir(name, "tiny") / entry["name"], partitioning=None)
            for column, value in entry["partitionValues"].items():
                part = part.append_column(column, pa.repeat(value, len(part)))
            parts.append(part)
        return pa.concat_tables(parts)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTA_SHARING_BENCH_DATA", str(directory / "data"))
        patch.syspath_prepend(str(BENCHMARKS))
        modules = {name: importlib.import_module(name) for name in MODULES}
        try:
            modules["data"].make("tiny")
            with modules["store"].running_store("tiny", latency=0.0, bandwidth=None) as running:
                profile = directory / "bench.share"
                running.write_profile(profile)
                yield Bench(modules, running, profile)
        finally:
            for name in MODULES:
                sys.modules.pop(name, None)


def sums_of(table: pa.Table, columns: Any) -> dict[str, int]:
    return {name: pc.sum(table.column(name)).as_py() for name in columns}


@pytest.mark.parametrize(
    ("name", "client"),
    [
        *((name, "ours") for name in ("small", "large", "columns", "local-arrow", "local-tiny")),
        *((name, client) for name in ("small", "columns") for client in ("ours-arrow", "ours-polars", "polars")),
    ],
)
def test_whole_tables_have_the_rows_and_sums_of_the_manifest(bench: Bench, name: str, client: str) -> None:
    result = bench.run(name, client)
    case = bench.cases[name]
    manifest = bench.data.read_manifest(case.table, "tiny")
    assert result["rows"] == manifest["rows"]
    assert result["columns"] == (14 if case.columns is None else len(case.columns))
    assert result["sums"] == {column: manifest["sums"][column] for column in result["sums"]}
    assert result["sums"]


def test_the_manifest_describes_the_tables(bench: Bench) -> None:
    for name in ("small", "large", "partitioned"):
        manifest = bench.data.read_manifest(name, "tiny")
        table = bench.table(name)
        assert table.num_rows == manifest["rows"]
        assert sums_of(table, manifest["sums"]) == manifest["sums"]


@pytest.mark.parametrize(
    ("page", "heading"),
    [("README.md", "\n### Beside polars\n"), ("docs/performance.md", "\n## Compared with polars\n")],
)
def test_the_tables_beside_polars_have_its_cases_with_a_command(bench: Bench, page: str, heading: str) -> None:
    text = (BENCHMARKS.parent / page).read_text("utf-8").split(heading)[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[0]] == ["case", "polars", "here, to Arrow", "to polars", "to pandas"]
    for name, *figures in lines[2:]:
        assert "polars" in bench.cases[name.strip(" `")].clients
        assert all(re.search(r"\d", figure) for figure in figures)
    assert "compare.py --clients ours,polars" in " ".join(text.split())


@pytest.mark.parametrize("name", ["partition", "rows"])
def test_filters_return_exactly_the_matching_rows(bench: Bench, name: str) -> None:
    case = bench.cases[name]
    compare = {">=": pc.greater_equal, "<=": pc.less_equal, ">": pc.greater}
    expected = bench.table(case.table)
    for column, op, value in case.filters:
        expected = expected.filter(compare[op](expected.column(column), value))
    result = bench.run(name)
    assert result["rows"] == expected.num_rows > 0
    assert result["sums"] == sums_of(expected, result["sums"])


def test_polars_reads_the_files_that_the_server_lists(bench: Bench) -> None:
    load = bench.measure.prepared("polars", bench.cases["columns"], str(bench.profile), "tiny")
    bench.store.counters(bench.running.base, reset=True)
    load()
    requests = bench.store.counters(bench.running.base)["requests"]
    assert requests.keys() & {"get", "range"}
    assert "api" not in requests  # the URLs were there before


def test_a_partition_filter_fetches_only_its_files(bench: Bench) -> None:
    requests = bench.run("partition")["requests"]
    assert requests["get"] + requests.get("range", 0) == 4


@pytest.mark.parametrize("client", ["ours", "ours-delta", "ours-parquet"])
def test_listing_is_complete_in_both_formats(bench: Bench, client: str) -> None:
    result = bench.run("listing", client)
    assert result["rows"] == bench.data.read_manifest("listing", "tiny")["listed"]
    assert result["requests"] == {"api": 1}


@pytest.mark.slow
def test_the_comparison_runs(bench: Bench, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "compare.py"), "--scale", "tiny", "--clients", "ours,pyarrow"]
    command += ["--only", "local-arrow", "--repeat", "1", "--json", str(tmp_path / "runs.json")]
    done = run_program(command, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert "| **large files, no delay, to Arrow** | delta-sharing-client |" in done.stdout
    runs = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert [(run["case"], run["client"]) for run in runs] == [("local-arrow", "ours"), ("local-arrow", "pyarrow")]
    assert all(run["peak"] > 0 and "error" not in run for run in runs)


@pytest.mark.parametrize("client", ["ours", "ours-delta", "ours-parquet"])
def test_change_feed_fetches_each_file_once(bench: Bench, client: str) -> None:
    result = bench.run("changes", client)
    changed = bench.data.changed_files(bench.data.read_manifest("small", "tiny")["files"])
    assert result["rows"] == sum(json.loads(entry["stats"])["numRecords"] for entry in changed)
    assert result["columns"] == 17
    assert result["requests"] == {"api": 1, "get": len(changed)}


@pytest.mark.slow
def test_mirrors_are_measured(bench: Bench) -> None:
    command = [sys.executable, str(BENCHMARKS / "mirror.py"), "--scale", "tiny", "--files", "400", "--repeat", "1"]
    done = run_program(command, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    for row in ("first sync", "1 new, changes: sync", "1 new, listing: reopened", "with a checkpoint"):
        assert row in done.stdout


@pytest.mark.slow
def test_plots_are_drawn(bench: Bench, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "plots.py"), "--scale", "tiny", "--repeat", "1"]
    done = run_program([*command, "--only", "versions,memory", "--to", str(tmp_path)], env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"performance_versions.svg", "performance_memory.svg"}


@pytest.mark.slow
def test_first_loads_are_measured(bench: Bench) -> None:
    done = run_program([sys.executable, str(BENCHMARKS / "first_load.py"), "--repeat", "1"], env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert [line.split(" | ")[1] for line in done.stdout.splitlines()[2:]] == 2 * [
        "`imports`",
        "`first`",
        "`imported`",
    ]
