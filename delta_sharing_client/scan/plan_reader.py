"""Reading the files of a plan, and estimating what that fetches."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.errors import DataError, StorageError
from delta_sharing_client.parquet.fetch_strategy import FetchEstimate
from delta_sharing_client.scan.pipeline import Load, Progress, estimate_fetch, read_batches
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.url_renewal import UrlRenewer
from delta_sharing_client.storage.byte_source import StorageReader, UrlRenewal

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient


def read_plan(
    rest: RestClient | None,
    storage: StorageReader,
    plan: ScanPlan,
    *,
    memory_budget: int | None = None,
    progress: Progress | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Read the files of a plan: its columns, filtered, in the server's order, at most `plan.limit` rows.

    Args:
        rest: the server, which renews expired URLs; None if there is none.
        storage: fetches the files.
        plan: what to read.
        memory_budget: the memory in bytes that may be in use, if less than in the options.
        progress: called with the size of each file after it.
    """
    try:
        yield from read_batches(_load(rest, storage, plan, memory_budget), progress)
    except (StorageError, DataError) as error:
        error.table = error.table or plan.table.full_name
        if isinstance(error, DataError):
            error.remedy = plan.remedy
        raise


def estimate_plan(rest: RestClient, storage: StorageReader, plan: ScanPlan) -> FetchEstimate:
    """Return what reading a plan would fetch; fetches the footers of its large files."""
    return estimate_fetch(_load(rest, storage, plan, None))


def file_access(
    rest: RestClient | None, storage: StorageReader, plan: ScanPlan
) -> tuple[StorageReader, UrlRenewal | None]:
    """Return the reader of a plan's files, and what renews their URLs."""
    if plan.source is not None or rest is None:
        return plan.source or (storage, None)
    expirations = (task.expiration for task in plan.tasks)
    return storage, UrlRenewer(rest, plan.table, plan, expirations)


def _load(rest: RestClient | None, storage: StorageReader, plan: ScanPlan, memory_budget: int | None) -> Load:
    reader, renewal = file_access(rest, storage, plan)
    return Load(
        tasks=plan.tasks,
        spec=plan.spec,
        storage=reader,
        renewal=renewal,
        limit=plan.limit,
        table_columns=plan.metadata.schema,
        memory_budget=memory_budget,
    )
