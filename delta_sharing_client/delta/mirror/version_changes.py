"""`VersionChanges`: the files that versions of a shared table added and removed since a mirror's last sync.

Serves "Read Data from a Table" with `startingVersion`. The answer grows with the changes and not with the table.
Servers leave out the actions that rearrange files without changing data. So the changes are used only if they
explain each version; otherwise the whole table must be listed:

- The table has the metadata and the protocol of the mirror before, within and after the range of versions.
- Each version of the range adds or removes a file. A version that does neither may have compacted files.
- The mirror has each removed file, and lacks each added file.

A server that leaves removed files out passes these checks; `Completeness` has the rules that notice it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delta_sharing_client.delta.mirror.known_files import KnownFiles
from delta_sharing_client.delta.mirror.state import key_of, response_format, shared_version
from delta_sharing_client.delta.table.local_actions import vector_identity
from delta_sharing_client.errors import ProtocolError, QueryError, RestError
from delta_sharing_client.log import Snapshot
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import AddFile, FileAction, Metadata, RemoveFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.wire.answers import Answer, TableInfo
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import VersionsRequest

logger = module_logger(__name__)

#: The most versions whose changes are requested; the whole table is listed after more of them.
MAX_VERSIONS: Final = 1_000
#: Statuses of a server that is overloaded, or that refuses the credential; it would refuse a listing too.
_NOT_ABOUT_CHANGES: Final = frozenset({401, 403, 429, 502, 503, 504})


@dataclass(frozen=True, kw_only=True)
class ChangedFiles:
    """The files that changed between two versions.

    Attributes:
        version: the later version.
        answer: the answer of the server.
        metadata: the metadata of the later version.
        known: the mirror's files.
        rows: the rows of the changed files among them.
        listed: the changed files that the shared table still has, as in a listing of the later version.
    """

    version: int
    answer: Answer[FileAction, Any] = field(repr=False)
    metadata: Metadata = field(repr=False)
    known: KnownFiles
    rows: list[int]
    listed: list[FileBlock]


@dataclass(kw_only=True)
class VersionChanges:
    """Requests the changes of one shared table during one sync.

    Attributes:
        rest: the server.
        table: the shared table.
        described: the metadata of a version, if it is known, in the response format of the mirror.
        is_changed: whether metadata and protocol of the shared table are not those of a mirror's version.
        refused: the server refused such a request; no further one is sent.
    """

    rest: RestClient
    table: Table
    is_changed: Callable[[Snapshot, TableInfo], bool]
    described: TableInfo | None = None
    refused: bool = False

    def since(self, snapshot: Snapshot, version: int) -> ChangedFiles | None:
        """Return the changes from a mirror's version to a later version of the shared table.

        Returns:
            None if the whole table must be listed.

        Raises:
            DeltaSharingError: the server cannot be reached, or refuses the credential.
        """
        current, known_format = shared_version(snapshot), response_format(snapshot)
        if self.refused or current is None or known_format is None:
            return None
        if not 0 < version - current <= MAX_VERSIONS:
            return None
        request = VersionsRequest(
            formats=(known_format,),
            starting_version=current + 1,
            ending_version=version,
            include_historical_protocol=known_format == "delta",
        )
        try:
            info = self.described
            if info is None or info.version != version:
                info = self.rest.table_metadata(self.table, request.formats, version=version)
            if info.version != version or self.is_changed(snapshot, info):
                return None
            answer = self.rest.table_changes(self.table, request)
        except (RestError, ProtocolError, QueryError) as error:
            if isinstance(error, RestError) and error.status in _NOT_ABOUT_CHANGES:
                raise
            logger.info("%s: the whole table is listed: %s", self.table.full_name, error)
            self.refused = True
            return None
        if answer.version not in (None, current + 1) or self.is_changed(snapshot, answer):
            return None
        if answer.historical or answer.protocols:
            return None
        if {file.version for file in answer.items} != {*range(current + 1, version + 1)}:
            return None
        return _changed_files(snapshot, version, info.metadata, answer)


def _changed_files(
    snapshot: Snapshot, version: int, metadata: Metadata, answer: Answer[FileAction, Any]
) -> ChangedFiles | None:
    known = KnownFiles(snapshot.state)
    rows = known.rows_of({file.id for file in answer.items})
    before = {key[0]: key[1] for key in map(key_of, known.actions(rows))}
    after = _replayed(answer.items, before)
    if after is None or len(before) != len(rows):
        return None
    listed = [file for file in after.values() if file is not None]
    return ChangedFiles(
        version=version,
        answer=answer,
        metadata=metadata,
        known=known,
        rows=rows,
        listed=[FileBlock.of(listed)],
    )


def _replayed(files: Sequence[FileAction], before: dict[str, str]) -> dict[str, FileAction | None] | None:
    """Return the last state of each changed file by its id, None for a removed one.

    Args:
        files: the changes.
        before: the ids of the deletion vectors of the mirror's files, by the ids of these files.

    Returns:
        None if a change does not fit the state before it.
    """
    vectors = dict(before)
    after: dict[str, FileAction | None] = {}
    # Within a version a file is removed with one deletion vector and added with another.
    for file in sorted(files, key=lambda file: (file.version or 0, not isinstance(file, RemoveFile))):
        vector = vector_identity(file)
        if isinstance(file, RemoveFile):
            if vectors.pop(file.id, None) != vector:
                return None
            after[file.id] = None
        elif isinstance(file, AddFile) and file.id not in vectors:
            vectors[file.id] = vector
            after[file.id] = file
        else:
            return None
    return after
