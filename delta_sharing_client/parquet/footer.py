"""Consistency checks of Parquet footers: row counts, column chunks and numbers of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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


def check_chunks(
    metadata: pq.FileMetaData, reader: Any, columns: Sequence[LocatedColumn], task: FileScanTask
) -> None:
    """Raise if the footer's descriptions of the columns' chunks are malformed or contradict each other."""
    schema = metadata.schema
    leaves = {leaf for column in columns for leaf in column.leaves}
    # A column with one value for each row; the decoder does not compare the number of its values with the rows.
    flat = next((n for n in range(metadata.num_columns) if not schema.column(n).max_repetition_level), None)
    touched = sorted(leaves if flat is None else leaves | {flat})
    if not touched:
        return
    types = [schema.column(leaf).physical_type for leaf in touched]
    for number in range(metadata.num_row_groups):
        # The reader checks the chunks without reading data. If Python code accessed a malformed chunk first,
        # pyarrow would abort the process.
        for _ in reader.iter_batches(0, row_groups=[number], column_indices=touched, use_threads=False):
            pass
        group = metadata.row_group(number)
        if [group.column(leaf).physical_type for leaf in touched] != types:
            raise DataError(f"the footer contradicts itself in row group {number}", file_id=task.file_id)
        if flat is not None and (values := group.column(flat).num_values) != group.num_rows:
            raise DataError(
                f"the footer says that row group {number} has {group.num_rows} rows "
                f"and a column of it {values} values",
                file_id=task.file_id,
            )
