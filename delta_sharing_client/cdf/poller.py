"""`ChangePoller`: polls a table's version and returns the changes of new versions in batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from delta_sharing_client.cdf.batch import ChangeBatch
from delta_sharing_client.cdf.batch_planner import BatchPlanner
from delta_sharing_client.cdf.checkpoint import BatchRange, CheckpointFile, Position, SchemaMark
from delta_sharing_client.cdf.clock import Clock, StopSignal, SystemClock
from delta_sharing_client.cdf.options import MIN_INTERVAL, PollOptions
from delta_sharing_client.errors import FutureVersionError, SchemaChangedError
from delta_sharing_client.model.names import Table
from delta_sharing_client.representation import representation
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.transport.url_rules import is_loopback
from delta_sharing_client.views import html_view

if TYPE_CHECKING:
    import os

    from delta_sharing_client.cdf.options import ChangeOptions
    from delta_sharing_client.cdf.planner import ChangesPlan
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.storage.byte_source import StorageReader


@public_class
class ChangePoller:
    """Follows a table's changes, batch by batch; see `SharedTable.poll_changes`.

        with table.poll_changes("orders.checkpoint", starting_version="snapshot") as poller:
            for batch in poller:
                store(batch.to_pandas())
                batch.commit()

    Iteration ends only after `stop`. `pull` polls once. A request that fails after all retries raises its error;
    the poller can then be iterated again. One thread at a time may use a poller; `stop` may be called from any
    thread, and from a signal handler.

    Args:
        name: the table.
        rest: the server.
        storage: fetches the files.
        query: which columns to read, and in which form.
        options: where to begin and how often to poll.
        checkpoint: the file that stores the position; None for none.
        clock: the source of time.

    Raises:
        ValueError: the poll interval is shorter than servers allow.
    """

    def __init__(
        self,
        name: Table,
        rest: RestClient,
        storage: StorageReader,
        *,
        query: ChangeOptions,
        options: PollOptions,
        checkpoint: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.options = options
        self._rest = rest
        self._storage = storage
        self._query = query
        self._clock = clock or SystemClock()
        self._signal = StopSignal()
        self._position: Position | None = None
        self._repeated: deque[BatchRange] = deque()  # returned before a restart and not committed
        self._latest: int | None = None
        self._polled_at: float | None = None
        self._prepared: ChangeBatch | None = None
        self._schema: SchemaMark | None = None  # at the end of the last batch that was returned
        self._file: CheckpointFile | None = None
        if options.poll_interval < MIN_INTERVAL and not is_loopback(rest.profile.endpoint):
            raise ValueError(
                f"poll_interval is {options.poll_interval.total_seconds():g} s; servers require at least "
                f"{MIN_INTERVAL.total_seconds():g} s"
            )
        place = ""
        if checkpoint is not None:
            self._file = CheckpointFile(checkpoint)
            place = f"delete the checkpoint {self._file.path} and "
        advice = f"To start over, {place}poll with starting_version='snapshot', replacing the rows stored before"
        self._planner = BatchPlanner(rest, name, query, advice)
        # One thread at a time prepares a batch; a commit, which only writes the position, does not wait for it.
        self._preparing = threading.Lock()
        self._writing = threading.Lock()

    def __iter__(self) -> Iterator[ChangeBatch]:
        """Yield batches, and wait for them; ends after `stop`."""
        while not self._signal.stopped:
            wait = self._seconds_to_wait()
            if wait > 0:
                self._clock.wait(wait, self._signal)
                continue
            batch = self._pull_unless_stopped()
            if batch is not None:
                yield batch

    def pull(self) -> ChangeBatch | None:
        """Poll once, whatever the interval.

        Returns:
            The next batch; None if there is no new version, or the poller was stopped.

        Raises:
            ChangesGoneError: the next changes can no longer be read, or the table was replaced by another one.
            SchemaChangedError: a column was renamed or dropped, or changed its type (`schema_changes="raise"`).
            CheckpointError: the checkpoint cannot be used.
            DeltaSharingError: the request failed, or its answer cannot be used.
        """
        if self._signal.stopped:
            return None
        self._prepare()
        return self._take()

    def stop(self) -> None:
        """End the iteration at once, even while it waits for the server; the last batch can still be committed."""
        self._signal.stop()

    def close(self) -> None:
        """Stop, and release the checkpoint for another poller; no batch can be committed after that."""
        self.stop()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def committed_version(self) -> int | None:
        """The last committed version; None before the first commit, and before the first poll."""
        return None if self._position is None else self._position.committed

    @representation
    def __repr__(self) -> str:
        return f"ChangePoller({self.name.full_name!r}, {self._position_text()})"

    @representation
    def _repr_html_(self) -> str:
        facts = {
            "position": self._position_text(),
            "committed version": self.committed_version,
            "polls every": f"{self.options.poll_interval.total_seconds():g} s",
        }
        return html_view(self, self.name.full_name, facts)

    def _position_text(self) -> str:
        return "not started" if self._position is None else f"next version {self._position.next_version}"

    def _seconds_to_wait(self) -> float:
        """Return the time until the next poll; 0 if a batch can be made without one."""
        position, latest = self._position, self._latest
        behind = position is not None and latest is not None and latest >= position.next_version
        if self._polled_at is None or self._prepared or self._repeated or behind:
            return 0.0
        return self._polled_at + self.options.poll_interval.total_seconds() - self._clock.now()

    def _take(self) -> ChangeBatch | None:
        batch, self._prepared = self._prepared, None
        if batch is not None:
            self._schema = SchemaMark.of(batch.plan().history)
        return batch

    def _pull_unless_stopped(self) -> ChangeBatch | None:
        """Poll in another thread, so that `stop` need not wait; the next poll returns a batch that is late."""
        failures: list[BaseException] = []
        done = False

        def work() -> None:
            nonlocal done
            try:
                self._prepare()
            except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
                failures.append(error)
            done = True
            self._signal.wake()

        threading.Thread(target=work, name="delta-sharing-poll", daemon=True).start()
        self._signal.wait(until=lambda: done)
        if self._signal.stopped:
            return None
        if failures:
            raise failures[0]
        return self._take()

    def _prepare(self) -> None:
        """Prepare the next batch, if there is one."""
        with self._preparing:
            if self._prepared is None:
                self._prepare_next()

    def _prepare_next(self) -> None:
        started = self._position is not None
        position = self._open()
        if self._repeated:
            before = self._repeated[0]
            plan = self._plan(before, position)
            batch_range = replace(before, response_format=plan.protocol.response_format)
            self._save(lambda now: now.listed(before, batch_range, plan.metadata.id))
            self._prepared = self._batch(batch_range, plan, position)
            self._repeated.popleft()
            return
        first = position.next_version
        if self._latest is None or (self._latest < first and started):
            self._latest = self._poll_version()
        if self._latest < first:
            self._planner.check_latest(position, self._latest)
            # A table that was created again may have exactly as many versions.
            if position.table_id is None or position.idle_polls + 1 >= self.options.check_table_every:
                table_id = self._planner.checked_id(position, self._latest)
                self._save(lambda now: now.identified(table_id))
            else:
                self._save(Position.idle)
            return
        batch_range = BatchRange(first, min(first + self.options.max_versions - 1, self._latest))
        try:
            plan = self._plan(batch_range, position)
        except SchemaChangedError as error:
            if error.version is None or not first < error.version <= batch_range.last:
                raise
            # The rows before the change are a batch with the columns of their versions.
            batch_range = replace(batch_range, last=error.version - 1)
            plan = self._plan(batch_range, position)
        batch_range = replace(batch_range, response_format=plan.protocol.response_format)
        batch = self._batch(batch_range, plan, position)
        self._save(lambda now: now.returned(batch_range, plan.metadata.id))
        self._prepared = batch

    def _open(self) -> Position:
        """Return the position, read from the checkpoint on first use."""
        if self._file is not None:
            self._file.lock()
        if self._position is not None:
            return self._position
        position = None if self._file is None else self._file.load(self.name.full_name)
        if position is None:
            position = replace(self._start(), target=self.options.target)
            if self._file is not None:
                self._file.save(position)
        elif self._file is not None:
            position = self._file.bound(position, self.options.target, rebind=self.options.rebind)
        self._position, self._schema = position, position.schema
        self._repeated.extend(position.pending)
        return position

    def _start(self) -> Position:
        """Return the first position of a poller without a checkpoint."""
        options, name = self.options, self.name.full_name
        start = options.starting_version
        if start is None and options.starting_timestamp is None:
            raise ValueError(
                "the poller has no start: give starting_version (a version, 'latest' or 'snapshot') or "
                "starting_timestamp"
            )
        if options.starting_timestamp is not None:
            return Position(
                table=name, next_version=self._rest.table_version(self.name, options.starting_timestamp)
            )
        latest = self._latest = self._poll_version()
        if start == "snapshot":
            whole = BatchRange(latest, latest, "snapshot")
            return Position(table=name, next_version=latest + 1, pending=(whole,))
        if start == "latest":
            return Position(table=name, next_version=latest + 1)
        first = int(start or 0)
        if first > latest + 1:
            raise FutureVersionError(
                f"starting_version is {first}, and the latest version of table {name} is {latest}: start at "
                f"{latest + 1} or earlier, or with starting_version='latest'",
                version=first,
                latest=latest,
            )
        return Position(table=name, next_version=first)

    def _poll_version(self) -> int:
        self._polled_at = self._clock.now()
        return self._rest.table_version(self.name)

    def _plan(self, batch_range: BatchRange, position: Position) -> ChangesPlan:
        before = self._schema if self.options.schema_changes == "raise" else None
        return self._planner.plan(batch_range, position, before)

    def _batch(self, batch_range: BatchRange, plan: ChangesPlan, position: Position) -> ChangeBatch:
        return ChangeBatch(
            plan,
            batch_range,
            (self._rest, self._storage),
            self._commit,
            poller_id=position.poller_id,
            continues=position.committed is not None and not self.options.rebind,
            advice=self._planner.advice,
        )

    def _commit(self, batch: ChangeBatch) -> None:
        self._save(lambda now: now.processed(batch.range, SchemaMark.of(batch.plan().history)))

    def _save(self, change: Callable[[Position], Position]) -> None:
        """Change the position, in the file first."""
        with self._writing:
            before = self._position
            if before is not None and (after := change(before)) != before:
                if self._file is not None:
                    self._file.save(after)
                self._position = after
