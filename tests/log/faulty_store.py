"""A file system of fsspec in memory whose creates fail in the ways of object stores and of their drivers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem

__version__ = "2026.1.0"
SECRET = "canary-secret-of-a-store"


class FaultyFileSystem(MemoryFileSystem):
    """A store with exclusive creates. `faults` are called in place of the next creates of commits."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults: ClassVar[deque[Callable[[FaultyFileSystem, str, bytes], None]]] = deque()
    #: The same, in place of the creates that prove what the store does.
    probe_faults: ClassVar[deque[Callable[[FaultyFileSystem, str, bytes], None]]] = deque()
    #: Listings that are returned in place of the next ones.
    stale: ClassVar[deque[list[dict[str, Any]]]] = deque()
    obeys: ClassVar[bool] = True
    reads: ClassVar[list[str]] = []
    _lock = threading.Lock()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("faulty://").strip("/")

    def create(self, path: str, data: bytes) -> None:
        with self._lock:
            if type(self).obeys and self.exists(path):
                raise FileExistsError(path)
            super().pipe_file(path, data)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if mode != "create":
            super().pipe_file(path, value)
        elif faults := self.faults if path.endswith(".json") else self.probe_faults:
            faults.popleft()(self, path, value)
        else:
            self.create(path, value)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return self.stale.popleft() if self.stale else super().ls(path, detail, **kwargs)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        type(self).reads.append(path)
        return super().cat_file(path, start=start, end=end, **kwargs)


def reset() -> None:
    """Empty the store and remove the faults."""
    system = FaultyFileSystem
    for kept in (system.store, system.faults, system.probe_faults, system.stale, system.reads):
        kept.clear()
    system.obeys = True


def lost(system: FaultyFileSystem, path: str, data: bytes) -> None:
    """The store has the file; its answer is lost."""
    system.create(path, data)
    raise TimeoutError(f"no answer, key={SECRET}")


def dropped(system: FaultyFileSystem, path: str, data: bytes) -> None:
    """The request does not reach the store."""
    raise ConnectionResetError("reset")


def repeated(system: FaultyFileSystem, path: str, data: bytes) -> None:
    """The driver repeats a request whose answer was lost."""
    system.create(path, data)
    system.create(path, data)


def refused(system: FaultyFileSystem, path: str, data: bytes) -> None:
    raise PermissionError(f"AccessDenied for key={SECRET}")


def delayed(system: FaultyFileSystem, path: str, data: bytes) -> None:
    """The request reaches the store after its time-out, before the driver's next one."""
    system.faults.appendleft(lambda *_: (system.create(path, data), system.create(path, data)))
    raise TimeoutError("no answer")


def overtaken(other: bytes) -> Callable[[FaultyFileSystem, str, bytes], None]:
    """Another writer is first, and the refusal is lost."""

    def fault(system: FaultyFileSystem, path: str, data: bytes) -> None:
        system.create(path, other)
        raise TimeoutError("no answer")

    return fault
