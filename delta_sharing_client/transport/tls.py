"""Certificates of TLS connections: the trusted authorities and the client certificate."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.util.ssl_ import create_urllib3_context

from delta_sharing_client.options import TransportOptions


@dataclass(frozen=True)
class TlsFiles:
    """The files that TLS connections use.

    Attributes:
        trusted: the file or directory of trusted certificates.
        certificate: the file of a client certificate.
        key: the file of its key, where it is not in the same one.
    """

    trusted: str
    certificate: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, options: TransportOptions) -> Self:
        """Return the files that the options and the environment name.

        Raises:
            ValueError: one of them does not exist.
        """
        given = options.ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
        trusted = _existing(given or DEFAULT_CA_BUNDLE_PATH, "the CA bundle")
        own = options.client_certificate
        if own is None:
            return cls(trusted)
        if isinstance(own, str):
            return cls(trusted, _existing(own, "the client certificate"))
        certificate, key = own
        return cls(
            trusted,
            _existing(certificate, "the client certificate"),
            _existing(key, "the client certificate's key"),
        )

    @property
    def trusts_directory(self) -> bool:
        """Whether `trusted` is a directory."""
        return Path(self.trusted).is_dir()

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that verifies servers; the same one for the same files.

        Raises:
            ValueError: a file cannot be used.
        """
        return _context(self)


# Reading the trusted certificates takes 15 ms.
@lru_cache(maxsize=8)
def _context(files: TlsFiles) -> ssl.SSLContext:
    context: ssl.SSLContext = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    path = {"capath" if files.trusts_directory else "cafile": files.trusted}
    try:
        context.load_verify_locations(**path)
    except OSError as error:
        raise ValueError(f"the CA bundle {files.trusted!r} cannot be read: {error.strerror or error}") from None
    if files.certificate is not None:
        try:
            # An empty password, or OpenSSL asks for one on the terminal.
            context.load_cert_chain(files.certificate, files.key, password="")
        except OSError as error:
            raise ValueError(
                f"the client certificate {files.certificate!r} cannot be read: {error.strerror or error}"
            ) from None
    return context


def _existing(path: str | os.PathLike[str], what: str) -> str:
    if not Path(path).exists():
        raise ValueError(f"{what} {os.fspath(path)!r} does not exist; see TransportOptions")
    return os.fspath(path)
