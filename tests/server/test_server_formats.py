from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from served_tables import DELTA, Caller, add, at, column, metadata, protocol, remove, write_table

from delta_sharing_client.server.capabilities import Capabilities
from delta_sharing_client.server.options import ServerOptions

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}
VECTOR_FILE = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
INLINE = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}


def caps(text: str) -> dict[str, str]:
    return {"delta-sharing-capabilities": text}


@pytest.fixture
def with_vectors(tmp_path: Path, serve: Any) -> Caller:
    table = write_table(
        tmp_path / "t",
        [
            protocol(3, 7, ["deletionVectors"]),
            metadata(),
            add("f1", deletionVector=VECTOR, stats={"numRecords": 10, "tightBounds": False}),
            add("f2", deletionVector=INLINE, stats={"numRecords": 9}),
            add("f3", stats={"numRecords": 100}),
        ],
    )
    (table / "ab").mkdir()
    (table / VECTOR_FILE).write_bytes(b"a vector")
    return serve({"s.s.t": table})


def test_deletion_vectors_become_urls(with_vectors: Caller) -> None:
    answer = with_vectors.query(
        "s.s.t", caps("responseformat=delta,parquet;readerfeatures=deletionVectors,columnmapping")
    )
    assert (
        answer.headers["delta-sharing-capabilities"]
        == "responseformat=delta;readerfeatures=deletionvectors,columnmapping"
    )
    assert answer.lines[0]["protocol"]["deltaProtocol"]["readerFeatures"] == ["deletionVectors"]
    first, second, third = answer.files
    vector = first["deltaSingleAction"]["add"]["deletionVector"]
    assert vector | {"pathOrInlineDv": ""} == VECTOR | {"storageType": "p", "pathOrInlineDv": ""}
    assert with_vectors.file(vector["pathOrInlineDv"]).content == b"a vector"
    assert len(first["deletionVectorFileId"]) == 64
    assert second["deltaSingleAction"]["add"]["deletionVector"] == INLINE
    assert "deletionVectorFileId" not in second
    assert "deletionVector" not in third["deltaSingleAction"]["add"]
    again = with_vectors.query("s.s.t", caps("responseformat=delta;readerfeatures=deletionvectors"))
    assert again.files[0]["deletionVectorFileId"] == first["deletionVectorFileId"]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (None, ["deletionVectors", "parquet format"]),
        ("responseformat=parquet", ["deletionVectors", "parquet format"]),
        ("responseformat=delta", ["deletionVectors", "readerfeatures"]),
        ("responseformat=delta,parquet;readerfeatures=columnmapping", ["deletionVectors", "readerfeatures"]),
        ("responseformat=avro", ["responseformat"]),
    ],
)
def test_a_refused_table_names_its_features(with_vectors: Caller, header: str | None, words: list[str]) -> None:
    for answer in (
        with_vectors.query("s.s.t", caps(header) if header else None),
        with_vectors.get(f"{at('s.s.t')}/metadata", caps(header) if header else None),
    ):
        message = answer.error(400)
        assert all(word in message for word in words), message


def test_a_limit_does_not_count_deleted_rows(with_vectors: Caller) -> None:
    headers = caps("responseformat=delta;readerfeatures=deletionvectors")
    counts = [len(with_vectors.query("s.s.t", headers, limitHint=n).files) for n in (0, 1, 4, 5, 7, 8, 1000)]
    assert counts == [0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("reader", [2, 3])
def test_column_mapping(tmp_path: Path, serve: Any, reader: int) -> None:
    columns = [
        column("day", "date", **{"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}),
        column("n", "long", **{"delta.columnMapping.physicalName": "col-2", "delta.columnMapping.id": 2}),
    ]
    mapped = {"delta.columnMapping.mode": "name"}
    table = write_table(
        tmp_path / "t",
        [
            protocol(reader, 5 if reader == 2 else 7, ["columnMapping"]),
            metadata(*columns, partitions=["day"], configuration=mapped),
            add(
                "f1",
                partition={"col-1": "2024-01-01"},
                stats={
                    "numRecords": 1,
                    "minValues": {"col-2": 1},
                    "maxValues": {"col-2": 5},
                    "nullCount": {"col-2": 0},
                },
            ),
            add(
                "f2",
                partition={"col-1": "2024-01-02"},
                stats={
                    "numRecords": 1,
                    "minValues": {"col-2": 6},
                    "maxValues": {"col-2": 9},
                    "nullCount": {"col-2": 0},
                },
            ),
        ],
    )
    caller = serve({"s.s.t": table})
    assert "columnMapping" in caller.query("s.s.t").error(400)
    headers = caps("responseformat=delta;readerfeatures=columnmapping")
    answer = caller.query("s.s.t", headers)
    assert answer.files[0]["deltaSingleAction"]["add"]["partitionValues"] == {"col-1": "2024-01-01"}
    assert answer.metadata["deltaMetadata"]["configuration"] == mapped


@pytest.mark.parametrize(
    ("version", "features", "configuration"),
    [
        (2, [], {"delta.columnMapping.mode": "none"}),
        (2, [], {}),
        (3, ["columnMapping"], {}),
        (3, ["v2Checkpoint", "vacuumProtocolCheck"], {}),
    ],
)
def test_features_supported_by_parquet_format(
    tmp_path: Path, serve: Any, version: int, features: list[str], configuration: dict[str, str]
) -> None:
    table = write_table(
        tmp_path / "t", [protocol(version, 7, features), metadata(configuration=configuration), add("f")]
    )
    answer = serve({"s.s.t": table}).query("s.s.t")
    assert answer.lines[0] == {"protocol": {"minReaderVersion": 1}}
    assert len(answer.files) == 1


def test_log_features_must_be_listed_in_delta_format(tmp_path: Path, serve: Any) -> None:
    table = write_table(
        tmp_path / "t", [protocol(3, 7, ["v2Checkpoint", "variantType-preview"]), metadata(), add("f")]
    )
    caller = serve({"s.s.t": table})
    message = caller.query("s.s.t", caps("responseformat=delta;readerfeatures=varianttype")).error(400)
    assert "[v2Checkpoint]" in message
    assert caller.query("s.s.t", caps("responseformat=delta;readerfeatures=varianttype,v2checkpoint")).files


@pytest.mark.parametrize(
    ("prefer", "header", "chosen"),
    [
        ("auto", None, "parquet"),
        ("auto", "responseformat=delta,parquet", "parquet"),
        ("auto", "responseformat=parquet,delta", "parquet"),
        ("auto", "responseformat=DELTA", "delta"),
        ("delta", "responseformat=parquet,delta", "delta"),
        ("delta", "responseformat=parquet", "parquet"),
        ("delta", None, "parquet"),
        ("parquet", "responseformat=delta", "parquet"),
    ],
)
def test_choice_of_format(tmp_path: Path, serve: Any, prefer: str, header: str | None, chosen: str) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])
    caller = serve({"s.s.t": table}, prefer_format=prefer)
    answer = caller.query("s.s.t", caps(header) if header else None)
    assert ("deltaProtocol" in answer.lines[0]["protocol"]) == (chosen == "delta")
    shown = answer.headers.get("delta-sharing-capabilities")
    assert shown == (None if prefer == "parquet" else f"responseformat={chosen}")


def test_file_ids_are_shared_by_the_formats_unless_an_option_separates_them(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])

    def ids(caller: Caller) -> list[str]:
        answers = [caller.query("s.s.t", header) for header in (None, DELTA)]
        answers += [caller.query("s.s.t", header, startingVersion=0) for header in (None, DELTA)]
        return [line["id"] for answer in answers for name in ("file", "add") for line in answer.all(name)]

    assert len(set(ids(serve({"s.s.t": table})))) == 1
    by_format = [hashlib.md5(b"f").hexdigest(), hashlib.sha256(b"f").hexdigest()]
    assert ids(serve({"s.s.t": table}, file_ids_by_format=True)) == by_format * 2


def test_parquet_only_server_refuses_advanced_tables(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(3, 7, ["deletionVectors"]), metadata(), add("f")])
    caller = serve({"s.s.t": table}, prefer_format="parquet")
    assert "deletionVectors" in caller.query(
        "s.s.t", caps("responseformat=delta;readerfeatures=deletionvectors")
    ).error(400)


def test_null_fields_of_the_log_are_omitted(tmp_path: Path, serve: Any) -> None:
    """Absent fields that a writer spells as null are left out; null partition values stay null."""
    columns = [column("p", "string"), column("a", "long")]
    table = write_table(
        tmp_path / "t",
        [
            protocol(),
            metadata(*columns, partitions=["p"]),
            add("f", partition={"p": None}, tags=None, clusteringProvider=None, baseRowId=None),
        ],
    )
    caller = serve({"s.s.t": table})
    action = caller.query("s.s.t", DELTA).files[0]["deltaSingleAction"]["add"]
    assert set(action) == {"path", "partitionValues", "size", "modificationTime", "dataChange"}
    assert action["partitionValues"] == {"p": None}
    plain = caller.query("s.s.t").files[0]
    assert plain["partitionValues"] == {"p": None}
    assert "stats" not in plain


def test_parse_capabilities() -> None:
    parse = Capabilities.parse
    options = ServerOptions()
    assert parse(None, options) == parse("", options) == parse(";;x", options) == Capabilities()
    assert parse(
        " ResponseFormat = Delta , parquet ;READERFEATURES=A,,b; includeEndStreamAction=TRUE", options
    ) == (Capabilities(formats=("delta", "parquet"), reader_features=("a", "b"), end_stream_action=True))
    assert not parse("includeendstreamaction=false", options).end_stream_action


def test_files_with_special_paths(tmp_path: Path, serve: Any) -> None:
    table = tmp_path / "t"
    path = table / "p=a b%2F" / "f é.parquet"
    write_table(
        table, [protocol(), metadata(), add("p=a%20b%252F/f%20%C3%A9.parquet"), add(path.as_uri()), remove("x")]
    )
    path.parent.mkdir(parents=True)
    path.write_bytes(b"content")
    caller = serve({"s.s.t": table})
    for file in caller.query("s.s.t").files:
        assert caller.file(file["url"]).content == b"content"
