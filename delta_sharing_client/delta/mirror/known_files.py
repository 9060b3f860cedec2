"""`KnownFiles`: the files of a mirror's version as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from delta_sharing_client.delta.mirror.state import file_id_of, tags_of
from delta_sharing_client.delta.table.local_actions import FILE_ID, VECTOR_ID
from delta_sharing_client.log.snapshot import LogState
from delta_sharing_client.model.actions import AddFile


class KnownFiles:
    """The files of a mirror's version: those added since its checkpoint, then the rows of the checkpoint.

    Columns are those of the checkpoint, without copies; `is_file` marks the rows that are files of the version.

    Args:
        state: the state of the version.

    Attributes:
        ids: the ids in the sharing protocol.
        paths: the paths in the log.
        vectors: the ids of the deletion vectors; null for a file without one.

    Raises:
        DeltaLogError: the checkpoint is damaged.
    """

    def __init__(self, state: LogState) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._added = list(state.added.values())
        self._state = state
        columns = [
            [file_id_of(add) for add in self._added],
            [add.path for add in self._added],
            [tags_of(add).get(VECTOR_ID) for add in self._added],
        ]
        found = [pa.chunked_array([column], pa.string()) for column in columns]
        if state.checkpoint is not None:
            paths, ids = state.checkpoint.column("path"), state.checkpoint.tag(FILE_ID)
            vectors = pa.chunked_array([pa.nulls(len(paths), pa.string())])
            if state.checkpoint.has_vectors:
                vectors = state.checkpoint.tag(VECTOR_ID)
            before = (ids if ids.null_count == paths.null_count else pc.coalesce(ids, paths), paths, vectors)
            found = [pa.chunked_array(new.chunks + old.chunks) for new, old in zip(found, before, strict=True)]
        self.ids, self.paths, self.vectors = found

    @cached_property
    def is_file(self) -> Any:
        """Whether a row is a file of the version, as a numpy array."""
        import numpy as np
        import pyarrow.compute as pc

        found = np.array(pc.is_valid(self.paths))
        found[[len(self._added) + row for row in self._state.hidden_rows]] = False
        return found

    def __len__(self) -> int:
        return int(self.is_file.sum())

    def all_rows(self) -> list[int]:
        """Return the rows of all files."""
        rows: list[int] = self.is_file.nonzero()[0].tolist()
        return rows

    def rows_of(self, ids: Iterable[str]) -> list[int]:
        """Return the rows of the files with these ids."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pc.indices_nonzero(pc.is_in(self.ids, pa.array(list(ids), pa.string()))).to_numpy()
        found: list[int] = rows[self.is_file[rows]].tolist()
        return found

    def actions(self, rows: Sequence[int]) -> list[AddFile]:
        """Return the actions of the files of some rows."""
        count = len(self._added)
        found = [self._added[row] for row in rows if row < count]
        before = [row - count for row in rows if row >= count]
        if before and self._state.checkpoint is not None:
            found += self._state.checkpoint.actions(before)
        return found
