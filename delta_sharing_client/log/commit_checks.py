"""Checks of a commit by the rules of the protocol, before it is written; its conflicts with other commits.

Serves "Requirements for Writers" and "Mutual Exclusion" of the Delta transaction protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.actions import Action, OtherAction, Transaction, file_key, name_of
from delta_sharing_client.log.features_in_use import features_in_use
from delta_sharing_client.log.kept_files import check_kept_files
from delta_sharing_client.log.log_schema import (
    PHYSICAL_NAME,
    check_encoding,
    maps_columns,
    partition_fields,
    schema_of,
)
from delta_sharing_client.log.paths import is_absolute
from delta_sharing_client.log.snapshot import Commit, Snapshot
from delta_sharing_client.log.table_features import (
    READER_WITH_FEATURES,
    WRITER_WITH_FEATURES,
    check_new_rows,
    check_write,
    has_feature,
    is_reader_feature,
    writer_features,
)
from delta_sharing_client.log.table_properties import flag_property
from delta_sharing_client.model.actions import AddFile, CdcFile, Metadata, Protocol, RemoveFile
from delta_sharing_client.model.schema import nested_fields

_NOT_IN_URI: Final = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")
#: The fields that distinguish actions with one name; actions without such a field are unique in a commit.
_KEYS: Final = {
    "add": "path",
    "remove": "path",
    "txn": "appId",
    "domainMetadata": "domain",
    "metaData": "",
    "protocol": "",
    "commitInfo": "",
}
#: Features that every commit needs that follows the properties of the table.
_ABOUT_COMMITS: Final = frozenset(
    {"columnMapping", "deletionVectors", "changeDataFeed", "inCommitTimestamp", "v2Checkpoint"}
)
_REQUIRED_METADATA: Final = ("format", "partitionColumns", "configuration")
_REQUIRED_ADD: Final = ("partitionValues", "size", "modificationTime", "dataChange")


def check_commit(actions: Sequence[Action], before: Snapshot) -> Metadata:
    """Check the actions of a commit on top of a snapshot by the protocol's rules; return the metadata after it.

    Raises:
        DeltaLogError: a rule is broken.
        UnsupportedFeatureError: the table has features that this release cannot write.
    """
    table = str(before.table_path)
    declared = next((action for action in actions if isinstance(action, Protocol)), None)
    after = declared or before.state.protocol
    for protocol in (before.state.protocol, declared):
        if protocol is not None:
            check_write(protocol, table)
    try:
        _check_unique(actions)
        described = next((action for action in actions if isinstance(action, Metadata)), None)
        now = described or before.state.metadata
        if after is None or now is None:
            missing = "protocol" if after is None else "metaData"
            raise DeltaLogError(f"the first commit of a table needs a {missing} action")
        _check_protocol(after)
        if declared is not None:
            _check_both_lists(declared)
        if described is not None:
            _check_metadata(described)
        in_use = _check_features(actions, before, after, now)
        _check_files(actions, now, after, allow_absolute_paths=before.allow_absolute_paths)
    except DeltaLogError as error:
        raise DeltaLogError(f"the commit is refused: {error}", path=table) from None
    if any(isinstance(action, AddFile) and action.data_change for action in actions):
        check_new_rows(after, table, in_use)
    return now


def _check_unique(actions: Sequence[Action]) -> None:
    """A log entry must not hold two actions that reconcile with each other."""
    seen: set[tuple[str, str]] = set()
    vectors: dict[str, set[tuple[str, str]]] = {}
    for action in actions:
        name = name_of(action)
        if name not in _KEYS:
            continue
        identity = str(action.raw.get(_KEYS[name], ""))
        if (name, identity) in seen:
            raise DeltaLogError(f"it has two {name} actions" + (f" for {identity!r}" if identity else ""))
        seen.add((name, identity))
        if isinstance(action, AddFile | RemoveFile):
            both = vectors.setdefault(action.path, set())
            if file_key(action) in both:
                raise DeltaLogError(f"it adds and removes the same file {action.path!r}")
            both.add(file_key(action))


def _check_protocol(protocol: Protocol) -> None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    lists_readers, lists_writers = (
        protocol.raw.get(key) is not None for key in ("readerFeatures", "writerFeatures")
    )
    if min(reader, writer) < 1:
        raise DeltaLogError("the protocol's versions begin at 1")
    if (reader >= READER_WITH_FEATURES) != lists_readers:
        raise DeltaLogError(f"readerFeatures belong to reader version {READER_WITH_FEATURES}, and only to it")
    if (writer >= WRITER_WITH_FEATURES) != lists_writers:
        raise DeltaLogError(f"writerFeatures belong to writer version {WRITER_WITH_FEATURES}, and only to it")
    if reader >= READER_WITH_FEATURES and writer < WRITER_WITH_FEATURES:
        raise DeltaLogError("reader features need writer version 7")
    alone = set(protocol.reader_features) - set(protocol.writer_features)
    if alone:
        raise DeltaLogError(f"the reader features {', '.join(sorted(alone))} are not among the writer features")


def _check_both_lists(protocol: Protocol) -> None:
    """Features that readers must support must not be listed for writers alone."""
    lacking = [f for f in writer_features(protocol) if is_reader_feature(f) and not has_feature(protocol, f)]
    if lacking:
        raise DeltaLogError(f"the writer features {', '.join(sorted(lacking))} are not among the reader features")


def _check_metadata(metadata: Metadata) -> None:
    missing = [name for name in _REQUIRED_METADATA if metadata.raw.get(name) is None]
    if missing:
        raise DeltaLogError(f"the metadata lacks {', '.join(missing)}")
    check_encoding(metadata)
    names: set[str] = set()
    schema = schema_of(metadata)
    for name in schema.names:
        if name.lower() in names:
            raise DeltaLogError(f"the schema has the column {name!r} twice (names ignore case)")
        names.add(name.lower())
    partitions = partition_fields(metadata)
    if len(partitions) != len(metadata.partition_columns):
        raise DeltaLogError("a partition column is named twice")
    if names and len(partitions) == len(names):
        raise DeltaLogError("every column is a partition column; the files would have none")
    if maps_columns(metadata):
        for field in nested_fields(schema):
            if not {"delta.columnMapping.id", PHYSICAL_NAME} <= field.metadata.keys():
                raise DeltaLogError(f"columns are mapped, and {field.name!r} has no id or no physical name")


def _check_features(
    actions: Sequence[Action], before: Snapshot, protocol: Protocol, metadata: Metadata
) -> dict[str, str]:
    """Check that the protocol has the features that the table uses after a commit; return those.

    A commit that changes neither protocol nor metadata needs the features of `_ABOUT_COMMITS` alone, so that
    tables of writers that list too few features can be written.
    """
    changes = any(isinstance(action, Protocol | Metadata) for action in actions)
    state = before.state
    if changes or any(isinstance(action, OtherAction) for action in actions):
        state = state.copy()
        state.apply(actions)
    in_use = features_in_use(metadata, state)
    for feature, clause in in_use.items():
        if has_feature(protocol, feature):
            continue
        is_lost = before.state.protocol is not None and has_feature(before.state.protocol, feature)
        if is_lost or feature in _ABOUT_COMMITS or (changes and is_reader_feature(feature)):
            raise DeltaLogError(f"{clause} {feature}, which its protocol does not list")
    if changes and before.state.protocol is not None and before.state.metadata is not None:
        check_kept_files(before, state, protocol, metadata)
    return in_use


def _check_files(
    actions: Sequence[Action], metadata: Metadata, protocol: Protocol, *, allow_absolute_paths: bool
) -> None:
    partitions = set(partition_fields(metadata))
    append_only = has_feature(protocol, "appendOnly") and flag_property(metadata.configuration, "delta.appendOnly")
    for action in actions:
        if not isinstance(action, AddFile | RemoveFile | CdcFile):
            continue
        _check_path(action.path, allow_absolute_paths=allow_absolute_paths)
        if isinstance(action, RemoveFile):
            if append_only and action.data_change:
                raise DeltaLogError(f"the table is append-only, and {action.path!r} would be removed")
            continue
        if isinstance(action, AddFile):
            missing = [name for name in _REQUIRED_ADD if action.raw.get(name) is None]
            if missing:
                raise DeltaLogError(f"the file {action.path!r} lacks {', '.join(missing)}")
            if action.deletion_vector is not None and not has_feature(protocol, "deletionVectors"):
                raise DeltaLogError(f"{action.path!r} has a deletion vector, which the protocol does not list")
        elif not has_feature(protocol, "changeDataFeed"):
            raise DeltaLogError(f"{action.path!r} holds changes; the protocol does not list changeDataFeed")
        if set(action.partition_values) != partitions:
            given = ", ".join(sorted(action.partition_values)) or "none"
            raise DeltaLogError(
                f"{action.path!r} has values for the partition columns {given}; "
                f"the table has {', '.join(sorted(partitions)) or 'none'}"
            )


def _check_path(path: str, *, allow_absolute_paths: bool) -> None:
    if is_absolute(path):
        if not allow_absolute_paths:
            raise DeltaLogError("a file is named by an absolute path; open the log with allow_absolute_paths=True")
        return
    if _NOT_IN_URI.search(path):
        raise DeltaLogError(f"the path {path!r} is not percent-encoded as a URI; quote it (uri_of does)")
    if ".." in unquote(path).split("/"):
        raise DeltaLogError(f"the path {path!r} leads out of the table's directory")


def conflict(actions: Sequence[Action], winners: Iterable[Commit]) -> str | None:
    """Return why a commit cannot be repeated on top of others; None if it conflicts with nothing.

    The others were committed since its transaction began. Only a commit that adds files, and reads none, can be
    repeated: whether removed files were chosen by rows that others changed is unknown.
    """
    for action in actions:
        if isinstance(action, Protocol | Metadata):
            return "it changes the protocol or the metadata"
        if isinstance(action, RemoveFile):
            return "it removes files"
        if isinstance(action, CdcFile):
            return "it has change data of rows that it read"
    ours = set(filter(None, map(_identity, actions)))
    for winner in winners:
        for action in winner.actions:
            if isinstance(action, Protocol | Metadata):
                return f"version {winner.version} changed the protocol or the metadata"
            if (identity := _identity(action)) in ours:
                return f"version {winner.version} has the same {identity[0]} {identity[1]!r}"
    return None


def _identity(action: Action) -> tuple[str, str] | None:
    """Return what two concurrent commits must not both have: a file, an application, a domain."""
    if isinstance(action, AddFile | RemoveFile):
        return "file", action.path
    if isinstance(action, Transaction):
        return "application", action.app_id
    if isinstance(action, OtherAction) and action.name == "domainMetadata":
        return "domain", str(action.raw.get("domain"))
    return None
