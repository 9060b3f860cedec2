"""`mypy --strict` accepts the uses of the public API and reports the wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_mypy_accepts_the_examples_and_finds_the_mistakes(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary"),
            *("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)),
            *(str(HERE / "public_api.py"), str(HERE / "misuses.py")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stdout.splitlines() if line.startswith("tests/typing/")]
    assert ours == []
    assert done.returncode == 0, done.stdout + done.stderr
