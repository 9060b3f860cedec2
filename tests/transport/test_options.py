"""Transport options: defaults, bounds, representation."""

import dataclasses
import pickle
import subprocess
import sys
from datetime import timedelta

import pytest

from delta_sharing_client.options import TransportOptions


def test_the_defaults_are_the_promised_ones():
    options = TransportOptions()
    assert options.connect_timeout == timedelta(seconds=10)
    assert options.read_timeout == timedelta(seconds=60)
    assert (options.api_attempts, options.api_deadline) == (6, timedelta(seconds=120))
    assert (options.backoff_base, options.backoff_cap) == (timedelta(seconds=0.2), timedelta(seconds=20))
    assert options.minimum_speed == 100
    assert (options.storage_attempts, options.max_connections, options.allow_http) == (5, 48, False)


def test_the_user_agent_names_package_python_and_requests():
    names = [part.split("/")[0] for part in TransportOptions().user_agent.split()]
    assert names == ["delta-sharing-client", "Python", "requests"]


@pytest.mark.parametrize(
    "changes",
    [
        {"connect_timeout": timedelta(0)},
        {"read_timeout": timedelta(seconds=-1)},
        {"api_deadline": timedelta(0)},
        {"api_attempts": 0},
        {"storage_attempts": -1},
        {"max_connections": 0},
        {"memory_budget": 0},
        {"minimum_speed": 0},
        {"backoff_base": timedelta(seconds=30)},
        {"user_agent": "a\nb"},
        {"user_agent": "ä"},
    ],
)
def test_values_out_of_range_raise(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        TransportOptions(**changes)


@pytest.mark.parametrize("changes", [{"read_timeout": 60}, {"api_attempts": 2.5}, {"max_connections": True}])
def test_values_of_the_wrong_type_raise(changes):
    with pytest.raises(TypeError, match=next(iter(changes))):
        TransportOptions(**changes)


def test_options_compare_by_value_and_hide_secrets():
    proxies = {"https": "http://me:s3cret@proxy:3128"}
    options = TransportOptions(proxies=proxies)
    proxies.clear()
    assert options.proxies["https"]
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(dataclasses.replace(options))
    assert "s3cret" not in repr(options)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.api_attempts = 3


def test_importing_them_needs_no_requests():
    code = (
        "import sys, delta_sharing_client.options, delta_sharing_client.model.profile as p;"
        "sys.exit(bool({'requests', 'urllib3', 'pandas', 'pyarrow', 'tenacity'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
