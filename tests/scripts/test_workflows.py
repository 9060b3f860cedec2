"""The hosted workflows run what .ci/run does on what the package supports, with pinned actions and few rights."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from script_modules import ROOT, load_script

FOLDER = ROOT / ".github" / "workflows"
CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]


def workflow(name: str) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return loaded


def triggers(name: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    found: dict[str, Any] = workflow(name)[True]
    return found


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


CI = workflow("ci.yml")
RELEASE = workflow("release.yml")
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_ci_runs_the_steps_of_the_local_script() -> None:
    steps = re.findall(r"^make [a-z]+$", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert steps
    hosted = [command for job in CI["jobs"].values() for command in commands(job)]
    assert set(steps) <= set(hosted)
    assert {"make lowest", "make soak"} <= set(hosted)
    assert {target for command in hosted for target in re.findall(r"^make ([a-z]+)", command)} <= TARGETS


def test_ci_covers_the_versions_that_the_package_declares() -> None:
    pythons = [name.rpartition(" ")[2] for name in CLASSIFIERS if re.search(r":: 3\.\d+$", name)]
    jobs = CI["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == pythons
    assert jobs["systems"]["strategy"]["matrix"]["python"] == pythons
    assert jobs["systems"]["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]
    assert tuple(jobs["spark"]["strategy"]["matrix"]["pyspark"]) == load_script("scripts/matrix.py").VERSIONS


def test_what_takes_hours_runs_at_night() -> None:
    assert triggers("ci.yml")["schedule"]
    assert "schedule" in CI["jobs"]["soak"]["if"]
    assert "if" not in CI["jobs"]["spark"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_actions_are_pinned_and_name_their_version(path: Path) -> None:
    lines = re.findall(r"^ *(?:- )?uses: (.+)$", path.read_text("utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        assert line.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version_in_all_workflows() -> None:
    text = "\n".join(path.read_text("utf-8") for path in FOLDER.glob("*.yml"))
    pins = set(re.findall(r"uses: ([\w/-]+)@(\w+ # \S+)$", text, re.MULTILINE))
    assert len(pins) == len({action for action, _ in pins})


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_end(path: Path) -> None:
    loaded = workflow(path.name)
    assert loaded["permissions"] == {"contents": "read"}
    assert loaded["concurrency"]["group"]
    for name, job in loaded["jobs"].items():
        assert "uses" in job or 0 < job["timeout-minutes"] < 360, name
        assert "permissions" not in job or name == "publish", name
        for step in job.get("steps", ()):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, name


def test_a_release_publishes_the_checked_files_without_a_token() -> None:
    jobs = RELEASE["jobs"]
    assert triggers("release.yml") == {"push": {"tags": ["v*"]}}
    assert "workflow_call" in triggers("ci.yml")
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    # A called workflow in the group of its caller would wait for it for ever.
    assert CI["concurrency"]["group"].split("-")[0] != RELEASE["concurrency"]["group"]
    assert {"python -m build", "python -m twine check --strict dist/*"} <= set(commands(jobs["build"]))
    (trial,) = commands(jobs["try"])
    assert "scripts/try_wheel.py" in trial
    publish = jobs["publish"]
    assert set(publish["needs"]) == {"ci", "build", "try"}
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    download, attest, upload = publish["steps"]
    assert download["with"] == {"name": "dist", "path": "dist/"}
    assert attest["with"] == {"subject-path": "dist/*"}
    assert "with" not in upload
    assert "secrets." not in (FOLDER / "release.yml").read_text("utf-8")


def test_pre_commit_reads_the_package_only_if_a_module_of_it_changed() -> None:
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    hooks = {hook["id"]: hook for hook in repo["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format", "mypy", "lint-imports"}
    for name, hook in hooks.items():
        if hook.get("pass_filenames", True):
            assert name.startswith("ruff"), name
            continue
        changed = re.compile(hook["files"])
        assert changed.search("delta_sharing_client/spark/gateway.py"), name
        assert not changed.search("tests/spark/test_gateway.py"), name


def test_a_release_is_preceded_by_every_step_of_ci() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (steps,) = re.findall(r"^release: ([a-z ]+?) *##", makefile, re.MULTILINE)
    local = re.findall(r"^make ([a-z]+)$", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert set(local) | {"matrix", "wheel"} <= set(steps.split())
