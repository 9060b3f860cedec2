"""Comparison of a mirror's files with those that the server lists, by id or by unchanging properties.

A file may have another id in another response format. Its unsigned URL, size, partition values and statistics stay
the same. If the match is uncertain, the file is treated as new.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from delta_sharing_client.delta.mirror.known_files import KnownFiles
from delta_sharing_client.delta.mirror.state import file_id_of, key_of, stored_files, tags_of
from delta_sharing_client.delta.table.file_download import StoredFile
from delta_sharing_client.delta.table.local_actions import (
    LOCATION,
    LocalFile,
    LocalLayout,
    location_of,
    vector_identity,
)
from delta_sharing_client.delta.table.local_names import data_file
from delta_sharing_client.log import uri_of
from delta_sharing_client.model.actions import AddFile, FileAction
from delta_sharing_client.wire.file_block import FileBlock

T = TypeVar("T")

#: The length of a data file's name without its folder.
_NAME_LENGTH: Final = len(data_file(""))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between a mirror's version and a server's listing.

    Attributes:
        files: the listed files that were compared one by one; those that the mirror has have its paths.
        new: the files that the mirror lacks, and those with another deletion vector.
        renamed: the files that the mirror has under another id.
        gone: the mirror's files that are no longer listed.
        stored: the local files of the mirror's files that were compared one by one, by their paths.
    """

    files: list[LocalFile]
    new: list[LocalFile]
    renamed: list[LocalFile]
    gone: list[AddFile]
    stored: dict[str, StoredFile]

    @property
    def difference(self) -> frozenset[tuple[str, str, str]]:
        """The keys of new and gone files, each with the kind of its difference."""
        new = {("new", *file.key) for file in self.new}
        return frozenset(new | {("gone", *key_of(add)) for add in self.gone})


def compare(
    known: KnownFiles,
    listed: Sequence[FileBlock],
    layout: LocalLayout,
    *,
    by_location: bool,
    rows: Sequence[int] | None = None,
) -> Comparison:
    """Compare a mirror's files with a server's listing.

    Args:
        known: the mirror's files.
        listed: the listed files.
        layout: the layout of the mirror.
        by_location: whether a file may be listed under another id than that in the mirror's log.
        rows: the rows of the known files that are compared with the listed ones, one by one. By default all files
            are compared: by columns first, and those that differ one by one.
    """
    if rows is None:
        positions, rows = _different(known, listed, layout)
    else:
        positions = list(range(sum(map(len, listed))))
    actions = list(_at(listed, positions))
    before = known.actions(rows)
    by_id = {file_id_of(add): add for add in before}
    if by_location and before:
        by_id = _renamed(before, actions) | by_id
    gone = {key_of(add): add for add in before}
    files: list[LocalFile] = []
    new: list[LocalFile] = []
    renamed: list[LocalFile] = []
    for file in map(layout.file, actions):
        add = by_id.get(file.action.id)
        if add is None or not _same_values(add, file):
            files.append(file)
            new.append(file)
            continue
        files.append(file := replace(file, path=unquote(add.path)))
        # The name of a vector's file contains both ids: under another id the vector is another one in the log.
        if key_of(add)[1] != file.key[1] or (key_of(add) != file.key and file.vector_uuid is not None):
            new.append(file)
        else:
            del gone[key_of(add)]
            if key_of(add) != file.key:
                renamed.append(file)
    stored = {stored.path: stored for add in before for stored in stored_files(add)}
    return Comparison(files=files, new=new, renamed=renamed, gone=list(gone.values()), stored=stored)


def compare_replaced(known: KnownFiles, listed: Sequence[FileBlock], layout: LocalLayout) -> Comparison:
    """Compare a mirror's files with the listing of another table: it has none of them, whatever the ids."""
    files = [layout.file(action) for block in listed for action in block]
    return Comparison(files=files, new=files, renamed=[], gone=known.actions(known.all_rows()), stored={})


def _different(known: KnownFiles, listed: Sequence[FileBlock], layout: LocalLayout) -> tuple[list[int], list[int]]:
    """Return the positions of listed files, and those of known files, that may have no counterpart."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array(chain.from_iterable(block.ids for block in listed), pa.string())
    numbers = pc.index_in(ids, value_set=known.ids.combine_chunks())
    folders = pc.binary_slice(known.paths.cast(pa.binary()), 0, -_NAME_LENGTH)
    same = pc.equal(folders.take(numbers), pa.array(_folders(listed, layout), pa.binary()))
    if known.vectors.null_count < len(known.vectors) or any(any(block.vectors) for block in listed):
        vectors = [vector_identity(action) for block in listed for action in block]
        known_vectors = pc.fill_null(known.vectors.take(numbers), "")
        same = pc.and_(same, pc.equal(known_vectors, pa.array(vectors, pa.string())))
    rows, missing = pc.fill_null(numbers, 0).to_numpy(), known.is_file.copy()
    # An unknown file differs, and so does one that the version does not have any more.
    same = np.array(pc.fill_null(same, False)) & known.is_file[rows] if len(missing) else np.zeros(len(rows), bool)
    missing[rows[same]] = False
    return np.flatnonzero(~same).tolist(), np.flatnonzero(missing).tolist()


def _folders(listed: Sequence[FileBlock], layout: LocalLayout) -> Iterator[bytes]:
    """Return the folder of each listed file as in the log; it contains the partition values."""
    encoded: dict[int, bytes] = {}
    for block in listed:
        for values in {id(values): values for values in block.partition_values}.values():
            encoded[id(values)] = uri_of(layout.folder(values)).encode()
    return map(encoded.__getitem__, (id(values) for block in listed for values in block.partition_values))


def _at(listed: Sequence[FileBlock], positions: Sequence[int]) -> Iterator[FileAction]:
    """Yield the actions of the files at ascending positions in all blocks together."""
    first, wanted = 0, set(positions)
    for block in listed:
        inside = [number - first for number in range(first, first + len(block)) if number in wanted]
        if inside:
            yield from block.take(inside)
        first += len(block)


def _renamed(before: Sequence[AddFile], listed: Sequence[FileAction]) -> dict[str, AddFile]:
    """Return the mirror's files that are listed under another id, by that id."""
    ids = {action.id for action in listed}
    # If URLs differ in their query strings alone, all files have one location.
    now = _unique((location_of(action), action) for action in listed)
    known = _unique((tags_of(add).get(LOCATION), add) for add in before)
    return {
        now[location].id: add
        for location, add in known.items()
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
