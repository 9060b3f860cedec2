"""`benchmarks/peer.py`, which knows the environment of the other clients."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def peer_module() -> Any:
    """Return it as a module."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "peer.py"
    spec = importlib.util.spec_from_file_location("differential_benchmarks_peer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
