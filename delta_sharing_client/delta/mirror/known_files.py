"""Which files of a mirror a server lists now: known again by their ids, or else by what does not change of a file.

A server may give a file another id in another response format. What stays is the unsigned part of its URL, its
size, its partition values and its statistics. Where those leave a doubt, the file is another one.
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
    """What separates a mirror's version from what a server lists.

    Attributes:
        files: the files that are listed; those that the mirror has have their places in it.
        new: those that it lacks, and those whose deletion vector is another one.
        renamed: those that it has under another id.
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
    """Compare a mirror's version with what a server lists.

    Args:
        snapshot: the version.
        directory: the mirror's directory.
        listed: the files that the server lists.
        locations: what the mirror's files are by their URLs, by id, where its log does not say so; None where the
            server lists the files by the ids that the mirror knows, so that a file with another id is another one.
    """
    by_key = {file.key: file for file in listed}
    named = {file.action.id for file in by_key.values()}
    ids = {file_id_of(add): add for add in snapshot.files}
    places: dict[str, AddFile] = {}
    if locations is not None:
        # Of a server that tells its files apart by the query strings of their URLs, all of them have one place.
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
        # The local name of a vector's file is made of both ids: under other ids it is another vector to the log.
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
    """Tell whether a mirror knows the id of any of the files that a server lists."""
    known = {file_id_of(add) for add in snapshot.files}
    return any(file.id in known for file in files)


T = TypeVar("T")


def _single(items: Iterable[tuple[str | None, T]]) -> dict[str, T]:
    """Return the items by their keys; without those whose key is not told, or not theirs alone."""
    pairs = [(key, item) for key, item in items if key is not None]
    counts = Counter(key for key, _ in pairs)
    return {key: item for key, item in pairs if counts[key] == 1}


def _may_be(add: AddFile, action: FileAction, *, sure: bool) -> bool:
    """Tell whether nothing that is known of a file speaks against its being another one under another id.

    Args:
        add: the file.
        action: the other one.
        sure: their statistics have to speak for it: a URL that is the only one tells no files apart.
    """
    before, now = _stats(add.stats), _stats(action.stats)
    if before is None or now is None:
        return not sure and 0 < action.size == add.size
    return 0 < action.size == add.size and before == now and (not sure or "minValues" in now)


def _stats(text: str | None) -> dict[str, Any] | None:
    """What statistics say of a file's data; that a deletion vector makes its bounds loose is no part of that."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return {k: v for k, v in found.items() if k != "tightBounds"} if isinstance(found, dict) else None


def _same_values(add: AddFile, file: LocalFile) -> bool:
    values = {name: value or None for name, value in add.partition_values.items()}
    return values == {name: value or None for name, value in file.values.items()}
