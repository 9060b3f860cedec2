"""CONTRIBUTING.md describes the house as it is."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "delta_sharing_client"


def floors() -> list[set[str]]:
    """The floors of the table, from the roof down."""
    lines = re.findall(r"^\| (`[^|]*(?:\.py|/)`) \|", TEXT, re.MULTILINE)
    return [{name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([^`]+)`", line)} for line in lines]


def test_the_floors_are_those_that_are_enforced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    # A floor in brackets need not be there.
    there = [layer for layer in layers if not layer.startswith("(") or (PACKAGE / layer.strip("()")).exists()]
    assert floors() == [{name.strip(" ()") for name in layer.split("|")} for layer in there]


def test_every_module_has_a_floor() -> None:
    named = set().union(*floors()) | {"server", "__init__"}
    parts = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.parent.name for path in PACKAGE.glob("*/__init__.py")
    }
    assert parts == named


def test_every_target_of_make_is_described() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)) - {"help"}
    assert set(re.findall(r"^\| `make ([a-z]+)` \|", TEXT, re.MULTILINE)) == targets


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    (block,) = re.findall(r"^( *)```python\n(.*?)^\1```", TEXT, re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent(block[1]), namespace)
    namespace["test_counts"](tmp_path)


def test_the_paths_that_it_names_exist() -> None:
    for path in re.findall(r"\b(tests/[\w/]+(?:\.py)?)", TEXT):
        assert (ROOT / path).exists(), path
