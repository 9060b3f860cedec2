"""Record batches to polars frames, through the Arrow C stream, batch by batch and without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.errors import DeltaSharingError, MissingDependencyError
from delta_sharing_client.frames.arrow import to_reader
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import VariantForm

if TYPE_CHECKING:
    import polars as pl


def to_polars(
    batches: Iterator[pa.RecordBatch], schema: StructType, variant: VariantForm = "struct"
) -> pl.DataFrame:
    """Return batches of `schema` as a polars frame.

    Raises:
        MissingDependencyError: polars is not installed.
        DeltaSharingError: the rows cannot be read.
    """
    try:
        import polars as pl
    except ImportError:
        raise MissingDependencyError(package="polars", extra="polars", purpose="Loading into polars") from None
    failed: list[DeltaSharingError] = []

    def recorded() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except DeltaSharingError as error:
            failed.append(error)
            raise

    try:
        return pl.DataFrame(to_reader(recorded(), schema, variant))
    except Exception:
        # polars raises its own error with the text of the stream's error.
        if failed:
            raise failed[0] from None
        raise
