"""Tasks of the files of a change feed: change rows as constants and selection vectors.

Where a version replaced a file's deletion vector, its change rows are the difference of the two vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from delta_sharing_client.cdf.options import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeOptions
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.expressions.record_counts import num_records
from delta_sharing_client.model.actions import AddFile, CdcFile, DeletionVector, FileAction, RemoveFile
from delta_sharing_client.parquet.tasks import FileScanTask, SelectionVector
from delta_sharing_client.scan.url_renewal import vector_file_id
from delta_sharing_client.secrets import unsigned_url

INSERT: Final = "insert"
DELETE: Final = "delete"


class ChangeTasks:
    """Makes the tasks of the files of a table's changes.

    A task's constants are `_commit_version` (not of a view) and `_commit_timestamp`, and `_change_type` unless
    the file has one.

    Args:
        subject: the table, for messages.
        query: the options of the changes.
        first: the first version of the range, if the options have none.
    """

    def __init__(self, subject: str, query: ChangeOptions, first: int | None = None) -> None:
        self._subject = subject
        self._first = first if query.starting_version is None else query.starting_version
        self._micros = query.commit_timestamp == "timestamp"
        # The files of one kind of change in a version share one mapping.
        self._constants: dict[tuple[str | None, int | None, int | None], Mapping[str, str | int | None]] = {}

    def of_changes(self, files: Sequence[FileAction]) -> list[FileScanTask]:
        """Return the tasks of the files of changes, by version, within a version in the server's order.

        Raises:
            ProtocolError: the files break the protocol.
        """
        versions: dict[int, list[FileAction]] = {}
        for file in files:
            if file.version is None:
                raise ProtocolError(f"{self._subject}: the changes name the file {file.id} without its version")
            if self._first is not None and file.version < self._first:
                raise ProtocolError(
                    f"{self._subject}: the changes from version {self._first} on contain the file "
                    f"{file.id} of version {file.version}"
                )
            versions.setdefault(file.version, []).append(file)
        return [task for version in sorted(versions) for task in self._of_version(versions[version])]

    def of_view(self, files: Sequence[FileAction]) -> list[FileScanTask]:
        """Return the tasks of the files of a view's changes, by time; each file has the final rows of its kind."""
        kinds = {AddFile: INSERT, RemoveFile: DELETE}
        changed = (file for file in files if file.data_change or isinstance(file, CdcFile))
        ordered = sorted(changed, key=lambda file: file.timestamp or 0)
        return [self._task(file, kinds.get(type(file)), None) for file in ordered]

    def of_snapshot(self, files: Sequence[FileAction], version: int) -> list[FileScanTask]:
        """Return the tasks of the files of a whole table, each row as one inserted by a version."""
        return [self._task(structs.replace(file, version=version), INSERT, file.deletion_vector) for file in files]

    def _of_version(self, files: Sequence[FileAction]) -> Iterator[FileScanTask]:
        written = [file for file in files if isinstance(file, CdcFile)]
        if written:
            # They have all changed rows; added and removed files of the version have the same rows again.
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
        """Return the other action of each file that a version both removed and added, by `id`."""
        removed = {file.id: file for file in files if isinstance(file, RemoveFile)}
        added = {file.id: file for file in files if isinstance(file, AddFile)}
        if len(removed) + len(added) != len(files):
            raise ProtocolError(
                f"{self._subject}: version {files[0].version} names a file with two different deletion vectors"
            )
        if not removed or not added:
            return {}
        pairs: list[tuple[FileAction, FileAction]] = [
            (file, added[name]) for name, file in removed.items() if name in added
        ]
        # If a server's ids change with the vector, the object of the store is still the same, unless the store's
        # URLs differ in their query strings alone.
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
        """Yield the rows that a new deletion vector deletes, and the rows that it restores."""
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
        selection: SelectionVector | None = None,
    ) -> FileScanTask:
        key = (change, file.version, file.timestamp)
        constants = self._constants.get(key)
        if constants is None:
            time = file.timestamp
            constants = self._constants[key] = {
                **({} if change is None else {CHANGE_TYPE: change}),
                **({} if file.version is None else {COMMIT_VERSION: file.version}),
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
            selection=selection,
        )


def _same_vector(one: FileAction, other: FileAction) -> bool:
    """Whether two actions name the same deletion vector, or both none."""
    old, new = one.deletion_vector, other.deletion_vector
    if old is None or new is None:
        return old is new
    if (old.storage_type, old.offset, old.cardinality) != (new.storage_type, new.offset, new.cardinality):
        return False
    if old.is_inline:
        return old.path_or_inline == new.path_or_inline
    return vector_file_id(one) == vector_file_id(other)
