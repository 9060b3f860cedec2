"""Lines of answers, and their decoding."""

import json

from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.wire.decoder import decode_actions
from delta_sharing_client.wire.file_block import FileBlock

BOTH = ("delta", "parquet")
NOTHING = ResponseCapabilities()
SECRET = "s3cr3tS1gn4tur3"
URL = f"https://store.example/t/part-0.parquet?sig={SECRET}"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = {"protocol": {"minReaderVersion": 1}}
METADATA = {"metaData": {"id": "m1", "format": {"provider": "parquet"}, "schemaString": SCHEMA}}
FILE = {"file": {"url": URL, "id": "f1", "partitionValues": {"p": "1"}, "size": 573}}
END = {"endStreamAction": {}}
DELTA_PROTOCOL = {
    "protocol": {
        "deltaProtocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timestampNtz"],
            "writerFeatures": ["timestampNtz"],
        }
    }
}
DELTA_METADATA = {
    "metaData": {
        "version": 20,
        "size": 123456,
        "numFiles": 5,
        "deltaMetadata": {
            "id": "m1",
            "name": "t",
            "description": "d",
            "partitionColumns": ["p"],
            "format": {"provider": "parquet", "options": {"x": 1}},
            "schemaString": SCHEMA,
            "configuration": {"a": "b", "n": None, "i": 3},
            "createdTime": 1700000000000,
        },
    }
}


def body(*items, end="\n"):
    """The items as NDJSON; a str or bytes item goes in as it is."""
    lines = []
    for item in items:
        if isinstance(item, dict):
            item = json.dumps(item, ensure_ascii=False)
        lines.append(item.encode() if isinstance(item, str) else item)
    return b"\n".join(lines) + end.encode()


def decode(data, formats=BOTH, capabilities=NOTHING, subject="table s.d.t"):
    chunks = [data] if isinstance(data, bytes) else data
    actions = decode_actions(chunks, formats=formats, capabilities=capabilities, subject=subject)
    return [action for one_or_more in actions for action in each(one_or_more)]


def each(one_or_more):
    return one_or_more if isinstance(one_or_more, FileBlock) else [one_or_more]


def decode_line(item):
    """The action of one line, which follows a protocol line if it is a file."""
    head = [] if item.keys() & {"protocol", "endStreamAction"} else [DELTA_PROTOCOL]
    return decode(body(*head, item))[-1]
