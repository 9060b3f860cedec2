"""The run with the lowest versions: each extra has a front door, and each dependency a lower bound."""

from __future__ import annotations

import re
import tomllib

import pytest
from script_modules import ROOT, load_script

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_each_extra_has_a_front_door() -> None:
    runs = load_script("scripts/lowest.py").extras()
    doors = load_script("scripts/front_doors.py").FRONT_DOORS
    assert set(runs) - {"all"} == set(doors)
    assert set(runs["all"]) == set(doors) - {"core"}
    assert set(runs) == {"core", *PROJECT["optional-dependencies"]} - {"dev", "docs"}


def test_each_dependency_has_a_lower_bound() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for requirement in [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]:
        assert requirement.startswith("delta-sharing-client[") or re.search(r">=\d", requirement), requirement


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_script("scripts/lowest.py").main(["duck"])
    assert "unknown: duck" in capsys.readouterr().err
