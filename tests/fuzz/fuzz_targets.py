"""Fuzz targets: functions that decode untrusted bytes, and must return a result or raise a typed error.

A target takes any bytes, and returns whether they were decoded. It handles the documented errors of the function
under test, and raises `AssertionError` if a requirement is violated.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from delta_sharing_client.errors import DataError, DeltaSharingError, ProfileError, StorageError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.parquet.deletion_vector import decode_inline, decode_stored
from delta_sharing_client.rest.status_errors import error_in
from delta_sharing_client.scan.file_tasks import TaskPlanner, read_spec
from delta_sharing_client.scan.url_renewal import _SignedUrls
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.store_errors import store_error
from delta_sharing_client.transport.retry import RetryLater
from delta_sharing_client.wire.answers import AnswerReader
from delta_sharing_client.wire.decoder import decode_actions
from delta_sharing_client.wire.requests import QueryRequest, VersionsRequest

SIGNATURE = "canary-signature-0f5b"
SIGNED_URL = SecretUrl(f"https://store.example/f?expires=1999999999&sig={SIGNATURE}")
TOKEN = "canary-token-93aa"


def ndjson(data: bytes) -> bool:
    """Decode a response to /query or /changes; its first byte selects the request and the size of blocks."""
    mode, body = (data[0], data[1:]) if data else (0, b"")
    size = (1, 7, 100, 10**6)[mode & 3]
    changes, with_end = bool(mode & 4), bool(mode & 8)
    formats: Any = (("delta", "parquet"), ("parquet",))[mode >> 4 & 1]
    try:
        actions = decode_actions(
            [body[at : at + size] for at in range(0, len(body), size)],
            formats=formats,
            capabilities=ResponseCapabilities(None, with_end),
            subject="table t",
        )
        request = VersionsRequest(starting_version=0) if changes else QueryRequest()
        reader = AnswerReader(request, "table t", _to_tasks if mode & 32 else _SignedUrls())
        page = reader.read_page(actions, version=1)
    except DeltaSharingError as error:
        _is_short(error)
        return False
    assert with_end <= (page.end is not None), "a response without its end was accepted"
    repr(page)
    return True


def _to_tasks(protocol: Any, metadata: Any) -> Callable[[Any], Any]:
    protocol.check_readable("table t")
    return TaskPlanner(read_spec(metadata, None, None, protocol=protocol))


def deletion_vector(data: bytes) -> bool:
    """Decode a bitmap of a deletion vector file, with a correct checksum, and as Z85 text."""
    body = b"\xd1\xd39\x64" + data
    try:
        cardinality = len(BitMap64.deserialize(data))
    except (ValueError, IndexError):
        cardinality = len(data)
    stored = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    vector = DeletionVector("p", SecretUrl("https://store/v"), len(body), cardinality, 1)
    text = data.decode("latin-1")
    inline = DeletionVector("i", SecretUrl(text), min(len(data), len(text) // 5 * 4), 1)
    decoded = False
    for decode in (lambda: decode_stored(stored, vector, "f"), lambda: decode_inline(inline, "f")):
        try:
            positions = decode()
            positions.check(1_000_000)
            if len(positions) <= 100_000:
                mask = positions.keep_mask(0, 1000)
                assert mask is None or len(mask) == 1000
                assert all(a < b for a, b in zip(positions.positions, positions.positions[1:], strict=False))
            decoded = True
        except DataError as error:
            _is_short(error)
    return decoded


def profile(data: bytes) -> bool:
    """Decode a profile."""
    try:
        found = Profile.from_json(data)
    except ProfileError as error:
        _is_short(error)
        if _token_is_secret(data):
            _hides(TOKEN, f"{error!r} {error}")
        return False
    if _token_is_secret(data):
        _hides(TOKEN, f"{found!r} {found}")
    return True


def _token_is_secret(data: bytes) -> bool:
    """Return whether the token is the value of a secret field only; other fields may appear in messages."""
    try:
        fields: Any = json.loads(data)
    except (ValueError, RecursionError):
        return True
    places = [fields, fields.get("auth")] if isinstance(fields, dict) else []
    for place in places:
        if isinstance(place, dict):
            for name in ("bearerToken", "password", "clientSecret"):
                place.pop(name, None)
    return TOKEN not in json.dumps(fields)


@dataclass
class _Response:
    """The attributes of a response that `store_error` reads."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    url: SecretUrl = SIGNED_URL

    def excerpt(self) -> bytes:
        return self.body


def storage_error(data: bytes) -> bool:
    """Decode an error response of a store and of a server."""
    status = (400, 401, 403, 404, 410, 412, 429, 500, 503)[data[0] % 9] if data else 400
    response: Any = _Response(status, data[1:])
    error = store_error(response, "f")
    known = not isinstance(error, RetryLater)
    error = error.error if isinstance(error, RetryLater) else error
    assert isinstance(error, StorageError)
    _hides(SIGNATURE, f"{error!r} {error}")
    _is_short(error)
    code, message = error_in(data[1:])
    assert len(code or "") + len(message or "") < 2000
    return known


def _is_short(error: Exception) -> None:
    text = str(error)
    assert len(text) < 5000, "a message as long as the response"
    assert "\n" not in text, "a message of several lines"


def _hides(secret: str, text: str) -> None:
    assert secret not in text, "a secret appears in a message"


_SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
)
_PARQUET = [
    {"protocol": {"minReaderVersion": 1}},
    {"metaData": {"id": "m", "format": {"provider": "parquet"}, "schemaString": _SCHEMA, "partitionColumns": []}},
    {"file": {"url": "https://s/1?sig=x", "id": "1", "partitionValues": {"p": "1"}, "size": 9, "stats": "{}"}},
    {"endStreamAction": {"minUrlExpirationTimestamp": 5, "nextPageToken": "n", "refreshToken": "r"}},
]
_VECTOR = {"storageType": "p", "pathOrInlineDv": "https://s/v", "offset": 1, "sizeInBytes": 40, "cardinality": 2}
_ADD = {"path": "https://s/2", "partitionValues": {}, "size": 3, "dataChange": True, "deletionVector": _VECTOR}
_DELTA = [
    {
        "protocol": {
            "deltaProtocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
        }
    },
    {"metaData": {"version": 1, "deltaMetadata": {"id": "m", "schemaString": _SCHEMA, "partitionColumns": []}}},
    {"file": {"id": "2", "deletionVectorFileId": "v", "deltaSingleAction": {"add": _ADD}}},
    {"file": {"id": "3", "version": 2, "deltaSingleAction": {"cdc": _ADD}}},
    {"file": {"id": "4", "version": 2, "deltaSingleAction": {"remove": _ADD}}},
    {"queryStatus": {"queryId": "q", "status": "pending"}},
    {"endStreamAction": {"errorMessage": "no", "httpStatusErrorCode": 503}},
]


def _lines(mode: int, lines: list[Any]) -> bytes:
    return bytes([mode]) + b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _bitmaps() -> list[bytes]:
    samples = [[], [0], [1, 5, 900], range(5000), range(0, 200_000, 3), [2**33, 2**40]]
    return [bytes(BitMap64(sample).serialize()) for sample in samples]


_FIRST = {"shareCredentialsVersion": 1, "endpoint": "https://s/x", "expirationTime": "2030-01-01"}
_SECOND = {"shareCredentialsVersion": 2, "endpoint": "https://s/x"}
_OAUTH = {"tokenEndpoint": "https://t", "clientId": "i", "clientSecret": TOKEN, "scope": "s"}
_KEY = {"privateKeyFile": "/k", "keyId": "k", "algorithm": "RS256"}
_JWT = {"tokenEndpoint": "https://t", "clientId": "i", "issuer": "u", "audience": "a", "privateKey": _KEY}
_PROFILES = [
    _FIRST | {"bearerToken": TOKEN},
    _SECOND | {"type": "bearer_token", "bearerToken": TOKEN},
    _SECOND | {"type": "basic", "username": "u", "password": TOKEN},
    _SECOND | {"type": "oauth_client_credentials"} | _OAUTH,
    _SECOND | {"type": "oauth_jwt_bearer_private_key_jwt", "auth": _JWT},
]
_STORES = [
    b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message><Expires>1</Expires></Error>",
    b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>expired</Message></Error>",
    b"<Error><Code>AuthenticationFailed</Code><Message>Server failed to authenticate</Message></Error>",
    b'{"error": {"code": 403, "message": "Forbidden"}}',
    b'{"errorCode": "RESOURCE_DOES_NOT_EXIST", "message": "gone"}',
    f"<Error><Message>{SIGNATURE} of https://s/f?sig={SIGNATURE}</Message></Error>".encode(),
    b"<html><script>x</script><body>Bad gateway</body></html>",
]

#: Each target with what it understands, from which inputs are bred.
TARGETS: dict[str, tuple[Callable[[bytes], bool], list[bytes]]] = {
    "ndjson": (
        ndjson,
        [
            _lines(mode, lines)
            for mode in (3, 11, 7, 35, 47)
            for lines in (_PARQUET, _DELTA, _DELTA[:3], _DELTA[:5])
        ],
    ),
    "deletion_vector": (deletion_vector, [*_bitmaps(), base64.b85encode(b"\xd1\xd39\x64" * 4)]),
    "profile": (profile, [json.dumps(fields).encode() for fields in _PROFILES]),
    "storage_error": (storage_error, [bytes([n]) + text for n in (0, 2, 3, 8) for text in _STORES]),
}
