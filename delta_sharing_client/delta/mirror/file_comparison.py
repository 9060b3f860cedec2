"""Comparison of a mirror's files with those that the server lists, by id or by unchanging properties.

A file may have another id in another response format. Its unsigned URL, size, partition values and statistics stay
the same. If the match is uncertain, the file is treated as new.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote

from delta_sharing_client.delta.log import Snapshot
from delta_sharing_client.delta.mirror.state import file_id_of, key_of, tags_of
from delta_sharing_client.delta.table.local_actions import LOCATION, LocalFile, location_of
from delta_sharing_client.model.actions import AddFile, FileAction

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between a mirror's version and a server's listing.

    Attributes:
        files: the listed files; those that the mirror has have its paths.
        new: the files that the mirror lacks, and those with another deletion vector.
        renamed: the files that the mirror has under another id.
        gone: the mirror's files that are no longer listed.
    """

    files: list[LocalFile]
    new: list[LocalFile]
    renamed: list[LocalFile]
    gone: list[AddFile]


def compare(snapshot: Snapshot, listed: Iterable[LocalFile], *, by_location: bool) -> Comparison:
    """Compare a mirror's version with a server's listing.

    Args:
        snapshot: the version.
        listed: the listed files.
        by_location: whether a file may be listed under another id than that in the mirror's log.
    """
    by_key = {file.key: file for file in listed}
    known = _renamed(snapshot, by_key.values()) if by_location else {}
    known |= {file_id_of(add): add for add in snapshot.files}
    gone = {key_of(add): add for add in snapshot.files}
    files: list[LocalFile] = []
    new: list[LocalFile] = []
    renamed: list[LocalFile] = []
    for key, listed_file in by_key.items():
        file = listed_file
        add = known.get(file.action.id)
        if add is None or not _same_values(add, file):
            new.append(file)
        else:
            file = replace(file, path=unquote(add.path))
            # The name of a vector's file contains both ids: under another id the vector is another one in the log.
            if key_of(add)[1] != key[1] or (key_of(add) != key and file.vector_uuid is not None):
                new.append(file)
            else:
                del gone[key_of(add)]
                if key_of(add) != key:
                    renamed.append(file)
        files.append(file)
    return Comparison(files=files, new=new, renamed=renamed, gone=list(gone.values()))


def _renamed(snapshot: Snapshot, listed: Iterable[LocalFile]) -> dict[str, AddFile]:
    """Return the mirror's files that are listed under another id, by that id."""
    actions = [file.action for file in listed]
    ids = {action.id for action in actions}
    # If URLs differ in their query strings alone, all files have one location.
    now = _unique((location_of(action), action) for action in actions)
    before = _unique((tags_of(add).get(LOCATION), add) for add in snapshot.files)
    return {
        now[location].id: add
        for location, add in before.items()
        if location in now and file_id_of(add) not in ids and _may_be(add, now[location], single=len(now) == 1)
    }


def _unique(items: Iterable[tuple[str | None, T]]) -> dict[str, T]:
    """Return the items by their keys, without items whose key is unknown or not unique."""
    pairs = [(key, item) for key, item in items if key is not None]
    counts = Counter(key for key, _ in pairs)
    return {key: item for key, item in pairs if counts[key] == 1}


def _may_be(add: AddFile, action: FileAction, *, single: bool) -> bool:
    """Return whether two actions with one location may be the same file.

    A single URL does not distinguish files; equal statistics with bounds are required then.
    """
    if not 0 < action.size == add.size:
        return False
    before, now = _stats(add.stats), _stats(action.stats)
    if before is None or now is None:
        return not single
    return before == now and (not single or "minValues" in now)


def _stats(text: str | None) -> dict[str, Any] | None:
    """Return the statistics of a file's data, without `tightBounds`, which depends on the deletion vector."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return {k: v for k, v in found.items() if k != "tightBounds"} if isinstance(found, dict) else None


def _same_values(add: AddFile, file: LocalFile) -> bool:
    values = {name: value or None for name, value in add.partition_values.items()}
    return values == {name: value or None for name, value in file.values.items()}
