"""Typed errors of record batches that another library reads as an Arrow C stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

from delta_sharing_client.errors import DeltaSharingError, MissingDependencyError
from delta_sharing_client.frames.arrow import to_reader
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import VariantForm

T = TypeVar("T")


def through_stream(
    batches: Iterable[pa.RecordBatch],
    schema: StructType,
    consume: Callable[[pa.RecordBatchReader], T],
    variant: VariantForm = "struct",
) -> T:
    """Return what `consume` makes of the batches; a `DeltaSharingError` of the batches is raised unchanged.

    A library that reads a C stream raises its own error with the text of the stream's error.

    Args:
        batches: batches of `schema`.
        schema: their columns.
        consume: reads the stream to its end.
        variant: the form that variants were read in.
    """
    failed: list[DeltaSharingError] = []

    def recorded() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except DeltaSharingError as error:
            failed.append(error)
            raise

    try:
        return consume(to_reader(recorded(), schema, variant))
    except Exception:
        if failed:
            raise failed[0] from None
        raise


def missing(package: str) -> MissingDependencyError:
    """The error for a frame library that is not installed."""
    return MissingDependencyError(package=package, extra=package, purpose=f"Loading into {package}")
