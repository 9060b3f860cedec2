"""CONTRIBUTING.md matches the Makefile and the tests."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_target_of_make_is_described() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)) - {"help"}
    assert set(re.findall(r"^\| `make ([a-z]+)` \|", TEXT, re.MULTILINE)) == targets


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    (block,) = re.findall(r"^( *)```python\n(.*?)^\1```", TEXT, re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent(block[1]), namespace)
    namespace["test_counts"](tmp_path)


def test_the_modules_that_lean_on_others_exist() -> None:
    rows = re.findall(r"^\| (`\w[\w/]*\.py`(?:, `[\w/]+\.py`)*) \|", TEXT, re.MULTILINE)
    assert len(rows) > 10
    for path in re.findall(r"`(.+?)`", " ".join(rows)):
        assert (ROOT / "delta_sharing_client" / path).is_file(), path


def test_the_paths_that_it_names_exist() -> None:
    for path in re.findall(r"\b(tests/[\w/]+(?:\.\w+)?)", TEXT):
        assert (ROOT / path).exists(), path
