"""docs/migration.md: its code runs, in a process of its own because `delta_sharing` is then this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from script_modules import ROOT
from test_readme import python_blocks

from delta_sharing_client.official import __version__
from delta_sharing_client.server import SharingServer

PAGE = ROOT / "docs" / "migration.md"


def test_the_page_runs(workplace: SharingServer, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    blocks = [block for _, block in python_blocks(PAGE.read_text(encoding="utf-8"))]
    blocks.append("print(len(shares), len(frame), floats.dtype, missing.any(), times.dtype)")
    script.write_text("\n".join(blocks * 2))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.splitlines()
        == [
            "table retail.sales.nope",
            "1 10 float64 True datetime64[us, UTC]",
        ]
        * 2
    )


def test_the_version_is_named() -> None:
    assert f"client whose names they are, {__version__}." in PAGE.read_text(encoding="utf-8")
