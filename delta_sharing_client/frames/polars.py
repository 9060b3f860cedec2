"""Record batches to polars frames, through the Arrow C stream, batch by batch and without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.frames.stream_errors import missing, through_stream
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import VariantForm

if TYPE_CHECKING:
    import polars as pl


def to_polars(
    batches: Iterator[pa.RecordBatch], schema: StructType, variant: VariantForm = "struct"
) -> pl.DataFrame:
    """Return the rows as a polars frame.

    Args:
        batches: batches of `schema`.
        schema: the columns of the result.
        variant: the form that variants were read in.

    Raises:
        MissingDependencyError: polars is not installed.
        DeltaSharingError: the rows cannot be read.
    """
    try:
        import polars as pl
    except ImportError:
        raise missing("polars") from None
    return through_stream(batches, schema, pl.DataFrame, variant)
