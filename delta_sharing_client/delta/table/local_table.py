"""Common steps of materialized tables and mirrors: checks of the directory, listing, download of the files."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.delta.log import DeltaLog
from delta_sharing_client.delta.log.durable_files import (
    make_directories,
    remove_quietly,
    sync_directory,
    write_durably,
    writing,
)
from delta_sharing_client.delta.log.log_segment import LOG_DIRECTORY
from delta_sharing_client.delta.log.symbolic_links import refuse_links
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
from delta_sharing_client.model.actions import FileAction, ResponseFormat
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.url_renewal import UrlRenewer
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.wire.answers import Answer
from delta_sharing_client.wire.requests import QueryRequest

#: Exists while files are written, and after a run that failed. Earlier releases stored a list of paths in it.
_UNFINISHED: Final = "pending.json"
#: Names in a table's directory: hidden ones, data files, folders of partitions, deletion vectors.
_TABLE_NAMES: Final = re.compile(rf"[_.].*|.*\.parquet|.*=.*|{VECTORS}", re.DOTALL)


def new_log(directory: str | os.PathLike[str], *, allow_absolute_paths: bool = False) -> DeltaLog:
    """Open the log of a new table.

    Raises:
        DeltaLogError: the directory contains a table or other files, or is not a directory.
    """
    log = DeltaLog.for_table(directory, allow_absolute_paths=allow_absolute_paths)
    check_directory(log)
    if log.table_exists:
        raise DeltaLogError(
            "the directory already contains a Delta table; give an empty directory, or remove the table",
            path=str(log.table_path),
        )
    if log.table_path.exists() and not log.table_path.is_dir():
        raise DeltaLogError("this is a file, not a directory", path=str(log.table_path))
    return log


def check_directory(log: DeltaLog) -> None:
    """Check that nothing is written through a link, and that a new table does not mix with other files.

    Raises:
        DeltaLogError: a folder for the log or for unfinished files contains a link, or the directory of a new
            table contains files that do not belong to a table.
    """
    folder = log.table_path
    refuse_links(folder, LOG_DIRECTORY, PRIVATE_FOLDER)
    if log.table_exists or not folder.is_dir():
        return
    names = sorted(entry.name for entry in folder.iterdir())
    if LOG_DIRECTORY in names or PRIVATE_FOLDER in names:  # of an unfinished table
        return
    foreign = [name for name in names if not _TABLE_NAMES.fullmatch(name)]
    if foreign:
        raise DeltaLogError(
            f"the directory contains other files, such as {foreign[0]!r}; give an empty or new directory",
            path=str(folder),
        )


def list_files(rest: RestClient, table: Table, request: QueryRequest) -> Answer[FileAction, QueryRequest]:
    """Request a table's files.

    Serves "Read Data from a Table".

    Raises:
        UnsupportedTableError: the table needs something that this release cannot read.
        DeltaSharingError: the request failed, or its answer cannot be used.
    """
    latest = request.version is None and request.timestamp is None
    answer = rest.query_table(table, replace(request, include_refresh_token=latest))
    answer.protocol.check_readable(f"table {table.full_name}")
    return answer


def download(
    rest: RestClient,
    storage: StorageReader,
    table: Table,
    answer: Answer[FileAction, Any],
    files: Iterable[RemoteFile],
    directory: Path,
    *,
    progress: bool | None,
) -> dict[str, StoredFile]:
    """Fetch files of an answer into a table's directory, with a progress bar; see `fetch_files`."""
    by_path = {file.path: file for file in files}
    renewer = UrlRenewer(rest, table, answer, (file.expiration_timestamp for file in answer.items))
    with byte_progress(sum(file.size for file in by_path.values()), progress, table.name) as advance:
        return fetch_files(storage, directory, list(by_path.values()), refresh=renewer, advance=advance)


def record_unfinished(directory: Path, response_format: ResponseFormat) -> None:
    """Record that files are written to a directory, and the response format on which their names depend.

    Raises:
        DeltaLogError: it cannot be written.
    """
    folder = directory / PRIVATE_FOLDER
    if unfinished_format(directory) == response_format:
        return
    with writing("the data", directory):
        make_directories(folder)
        write_durably(folder / _UNFINISHED, json.dumps({"responseFormat": response_format}).encode())
        sync_directory(folder)


def is_unfinished(directory: Path) -> bool:
    """Return whether an earlier run failed while it wrote files to a directory."""
    return (directory / PRIVATE_FOLDER / _UNFINISHED).exists()


def unfinished_format(directory: Path) -> ResponseFormat | None:
    """Return the response format of the files of a failed run; None if it is not recorded."""
    try:
        found = json.loads((directory / PRIVATE_FOLDER / _UNFINISHED).read_bytes())["responseFormat"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return "parquet" if found == "parquet" else "delta" if found == "delta" else None


def finish(directory: Path) -> None:
    """Remove the record of unfinished files, and the folders for them if they are empty."""
    remove_quietly(directory / PRIVATE_FOLDER / _UNFINISHED)
    for folder in (directory / PRIVATE_FOLDER / PARTIAL, directory / PRIVATE_FOLDER):
        with contextlib.suppress(OSError):
            folder.rmdir()
