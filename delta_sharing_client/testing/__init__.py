"""Support for tests of code that reads shared tables: a pytest plugin, and the server that its fixtures return.

pytest loads the plugin (`plugin`) by its entry point. It imports nothing else before a test uses a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_sharing_client.server.faults import Fault, Faults
    from delta_sharing_client.testing.table_server import TableServer

__all__ = ["Fault", "Faults", "TableServer"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "TableServer":
            from delta_sharing_client.testing.table_server import TableServer

            return TableServer
        if name in ("Fault", "Faults"):
            from delta_sharing_client.server import faults

            return getattr(faults, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
