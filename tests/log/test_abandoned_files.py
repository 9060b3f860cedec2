"""Temporary files of killed writers are removed by the next one; those of running writers are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from handwritten_logs import PROTOCOL, add, metadata, open_log
from waiting import HANG

from delta_sharing_client.log import DeltaLog
from delta_sharing_client.log.durable_files import put_if_absent, remove_abandoned, replace_file, replacing

pytestmark = pytest.mark.skipif(os.name == "nt", reason="files are not locked there")

#: Stops at the call of `os.fsync` with the number `stop` after it has printed a line.
STOPPING = """
import os, sys
sync, calls = os.fsync, 0
def stopping(file):
    global calls
    calls += 1
    if calls == stop:
        print("stopped", flush=True)
        sys.stdin.readline()
    sync(file)
os.fsync = stopping
"""
COMMIT = """
from delta_sharing_client import DeltaLog
from delta_sharing_client.log.durable_files import remove_abandoned, replace_file
from pathlib import Path
log = DeltaLog(sys.argv[1])
"""


@contextmanager
def stopped(target: Path, code: str, *, stop: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A process that waits in the middle of writing a file."""
    script = f"stop = {stop}\n{STOPPING}{COMMIT}{code}"
    command = [sys.executable, "-c", script, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stopped\n"
            yield process
        finally:
            process.kill()


def unfinished(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.tmp"))


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = open_log(tmp_path / "table")
    log.commit([PROTOCOL, metadata(), add("a")])
    return log


@pytest.mark.parametrize(
    ("code", "stop"),
    [
        ("log.commit([{'txn': {'appId': 'x', 'version': 1}}])", 1),
        ("log.commit([{'txn': {'appId': 'x', 'version': 1}}])", 3),  # its checksum
        ("log.checkpoint()", 1),
    ],
)
def test_a_killed_writer_and_a_running_one(log: DeltaLog, tmp_path: Path, code: str, stop: int) -> None:
    folder = tmp_path / "table"
    with stopped(folder, code, stop=stop) as process:
        running = unfinished(folder)
        assert len(running) == 1
        before = log.latest_version()
        log.commit([add("b")])
        assert unfinished(folder) == running
        process.send_signal(signal.SIGKILL)
        process.wait(HANG)
    assert unfinished(folder) == running
    assert log.commit([add("c")]) == before + 2
    assert unfinished(folder) == []


def test_a_running_writer_finishes(log: DeltaLog, tmp_path: Path) -> None:
    code = "log.commit([{'txn': {'appId': 'x', 'version': 1}}], max_retries=1)"
    with stopped(tmp_path / "table", code) as process:
        log.commit([add("b")])
        assert process.communicate("\n", timeout=HANG) == ("", None)
        assert process.returncode == 0
    assert log.snapshot().transactions["x"].version == 1
    assert log.latest_version() == 2
    assert unfinished(tmp_path) == []


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    """As checkpoints of pollers, caches of tokens and notes of downloads are; other files of the folder stay."""
    other = tmp_path / f".mine.{'0' * 32}.tmp"
    other.write_text("of another file")
    with stopped(tmp_path / "state.json", "replace_file(Path(sys.argv[1]), b'x')"):
        assert len(unfinished(tmp_path)) == 2
        replace_file(tmp_path / "state.json", b"1")
        assert len(unfinished(tmp_path)) == 2
    replace_file(tmp_path / "state.json", b"2")
    assert unfinished(tmp_path) == [other.name]
    assert (tmp_path / "state.json").read_bytes() == b"2"
    remove_abandoned(tmp_path)
    assert unfinished(tmp_path) == []


def test_a_long_name(tmp_path: Path) -> None:
    """The temporary file has a shorter one, within the 255 bytes of a file system."""
    path = tmp_path / ("x" * 245 + ".json")
    with stopped(path, "replace_file(Path(sys.argv[1]), b'x')"):
        assert len(unfinished(tmp_path)) == 1
    (tmp_path / f".{'x' * 200}.{'0' * 32}.tmp").touch()  # of another name with the same beginning
    replace_file(path, b"1")
    assert len(unfinished(tmp_path)) == 1
    assert path.read_bytes() == b"1"


def test_the_permissions_of_a_file_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for mode, private, expected in ((0o640, False, 0o640), (0o644, True, 0o600)):
        path.touch()
        path.chmod(mode)
        replace_file(path, b"1", private=private)
        assert path.stat().st_mode & 0o777 == expected


def test_other_names_links_and_pipes_stay(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x")
    names = [".a.json.tmp", f"a.{'0' * 32}.tmp", ".0001.json.0b0d3c1e-7a3f-4f6e-9d0e-3f2a1b4c5d6e.tmp"]
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / f".link.{'0' * 32}.tmp").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / f".pipe.{'0' * 32}.tmp")
    before = sorted(tmp_path.iterdir())
    remove_abandoned(tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    remove_abandoned(tmp_path / "none")


def test_files_are_written_while_others_collect(tmp_path: Path) -> None:
    """A collecting process in a loop takes no file of this one."""
    code = f"{COMMIT}\nprint('go', flush=True)\nwhile True: remove_abandoned(Path(sys.argv[1]))"
    command = [sys.executable, "-c", f"import sys\n{code}", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "go\n"
            for number in range(40):
                assert put_if_absent(tmp_path / f"{number}", b"x")
                replace_file(tmp_path / "same", b"%d" % number)
                with replacing(tmp_path / "large") as file:
                    file.write(b"y")
        finally:
            process.kill()
    assert len(list(tmp_path.iterdir())) == 42
