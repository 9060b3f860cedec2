"""`SharingServer`: the embedded server on a thread, with its endpoint, profile and recorded requests."""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from delta_sharing_client.errors import MissingDependencyError
from delta_sharing_client.log.durable_files import replace_file
from delta_sharing_client.paths import local_path
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret
from delta_sharing_client.server.catalog import Catalog
from delta_sharing_client.server.faults import Faults
from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.recording import RecordedRequest, Recorder

if TYPE_CHECKING:
    from delta_sharing_client.server.event_loop import EventLoopServer

#: Seconds after which a start or a stop has failed, on a busy machine too.
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 60.0
_BACKLOG: Final = 1024


class SharingServer:
    """An embedded Delta Sharing server, which runs on a thread.

        with SharingServer("warehouse") as server:
            client = SharingClient(server.profile)

    Args:
        tables: a directory, in which each directory with a `_delta_log` is a shared table. Its path is
            `share/schema/table`, `schema/table` (in the share `local`) or `table` (in the schema `default` of the
            share `local`). Or a mapping of `share.schema.table` to a table's directory. Tables that are added to
            the directory or to the mapping later are shared too.
        options: the options; the defaults if None.
        **changes: single options, such as `port=8080`; see `ServerOptions`.

    Raises:
        MissingDependencyError: the extra `server` is not installed.
        DeltaTableNotFoundError: there is no Delta table to share.
        ValueError: a name or an option is invalid.
    """

    def __init__(
        self,
        tables: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
        *,
        options: ServerOptions | None = None,
        **changes: Any,
    ) -> None:
        self._server: EventLoopServer | None = None
        self._thread: threading.Thread | None = None
        options = replace(options or ServerOptions(), **changes)
        token = Secret(options.token or secrets.token_urlsafe(32))
        expires = time.time() + options.token_lifetime.total_seconds()
        if isinstance(tables, Mapping):
            catalog = Catalog.named(tables)
        else:
            catalog = Catalog.scan(
                tables, default_share=options.default_share, default_schema=options.default_schema
            )
        try:
            import itsdangerous  # noqa: F401
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError(
                package=error.name or "starlette", extra="server", purpose="The embedded sharing server"
            ) from error
        from delta_sharing_client.server.app import Api

        api = Api(catalog=catalog, options=options, token=token, token_expires=expires)
        self.options = replace(options, token=None)
        self._token = token
        self._expires = expires
        self._catalog = catalog
        self._faults = Faults(api.application())
        self._recorder = Recorder(self._faults, limit=options.recorded_requests)
        self._port = options.port

    def start(self) -> Self:
        """Start the server, and return when it answers requests.

        Raises:
            OSError: the port is in use, or not permitted.
            RuntimeError: the server runs already, or does not start.
        """
        import uvicorn

        from delta_sharing_client.server.event_loop import EventLoopServer

        if self._thread is not None:
            raise RuntimeError("the server runs already")
        listener = _listen(self.options.host, self._port)
        config = uvicorn.Config(
            self._recorder,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            timeout_keep_alive=75,
        )
        server = EventLoopServer(config)
        thread = threading.Thread(
            target=server.run_with, args=(listener,), name="delta-sharing-server", daemon=True
        )
        thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                server.request_stop()
                listener.close()
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        self._server, self._thread, self._port = server, thread, listener.getsockname()[1]
        return self

    def stop(self) -> None:
        """Close the port and open connections, and wait for the thread; do nothing if the server does not run."""
        if self._server is None or self._thread is None:
            return
        self._server.request_stop()
        self._thread.join(timeout=_STOP_SECONDS)
        self._server = self._thread = None

    def wait(self) -> None:
        """Wait until the server stops."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout=0.2)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """The server's URL, as in a profile.

        Raises:
            RuntimeError: the server was not started, and its port is 0.
        """
        if self._port == 0:
            raise RuntimeError("the server has no address before it is started")
        # Clients cannot connect to the address that stands for all addresses.
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        host = anywhere.get(self.options.host, self.options.host)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self._port}/delta-sharing"

    @property
    def profile(self) -> dict[str, Any]:
        """A profile for the server, with the token as plain text."""
        expires = datetime.fromtimestamp(int(self._expires), UTC).replace(tzinfo=None)
        return {
            "shareCredentialsVersion": 1,
            "endpoint": self.endpoint,
            "bearerToken": self._token.reveal(),
            "expirationTime": expires.isoformat() + ".0Z",
        }

    def write_profile(self, path: str | os.PathLike[str]) -> Path:
        """Write the profile to a file that only its owner can read; replace an existing file atomically.

        Returns:
            The path.
        """
        target = local_path(path, "path")
        text = json.dumps(self.profile, indent=2) + "\n"
        replace_file(target, text.encode(), private=True)
        return target

    @property
    def tables(self) -> tuple[str, ...]:
        """The full names of the shared tables, sorted."""
        self._catalog.refresh()
        return tuple(table.full_name for table in self._catalog.tables)

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests since the start or the last `reset_requests`, oldest first.

        The server keeps the last `ServerOptions.recorded_requests`.
        """
        return self._recorder.requests

    @property
    def faults(self) -> Faults:
        """The faults of the server: none, until a test adds some."""
        return self._faults

    def reset_requests(self) -> None:
        """Delete the recorded requests."""
        self._recorder.reset()

    @representation
    def __repr__(self) -> str:
        where = self.endpoint if self._server is not None else "stopped"
        return f"<SharingServer {where}, {len(self.tables)} tables>"


def _listen(host: str, port: int) -> socket.socket:
    """Bind in the caller's thread, so that the caller gets errors of the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm, which delays responses by 40 ms, only if the protocol is given.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise OSError(
                errno.EADDRINUSE, f"port {port} on {host} is in use: choose another, or 0 for any"
            ) from None
        raise OSError(
            error.errno,
            f"cannot listen on {host}, port {port} ({error.strerror or error}): choose an address of this machine "
            "and a port that this user may open",
        ) from None
    return listener
