"""Upgrade of a table's protocol to versions and features ("Protocol Evolution"); nothing is ever dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from delta_sharing_client.log.table_features import (
    READER_WITH_FEATURES,
    WRITER_WITH_FEATURES,
    feature_name,
    has_feature,
    implied_features,
    is_reader_feature,
    writer_features,
)
from delta_sharing_client.model.actions import Protocol
from delta_sharing_client.model.numbers import as_integer
from delta_sharing_client.model.reader_features import canonical_feature

#: The features that a feature requires.
_REQUIRES: Final = {
    "clustering": ("domainMetadata",),
    "icebergcompatv1": ("columnMapping",),
    "icebergcompatv2": ("columnMapping",),
    "icebergcompatv3": ("columnMapping", "domainMetadata", "rowTracking"),
    "rowtracking": ("domainMetadata",),
    "variantshredding": ("variantType",),
}
#: The legacy versions that have column mapping.
_MAPPING_READER: Final = 2
_MAPPING_WRITER: Final = 5


def checked_request(reader: Any, writer: Any, features: Any) -> tuple[int, int, tuple[str, ...]]:
    """Return the arguments of an upgrade, checked.

    Raises:
        TypeError: a version is not an integer, or the features are no text and no list of texts.
        ValueError: a version is below 1, or a feature has no name; or nothing is requested.
    """
    versions = {"min_reader_version": reader, "min_writer_version": writer}
    for name, value in versions.items():
        number = as_integer(value, name)
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; the protocol's versions begin at 1")
    names = (features,) if isinstance(features, str) else features
    if not isinstance(names, Iterable):
        raise TypeError(f"features is a name or a list of names, not {type(features).__name__}")
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"features is a list of names; one is {type(name).__name__}")
        if not name.strip():
            raise ValueError("features has a name that is empty")
    if reader is None and writer is None and not names:
        raise ValueError("give min_reader_version, min_writer_version or features")
    return reader or 1, writer or 1, names


def upgraded(protocol: Protocol, reader: int, writer: int, features: Iterable[str]) -> dict[str, Any] | None:
    """Return the `protocol` action with at least these versions and features; None if the table has them.

    Args:
        protocol: the present protocol; whatever it has is kept.
        reader: the least reader version.
        writer: the least writer version.
        features: names of features; those that they require are added.
    """
    reader, writer = max(reader, protocol.min_reader_version), max(writer, protocol.min_writer_version)
    if reader >= _MAPPING_READER:
        writer = max(writer, _MAPPING_WRITER if reader == _MAPPING_READER else WRITER_WITH_FEATURES)
    implied = set(map(canonical_feature, implied_features(reader, writer if writer < WRITER_WITH_FEATURES else 1)))
    missing = [f for f in _with_required(features) if not has_feature(protocol, f)]
    missing = [f for f in missing if canonical_feature(f) not in implied]
    if missing:
        writer = max(writer, WRITER_WITH_FEATURES)
        concerning = {canonical_feature(f) for f in missing if is_reader_feature(f)}
        if concerning == {"columnmapping"}:
            reader = max(reader, _MAPPING_READER)
        elif concerning:
            reader = max(reader, READER_WITH_FEATURES)
    result: dict[str, Any] = {**protocol.raw, "minReaderVersion": reader, "minWriterVersion": writer}
    if writer >= WRITER_WITH_FEATURES:
        names = [*writer_features(protocol), *protocol.required_features, *missing]
        result["writerFeatures"] = names = list(
            {canonical_feature(name): name for name in reversed(names)}.values()
        )[::-1]
        if reader >= READER_WITH_FEATURES:
            result["readerFeatures"] = [name for name in names if is_reader_feature(name)]
    same = (reader, writer) == (protocol.min_reader_version, protocol.min_writer_version)
    return None if same and not missing else result


def _with_required(features: Iterable[str]) -> list[str]:
    """Return features, and those that they require, as the protocol spells them."""
    found: dict[str, str] = {}
    pending = list(features)
    while pending:
        name = feature_name(pending.pop(0).strip())
        if found.setdefault(canonical_feature(name), name) is name:
            pending += _REQUIRES.get(canonical_feature(name), ())
    return list(found.values())
