"""The notebooks run without errors, and are committed with their current output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECRETS = re.compile(r"bearerToken\W+\w|Bearer |X-Amz|X-Goog|signature=|[?&]sig=|/files/[0-9a-f]{8}")
MACHINE = re.compile(r"(?<![\w.<])/(?:root|home|work|tmp|Users|var|opt|private)/|[A-Z]:\\|127\.0\.0\.1|localhost")
ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}|\x1b\[")

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def outputs_of(cell: dict[str, Any]) -> list[tuple[str, str]]:
    """The outputs of a cell: type and text; empty text for images."""
    found = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            found.append((output["name"], "".join(output["text"])))
        elif output["output_type"] == "error":
            found.append(("error", output["ename"]))
        else:
            for kind, content in output["data"].items():
                found.append((kind, "" if kind.startswith("image/") else "".join(content)))
    return found


def reproducible_outputs(path: Path) -> list[list[tuple[str, str]]]:
    """The outputs of each cell, without the parts that depend on versions of libraries: dtypes, sizes, layout."""
    return [
        [
            (
                kind,
                re.sub(r"\b(object|str)\b", "TEXT", re.sub(r"[\d,]{6,}", "SIZE", text))
                if kind == "stdout"
                else "",
            )
            for kind, text in outputs_of(cell)
        ]
        for cell in code_cells(path)
    ]


def test_notebooks_exist() -> None:
    assert [path.name for path in NOTEBOOKS] == [
        "incremental.ipynb",
        "quickstart.ipynb",
        "spark.ipynb",
        "streaming.ipynb",
    ]


@pytest.mark.slow
@each
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "notebooks" / "execute.py"), str(path), "--to", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline", "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    again = tmp_path / path.name
    assert [cell["source"] for cell in code_cells(again)] == [cell["source"] for cell in code_cells(path)]
    assert reproducible_outputs(again) == reproducible_outputs(path), (
        "the committed output differs: run `make notebooks`"
    )


@each
def test_notebook_is_committed_with_its_output(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [kind for cell in cells for kind, _ in outputs_of(cell)]
    assert "error" not in kinds
    assert "stderr" not in kinds
    assert kinds.count("image/png") >= 1
    assert sum(bool(cell["outputs"]) for cell in cells) > len(cells) / 2


@each
def test_output_contains_no_secret_and_no_local_path(path: Path) -> None:
    for cell in code_cells(path):
        for _, text in outputs_of(cell):
            assert not SECRETS.search(text)
            assert not MACHINE.search(text)
            assert not ADDRESS.search(text)


@each
def test_output_is_reproducible(path: Path) -> None:
    content = read(path)
    assert content["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert all(cell["metadata"] == {} for cell in content["cells"])
    assert [cell["id"] for cell in content["cells"]] == [f"cell-{n:02}" for n in range(len(content["cells"]))]


def test_a_cell_that_raises_fails_the_run(tmp_path: Path) -> None:
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": "a",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": "1 / 0",
            }
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = tmp_path / "broken.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(ROOT / "notebooks" / "execute.py"), str(path)],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "\x1b[" not in done.stderr
    assert json.loads(path.read_text(encoding="utf-8")) == notebook
