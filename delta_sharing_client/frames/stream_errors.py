"""Errors that have to cross a foreign library and come out as they went in."""

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
    """Let `consume` read the batches as an Arrow stream; what goes wrong with them is raised as it is.

    A library that reads a C stream reports an error of the stream as one of its own, with the text alone.

    Args:
        batches: batches of `schema`.
        schema: their columns.
        consume: reads the stream to its end.
        variant: what variants were read as.
    """
    failed: list[DeltaSharingError] = []

    def watched() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except DeltaSharingError as error:
            failed.append(error)
            raise

    try:
        return consume(to_reader(watched(), schema, variant))
    except Exception:
        if failed:
            raise failed[0] from None
        raise


def missing(package: str) -> MissingDependencyError:
    """The error for a frame library that is not installed."""
    return MissingDependencyError(package=package, extra=package, purpose=f"Loading into {package}")
