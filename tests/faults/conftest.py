"""Fixture: the scripted server."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from faults.server import FaultServer


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running
