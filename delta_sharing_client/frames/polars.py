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

    polars has another layout for text. It writes the text of a group while the next groups are fetched and decoded,
    and their memory is used again; from one stream of all batches it would do so after the last of them.

    Raises:
        MissingDependencyError: polars is not installed.
        DeltaSharingError: the rows cannot be read.
    """
    try:
        import polars as pl
    except ImportError:
        raise MissingDependencyError(package="polars", extra="polars", purpose="Loading into polars") from None
    arrow = arrow_schema(schema, variant)
    # A frame of its own for each column: columns that share a stream share its memory, all of it.
    columns = [pa.schema([field]) for field in arrow] or [arrow]
    frames: list[list[pl.DataFrame]] = [[] for _ in columns]
    for group in grouped(batches):
        for position, column in enumerate(columns):
            parts = [batch.select([position][: len(column)]) for batch in group]
            frames[position].append(pl.DataFrame(pa.RecordBatchReader.from_batches(column, parts)))
        group.clear()
    if not all(frames):
        return pl.DataFrame(pa.RecordBatchReader.from_batches(arrow, []))
    return pl.concat([pl.concat(parts, rechunk=False) for parts in frames], how="horizontal")


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
