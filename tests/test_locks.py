"""File locks between processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delta_sharing_client.locks import Timeout, file_lock, holder_of

HOLD = """
import sys, time
from pathlib import Path
from delta_sharing_client.locks import file_lock
lock = file_lock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""
FORK = """
import os, sys
from pathlib import Path
from delta_sharing_client.locks import Timeout, file_lock
lock = file_lock(Path(sys.argv[1]))
lock.acquire()
if os.fork() == 0:
    assert not lock.is_locked
    try:
        file_lock(Path(sys.argv[1])).acquire(blocking=False)
    except Timeout:
        os.write(1, b"child\\n")  # in one piece, beside what the parent prints
    sys.stdin.read()
    os._exit(0)
os.write(1, b"held\\n")
sys.stdin.read(1)
"""


@contextmanager
def process(script: str, path: Path, lines: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Run a script until it has written some lines, and end it afterwards."""
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert sorted(running.stdout.readline().strip() for _ in range(lines)) == ["child", "held"][-lines:]
        yield running
        running.kill()


def test_lock_of_another_process_is_refused_and_names_it(tmp_path: Path) -> None:
    with process(HOLD, tmp_path / "lock") as holder:
        with pytest.raises(Timeout):
            file_lock(tmp_path / "lock").acquire(blocking=False)
        assert holder_of(tmp_path / "lock") == holder.pid


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with process(HOLD, tmp_path / "lock") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with file_lock(tmp_path / "lock"):
            assert holder_of(tmp_path / "lock") == os.getpid()


def test_lock_is_not_inherited_by_a_forked_child(tmp_path: Path) -> None:
    """The child neither holds the lock, nor keeps it from others once its parent has ended."""
    with process(FORK, tmp_path / "lock", lines=2) as parent:
        parent.kill()
        parent.wait()
        with file_lock(tmp_path / "lock"):
            pass
        assert parent.stdin is not None
        parent.stdin.close()  # ends the child


def test_lock_file_remains_and_can_be_private(tmp_path: Path) -> None:
    with file_lock(tmp_path / "lock", private=True):
        pass
    assert oct((tmp_path / "lock").stat().st_mode & 0o777) == "0o600"


def test_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic link"):
        file_lock(tmp_path / "lock").acquire(blocking=False)
    assert not (tmp_path / "outside").exists()


def test_lock_on_a_full_disk_is_held_and_released(tmp_path: Path) -> None:
    """Only the id of its holder is missing; the system limits the size of files."""
    resource = pytest.importorskip("resource")
    lock = file_lock(tmp_path / "lock")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        lock.acquire(blocking=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(Timeout):
        file_lock(tmp_path / "lock").acquire(blocking=False)
    assert holder_of(tmp_path / "lock") is None
    lock.release()
    file_lock(tmp_path / "lock").acquire(blocking=False)


@pytest.mark.parametrize("content", [b"", b"x", b"\0not a number", b"\0" * 50])
def test_holder_that_cannot_be_read_is_unknown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    assert holder_of(tmp_path / "lock") is None
    assert holder_of(tmp_path / "missing") is None
