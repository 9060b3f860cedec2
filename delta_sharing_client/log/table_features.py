"""Table features that this package can replay and write.

Serves "Protocol Evolution" and "Table Features". A feature is refused only for operations that it concerns: files
may be removed from a table whose CHECK constraints cannot be evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delta_sharing_client.errors import DeltaLogError, UnsupportedFeatureError
from delta_sharing_client.model.actions import Protocol
from delta_sharing_client.model.reader_features import SUPPORTED_FEATURES, canonical_feature

#: The feature of tables whose log may lack commits.
CATALOG_MANAGED: Final = "catalogmanaged"

#: The first versions that list features by name.
READER_WITH_FEATURES: Final = 3
WRITER_WITH_FEATURES: Final = 7

#: Reader features whose logs are replayed.
READABLE: Final = SUPPORTED_FEATURES - {CATALOG_MANAGED}
#: Features that readers and writers must support; the others concern writers alone.
READER_WRITER: Final = SUPPORTED_FEATURES
#: The features that this release knows, by their names for comparison.
_NAMES: Final = {
    canonical_feature(name): name
    for name in (
        *("allowColumnDefaults", "appendOnly", "catalogManaged", "changeDataFeed", "checkConstraints"),
        *("clustering", "columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "geospatial"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "identityColumns", "inCommitTimestamp"),
        *("invariants", "materializePartitionColumns", "rowTracking", "timestampNanos", "timestampNtz"),
        *("typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantType"),
    )
}
#: Writer features that every commit respects.
_WRITABLE: Final = READABLE | {
    "allowcolumndefaults",
    "appendonly",
    "changedatafeed",
    "domainmetadata",
    "incommittimestamp",
    "materializepartitioncolumns",
}
#: Writer features that concern commits with new rows only.
_ABOUT_ROWS: Final = frozenset(
    {
        "checkconstraints",
        "clustering",
        "generatedcolumns",
        "icebergcompatv1",
        "icebergcompatv2",
        "icebergcompatv3",
        "identitycolumns",
        "invariants",
        "rowtracking",
    }
)
#: Of these it is unknown whether the table uses them.
_ALWAYS_IN_USE: Final = frozenset({"clustering", "rowtracking"})
#: The features that a writer version before 7 implies.
_LEGACY: Final = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


def feature_name(name: str) -> str:
    """Return a feature's name as the protocol spells it; a preview's or an unknown feature's name unchanged."""
    known = _NAMES.get(canonical_feature(name))
    return known if known is not None and known.lower() == name.lower() else name


def is_reader_feature(name: str) -> bool:
    """Return whether readers must support a feature, of those that this release knows."""
    return canonical_feature(name) in READER_WRITER


def implied_features(reader: int, writer: int) -> tuple[str, ...]:
    """Return the features that legacy versions imply; column mapping needs both."""
    names = [name for version, names in _LEGACY.items() if version <= writer for name in names]
    return tuple(name for name in names if reader >= 2 or name != "columnMapping")


def writer_features(protocol: Protocol) -> tuple[str, ...]:
    """Return the writer features in force, including those of a legacy version."""
    if protocol.min_writer_version >= WRITER_WITH_FEATURES:
        return protocol.writer_features
    return implied_features(protocol.min_reader_version, protocol.min_writer_version)


def has_feature(protocol: Protocol, name: str) -> bool:
    """Return whether a feature is in force: for writers, and for readers if it concerns them."""
    wanted = canonical_feature(name)
    listed = [writer_features(protocol)]
    if wanted in READER_WRITER:
        listed.append(protocol.required_features)
    return all(wanted in map(canonical_feature, features) for features in listed)


def check_replay(protocol: Protocol, table: str) -> None:
    """Raise if this package cannot replay the log of a table.

    Raises:
        UnsupportedFeatureError: the protocol has unknown reader features; the message names all.
        DeltaLogError: the protocol needs a newer reader version.
    """
    if protocol.min_reader_version > READER_WITH_FEATURES:
        raise DeltaLogError(
            f"the table needs reader version {protocol.min_reader_version}, this release reads up to "
            f"{READER_WITH_FEATURES}: upgrade delta-sharing-client",
            path=table,
        )
    managed = [f for f in protocol.reader_features if canonical_feature(f) == CATALOG_MANAGED]
    if managed:
        raise UnsupportedFeatureError(
            f"{table}: the table cannot be read from its directory ({', '.join(managed)}): a catalog manages its "
            "newest versions; read it through the catalog, or have it shared",
            features=managed,
        )
    _refuse(table, "read", [f for f in protocol.reader_features if canonical_feature(f) not in READABLE])


def check_write(protocol: Protocol, table: str) -> None:
    """Raise if this package cannot commit to a table with a protocol.

    Args:
        protocol: the protocol before or after the commit.
        table: the table's directory, for the message.

    Raises:
        UnsupportedFeatureError: the protocol has unknown writer features; the message names all.
        DeltaLogError: the protocol needs a newer version.
    """
    newest = {"reader": READER_WITH_FEATURES, "writer": WRITER_WITH_FEATURES}
    needed = {"reader": protocol.min_reader_version, "writer": protocol.min_writer_version}
    for kind, version in needed.items():
        if version > newest[kind]:
            verb = {"reader": "reads", "writer": "writes"}[kind]
            raise DeltaLogError(
                f"the table needs {kind} version {version}, this release {verb} up to {newest[kind]}: "
                "upgrade delta-sharing-client",
                path=table,
            )
    known = _WRITABLE | _ABOUT_ROWS
    _refuse(table, "committed to", [f for f in writer_features(protocol) if canonical_feature(f) not in known])


def check_new_rows(protocol: Protocol, table: str, in_use: Iterable[str]) -> None:
    """Raise if new rows cannot be checked by the rules of the features that a table uses.

    Raises:
        UnsupportedFeatureError: there are such features; the message names all.
    """
    used = _ABOUT_ROWS & (_ALWAYS_IN_USE | set(map(canonical_feature, in_use)))
    _refuse(table, "given new rows", [f for f in writer_features(protocol) if canonical_feature(f) in used])


def _refuse(table: str, verb: str, names: list[str]) -> None:
    if names:
        raise UnsupportedFeatureError(
            f"{table}: the table cannot be {verb}: this release does not support its features "
            f"{', '.join(sorted(names))}; upgrade delta-sharing-client, or use the engine that wrote the table",
            features=sorted(names),
        )
