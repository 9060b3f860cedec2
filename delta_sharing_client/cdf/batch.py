"""`ChangeBatch`: the changes of a range of versions, which can be loaded repeatedly and committed once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from delta_sharing_client.cdf.checkpoint import BatchRange
from delta_sharing_client.errors import BadRequestError, ChangesGoneError, FileGoneError
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.scan import Scan
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.views import html_view

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.cdf.planner import ChangesPlan
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.scan.planner import ScanPlan
    from delta_sharing_client.storage.byte_source import StorageReader


@public_class
class ChangeBatch(Scan):
    """The changes of a range of versions, or the whole table as a poller's first batch.

    A `ChangePoller` makes batches. Each load fetches the files again: `to_pandas`, `to_arrow`, `to_polars`,
    `to_duckdb`, or `to_record_batch_reader` for bounded memory. The rows are those of `SharedTable.changes`; a
    batch of versions that changed no row has none.

    Attributes:
        first_version, last_version: its versions, both included.
        is_snapshot: whether it is the table as of `last_version`, each row as an insert.
        range: the versions, as the checkpoint has them.
        poller_id: the id of the poller, which a restart from its checkpoint keeps.
        continues: whether an earlier batch was committed, which the batch's target must have; false if the poller
            goes on in another target (`rebind=True`).
    """

    def __init__(
        self,
        plan: ChangesPlan,
        batch_range: BatchRange,
        connections: tuple[RestClient, StorageReader],
        commit: Callable[[ChangeBatch], None],
        *,
        poller_id: str,
        continues: bool,
        advice: str,
    ) -> None:
        self.first_version = batch_range.first
        self.last_version = batch_range.last
        self.is_snapshot = batch_range.kind == "snapshot"
        self.poller_id = poller_id
        self.continues = continues
        self.range = batch_range
        self._plan = plan
        self._opened = connections
        self._commit = commit
        self._advice = advice

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; sends no request."""
        from delta_sharing_client.parquet.arrow_types import arrow_schema

        return arrow_schema(self._plan.spec.output, self._plan.spec.variant)

    def plan(self) -> ChangesPlan:
        """Return which files are to be read."""
        return self._plan

    def commit(self) -> None:
        """Record durably that this batch and those before it are processed.

        After a restart the poller returns a batch that was not committed again: the same versions, the same rows
        in the same order. Without a checkpoint nothing outlasts the process.

        Raises:
            CheckpointError: the checkpoint cannot be written, or the poller was closed.
        """
        self._commit(self)

    def _connections(self) -> tuple[RestClient, StorageReader]:
        return self._opened

    def _batches(
        self, plan: ScanPlan, progress: Any, memory_budget: int | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
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
        facts = {"range": self._versions(), "files": len(self._plan.tasks)}
        return html_view(self, self._plan.table.full_name, facts)
