r"""From the bytes of an answer to typed actions, line by line.

An answer of 300,000 lines is never held as text: lines are cut from the chunks as they come, decoded and
let go. Only ``\n`` ends a line; the other characters that Python calls line ends are legal inside JSON
strings. Bounds keep a hostile answer from filling the memory or the stack.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from delta_sharing_client.errors import (
    IncompleteResponseError,
    ProtocolError,
    QueryError,
    ResponseFormatError,
)
from delta_sharing_client.protocol.actions import (
    Action,
    AddFile,
    CdcFile,
    DeletionVector,
    EndStreamAction,
    FileAction,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    ResponseFormat,
)
from delta_sharing_client.protocol.capabilities import ResponseCapabilities
from delta_sharing_client.protocol.json_text import loads
from delta_sharing_client.protocol.schema import NO_COLUMNS
from delta_sharing_client.protocol.usual import USUAL_FILE

MAX_LINE: Final = 64 * 1024 * 1024
MAX_DEPTH: Final = 64
#: A blank line counts as so many bytes and its own: of a million of them there is no end.
_BLANK_COST: Final = 64

Json = dict[str, Any]


def iter_lines(chunks: Iterable[bytes], *, max_line: int = MAX_LINE) -> Iterator[bytes]:
    r"""Cut chunks of any size into lines at ``\n``; blank lines are passed over, but not for ever.

    Args:
        chunks: the body, in pieces.
        max_line: bytes that a line may have.

    Yields:
        Each line without its end. The last one need not be ended.

    Raises:
        ProtocolError: a line is longer than `max_line`, or there are blank ones without end.
    """
    pending: list[bytes] = []
    length = blank = 0
    for chunk in chunks:
        lines = chunk.split(b"\n")
        for line in lines[:-1]:
            if pending:
                pending.append(line)
                line = b"".join(pending)
                pending.clear()
                length = 0
            if len(line) > max_line:
                raise ProtocolError(f"the answer has a line of more than {max_line} bytes")
            if line and not line.isspace():
                yield line
                continue
            blank += len(line) + _BLANK_COST
            if blank > max_line:
                raise ProtocolError("the answer has no end: too many of its lines are blank")
        if lines[-1]:
            pending.append(lines[-1])
            length += len(lines[-1])
            if length > max_line:
                raise ProtocolError(f"the answer has a line of more than {max_line} bytes")
    rest = b"".join(pending)
    if rest and not rest.isspace():
        yield rest


def parse_object(line: bytes) -> Json:
    """Decode one line, or one whole body, as a JSON object of bounded depth.

    Raises:
        ValueError: it is not one.
    """
    brackets = line.count(b"{") + (line.count(b"[") if b"[" in line else 0)
    if brackets > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels")
    value = loads(line)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


#: Strings, which are passed over, and brackets.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def _depth(line: bytes) -> int:
    """How deep the brackets of a JSON text nest, those inside strings left out; no more than too deep."""
    depth = deepest = 0
    for token in _TOKEN.finditer(line):
        first = line[token.start()]
        if first in (0x7B, 0x5B):
            depth += 1
            deepest = max(deepest, depth)
            if depth > MAX_DEPTH:
                break
        elif first != 0x22:
            depth -= 1
    return deepest


def decode_actions(
    chunks: Iterable[bytes],
    *,
    formats: tuple[ResponseFormat, ...],
    capabilities: ResponseCapabilities,
    what: str,
) -> Iterator[Action]:
    """Decode an answer to /metadata, /query or /changes.

    The first action is the protocol; its format is the answer's format. The end is checked: an
    EndStreamAction that the header promised has to come.

    Args:
        chunks: the body, in pieces.
        formats: the formats that were asked for.
        capabilities: what the answer's header says.
        what: the thing asked for, for messages.

    Yields:
        The actions in the server's order, an EndStreamAction last where there is one.

    Raises:
        ResponseFormatError: parquet was asked for and delta came.
        IncompleteResponseError: the answer ends before its end.
        QueryError: the server reports an error in the answer.
        ProtocolError: a line is not what the protocol allows.
    """
    end: EndStreamAction | None = None
    protocol: Protocol | None = None
    usual_file: Callable[[bytes], AddFile | None] | None = None
    number = 0
    lines = iter_lines(chunks)
    for line in lines:
        number += 1
        if usual_file is not None and (file := usual_file(line)) is not None:
            yield file
            continue
        if end is not None:
            raise ProtocolError(f"{what}: line {number} of the answer comes after its EndStreamAction")
        try:
            item = parse_object(line)
            action = decode_line(item)
        except ValueError as error:
            if next(lines, None) is None:
                raise IncompleteResponseError(f"{what}: the answer was cut inside line {number}") from None
            raise ProtocolError(f"{what}: line {number} of the answer is not JSON: {error}") from None
        except RecursionError:
            raise ProtocolError(f"{what}: line {number} of the answer is nested too deep") from None
        except ProtocolError as error:
            raise ProtocolError(f"{what}: line {number} of the answer: {error}") from None
        except QueryError as error:
            raise QueryError(what=what, server_message=error.server_message) from None
        if isinstance(action, EndStreamAction):
            end, usual_file = action, None
            _check_end(end, what)
        elif isinstance(action, Protocol):
            protocol = _check_format(action, formats, capabilities, what)
            usual_file = USUAL_FILE[protocol.response_format]
        elif protocol is None:
            raise ProtocolError(f"{what}: the answer does not begin with a protocol line")
        elif "deltaSingleAction" in (item.get("file") or ()) and protocol.response_format != "delta":
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


def decode_line(item: Json) -> Action:
    """Decode one line's object.

    Raises:
        ProtocolError: it is no action of the protocol, or one that lacks a required field.
        QueryError: it is an error object.
    """
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
        return Protocol(_int(item, "minReaderVersion"))
    if not isinstance(inner, dict):
        raise ProtocolError("'deltaProtocol' is not an object")
    return Protocol(
        _int(inner, "minReaderVersion"),
        _optional_int(inner, "minWriterVersion"),
        _names(inner.get("readerFeatures")),
        _names(inner.get("writerFeatures")),
        "delta",
    )


def _metadata(item: Json) -> Metadata:
    inner = item.get("deltaMetadata", item)
    if not isinstance(inner, dict):
        raise ProtocolError("'deltaMetadata' is not an object")
    if inner is not item and inner.get("schemaString") is None:
        # Of the metadata of a log, which may leave it out: the table has no column yet.
        inner = inner | {"schemaString": NO_COLUMNS}
    encoding = inner.get("format") or {}
    provider = encoding.get("provider", "parquet") if isinstance(encoding, dict) else str(encoding)
    if provider != "parquet":
        raise ProtocolError(f"the table's files are in the format {provider!r}; only parquet is defined")
    options = encoding.get("options") if isinstance(encoding, dict) else None
    return Metadata(
        id=str(inner.get("id") or ""),
        schema_string=_str(inner, "schemaString"),
        name=_text(inner, "name"),
        description=_text(inner, "description"),
        format=Format(provider, _text_map(options)),
        partition_columns=_names(inner.get("partitionColumns")) or (),
        configuration=_text_map(inner.get("configuration")),
        version=_optional_int(item, "version"),
        size=_optional_int(item, "size"),
        num_files=_optional_int(item, "numFiles"),
        created_time=_optional_int(inner, "createdTime"),
    )


def _parquet_file(kind: type[FileAction]) -> Callable[[Json], FileAction]:
    def decode(item: Json) -> FileAction:
        get = item.get
        url = _str(item, "url")
        return kind(
            url,
            _file_id(item, url),
            _partition_values(item),
            _size(item),
            _stats(item),
            # Asked first, because most files lack them and there may be 300,000.
            None if get("version") is None else _optional_int(item, "version"),
            None if get("timestamp") is None else _optional_int(item, "timestamp"),
            None if get("expirationTimestamp") is None else _optional_int(item, "expirationTimestamp"),
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
            url = _str(inner, "path")
            vector = inner.get("deletionVector")
            return kind(
                url,
                _file_id(item, url),
                _partition_values(inner),
                _size(inner) or _size(item),
                _stats(inner),
                None if get("version") is None else _optional_int(item, "version"),
                None if get("timestamp") is None else _optional_int(item, "timestamp"),
                None if get("expirationTimestamp") is None else _optional_int(item, "expirationTimestamp"),
                None if vector is None else _deletion_vector(vector),
                None if get("deletionVectorFileId") is None else _text(item, "deletionVectorFileId"),
                inner.get("dataChange") is not False,
            )
    names = ", ".join(sorted(map(repr, wrapped)))[:200]
    raise ProtocolError(f"unknown delta action {names}")


def _deletion_vector(item: Any) -> DeletionVector | None:
    if item is None:
        return None
    if not isinstance(item, dict):
        raise ProtocolError("'deletionVector' is not an object")
    return DeletionVector(
        _str(item, "storageType"),
        _str(item, "pathOrInlineDv"),
        _int(item, "sizeInBytes"),
        _int(item, "cardinality"),
        _optional_int(item, "offset"),
    )


def _end_stream(item: Json) -> EndStreamAction:
    message = item.get("errorMessage")
    return EndStreamAction(
        _text(item, "refreshToken"),
        _text(item, "nextPageToken"),
        _optional_int(item, "minUrlExpirationTimestamp"),
        str(message) if message else None,
        _optional_int(item, "httpStatusErrorCode"),
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


_UNSIGNED = re.compile(r"[^?#]*")


def _file_id(item: Json, url: str) -> str:
    """The file's id; of a server that sends none, a hash of the URL's unsigned part."""
    given = item.get("id")
    if given:
        return str(given)
    return hashlib.sha256(_UNSIGNED.match(url)[0].encode()).hexdigest()[:32]  # type: ignore[index]


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


def _str(item: Json, key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"{key!r} is missing")
    return value


def _int(item: Json, key: str) -> int:
    value = _optional_int(item, key)
    if value is None:
        raise ProtocolError(f"{key!r} is missing")
    return value


def _optional_int(item: Json, key: str) -> int | None:
    value = item.get(key)
    if value is None or type(value) is int:
        return value
    if isinstance(value, str | float) and not isinstance(value, bool):
        try:
            number = int(value)
            if isinstance(value, str) or number == value:
                return number
        except (ValueError, OverflowError):
            pass
    raise ProtocolError(f"{key!r} is not an integer")


def _size(item: Json) -> int:
    size = item.get("size")
    if type(size) is not int:
        size = _optional_int(item, "size") or 0
    if size < 0:
        raise ProtocolError("'size' is negative")
    return size


def _text(item: Json, key: str) -> str | None:
    """A text that may be missing; the empty one is as good as none."""
    value = item.get(key)
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, dict | list):
        raise ProtocolError(f"{key!r} is not a string")
    return str(value)


def _names(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ProtocolError("a list of names is not a list")
    return tuple(str(name) for name in value)


def _text_map(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(key): "" if text is None else str(text) for key, text in value.items()}
