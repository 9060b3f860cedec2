"""The pytest plugin: its fixtures in a pytest run of another project, which it costs no imports."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import deltalake
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaTableNotFoundError, MissingDependencyError
from delta_sharing_client.testing import TableServer

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "delta_sharing_client.testing.plugin"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run tests in a process that loads no plugin but ours."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(*sources: str):
        pytester.makepyfile(*sources)
        return pytester.runpytest_subprocess("-p", PLUGIN, "-q", "-p", "no:cacheprovider")

    return run


def test_it_is_an_entry_point_of_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"delta_sharing": PLUGIN}


def test_it_imports_nothing_before_a_test_uses_it(run):
    run(
        """
        import sys

        def test_nothing_is_imported():
            heavy = {"pyarrow", "pandas", "numpy", "starlette", "uvicorn", "deltalake", "requests"}
            assert not heavy & set(sys.modules)
            ours = sorted(name for name in sys.modules if name.startswith("delta_sharing_client"))
            assert ours == [
                "delta_sharing_client",
                "delta_sharing_client._version",
                "delta_sharing_client.testing",
                "delta_sharing_client.testing.plugin",
            ]
        """
    ).assert_outcomes(passed=1)


def test_its_fixtures(run):
    run(
        """
        import delta_sharing_client as ds
        import pytest
        from delta_sharing_client.errors import IncompleteResponseError

        def test_rows(delta_sharing_server, delta_sharing_profile):
            delta_sharing_server.share("shop.sales.orders", {"id": [1, 2]})
            assert len(ds.load_as_pandas(f"{delta_sharing_profile}#shop.sales.orders")) == 2

        def test_each_test_has_its_own_tables(delta_sharing_server):
            assert delta_sharing_server.tables == ()

        def test_a_listing_that_is_cut(delta_sharing_server, monkeypatch):
            monkeypatch.setenv("DELTA_SHARING_OPTION_BACKOFF_CAP", "200ms")
            delta_sharing_server.share("shop.sales.orders", {"id": [1, 2]})
            fault = delta_sharing_server.faults.cut(times=None)
            with pytest.raises(IncompleteResponseError):
                ds.load_as_pandas(delta_sharing_server.url("shop.sales.orders"))
            assert fault.hits > 1
        """
    ).assert_outcomes(passed=3)


@pytest.fixture
def server(tmp_path):
    with TableServer(tmp_path) as started:
        yield started


@pytest.mark.parametrize(
    "frame",
    [
        {"id": [1, 2], "s": ["a", None]},
        pd.DataFrame({"id": [1, 2], "s": ["a", None]}),
        pl.DataFrame({"id": [1, 2], "s": ["a", None]}),
        pa.table({"id": [1, 2], "s": ["a", None]}),
    ],
    ids=lambda frame: type(frame).__module__,
)
def test_frames(server, frame):
    assert server.share("s.s.t", frame) == 0
    loaded = ds.load_as_arrow(server.url("s.s.t"))
    assert loaded.to_pydict() == {"id": [1, 2], "s": ["a", None]}


def test_versions(server):
    assert server.share("s.s.t", {"id": [1], "p": ["a"]}, partition_by="p") == 0
    assert server.share("s.s.t", {"id": [2], "p": ["b"], "more": [1.5]}) == 1
    assert server.share("s.s.t", {"id": [3], "p": ["c"]}, mode="overwrite") == 2
    url = server.url("s.s.t")
    assert sorted(ds.load_as_arrow(url, version=1)["id"].to_pylist()) == [1, 2]
    assert ds.load_as_arrow(url).to_pydict() == {"id": [3], "p": ["c"]}
    assert server.share("s.s.u", {"id": [1]}) == 0
    assert server.share("s.s.u", {"other": ["x"]}, mode="overwrite") == 1
    assert ds.load_as_arrow(server.url("s.s.u")).to_pydict() == {"other": ["x"]}
    changes = ds.load_table_changes_as_arrow(url, 0, 1)
    assert sorted(changes["id"].to_pylist()) == [1, 2]
    assert server.path("s.s.t").is_dir()


def test_folders(server, tmp_path):
    deltalake.write_deltalake(tmp_path / "own", pa.table({"id": [1, 2, 3]}))
    assert server.share("s.s.t", tmp_path / "own") == 0
    assert len(ds.load_as_pandas(server.url("s.s.t"))) == 3
    assert server.share("s.s.t", {"id": [4]}) == 1
    with pytest.raises(ValueError, match="shared already"):
        server.share("s.s.t", tmp_path / "own")
    with pytest.raises(DeltaTableNotFoundError):
        server.share("s.s.u", tmp_path / "nowhere")
    with pytest.raises(TypeError, match="not int"):
        server.share("s.s.u", 5)
    assert server.tables == ("s.s.t",)


def test_a_listing_that_ends_early_is_recognized_by_its_end_alone(tmp_path):
    """Older servers send no end, as docs/testing_pipelines.md says."""
    for name, known in (("new", True), ("old", False)):
        directory = tmp_path / name
        directory.mkdir()
        with TableServer(directory, send_end_stream_action=known) as server:
            for row in range(4):
                server.share("s.s.t", {"id": [row]})
            fault = server.faults.cut(0.9, between_lines=True)
            assert len(ds.load_as_pandas(server.url("s.s.t"))) == (4 if known else 3)
            assert fault.hits == 1
            server.faults.cut(0.9)
            assert len(ds.load_as_pandas(server.url("s.s.t"))) == 4


def test_frames_need_deltalake(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingDependencyError, match=r"delta-sharing-client\[testing\]"):
        server.share("s.s.t", {"id": [1]})


@pytest.mark.parametrize("name", ["abc", "a.b c.d", "a.b.", "a.b/c.d"])
def test_a_malformed_name_is_refused(tmp_path, name):
    with TableServer(tmp_path) as server:
        with pytest.raises(ValueError, match="is not of the form"):
            server.share(name, {"n": [1]})
        assert server.share("a.b.c", {"n": [1]}) == 0
