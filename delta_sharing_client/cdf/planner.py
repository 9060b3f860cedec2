"""A frozen query for changes becomes a plan: one request, its actions turned into tasks.

Serves "Read Change Data Feed from a Table". The tasks are those of a scan, with what a change adds to its rows
as constants. Where a version replaced a file's deletion vector, its change rows are the difference of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import structs

from delta_sharing_client.cdf.options import ChangeOptions, CommitTimestamp
from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.errors import ColumnError, ProtocolError, UnsupportedTableError
from delta_sharing_client.expressions.statistics import num_records
from delta_sharing_client.model.actions import (
    AddFile,
    CdcFile,
    DeletionVector,
    FileAction,
    RemoveFile,
)
from delta_sharing_client.model.column_mapping import MappingMode
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec, SelectionVector
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import project, read_spec
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.url_renewal import vector_file_id
from delta_sharing_client.secrets import unsigned_url
from delta_sharing_client.wire.requests import QueryRequest

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
#: What every change row carries beside the table's columns, and after them.
CHANGE_COLUMNS: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)

INSERT: Final = "insert"
DELETE: Final = "delete"


@dataclass(frozen=True, kw_only=True)
class ChangesPlan(ScanPlan):
    """A query for changes answered.

    Its `version` is the first version of the range where the server told, its `metadata` and `protocol` those
    at the end of the range. A task's constants hold `_commit_version` and `_commit_timestamp`, and
    `_change_type` unless the file's rows have their own.

    Attributes:
        history: the table's metadata in the range, oldest first.
    """

    history: TableHistory = field(repr=False)


def plan_changes(rest: RestClient, table: Table, query: ChangeOptions) -> ChangesPlan:
    """Ask the server for the files of a table's changes and plan what to read of them: one request.

    The rows have the table's columns as they are at the end of the range: one that was added within it is null
    before that.

    Raises:
        SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
        UnsupportedTableError: the table needs something that this release cannot read.
        ColumnError: the projection does not fit the table.
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    what = f"table {table.full_name}"
    columns = _table_columns(query.columns)
    answer = rest.table_changes(table, query.request())
    history = TableHistory.of(answer, query.ending_version, what)
    history.check(columns, what)
    metadata, protocol = history.last, history.protocol
    spec = change_spec(
        read_spec(metadata, columns, None, query.variant, protocol),
        query.commit_timestamp,
        mapping=history.mapping,
        what=what,
    )
    tasks = list(change_tasks(answer.items, query, what, answer.version))
    request = answer.request
    versions = [int(task.constants[COMMIT_VERSION] or 0) for task in tasks]
    if versions and query.ending_version is None and query.ending_timestamp is None:
        # Files that are asked for again, with fresh URLs, are those of the same versions.
        request = replace(request, ending_version=max(versions))
    return ChangesPlan(
        table=table,
        version=answer.version,
        protocol=protocol,
        metadata=metadata,
        spec=spec,
        tasks=tasks,
        pruned={},
        limit=None,
        request=request,
        end=answer.end,
        history=history,
    )


def plan_snapshot_as_inserts(rest: RestClient, table: Table, version: int, query: ChangeOptions) -> ChangesPlan:
    """Plan to read the whole table as of a version, each row as one inserted by it.

    Args:
        rest: the server.
        table: the table, shared with its history.
        version: the version.
        query: which columns to read, and in which form; its range counts for nothing.

    Raises:
        As `plan_changes`.
    """
    what = f"table {table.full_name}"
    columns = _table_columns(query.columns)
    request = QueryRequest(formats=query.formats, version=version)
    answer = rest.query_table(table, request)
    answer.protocol.check_readable(what)
    spec = read_spec(answer.metadata, columns, None, query.variant, answer.protocol)
    return ChangesPlan(
        table=table,
        version=version,
        protocol=answer.protocol,
        metadata=answer.metadata,
        spec=change_spec(spec, query.commit_timestamp, what=what),
        tasks=list(inserted_tasks(answer.items, version, query, what)),
        pruned={},
        limit=None,
        request=answer.request,
        end=answer.end,
        history=TableHistory((answer.metadata,), (answer.protocol,)),
    )


def _table_columns(columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the table's columns that are asked for.

    Raises:
        ColumnError: one of those that every change has is among them.
    """
    names = None if columns is None else tuple(columns)
    taken = [name for name in names or () if isinstance(name, str) and name.lower() in CHANGE_COLUMNS]
    if taken:
        raise ColumnError(
            f"columns names {', '.join(map(repr, taken))}, which every change has: leave it out of columns",
            columns=taken,
        )
    return names


def change_schema(columns: StructType, commit_timestamp: CommitTimestamp, what: str = "the table") -> StructType:
    """Return columns of a table with those of its changes after them.

    Raises:
        UnsupportedTableError: the table has a column of such a name itself.
    """
    taken = [name for name in columns.names if name.lower() in CHANGE_COLUMNS]
    if taken:
        raise UnsupportedTableError(
            f"{what} has a column {taken[0]!r} of its own, a name that its changes need; "
            "choose the others with columns=[...]"
        )
    types = ("string", "long", commit_timestamp)
    added = (StructField(name, PrimitiveType(kind)) for name, kind in zip(CHANGE_COLUMNS, types, strict=True))
    return StructType((*columns.fields, *added))


def change_spec(
    spec: ReadSpec,
    commit_timestamp: CommitTimestamp,
    *,
    mapping: MappingMode | None = None,
    what: str = "the table",
) -> ReadSpec:
    """Return what to read of the files of changes, from what to read of the table's own.

    Args:
        spec: for the table's columns.
        commit_timestamp: the type of the commit's time.
        mapping: how columns are found; as `spec` says without.
        what: the table, for messages.

    Raises:
        UnsupportedTableError: the table has a column of a name that its changes need.
    """
    return replace(
        spec,
        output=change_schema(spec.output, commit_timestamp, what),
        mapping=spec.mapping if mapping is None else mapping,
        unmapped=frozenset(CHANGE_COLUMNS),
    )


def change_tasks(
    files: Sequence[FileAction], query: ChangeOptions, what: str, first: int | None = None
) -> Iterator[FileScanTask]:
    """Yield what to read of the files of changes: version by version, within a version in the server's order.

    A task's constants hold `_commit_version` and `_commit_timestamp`, and `_change_type` unless the file's rows
    have their own.

    Args:
        files: the answer's files.
        query: which changes they are.
        what: the table, for messages.
        first: the first version of the range, where the query does not say it.

    Raises:
        ProtocolError: the files break the protocol.
    """
    yield from _Tasks(what, query, first).of(files)


def inserted_tasks(
    files: Sequence[FileAction], version: int, query: ChangeOptions, what: str
) -> Iterator[FileScanTask]:
    """Yield what to read of the files of a whole table, each row as one inserted by a version.

    Args:
        files: the answer's files.
        version: the version.
        query: in which form its columns are wanted; its range counts for nothing.
        what: the table, for messages.
    """
    maker = _Tasks(what, query, version)
    return (maker.inserted(file, version) for file in files)


class _Tasks:
    """Makes the tasks of an answer: version by version, within a version in the server's order."""

    def __init__(self, what: str, query: ChangeOptions, first: int | None) -> None:
        self._what = what
        self._first = first if query.starting_version is None else query.starting_version
        self._micros = query.commit_timestamp == "timestamp"
        # Of each kind of change in a version there is one mapping, which its files share.
        self._constants: dict[tuple[str | None, int, int | None], Mapping[str, str | int | None]] = {}

    def of(self, files: Sequence[FileAction]) -> Iterator[FileScanTask]:
        """Yield the tasks of the files of all versions."""
        versions: dict[int, list[FileAction]] = {}
        for file in files:
            if file.version is None:
                raise ProtocolError(f"{self._what}: the changes name the file {file.id} without its version")
            if self._first is not None and file.version < self._first:
                raise ProtocolError(
                    f"{self._what}: asked for changes from version {self._first} on, the server names the file "
                    f"{file.id} of version {file.version}"
                )
            versions.setdefault(file.version, []).append(file)
        for version in sorted(versions):
            yield from self._of_version(versions[version])

    def inserted(self, file: FileAction, version: int) -> FileScanTask:
        """Return the task of a file of a snapshot."""
        return self._task(structs.replace(file, version=version), INSERT, file.deletion_vector)

    def _of_version(self, files: Sequence[FileAction]) -> Iterator[FileScanTask]:
        written = [file for file in files if isinstance(file, CdcFile)]
        if written:
            # They say all that changed; what was added and removed beside them is the same rows again.
            yield from (self._task(file, None, file.deletion_vector) for file in written)
            return
        changed = [file for file in files if file.data_change]
        partners = self._partners(changed)
        done: set[int] = set()
        for file in changed:
            if id(file) in done:
                continue
            partner = partners.get(id(file))
            if partner is not None:
                done.add(id(partner))
                removed, added = (file, partner) if isinstance(file, RemoveFile) else (partner, file)
                yield from self._difference(removed, added)
            else:
                yield self._task(file, INSERT if isinstance(file, AddFile) else DELETE, file.deletion_vector)

    def _partners(self, files: Sequence[FileAction]) -> dict[int, FileAction]:
        """Return of each file that a version both removed and added its other action."""
        removed = {file.id: file for file in files if isinstance(file, RemoveFile)}
        added = {file.id: file for file in files if isinstance(file, AddFile)}
        if len(removed) + len(added) != len(files):
            raise ProtocolError(
                f"{self._what}: version {files[0].version} names a file with two different deletion vectors"
            )
        if not removed or not added:
            return {}
        pairs: list[tuple[FileAction, FileAction]] = [
            (file, added[name]) for name, file in removed.items() if name in added
        ]
        # Of a server whose ids change with the vector, the file is still the same object of the store; unless the
        # URLs of the store tell files apart by their query strings alone.
        left = [file for file in files if not (file.id in removed and file.id in added)]
        named = Counter((type(file), unsigned_url(file.url)) for file in left)
        others = {unsigned_url(file.url): file for file in left if isinstance(file, AddFile)}
        for file in left:
            url = unsigned_url(file.url)
            other = others.get(url) if isinstance(file, RemoveFile) else None
            if other is None or named[RemoveFile, url] > 1 or named[AddFile, url] > 1:
                continue
            if file.size == other.size and (file.deletion_vector or other.deletion_vector) is not None:
                pairs.append((file, other))
        return {id(one): other for pair in pairs for one, other in (pair, pair[::-1])}

    def _difference(self, removed: FileAction, added: FileAction) -> Iterator[FileScanTask]:
        """The rows that a file lost, and those that it got back, when its deletion vector was replaced."""
        old, new = removed.deletion_vector, added.deletion_vector
        if _same_vector(removed, added):
            return
        if new is not None:
            yield self._task(added, DELETE, old, removed, SelectionVector(new, vector_file_id(added)))
        if old is not None:
            yield self._task(added, INSERT, new, added, SelectionVector(old, vector_file_id(removed)))

    def _task(
        self,
        file: FileAction,
        change: str | None,
        deleted: DeletionVector | None,
        vector_of: FileAction | None = None,
        only: SelectionVector | None = None,
    ) -> FileScanTask:
        key = (change, file.version or 0, file.timestamp)
        constants = self._constants.get(key)
        if constants is None:
            time = file.timestamp
            constants = self._constants[key] = {
                **({} if change is None else {CHANGE_TYPE: change}),
                COMMIT_VERSION: file.version,
                COMMIT_TIMESTAMP: time * 1000 if self._micros and time is not None else time,
            }
        return FileScanTask(
            url=file.url,
            file_id=file.id,
            size=file.size,
            partition_values=file.partition_values,
            num_records=num_records(file.stats),
            expiration=file.expiration_timestamp,
            deletion_vector=deleted,
            deletion_vector_id=vector_file_id(vector_of or file),
            constants=constants,
            only=only,
        )


def _same_vector(one: FileAction, other: FileAction) -> bool:
    """Whether two actions name the same deletion vector, or both none."""
    old, new = one.deletion_vector, other.deletion_vector
    if old is None or new is None:
        return old is new
    if (old.storage_type, old.offset, old.cardinality) != (new.storage_type, new.offset, new.cardinality):
        return False
    if old.storage_type == "i":
        return old.path_or_inline == new.path_or_inline
    return vector_file_id(one) == vector_file_id(other)


def project_changes(columns: StructType, names: Iterable[str] | None) -> StructType:
    """Return the table's columns that a query for changes asks for.

    Raises:
        ColumnError: a name is unknown, given twice, or one of those that every change has.
    """
    return project(columns, _table_columns(names))
