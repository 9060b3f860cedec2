"""Write the tests that check each part of the protocol into the tables of docs/protocol.md.

A test names the parts by the marker `protocol`, as they are in the first cell of a row:

    @pytest.mark.protocol("maxFiles", "POST .../tables/{table}/query")
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "protocol.md"


def marked() -> dict[str, set[str]]:
    """Return the files of the tests of each part."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.protocol(" in text:
            for part in _parts(ast.parse(text)):
                found.setdefault(part, set()).add(path.relative_to(ROOT).as_posix())
    return found


def _parts(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for each in node.decorator_list:
                if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.protocol":
                    yield from (ast.literal_eval(argument) for argument in each.args)


def filled(text: str, tests: dict[str, set[str]]) -> str:
    """Return the page with the tests of each row.

    Raises:
        ValueError: a part of the page has no test, or a marker names a part that the page lacks.
    """
    listed: set[str] = set()
    lines, is_table = text.splitlines(), False
    for number, line in enumerate(lines):
        if not line.startswith("|"):
            is_table = False
        elif line.endswith("| tests |"):
            is_table = True
        elif is_table and not line.startswith("|---"):
            cells = line.split(" | ")
            parts = re.findall(r"`([^`]+)`", cells[0])
            listed.update(parts)
            if missing := [part for part in parts if part not in tests]:
                raise ValueError(f"no test is marked with {missing}")
            files = set().union(*(tests[part] for part in parts))
            cells[-1] = ", ".join(f"`{name}`" for name in sorted(files)) + " |"
            lines[number] = " | ".join(cells)
    if unknown := set(tests) - listed:
        raise ValueError(f"{PAGE.name} lacks {sorted(unknown)}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page; returns the exit code."""
    try:
        text = filled(PAGE.read_text(encoding="utf-8"), marked())
    except ValueError as error:
        print(f"protocol_table.py: {error}", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
