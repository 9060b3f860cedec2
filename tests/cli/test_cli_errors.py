"""Errors as one line, exit codes, broken pipes, Ctrl-C, a missing extra, secrets and control characters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_runs import ROOT, run, start

from delta_sharing_client.cli.app import cli
from delta_sharing_client.cli.output import printable

APPLY = "--sqlite", "s.db", "--mode", "apply", "--keys"
ROWS = ["pull", "{o}", "--checkpoint", "p", "--files", "f"]
MOST = "it is at most 9223372036854775807"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["count", "{profile}#retail.sales.nope"], 3),
        (["ls", "{profile}#nope"], 3),
        (["count", "{profile}#retail"], 2),
        (["count", "missing.share#a.b.c"], 4),
        (["count", "a.b.c"], 4),
        (["head", "{profile}#retail.sales.orders", "--columns", "nope"], 2),
        (["head", "{profile}#retail.sales.orders", "--filter", "nope >"], 2),
        (["head", "{profile}#retail.sales.orders", "--version", "1", "--timestamp", "2024-01-01"], 2),
        (["head", "{profile}#retail.sales.orders", "-n", "-1"], 2),
        (["nothing"], 2),
        (["head", "{profile}#retail.sales.orders", "--version", "99"], 1),
        (["pull", "{profile}#retail.sales.orders", "--checkpoint", "p", "--start", "6", *APPLY, "nope"], 2),
        (["ls", "http://127.0.0.1:9/x.share"], 5),
    ],
)
def test_an_error_is_one_line_and_a_code(profile, arguments, code):
    result = run(*(argument.format(profile=profile) for argument in arguments), code=code)
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", "{o}", "f.csv", "--limit", "x"], "'x' is not a whole number of 0 or more, such as 100."),
        (["head", "{o}", "-n", "-1"], "'-1' is not a whole number of 0 or more, such as 10."),
        (["head", "{o}", "--version", "1.5"], "'1.5' is not a whole number of 0 or more, such as 3."),
        (["history", "{o}", "-n", "0"], "'0' is not a whole number of 1 or more, such as 20."),
        (["mirror", "{o}", "m", "--version", "x"], "'x' is not a whole number of 0 or more, such as 3."),
        (["serve", ".", "--port", "99999"], "'99999' is not a whole number from 0 to 65535, such as 8787."),
        (["serve", ".", "--url-lifetime", "x"], "'x' is not a whole number of 1 or more, such as 3600."),
        (["login", "{o}", "--timeout", "x"], "'x' is not a whole number of 1 or more, such as 300."),
        (["head", "{o}", "--timestamp", "soon"], "--timestamp: 'soon' is not a time in ISO 8601, such as 2"),
        (["changes", "{o}", "--from", "2024x"], "--from: '2024x' is not a time in ISO 8601, such as 2024-01-31"),
        (["changes", "{o}", "--from", "6", "--to", "2024x"], "--to: '2024x' is not a time in ISO 8601, such as"),
        (["head", "{o}", "--version", str(2**63)], f"version is {2**63}; {MOST}"),
        (["changes", "{o}", "--from", str(2**63)], f"--from is {2**63}; {MOST}"),
        ([*ROWS, "--start", str(2**63)], f"--start is {2**63}; {MOST}"),
        (
            [*ROWS, "--start", "99"],
            "--start is 99, and the latest version of table retail.sales.orders is 7:",
        ),
        (["changes", "{o}", "--from", "soon"], "--from: 'soon' is neither a version, such as 6, nor a time, such"),
        (["changes", "{o}", "--from", "6", "--to", "x"], "--to: 'x' is neither a version, such as 6, nor a time"),
        (["changes", "{o}", "--from", "7", "--to", "6"], "--to is 6, which is before --from, 7"),
        (["pull", "{o}", "--checkpoint", "p", "--files", "f", "--start", "x"], "latest or a version, such as 6"),
        (["head", "{o}", "--filter", "amount >>> 5"], "for example region = 'Europe' AND amount > 5"),
        (["head", "{o}", "--filter", ""], "--filter is empty; leave it out, or give a condition such as"),
        (["head", "{o}", "--filter", "amount > 'x'"], "--filter: 'amount' is decimal(12,2), and 'x' is not a"),
        (["head", "{o}", "--columns", "a,,b"], "'--columns': a name is empty; give names such as order_id,amount"),
        (["head", "{o}", "--on-future", "latest"], "--on-future is for a --timestamp"),
        (["export", "{o}", "-", "--format", "csv", "--overwrite"], "--overwrite is for a FILE; - is stdout"),
    ],
)
def test_a_malformed_value_is_explained(orders, arguments, sentence):
    error = run(*(argument.format(o=orders) for argument in arguments), code=2).stderr
    assert sentence in error
    assert not set(error.split()) & {"int", "float", "integer", "None", "filters:", "starting_version"}


@pytest.mark.parametrize("place", [0, 2])
def test_debug_shows_the_traceback(profile, place):
    arguments = ["count", f"{profile}#retail.sales.nope"]
    arguments.insert(place, "--debug")
    result = run(*arguments, code=3)
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_an_unexpected_error_is_one_line(profile, monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("delta_sharing_client.client.SharingClient.iter_shares", fail)
    stderr = run("ls", profile, code=1).stderr
    assert stderr == "Error: unexpected ZeroDivisionError: division by zero (--debug shows the traceback)\n"


def test_an_interrupted_import_is_one_line(profile, tmp_path, monkeypatch):
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from delta_sharing_client.cli import main; main()"
    command = [sys.executable, "-c", code, "ls", profile]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"Stopped.\n")


def test_an_interrupted_import_of_a_command_is_one_line(profile, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("delta_sharing_client.client.SharingClient.iter_shares", fail)
    assert run("ls", profile, code=130).stderr == "Stopped.\n"


def test_a_warning_is_one_line(profile, monkeypatch):
    Path(profile).chmod(0o644)
    with start("count", f"{profile}#retail.sales.orders") as process:
        out, err = process.communicate()
    assert out == b"59990\n"
    assert err.startswith(b"Warning: the profile ")
    assert err.count(b"\n") == 1


@pytest.mark.parametrize("name", ["csv", "jsonl", "arrow"])
def test_a_broken_pipe_ends_quietly(orders, name):
    with start("export", orders, "-", "--format", name) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait()
    assert process.returncode == 141


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_export_ends_with_its_code(orders, number, code):
    with start("export", orders, "-", "--format", "csv") as process:
        assert process.stdout is not None
        process.stdout.read(10)  # the export is larger than the pipe, so the process waits for a reader
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == code
    assert b"Traceback" not in err


def test_exit_codes_of_a_process(profile):
    with start("count", f"{profile}#retail.sales.nope") as process:
        out, err = process.communicate()
    assert (out, process.returncode) == (b"", 3)
    assert err.count(b"\n") == 1


def test_a_missing_extra_is_named():
    code = (
        "import sys\n"
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        "from delta_sharing_client.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: the command line needs click and rich: pip install ")
    assert "pip install '.[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1


def commands(group: click.Group, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, command in group.commands.items():
        found += commands(command, (*prefix, name)) if isinstance(command, click.Group) else [(*prefix, name)]
    return found


@pytest.mark.parametrize("command", commands(cli), ids=" ".join)
def test_every_command_has_examples(command):
    text = run(*command, "--help").stdout
    assert "Examples:" in text
    assert f"delta-sharing {' '.join(command)} " in text


def test_completion(profile):
    environment = {"_DELTA_SHARING_COMPLETE": "bash_complete", "COMP_WORDS": "delta-sharing he", "COMP_CWORD": "1"}
    code = "from delta_sharing_client.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"plain,head\n"


def test_control_characters_are_escaped():
    assert printable("a\x1b[31mb\n") == "a\\x1b[31mb\\n"
    assert printable("Zürich") == "Zürich"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["head", "{profile}"], "is a profile and names no table: give {profile}#SHARE.SCHEMA.TABLE"),
        (["head", "orders"], "(delta-sharing ls PROFILE --recursive lists them)"),
        (["ls", "{profile}#retail.sales.orders"], "ls takes SHARE or SHARE.SCHEMA; schema and show take a table"),
        (["count", "{profile}#retail.ops.sensor_readings", "--filter", "temperature = NaN"], "written 'NaN', in"),
        (["head", "{profile}#retail.sales.orders", "--filter", "nope = 1"], "--filter names the column 'nope'"),
    ],
)
def test_a_mistake_is_explained_for_the_command_line(profile, arguments, message):
    result = run(*(argument.format(profile=profile) for argument in arguments), code=2)
    assert message.format(profile=profile) in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pull", "--checkpoint", "c", "--files", "d", "--keys", "order_id"], "--keys is for --delta"),
        (["pull", "--checkpoint", "c", "--files", "d", "--into", "t"], "--into is for --delta"),
        (["pull", "--checkpoint", "c", "--files", "d", "--mode", "append"], "--mode is for --delta"),
        (["pull", "--checkpoint", "c", "--sqlite", "d", "--format", "csv"], "--format is for --files"),
        (["pull", "--checkpoint", "c", "--delta", "d", "--into", "t"], "--into is for --duckdb and --sqlite"),
        (["pull", "--checkpoint", "c", "--sqlite", "d", "--keys", "k"], "--mode apply and --keys need each other"),
        (["pull", "--checkpoint", "c", "--sqlite", "d", "--mode", "apply"], "need each other"),
        (["changes", "--from", "6", "--format", "csv"], "--format is for a FILE"),
        (["changes", "--from", "6", "--overwrite"], "--overwrite is for a FILE"),
    ],
)
def test_options_that_would_be_ignored_are_refused(orders, arguments, message):
    result = run(arguments[0], orders, *arguments[1:], code=2)
    assert message in result.stderr


def test_options_of_shown_changes_are_refused_with_a_file(orders):
    for option in (["-n", "3"], ["--output", "json"]):
        result = run("changes", orders, "x.csv", "--from", "6", *option, code=2)
        assert "is for changes that are shown" in result.stderr


def test_messages_name_options_and_commands():
    from delta_sharing_client.cli.command import for_command_line

    text = "call sync(repair=True), or sync(); raise TransportOptions.query_deadline or pass columns=[...]"
    expected = "call delta-sharing mirror --repair, or delta-sharing mirror; raise --option query_deadline"
    assert for_command_line(text) == f"{expected} or pass --columns"
    assert for_command_line("Check the name with list_shares()") == "Check the name with delta-sharing ls PROFILE"
    assert for_command_line("list_schemas() and list_tables() of client.iceberg") == (
        "delta-sharing ls --catalog iceberg"
    )


def test_shown_and_exported_csv_are_alike(profile):
    table = f"{profile}#retail.ops.sensor_readings"
    shown = run("head", table, "-n", "20", "-o", "csv").stdout_bytes
    assert shown == run("export", table, "-", "--format", "csv", "--limit", "20").stdout_bytes


@pytest.mark.parametrize(
    ("variable", "value"),
    [("READ_TIMEOUT", "abc"), ("NOPE", "1"), ("MAX_CONNECTIONS", "1.5"), ("BACKOFF_CAP", "100ms")],
)
def test_a_malformed_variable_is_one_line(monkeypatch, profile, variable, value):
    name = f"DELTA_SHARING_OPTION_{variable}"
    monkeypatch.setenv(name, value)
    result = run("ls", str(profile), code=2)
    assert result.stderr.startswith("Error: ")
    assert name in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "Usage" in run("--help").stdout


def test_a_missing_token_variable_is_named_whole(monkeypatch):
    monkeypatch.setenv("DELTA_SHARING_ENDPOINT", "https://sharing.example")
    assert "the field 'bearerToken' is missing" in run("ls", code=4).stderr
