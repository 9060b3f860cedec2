"""Helpers for the tests of pollers: a clock, spans of versions, recorded requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from delta_sharing_client.cdf.batch import ChangeBatch
from delta_sharing_client.cdf.clock import StopSignal
from delta_sharing_client.server import SharingServer


class FakeClock:
    """Time that passes only in waits; the functions `meanwhile` are called during them, one for each wait.

    waits: how long each wait was, in seconds.
    """

    def __init__(self, *meanwhile: Callable[[], Any]) -> None:
        self.time = 1000.0
        self.waits: list[float] = []
        self._meanwhile = list(meanwhile)

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float, signal: StopSignal) -> None:
        self.waits.append(seconds)
        self.time += seconds
        if self._meanwhile:
            self._meanwhile.pop(0)()
        else:
            signal.stop()


def ids(batch: ChangeBatch) -> list[Any]:
    return batch.to_arrow().column("id").to_pylist()


def spans(batches: Iterable[ChangeBatch]) -> list[tuple[int, int]]:
    return [(batch.first_version, batch.last_version) for batch in batches]


def requested(server: SharingServer) -> list[str]:
    """The requests since the last reset: the last part of each path; `file` for a file."""
    found = ["file" if request.is_file else request.path.rpartition("/")[2] for request in server.requests]
    server.reset_requests()
    return found
