"""Every documented call of the official client, run unchanged on it and on this package.

The results are equal, or `DIFFERENCES` names the difference, which docs/migration.md then shows.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compare_results import kinds_of_differences
from documented_calls import Raised
from script_modules import ROOT
from waiting import HANG

from delta_sharing_client.server import SharingServer

SCRIPT = Path(__file__).with_name("documented_calls.py")
INTEGERS = {"integers as floats", "null as NaN"}
#: Kinds of differences between frames, by the call; every other frame is equal.
FRAMES = {
    **dict.fromkeys(
        (
            *("a table", "the first rows", "a version", "hints", "delta format", "parquet format"),
            *("delta format and a limit", "batches"),
        ),
        INTEGERS,
    ),
    "between versions": INTEGERS,
    "changes in delta format": {"commit timestamps as timestamps", "commit timestamps truncated"},
}
#: The errors of the official client and of this package.
MISTAKES = {
    "no table": ("HTTPError", "NotFoundError"),
    "not a table URL": ("ValueError", "TableNameError"),
    "no profile": ("FileNotFoundError", "ProfileError"),
    "both version and time": ("HTTPError", "ValueError"),
    "a version that does not exist": ("HTTPError", "BadRequestError"),
    "a new profile": ("ValueError", "UnsupportedProfileError"),
}


def run(python: str, profile: Path, output: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    command = [python, str(SCRIPT), str(profile), str(output), *arguments]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        cwd=output.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = pickle.loads(output.read_bytes())
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documented")


@pytest.fixture(scope="module")
def profile(server: SharingServer, folder: Path) -> Path:
    return server.write_profile(folder / "server.share")


@pytest.fixture(scope="module")
def ours_unchanged(profile: Path, folder: Path) -> dict[str, Any]:
    """The results of the calls after `install_as_delta_sharing`."""
    return run(sys.executable, profile, folder / "ours.pickle", "--ours", PYTHONPATH=str(ROOT))


@pytest.fixture(scope="module")
def theirs_unchanged(peer_python: str, profile: Path, folder: Path) -> dict[str, Any]:
    return run(peer_python, profile, folder / "theirs.pickle")


def test_every_call_runs_here(ours_unchanged: dict[str, Any]) -> None:
    failed = {name for name, result in ours_unchanged.items() if isinstance(result, Raised)}
    assert failed == {f"mistake: {what}" for what in MISTAKES}


def test_results_other_than_frames_are_equal(
    ours_unchanged: dict[str, Any], theirs_unchanged: dict[str, Any]
) -> None:
    assert ours_unchanged.keys() == theirs_unchanged.keys()
    for name, result in theirs_unchanged.items():
        if not name.startswith(("load_", "mistake", "signatures")):
            assert ours_unchanged[name] == result, name


def test_every_argument_has_its_place_and_default(
    ours_unchanged: dict[str, Any], theirs_unchanged: dict[str, Any]
) -> None:
    for name, parameters in theirs_unchanged["signatures"].items():
        assert ours_unchanged["signatures"][name][: len(parameters)] == parameters, name


def test_frames_are_equal_or_the_difference_is_known(
    ours_unchanged: dict[str, Any], theirs_unchanged: dict[str, Any]
) -> None:
    for name, result in theirs_unchanged.items():
        function, _, what = name.partition(": ")
        if function.startswith("load_"):
            changes = "changes" in function
            key = ["order_id", "_commit_version", "_change_type"] if changes else ["order_id"]
            kinds = kinds_of_differences(ours_unchanged[name], result, key)
            known = FRAMES.get("changes in delta format" if changes and what == "delta format" else what, set())
            assert kinds == known, name


def test_mistakes_raise_errors_of_these_classes(
    ours_unchanged: dict[str, Any], theirs_unchanged: dict[str, Any]
) -> None:
    found = {
        name.removeprefix("mistake: "): (str(result), str(ours_unchanged[name]))
        for name, result in theirs_unchanged.items()
        if name.startswith("mistake: ")
    }
    assert found == MISTAKES


def test_the_page_shows_the_errors() -> None:
    page = (ROOT / "docs" / "migration.md").read_text("utf-8")
    rows = re.findall(r"^\| [^|]+ \| `(?:requests\.)?(\w+)` \| `(\w+)`[^|]*\|$", page, re.MULTILINE)
    assert set(rows) == set(MISTAKES.values())
