"""Certificates of TLS connections: the trusted authorities and the client certificate."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TypeAlias

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.util.ssl_ import create_urllib3_context

from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.paths import local_path

#: What changes with the content of a file; None if there is none.
_State: TypeAlias = tuple[int, ...] | None


def existing_files(options: TransportOptions) -> tuple[str, str | None, str | None]:
    """Return the files of authorities, client certificate and key; raise `ValueError` if one does not exist."""
    trusted = options.ca_bundle
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if trusted is None and os.environ.get(variable):
            trusted = local_path(os.environ[variable], variable)
    own = options.client_certificate
    pair = own if isinstance(own, tuple) else (own, None)
    certificate, key = (None if path is None else os.fspath(path) for path in pair)
    files = (os.fspath(trusted or DEFAULT_CA_BUNDLE_PATH), certificate, key)
    names = ("the CA bundle", "the client certificate", "the client certificate's key")
    for path, name in zip(files, names, strict=True):
        if path is not None and not Path(path).exists():
            raise ValueError(f"{name} {path!r} does not exist; see TransportOptions")
    return files


class TlsContext:
    """The TLS context of one client, which verifies servers, with a client certificate if given.

    It is the same one until a file changes: certificates are rotated while processes run. Reading the trusted ones
    takes 15 ms.

    Raises:
        ValueError: a file does not exist.
    """

    def __init__(self, options: TransportOptions) -> None:
        self._files = existing_files(options)
        self._lock = ForkSafeLock()
        self._made: tuple[tuple[_State, ...], ssl.SSLContext] | None = None

    def current(self) -> ssl.SSLContext:
        """Return the context of the files as they are now; the last one while a file is being replaced.

        Raises:
            ValueError: a file cannot be used, and there is no context yet.
        """
        states = tuple(map(_state, self._files))
        with self._lock:
            if self._made is None or self._made[0] != states:
                try:
                    self._made = states, _context(*self._files)
                except ValueError:
                    if self._made is None:
                        raise
            return self._made[1]


def _state(file: str | None) -> _State:
    """Return what changes with the content of a file, or of a directory of certificates."""
    try:
        found = None if file is None else Path(file).stat()
    except OSError:
        return None  # reading it gives the reason
    return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _context(trusted: str, certificate: str | None, key: str | None) -> ssl.SSLContext:
    context: ssl.SSLContext = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    file, subject = trusted, "the CA bundle"
    try:
        context.load_verify_locations(**{"capath" if Path(trusted).is_dir() else "cafile": trusted})
        if certificate is not None:
            file, subject = certificate, "the client certificate"
            # An empty password, or OpenSSL asks for one on the terminal.
            context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ValueError(f"{subject} {file!r} cannot be read: {error.strerror or error}") from None
    return context
