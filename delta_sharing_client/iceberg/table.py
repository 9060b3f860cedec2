"""`IcebergTable` and `IcebergScan`: shared tables as the provider's Iceberg catalog offers them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from delta_sharing_client.errors import IcebergError
from delta_sharing_client.expressions.filters import Filters
from delta_sharing_client.model.numbers import as_time
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.options import OnFuture, ScanOptions
from delta_sharing_client.table.shared_table import SharedTable
from delta_sharing_client.table.table_scan import TableScan
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.wire.requests import RequestedFormat, Timestamp

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.iceberg.catalog import IcebergCatalog
    from delta_sharing_client.iceberg.planner import IcebergPlan
    from delta_sharing_client.scan.planner import ScanPlan

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class IcebergSnapshot(NamedTuple):
    """A snapshot of an Iceberg table: its id, which `version` of a scan takes, and its time in UTC."""

    version: int
    time: datetime


def _refused(subject: str) -> Any:
    """Return a method that raises `IcebergError`, because Iceberg has no counterpart."""

    def refuse(self: IcebergTable | IcebergScan, *_: Any, **__: Any) -> Any:
        name = (self.table if isinstance(self, IcebergScan) else self).name.full_name
        raise IcebergError(
            f"Iceberg table {name}: {subject} not available through the Iceberg catalog, which lists and loads "
            f"tables; use client.table({name!r}), without the Iceberg catalog"
        )

    refuse.__doc__ = f"Raise `IcebergError`: {subject} not available through the Iceberg catalog."
    return refuse


@public_class
@dataclass(frozen=True)
class IcebergTable(SharedTable):
    """A shared table in the provider's Iceberg catalog, made by `IcebergCatalog.table`.

    It is scanned and loaded like a `SharedTable`, with the same columns, filters, limits and types. A version is
    the id of an Iceberg snapshot. Changes, mirrors and Spark raise `IcebergError`.
    """

    _catalog: IcebergCatalog = field(repr=False, compare=False)

    @representation
    def __repr__(self) -> str:
        return f"IcebergTable({self.name.full_name!r})"

    def version(self, starting_timestamp: Timestamp | None = None, *, on_future: OnFuture = "raise") -> int:
        """Return the id of the current snapshot, or of the one that was current at a time.

        `on_future` is without effect: for a later time that is the latest one.

        Raises:
            IcebergError: the table has no such snapshot.
        """
        from delta_sharing_client.iceberg.planner import at_snapshot

        options = ScanOptions(timestamp=starting_timestamp, on_future=on_future)
        snapshot = at_snapshot(self.name, self._catalog.load(self.name), options)
        if snapshot is None:
            raise IcebergError(f"Iceberg table {self.name.full_name}: it has no snapshot, because it is empty")
        return int(snapshot.snapshot_id)

    def snapshots(self) -> list[IcebergSnapshot]:
        """Return the snapshots that the provider has kept, oldest first."""
        found = sorted(self._catalog.load(self.name).snapshots(), key=lambda each: each.timestamp_ms)
        times = [EPOCH + timedelta(milliseconds=as_time(each.timestamp_ms)) for each in found]
        return [IcebergSnapshot(each.snapshot_id, time) for each, time in zip(found, times, strict=True)]

    def schema(
        self, version: int | None = None, timestamp: Timestamp | None = None, *, on_future: OnFuture = "raise"
    ) -> StructType:
        """Return the table's schema, with the types that Delta has for those of Iceberg."""
        from delta_sharing_client.iceberg.planner import at_snapshot
        from delta_sharing_client.iceberg.schema import table_schema

        opened = self._catalog.load(self.name)
        at_snapshot(self.name, opened, ScanOptions(version=version, timestamp=timestamp, on_future=on_future))
        return table_schema(opened.schema(), opened.spec())

    def scan(
        self,
        columns: Iterable[str] | None = None,
        filters: Filters | None = None,
        limit: int | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        response_format: RequestedFormat = "auto",
        *,
        json_predicate_hints: str | None = None,
        variant: VariantForm = "struct",
        on_future: OnFuture = "raise",
    ) -> IcebergScan:
        """Return a scan of the table; sends no request. Arguments are as for `SharedTable.scan`, but for these.

        Args:
            columns: names of the columns.
            filters: row filter; pyiceberg skips files and row groups by it.
            limit: maximum number of rows.
            version: id of a snapshot, as `snapshots` lists them.
            timestamp: selects the snapshot that was current at that time; the latest one for a later time.
            response_format: only ``auto``.
            json_predicate_hints: refused: there is no server that evaluates them.
            variant: without effect; columns of variants cannot be read.
            on_future: without effect.

        Raises:
            IcebergError: `response_format` or `json_predicate_hints` is given.
            ValueError: an argument is out of range, or version and timestamp are both given.
        """
        if response_format != "auto" or json_predicate_hints is not None:
            raise IcebergError(
                f"Iceberg table {self.name.full_name}: response formats (use_delta_format) and jsonPredicateHints "
                "are of the Delta Sharing protocol; leave them out, or leave out the Iceberg catalog"
            )
        options = ScanOptions(
            columns=columns,
            filters=filters,
            limit=limit,
            version=version,
            timestamp=timestamp,
            variant=variant,
            on_future=on_future,
        )
        return IcebergScan(self, options)

    _info = _refused("Delta's metadata and protocol are")
    changes = _refused("changes are")
    poll_changes = _refused("changes are")
    mirror = _refused("mirrors are")


@public_class
@dataclass(frozen=True)
class IcebergScan(TableScan):
    """A scan of an Iceberg table; see `IcebergTable.scan` for the options.

    Each `to_...` method loads the table from the catalog, so it reads the current snapshot unless one is given.
    """

    table: IcebergTable

    def plan(self) -> IcebergPlan:
        """Load the table from the catalog, and select the files by its manifests; reads no data file."""
        from delta_sharing_client.iceberg.planner import plan_scan
        from delta_sharing_client.iceberg.reader import reading

        with reading(f"Iceberg table {self.name.full_name}", self.name.full_name):
            return plan_scan(self.name, self.table._catalog.load(self.name), self.options)

    def table_schema(self) -> StructType:
        """Return the table's schema in the scan's snapshot."""
        return self.table.schema(self.options.version, self.options.timestamp)

    def _batches(
        self, plan: ScanPlan, progress: Any, memory_budget: int | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        from delta_sharing_client.iceberg.reader import read_plan

        budget = self.table._rest.options.memory_budget
        return read_plan(cast("IcebergPlan", plan), min(memory_budget or budget, budget), progress)

    explain = _refused("explanations of scans are")
    materialize = _refused("materialized Delta tables are")
    mirrored = _refused("mirrors are")
    to_dask = _refused("Dask data frames are")
    to_ray = _refused("Ray datasets are")
    to_spark = _refused("Spark DataFrames are")
