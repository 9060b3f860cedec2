"""Errors as one line, exit codes, broken pipes, Ctrl-C, a missing extra, secrets and control characters."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runs import ROOT, run, start

from delta_sharing_client.cli.app import cli
from delta_sharing_client.cli.files import write_reader
from delta_sharing_client.cli.output import plain, printable, to_json


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
    ],
)
def test_an_error_is_one_line_and_a_code(profile, arguments, code):
    result = run(*(argument.format(profile=profile) for argument in arguments), code=code)
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert "Traceback" not in result.stderr


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


def test_an_interrupted_export_leaves_no_file(tmp_path):
    schema = pa.schema({"n": pa.int64()})

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]}, schema)
        assert len(list(tmp_path.iterdir())) == 1
        raise KeyboardInterrupt

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(KeyboardInterrupt):
        write_reader(reader, str(tmp_path / "rows.jsonl"), "jsonl", overwrite=False)
    assert list(tmp_path.iterdir()) == []


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


def test_values_that_json_lacks():
    assert plain([float("nan"), float("-inf"), b"\xff", 1.5]) == ["NaN", "-Infinity", "/w==", 1.5]
    rare = {"a": [float("nan"), Decimal("1E+2")], "b": 2**62}
    assert to_json(rare) == '{"a": ["NaN", "100"], "b": 4611686018427387904}'
    pairs = {"a": Decimal("1.50"), "m": [("k", date(2024, 1, 1))]}
    assert to_json(pairs) == '{"a": "1.50", "m": [["k", "2024-01-01"]]}'


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "arrow"])
def test_binaries_maps_and_rare_floats_are_written(tmp_path, name):
    kind = pa.map_(pa.string(), pa.int64())
    table = pa.table(
        {
            "b": pa.array([b"\xff", None], pa.binary()),
            "m": pa.array([[("k", 1)], None], kind),
            "f": [float("nan"), 0.1],
            "s": ["", None],
            "v": pa.nulls(2),
        }
    )
    path = tmp_path / f"rows.{name}"
    assert write_reader(table.to_reader(), str(path), name, overwrite=False) == 2
    texts = {
        "csv": '"b","m","f","s","v"\n"/w==","[[""k"", 1]]",nan,"",\n,,0.1,,\n',
        "jsonl": '{"b": "/w==", "m": [["k", 1]], "f": "NaN", "s": "", "v": null}\n'
        '{"b": null, "m": null, "f": 0.1, "s": null, "v": null}\n',
    }
    if name in texts:
        assert path.read_text() == texts[name]
    else:
        read = pq.read_table(path) if name == "parquet" else pa.ipc.open_file(path).read_all()
        assert read.column("m").to_pylist() == table.column("m").to_pylist()
        assert read.column("b").to_pylist() == table.column("b").to_pylist()
