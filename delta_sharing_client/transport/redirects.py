"""Target of a redirect. Each transport follows redirects by its own rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import urljoin

from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError

MAX_REDIRECTS: Final = 5

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class _Response(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def url(self) -> SecretUrl: ...


def redirect_target(response: _Response) -> SecretUrl | None:
    """Return the target of a redirect; None for another response.

    Args:
        response: the response.

    Raises:
        NonRetryableTransportError: it redirects to a malformed URL.
    """
    if response.status not in _REDIRECTS or not response.headers.get("Location"):
        return None
    try:
        return SecretUrl(urljoin(response.url.reveal(), response.headers["Location"]))
    except ValueError:
        pass
    raise NonRetryableTransportError("the server redirects to a malformed URL", url=response.url)
