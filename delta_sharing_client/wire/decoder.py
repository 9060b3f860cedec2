"""Decoding of an answer's NDJSON body into typed actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from delta_sharing_client.errors import (
    IncompleteResponseError,
    ProtocolError,
    QueryError,
    ResponseFormatError,
)
from delta_sharing_client.model.actions import EndStreamAction, Metadata, Protocol, ResponseFormat
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.model.json_fields import integer, names, optional_integer, optional_text, text
from delta_sharing_client.model.json_text import is_second_value
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.file_lines import LINES, FileLineDecoder, known_actions
from delta_sharing_client.wire.ndjson import MAX_LINE, Json, Lines, parse_object

#: What the lines of an answer are decoded into.
Decoded: TypeAlias = Protocol | Metadata | FileBlock | EndStreamAction

#: Maximum characters of a token for a page or for fresh URLs, which the client sends back.
MAX_TOKEN: Final = 64 * 1024


def decode_actions(
    chunks: Iterable[bytes],
    *,
    formats: tuple[ResponseFormat, ...],
    capabilities: ResponseCapabilities,
    subject: str,
    limit: int = MAX_LINE,
) -> Iterator[Decoded]:
    """Decode an answer to /metadata, /query or /changes.

    The first action is the protocol; its format is the answer's format. If the header promises an EndStreamAction,
    it must be the last line.

    Args:
        chunks: the body.
        formats: the requested formats.
        capabilities: the capabilities in the answer's header.
        subject: the requested object, for messages.
        limit: the maximum bytes of a line, and of all lines without a file (`TransportOptions.metadata_limit`).

    Yields:
        The actions in the server's order, files in blocks.

    Raises:
        ResponseFormatError: the answer is in delta format, which was not requested.
        IncompleteResponseError: the answer is truncated.
        QueryError: the server reports an error in the answer.
        ProtocolError: a line breaks the protocol.
    """
    end: EndStreamAction | None = None
    protocol: Protocol | None = None
    files: FileLineDecoder | None = None
    number = 0
    lines = Lines(chunks, subject, limit)
    for part in lines:
        if files is not None and (added := files.decode(part)) is not None:
            number += len(added)
            yield added
            continue
        if lines.is_blank(part) or lines.split(part):
            continue
        line = lines.single(part)
        number += 1
        if end is not None:
            raise ProtocolError(f"{subject}: line {number} of the answer comes after its EndStreamAction")
        action = _decode_line(line, files, lines, subject, number)
        if not isinstance(action, FileBlock):
            lines.add_other(line)
        if isinstance(action, EndStreamAction):
            end, files = action, None
            _check_end(end, subject)
        elif isinstance(action, Protocol):
            protocol = _check_format(action, formats, capabilities, subject)
            files = FileLineDecoder(is_delta=protocol.response_format == "delta")
        elif protocol is None:
            raise ProtocolError(f"{subject}: the answer does not begin with a protocol line")
        yield action
    if end is None and capabilities.end_stream_action:
        raise IncompleteResponseError(
            f"{subject}: the answer ends after {number} lines without the EndStreamAction that its header promises"
        )
    if protocol is None and end is None:
        raise IncompleteResponseError(f"{subject}: the answer is empty")


def _decode_line(line: bytes, files: FileLineDecoder | None, rest: Lines, subject: str, number: int) -> Decoded:
    """Return the action of one line; if a malformed line is the last one, the answer is truncated."""
    try:
        item = parse_object(line)
    except ValueError as error:
        if is_second_value(error):
            raise ProtocolError(
                f"{subject}: line {number} of the answer has two JSON objects instead of one"
            ) from None
        if all(map(rest.is_blank, rest)):
            raise IncompleteResponseError(f"{subject}: the answer was cut inside line {number}") from None
        raise ProtocolError(f"{subject}: line {number} of the answer is not JSON: {error}") from None
    except RecursionError:
        raise ProtocolError(f"{subject}: line {number} of the answer is nested too deep") from None
    try:
        return _action(item, files)
    except (ValueError, ProtocolError) as error:
        raise ProtocolError(f"{subject}: line {number} of the answer: {error}") from None
    except QueryError as error:
        raise QueryError(subject=subject, server_message=error.server_message) from None


def _check_end(end: EndStreamAction, subject: str) -> None:
    status = end.http_status_error_code
    if end.error_message is not None or (status is not None and status >= 400):
        message = end.error_message or "without a reason"
        raise QueryError(subject=subject, server_message=message, status=status)


def _check_format(
    protocol: Protocol, formats: tuple[ResponseFormat, ...], capabilities: ResponseCapabilities, subject: str
) -> Protocol:
    answered = protocol.response_format
    if answered == "delta" and "delta" not in formats:
        raise ResponseFormatError(
            f"{subject}: requested parquet format, the server answered in delta format; the table may need it: "
            "leave response_format (use_delta_format) unset"
        )
    if capabilities.response_format not in (None, answered):
        raise ProtocolError(
            f"{subject}: the header has {capabilities.response_format} format, the protocol line {answered} format"
        )
    return protocol


def _action(item: Json, files: FileLineDecoder | None) -> Decoded:
    """Return the action of a line that is not a well-formed file; `QueryError` is that of an error object."""
    present = [key for key in (*_DECODERS, *LINES) if item.get(key) is not None]
    if len(present) > 1:
        raise ProtocolError(f"it has {len(present)} actions ({', '.join(present)}) instead of one")
    found = (files or FileLineDecoder(is_delta=True)).decode_leniently(item)
    if found is not None:
        return found
    for key, decode in _DECODERS.items():
        inner = item.get(key)
        if inner is not None:
            if not isinstance(inner, dict):
                raise ProtocolError(f"{key!r} is not an object")
            return decode(inner)
    if not item or item.keys() & _END_KEYS:
        return _end_stream(item)
    if "errorCode" in item:
        message = ": ".join(str(item[k]) for k in ("errorCode", "message") if item.get(k))
        raise QueryError(subject="the request", server_message=message)
    if "queryStatus" in item:
        raise ProtocolError("the server answers asynchronously, which was not requested")
    kinds = ", ".join(sorted(map(repr, item)))[:200]
    raise ProtocolError(f"unknown action {kinds}; {known_actions((*_DECODERS, *LINES))}")


_END_KEYS: Final = frozenset(
    {"refreshToken", "nextPageToken", "minUrlExpirationTimestamp", "errorMessage", "httpStatusErrorCode"}
)


def _protocol(item: Json) -> Protocol:
    inner = item.get("deltaProtocol")
    if inner is None:
        protocol = Protocol(integer(item, "minReaderVersion"))
    elif not isinstance(inner, dict):
        raise ProtocolError("'deltaProtocol' is not an object")
    else:
        protocol = Protocol.from_json(inner)
    return replace(protocol, version=optional_integer(item, "version"))


def _metadata(item: Json) -> Metadata:
    inner = item.get("deltaMetadata", item)
    if not isinstance(inner, dict):
        raise ProtocolError("'deltaMetadata' is not an object")
    if inner is item:
        text(item, "schemaString")  # only the delta format may leave it out, for a table without columns
    metadata = Metadata.from_json(inner)
    provider = metadata.format.provider
    if provider != "parquet":
        raise ProtocolError(f"the table's files are in the format {provider!r}; only parquet is defined")
    return replace(
        metadata,
        version=optional_integer(item, "version"),
        size=optional_integer(item, "size"),
        num_files=optional_integer(item, "numFiles"),
        location=optional_text(item, "location"),
        auxiliary_locations=names(item, "auxiliaryLocations"),
        access_modes=names(item, "accessModes"),
    )


def page_token(item: Json, key: str) -> str | None:
    """Return a token of an answer, which may be missing; raise `ValueError` for one that is too long."""
    token = optional_text(item, key)
    if token is not None and len(token) > MAX_TOKEN:
        raise ValueError(f"{key!r} has {len(token):,} characters; at most {MAX_TOKEN:,} are sent back")
    return token


def _end_stream(item: Json) -> EndStreamAction:
    message = item.get("errorMessage")
    return EndStreamAction(
        page_token(item, "refreshToken"),
        page_token(item, "nextPageToken"),
        optional_integer(item, "minUrlExpirationTimestamp"),
        str(message) if message else None,
        optional_integer(item, "httpStatusErrorCode"),
    )


_DECODERS: Final[Mapping[str, Callable[[Json], Decoded]]] = {
    "protocol": _protocol,
    "metaData": _metadata,
    "endStreamAction": _end_stream,
}
