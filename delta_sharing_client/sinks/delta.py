"""`DeltaSink`: batches stored in a local Delta table, each commit with how far the poller has come."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.delta.log import AddFile, DeltaLog, Metadata, OptimisticTransaction, Protocol, Snapshot
from delta_sharing_client.delta.log.actions import make_action
from delta_sharing_client.delta.log.commit_checks import check_commit
from delta_sharing_client.delta.log.log_schema import partition_fields
from delta_sharing_client.delta.log.log_segment import LOG_DIRECTORY
from delta_sharing_client.delta.log.symbolic_links import refuse_links
from delta_sharing_client.delta.log.table_features import has_feature
from delta_sharing_client.delta.log.table_properties import flag_property
from delta_sharing_client.errors import CommitConflictError, SinkError, SinkKeyError, UnsupportedFeatureError
from delta_sharing_client.model.schema import StructType, parse_schema
from delta_sharing_client.sinks.base import Incoming, Mode, Sink, WriteResult, check_beginning, check_columns
from delta_sharing_client.sinks.delta_schema import (
    MADE_BY_SINK,
    new_table,
    replaced_table,
    stored_schema,
    with_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.sinks.delta_files import DeltaFiles

_ATTEMPTS: Final = 10


class DeltaSink(Sink):
    """Stores batches in a local Delta table, one commit to a batch; the table is made where there is none.

    The commit carries a `txn` action: the poller's id, and the batch's last version ("Transaction Identifiers").
    What the table asks of its writers is honoured, or refused by name before anything is written.

    Args:
        path: the table's directory.
        mode: ``append`` adds the rows of each batch; ``apply`` keeps the table equal to the shared one, rewriting
            the files that hold rows which changed.
        keys: the columns that tell rows apart, for ``apply``.
        change_columns: whether ``append`` stores `_change_type`, `_commit_version` and `_commit_timestamp` too;
            False takes only batches of inserts.
        add_columns: whether a column that is new in a batch is added to the table.

    Raises:
        ValueError, TypeError: the arguments do not go together.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode = "append",
        keys: Iterable[str] = (),
        change_columns: bool = True,
        add_columns: bool = True,
    ) -> None:
        super().__init__(mode, keys, change_columns=change_columns, add_columns=add_columns)
        self._log = DeltaLog.for_table(path)

    @property
    def path(self) -> Path:
        """The table's directory."""
        return self._log.table_path

    @property
    def target(self) -> str:
        """What is written to, for messages."""
        return f"Delta table {self.path}"

    def last_version(self, poller_id: str) -> int | None:
        """Return the last version that the table holds of a poller; None where there is none.

        A batch that brought no rows makes no commit, and is not counted.

        Raises:
            DeltaLogError: the table's log is damaged, or there is a link in it.
        """
        refuse_links(self.path, LOG_DIRECTORY)
        found = self._log.snapshot().transactions.get(poller_id)
        return None if found is None else found.version

    def _write(self, incoming: Incoming) -> WriteResult:
        refuse_links(self.path)
        for attempt in range(1, _ATTEMPTS + 1):
            transaction = self._log.start_transaction()
            after = transaction.txn_version(incoming.poller_id)
            if after >= incoming.last_version:
                return WriteResult(version=after, skipped=True)
            commit = _Commit(self, transaction, incoming, after)
            try:
                return commit.run()
            except CommitConflictError:
                # Another writer came first; what was read may have changed.
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError


class _Commit:
    """One attempt to store a batch."""

    def __init__(
        self, sink: DeltaSink, transaction: OptimisticTransaction, incoming: Incoming, after: int
    ) -> None:
        self._sink = sink
        self._transaction = transaction
        self._snapshot: Snapshot = transaction.snapshot
        self._incoming = incoming
        self._after = after
        self._copy = sink.mode == "apply"
        self._schema = stored_schema(incoming.schema, incoming.variant, sink.target)
        self._names: Mapping[str, str] = {name: name for name in incoming.schema.names}
        #: Rows that were only moved from one file to another.
        self._carried = 0
        #: Actions that make or change the table.
        self._described: list[dict[str, Any]] = []
        self._protocol: Protocol
        self._metadata: Metadata

    def run(self) -> WriteResult:
        replaces = self._copy and self._incoming.is_snapshot
        if self._snapshot.version < 0:
            check_beginning(self._incoming, self._sink)
            self._described = new_table(self._schema, copy=self._copy)
        else:
            self._fit(replaces=replaces)
        self._bind()
        self._check_rules()

        from delta_sharing_client.sinks.delta_files import DeltaFiles

        files = DeltaFiles(self._sink.path, self._protocol, self._metadata, self._sink.target)
        committing = False
        try:
            removed, deleted = self._fill(files, replaces=replaces)
            files.sync()
            actions = [*self._described, *removed, *files.actions]
            if actions:
                committing = True
                self._commit(actions)
        except BaseException as error:
            # Once the commit was begun it may be there, whatever was raised after it.
            if not committing or isinstance(error, CommitConflictError):
                files.discard()
            raise
        kept = files.rows - self._carried
        return WriteResult(version=self._incoming.last_version, inserted=kept, deleted=deleted)

    # -- the table

    def _fit(self, *, replaces: bool) -> None:
        """Hold the batch's columns against the table's; add those that it lacks."""
        snapshot, sink = self._snapshot, self._sink
        held = parse_schema(snapshot.metadata.schema_string)
        if replaces and snapshot.files and snapshot.metadata.configuration.get(MADE_BY_SINK) != "apply":
            raise SinkError(
                "it has rows, and was not made by a sink in mode 'apply': a snapshot would take their place. "
                "Empty the table first, or give the sink one of its own",
                target=sink.target,
            )
        types = [str(field.type) for field in self._schema]
        try:
            self._names, new = check_columns(
                self._schema, [(field.name, str(field.type)) for field in held], types, sink
            )
        except SinkError:
            if not replaces or snapshot.metadata.configuration.get(MADE_BY_SINK) != "apply":
                raise
            self._described = replaced_table(snapshot.protocol, snapshot.metadata, self._schema, copy=True)
            return
        missing = [key for key in self._incoming.keys if key in new]
        if missing and snapshot.files:
            raise SinkKeyError(
                f"it lacks the key columns {', '.join(map(repr, missing))}, and has rows",
                target=sink.target,
                columns=missing,
            )
        added = StructType(tuple(field for field in self._schema if field.name in new))
        if new:
            self._described = with_columns(snapshot.protocol, snapshot.metadata, added)
            self._names = {**self._names, **{name: name for name in new}}
        unfilled = [f for f in held if f.name not in self._names.values() and "CURRENT_DEFAULT" in f.metadata]
        if unfilled and has_feature(snapshot.protocol, "allowColumnDefaults"):
            raise UnsupportedFeatureError(
                f"{sink.target}: the batch lacks the column {unfilled[0].name!r}, which has a default value there "
                "(allowColumnDefaults) that this release cannot work out; poll with that column",
                features=["allowColumnDefaults"],
            )

    def _bind(self) -> None:
        """Note the protocol and the metadata that are in force after the commit."""
        described = {name: raw for action in self._described for name, raw in action.items()}
        self._protocol = (
            Protocol(raw=described["protocol"]) if "protocol" in described else self._snapshot.protocol
        )
        self._metadata = (
            Metadata(raw=described["metaData"]) if "metaData" in described else self._snapshot.metadata
        )

    def _check_rules(self) -> None:
        """Refuse by name what the table asks of its writers and cannot be done; before anything is written."""
        feed = flag_property(self._metadata.configuration, "delta.enableChangeDataFeed")
        if feed and self._copy:
            raise UnsupportedFeatureError(
                f"{self._sink.target}: the table keeps a change data feed (changeDataFeed), and this sink "
                "rewrites files; give it a table without delta.enableChangeDataFeed",
                features=["changeDataFeed"],
            )
        values = dict.fromkeys(partition_fields(self._metadata))
        file = {"path": "a", "partitionValues": values, "size": 1, "modificationTime": 1, "dataChange": True}
        actions = [{"add": file}, *([{"remove": {"path": "b", "dataChange": True}}] if self._copy else [])]
        check_commit(
            [make_action(name, raw, where="the commit") for a in actions for name, raw in a.items()],
            protocol=self._protocol,
            metadata=self._metadata,
            table=str(self._sink.path),
            allow_absolute_paths=False,
        )

    # -- the rows

    def _fill(self, files: DeltaFiles, *, replaces: bool) -> tuple[list[dict[str, Any]], int]:
        """Write the files; return the files that go, and how many rows go with them."""
        if not self._copy:
            files.write(self._renamed(self._incoming.rows(self._after)))
            return [], 0
        if replaces:
            return self._replace(files)
        return self._apply(files)

    def _replace(self, files: DeltaFiles) -> tuple[list[dict[str, Any]], int]:
        from delta_sharing_client.sinks.keys import check_no_nulls, check_unique

        keys: list[pa.Table] = []

        def seen() -> Iterator[pa.Table]:
            for chunk in self._incoming.rows(self._after):
                check_no_nulls(chunk, self._incoming.keys, self._sink.target)
                keys.append(chunk.select(list(self._incoming.keys)))
                yield chunk

        files.write(self._renamed(seen()))
        if keys:
            import pyarrow as pa

            check_unique(pa.concat_tables(keys), self._sink.target)
        gone = self._snapshot.files if self._snapshot.version >= 0 else ()
        return [_remove(file) for file in gone], sum(_rows(file) for file in gone)

    def _apply(self, files: DeltaFiles) -> tuple[list[dict[str, Any]], int]:
        """Rewrite the files that hold keys which changed, without those; then add what is there of them now."""
        from delta_sharing_client.sinks.keys import KeySet, duplicate

        net = self._incoming.net(self._after)
        removed: list[dict[str, Any]] = []
        deleted = 0
        if net.touched.num_rows and self._snapshot.version >= 0:
            from delta_sharing_client.sinks.delta_rows import LocalRows

            local = LocalRows(self._sink.path, self._snapshot)
            (wanted,) = self._renamed([net.touched])
            (new,) = self._renamed([net.new])
            unexpected = KeySet(new)
            for hit in local.hits(wanted):
                already = unexpected.found(hit.keys)
                if already.any():
                    raise duplicate(hit.keys, int(already.argmax()), self._sink.target)
                rest = local.rest(hit)
                files.write([rest])
                self._carried += rest.num_rows
                deleted += hit.keys.num_rows - rest.num_rows
                removed.append(_remove(hit.file))
        files.write(self._renamed([net.rows]))
        return removed, deleted

    def _renamed(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Give columns the names that the table has for them, whatever their case."""
        for table in tables:
            yield table.rename_columns([self._names[name] for name in table.column_names])

    def _commit(self, actions: Sequence[Mapping[str, Any]]) -> None:
        incoming = self._incoming
        taken = {
            "appId": incoming.poller_id,
            "version": incoming.last_version,
            "lastUpdated": int(time.time() * 1000),
        }
        operation, parameters = "WRITE", {"mode": "Append"}
        if self._copy:
            operation, parameters = "MERGE", {"matchedPredicates": "[]", "keys": ",".join(incoming.keys)}
            if incoming.is_snapshot:
                operation, parameters = "WRITE", {"mode": "Overwrite"}
        self._transaction.commit([*actions, {"txn": taken}], operation, parameters)


def _rows(file: AddFile) -> int:
    from delta_sharing_client.expressions.statistics import num_records

    vector = file.deletion_vector
    return (num_records(file.stats) or 0) - (0 if vector is None else vector.cardinality)


def _remove(file: AddFile) -> dict[str, Any]:
    raw = file.raw
    described = {
        "path": file.path,
        "deletionTimestamp": int(time.time() * 1000),
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": file.partition_values,
        "size": file.size,
    }
    for name in ("deletionVector", "baseRowId", "defaultRowCommitVersion"):
        if raw.get(name) is not None:
            described[name] = raw[name]
    return {"remove": {name: value for name, value in described.items() if value is not None}}
