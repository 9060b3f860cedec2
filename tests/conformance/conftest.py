from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "loading"))

from conformance_targets import EXTERNAL, MODES, Target, write_tables
from faults.server import FaultServer

from delta_sharing_client.server import SharingServer


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_tables(tmp_path_factory.mktemp("conformance"))


@pytest.fixture(scope="session")
def start(tables: dict[str, Path]) -> Iterator[Callable[..., Target]]:
    """Start an embedded server in a mode, or take the one that runs."""
    with ExitStack() as stack:
        running: dict[str, Target] = {}

        def target(mode: str) -> Target:
            if mode not in running:
                server = stack.enter_context(SharingServer(tables, **MODES[mode]))
                running[mode] = Target(mode, server.profile, server, MODES[mode])
                stack.callback(running[mode].close)
            return running[mode]

        yield target


@pytest.fixture(scope="session", params=[*MODES, *(["external"] if os.environ.get(EXTERNAL) else [])])
def any_server(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Every server there is, the one of the environment among them."""
    if request.param != "external":
        yield request.getfixturevalue("start")(request.param)
        return
    profile = json.loads(Path(os.environ[EXTERNAL]).read_text(encoding="utf-8-sig"))
    target = Target("external", profile)
    yield target
    target.close()


@pytest.fixture(scope="session", params=MODES)
def target(request: pytest.FixtureRequest, start: Callable[..., Target]) -> Target:
    """The embedded server in every mode."""
    return start(request.param)


@pytest.fixture(scope="session")
def newest(start: Callable[..., Target]) -> Target:
    """The embedded server as it is by default."""
    return start("auto")


@pytest.fixture(params=["parquet", "delta"])
def response_format(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def faults() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server
