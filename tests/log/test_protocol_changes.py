"""Commits that lower or raise the protocol: nothing that the table uses may be lost."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handwritten_logs import LogWriter, add, open_log, remove

from delta_sharing_client import DeltaLog as PublicLog
from delta_sharing_client.errors import (
    CommitConflictError,
    DeltaLogError,
    DeltaTableNotFoundError,
    UnsupportedFeatureError,
)
from delta_sharing_client.log import DeltaLog

DELETED = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def field(name: str, kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "nullable": True,
        "metadata": {key.replace("__", "."): value for key, value in metadata.items()},
    }


def mapped(name: str, number: int, physical: str, kind: Any = "long") -> dict[str, Any]:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {**field(name, kind), "metadata": keys}


def described(*fields: Any, **configuration: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "t-1",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(fields or [field("a")])}),
            "partitionColumns": [],
            "configuration": {key.replace("__", "."): value for key, value in configuration.items()},
        }
    }


def protocol(
    reader: int, writer: int, features: Iterable[str] | None = None, readers: Any = None
) -> dict[str, Any]:
    action: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if writer == 7:
        action["writerFeatures"] = list(features or ())
    if reader == 3:
        action["readerFeatures"] = list((features or ()) if readers is None else readers)
    return {"protocol": action}


PLAIN = protocol(1, 2)
VECTORS = protocol(3, 7, ["deletionVectors"])


def table(tmp_path: Path, *actions: Mapping[str, Any]) -> DeltaLog:
    log = open_log(tmp_path / "table")
    log.commit(actions)
    return log


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


WIDENED = [{"fromType": "integer", "toType": "long"}]
NAMES = {"delta__columnMapping__mode": "name"}


@pytest.mark.parametrize(
    ("feature", "made", "kept", "reason"),
    [
        ("deletionVectors", described(delta__enableDeletionVectors="true"), None, "properties require"),
        ("deletionVectors", described(), described(), "the deletion vector of the file 'dv' requires"),
        ("timestampNtz", described(field("t", "timestamp_ntz")), None, r"'t' \(timestamp_ntz\) requires"),
        ("timestampNtz", described(field("t", array("timestamp_ntz"))), None, "'t'"),
        (
            "timestampNtz",
            described(field("s", struct(field("t", map_of("string", "timestamp_ntz"))))),
            None,
            "'s'",
        ),
        (
            "timestampNtz",
            described(field("t", "timestamp_ntz")),
            described(field("t", "timestamp")),
            "former type",
        ),
        ("variantType", described(field("v", array("variant"))), None, r"'v' \(variant\) requires"),
        ("variantType", described(field("v", "variant")), described(field("v", "string")), "former type"),
        ("variantType-preview", described(field("v", "variant")), None, "requires variantType"),
        ("geospatial", described(field("g", "geometry(OGC:CRS84)")), None, "'g'"),
        (
            "timestampNanos",
            described(field("n", "timestamp_nanos")),
            None,
            "a type that this release does not know",
        ),
        (
            "typeWidening",
            described(field("a", delta__typeChanges=WIDENED)),
            None,
            "type changes that the field 'a'",
        ),
        ("typeWidening", described(field("s", struct(field("x", delta__typeChanges=WIDENED)))), None, "'x'"),
        ("typeWidening", described(field("m", array("long"), delta__typeChanges=WIDENED)), None, "'m'"),
        (
            "typeWidening",
            described(field("a", delta__typeChanges=WIDENED)),
            described(field("a")),
            "'dv' cannot be read, and may require",
        ),
        ("typeWidening", described(delta__enableTypeWidening="true"), None, "properties require"),
        ("columnMapping", described(mapped("a", 1, "col-1"), **NAMES), None, "properties require"),
        (
            "columnMapping",
            described(mapped("a", 1, "col-1"), **NAMES),
            described(),
            "column 'a' under another name",
        ),
        (
            "columnMapping",
            described(field_ := mapped("s", 1, "s", struct(mapped("a", 2, "col-2"))), **NAMES),
            described(field_),
            "column 's.a' under another name",
        ),
        ("variantShredding", described(delta__enableVariantShredding="true"), None, "properties require"),
        ("v2Checkpoint", described(delta__checkpointPolicy="v2"), None, "properties require"),
    ],
)
def test_a_reader_feature_in_use_is_not_lost(
    tmp_path: Path, feature: str, made: dict[str, Any], kept: dict[str, Any] | None, reason: str
) -> None:
    vector = {"deletionVector": DELETED} if feature == "deletionVectors" else {}
    log = table(tmp_path, protocol(3, 7, [feature]), made, add("dv", **vector))
    lowered = [[PLAIN], [protocol(1, 7, [])], [protocol(3, 7, [])]]
    lowered.append([protocol(3, 7, [feature], readers=[])])  # readers alone lose it
    for actions in lowered:
        with pytest.raises(DeltaLogError, match=rf"the commit is refused: .*({reason}|not among the reader)"):
            log.commit([*actions, *([kept] if kept else [])])
    assert log.latest_version() == 0


@pytest.mark.parametrize(
    ("feature", "made", "after"),
    [
        ("deletionVectors", described(delta__enableDeletionVectors="true"), [described()]),
        ("deletionVectors", described(), [remove("dv", deletionVector=DELETED), add("new")]),
        ("deletionVectors", described(), [add("dv")]),
        ("timestampNtz", described(field("t", "timestamp_ntz"), field("a")), [described(field("a"))]),
        (
            "timestampNtz",
            described(field("t", "timestamp_ntz")),
            [described(field("t")), remove("dv"), add("new")],
        ),
        ("variantType", described(field("a")), []),
        ("typeWidening", described(field("a")), []),
        (
            "typeWidening",
            described(field("a", delta__typeChanges=WIDENED)),
            [described(), remove("dv"), add("new")],
        ),
        ("columnMapping", described(mapped("a", 1, "a"), **NAMES), [described()]),
        ("columnMapping", described(mapped("a", 1, "col-1"), **NAMES), [described(), remove("dv"), add("new")]),
        ("columnMapping", described(mapped("a", 1, "col-1"), **NAMES), [described(field("other"))]),
        ("vacuumProtocolCheck", described(), []),
        ("variantShredding", described(), []),
        ("v2Checkpoint", described(), []),
    ],
)
def test_a_feature_that_nothing_uses_may_be_lost(
    tmp_path: Path, feature: str, made: dict[str, Any], after: list[dict[str, Any]]
) -> None:
    is_vector = feature == "deletionVectors" and bool(after) and "metaData" not in after[0]
    vector = {"deletionVector": DELETED} if is_vector else {}
    log = table(tmp_path, protocol(3, 7, [feature]), made, add("dv", **vector))
    if after == [add("dv")]:  # the entry with the vector is another file
        after = [remove("dv", deletionVector=DELETED), *after]
    assert log.commit([PLAIN, *after]) == 1
    assert open_log(tmp_path / "table").snapshot().protocol.min_writer_version == 2


def test_a_legacy_reader_version_is_a_feature_too(tmp_path: Path) -> None:
    log = table(tmp_path, protocol(2, 5), described(mapped("a", 1, "col-1"), **NAMES), add("f"))
    for lowered in (protocol(1, 5), protocol(1, 7, ["columnMapping"]), PLAIN, VECTORS):
        with pytest.raises(DeltaLogError, match="columnMapping"):
            log.commit([lowered])
    assert log.commit([protocol(2, 7, ["columnMapping"])]) == 1
    assert log.commit([protocol(3, 7, ["columnMapping"])]) == 2
    assert log.commit([protocol(2, 5)]) == 3


@pytest.mark.parametrize(
    ("feature", "actions"),
    [
        ("checkConstraints", [described(delta__constraints__c="a > 0")]),
        ("appendOnly", [described(delta__appendOnly="true")]),
        ("generatedColumns", [described(field("a", delta__generationExpression="1"))]),
        ("identityColumns", [described(field("a", delta__identity__start=1))]),
        ("invariants", [described(field("a", delta__invariants="{}"))]),
        ("allowColumnDefaults", [described(field("a", CURRENT_DEFAULT="1"))]),
        ("rowTracking", [described(delta__enableRowTracking="true")]),
        ("icebergCompatV2", [described(delta__enableIcebergCompatV2="true")]),
        ("inCommitTimestamp", [described(delta__enableInCommitTimestamps="true")]),
        (
            "domainMetadata",
            [described(), {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}}],
        ),
    ],
)
def test_a_writer_feature_in_use_is_not_lost(tmp_path: Path, feature: str, actions: list[dict[str, Any]]) -> None:
    log = table(tmp_path, protocol(1, 7, [feature]), *actions)
    with pytest.raises(DeltaLogError, match=f"requires? {feature}, which its protocol does not list"):
        log.commit([protocol(1, 7, [])])
    dropped = {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}
    assert log.commit([protocol(1, 7, []), described(), *([dropped] if feature == "domainMetadata" else [])]) == 1


@pytest.mark.parametrize("kind", ["timestamp_ntz", "variant", struct(field("x", array("timestamp_ntz")))])
def test_a_schema_does_not_gain_a_type_without_its_feature(tmp_path: Path, kind: Any) -> None:
    log = table(tmp_path, PLAIN, described())
    with pytest.raises(DeltaLogError, match=r"the column 'n' .* requires (timestampNtz|variantType)"):
        log.commit([described(field("a"), field("n", kind))])


def test_a_file_under_its_path_again_is_not_a_new_one(tmp_path: Path) -> None:
    log = table(tmp_path, protocol(2, 5), described(mapped("a", 1, "col-1"), **NAMES), add("f"))
    with pytest.raises(DeltaLogError, match="under another name"):
        log.commit([PLAIN, described(), add("f", size=11)])
    with pytest.raises(DeltaLogError, match="under another name"):
        log.commit([described()])


def test_mapping_begins_with_renamed_columns(tmp_path: Path) -> None:
    """A commit may stand for several of another table: mapping was enabled, and columns were renamed after it."""
    log = table(tmp_path, protocol(2, 5), described(field("a"), field("b")), add("f"))
    assert log.commit([described(mapped("b", 1, "a"), mapped("a", 2, "b"), **NAMES)]) == 1


class TestFooters:
    """What type widening and shredding leave is in the data files themselves."""

    def test_files_in_a_narrower_type(self, tmp_path: Path) -> None:
        inner = struct(field("x", array("long"), delta__typeChanges=[*WIDENED]))
        log = table(tmp_path, protocol(3, 7, ["typeWidening"]), described(field("s", inner)), add("old"))
        narrow, wide = (pa.struct([("x", pa.list_(kind))]) for kind in (pa.int32(), pa.int64()))
        pq.write_table(pa.table({"s": pa.array([{"x": [1]}], narrow)}), tmp_path / "table" / "old")
        pq.write_table(pa.table({"s": pa.array([{"x": [1]}], wide)}), tmp_path / "table" / "new")
        plain = described(field("s", struct(field("x", array("long")))))
        with pytest.raises(DeltaLogError, match="the file 'old' requires typeWidening"):
            log.commit([PLAIN, plain])
        log.commit([plain])  # the feature remains
        with pytest.raises(DeltaLogError, match="the file 'old' requires typeWidening"):
            log.commit([PLAIN])
        log.commit([remove("old"), add("new")])
        assert log.commit([PLAIN]) == 3

    @pytest.mark.parametrize(
        ("kind", "file_type", "is_older"),
        [
            ("double", pa.float32(), True),
            ("double", pa.float64(), False),
            ("decimal(12,2)", pa.decimal128(10, 2), True),
            ("decimal(12,2)", pa.decimal128(12, 2), False),
            ("timestamp_ntz", pa.date32(), True),
            ("short", pa.int32(), False),
            ("integer", pa.int16(), True),
        ],
    )
    def test_types(self, tmp_path: Path, kind: str, file_type: pa.DataType, is_older: bool) -> None:
        ntz = ["timestampNtz"] if kind == "timestamp_ntz" else []
        log = table(tmp_path, protocol(3, 7, ["typeWidening", *ntz]), described(field("a", kind)), add("f"))
        pq.write_table(pa.table({"a": pa.nulls(1, file_type)}), tmp_path / "table" / "f")
        if is_older:
            with pytest.raises(DeltaLogError, match="the file 'f' requires typeWidening"):
                log.commit([protocol(3, 7, ntz)])
        else:
            assert log.commit([protocol(3, 7, ntz)]) == 1

    def test_shredded_variants(self, tmp_path: Path) -> None:
        features = ["variantShredding", "variantType"]
        log = table(tmp_path, protocol(3, 7, features), described(field("v", "variant")), add("f"))
        parts = [("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())]
        pq.write_table(pa.table({"v": pa.nulls(1, pa.struct(parts))}), tmp_path / "table" / "f")
        with pytest.raises(DeltaLogError, match="the file 'f' requires variantShredding"):
            log.commit([protocol(3, 7, ["variantType"])])
        pq.write_table(pa.table({"v": pa.nulls(1, pa.struct(parts[:2]))}), tmp_path / "table" / "f")
        assert log.commit([protocol(3, 7, ["variantType"])]) == 1


def test_v2_checkpoints_are_replaced_first(tmp_path: Path) -> None:
    log = table(tmp_path, protocol(3, 7, ["v2Checkpoint"]), described(delta__checkpointPolicy="v2"), add("f"))
    log.checkpoint()
    log.commit([described()])
    reason = r"version 0 requires v2Checkpoint, .*; set delta\.checkpointPolicy to classic, and write a checkpoint"
    with pytest.raises(DeltaLogError, match=reason):
        log.commit([PLAIN])
    log.checkpoint()
    assert log.commit([PLAIN]) == 2


def test_unknown_features_and_versions_are_not_dropped(writer: LogWriter) -> None:
    """What the table does with them is unknown, before the commit and after it."""
    writer.commit(0, [protocol(1, 7, ["newThing"]), described(), add("a")])
    log = open_log(writer.table)
    with pytest.raises(UnsupportedFeatureError, match="newThing; upgrade delta-sharing-client"):
        log.commit([PLAIN])
    with pytest.raises(UnsupportedFeatureError, match="newThing; upgrade delta-sharing-client"):
        log.upgrade_protocol(features=["deletionVectors"])
    writer.commit(1, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 8}}])
    for actions in ([PLAIN], [add("b")]):
        with pytest.raises(DeltaLogError, match=r"writer version 8, .* up to 7: upgrade delta-sharing-client"):
            log.commit(actions)
    with pytest.raises(DeltaLogError, match="upgrade delta-sharing-client"):
        log.upgrade_protocol(1, 2, features="appendOnly")


class TestUpgrade:
    @pytest.mark.parametrize(
        ("before", "arguments", "after"),
        [
            (PLAIN, {"min_writer_version": 4}, protocol(1, 4)),
            (PLAIN, {"min_reader_version": 2}, protocol(2, 5)),
            (PLAIN, {"min_reader_version": 3}, protocol(3, 7, ["appendOnly", "invariants"], [])),
            (PLAIN, {"min_reader_version": 3, "min_writer_version": 7},
             protocol(3, 7, ["appendOnly", "invariants"], [])),
            (PLAIN, {"features": "deletionVectors"},
             protocol(3, 7, ["appendOnly", "invariants", "deletionVectors"], ["deletionVectors"])),
            (PLAIN, {"features": ["DELETIONVECTORS"]},
             protocol(3, 7, ["appendOnly", "invariants", "deletionVectors"], ["deletionVectors"])),
            (PLAIN, {"features": ["columnMapping"]},
             protocol(2, 7, ["appendOnly", "invariants", "columnMapping"])),
            (PLAIN, {"min_writer_version": 4, "features": ["changeDataFeed"]}, protocol(1, 4)),
            (PLAIN, {"features": ("rowTracking",)},
             protocol(1, 7, ["appendOnly", "invariants", "rowTracking", "domainMetadata"])),
            (protocol(2, 5), {"features": ["typeWidening", "v2Checkpoint"]},
             protocol(3, 7, ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
                             "columnMapping", "typeWidening", "v2Checkpoint"],
                      ["columnMapping", "typeWidening", "v2Checkpoint"])),
            (protocol(1, 6), {"min_writer_version": 7},
             protocol(1, 7, ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
                             "identityColumns"])),
            (protocol(3, 7, ["variantType-preview"]), {"features": ["variantShredding"]},
             protocol(3, 7, ["variantType-preview", "variantShredding"])),
        ],
    )  # fmt: skip
    def test_upgrades(
        self, tmp_path: Path, before: dict[str, Any], arguments: dict[str, Any], after: dict[str, Any]
    ) -> None:
        log = table(tmp_path, before, described())
        assert log.upgrade_protocol(**arguments) == 1
        assert log.snapshot().protocol.raw == after["protocol"]
        assert log.upgrade_protocol(**arguments) == 1
        assert log.upgrade_protocol(1, 1, features=arguments.get("features", ())) == 1
        assert open_log(log.table_path if isinstance(log.table_path, Path) else tmp_path).latest_version() == 1
        (info,) = log.history(limit=1)
        assert info.operation == "UPGRADE PROTOCOL"
        assert json.loads(info.operation_parameters["newProtocol"]) == after["protocol"]

    @pytest.mark.parametrize(
        ("arguments", "kind", "reason"),
        [
            ({"min_writer_version": 8}, DeltaLogError, "writer version 8, .*: upgrade delta-sharing-client"),
            ({"min_reader_version": 4}, DeltaLogError, "reader version 4, .*: upgrade delta-sharing-client"),
            ({"features": ["newThing"]}, UnsupportedFeatureError, "newThing; upgrade delta-sharing-client"),
            ({"features": ["catalogManaged"]}, UnsupportedFeatureError, "catalogManaged; upgrade"),
            ({}, ValueError, "give min_reader_version, min_writer_version or features"),
            ({"min_reader_version": 0}, ValueError, "min_reader_version is 0"),
            ({"min_reader_version": "3"}, TypeError, "min_reader_version is an int, not str"),
            ({"min_writer_version": True}, TypeError, "min_writer_version is an int, not bool"),
            ({"features": 3}, TypeError, "features is a name or a list of names, not int"),
            ({"features": [3]}, TypeError, "features is a list of names; one is int"),
            ({"features": [" "]}, ValueError, "features has a name that is empty"),
        ],
    )
    def test_refused(self, tmp_path: Path, arguments: dict[str, Any], kind: type[Exception], reason: str) -> None:
        log = table(tmp_path, PLAIN, described())
        with pytest.raises(kind, match=reason):
            log.upgrade_protocol(**arguments)
        assert log.latest_version() == 0

    def test_without_a_table(self, tmp_path: Path) -> None:
        with pytest.raises(DeltaTableNotFoundError):
            open_log(tmp_path / "none").upgrade_protocol(3, 7)
        assert not (tmp_path / "none").exists()

    def test_other_writers_commit_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = table(tmp_path, PLAIN, described())
        begin, left = log.start_transaction, [2]

        def overtaken() -> Any:
            transaction = begin()
            if left[0]:
                left[0] -= 1
                actions = [protocol(1, 3)] if left[0] else [add("f")]
                begin().commit(actions)
            return transaction

        monkeypatch.setattr(log, "start_transaction", overtaken)
        with pytest.raises(CommitConflictError):
            log.upgrade_protocol(features="appendOnly", min_writer_version=7, max_retries=0)
        assert log.upgrade_protocol(features="deletionVectors") == 3
        found = log.snapshot().protocol
        assert found.writer_features == ("appendOnly", "invariants", "checkConstraints", "deletionVectors")

    def test_the_table_with_a_new_feature(self, tmp_path: Path) -> None:
        log = PublicLog(str(tmp_path / "table"))
        log.commit([PLAIN, described(), add("f")])
        assert log.upgrade_protocol(features=["deletionVectors"]) == 1
        assert log.commit([described(delta__enableDeletionVectors="true")]) == 2


def test_other_engines_read_the_rows_after_each_change(tmp_path: Path) -> None:
    """The protocol that an upgrade writes is one that delta-rs accepts, and so is the one that remains."""
    deltalake = pytest.importorskip("deltalake")
    sizes = {}
    (tmp_path / "table").mkdir()
    for name, values in {"f": range(5), "g": [7]}.items():
        pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), tmp_path / "table" / name)
        sizes[name] = (tmp_path / "table" / name).stat().st_size
    log = table(tmp_path, PLAIN, described(), add("f", size=sizes["f"]))

    def rows() -> list[int]:
        found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path / "table")))
        return sorted(pa.table(found.execute("SELECT a FROM t").read_all()).column("a").to_pylist())

    assert rows() == list(range(5))
    log.upgrade_protocol(features=["timestampNtz", "columnMapping", "v2Checkpoint"])
    assert rows() == list(range(5))
    assert log.commit([protocol(1, 7, ["appendOnly"]), remove("f"), add("g", size=sizes["g"])]) == 2
    assert rows() == [7]
    log.upgrade_protocol(features=["changeDataFeed", "checkConstraints"])
    log.checkpoint()
    assert rows() == [7]
    log.commit([protocol(1, 4)])
    log.checkpoint()
    assert rows() == [7]


class Model:
    """The features that a table has, and what it uses, as a few sets."""

    USES = {
        "deletionVectors": "a file",
        "timestampNtz": field("n", "timestamp_ntz"),
        "variantType": field("v", array("variant")),
        "typeWidening": field("w", delta__typeChanges=WIDENED),
        "columnMapping": NAMES,
        "changeDataFeed": {"delta__enableChangeDataFeed": "true"},
        "checkConstraints": {"delta__constraints__c": "a > 0"},
    }
    FREE = ("vacuumProtocolCheck", "v2Checkpoint", "appendOnly", "domainMetadata")
    WRITERS = ("changeDataFeed", "checkConstraints", "appendOnly", "domainMetadata")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.features: set[str] = set()
        self.used: set[str] = set()
        self.names = (*self.USES, *self.FREE)

    def actions(self, used: set[str], before: set[str], number: int) -> list[dict[str, Any]]:
        """Return the metadata and files of a table that uses features; all files are replaced."""
        found: list[dict[str, Any]] = []
        fields = [field("a"), *(self.USES[name] for name in sorted(used) if "type" in self.USES[name])]
        properties = {
            key: value
            for name in used
            if isinstance(self.USES[name], dict) and "type" not in self.USES[name]
            for key, value in self.USES[name].items()
        }
        if "columnMapping" in used:
            fields = [
                {**item, "metadata": {**item["metadata"], **mapped("", at, f"p{at}")["metadata"]}}
                for at, item in enumerate(fields, 1)
            ]
        found.append(described(*fields, **properties))
        vector = {"deletionVector": DELETED}
        if number:
            found.append(remove(f"f{number - 1}", **(vector if "deletionVectors" in before else {})))
        extra = vector if "deletionVectors" in used else {}
        found.append(add(f"f{number}", dataChange=False, **extra))
        return found

    def protocol(self) -> dict[str, Any]:
        names = sorted(self.features)
        readers = [name for name in names if name not in self.WRITERS]
        return protocol(3, 7, names, readers)


@pytest.mark.parametrize("seed", range(6))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    """Protocols are lowered and raised at random; a commit succeeds if the model says so."""
    model, choose = Model(seed), random.Random(seed)
    log = table(tmp_path, protocol(3, 7, []), *model.actions(set(), set(), 0))
    files = 0
    for _ in range(25):
        step = choose.choice(["use", "lower", "lower and use", "upgrade"])
        features = set(model.features)
        if step == "upgrade":
            wanted = {*choose.sample(model.names, 2)}
            expected = log.latest_version() + (not wanted <= features)
            assert log.upgrade_protocol(features=wanted) == expected
            model.features |= wanted
            continue
        used = set(model.used)
        if "lower" in step:
            features = {*choose.sample(model.names, choose.randrange(len(model.names)))}
        if "use" in step:
            used = {*choose.sample(sorted(model.USES), choose.randrange(4))}
        wanted_protocol = Model(0)
        wanted_protocol.features = features
        actions = [wanted_protocol.protocol()] if "lower" in step else []
        if "use" in step:
            actions += model.actions(used, model.used, files + 1)
        lacking = {name for name in used - features if name != "checkConstraints" or name in model.features}
        version = log.latest_version()
        if lacking:
            with pytest.raises(DeltaLogError, match="the commit is refused"):
                log.commit(actions)
            assert log.latest_version() == version
            continue
        assert log.commit(actions) == version + 1
        files += "use" in step
        model.features, model.used = features, used
    found = open_log(tmp_path / "table").snapshot()
    assert set(found.protocol.writer_features) == model.features
