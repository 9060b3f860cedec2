"""`CheckpointFiles`: the added files of a checkpoint as Arrow columns, of which actions are made when needed.

An action for each of 300,000 files takes seconds to make. A commit on top of a checkpoint needs few of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

from delta_sharing_client.log.actions import FileKey
from delta_sharing_client.log.checkpoint_reader import actions_of, reading
from delta_sharing_client.log.log_segment import Checkpoint
from delta_sharing_client.log.store_path import LogPath
from delta_sharing_client.model.actions import AddFile, DeletionVector

_BATCH_ROWS: Final = 16_384


def file_types() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Arrow types of the fields of added and of removed files in the checkpoints that are written."""
    import pyarrow as pa

    strings = pa.map_(pa.string(), pa.string())
    vector = {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
        "maxRowIndex": pa.int64(),
    }
    common = {
        "path": pa.string(),
        "partitionValues": strings,
        "size": pa.int64(),
        "dataChange": pa.bool_(),
        "deletionVector": pa.struct(vector.items()),
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
    }
    added = {"modificationTime": pa.int64(), "tags": strings, "clusteringProvider": pa.string()}
    removed = {"deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_()}
    return common | added | {"stats": pa.string()}, common | removed


class CheckpointFiles:
    """The added files of a checkpoint. A row is a row of the checkpoint; rows of other actions are null.

    The bytes of the checkpoint are kept, so its file may be removed. Columns are decoded when they are needed.

    Args:
        file: the checkpoint.
        data: its bytes.
    """

    def __init__(self, file: LogPath, data: bytes) -> None:
        self._file = file
        self._data = data
        self._columns: dict[str, Any] = {}

    @classmethod
    def open(cls, checkpoint: Checkpoint) -> CheckpointFiles | None:
        """Return the files of a checkpoint; None unless it has the form of those that this package writes.

        Raises:
            DeltaLogError: the checkpoint is missing or damaged.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        file = checkpoint.files[0]
        if len(checkpoint.files) > 1 or file.suffix != ".parquet":
            return None
        with reading(file):
            found = cls(file, file.read_bytes())
            schema = found._parquet().schema_arrow
            added = schema.field("add").type if "add" in schema.names else None
            if added != pa.struct(file_types()[0].items()):
                return None
            paths, structs = found.column("path"), found._structs("path")
            # `canonical_uri` changes absolute paths. An action without a path is an error.
            absolute = pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, ":/"))
            return None if pc.any(absolute).as_py() or paths.null_count != structs.null_count else found

    def column(self, name: str) -> Any:
        """Return a field of the files as an Arrow column."""
        import pyarrow.compute as pc

        if name not in self._columns:
            self._columns[name] = pc.struct_field(self._structs(name), name)
        return self._columns[name]

    def tag(self, name: str) -> Any:
        """Return a tag of the files as an Arrow column."""
        import pyarrow.compute as pc

        if name not in self._columns:
            self._columns[name] = pc.map_lookup(self.column("tags"), name, "first")
        return self._columns[name]

    def __len__(self) -> int:
        paths = self.column("path")
        return len(paths) - int(paths.null_count)

    def totals(self, without: Sequence[int]) -> tuple[int, int]:
        """Return the number of the files and the sum of their sizes, without some rows."""
        import pyarrow.compute as pc

        sizes = self.column("size")
        left_out = sizes.take(_integers(without))
        total, removed = (pc.sum(part).as_py() or 0 for part in (sizes, left_out))
        return len(self) - len(without), total - removed

    @cached_property
    def has_vectors(self) -> bool:
        """Whether a file may have a deletion vector; by the statistics of the checkpoint."""
        metadata = self._parquet().metadata
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                is_null = column.statistics is not None and column.statistics.null_count == group.num_rows
                if column.path_in_schema.startswith("add.deletionVector.") and not is_null:
                    return True
        return False

    def rows_of(self, keys: Iterable[FileKey]) -> list[int]:
        """Return the rows of the files that have these keys."""
        import pyarrow.compute as pc

        wanted = set(keys)
        if not wanted:
            return []
        paths = self.column("path")
        among = pc.is_in(paths, _strings({path for path, _ in wanted}))
        rows = pc.indices_nonzero(pc.and_(among, pc.is_valid(paths)))
        found = paths.take(rows).to_pylist()
        vectors: list[Any] = [None] * len(rows)
        if self.has_vectors:
            vectors = self.column("deletionVector").take(rows).to_pylist()
        return [
            row
            for row, path, vector in zip(rows.to_pylist(), found, vectors, strict=True)
            if (path, _unique_id(vector)) in wanted
        ]

    def actions(self, rows: Sequence[int]) -> list[AddFile]:
        """Return the actions of some rows, in ascending order of the rows."""
        import pyarrow as pa

        parquet, first = self._parquet(), 0
        found: list[AddFile] = []
        ascending, position = sorted(rows), 0
        with reading(self._file):
            for number in range(parquet.num_row_groups):
                stop = first + parquet.metadata.row_group(number).num_rows
                until = bisect_left(ascending, stop)
                if until > position:
                    wanted = pa.array([row - first for row in ascending[position:until]])
                    group = (
                        parquet.read_row_group(number, columns=["add"], use_threads=False)
                        .column("add")
                        .combine_chunks()
                    )
                    found += actions_of("add", group.take(wanted), self._file)
                first, position = stop, until
        return found

    @cached_property
    def all_actions(self) -> tuple[AddFile, ...]:
        """The actions of all files."""
        with reading(self._file):
            batches = self._parquet().iter_batches(_BATCH_ROWS, columns=["add"], use_threads=False)
            return tuple(action for batch in batches for action in actions_of("add", batch.column(0), self._file))

    def batches(self, without: Sequence[int]) -> Iterator[Any]:
        """Yield the files as Arrow arrays of structs, without some rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        first, removed = 0, pa.array(without, pa.int64())
        with reading(self._file):
            for batch in self._parquet().iter_batches(_BATCH_ROWS, columns=["add"], use_threads=False):
                rows = pa.array(range(first, first + len(batch)))
                added = batch.column(0)
                kept = pc.and_(pc.is_valid(added), pc.invert(pc.is_in(rows, removed)))
                yield added.filter(kept)
                first += len(batch)

    def _structs(self, name: str) -> Any:
        """Return the files with one field."""
        with reading(self._file):
            return self._parquet().read(columns=[f"add.{name}"], use_threads=False).column("add")

    def _parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.ParquetFile(pa.BufferReader(self._data), pre_buffer=False)


def _strings(texts: Iterable[str]) -> Any:
    """Return an Arrow array; `pyarrow.array` imports pandas, which takes longer than a commit."""
    import pyarrow as pa

    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = array("i", accumulate(map(len, encoded), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _integers(numbers: Sequence[int]) -> Any:
    """Return an Arrow array, as `_strings`."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(array("q", numbers))])


def _unique_id(vector: dict[str, Any] | None) -> str:
    present = {} if vector is None else {name: value for name, value in vector.items() if value is not None}
    return DeletionVector.from_json(present).unique_id if present else ""
