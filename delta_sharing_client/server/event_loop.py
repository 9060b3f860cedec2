"""The event loop of the embedded server: uvicorn with a faster shutdown.

`uvicorn.Server` checks ten times a second whether to stop, and its shutdown takes at least 0.1 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from typing import Any, Final

import uvicorn

#: Seconds that responses in progress may take after a request to stop.
_GRACE: Final = 1.0
_TICK: Final = 0.1
_POLL: Final = 0.002
#: Turns of the loop from the acceptance of a connection to the call of its protocol.
_ACCEPT_TURNS: Final = 3


class EventLoopServer(uvicorn.Server):
    """A `uvicorn.Server` that runs on one thread and is stopped from another."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    def run_with(self, listener: socket.socket) -> None:
        """Serve on a socket until `request_stop` is called."""
        asyncio.run(self.serve(sockets=[listener]))

    def request_stop(self) -> None:
        """Stop the server; may be called from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stop.set)

    async def main_loop(self) -> None:
        """Wait for the request to stop; `on_tick` keeps the `Date` header current, once per ten ticks."""
        self._loop = asyncio.get_running_loop()
        for tick in itertools.count():
            if await self.on_tick(tick):
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _TICK)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listeners and idle connections, and wait a second for responses in progress."""
        for listener in sockets or []:
            with contextlib.suppress(NotImplementedError):  # the default loop of Windows has no readers
                asyncio.get_running_loop().remove_reader(listener)
        # asyncio does not close an accepted connection whose task runs after its server was closed.
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        end = time.monotonic() + _GRACE
        while (self.server_state.connections or self.server_state.tasks) and time.monotonic() < end:
            await asyncio.sleep(_POLL)
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            # uvicorn's protocol classes have no common type, and set it only when they are connected.
            transport: Any = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        await self.lifespan.shutdown()
        if tasks := set(self.server_state.tasks):  # a download that was cancelled closes its file
            await asyncio.wait(tasks, timeout=_GRACE)
