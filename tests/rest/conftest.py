"""The scripted server for these tests."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from faults.server import FaultServer
from waiting import SleepClock

from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.transport.retry import Retrier


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running


@pytest.fixture
def clock():
    return SleepClock()


@pytest.fixture
def options():
    return TransportOptions()


@pytest.fixture
def rest(server, clock, options):
    """A client of the scripted server without waits."""
    retrier = Retrier(options, clock=clock, sleep=clock.sleep, random=lambda: 1.0)
    with RestClient(Profile.from_dict(server.profile), options, retrier=retrier) as client:
        yield client
