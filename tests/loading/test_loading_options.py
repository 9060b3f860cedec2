"""Options and credential providers of every function that takes a table URL; headers of the options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from faults.faulty_share import FaultyShare, File, parquet, rows
from faults.server import FaultServer

import delta_sharing_client as ds
from delta_sharing_client.errors import ConfigurationError

KEY = "canary-key-77"
OPTIONS = ds.TransportOptions(headers={"X-Api-Key": KEY}, api_attempts=2, user_agent="options-test/1")
FILES = [File(f"f{n}", rows(100 * n, 20), parquet(rows(100 * n, 20))) for n in range(3)]


@pytest.fixture
def share(faults: FaultServer) -> FaultyShare:
    return FaultyShare(server=faults, versions=[FILES[:2], FILES], version=1)


@pytest.fixture
def url(share: FaultyShare, tmp_path: Path) -> str:
    """The table; its profile has another token than the credential provider returns."""
    path = tmp_path / "t.share"
    path.touch(0o600)
    path.write_text(json.dumps({**share.server.profile, "bearerToken": "of-the-profile"}))
    return f"{path}#s.s.t"


CALLS: dict[str, Callable[..., Any]] = {
    "load_as_pandas": ds.load_as_pandas,
    "load_as_arrow": ds.load_as_arrow,
    "load_as_polars": ds.load_as_polars,
    "load_as_duckdb": lambda url, **named: ds.load_as_duckdb(url, **named).fetchall(),
    "load_table_changes_as_pandas": lambda url, **named: ds.load_table_changes_as_pandas(url, 1, **named),
    "load_table_changes_as_arrow": lambda url, **named: ds.load_table_changes_as_arrow(url, 1, **named),
    "get_table_version": ds.get_table_version,
    "get_table_metadata": ds.get_table_metadata,
    "get_table_protocol": ds.get_table_protocol,
}


@pytest.mark.parametrize("name", CALLS)
def test_every_function_passes_options_and_credential_provider(share: FaultyShare, url: str, name: str) -> None:
    CALLS[name](url, options=OPTIONS, credential_provider=lambda: ("from-a-vault", timedelta(hours=1)))
    files = [request for request in share.server.requests if "authorization" not in request.headers]
    calls = [request for request in share.server.requests if request not in files]
    assert calls
    for request in calls:
        assert request.headers["authorization"] == "Bearer from-a-vault"
        assert request.headers["x-api-key"] == KEY
        assert request.headers["user-agent"] == "options-test/1"
    assert bool(files) == name.startswith("load_")
    for request in files:  # a store is another host; the key is not for it
        assert request.method == "GET"
        assert "x-api-key" not in request.headers
        assert request.headers["user-agent"] == "options-test/1"


def test_no_function_lacks_the_arguments() -> None:
    functions = [name for name in ds.__all__ if name.startswith(("load_", "get_"))]
    for name in functions:
        assert {"options", "credential_provider"} <= set(inspect.signature(getattr(ds, name)).parameters), name
    assert set(functions) - set(CALLS) == {"load_as_spark", "load_table_changes_as_spark"}  # in tests/spark


def test_options_of_another_type_raise(url: str) -> None:
    with pytest.raises(TypeError, match="options takes a TransportOptions, not dict"):
        ds.load_as_pandas(url, options={"api_attempts": 2})  # type: ignore[arg-type]


def test_the_environment_applies_where_no_option_is_given(
    share: FaultyShare, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTA_SHARING_OPTION_HEADERS", json.dumps({"X-Api-Key": KEY}))
    ds.get_table_version(url)
    ds.get_table_version(url, options=ds.TransportOptions(api_attempts=2))
    assert [request.headers["x-api-key"] for request in share.server.requests] == [KEY, KEY]
    monkeypatch.setenv("DELTA_SHARING_OPTION_API_ATTEMPTS", "many")
    with pytest.raises(ConfigurationError, match="DELTA_SHARING_OPTION_API_ATTEMPTS is malformed"):
        ds.get_table_version(url)
