"""The site: mkdocs.yml lists every page, the pages of the tutorial run, and a build needs nothing from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from script_modules import load_script
from test_readme import ROOT, TEXTS, run_blocks

import delta_sharing_client as ds
from delta_sharing_client.model.reader_features import SUPPORTED_FEATURES
from delta_sharing_client.server import SharingServer

DOCS = ROOT / "docs"
#: Pages whose blocks no other test runs; Spark's are run in tests/spark.
PAGES = ("index", "first_table", "types", "arrow_ecosystem", "large_tables", "network", "incremental_pulls")


def close(namespace: dict[str, Any]) -> None:
    for value in namespace.values():
        if isinstance(value, ds.SharingClient):
            value.close()


@pytest.mark.parametrize("page", PAGES)
def test_its_blocks_run_twice(page: str, workplace: SharingServer) -> None:
    for _ in range(2):
        close(run_blocks(DOCS / f"{page}.md"))


def test_the_page_about_filters_runs_twice(workplace: SharingServer) -> None:
    for _ in range(2):
        namespace = run_blocks(DOCS / "filters.md")
        assert len(namespace["before"]) == 10_000
        assert len(namespace["after"]) == 59_990
        assert set(namespace["europe"]["region"]) == {"Europe", "Asia", "Africa"}
        close(namespace)


def test_blocks_that_are_not_run_are_python() -> None:
    for path in TEXTS:
        for block in re.findall(r"^```py\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            compile(block, str(path), "exec")


def pages(entries: list[Any]) -> list[str]:
    """The pages of a navigation, in order."""
    found: list[str] = []
    for entry in entries:
        target = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += pages(target) if isinstance(target, list) else [target]
    return found


def test_the_navigation_lists_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = pages(yaml.safe_load(text)["nav"])
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    added = set(load_script("scripts/site.py").TEXTS.values())
    assert len(listed) == len(set(listed))
    assert set(listed) - added == {name for name in written if not re.match(r"decisions/\d", name)}
    assert added <= set(listed)


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    described = re.findall(r"^::: delta_sharing_client\.(\w+)", text, re.MULTILINE)
    assert set(ds.__all__) - {"__version__", "DeltaSharingError"} <= set(described)


def test_the_protocol_page_has_the_marked_tests_and_every_reader_feature() -> None:
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    page = load_script("scripts/protocol_table.py")
    assert text == page.filled(text, page.marked()), "run `python scripts/protocol_table.py`"
    table = text.split("## Reader features")[1].split("## ")[0]
    features = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert {name.lower() for name in features} == SUPPORTED_FEATURES


def test_a_part_without_a_test_and_a_marker_without_a_part_are_errors() -> None:
    filled = load_script("scripts/protocol_table.py").filled
    rows = "| field | tests |\n|---|---|\n| `a`, `b` | old |\n"
    assert filled(rows, {"a": {"y", "x"}, "b": {"x"}}) == rows.replace("old", "`x`, `y`")
    with pytest.raises(ValueError, match=r"no test is marked with \['b'\]"):
        filled(rows, {"a": {"x"}})
    with pytest.raises(ValueError, match=r"lacks \['c'\]"):
        filled(rows, {"a": {"x"}, "b": {"x"}, "c": {"x"}})


@pytest.mark.slow
def test_it_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "search" / "search_index.json").is_file()


@pytest.mark.parametrize(
    ("html", "loaded"),
    [
        ('<script src="https://cdn.example.com/a.js"></script>', "https://cdn.example.com/a.js"),
        ('<link rel="stylesheet" href="//fonts.example.com/css">', "//fonts.example.com/css"),
        ("<link href=https://fonts.example.com rel=preconnect>", "https://fonts.example.com"),
        ('<img alt="" src="http://img.example.com/a.png">', "http://img.example.com/a.png"),
        ('<a href="https://delta.io">', ""),
        ('<link rel="canonical" href="https://docs.example.com/">', ""),
        ('<script src="assets/a.js"></script><link rel="icon" href="assets/a.png">', ""),
    ],
)
def test_what_a_page_loads_from_outside_is_found(html: str, loaded: str) -> None:
    found = ["".join(match) for match in load_script("scripts/site.py").LOADED.findall(html)]
    assert found == [loaded] * bool(loaded)
