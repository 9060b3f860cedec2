"""Consistency checks of Parquet footers: row counts, column chunks and numbers of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow.parquet as pq

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.layout import LocatedColumn
from delta_sharing_client.parquet.tasks import FileScanTask


def row_counts(metadata: pq.FileMetaData, task: FileScanTask) -> Iterator[int]:
    """Yield the number of rows of each row group, by the footer."""
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if rows < 0:
            raise DataError(f"the footer says that row group {number} has {rows} rows", file_id=task.file_id)
        yield rows


def check_chunks(file: pq.ParquetFile, columns: Sequence[LocatedColumn], task: FileScanTask) -> None:
    """Raise if the footer's descriptions of the columns' chunks are malformed or contradict each other."""
    metadata = file.metadata
    leaves = {leaf for column in columns for leaf in column.leaves}
    flat = flat_leaf(metadata, range(metadata.num_columns))
    touched = sorted(leaves if flat is None else leaves | {flat})
    if not touched:
        return
    types = [metadata.schema.column(leaf).physical_type for leaf in touched]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        check_with_reader(file, number, touched)
        if [group.column(leaf).physical_type for leaf in touched] != types:
            raise DataError(f"the footer contradicts itself in row group {number}", file_id=task.file_id)
        if flat is not None:
            check_values(metadata, number, flat, task)


def check_with_reader(file: pq.ParquetFile, group: int, leaves: Sequence[int]) -> None:
    """Let the Parquet reader check the column chunks of a row group, without reading data.

    pyarrow aborts the process if Python code accesses a malformed chunk first.

    Raises:
        pyarrow.ArrowException: a chunk is malformed.
    """
    for _ in file.reader.iter_batches(0, row_groups=[group], column_indices=leaves, use_threads=False):
        pass


def flat_leaf(metadata: pq.FileMetaData, leaves: Iterable[int]) -> int | None:
    """Return the first Parquet column with one value for each row; None if there is none."""
    return next((leaf for leaf in sorted(leaves) if not metadata.schema.column(leaf).max_repetition_level), None)


def check_values(metadata: pq.FileMetaData, number: int, flat: int, task: FileScanTask) -> None:
    """Compare the number of rows of a row group with the values of a column, which the decoder does not do."""
    group = metadata.row_group(number)
    values = group.column(flat).num_values
    if values != group.num_rows:
        raise DataError(
            f"the footer says that row group {number} has {group.num_rows} rows "
            f"and a column of it {values} values",
            file_id=task.file_id,
        )
