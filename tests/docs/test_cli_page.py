"""docs/cli.md: its shell blocks run; its tables list every command, option and exit code."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from delta_sharing_client.cli.app import cli
from delta_sharing_client.cli.command import EXIT_CODES
from delta_sharing_client.server import SharingServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def shell_blocks(text: str) -> str:
    """The fenced shell blocks that use the command line, as one script."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "\n".join(block for block in blocks if "delta-sharing " in block)


@pytest.mark.parametrize("text", [PAGE, README], ids=["docs/cli.md", "README.md"])
def test_the_shell_blocks_run(text: str, workplace: SharingServer, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "delta-sharing"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m delta_sharing_client "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    path = f"{command.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        done = subprocess.run(
            ["sh", "-ec", shell_blocks(text)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "sensor_readings" in done.stdout


def commands(group: click.Group, prefix: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        inner = (
            commands(command, f"{prefix}{name} ") if isinstance(command, click.Group) else {prefix + name: command}
        )
        found.update(inner)
    return found


def test_every_command_is_listed_with_its_options() -> None:
    table = PAGE.split("\n## Commands\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z ]+)[^|]*\| .*? \|([^|]*)\|$", table, re.MULTILINE)
    listed = {name.strip(): set(re.findall(r"`(-[^`]+)`", cell)) for name, cell in rows}
    common = {"--debug", "--option", "--output", "--token-command"}
    actual = {
        name: {max(option.opts, key=len) for option in command.params if isinstance(option, click.Option)} - common
        for name, command in commands(cli).items()
    }
    assert listed == actual


def test_every_exit_code_is_listed() -> None:
    listed = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert {int(code) for code in listed} >= {code for _, code in EXIT_CODES} | {0, 1}
