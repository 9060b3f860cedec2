"""Typed decoding of the lines of files, and the lenient decoding of lines that it refuses."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from thorough import examples

from delta_sharing_client.model.actions import FileAction
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.wire.decoder import decode_actions
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.file_lines import FileLineDecoder
from delta_sharing_client.wire.ndjson import parse_object

METADATA = {"id": "m", "format": {"provider": "parquet"}, "schemaString": "{}", "partitionColumns": []}
URL = "https://store.example/t/part-0.parquet?sig=s"
VECTOR = {"storageType": "p", "pathOrInlineDv": URL, "sizeInBytes": 4, "cardinality": 1}


def parquet_line(**more: Any) -> dict[str, Any]:
    file = {"url": URL, "id": "f1", "partitionValues": {"p": "1"}, "size": 573, "stats": '{"numRecords":3}'}
    return {"file": file | {"expirationTimestamp": 99} | more}


def delta_line(outer: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    add = {"path": URL, "partitionValues": {"p": "1"}, "size": 573, "modificationTime": 1, "dataChange": True}
    action = {"add": add | {"stats": '{"numRecords":3}'} | more}
    file = {"id": "f1", "version": 4, "timestamp": 5, "expirationTimestamp": 99, "deltaSingleAction": action}
    return {"file": file | (outer or {})}


def decoder(form: str) -> FileLineDecoder:
    return FileLineDecoder(is_delta=form == "delta")


def typed(form: str, line: bytes) -> FileAction | None:
    files = decoder(form).decode(line)
    if files is None:
        return None
    (file,) = files
    return file


def lenient(form: str, line: bytes) -> FileAction:
    files = decoder(form).decode_leniently(parse_object(line))
    assert files is not None
    (file,) = files
    return file


def fields_of(action: FileAction) -> tuple[type, dict[str, Any]]:
    return type(action), structs.asdict(action)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("parquet", parquet_line()),
        ("parquet", parquet_line(partitionValues={}, stats=None, version=7, timestamp=8)),
        ("parquet", parquet_line(partitionValues={"p": None, "q": ""}, stats="", expirationTimestamp=None)),
        ("parquet", parquet_line(size=0, tags={"a": [1, {"b": 2.5}]}, another="field")),
        ("delta", delta_line()),
        ("delta", delta_line({"deletionVectorFileId": None, "another": [{}]}, dataChange=False, tags={"a": "b"})),
        ("delta", delta_line({"version": None}, partitionValues={"p": None, "q": "é"}, stats=None)),
        ("delta", parquet_line()),
        ("delta", delta_line({"size": 9}, size=0)),
        ("delta", delta_line({"id": None})),
        ("delta", delta_line({"deletionVectorFileId": "v"}, deletionVector=VECTOR)),
        ("delta", delta_line({"deltaSingleAction": {"remove": {"path": URL}}})),
        ("delta", delta_line({"deltaSingleAction": {"cdc": {"path": URL, "size": 3}}})),
        ("parquet", {"add": parquet_line()["file"]}),
        ("parquet", {"cdf": parquet_line()["file"]}),
        ("parquet", {"remove": parquet_line()["file"]}),
    ],
)
def test_typed_and_lenient_decoding_agree(form: str, line: dict[str, Any]) -> None:
    text = json.dumps(line).encode()
    action = typed(form, text)
    assert action is not None
    assert fields_of(action) == fields_of(lenient(form, text))


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("parquet", delta_line()),
        ("parquet", {"protocol": {"minReaderVersion": 1}}),
        ("delta", {"endStreamAction": {}}),
        ("parquet", parquet_line(url="")),
        ("parquet", parquet_line(id=5)),
        ("parquet", parquet_line(size=-1)),
        ("parquet", parquet_line(size="573")),
        ("parquet", parquet_line(partitionValues={"p": 5})),
        ("parquet", parquet_line(stats={"numRecords": 3})),
        ("parquet", parquet_line(deltaSingleAction={"add": {}})),
        ("delta", delta_line(deletionVector={"storageType": "i", "pathOrInlineDv": "x"})),
        ("delta", delta_line({"deltaSingleAction": {"add": None}})),
        ("delta", delta_line({"deltaSingleAction": {"txn": {}}})),
    ],
)
def test_typed_decoding_refuses_other_lines(form: str, line: dict[str, Any]) -> None:
    assert typed(form, json.dumps(line).encode()) is None


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_typed_decoding_refuses_malformed_json(form: str) -> None:
    whole = json.dumps(parquet_line() if form == "parquet" else delta_line()).encode()
    decode = partial(typed, form)
    assert decode(whole) is not None
    for cut in range(len(whole)):
        assert decode(whole[:cut]) is None
    nested = b'{"x":' + b"[" * 100_000
    for text in (whole + b"x", whole + whole, whole.replace(b"573", b"NaN"), b"[" + whole + b"]", nested):
        assert decode(text) is None
    for levels in (10_000, 1_000_000):
        unread = b'"f1","x":' + b"[" * levels + b"]" * levels
        assert decode(whole.replace(b'"f1"', unread)) is None
    assert decode(whole.replace(b'"f1"', b'"\xff"')) is None
    assert decode(whole.replace(b'"f1"', rb'"\ud800"')) is None


def lines_of(*lines: dict[str, Any] | bytes) -> bytes:
    return b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_many_lines_at_once(form: str) -> None:
    lines = [parquet_line(id=f"f{n}") if form == "parquet" else delta_line({"id": f"f{n}"}) for n in range(9)]
    decode = decoder(form).decode
    files = decode(lines_of(*lines))
    assert files is not None
    assert [file.id for file in files] == [f"f{n}" for n in range(9)]
    assert len(files) == 9
    for same in (lines_of(*lines).removesuffix(b"\n"), memoryview(lines_of(*lines))):
        assert list(decode(same) or ()) == list(files)
    assert decode(b"\n") is None
    assert len({id(file.partition_values) for file in files}) == 1
    odd: list[dict[str, Any] | bytes] = [
        {"endStreamAction": {}},
        parquet_line(size=-1),
        delta_line({"deltaSingleAction": {"remove": {"path": URL}}}),
        parquet_line() if form == "delta" else delta_line(),
        b"",
        b"nonsense",
        lines_of(lines[0]).rstrip() + lines_of(lines[1]).rstrip(),
        json.dumps(lines[0], indent=1).encode(),
    ]
    for line in odd:
        assert decode(lines_of(*lines[:4], line, *lines[4:])) is None


def test_memory_of_a_long_partition_value_is_bounded() -> None:
    """However many files come after it, whose values are short."""
    lines = [parquet_line(id="f0", partitionValues={"p": "x" * 100_000})]
    lines += [parquet_line(id=f"f{n}") for n in range(1, 2000)]
    text = lines_of(*lines)
    tracemalloc.start()
    try:
        files = decoder("parquet").decode(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert files is not None
    assert [len(values["p"] or "") for values in files.partition_values] == [100_000, *[1] * 1999]
    assert peak < 10 * len(text)


def test_files_of_one_partition_share_its_values() -> None:
    for told in ({"p": "1"}, {}, None):
        lines = [parquet_line(id=f"f{n}", partitionValues=told) for n in range(5)]
        files = decoder("parquet").decode(lines_of(*lines))
        assert files is not None
        assert files.partition_values == [told or {}] * 5
        assert len({id(values) for values in files.partition_values}) == 1


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_decoded_files_show_no_url(form: str) -> None:
    """A debugger, or a log of a frame's variables, must not show one either."""
    files = decoder(form).decode(lines_of(parquet_line() if form == "parquet" else delta_line()))
    assert files is not None
    columns = [getattr(files, column.name) for column in fields(files) if column.name != "stats"]
    shown = repr([files, columns])
    assert "store.example" not in shown
    assert "f1" in shown


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.sampled_from(["parquet", "delta"]))
def test_an_answer_is_decoded_alike_wherever_the_body_is_cut(data: Any, form: str) -> None:
    if form == "parquet":
        head: list[Any] = [{"protocol": {"minReaderVersion": 1}}, {"metaData": METADATA}]
        kinds: list[Any] = [
            parquet_line(),
            parquet_line(size="7"),
            parquet_line(partitionValues={"p": 1}),
            b"",
            b" ",
        ]
    else:
        protocol = {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        head = [{"protocol": protocol}, {"metaData": {"deltaMetadata": METADATA}}]
        vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
        kinds = [delta_line(), delta_line(deletionVector=vector), delta_line({"size": 5}, size=0), b"", b"\r"]
    lines = [*head, *data.draw(st.lists(st.sampled_from(kinds), max_size=12)), {"endStreamAction": {}}]
    text = lines_of(*lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found = decoded(chunks)[2:-1]
    encoded = [line for line in text.split(b"\n") if line.strip()]
    assert found == [lenient(form, line) for line in encoded[2:-1]]


def decoded(chunks: list[bytes]) -> list[Any]:
    found: list[Any] = []
    promised = ResponseCapabilities(None, True)
    for action in decode_actions(chunks, formats=("delta", "parquet"), capabilities=promised, subject="t"):
        found += action if isinstance(action, FileBlock) else [action]
    return found


#: What a field may hold: mostly what belongs there.
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
_TEXT = st.text(max_size=8)
_WHOLE = st.integers(-3, 2**64)
_VALUES = st.dictionaries(st.sampled_from(["p", "q", "é"]), st.none() | _TEXT, max_size=3)
_VECTOR = st.fixed_dictionaries(
    {"storageType": st.just("i"), "pathOrInlineDv": st.just("x"), "sizeInBytes": _WHOLE, "cardinality": _WHOLE}
)


def _fields(**usual: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the fields, of which some hold anything at all."""
    often = {name: st.one_of(value, value, value, _ANY) for name, value in usual.items()}
    return st.fixed_dictionaries({}, optional=often | {"another": _ANY})


_OWN = {"url": _TEXT, "id": _TEXT, "version": _WHOLE, "timestamp": _WHOLE, "expirationTimestamp": _WHOLE}
_CONTENT = {"partitionValues": _VALUES, "size": _WHOLE, "stats": st.none() | _TEXT}
_ADD = _fields(path=_TEXT, **_CONTENT, dataChange=st.booleans(), deletionVector=st.none() | _VECTOR)
_ACTION = _fields(add=_ADD, remove=_ADD, cdc=_ADD)
_LINE = _fields(file=_fields(**_OWN, **_CONTENT, deltaSingleAction=_ACTION, deletionVectorFileId=_TEXT), add=_ADD)


@settings(max_examples=examples(600), deadline=None)
@given(_LINE, st.sampled_from(["parquet", "delta"]))
def test_typed_and_lenient_decoding_agree_on_any_fields(line: dict[str, Any], form: str) -> None:
    text = json.dumps(line).encode()
    action = typed(form, text)
    if action is not None:
        assert fields_of(action) == fields_of(lenient(form, text))


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.sampled_from([("parquet", parquet_line()), ("delta", delta_line())]))
def test_typed_and_lenient_decoding_agree_on_lines_with_one_other_value(
    data: Any, example: tuple[Any, dict[str, Any]]
) -> None:
    """One value is replaced by another, or a key is repeated."""
    form, line = example
    text = json.dumps(line)
    pairs = [f'"{key}": {json.dumps(value)}' for key, value in _pairs(line)]
    pair = data.draw(st.sampled_from(pairs))
    other = pair.partition(": ")[0] + ": " + json.dumps(data.draw(_ANY | _TEXT | _WHOLE))
    changed = text.replace(pair, data.draw(st.sampled_from([other, f"{pair}, {other}", f"{other}, {pair}"])))
    encoded = changed.encode()
    action = typed(form, encoded)
    if action is not None:
        assert fields_of(action) == fields_of(lenient(form, encoded))


def _pairs(item: Any) -> list[tuple[str, Any]]:
    if not isinstance(item, dict):
        return []
    return [(key, value) for key, value in item.items()] + [pair for v in item.values() for pair in _pairs(v)]
