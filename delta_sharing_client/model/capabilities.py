"""The `delta-sharing-capabilities` header, sent with each request and echoed with each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.reader_features import ADVERTISED_FEATURES

HEADER: Final = "delta-sharing-capabilities"
#: The header by which a client requests the ids of files in the scheme of one format ("File ID Hash Header").
FILE_ID_HASH: Final = "fileidhash"


def request_capabilities(
    formats: Sequence[ResponseFormat], *, asynchronous: bool = False, views: bool = False
) -> str:
    """Return the header's value for a request that accepts these response formats, best first.

    The EndStreamAction is always requested: it distinguishes a complete answer from a truncated one.

    Args:
        formats: the response formats.
        asynchronous: whether the server may answer asynchronously.
        views: whether the changes of a view may be returned, which have no versions.
    """
    parts = [f"responseformat={','.join(formats)}"]
    if "delta" in formats:
        parts.append(f"readerfeatures={','.join(sorted(ADVERTISED_FEATURES))}")
    parts.append("includeendstreamaction=true")
    if asynchronous:
        parts.append("asyncquery=true")
    if views:
        parts.append("cdfonviews=true")
    return ";".join(parts)


class ResponseCapabilities(Struct, frozen=True):
    """The capabilities in the header of an answer.

    Attributes:
        response_format: the format of the lines; None if the header does not state it.
        end_stream_action: whether the header promises an EndStreamAction as the last line.
        asynchronous: whether the server answers asynchronously, and keeps the parameters of the query.
        changes_of_view: whether the answer lists the changes of a view.
    """

    response_format: ResponseFormat | None = None
    end_stream_action: bool = False
    asynchronous: bool = False
    changes_of_view: bool = False


_FORMATS: Final[Mapping[str | None, ResponseFormat]] = {"delta": "delta", "parquet": "parquet"}


def parse_capabilities(value: str | None) -> ResponseCapabilities:
    """Decode the header of a response; keys and values are case-insensitive, unknown ones are ignored."""
    parts = [part.partition("=") for part in (value or "").lower().split(";")]
    known = {key.strip(): text.strip() for key, equals, text in parts if equals}
    return ResponseCapabilities(
        _FORMATS.get(known.get("responseformat")),
        known.get("includeendstreamaction") == "true",
        known.get("asyncquery") == "true",
        known.get("cdfonviews") == "true",
    )
