"""Comparison of a mirror's files with those that the server lists, by id or by unchanging properties.

A file may have another id in another response format. Its unsigned URL, size, partition values and statistics stay
the same. In doubt the file is treated as another one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from delta_sharing_client.delta.log import Snapshot
from delta_sharing_client.delta.mirror.state import data_of, file_id_of, key_of, tags_of
from delta_sharing_client.delta.table.file_download import Fetched
from delta_sharing_client.delta.table.local_actions import LOCATION, LocalFile, location_of
from delta_sharing_client.model.actions import AddFile, FileAction


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between a mirror's version and a server's listing.

    Attributes:
        files: the listed files; those that the mirror has have its paths.
        new: the files that the mirror lacks, and those with another deletion vector.
        renamed: the files that the mirror has under another id.
        gone: the mirror's files that are not listed any more.
        fetched: size and checksum of the mirror's files, by path.
    """

    files: list[LocalFile]
    new: list[LocalFile]
    renamed: list[LocalFile]
    gone: list[AddFile]
    fetched: dict[str, Fetched]


def compare(
    snapshot: Snapshot, directory: Path, listed: Iterable[LocalFile], locations: Mapping[str, str] | None
) -> Comparison:
    """Compare a mirror's version with a server's listing.

    Args:
        snapshot: the version.
        directory: the mirror's directory.
        listed: the listed files.
        locations: the locations of the mirror's files by id, for files whose location is not in the log; None if
            the server lists files by the same kind of ids, so that a file with another id is another file.
    """
    by_key = {file.key: file for file in listed}
    named = {file.action.id for file in by_key.values()}
    ids = {file_id_of(add): add for add in snapshot.files}
    places: dict[str, AddFile] = {}
    if locations is not None:
        # If URLs differ in their query strings alone, all files have one location.
        once = _single((location_of(file.action), file.action) for file in by_key.values())
        known = _single(
            (tags_of(add).get(LOCATION) or locations.get(file_id_of(add)), add) for add in snapshot.files
        )
        places = {
            once[place].id: add
            for place, add in known.items()
            if place in once and file_id_of(add) not in named and _may_be(add, once[place], sure=len(once) == 1)
        }
    data = {key_of(add): data_of(add, directory) for add in snapshot.files}
    gone = {key_of(add): add for add in snapshot.files}
    files: list[LocalFile] = []
    new: list[LocalFile] = []
    renamed: list[LocalFile] = []
    for key, file in by_key.items():
        add = ids.get(file.action.id) or places.get(file.action.id)
        if add is None or not _same_values(add, file):
            files.append(file)
            new.append(file)
            continue
        there = replace(file, path=data[key_of(add)][0].path)
        files.append(there)
        # The local name of a vector's file contains both ids, so that another id makes another vector in the log.
        if key_of(add)[1] != key[1] or (key_of(add) != key and there.vector_path is not None):
            new.append(there)
            continue
        del gone[key_of(add)]
        if key_of(add) != key:
            renamed.append(there)
    return Comparison(
        files=files,
        new=new,
        renamed=renamed,
        gone=list(gone.values()),
        fetched={item.path: item.known for items in data.values() for item in items if item.known is not None},
    )


def has_any_of(snapshot: Snapshot, files: Iterable[FileAction]) -> bool:
    """Return whether a mirror has the id of any of the files."""
    known = {file_id_of(add) for add in snapshot.files}
    return any(file.id in known for file in files)


T = TypeVar("T")


def _single(items: Iterable[tuple[str | None, T]]) -> dict[str, T]:
    """Return the items by their keys, without items whose key is unknown or not unique."""
    pairs = [(key, item) for key, item in items if key is not None]
    counts = Counter(key for key, _ in pairs)
    return {key: item for key, item in pairs if counts[key] == 1}


def _may_be(add: AddFile, action: FileAction, *, sure: bool) -> bool:
    """Return whether two actions may be one file under two ids.

    Args:
        add: the file of the mirror.
        action: the listed file.
        sure: require equal statistics with bounds, because a single URL does not distinguish files.
    """
    before, now = _stats(add.stats), _stats(action.stats)
    if before is None or now is None:
        return not sure and 0 < action.size == add.size
    return 0 < action.size == add.size and before == now and (not sure or "minValues" in now)


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
