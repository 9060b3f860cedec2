"""Record batches as polars frames, without a copy; lazy frames that push their filters and projections down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.errors import MissingDependencyError
from delta_sharing_client.frames.arrow import grouped
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.parquet.tasks import VariantForm

if TYPE_CHECKING:
    import polars as pl

    from delta_sharing_client.frames.dataset import PushdownSource


def to_polars(
    batches: Iterator[pa.RecordBatch], schema: StructType, variant: VariantForm = "struct"
) -> pl.DataFrame:
    """Return batches of `schema` as a polars frame, which is made of a frame for each group of batches.

    polars needs views of texts. They are made while the next groups are fetched and decoded, without the
    interpreter's lock, and the memory of offsets and short texts is used again. polars would make them of one
    stream of all batches after the last one, and hold that memory.

    Raises:
        MissingDependencyError: polars is not installed.
        DeltaSharingError: the rows cannot be read.
    """
    try:
        import polars as pl
    except ImportError:
        raise MissingDependencyError(package="polars", extra="polars", purpose="Loading into polars") from None
    arrow = arrow_schema(schema, variant)
    viewed = pa.schema([field.with_type(_viewed(field.type)) for field in arrow])
    frames: list[pl.DataFrame] = []
    for group in grouped(batches):
        frames.append(pl.DataFrame(pa.RecordBatchReader.from_batches(viewed, _cast(group, viewed))))
    if not frames:
        return pl.DataFrame(pa.RecordBatchReader.from_batches(arrow, []))
    return pl.concat(frames, rechunk=False)


def _cast(group: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a group with the types of a schema, and empty the group."""
    while group:
        batch = group.pop(0)
        pairs = zip(batch.columns, schema.types, strict=True)
        columns = [column if column.type == kind else column.cast(kind) for column, kind in pairs]
        yield pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch


def _viewed(kind: pa.DataType) -> pa.DataType:
    """Return the type of views of a text or binary type, if Arrow can cast to it; otherwise the same type."""
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return kind
    try:
        return pa.nulls(0, kind).cast("string_view" if pa.types.is_string(kind) else "binary_view").type
    except (pa.ArrowException, ValueError):  # a release of pyarrow without views or this cast
        return kind


def to_lazy(source: PushdownSource) -> pl.LazyFrame:
    """Return a lazy frame that reads the columns and rows of a source that its query needs.

    Raises:
        MissingDependencyError: polars is not installed.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError:
        raise MissingDependencyError(package="polars", extra="polars", purpose="A lazy frame") from None
    from delta_sharing_client.frames.polars_predicates import pushed_predicate  # which needs polars

    empty = pl.DataFrame(source.schema.empty_table())

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        shown = empty.columns if columns is None else columns
        filtered = [] if predicate is None else predicate.meta.root_names()
        needed = [name for name in empty.columns if name in shown or name in filtered]
        # polars counts rows before it filters them.
        pushed = (
            None
            if predicate is None or rows is not None
            else pushed_predicate(predicate, source.columns, empty.schema)
        )
        with source.read(needed, pushed, rows) as reader:
            for batch in reader:
                frame = pl.DataFrame(batch)
                yield (frame if predicate is None else frame.filter(predicate)).select(shown)
        yield empty.select(shown)

    return register_io_source(read, schema=empty.schema)
