"""Modules and functions of the package stay below the sizes that CONTRIBUTING.md states."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "delta_sharing_client"
#: A list of classes with their docstrings.
LONG_MODULES = {"errors.py"}


def lines_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        lines -= (function.body[0].end_lineno or 0) - function.body[0].lineno + 1
    return lines


def test_modules_have_fewer_than_800_lines() -> None:
    sizes = {str(p.relative_to(PACKAGE)): len(p.read_text("utf-8").splitlines()) for p in PACKAGE.rglob("*.py")}
    assert len(sizes) > 100
    assert {name: lines for name, lines in sizes.items() if lines >= 800 and name not in LONG_MODULES} == {}


def test_functions_have_fewer_than_50_lines_without_their_docstring() -> None:
    sizes = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}": lines_without_docstring(node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(sizes) > 1000
    assert {name: lines for name, lines in sizes.items() if lines >= 50} == {}
