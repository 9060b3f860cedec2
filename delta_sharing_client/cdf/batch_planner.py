"""`BatchPlanner`: planning of a poller's batches, and the checks that the table is still the one it follows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from delta_sharing_client.cdf.checkpoint import BatchRange, Position, SchemaMark
from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.cdf.planner import ChangeFeedPlanner, ChangesPlan
from delta_sharing_client.cdf.table_history import breaking_changes, changed_schema
from delta_sharing_client.errors import BadRequestError, ChangesGoneError, ResponseFormatError
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.table_identity import check_same_table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.rest.status_errors import is_unsupported


@dataclass(frozen=True)
class BatchPlanner:
    """Plans the batches of one poller.

    The range of the options is ignored. `advice` is the remedy in messages if the changes are gone.
    """

    rest: RestClient = field(repr=False)
    table: Table
    options: ChangeOptions
    advice: str

    def plan(self, batch_range: BatchRange, position: Position, before: SchemaMark | None) -> ChangesPlan:
        """Plan a batch; `before` has the columns of the previous batch, to which columns may only have been added.

        Raises:
            BadRequestError: the server does not answer requests for changes of this table.
            ChangesGoneError: the changes can no longer be read.
            TableReplacedError: the table was replaced by another one.
            SchemaChangedError: a column was renamed or dropped, or changed its type.
            DeltaSharingError: the request failed, or its answer cannot be used.
        """
        try:
            plan = self._plan(batch_range, position)
        except BadRequestError as error:
            if not position.has_changes or is_unsupported(error):
                raise
            self.checked_id(position, batch_range.first)
            raise ChangesGoneError(
                f"{error}. If it has cleaned these versions up, they are lost. {self.advice}",
                version=batch_range.first,
            ) from None
        if before is not None:
            self._check_columns(before, plan, batch_range.first)
        return plan

    def check_latest(self, position: Position, latest: int) -> None:
        """Raise if the table has fewer versions than before."""
        if latest < position.next_version - 1:
            self.checked_id(position, latest + 1)
            raise ChangesGoneError(
                f"table {self.table.full_name}: its latest version is {latest}, and it had version "
                f"{position.next_version - 1} before. {self.advice}",
                version=latest + 1,
            )

    def _plan(self, batch_range: BatchRange, position: Position) -> ChangesPlan:
        """Plan a batch, if possible in the response format of the checkpoint, which determines the file order."""
        planner = ChangeFeedPlanner(
            self.rest, self.table, views=False, known_id=position.table_id, replaced_advice=self.advice
        )
        plan: Callable[[ChangeOptions], ChangesPlan] = planner.plan
        options = self.options
        if batch_range.kind == "snapshot":
            plan = partial(planner.plan_snapshot, batch_range.last)
        else:
            options = self.options.replace(starting_version=batch_range.first, ending_version=batch_range.last)
        if batch_range.response_format is not None:
            with contextlib.suppress(BadRequestError, ResponseFormatError):
                return plan(options.replace(response_format=batch_range.response_format))
        return plan(options)

    def _check_columns(self, before: SchemaMark, plan: ChangesPlan, version: int) -> None:
        """Raise if the columns differ from those of the previous batch by more than new ones."""
        after = plan.history.metadata[0]
        known = Metadata(id=after.id, schema_string=before.schema_string)
        modes = (before.mapping, plan.history.modes[0])
        broken = breaking_changes(known, after, modes, self.options.columns)
        if broken:
            raise changed_schema(
                f"table {self.table.full_name}",
                version,
                broken,
                advice="to go on with the columns as they are now, poll with schema_changes='follow'",
            )

    def checked_id(self, position: Position, version: int) -> str:
        """Request the id of the table; raise `TableReplacedError` if it is not that of the position."""
        metadata = self.rest.table_metadata(self.table, self.options.formats).metadata
        subject = f"table {self.table.full_name}"
        check_same_table(position.table_id, metadata, subject, self.advice, version=version)
        return metadata.id
