"""Transport options: defaults, bounds, representation."""

import dataclasses
import pickle
import subprocess
import sys
from datetime import timedelta

import pytest

from delta_sharing_client.errors import ConfigurationError
from delta_sharing_client.options import TransportOptions


def test_the_defaults_are_the_promised_ones():
    options = TransportOptions()
    assert options.connect_timeout == timedelta(seconds=10)
    assert options.read_timeout == timedelta(seconds=60)
    assert (options.api_attempts, options.api_deadline) == (6, timedelta(seconds=120))
    assert (options.backoff_base, options.backoff_cap) == (timedelta(seconds=0.2), timedelta(seconds=20))
    assert options.minimum_speed == 100
    assert (options.storage_attempts, options.max_connections, options.allow_http) == (5, 48, False)


def test_the_user_agent_names_package_and_python():
    names = [part.split("/")[0] for part in TransportOptions().user_agent.split()]
    assert names == ["delta-sharing-client", "Python"]


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


# -- environment variables


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("connect_timeout", "2", timedelta(seconds=2)),
        ("read_timeout", "1.5 min", timedelta(seconds=90)),
        ("minimum_speed", "1k", 1024),
        ("api_attempts", "3", 3),
        ("api_deadline", "2h", timedelta(hours=2)),
        ("query_deadline", "300s", timedelta(minutes=5)),
        ("asynchronous_queries", "TRUE", True),
        ("max_files", "100", 100),
        ("max_results", "50", 50),
        ("backoff_base", "50ms", timedelta(milliseconds=50)),
        ("backoff_cap", "30", timedelta(seconds=30)),
        ("storage_attempts", "9", 9),
        ("max_connections", "4", 4),
        ("memory_budget", "1g", 2**30),
        ("batch_memory_limit", "64m", 64 * 2**20),
        ("metadata_limit", "128m", 128 * 2**20),
        ("allow_http", "true", True),
        ("ca_bundle", "/etc/ca.pem", "/etc/ca.pem"),
        ("client_certificate", '["a.pem", "a.key"]', ("a.pem", "a.key")),
        ("client_certificate", "both.pem", "both.pem"),
        ("proxies", '{"https": "http://proxy:3128"}', {"https": "http://proxy:3128"}),
        ("headers", '{"X-Api-Key": "k"}', {"X-Api-Key": "k"}),
        ("user_agent", "job/1", "job/1"),
    ],
)
def test_each_option_has_an_environment_variable(monkeypatch, name, text, value):
    default = getattr(TransportOptions(), name)
    monkeypatch.setenv(f"DELTA_SHARING_OPTION_{name.upper()}", text)
    assert getattr(TransportOptions(), name) == value != default
    assert getattr(TransportOptions(api_attempts=2, storage_attempts=2), name) in (value, 2)
    assert getattr(TransportOptions(**{name: default}), name) == default  # an argument comes first
    assert TransportOptions.from_texts({name: text}) == TransportOptions()
    monkeypatch.setenv(f"DELTA_SHARING_OPTION_{name.upper()}", "")
    assert getattr(TransportOptions(), name) == default


def test_the_cases_above_cover_every_option():
    marks = test_each_option_has_an_environment_variable.pytestmark
    assert {case[0] for mark in marks for case in mark.args[1]} == {
        item.name for item in dataclasses.fields(TransportOptions)
    }


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("read_timeout", "soon", "it takes a duration"),
        ("read_timeout", "0", "it takes a duration"),
        ("api_attempts", "0", "it takes a whole number, 1 or more"),
        ("memory_budget", "much", "it takes a number of bytes"),
        ("allow_http", "1", "it takes true or false"),
        ("proxies", "http://me:s3cret@proxy", "it takes a JSON object"),
        ("headers", '{"Authorization": "s3cret"}', "'Authorization', which the client sets itself"),
        ("headers", '{"X": "s3cret\\n"}', "characters that cannot stand in a header"),
        ("client_certificate", "[1]", "it takes the path of a file"),
        ("user_agent", "ä", "characters that cannot stand in a header"),
    ],
)
def test_a_malformed_variable_is_named_and_its_value_is_not_shown(monkeypatch, name, text, problem):
    variable = f"DELTA_SHARING_OPTION_{name.upper()}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        TransportOptions()
    assert caught.value.setting == variable
    assert variable in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_an_unknown_variable_raises_and_a_similar_one_is_named(monkeypatch):
    monkeypatch.setenv("DELTA_SHARING_OPTION_READ_TIMOUT", "5")
    with pytest.raises(ConfigurationError, match="is DELTA_SHARING_OPTION_READ_TIMEOUT meant"):
        TransportOptions()
    with pytest.raises(ConfigurationError, match="the option retries is unknown; there are connect_timeout, "):
        TransportOptions.from_texts({"retries": "1"})


def test_the_options_of_a_job_do_not_depend_on_the_environment_that_unpickles_them(monkeypatch):
    pickled = pickle.dumps(TransportOptions())
    monkeypatch.setenv("DELTA_SHARING_OPTION_API_ATTEMPTS", "2")
    assert pickle.loads(pickled).api_attempts == 6


# -- headers


def test_headers_are_a_copy_and_hidden():
    given = {"X-Api-Key": "s3cret"}
    options = TransportOptions(headers=given)
    given.clear()
    assert options.headers == {"X-Api-Key": "s3cret"}
    assert "s3cret" not in repr(options)


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"X": 1}, TypeError),
        ({"a b": "c"}, ValueError),
        ({"": "c"}, ValueError),
        ({"X": "a\r\nb"}, ValueError),
        ({"X": " a"}, ValueError),
        ({"authorization": "c"}, ValueError),
        ({"User-Agent": "c"}, ValueError),
        ({"Delta-Sharing-Capabilities": "c"}, ValueError),
    ],
)
def test_headers_that_cannot_be_sent_raise(headers, kind):
    with pytest.raises(kind, match="headers"):
        TransportOptions(headers=headers)
