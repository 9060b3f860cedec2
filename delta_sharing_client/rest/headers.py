"""Headers of the sharing protocol: table version and capabilities."""

from __future__ import annotations

from typing import Final

from delta_sharing_client.model import capabilities
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.transport.response import Response

VERSION_HEADER: Final = "Delta-Table-Version"


def version_of(response: Response) -> int | None:
    """Return the answer's `Delta-Table-Version`, or None if it is missing or malformed."""
    text = (response.headers.get(VERSION_HEADER) or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def capability_headers(formats: tuple[ResponseFormat, ...], *, asynchronous: bool = False) -> dict[str, str]:
    """Return the capabilities header of a request."""
    return {capabilities.HEADER: capabilities.request_capabilities(formats, asynchronous=asynchronous)}


def capabilities_of(response: Response) -> capabilities.ResponseCapabilities:
    """Return the capabilities of an answer."""
    return capabilities.parse_capabilities(response.headers.get(capabilities.HEADER))
