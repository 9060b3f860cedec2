"""`ChangePoller`: asks for a table's version now and then, and pulls the changes of the versions that are new."""

from __future__ import annotations

import html
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from delta_sharing_client.cdf.batch import ChangeBatch, plan_batch
from delta_sharing_client.cdf.checkpoint import BatchRange, CheckpointFile, Position, SchemaMark
from delta_sharing_client.cdf.clock import Clock, StopSignal, SystemClock
from delta_sharing_client.cdf.poll_options import MIN_INTERVAL, PollOptions
from delta_sharing_client.errors import (
    BadRequestError,
    ChangesGoneError,
    SchemaChangedError,
    TableReplacedError,
)
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema_evolution import column_changes
from delta_sharing_client.representation import representation
from delta_sharing_client.transport.url_rules import is_loopback

if TYPE_CHECKING:
    import os

    from delta_sharing_client.cdf.options import ChangeOptions
    from delta_sharing_client.cdf.planner import ChangesPlan
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.storage.presigned import StorageReader


class ChangePoller:
    """Follows a table's changes, batch by batch; see `SharedTable.poll_changes`.

        with table.poll_changes("orders.checkpoint", starting_version="snapshot") as poller:
            for batch in poller:
                store(batch.to_pandas())
                batch.commit()

    Iterating never ends by itself; `stop` ends it. `pull` asks just once. What the server cannot answer after all
    retries is raised, and the poller can be iterated again. One thread at a time uses a poller; `stop` may be
    called from any thread, and from a signal handler.

    Args:
        name: the table.
        rest: the server.
        storage: fetches the files.
        query: which columns to read, and in which form.
        options: where to begin and how often to ask.
        checkpoint: the file that keeps the position; None to keep none.
        clock: tells the time and waits.

    Raises:
        ValueError: the server would be asked more often than servers allow.
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
        self._state = _State()
        self._file: CheckpointFile | None = None
        if options.poll_interval < MIN_INTERVAL and not is_loopback(rest.profile.endpoint):
            raise ValueError(
                f"poll_interval is {options.poll_interval.total_seconds():g} s; servers ask for at least "
                f"{MIN_INTERVAL.total_seconds():g} s"
            )
        if checkpoint is not None:
            self._file = CheckpointFile(checkpoint)
        # One makes the next batch at a time; who only writes the position need not wait for that.
        self._preparing = threading.Lock()
        self._writing = threading.Lock()

    # -- what users call

    def __iter__(self) -> Iterator[ChangeBatch]:
        """Yield batches as they come, waiting for them; ends after `stop`."""
        while not self._signal.stopped:
            wait = self._seconds_to_wait()
            if wait > 0:
                self._clock.wait(wait, self._signal)
                continue
            batch = self._pull_unless_stopped()
            if batch is not None:
                yield batch

    def pull(self) -> ChangeBatch | None:
        """Ask once whether there is something new, without regard to the interval.

        Returns:
            The next batch; None if there is nothing new, or the poller was stopped.

        Raises:
            ChangesGoneError: the next changes can no longer be had, or the table is another one.
            SchemaChangedError: a column was renamed or dropped, or changed its type (`schema_changes="raise"`).
            CheckpointError: the checkpoint cannot be used.
            DeltaSharingError: the server could not be asked, or its answer could not be used.
        """
        if self._signal.stopped:
            return None
        self._prepare()
        return self._take()

    def _take(self) -> ChangeBatch | None:
        batch, self._state.prepared = self._state.prepared, None
        return batch

    def stop(self) -> None:
        """End the iteration at once, even while it waits for the server.

        The batch that is being worked on can still be committed.
        """
        self._signal.stop()

    def close(self) -> None:
        """Stop, and let another poller have the checkpoint; nothing can be committed after that."""
        self.stop()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def committed_version(self) -> int | None:
        """The last version that was committed; None where there is none yet, or nothing was pulled yet."""
        position = self._state.position
        return None if position is None else position.committed

    @representation
    def __repr__(self) -> str:
        return f"ChangePoller({self.name.full_name!r}, {self._told()})"

    @representation
    def _repr_html_(self) -> str:
        return f"<code>ChangePoller</code> <b>{html.escape(self.name.full_name)}</b> {self._told()}"

    def _told(self) -> str:
        position = self._state.position
        return "not started" if position is None else f"next version {position.next_version}"

    # -- waiting

    def _seconds_to_wait(self) -> float:
        """How long it is until the server may be asked for the version again; 0 where that is not needed."""
        state = self._state
        if state.polled_at is None or state.prepared or state.again or state.behind:
            return 0.0
        return state.polled_at + self.options.poll_interval.total_seconds() - self._clock.now()

    def _pull_unless_stopped(self) -> ChangeBatch | None:
        """Pull in a thread of its own, so that `stop` need not wait for a server that does not answer.

        A batch that is ready only after that is kept for whoever pulls next.
        """
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

    # -- the work

    def _prepare(self) -> None:
        """Make the next batch ready, if there is one."""
        with self._preparing:
            if self._state.prepared is None:
                self._prepare_next()

    def _prepare_next(self) -> None:
        state = self._state
        started = state.position is not None
        position = self._position()
        if state.again:
            before = state.again[0]
            plan = self._plan(before, position)
            batch_range = replace(before, response_format=plan.protocol.response_format)
            self._save(lambda now: now.listed(before, batch_range))
            state.prepared = self._batch(batch_range, plan, position.poller_id)
            state.again.popleft()
            return
        first = position.next_version
        if state.latest is None or (state.latest < first and started):
            state.latest = self._ask_version()
        if state.latest < first:
            self._check_not_behind(position, state.latest)
            return
        batch_range = BatchRange(first, min(first + self.options.max_versions - 1, state.latest))
        try:
            plan = self._plan(batch_range, position)
        except SchemaChangedError as error:
            if error.version is None or not first < error.version <= batch_range.last:
                raise
            # The rows before the change come first, with the columns that they had.
            batch_range = replace(batch_range, last=error.version - 1)
            plan = self._plan(batch_range, position)
        batch_range = replace(batch_range, response_format=plan.protocol.response_format)
        batch = self._batch(batch_range, plan, position.poller_id)
        self._save(lambda now: now.handed_out(batch_range, plan.metadata.id))
        state.prepared = batch

    def _position(self) -> Position:
        """Where the poller is; found out when it is first needed."""
        state = self._state
        if self._file is not None:
            self._file.lock()
        if state.position is not None:
            return state.position
        position = None if self._file is None else self._file.load(self.name.full_name)
        if position is None:
            position = self._start()
            if self._file is not None:
                self._file.save(position)
        state.position, state.schema = position, position.schema
        state.again.extend(position.pending)
        return position

    def _start(self) -> Position:
        """Return the position of a poller that has none yet."""
        options, name = self.options, self.name.full_name
        start = options.starting_version
        if start is None and options.starting_timestamp is None:
            raise ValueError(
                "say where to begin: starting_version (a version, 'latest' or 'snapshot') or starting_timestamp"
            )
        if options.starting_timestamp is not None:
            return Position(
                table=name, next_version=self._rest.table_version(self.name, options.starting_timestamp)
            )
        latest = self._state.latest = self._ask_version()
        if start == "snapshot":
            whole = BatchRange(latest, latest, "snapshot")
            return Position(table=name, next_version=latest + 1, pending=(whole,))
        if start == "latest":
            return Position(table=name, next_version=latest + 1)
        first = int(start or 0)
        if first > latest + 1:
            raise ValueError(f"starting_version is {first}, and the latest version of table {name} is {latest}")
        return Position(table=name, next_version=first)

    def _ask_version(self) -> int:
        self._state.polled_at = self._clock.now()
        return self._rest.table_version(self.name)

    def _plan(self, batch_range: BatchRange, position: Position) -> ChangesPlan:
        try:
            plan = plan_batch(self._rest, self.name, self._query, batch_range)
        except BadRequestError as error:
            if position.table_id is None:
                raise  # nothing was read yet: the server says what is wrong with the start
            self._check_same(position, batch_range.first)
            raise ChangesGoneError(
                f"{error}. If it has cleaned these versions up, they are lost. {self._advice}",
                version=batch_range.first,
            ) from None
        except TableReplacedError as error:
            raise self._replaced(error.version, error.expected, error.actual) from None
        first = plan.history.metadata[0]
        if position.table_id not in (None, first.id):
            raise self._replaced(batch_range.first, position.table_id, first.id)
        if self.options.schema_changes == "raise" and self._state.schema is not None:
            self._check_schema(self._state.schema, plan, batch_range.first)
        return plan

    def _check_schema(self, before: SchemaMark, plan: ChangesPlan, version: int) -> None:
        """Raise if the columns are not those of the batch before, with none but new ones."""
        from delta_sharing_client.cdf.table_history import changed_schema

        after = plan.history.metadata[0]
        known = Metadata(id=after.id, schema_string=before.schema_string)
        asked = None if self._query.columns is None else {name.lower() for name in self._query.columns}
        broken = [
            item
            for item in column_changes(known, after, (before.mapping, plan.history.modes[0]))
            if not item.additive and (asked is None or item.top.lower() in asked)
        ]
        if broken:
            raise changed_schema(
                f"table {self.name.full_name}",
                version,
                broken,
                advice="to go on with the columns as they are now, poll with schema_changes='follow'",
            )

    def _check_not_behind(self, position: Position, latest: int) -> None:
        """Raise if the table has fewer versions than it had; versions only ever come."""
        if latest < position.next_version - 1:
            self._check_same(position, latest + 1)
            raise ChangesGoneError(
                f"table {self.name.full_name}: its latest version is {latest}, and it had version "
                f"{position.next_version - 1} before. {self._advice}",
                version=latest + 1,
            )

    def _check_same(self, position: Position, version: int) -> None:
        """Raise if the table is another one than the one that was followed."""
        actual = self._rest.table_metadata(self.name, self._query.formats).metadata.id
        if position.table_id not in (None, actual):
            raise self._replaced(version, position.table_id, actual)

    def _replaced(self, version: int | None, expected: str | None, actual: str | None) -> TableReplacedError:
        return TableReplacedError(
            f"table {self.name.full_name}: it was made anew under its name (its id was {expected}, and is "
            f"{actual}). {self._advice}",
            version=version,
            expected=expected,
            actual=actual,
        )

    @property
    def _advice(self) -> str:
        place = "" if self._file is None else f"delete the checkpoint {self._file.path} and "
        return f"To start over, {place}poll with starting_version='snapshot', replacing what was taken before"

    def _batch(self, batch_range: BatchRange, plan: ChangesPlan, poller_id: str) -> ChangeBatch:
        history = plan.history
        self._state.schema = SchemaMark(history.last.schema_string, history.modes[-1])
        return ChangeBatch(
            plan,
            batch_range,
            (self._rest, self._storage),
            self._commit,
            poller_id=poller_id,
            advice=self._advice,
        )

    def _commit(self, batch: ChangeBatch) -> None:
        history = batch.plan().history
        mark = SchemaMark(history.last.schema_string, history.modes[-1])
        self._save(lambda now: now.taken(batch.range, mark))

    def _save(self, change: Callable[[Position], Position]) -> None:
        """Move the position: in the file first, so that nothing counts that is not there."""
        with self._writing:
            before = self._state.position
            if before is not None and (after := change(before)) != before:
                if self._file is not None:
                    self._file.save(after)
                self._state.position = after


@dataclass(eq=False)
class _State:
    """What a poller knows while it runs.

    Attributes:
        position: how far it came; None before it is first needed.
        again: batches that were handed out before a restart and not committed.
        latest: the table's latest version when it was last asked for.
        polled_at: the clock's time then.
        prepared: the next batch, where it is ready.
        schema: the columns at the end of the last batch.
    """

    position: Position | None = None
    again: deque[BatchRange] = field(default_factory=deque)
    latest: int | None = None
    polled_at: float | None = None
    prepared: ChangeBatch | None = None
    schema: SchemaMark | None = None

    @property
    def behind(self) -> bool:
        """Whether versions are known of which no batch was made yet."""
        return self.position is not None and self.latest is not None and self.latest >= self.position.next_version
