"""`TableRows`: the methods of shared tables and snapshots that load rows in one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from delta_sharing_client.expressions.binding import Filters
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.wire.requests import RequestedFormat, Timestamp

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from delta_sharing_client.frames.dtype_backend import DtypeBackend
    from delta_sharing_client.scan.options import OnFuture
    from delta_sharing_client.scan.scan import Scan


class Selection(TypedDict, total=False):
    """Arguments of `SharedTable.scan`, which the methods that load rows take, too; `Snapshot.scan` takes some."""

    columns: Iterable[str] | None
    filters: Filters | None
    limit: int | None
    version: int | None
    timestamp: Timestamp | None
    response_format: RequestedFormat
    json_predicate_hints: str | None
    variant: VariantForm
    on_future: OnFuture


@public_class
class TableRows(ABC):
    """Methods that take the arguments of `scan`, and load the rows of that scan."""

    __slots__ = ()

    @abstractmethod
    def scan(self, *args: Any, **kwargs: Any) -> Scan:
        """Return a scan of the table."""

    def head(self, n: int = 5, **selection: Unpack[Selection]) -> pd.DataFrame:
        """Load the first `n` rows as a pandas frame; fetches the files that hold them.

        Raises:
            TypeError: `limit` is given, which is `n`, or `n` is None.
        """
        if n is None or "limit" in selection:
            raise TypeError("head takes the number of rows as n")
        return self.scan(**{**selection, "limit": n}).to_pandas()

    def count(self, **selection: Unpack[Selection]) -> int:
        """Return the number of rows; see `TableScan.count`."""
        return self.scan(**selection).count()

    def to_pandas(
        self,
        *,
        dtype_backend: DtypeBackend | None = None,
        convert_in_batches: bool = False,
        progress: bool | None = None,
        **selection: Unpack[Selection],
    ) -> pd.DataFrame:
        """Load the rows as a pandas frame; see `TableScan.to_pandas`."""
        return self.scan(**selection).to_pandas(
            dtype_backend=dtype_backend, convert_in_batches=convert_in_batches, progress=progress
        )

    def to_arrow(self, *, progress: bool | None = None, **selection: Unpack[Selection]) -> pa.Table:
        """Load the rows as an Arrow table; see `TableScan.to_arrow`."""
        return self.scan(**selection).to_arrow(progress=progress)

    def to_record_batches(self, **selection: Unpack[Selection]) -> Iterator[pa.RecordBatch]:
        """Return the rows as record batches, one by one; see `TableScan.to_record_batch_reader`."""
        return self.scan(**selection).to_record_batches()

    def to_polars(self, **selection: Unpack[Selection]) -> pl.DataFrame:
        """Load the rows as a polars frame; see `TableScan.to_polars`."""
        return self.scan(**selection).to_polars()

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, **selection: Unpack[Selection]
    ) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation over the rows; see `TableScan.to_duckdb`."""
        return self.scan(**selection).to_duckdb(connection)
