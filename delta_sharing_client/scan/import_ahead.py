"""Import of the modules that read files, while the first request waits for its answer."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Final

#: What every scan needs after the answer.
_READING: Final = ("delta_sharing_client.scan.data_skipping", "delta_sharing_client.scan.plan_reader")


def import_ahead(*modules: str) -> None:
    """Start to import modules in another thread, unless they are imported.

    NumPy, pyarrow and pandas take longer to import than a request takes. The thread ends with the imports; an
    error is raised where the modules are used.
    """
    missing = [module for module in (*_READING, *modules) if module not in sys.modules]
    if missing:
        threading.Thread(target=_import, args=(missing,), name="delta-sharing-imports").start()


def _import(modules: list[str]) -> None:
    for module in modules:
        # Whatever fails here is imported again, and fails, where it is used. While the interpreter ends, modules
        # that start threads raise RuntimeError.
        with suppress(Exception):
            import_module(module)
