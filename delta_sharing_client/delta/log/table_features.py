"""Table features that this package can replay and write.

Serves "Protocol Evolution" and "Table Features". A feature is refused only for operations that it concerns: files
may be removed from a table whose CHECK constraints cannot be evaluated.
"""

from __future__ import annotations

from collections.abc import Set
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
#: The features that a writer version before 7 implies.
_LEGACY: Final = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


def writer_features(protocol: Protocol) -> tuple[str, ...]:
    """Return the writer features in force, including those of a legacy version."""
    if protocol.min_writer_version >= WRITER_WITH_FEATURES:
        return protocol.writer_features
    return tuple(
        name for version, names in _LEGACY.items() if version <= protocol.min_writer_version for name in names
    )


def has_feature(protocol: Protocol, name: str) -> bool:
    """Return whether a writer feature is in force."""
    return canonical_feature(name) in {canonical_feature(feature) for feature in writer_features(protocol)}


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


def check_write(protocol: Protocol, table: str, *, adds_rows: bool, in_use: Set[str]) -> None:
    """Raise if this package cannot commit to a table.

    Args:
        protocol: the protocol after the commit.
        table: the table's directory, for the message.
        adds_rows: whether the commit adds files with new rows.
        in_use: canonical names of the features about rows that the table's metadata uses.

    Raises:
        UnsupportedFeatureError: the protocol has unknown writer features, or features whose rules for new rows
            cannot be checked; the message names all.
        DeltaLogError: the protocol needs a newer writer version.
    """
    if protocol.min_writer_version > WRITER_WITH_FEATURES:
        raise DeltaLogError(
            f"the table needs writer version {protocol.min_writer_version}, this release writes up to "
            f"{WRITER_WITH_FEATURES}: upgrade delta-sharing-client",
            path=table,
        )
    features = {feature: canonical_feature(feature) for feature in writer_features(protocol)}
    _refuse(table, "committed to", [f for f, name in features.items() if name not in _WRITABLE | _ABOUT_ROWS])
    if adds_rows:
        _refuse(table, "given new rows", [f for f, name in features.items() if name in in_use])


def _refuse(table: str, verb: str, names: list[str]) -> None:
    if names:
        raise UnsupportedFeatureError(
            f"{table}: the table cannot be {verb}: this release does not support its features "
            f"{', '.join(sorted(names))}; use the engine that wrote the table",
            features=sorted(names),
        )
