"""`TableRows`: the methods of shared tables, snapshots and mirrors that load rows in one call."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, TypedDict, Unpack

from delta_sharing_client.expressions.filters import Filters
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.wire.requests import RequestedFormat, Timestamp

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from delta_sharing_client.frames import DtypeBackend
    from delta_sharing_client.frames.files import FileFormat
    from delta_sharing_client.scan.options import OnFuture
    from delta_sharing_client.scan.scan import Scan


class Selection(TypedDict, total=False):
    """Arguments of `SharedTable.scan`, which the methods that load rows take, too; other tables take some."""

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

    def to_record_batch_reader(self, **selection: Unpack[Selection]) -> pa.RecordBatchReader:
        """Return a reader of the rows, in bounded memory; see `TableScan.to_record_batch_reader`."""
        return self.scan(**selection).to_record_batch_reader()

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

    def to_file(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        file_format: FileFormat | None = None,
        *,
        overwrite: bool = False,
        progress: bool | None = None,
        **selection: Unpack[Selection],
    ) -> int:
        """Write the rows to a file, and return their number; see `TableScan.to_file`."""
        return self.scan(**selection).to_file(target, file_format, overwrite=overwrite, progress=progress)

    def to_parquet(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        overwrite: bool = False,
        progress: bool | None = None,
        **selection: Unpack[Selection],
    ) -> int:
        """Write the rows to a Parquet file, and return their number; see `TableScan.to_parquet`."""
        return self.to_file(target, "parquet", overwrite=overwrite, progress=progress, **selection)

    def to_csv(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        overwrite: bool = False,
        progress: bool | None = None,
        **selection: Unpack[Selection],
    ) -> int:
        """Write the rows to a CSV file, and return their number; see `TableScan.to_csv`."""
        return self.to_file(target, "csv", overwrite=overwrite, progress=progress, **selection)
