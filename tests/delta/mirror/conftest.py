from pathlib import Path

import pytest
from growing_tables import Source
from materialize_fixtures import connect, faults, no_kept_logs, serve

__all__ = ["connect", "faults", "no_kept_logs", "serve"]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    source = Source(tmp_path / "source")
    source.change([("x1", [1, 2]), ("y1", [3])])
    return source
