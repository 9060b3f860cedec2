"""`LocalTable`: the common steps of materialized tables and mirrors."""

from __future__ import annotations

import contextlib
import errno
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from delta_sharing_client.delta.table.file_download import (
    PARTIAL,
    PRIVATE_FOLDER,
    RemoteFile,
    StoredFile,
    fetch_files,
)
from delta_sharing_client.delta.table.local_names import VECTORS
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.frames.progress import byte_progress
from delta_sharing_client.locks import file_lock
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.log.durable_files import (
    make_directories,
    remove_quietly,
    sync_directory,
    write_durably,
    writing,
)
from delta_sharing_client.log.log_segment import LOG_DIRECTORY
from delta_sharing_client.log.paths import check_is_directory
from delta_sharing_client.log.symbolic_links import refuse_links
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.url_renewal import UrlRenewer
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.wire.answers import Answer, keep_blocks
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import QueryRequest, send_in_format

#: Exists while files are written, and after a run that failed. Earlier releases stored a list of paths in it.
_UNFINISHED: Final = "pending.json"
_LOCK: Final = "lock"
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
#: Names in a table's directory: hidden ones, data files, folders of partitions, deletion vectors.
_TABLE_NAMES: Final = re.compile(rf"[_.].*|.*\.parquet|.*=.*|{VECTORS}", re.DOTALL)


@contextlib.contextmanager
def exclusive(directory: Path) -> Iterator[bool]:
    """Hold the lock of a local table, against all processes of this machine; waits for it.

    Yields:
        False if the file system has no locks. Commits are atomic without a lock too, but the unfinished files of
        another run cannot be distinguished from those of a crashed one.

    Raises:
        DeltaLogError: the lock file cannot be created.
    """
    folder = directory / PRIVATE_FOLDER
    lock = file_lock(folder / _LOCK)
    with writing("the data", directory):
        while not lock.is_locked:
            make_directories(folder)
            try:
                lock.acquire()
            except FileNotFoundError:  # another run has removed the folder at its end
                continue
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                break
    try:
        yield lock.is_locked
    finally:
        lock.release()


@dataclass(frozen=True)
class LocalTable:
    """A local table to which files of a shared table are copied.

    Attributes:
        rest: the server.
        storage: opens the files.
        shared: the shared table.
        directory: the local table's directory.
        progress: show a progress bar; None to show it in a terminal or notebook only.
    """

    rest: RestClient
    storage: StorageReader
    shared: Table
    directory: Path
    progress: bool | None = None

    def new_log(self, *, allow_absolute_paths: bool = False) -> DeltaLog:
        """Open the log of a new table.

        Raises:
            DeltaLogError: the directory contains a table or other files, or is not a directory.
        """
        check_is_directory(self.directory)
        log = DeltaLog.for_table(self.directory, allow_absolute_paths=allow_absolute_paths)
        self.check_directory(log)
        if log.table_exists:
            raise DeltaLogError(
                "the directory already contains a Delta table; give an empty directory, or remove the table",
                path=str(self.directory),
            )
        return log

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of a new table while its files and its log are written; waits for another run.

        Raises:
            DeltaLogError: the other run has made the table, or the lock file cannot be created.
        """
        with exclusive(self.directory):
            try:
                self.new_log()
                yield
            finally:
                remove_quietly(self._unfinished.with_name(_LOCK))
                with contextlib.suppress(OSError):  # unfinished files remain
                    self._unfinished.parent.rmdir()

    def check_directory(self, log: DeltaLog) -> None:
        """Check that nothing is written through a link, and that a new table does not mix with other files.

        Raises:
            DeltaLogError: a folder for the log or for unfinished files contains a link, or the directory of a new
                table contains files that do not belong to a table.
        """
        refuse_links(self.directory, LOG_DIRECTORY, PRIVATE_FOLDER)
        if log.table_exists or not self.directory.is_dir():
            return
        names = sorted(entry.name for entry in self.directory.iterdir())
        if LOG_DIRECTORY in names or PRIVATE_FOLDER in names:  # of an unfinished table
            return
        foreign = [name for name in names if not _TABLE_NAMES.fullmatch(name)]
        if foreign:
            raise DeltaLogError(
                f"the directory contains other files, such as {foreign[0]!r}; give an empty or new directory",
                path=str(self.directory),
            )

    def list_files(
        self, request: QueryRequest, known_format: ResponseFormat | None = None
    ) -> Answer[FileBlock, QueryRequest]:
        """Request the shared table's files, in the response format of known ids if possible.

        Serves "Read Data from a Table".

        Raises:
            UnsupportedTableError: the table needs something that this release cannot read.
            DeltaSharingError: the request failed, or its answer cannot be used.
        """
        latest = request.version is None and request.timestamp is None
        answer = send_in_format(
            replace(request, include_refresh_token=latest),
            known_format or self.unfinished_format,
            lambda request: self.rest.query_table(self.shared, request, keep_blocks),
        )
        answer.protocol.check_readable(f"table {self.shared.full_name}")
        return answer

    def download(self, answer: Answer[Any, Any], files: Iterable[RemoteFile]) -> dict[str, StoredFile]:
        """Fetch files of an answer, with a progress bar; see `fetch_files`."""
        self.record_unfinished(answer.protocol.response_format)
        by_path = {file.path: file for file in files}
        renewer = UrlRenewer(self.rest, self.shared, answer, (file.expires for file in by_path.values()))
        storage, renewal = answer.source or (self.storage, renewer)
        total = sum(file.size for file in by_path.values())
        with byte_progress(total, self.progress, self.shared.name) as advance:
            files = list(by_path.values())
            return fetch_files(storage, self.directory, files, renewal=renewal, advance=advance)

    @property
    def _unfinished(self) -> Path:
        return self.directory / PRIVATE_FOLDER / _UNFINISHED

    @property
    def is_unfinished(self) -> bool:
        """Whether an earlier run failed while it wrote files."""
        return self._unfinished.exists()

    @property
    def unfinished_format(self) -> ResponseFormat | None:
        """The response format of the files of a failed run; None if it is not recorded."""
        try:
            found = json.loads(self._unfinished.read_bytes())["responseFormat"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return "parquet" if found == "parquet" else "delta" if found == "delta" else None

    def record_unfinished(self, response_format: ResponseFormat) -> None:
        """Record that files are written, and the response format on which their names depend.

        Raises:
            DeltaLogError: it cannot be written.
        """
        if self.unfinished_format == response_format:
            return
        folder = self._unfinished.parent
        with writing("the data", self.directory):
            make_directories(folder)
            write_durably(self._unfinished, json.dumps({"responseFormat": response_format}).encode())
            sync_directory(folder)

    def finish(self) -> None:
        """Remove the record of unfinished files, and the folders for them if they are empty."""
        remove_quietly(self._unfinished)
        for folder in (self._unfinished.parent / PARTIAL, self._unfinished.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()
