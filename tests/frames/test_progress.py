"""A progress bar where somebody is watching, and nowhere else."""

import io
import sys

import pytest

from delta_sharing_client.frames.progress import file_progress
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.secrets import SecretUrl

TASKS = [FileScanTask(SecretUrl("u"), f"f{i}", 1000) for i in range(3)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(monkeypatch, stream, show, tasks=TASKS):
    """What is shown, and whether there was anything to call."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    monkeypatch.delitem(sys.modules, "ipykernel")
    with file_progress(tasks, show, "sales") as advance:
        for task in tasks if advance else ():
            advance(task)
    return stream.getvalue(), advance is not None


def test_no_bar_without_a_terminal(monkeypatch):
    assert run(monkeypatch, io.StringIO(), None) == ("", False)


def test_switched_off(monkeypatch):
    assert run(monkeypatch, Terminal(), False) == ("", False)


def test_nothing_to_read(monkeypatch):
    assert run(monkeypatch, Terminal(), True, []) == ("", False)


def test_a_short_load_in_a_terminal_shows_nothing(monkeypatch):
    assert run(monkeypatch, Terminal(), None) == ("", True)


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_forced(monkeypatch, stream):
    shown, called = run(monkeypatch, stream(), True)
    assert called
    assert "sales" in shown


def test_no_bar_for_a_stream_without_isatty(monkeypatch):
    class Odd:
        def write(self, text):
            raise AssertionError(text)

    monkeypatch.setattr(sys, "stderr", Odd())
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with file_progress(TASKS, None, "sales") as advance:
        assert advance is None


def test_a_typed_error_passes_through_the_library(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyError), file_progress(TASKS, True, "sales"):
        raise KeyError("x")
