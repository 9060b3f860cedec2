"""Redirect receiver of the authorization code grant: an HTTP server on loopback (RFC 8252, section 7.3)."""

from __future__ import annotations

import hmac
import os
import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from delta_sharing_client.auth.oauth import clean_text
from delta_sharing_client.errors import TokenError

_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Delta Sharing</title>
<p>{}</p></html>
"""
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "Connection": "close",
}


class RedirectReceiver(ThreadingHTTPServer):
    """Receives the redirect of a browser; a context manager. Only loopback can connect.

    Args:
        redirect_uri: http on 127.0.0.1 or localhost; without a port, the system chooses one.
        state: the `state` of the authorization request; an answer with another one is refused.
        issuer: the OpenID provider; an answer that names another one ends the sign-in (RFC 9207).
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = os.name != "nt"  # on Windows another process could take the port

    def __init__(self, redirect_uri: str, state: str, issuer: str) -> None:
        parts = urlsplit(redirect_uri)
        try:
            super().__init__(("127.0.0.1", parts.port or 0), _Handler)
        except OSError as error:
            raise TokenError(f"the redirect URI {redirect_uri} cannot be served: {error.strerror}") from None
        self.path = parts.path or "/"
        self.redirect_uri = f"http://{parts.hostname}:{self.server_port}{self.path}"
        self.state, self.issuer = state, issuer
        self._answers: queue.Queue[Mapping[str, str]] = queue.Queue(1)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True, name="sign-in").start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the end of a connection."""

    def accept(self, target: str) -> str | None:
        """Keep the first answer with the expected state; return the text of the page, or None if refused."""
        answer = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        if not hmac.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            return None
        if not answer.get("code") and not answer.get("error"):
            return None
        with suppress(queue.Full):
            self._answers.put_nowait(answer)
        if answer.get("error") or answer.get("iss", self.issuer) != self.issuer:
            return "The sign-in failed. The terminal shows the reason; you can close this page."
        return "The sign-in continues in the terminal. You can close this page."

    def wait(self, timeout: float) -> Mapping[str, str]:
        """Return the parameters of the answer.

        Raises:
            TokenError: there is none after `timeout` seconds, or another issuer has answered.
        """
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise TokenError(f"nobody signed in within {timeout:.0f} s; try again") from None
        if answer.get("iss", self.issuer) != self.issuer:
            raise TokenError(
                f"the sign-in was answered by another issuer ({(clean_text(answer, 'iss') or '')[:200]}), "
                f"not {self.issuer}, and is refused; try again, and tell the provider if that happens again"
            )
        return answer


class _Handler(BaseHTTPRequestHandler):
    server: RedirectReceiver
    timeout = 10

    def do_GET(self) -> None:  # the name that the base class calls
        text = self.server.accept(self.path) if urlsplit(self.path).path == self.server.path else None
        body = _PAGE.format(text or "This is not the answer to the current sign-in.").encode()
        self.send_response(400 if text is None else 200)
        for name, value in {**_HEADERS, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the base class
        """Log nothing: the request contains the code."""
