"""Scans as sources of datasets and lazy frames, which push their projections, filters and limits down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from delta_sharing_client.errors import SchemaChangedError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.predicates import And, Constant, Predicate, joined
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.scan.file_tasks import errors_naming, project
from delta_sharing_client.table.table_scan import TableScan


@dataclass(frozen=True)
class ScanSource:
    """A scan whose columns, filter and limit can be narrowed; see `frames.dataset.PushdownSource`.

    Attributes:
        scan: the scan.
        columns: the columns that it returns.
        filters: its row filter, bound to the table's schema.
    """

    scan: TableScan
    columns: StructType = field(repr=False)
    filters: Predicate | None

    @classmethod
    def of(cls, scan: TableScan) -> ScanSource:
        """Return the source of a scan; requests the table's metadata.

        Raises:
            ColumnError, FilterError: the scan does not fit the table.
        """
        schema = scan.table_schema()
        with errors_naming(f"table {scan.name.full_name}"):
            filters = bind_filters(scan.options.filters, schema) if scan.options.filters else None
            return cls(scan, project(schema, scan.options.columns), filters)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns."""
        return arrow_schema(self.columns, self.scan.options.variant)

    def read(self, columns: Sequence[str], predicate: Predicate | None, limit: int | None) -> pa.RecordBatchReader:
        """Return a reader of columns and of the rows that may match; lists the files at once.

        A scan with a limit is not filtered further, because its limit comes before the filter.

        Raises:
            SchemaChangedError: the table no longer has the columns of the source.
        """
        own = self.scan.options.limit
        parts = [self.filters] if own is not None else [self.filters, predicate]
        filters = joined(And, [part for part in parts if part is not None])
        narrowed = self.scan.replace(
            columns=columns,
            filters=None if filters == Constant(True) else filters,
            limit=min((each for each in (own, limit) if each is not None), default=None),
        )
        reader = narrowed.to_record_batch_reader()
        expected = pa.schema([self.schema.field(name) for name in columns])
        if reader.schema != expected:
            reader.close()
            raise SchemaChangedError(
                f"table {self.scan.name.full_name}: its columns have changed since the dataset was made; make it "
                "again",
                columns=columns,
            )
        return reader

    def count(self) -> int:
        """Return the number of rows."""
        return self.scan.count()
