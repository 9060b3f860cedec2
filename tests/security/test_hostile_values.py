"""Invalid numbers and texts in every field of an answer.

What does not fit is refused where the answer is decoded, so that nothing behind it meets a number beyond 64 bits,
one with a huge exponent, or an unpaired surrogate.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from faults.faulty_share import TABLE, FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError, ProtocolError
from delta_sharing_client.options import TransportOptions

FILES = [File(f"f{n}", rows(100 * n, 20), parquet(rows(100 * n, 20))) for n in range(2)]
QUICK = TransportOptions(
    backoff_base=timedelta(milliseconds=1),
    backoff_cap=timedelta(milliseconds=2),
    read_timeout=timedelta(seconds=5),
    api_attempts=2,
    storage_attempts=2,
)
HALF = "x\ud83d"
Json = dict[str, Any]

LOADS: dict[str, Callable[[Any, Path], object]] = {
    "snapshot": lambda table, folder: table.scan().to_arrow(),
    "filter": lambda table, folder: table.scan(filters=[("id", ">", 5), ("p", "is not", None)]).to_arrow(),
    "changes in pandas": lambda table, folder: table.changes(0, commit_timestamp="timestamp").to_pandas(),
    "poll": lambda table, folder: table.poll_changes(checkpoint=folder / "p", starting_version=0).pull(),
    "mirror": lambda table, folder: table.mirror(folder / "m").sync(),
    "copy": lambda table, folder: table.scan().materialize(folder / "c"),
    "copy of changes": lambda table, folder: table.changes(0).materialize(folder / "d"),
    "metadata": lambda table, folder: (table.metadata(), table.schema(), table.protocol()),
}


class Raw(float):
    """A number that is sent as it is written."""

    def __new__(cls, text: str) -> Raw:
        self = super().__new__(cls, 0)
        self.text = text
        return self

    def __repr__(self) -> str:
        return self.text


def set_everywhere(key: str, value: Any) -> Callable[[Json], None]:
    """Set a field wherever an answer has a place for it."""

    def change(item: Json) -> None:
        for place in places(item):
            if key in place or "url" in place:
                place[key] = value

    change.__name__ = f"{key}={value!r:.40}"
    return change


def places(item: Json) -> Iterator[Json]:
    yield item
    for inner in item.values():
        if isinstance(inner, dict):
            yield from places(inner)


def in_metadata(change: Callable[[Json], object]) -> Callable[[Json], None]:
    def changed(item: Json) -> None:
        if "metaData" in item:
            change(item["metaData"])

    return changed


def in_files(change: Callable[[Json], object]) -> Callable[[Json], None]:
    def changed(item: Json) -> None:
        for action in item.values():
            if "url" in action:
                change(action)

    return changed


def columns(*pairs: tuple[str, str]) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in pairs]
    return json.dumps({"type": "struct", "fields": fields})


def schema_with(name: str, kind: str = "string") -> Callable[[Json], None]:
    pairs = [("id", "long"), ("noise", "long"), ("name", "string"), ("p", "string"), (name, kind)]
    return in_metadata(lambda metadata: metadata.update(schemaString=columns(*pairs)))


def partitioned(kind: str, value: Any) -> Callable[[Json], None]:
    """The column `p` is a partition column of a type, and has a value."""

    def change(item: Json) -> None:
        pairs = [("id", "long"), ("noise", "long"), ("name", "string"), ("p", kind)]
        in_metadata(lambda metadata: metadata.update(schemaString=columns(*pairs)))(item)
        in_files(lambda file: file.update(partitionValues={"p": value}))(item)

    return change


NUMBERS = [2**63, 10**400, -(2**63) - 1, 2**63 - 1, 2**62, 1e300, Raw("1e999999999"), "9" * 5000]
NUMBER_FIELDS = [
    "version",
    "timestamp",
    "expirationTimestamp",
    "size",
    "numFiles",
    "createdTime",
    "minReaderVersion",
    "minUrlExpirationTimestamp",
    "httpStatusErrorCode",
]
CHANGES: dict[str, Callable[[Json], object]] = {
    **{f"{field} {number!r:.30}": set_everywhere(field, number) for field in NUMBER_FIELDS for number in NUMBERS},
    **{
        f"{field} an unpaired surrogate": set_everywhere(field, HALF)
        for field in (
            "id",
            "url",
            "stats",
            "deletionVectorFileId",
            "name",
            "description",
            "nextPageToken",
            "other",
        )
    },
    "an unpaired surrogate in a name of a field": in_files(lambda file: file.update({HALF: 1})),
    "an unpaired surrogate in a partition value": partitioned("string", HALF),
    "an unpaired surrogate in the name of a partition value": in_files(
        lambda file: file.update(partitionValues={HALF: "x"})
    ),
    "an unpaired surrogate in a column": schema_with(HALF),
    "an unpaired surrogate in a partition column": in_metadata(
        lambda metadata: metadata.update(partitionColumns=[HALF])
    ),
    "an unpaired surrogate in the configuration": in_metadata(
        lambda metadata: metadata.update(configuration={"delta.x": HALF, HALF: "x"})
    ),
    "an unpaired surrogate in the schema": in_metadata(
        lambda metadata: metadata.update(schemaString=columns((HALF, "long")).encode().decode("unicode-escape"))
    ),
    "an unpaired surrogate in an error": lambda item: item.get("endStreamAction", {}).update(errorMessage=HALF),
    **{
        f"partition value of {kind}: {value!r:.30}": partitioned(kind, value)
        for kind in ("long", "decimal(38,2)", "double", "date", "timestamp", "string")
        for value in ("1e999999999", "9" * 5000, 10**400, "sNaN")
    },
    **{
        f"bounds {number!r:.30}": in_files(
            lambda file, number=number: file.update(
                stats=json.dumps(
                    {
                        "numRecords": number,
                        "minValues": {"id": number},
                        "maxValues": {"id": number},
                        "nullCount": {},
                    }
                )
            )
        )
        for number in NUMBERS
    },
}


@pytest.fixture
def share(server: FaultServer) -> FaultyShare:
    return FaultyShare(server=server, versions=[FILES])


def changed_by(change: Callable[[Json], object], *, delta: bool) -> Callable[[Request, Reply], Reply]:
    """Answers of a share, changed, in either response format; its table has a partition column `p`."""

    def fault(request: Request, reply: Reply) -> Reply:
        if request.path not in (f"{TABLE}/query", f"{TABLE}/changes", f"{TABLE}/metadata"):
            return reply
        lines = [json.loads(line) for line in reply.body.splitlines()]
        for line in lines:
            in_files(lambda file: file.update(partitionValues={"p": "x"}))(line)
            pairs = [("id", "long"), ("noise", "long"), ("name", "string"), ("p", "string")]
            told = {"schemaString": columns(*pairs), "partitionColumns": ["p"]}
            in_metadata(lambda metadata, told=told: metadata.update(told))(line)
            change(line)
        if not delta:
            return reply.but(body=body_of(lines))
        headers = {name: text.replace("format=parquet", "format=delta") for name, text in reply.headers.items()}
        return reply.but(body=body_of([in_delta_format(line) for line in lines]), headers=headers)

    return fault


def body_of(lines: list[Json]) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"


def in_delta_format(line: Json) -> Json:
    if "protocol" in line:
        return {"protocol": {"deltaProtocol": line["protocol"]}}
    if "metaData" in line:
        inner = dict(line["metaData"])
        told = {key: inner.pop(key) for key in ("version", "size", "numFiles") if key in inner}
        return {"metaData": {**told, "deltaMetadata": inner}}
    for kind in ("file", "add", "remove"):
        if kind in line:
            file = dict(line[kind])
            inner = {"path": file.pop("url"), "size": file.pop("size"), "dataChange": True}
            inner |= {key: file.pop(key) for key in ("partitionValues", "stats") if key in file}
            return {"file": {**file, "deltaSingleAction": {"add" if kind == "file" else kind: inner}}}
    return line


@pytest.mark.parametrize("delta", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["parquet", "delta"])
@pytest.mark.parametrize("name", CHANGES)
def test_invalid_values_raise_typed_errors_or_are_ignored(
    share: FaultyShare, tmp_path: Path, name: str, delta: bool
) -> None:
    share.fault = changed_by(CHANGES[name], delta=delta)
    with ds.SharingClient(share.server.profile, options=QUICK) as client:
        table = client.table("s.s.t")
        for how, load in LOADS.items():
            try:
                load(table, tmp_path / how.replace(" ", "_"))
            except DeltaSharingError as error:
                str(error).encode()
            except Exception as error:
                raise AssertionError(f"{how}: {type(error).__name__}") from error


@pytest.mark.parametrize("delta", [False, True], ids=["parquet", "delta"])
def test_the_table_is_read_when_nothing_is_changed(share: FaultyShare, tmp_path: Path, delta: bool) -> None:
    share.fault = changed_by(lambda line: None, delta=delta)
    with ds.SharingClient(share.server.profile, options=QUICK) as client:
        table = client.table("s.s.t")
        for how, load in LOADS.items():
            load(table, tmp_path / how.replace(" ", "_"))
        assert set(table.scan(columns=["id", "p"]).to_arrow()["p"].to_pylist()) == {"x"}


@pytest.mark.parametrize("delta", [False, True], ids=["parquet", "delta"])
@pytest.mark.parametrize(
    "change",
    [
        in_files(lambda file: file.update(version=2**63)),
        in_files(lambda file: file.update(timestamp=2**63)),
        in_files(lambda file: file.update(timestamp=1e300)),
        in_files(lambda file: file.update(timestamp=2**62)),
        in_files(lambda file: file.update(size=2**63)),
        in_files(lambda file: file.update(id=HALF)),
        partitioned("string", HALF),
        schema_with(HALF),
    ],
    ids=["version", "timestamp", "float", "microseconds", "size", "id", "partition value", "column"],
)
def test_unrepresentable_values_are_refused(
    share: FaultyShare, tmp_path: Path, change: Callable[[Json], object], delta: bool
) -> None:
    share.fault = changed_by(change, delta=delta)
    with ds.SharingClient(share.server.profile, options=QUICK) as client:
        for how in ("snapshot", "mirror", "copy", "poll"):
            with pytest.raises(ProtocolError):
                LOADS[how](client.table("s.s.t"), tmp_path / how)


def test_lone_surrogates_are_replaced_in_optional_texts(share: FaultyShare) -> None:
    def change(line: Json) -> None:
        in_files(lambda file: file.update(stats=json.dumps({"numRecords": 20, "x": HALF}, ensure_ascii=False)))(
            line
        )
        in_metadata(lambda metadata: metadata.update(description=HALF))(line)

    share.fault = changed_by(change, delta=False)
    with ds.SharingClient(share.server.profile, options=QUICK) as client:
        table = client.table("s.s.t")
        assert table.metadata().description == "x\ufffd"
        assert table.scan().count() == 40


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 5000], ids=len)
def test_headers_with_numbers_of_many_digits(share: FaultyShare, table: Any, digits: str) -> None:
    told = {"Content-Length": digits, "Content-Range": f"bytes 0-{digits}/{digits}"}

    def fault(request: Request, reply: Reply) -> Reply:
        if request.path == f"{TABLE}/version":
            return reply.but(headers={"Delta-Table-Version": digits})
        if not request.path.startswith("/data/"):
            return reply
        name = "Content-Range" if reply.status == 206 else "Content-Length"
        return reply.but(length=None, headers={**reply.headers, name: told[name]})

    share.fault = fault
    for how in ("snapshot", "filter"):
        with pytest.raises(DeltaSharingError):
            LOADS[how](table, Path())
    with pytest.raises(ProtocolError):
        table.version()


@pytest.fixture
def table(share: FaultyShare) -> Iterator[Any]:
    with ds.SharingClient(share.server.profile, options=QUICK) as client:
        yield client.table("s.s.t")


ODD = [None, True, 0, -1, 1.5, 2**63, "", "x", "\x00", [], ["x"], {}, {"a": 1}, "NaN", "0000-00-00", " "]
VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093",
    "sizeInBytes": 34,
    "cardinality": 1,
}


def ways_to(item: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, value in inner:
        yield (*way, key)
        yield from ways_to(value, (*way, key))


def put(item: Any, way: tuple[Any, ...], value: Any) -> None:
    for key in way[:-1]:
        item = item[key]
    item[way[-1]] = copy.deepcopy(value)


@pytest.mark.parametrize("delta", [False, True], ids=["parquet", "delta"])
def test_any_json_value_in_any_field_raises_a_typed_error_or_is_ignored(
    share: FaultyShare, table: Any, tmp_path: Path, delta: bool
) -> None:
    draw = random.Random(20261122)

    def fault(request: Request, reply: Reply) -> Reply:
        reply = changed_by(lambda line: None, delta=delta)(request, reply)
        if request.path not in (f"{TABLE}/query", f"{TABLE}/changes", f"{TABLE}/metadata"):
            return reply
        lines = [json.loads(line) for line in reply.body.splitlines()]
        for line in lines:
            for place in list(places(line)):
                if "dataChange" in place:
                    place["deletionVector"] = dict(VECTOR)
                elif "deltaProtocol" in place:
                    place["deltaProtocol"].update(minReaderVersion=3, readerFeatures=["deletionVectors"])
        now = random.Random(seed)
        inside = [place for line in lines for place in places(line) if "schemaString" in place]
        if inside and now.random() < 0.2:
            schema = json.loads(inside[0]["schemaString"])
            put(schema, now.choice(list(ways_to(schema))), now.choice(ODD))
            inside[0]["schemaString"] = json.dumps(schema)
        else:
            put(lines, now.choice([way for way in ways_to(lines) if len(way) > 1]), now.choice(ODD))
        return reply.but(body=body_of(lines))

    share.fault = fault
    for number in range(120):
        seed = draw.random()
        how = draw.choice(list(LOADS))
        with contextlib.suppress(DeltaSharingError):
            LOADS[how](table, tmp_path / str(number))


def test_names_with_lone_surrogates_are_refused(server: FaultServer) -> None:
    server.on("GET", "/shares", Reply.of_json({"items": [{"name": HALF}]}))
    with ds.SharingClient(server.profile, options=QUICK) as client, pytest.raises(ProtocolError):
        client.list_shares()
