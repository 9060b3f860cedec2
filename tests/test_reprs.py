"""Representations and `close`, also of objects whose constructor failed.

Tools that record tracebacks show local variables, and clean-up code closes objects of failed constructors.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import delta_sharing_client as ds
from delta_sharing_client import sinks
from delta_sharing_client.cdf.poller import ChangePoller
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.sinks.base import Sink

PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://example.com/", "bearerToken": "canary-token"}
SECRET = {"type": "oauth_client_credentials", "clientId": "i", "clientSecret": "canary-secret"}
PLAIN_HTTP = {"shareCredentialsVersion": 2, "endpoint": "https://example.com/", **SECRET}


def classes() -> Iterator[type]:
    """The classes of the package with their own representation or clean-up."""
    for module in pkgutil.walk_packages(ds.__path__, f"{ds.__name__}."):
        if module.name.endswith("__main__"):
            continue
        for cls in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(cls) or cls.__module__ != module.name or inspect.isabstract(cls):
                continue
            if issubclass(cls, BaseException | tuple | msgspec.Struct) or not hasattr(cls, "__dict__"):
                continue
            yield cls


def own(cls: type, name: str) -> bool:
    """Whether a method is written in this package."""
    owner = next((base for base in cls.__mro__ if name in vars(base)), object)
    generated = name == "__repr__" and dataclasses.is_dataclass(owner) and owner.__dataclass_params__.repr
    return owner.__module__.startswith(ds.__name__) and not generated


@pytest.mark.parametrize("name", ["__repr__", "_repr_html_"])
def test_repr_of_uninitialised_objects(name: str) -> None:
    found = [cls for cls in classes() if own(cls, name)]
    assert found
    for cls in found:
        shown = getattr(cls.__new__(cls), name)()
        assert isinstance(shown, str), cls


def poll(**options: Any) -> Any:
    with ds.SharingClient(PROFILE) as client:
        return client.table("a.b.c").poll_changes(**options)


#: What users close.
ENDED = (ds.SharingClient, RestClient, ChangePoller, SharingServer, Sink)

FAILING: dict[str, Callable[[Path], Any]] = {
    "client": lambda path: ds.SharingClient(path / "nowhere.share"),
    "client, by its options": lambda path: ds.SharingClient(PROFILE, options=1),  # type: ignore[arg-type]
    "client, over plain http": lambda path: ds.SharingClient({**PROFILE, "endpoint": "http://example.com/"}),
    "tokens": lambda path: ds.SharingClient(PLAIN_HTTP | {"tokenEndpoint": "http://example.com/token"}),
    "poller": lambda path: poll(poll_interval=timedelta(seconds=1)),
    "poller, by its version": lambda path: poll(starting_version="never"),
    "sink": lambda path: sinks.DeltaSink(path / "t", mode="no"),  # type: ignore[arg-type]
    "sink of SQLite": lambda path: sinks.SQLiteSink(path / "db", "t", mode="no"),  # type: ignore[arg-type]
    "sink of SQLite, by its place": lambda path: sinks.SQLiteSink(path / "nowhere" / "db", "t"),
    "sink of DuckDB": lambda path: sinks.DuckDBSink(path / "db", "t", mode="no"),  # type: ignore[arg-type]
    "sink of DuckDB, by its place": lambda path: sinks.DuckDBSink(path / "nowhere" / "db", "t"),
    "server": lambda path: SharingServer({"s.s.t": path / "nowhere"}),
    "server, by its options": lambda path: SharingServer(path, no_such_option=1),
    "options": lambda path: ds.TransportOptions(connect_timeout=timedelta(0)),
}


@pytest.mark.parametrize("name", FAILING)
def test_repr_of_objects_whose_constructor_failed(name: str, tmp_path: Path) -> None:
    with pytest.raises(Exception) as caught:  # each raises its own
        FAILING[name](tmp_path)
    shown = 0
    for frame, _ in traceback.walk_tb(caught.value.__traceback__):
        if frame.f_globals.get("__name__", "").startswith(ds.__name__):
            for value in frame.f_locals.values():
                repr(value)
                shown += 1
                if isinstance(value, ENDED):
                    (value.stop if isinstance(value, SharingServer) else value.close)()
    assert shown
