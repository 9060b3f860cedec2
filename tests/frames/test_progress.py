"""A progress bar where somebody is watching, and nowhere else."""

import io
import sys

import pytest

from delta_sharing_client.frames.progress import byte_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(monkeypatch, stream, show, files=3):
    """What is shown, and whether there was anything to call."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    monkeypatch.delitem(sys.modules, "ipykernel")
    with byte_progress(1000 * files, show, "sales") as advance:
        for _ in range(files if advance else 0):
            advance(1000)
    return stream.getvalue(), advance is not None


def test_no_bar_without_a_terminal(monkeypatch):
    assert run(monkeypatch, io.StringIO(), None) == ("", False)


def test_switched_off(monkeypatch):
    assert run(monkeypatch, Terminal(), False) == ("", False)


def test_nothing_to_read(monkeypatch):
    assert run(monkeypatch, Terminal(), True, 0) == ("", False)


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
    with byte_progress(3000, None, "sales") as advance:
        assert advance is None


def test_a_typed_error_passes_through_the_library(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyError), byte_progress(3000, True, "sales"):
        raise KeyError("x")
