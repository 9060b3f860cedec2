"""Commits of the Delta sink: a batch is appended, merged, or replaces all rows, by deltalake."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

from delta_sharing_client.errors import DeltaLogError, SinkError, UnsupportedFeatureError
from delta_sharing_client.model.column_mapping import mapping_mode, physical_name
from delta_sharing_client.model.schema import StructType, parse_schema
from delta_sharing_client.parquet.cast import is_variant
from delta_sharing_client.sinks.base import WriteResult, check_beginning, fit_columns
from delta_sharing_client.sinks.delta_columns import (
    check_partitions,
    check_values,
    delta_schema,
    needs_mapping,
    stored_schema,
    table_arrow_schema,
    table_rows,
    writer_properties,
)
from delta_sharing_client.sinks.delta_errors import typed_errors
from delta_sharing_client.sinks.incoming import Incoming, tables_of
from delta_sharing_client.sinks.keys import check_unique, duplicate

if TYPE_CHECKING:
    from delta_sharing_client.sinks.delta import DeltaSink

#: A property of tables that a sink created, with its mode; a snapshot may replace the rows of a copy.
MADE_BY_SINK: Final = "deltaSharing.sink"

_MAPPING: Final = "delta.columnMapping.mode"
#: A column of the merge source: whether the key's row is deleted.
_DELETED: Final = "__delta_sharing_deleted"
#: Key types whose bounds in statistics may be rounded or truncated: no files are skipped by them.
_INEXACT_BOUNDS: Final = ("decimal", "timestamp")


def create_table(sink: DeltaSink, incoming: Incoming) -> DeltaTable:
    """Create the empty table of a sink, with column mapping if a name requires it."""
    check_beginning(incoming, sink)
    schema = stored_schema(incoming.schema, incoming.variant, sink.target)
    configuration: dict[str, str | None] = {MADE_BY_SINK: sink.mode}
    if needs_mapping(schema):
        configuration[_MAPPING] = "name"
    with typed_errors(sink.path):
        return DeltaTable.create(
            sink.path, delta_schema(schema), configuration=configuration, raise_if_key_not_exists=False
        )


class DeltaWrite:
    """One attempt to store a batch after the poller's last version in the table."""

    def __init__(self, sink: DeltaSink, table: DeltaTable, incoming: Incoming, after: int) -> None:
        self._sink = sink
        self._table = table
        self._incoming = incoming
        self._after = after
        self._incoming_schema = stored_schema(incoming.schema, incoming.variant, sink.target)
        metadata = table.metadata()
        self._configuration = metadata.configuration
        self._partitions = metadata.partition_columns
        #: The table's columns, including those that the batch adds.
        self._columns = self._read_columns()
        #: The table's names by those of the batch.
        self._names: Mapping[str, str] = {}
        self._overwrites_schema = False
        self._error: BaseException | None = None
        self._count = 0

    def run(self) -> WriteResult:
        """Store the batch in one commit, after a commit that adds its new columns."""
        check_partitions(self._columns, self._partitions, self._sink.target)
        if self._sink.mode == "apply" and self._is_set("delta.appendOnly"):
            raise DeltaLogError(
                "the table is append-only (delta.appendOnly), and mode='apply' removes rows",
                path=str(self._sink.path),
            )
        if self._sink.change_columns and self._is_set("delta.enableChangeDataFeed"):
            raise SinkError(
                "it has a change data feed, whose column names its own columns cannot have; "
                "use change_columns=False",
                target=self._sink.target,
            )
        self._fit()
        if self._sink.mode == "append":
            inserted, deleted = self._append()
        elif self._incoming.replaces:
            inserted, deleted = self._replace()
        else:
            inserted, deleted = self._merge()
        return WriteResult(version=self._incoming.last_version, inserted=inserted, deleted=deleted)

    def _is_set(self, flag: str) -> bool:
        return self._configuration.get(flag, "").lower() == "true"

    # -- the columns

    def _read_columns(self) -> StructType:
        return parse_schema(self._table.schema().to_json())

    def _fit(self) -> None:
        """Compare the batch's columns with the table's; add missing ones to the table."""
        sink, schema = self._sink, self._incoming_schema
        fit = fit_columns(
            self._incoming,
            sink,
            [str(field.type) for field in schema],
            [(field.name, str(field.type)) for field in self._columns],
            is_own=self._configuration.get(MADE_BY_SINK) == "apply",
            has_rows=lambda: bool(self._table.file_uris()),
        )
        if fit is None:
            self._check_evolution(schema, replaces=True)
            self._names = {name: name for name in schema.names}
            self._columns, self._overwrites_schema = schema, True
            return
        self._names, new = fit
        if new:
            added = StructType(tuple(field for field in schema if field.name in new))
            self._check_evolution(added, replaces=False)
            with typed_errors(sink.path, self._table):
                self._table.alter.add_columns(list(delta_schema(added).fields))
            self._columns = self._read_columns()
            self._names = {**self._names, **{name: name for name in new}}

    def _check_evolution(self, schema: StructType, *, replaces: bool) -> None:
        """Raise if deltalake cannot add or replace these columns of an existing table."""
        odd = needs_mapping(schema)
        if mapping_mode(self._configuration) != "none":
            feature, reason = "columnMapping", "the table maps its columns"
        elif odd:
            feature, reason = "columnMapping", f"the name {odd[0]!r} needs column mapping"
        elif replaces and any(is_variant(field.type) for field in schema):
            feature, reason = "variantType", "the batch has variants"
        else:
            return
        raise UnsupportedFeatureError(
            f"{self._sink.target}: its columns have to change, which deltalake does not do where {reason} "
            f"({feature}); give the sink a directory of its own, and begin with a snapshot",
            features=[feature],
        )

    # -- the rows: each method returns the numbers of inserted and deleted rows

    def _append(self) -> tuple[int, int]:
        rows = self._rows(self._incoming.rows(self._after))
        first = next(rows, None)
        if first is not None:
            self._store(itertools.chain([first], rows), "append")
        return self._count, 0

    def _replace(self) -> tuple[int, int]:
        deleted = sum(batch.num_rows for batch in self._scan(self._read_columns().names[:1]))
        self._store(self._rows(self._incoming.rows(self._after)), "overwrite")
        return self._count, deleted

    def _merge(self) -> tuple[int, int]:
        net = self._incoming.net(self._after)
        if not net.touched.num_rows:
            return 0, 0
        keys = [self._names[key] for key in self._incoming.keys]
        touched = net.touched.rename_columns(keys)
        self._check_target(touched, net.new.rename_columns(keys))
        (rows,) = self._rows([net.rows])
        gone = touched.join(rows.select(keys), keys, join_type="left anti", use_threads=False)
        (deletions,) = self._rows([gone.rename_columns(list(self._incoming.keys))])
        flag = _DELETED
        while flag in self._columns.names:
            flag += "_"
        source = pa.concat_tables(
            [
                part.append_column(flag, pa.array(np.full(part.num_rows, deleted)))
                for part, deleted in ((rows, False), (deletions, True))
            ]
        )
        values = {f"target.{quoted(name)}": f"source.{quoted(name)}" for name in self._columns.names}
        inexact = any(str(f.type).startswith(_INEXACT_BOUNDS) for f in self._columns if f.name in keys)
        with typed_errors(self._sink.path, self._table):
            merge = self._table.merge(
                source,
                " AND ".join(f"target.{quoted(key)} = source.{quoted(key)}" for key in keys),
                source_alias="source",
                target_alias="target",
                # Without streaming, files are skipped by the bounds in their statistics.
                streamed_exec=inexact,
                writer_properties=self._writer_properties(),
                commit_properties=self._commit_properties(),
            )
            merge = merge.when_matched_delete(f"source.{flag}").when_matched_update(values, f"NOT source.{flag}")
            done = merge.when_not_matched_insert(values, f"NOT source.{flag}").execute()
        updated = done["num_target_rows_updated"]
        return updated + done["num_target_rows_inserted"], updated + done["num_target_rows_deleted"]

    def _check_target(self, touched: pa.Table, new: pa.Table) -> None:
        """Raise `SinkKeyError` if the table has a key twice, or a key that the batch inserts."""
        keys = touched.column_names
        bounds = []
        for name, column in zip(keys, touched.columns, strict=True):
            if pa.types.is_integer(column.type):
                found = pc.min_max(column)
                bounds.append(f"{quoted(name)} BETWEEN {found['min']} AND {found['max']}")
        there = [touched.slice(0, 0)]
        for held in tables_of(self._scan(keys, " AND ".join(bounds) or None)):
            there.append(held.cast(touched.schema).join(touched, keys, join_type="left semi", use_threads=False))
        present = pa.concat_tables(there)
        unexpected = present.join(new, keys, join_type="left semi", use_threads=False)
        if unexpected.num_rows:
            raise duplicate(unexpected, 0, self._sink.target)
        check_unique(present, self._sink.target)

    def _scan(self, columns: list[str], predicate: str | None = None) -> Iterator[pa.RecordBatch]:
        """Read columns of the table, in no particular order."""
        with typed_errors(self._sink.path, self._table):
            if self._table.file_uris():
                yield from pa.RecordBatchReader.from_stream(self._table.scan(columns, predicate))

    def _rows(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield rows with the columns of the table, checked."""
        rows = (table_rows(table, self._names, self._columns) for table in tables)
        return check_values(rows, self._columns, self._partitions, self._sink.target)

    def _batches(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield batches and count their rows; keep an exception, of which deltalake keeps only the text."""
        try:
            for table in tables:
                self._count += table.num_rows
                yield from table.to_batches()
        except BaseException as error:
            self._error = error
            raise

    def _store(self, tables: Iterable[pa.Table], mode: Literal["append", "overwrite"]) -> None:
        batches = pa.RecordBatchReader.from_batches(table_arrow_schema(self._columns), self._batches(tables))
        with typed_errors(self._sink.path, self._table):
            try:
                write_deltalake(
                    self._table,
                    batches,
                    mode=mode,
                    schema_mode="overwrite" if self._overwrites_schema else None,
                    writer_properties=self._writer_properties(),
                    commit_properties=self._commit_properties(),
                )
            except Exception:
                # deltalake raises its own error with the text of the batches' error.
                if self._error is not None:
                    raise self._error from None
                raise

    def _writer_properties(self) -> WriterProperties:
        mode = mapping_mode(self._configuration)
        return writer_properties(self._columns, {f.name: physical_name(f, mode) for f in self._columns})

    def _commit_properties(self) -> CommitProperties:
        return CommitProperties(
            app_transactions=[Transaction(self._incoming.poller_id, self._incoming.last_version)],
            # deltalake repeats an append after a conflict; other commits must read the table again.
            max_commit_retries=None if self._sink.mode == "append" else 0,
        )


def quoted(name: str) -> str:
    """Return a column's name quoted for deltalake's SQL."""
    return "`" + name.replace("`", "``") + "`"
