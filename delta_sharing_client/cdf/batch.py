"""`ChangeBatch`: the changes of a few versions, to be loaded as often as need be and committed once."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from delta_sharing_client.cdf.checkpoint import BatchRange
from delta_sharing_client.errors import BadRequestError, ChangesGoneError, FileGoneError, ResponseFormatError
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.scan import Scan

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.cdf.options import ChangeOptions
    from delta_sharing_client.cdf.planner import ChangesPlan
    from delta_sharing_client.model.names import Table
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.scan.planner import ScanPlan
    from delta_sharing_client.storage.presigned import StorageReader


class ChangeBatch(Scan):
    """The changes of a range of versions, or the whole table as a poller's first batch.

    Made by a `ChangePoller`. Its files are known, and fetched anew each time that it is loaded: `to_pandas`,
    `to_arrow`, `to_polars`, `to_duckdb`, or `to_record_batch_reader` for bounded memory. The rows are those of
    `SharedTable.changes`. A batch may have none: versions that changed no row are passed on too.

    Attributes:
        first_version, last_version: its versions, both included.
        is_snapshot: whether it is the table as of `last_version`, each row as an insert.
        range: the versions, as the checkpoint has them.
        poller_id: names the poller that it comes from, the same after a restart from its checkpoint.
    """

    def __init__(
        self,
        plan: ChangesPlan,
        batch_range: BatchRange,
        connections: tuple[RestClient, StorageReader],
        commit: Callable[[ChangeBatch], None],
        *,
        poller_id: str,
        advice: str,
    ) -> None:
        self.first_version = batch_range.first
        self.last_version = batch_range.last
        self.is_snapshot = batch_range.kind == "snapshot"
        self.poller_id = poller_id
        self.range = batch_range
        self._plan = plan
        self._opened = connections
        self._commit = commit
        self._advice = advice

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; asks nobody."""
        from delta_sharing_client.parquet.arrow_types import arrow_schema

        return arrow_schema(self._plan.spec.output, self._plan.spec.variant)

    def plan(self) -> ChangesPlan:
        """Return which files are to be read."""
        return self._plan

    def commit(self) -> None:
        """Note, durably, that the rows of this batch and of those before it were taken.

        A batch that was not committed comes again when the poller is started anew: the same versions, the same
        rows in the same order. Without a checkpoint nothing outlasts the process.

        Raises:
            CheckpointError: the checkpoint cannot be written, or the poller was closed.
        """
        self._commit(self)

    def _connections(self) -> tuple[RestClient, StorageReader]:
        return self._opened

    def _batches(
        self, plan: ScanPlan, progress: Any, memory_budget: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from super()._batches(plan, progress, memory_budget)
        except (FileGoneError, BadRequestError) as error:  # the latter when URLs are renewed
            raise ChangesGoneError(
                f"table {plan.table.full_name}: files of the changes of {self._versions()} are gone ({error}). "
                f"{self._advice}",
                version=self.first_version,
            ) from None

    def _versions(self) -> str:
        if self.is_snapshot:
            return f"the snapshot of version {self.last_version}"
        if self.first_version == self.last_version:
            return f"version {self.first_version}"
        return f"versions {self.first_version} to {self.last_version}"

    @representation
    def __repr__(self) -> str:
        count = len(self._plan.tasks)
        files = "1 file" if count == 1 else f"{count} files"
        return f"ChangeBatch({self._plan.table.full_name!r}, {self._versions()}, {files})"

    @representation
    def _repr_html_(self) -> str:
        return (
            f"<code>ChangeBatch</code> <b>{html.escape(self._plan.table.full_name)}</b> "
            f"{self._versions()}, {len(self._plan.tasks)} files"
        )


def plan_batch(rest: RestClient, table: Table, query: ChangeOptions, batch_range: BatchRange) -> ChangesPlan:
    """Plan a batch; one that comes again in the response format that its files were listed in before.

    In the same format they come in the same order. Where it cannot be had any more, the rows are still the same.

    Args:
        rest: the server.
        table: the table.
        query: which columns to read, and in which form; its range counts for nothing.
        batch_range: the batch.

    Raises:
        As `plan_changes`.
    """
    from delta_sharing_client.cdf.planner import plan_changes, plan_snapshot_as_inserts

    def plan(query: ChangeOptions) -> ChangesPlan:
        if batch_range.kind == "snapshot":
            return plan_snapshot_as_inserts(rest, table, batch_range.last, query)
        return plan_changes(
            rest, table, query.replace(starting_version=batch_range.first, ending_version=batch_range.last)
        )

    if batch_range.response_format is not None:
        with contextlib.suppress(BadRequestError, ResponseFormatError):
            return plan(query.replace(response_format=batch_range.response_format))
    return plan(query)
