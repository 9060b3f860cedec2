"""Certificates of TLS connections: the trusted authorities and the client certificate."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from pathlib import Path

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.util.ssl_ import create_urllib3_context

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.paths import local_path


def existing_files(options: TransportOptions) -> tuple[str, str | None, str | None]:
    """Return the arguments of `tls_context`; raise `ValueError` if a file does not exist."""
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


def tls_context(trusted: str, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Return a TLS context that verifies servers, with a client certificate if given.

    It is the same one until a file changes: certificates are rotated while processes run.

    Raises:
        ValueError: a file cannot be used.
    """
    files = trusted, certificate, key
    return _context(*files, tuple(_state(file) for file in files))


def _state(file: str | None) -> tuple[int, ...] | None:
    """Return what changes with the content of a file, or of a directory of certificates."""
    try:
        found = None if file is None else Path(file).stat()
    except OSError:
        return None  # reading it gives the reason
    return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=8)  # reading the trusted certificates takes 15 ms
def _context(
    trusted: str, certificate: str | None, key: str | None, _states: tuple[tuple[int, ...] | None, ...]
) -> ssl.SSLContext:
    context: ssl.SSLContext = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    file, what = trusted, "the CA bundle"
    try:
        context.load_verify_locations(**{"capath" if Path(trusted).is_dir() else "cafile": trusted})
        if certificate is not None:
            file, what = certificate, "the client certificate"
            # An empty password, or OpenSSL asks for one on the terminal.
            context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ValueError(f"{what} {file!r} cannot be read: {error.strerror or error}") from None
    return context
