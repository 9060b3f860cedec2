"""From the bytes of an answer to typed actions, the usual lines many at a time, all others one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from delta_sharing_client.errors import (
    IncompleteResponseError,
    ProtocolError,
    QueryError,
    ResponseFormatError,
)
from delta_sharing_client.model.actions import (
    Action,
    AddFile,
    CdcFile,
    DeletionVector,
    EndStreamAction,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    ResponseFormat,
)
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.model.json_fields import integer, optional_integer, optional_text, text
from delta_sharing_client.model.numbers import MAX_MILLISECONDS
from delta_sharing_client.secrets import SecretUrl, unsigned_url
from delta_sharing_client.wire.ndjson import Json, Lines, parse_object
from delta_sharing_client.wire.typed_lines import Decoded, TypedFileDecoder, typed_decoder


def decode_actions(
    chunks: Iterable[bytes],
    *,
    formats: tuple[ResponseFormat, ...],
    capabilities: ResponseCapabilities,
    what: str,
) -> Iterator[Decoded]:
    """Decode an answer to /metadata, /query or /changes.

    The first action is the protocol; its format is the answer's format. The end is checked: an
    EndStreamAction that the header promised has to come.

    Args:
        chunks: the body, in pieces.
        formats: the formats that were asked for.
        capabilities: what the answer's header says.
        what: the thing asked for, for messages.

    Yields:
        The actions in the server's order, an EndStreamAction last where there is one; files that follow each other
        and are as usual together.

    Raises:
        ResponseFormatError: parquet was asked for and delta came.
        IncompleteResponseError: the answer ends before its end.
        QueryError: the server reports an error in the answer.
        ProtocolError: a line is not what the protocol allows.
    """
    end: EndStreamAction | None = None
    protocol: Protocol | None = None
    usual_files: TypedFileDecoder | None = None
    number = 0
    body = Lines(chunks)
    blocks = body.blocks()
    for block in blocks:
        if usual_files is not None and (files := usual_files(block)) is not None:
            number += len(files)
            yield files
            continue
        lines = body.of(block)
        for line in lines:
            number += 1
            if usual_files is not None and (files := usual_files(line)) is not None:
                yield files
                continue
            if end is not None:
                raise ProtocolError(f"{what}: line {number} of the answer comes after its EndStreamAction")
            try:
                item = parse_object(line)
                action = decode_line(item)
            except ValueError as error:
                if not any(True for rest in chain([lines], map(body.of, blocks)) for _ in rest):
                    raise IncompleteResponseError(f"{what}: the answer was cut inside line {number}") from None
                raise ProtocolError(f"{what}: line {number} of the answer is not JSON: {error}") from None
            except RecursionError:
                raise ProtocolError(f"{what}: line {number} of the answer is nested too deep") from None
            except ProtocolError as error:
                raise ProtocolError(f"{what}: line {number} of the answer: {error}") from None
            except QueryError as error:
                raise QueryError(what=what, server_message=error.server_message) from None
            if isinstance(action, EndStreamAction):
                end, usual_files = action, None
                _check_end(end, what)
            elif isinstance(action, Protocol):
                protocol = _check_format(action, formats, capabilities, what)
                usual_files = typed_decoder(protocol.response_format)
            elif protocol is None:
                raise ProtocolError(f"{what}: the answer does not begin with a protocol line")
            elif protocol.response_format != "delta" and _is_delta(item):
                raise ProtocolError(f"{what}: line {number} of the answer is a delta action in a parquet answer")
            yield action
    if end is None and capabilities.end_stream_action:
        raise IncompleteResponseError(
            f"{what}: the answer ends after {number} lines without the EndStreamAction that its header promises"
        )
    if protocol is None and end is None:
        raise IncompleteResponseError(f"{what}: the answer is empty")


def _check_end(end: EndStreamAction, what: str) -> None:
    status = end.http_status_error_code
    if end.error_message is not None or (status is not None and status >= 400):
        message = end.error_message or "it gives no reason"
        raise QueryError(what=what, server_message=message, status=status)


def _check_format(
    protocol: Protocol, formats: tuple[ResponseFormat, ...], capabilities: ResponseCapabilities, what: str
) -> Protocol:
    answered = protocol.response_format
    if answered == "delta" and "delta" not in formats:
        raise ResponseFormatError(
            f"{what}: asked for parquet format, the server answered in delta format; the table may need it: "
            "leave response_format (use_delta_format) unset"
        )
    if capabilities.response_format not in (None, answered):
        raise ProtocolError(
            f"{what}: the header says {capabilities.response_format} format, the protocol line {answered} format"
        )
    return protocol


def _is_delta(item: Json) -> bool:
    return (item.get("file") or {}).get("deltaSingleAction") is not None


def decode_line(item: Json) -> Action:
    """Decode one line's object.

    Raises:
        ProtocolError: it is no action of the protocol, or one that lacks a required field.
        QueryError: it is an error object.
    """
    try:
        return _action(item)
    except ValueError as error:
        raise ProtocolError(str(error)) from None


def _action(item: Json) -> Action:
    for key, decoder in _DECODERS.items():
        inner = item.get(key)
        if inner is not None:
            if not isinstance(inner, dict):
                raise ProtocolError(f"{key!r} is not an object")
            return decoder(inner)
    if not item or item.keys() & _END_KEYS:
        return _end_stream(item)
    if "errorCode" in item:
        message = ": ".join(str(item[k]) for k in ("errorCode", "message") if item.get(k))
        raise QueryError(what="the request", server_message=message)
    if "queryStatus" in item:
        raise ProtocolError("the server answers asynchronously, where that was not asked for")
    names = ", ".join(sorted(map(repr, item)))[:200]
    raise ProtocolError(f"unknown action {names}; a newer delta-sharing-client may know it")


_END_KEYS: Final = frozenset(
    {"refreshToken", "nextPageToken", "minUrlExpirationTimestamp", "errorMessage", "httpStatusErrorCode"}
)


def _protocol(item: Json) -> Protocol:
    inner = item.get("deltaProtocol")
    if inner is None:
        return Protocol(integer(item, "minReaderVersion"))
    if not isinstance(inner, dict):
        raise ProtocolError("'deltaProtocol' is not an object")
    return Protocol.from_json(inner)


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
    )


def _parquet_file(kind: type[FileAction]) -> Callable[[Json], FileAction]:
    def decode(item: Json) -> FileAction:
        get = item.get
        url = SecretUrl(text(item, "url"))
        return kind(
            url,
            _file_id(item, url),
            _partition_values(item),
            _size(item),
            _stats(item),
            # Asked first, because most files lack them and there may be 300,000.
            None if get("version") is None else optional_integer(item, "version"),
            None if get("timestamp") is None else _time(item, "timestamp"),
            None if get("expirationTimestamp") is None else optional_integer(item, "expirationTimestamp"),
        )

    return decode


def _delta_or_parquet_file(item: Json) -> FileAction:
    wrapped = item.get("deltaSingleAction")
    if wrapped is None:
        return _parquet_add(item)
    if not isinstance(wrapped, dict):
        raise ProtocolError("'deltaSingleAction' is not an object")
    for key, kind in _DELTA_ACTIONS.items():
        inner = wrapped.get(key)
        if isinstance(inner, dict):
            get = item.get
            url = SecretUrl(text(inner, "path"))
            vector = inner.get("deletionVector")
            return kind(
                url,
                _file_id(item, url),
                _partition_values(inner),
                _size(inner) or _size(item),
                _stats(inner),
                None if get("version") is None else optional_integer(item, "version"),
                None if get("timestamp") is None else _time(item, "timestamp"),
                None if get("expirationTimestamp") is None else optional_integer(item, "expirationTimestamp"),
                None if vector is None else DeletionVector.from_json(vector),
                None if get("deletionVectorFileId") is None else optional_text(item, "deletionVectorFileId"),
                inner.get("dataChange") is not False,
            )
    names = ", ".join(sorted(map(repr, wrapped)))[:200]
    raise ProtocolError(f"unknown delta action {names}")


def _end_stream(item: Json) -> EndStreamAction:
    message = item.get("errorMessage")
    return EndStreamAction(
        optional_text(item, "refreshToken"),
        optional_text(item, "nextPageToken"),
        optional_integer(item, "minUrlExpirationTimestamp"),
        str(message) if message else None,
        optional_integer(item, "httpStatusErrorCode"),
    )


_parquet_add = _parquet_file(AddFile)
_DELTA_ACTIONS: Final[Mapping[str, type[FileAction]]] = {"add": AddFile, "cdc": CdcFile, "remove": RemoveFile}
#: Files first: they are nearly all of a long answer.
_DECODERS: Final[Mapping[str, Callable[[Json], Action]]] = {
    "file": _delta_or_parquet_file,
    "add": _parquet_add,
    "cdf": _parquet_file(CdcFile),
    "remove": _parquet_file(RemoveFile),
    "protocol": _protocol,
    "metaData": _metadata,
    "endStreamAction": _end_stream,
}


def _file_id(item: Json, url: SecretUrl) -> str:
    """The file's id; of a server that sends none, a hash of the URL's unsigned part."""
    given = item.get("id")
    if given:
        return str(given)
    return hashlib.sha256(unsigned_url(url).encode()).hexdigest()[:32]


def _partition_values(item: Json) -> Mapping[str, str | None]:
    values = item.get("partitionValues")
    if not values:
        return {}
    if not isinstance(values, dict):
        raise ProtocolError("'partitionValues' is not an object")
    for value in values.values():
        if value is not None and type(value) is not str:
            return {key: _partition_text(value) for key, value in values.items()}
    return values


def _partition_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and abs(value) >= 2**63:
        raise ProtocolError("a partition value is a number of too many digits; it has to be a string")
    if isinstance(value, int | float):
        return str(value)
    raise ProtocolError(f"a partition value is a {type(value).__name__}")


def _stats(item: Json) -> str | None:
    stats = item.get("stats")
    if stats is None or isinstance(stats, str):
        return stats or None
    return json.dumps(stats)


def _time(item: Json, key: str) -> int | None:
    """Milliseconds since the epoch, which are a time in microseconds too."""
    value = optional_integer(item, key)
    if value is not None and not -MAX_MILLISECONDS <= value <= MAX_MILLISECONDS:
        raise ProtocolError(f"{key!r} is no time in milliseconds")
    return value


def _size(item: Json) -> int:
    size = optional_integer(item, "size") or 0
    if size < 0:
        raise ProtocolError("'size' is negative")
    return size
