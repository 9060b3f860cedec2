"""Count the lines of each subpackage, and write them into the table "Sizes" of CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "delta_sharing_client"
PAGE = ROOT / "CONTRIBUTING.md"

#: The first two cells of a row of the table, and the cell with the present number of lines.
_ROW = re.compile(r"^(\| (?:`([\w/]+)/`|(top level|total)) \| [\d,-]+ \| )[\d,-]+(?= \|)", re.MULTILINE)


def sizes() -> dict[str, int]:
    """Return the number of lines of each subpackage, of the modules at the top level, and of the whole package."""
    found = {"total": 0}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts[:-1]
        name = "/".join(parts[: 2 if parts[:1] == ("delta",) else 1]) or "top level"
        lines = len(path.read_text(encoding="utf-8").splitlines())
        found[name] = found.get(name, 0) + lines
        found["total"] += lines
    return found


if __name__ == "__main__":
    now = sizes()
    text = _ROW.sub(lambda row: f"{row[1]}{now.get(row[2] or row[3], 0):,}", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    for name, lines in sorted(now.items(), key=lambda item: -item[1]):
        print(f"{lines:7,}  {name}")
