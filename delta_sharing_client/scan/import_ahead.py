"""Import of the modules that read files, while the first request and the first files are under way.

A thread of its own would outlive an interrupted call: it could wait for the lock of a module for ever, and the
process with it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

from delta_sharing_client.transport.meanwhile import while_waiting

#: What every scan needs after the answer.
_READING: Final = tuple(f"delta_sharing_client.scan.{name}" for name in ("file_tasks", "pipeline", "url_renewal"))


def import_ahead(*modules: str) -> AbstractContextManager[None]:
    """Import modules within the block, at the moments when this thread would wait.

    NumPy, pyarrow and pandas take longer to import than a request takes. What the answer needs is imported when
    the request has been sent, and `modules` when the first files have been requested.
    """
    return while_waiting(partial(_import, _READING), partial(_import, modules))


def _import(modules: tuple[str, ...]) -> None:
    missing = [module for module in modules if module not in sys.modules]
    if not missing:
        return
    with _interrupts_delayed():
        for module in missing:
            # Whatever fails here is imported again, and fails, where it is used.
            with suppress(Exception):
                import_module(module)


@contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Handle Ctrl-C at the end of the block: within an import it can leave a module's lock locked for ever."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[int] = []

    def receive(number: int, frame: Any) -> None:
        received.append(number)

    try:
        signal.signal(signal.SIGINT, receive)
    except ValueError:  # in another interpreter of this process
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)
