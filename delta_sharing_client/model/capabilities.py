"""The `delta-sharing-capabilities` header, sent with each request and echoed with each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.reader_features import SUPPORTED_FEATURES

HEADER: Final = "delta-sharing-capabilities"


def request_capabilities(formats: Sequence[ResponseFormat], *, asynchronous: bool = False) -> str:
    """Return the header's value for a request that accepts these response formats, best first.

    The end-of-stream line is always requested: it distinguishes a complete answer from a truncated one.

    Args:
        formats: the response formats.
        asynchronous: whether the answer may be one that has to be asked for again later.
    """
    parts = [f"responseformat={','.join(formats)}"]
    if "delta" in formats:
        parts.append(f"readerfeatures={','.join(sorted(SUPPORTED_FEATURES))}")
    parts.append("includeendstreamaction=true")
    if asynchronous:
        parts.append("asyncquery=true")
    return ";".join(parts)


@dataclass(frozen=True, slots=True)
class ResponseCapabilities:
    """The capabilities in the header of an answer.

    Attributes:
        response_format: the format of the lines; None if the header does not state it.
        end_stream_action: whether the answer's last line is promised to be an EndStreamAction.
        asynchronous: whether the server answers queries asynchronously and keeps what they ask for.
    """

    response_format: ResponseFormat | None = None
    end_stream_action: bool = False
    asynchronous: bool = False


def parse_capabilities(value: str | None) -> ResponseCapabilities:
    """Decode the header of a response; keys and values are case-insensitive, unknown ones are ignored."""
    known: dict[str, str] = {}
    for part in (value or "").split(";"):
        key, equals, text = part.partition("=")
        if equals:
            known[key.strip().lower()] = text.strip().lower()
    answered = known.get("responseformat")
    response_format: ResponseFormat | None = None
    if answered == "delta":
        response_format = "delta"
    elif answered == "parquet":
        response_format = "parquet"
    return ResponseCapabilities(
        response_format, known.get("includeendstreamaction") == "true", known.get("asyncquery") == "true"
    )
