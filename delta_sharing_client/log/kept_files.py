"""Files and checkpoints that a commit keeps, which may need a feature that its protocol drops.

Serves "Table Features" and "Requirements for Writers": without the feature a reader would read other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.checkpoint_reader import is_v2
from delta_sharing_client.log.features_in_use import (
    features_of_schema,
    renamed_in_files,
    retyped_column,
    unknown_type,
    vectors_in_use,
)
from delta_sharing_client.log.file_types import footer_types, has_older_types, has_shredded_variants
from delta_sharing_client.log.log_schema import schema_of
from delta_sharing_client.log.log_segment import list_log
from delta_sharing_client.log.snapshot import LogState, Snapshot
from delta_sharing_client.log.table_features import has_feature
from delta_sharing_client.log.table_properties import flag_property
from delta_sharing_client.model.actions import AddFile, Metadata, Protocol
from delta_sharing_client.model.reader_features import UNKNOWN_TYPE_FEATURES, canonical_feature


def check_kept_files(before: Snapshot, state: LogState, protocol: Protocol, metadata: Metadata) -> None:
    """Check that what a commit keeps can be read by its protocol and metadata.

    Args:
        before: the snapshot before the commit.
        state: the state after it.
        protocol: the protocol after it.
        metadata: the metadata after it.

    Raises:
        DeltaLogError: a live file or the newest checkpoint needs a feature that the protocol does not list, or
            files have other names for the columns.
    """
    old = before.metadata
    lost = {canonical_feature(f) for f in before.protocol.required_features if not has_feature(protocol, f)}
    if not has_feature(protocol, "deletionVectors") and (protocol is not before.protocol):
        _refuse_if(vectors_in_use(_with_vectors(state)), "deletionVectors")
    renamed = renamed_in_files((before.protocol, old), (protocol, metadata))
    if renamed is not None and any(_kept(before, state)):
        raise DeltaLogError(
            f"the files have the column {renamed!r} under another name than the new metadata and protocol (column "
            "mapping); rewrite them in the same commit"
        )
    for feature in ("timestampNtz", "timestampNanos", "variantType", "geospatial"):
        if feature.lower() in lost and (column := retyped_column(feature, old, metadata)) is not None:
            clause = f"the files have the column {column!r} in its former type, which requires"
            _refuse_if(clause if any(_kept(before, state)) else None, feature)
    unknown = unknown_type(metadata) if lost & UNKNOWN_TYPE_FEATURES else None
    _refuse_if(
        unknown and f"the column {unknown!r} has a type that this release does not know; it may require",
        "timestampNanos",
    )
    if "typewidening" in lost:
        listed = "typeWidening" in features_of_schema(schema_of(old))
        check = partial(has_older_types, metadata)
        _refuse_if(_file_that_needs(check, before, state, suspected=listed), "typeWidening")
    if "variantshredding" in lost and "variantType" in features_of_schema(schema_of(metadata)):
        enabled = flag_property(old.configuration, "delta.enableVariantShredding")
        check = partial(has_shredded_variants, metadata)
        _refuse_if(_file_that_needs(check, before, state, suspected=enabled), "variantShredding")
    if "v2checkpoint" in lost:
        _check_checkpoint(before)


def _refuse_if(clause: str | None, feature: str) -> None:
    if clause is not None:
        raise DeltaLogError(
            f"{clause} {feature}, which its protocol does not list; keep the feature, or rewrite it"
        )


def _with_vectors(state: LogState) -> Iterator[AddFile]:
    """Yield the files of a table that may have deletion vectors."""
    skips = state.checkpoint is not None and not state.checkpoint.has_vectors
    yield from (state.added if skips else state.adds).values()


def _kept(before: Snapshot, state: LogState) -> Iterator[AddFile]:
    """Yield the files that were written before the commit; one that it adds again under its path is not new."""
    known = {path for path, _ in (*before.state.adds, *before.state.removes)}
    yield from (add for (path, _), add in state.adds.items() if path in known)


def _file_that_needs(
    check: Callable[[Any], bool], before: Snapshot, state: LogState, *, suspected: bool
) -> str | None:
    """Return a clause about a kept file whose footer shows the use of a feature.

    Args:
        check: whether the Arrow schema of a footer shows it.
        before: the snapshot before the commit.
        state: the state after it.
        suspected: whether a file with an unreadable footer counts as well.
    """
    for file in _kept(before, state):
        footer = footer_types(before.table_path, file)
        if check(footer) if footer is not None else suspected:
            shown = "requires" if footer is not None else "cannot be read, and may require"
            return f"the file {file.path!r} {shown}"
    return None


def _check_checkpoint(before: Snapshot) -> None:
    checkpoints = list_log(before.table_path).checkpoints
    newest = [item for item in checkpoints if item.version == checkpoints[0].version]
    if newest and all(map(is_v2, newest)):
        raise DeltaLogError(
            f"the checkpoint of version {newest[0].version} requires v2Checkpoint, which its protocol does not "
            "list; set delta.checkpointPolicy to classic, and write a checkpoint before"
        )
