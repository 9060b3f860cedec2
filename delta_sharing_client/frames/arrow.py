"""Arrow tables and record batch readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.parquet.tasks import VariantForm

#: Rows that are converted together: smaller groups cost more calls, larger ones more memory.
GROUP_ROWS: Final = 65_536


def grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield groups of batches, each of `GROUP_ROWS` rows or more but for the last one."""
    group: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        del batch  # the consumer of the group releases it
        if rows >= GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def to_table(batches: Iterable[pa.RecordBatch], schema: StructType, variant: VariantForm = "struct") -> pa.Table:
    """Return a table whose chunks are the batches, without a copy; an empty one has the full schema."""
    collected = list(batches)
    if schema.fields or not collected:
        return pa.Table.from_batches(collected, arrow_schema(schema, variant))
    # `Table.from_batches` loses the number of rows if there are no columns.
    rows = sum(batch.num_rows for batch in collected)
    return pa.table({"rows": pa.nulls(rows)}).select([])


def to_reader(
    batches: Iterator[pa.RecordBatch], schema: StructType, variant: VariantForm = "struct"
) -> pa.RecordBatchReader:
    """Return a reader that pulls the batches as it is read."""
    return pa.RecordBatchReader.from_batches(arrow_schema(schema, variant), batches)
