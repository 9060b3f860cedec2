from __future__ import annotations

from pathlib import Path

import pytest
from handwritten_logs import LogWriter


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return LogWriter(tmp_path / "table")
