"""docs/testing_pipelines.md: its tests pass, and its table has every fault."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from test_readme import python_blocks

from delta_sharing_client.server.faults import Faults

pytest_plugins = ["pytester"]


def test_its_tests_pass(root: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    text = (root / "docs" / "testing_pipelines.md").read_text(encoding="utf-8")
    source = "\n".join(block for _, block in python_blocks(text))
    pytester.makepyfile(source)
    run = pytester.runpytest_subprocess("-p", "delta_sharing_client.testing.plugin", "-p", "no:cacheprovider")
    run.assert_outcomes(passed=len(re.findall(r"^def test_", source, re.MULTILINE)) + 1)


def test_every_fault_is_listed(root: Path) -> None:
    text = (root / "docs" / "testing_pipelines.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)\(", text, re.MULTILINE))
    assert listed == {name for name, _ in inspect.getmembers(Faults, inspect.isfunction) if name[0] != "_"}
