"""Runs the command line, in this process and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from delta_sharing_client.cli.app import cli

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, code: int = 0) -> Result:
    """Run the command line in this process; stdout must not hold what belongs on stderr."""
    result = CliRunner().invoke(cli, list(arguments), prog_name="delta-sharing")
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stdout
    return result


def start(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    """Start `python -m delta_sharing_client` in a process of its own."""
    command = [sys.executable, "-m", "delta_sharing_client", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment, **options)  # type: ignore[call-overload]
