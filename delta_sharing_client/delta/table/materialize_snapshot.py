"""Materialization of a snapshot as a local Delta table."""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from delta_sharing_client.delta.log import DeltaLog
from delta_sharing_client.delta.log.durable_files import make_directories, remove_quietly, replace_file, writing
from delta_sharing_client.delta.log.log_segment import LOG_DIRECTORY
from delta_sharing_client.delta.log.symbolic_links import refuse_links
from delta_sharing_client.delta.table.file_download import (
    PARTIAL,
    PRIVATE_FOLDER,
    Fetched,
    fetch_files,
)
from delta_sharing_client.delta.table.local_actions import Copier, LocalFile, now_in_ms
from delta_sharing_client.delta.table.local_metadata import local_metadata, local_protocol
from delta_sharing_client.delta.table.local_names import VECTORS
from delta_sharing_client.delta.table.shared_listing import Listing, list_table
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.frames.progress import byte_progress
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.wire.requests import QueryRequest, ask_again

#: Says of an unfinished copy which response format its files were listed in.
_NOTE: Final = "listed.json"

MaterializedData: TypeAlias = Literal["files", "urls"]


class SignedUrlsWarning(UserWarning):
    """Warning that a log on disk has pre-signed URLs, which grant access to the data until they expire."""


@dataclass(frozen=True, kw_only=True)
class Materialized:
    """What was written.

    Attributes:
        path: the table's directory.
        version: the newest version of the local table.
        shared_version: the version of the shared table, if the server reports it.
        files: how many data files the local table has.
        bytes_fetched: bytes of data that were downloaded.
    """

    path: Path
    version: int
    shared_version: int | None
    files: int
    bytes_fetched: int


def check_data(value: str) -> MaterializedData:
    """Return what a copy's log names; raise `ValueError` for anything but ``files`` and ``urls``."""
    if value == "files":
        return "files"
    if value == "urls":
        return "urls"
    raise ValueError(f"data is {value!r}; it takes 'files' or 'urls'")


#: Names in a table's directory: hidden ones, data files, folders of partitions.
_OURS: Final = re.compile(r"^[_.]|\.parquet$|=")


def new_log(directory: str | os.PathLike[str], *, allow_absolute_paths: bool = False) -> DeltaLog:
    """Open the log of a table that is not there yet.

    Raises:
        DeltaLogError: there is a table in the directory, or it is no directory.
    """
    log = DeltaLog.for_table(directory, allow_absolute_paths=allow_absolute_paths)
    check_place(log)
    if log.table_exists:
        raise DeltaLogError(
            "there is a Delta table in this directory already; give an empty one, or remove it",
            path=str(log.table_path),
        )
    if log.table_path.exists() and not log.table_path.is_dir():
        raise DeltaLogError("this is a file, not a directory", path=str(log.table_path))
    return log


def check_place(log: DeltaLog) -> None:
    """Check that nothing is written through a link, and no new table among other things.

    Raises:
        DeltaLogError: there is a link in the folders for the log and for unfinished files, or the directory of a
            new table holds something that is no part of a table.
    """
    folder = log.table_path
    refuse_links(folder, LOG_DIRECTORY, PRIVATE_FOLDER)
    if log.table_exists or not folder.is_dir():
        return
    names = sorted(entry.name for entry in folder.iterdir())
    if "_delta_log" in names or PRIVATE_FOLDER in names:  # begun before
        return
    foreign = [name for name in names if not _OURS.search(name) and name != VECTORS]
    if foreign:
        raise DeltaLogError(
            f"the directory holds other things, such as {foreign[0]!r}; give an empty one, or a new one inside it",
            path=str(folder),
        )


def materialize_snapshot(
    rest: RestClient,
    storage: StorageReader,
    table: Table,
    request: QueryRequest,
    directory: str | os.PathLike[str],
    *,
    data: MaterializedData = "files",
    progress: bool | None = None,
) -> Materialized:
    """Write a shared table's snapshot as a local Delta table of one version.

    The data files are written before the commit. After a crash, another call keeps the files that are complete.

    Args:
        rest: the server.
        storage: fetches the files.
        table: the table.
        request: which snapshot.
        directory: the local table's directory, made where it is missing.
        data: ``files`` downloads the files; ``urls`` names them by their signed URLs.
        progress: show a progress bar; by default in a terminal or notebook only.

    Raises:
        DeltaLogError: there is a table in the directory already, or it cannot be written.
        DeltaSharingError: the server could not be asked, or a file could not be fetched.
    """
    urls = data == "urls"
    log = new_log(directory, allow_absolute_paths=urls)
    listing = ask_again(request, noted_format(log.table_path), lambda asked: list_table(rest, table, asked))
    copier = Copier(listing.protocol, listing.metadata)
    files = [copier.file(action) for action in listing.files]
    now = now_in_ms()
    fetched: dict[str, Fetched] = {}
    if urls:
        actions = [file.by_url(now_ms=now) for file in files]
    else:
        note_format(log.table_path, listing.protocol.response_format)
        fetched = fetch_all(storage, log.table_path, listing, files, progress)
        actions = [file.add(fetched, now_ms=now) for file in files]
    head: list[dict[str, Any]] = [
        {"protocol": local_protocol(listing.protocol, listing.metadata)},
        {"metaData": local_metadata(listing.protocol, listing.metadata, table_id(table))},
    ]
    parameters = {"table": table.full_name, "sharedVersion": listing.version, "data": data}
    version = log.start_transaction().commit([*head, *actions], "MATERIALIZE", parameters, private=urls)
    if urls:
        warnings.warn(
            f"{log.table_path}/_delta_log holds pre-signed URLs: anyone who can read it can read the data until "
            "they expire. Only its owner has access now; delete it when it is no longer needed",
            SignedUrlsWarning,
            stacklevel=3,
        )
    else:
        remove_private(log.table_path)
    return Materialized(
        path=log.table_path,
        version=version,
        shared_version=listing.version,
        files=len(files),
        bytes_fetched=sum(item.fetched for item in fetched.values()),
    )


def fetch_all(
    storage: StorageReader,
    directory: Path,
    listing: Listing,
    files: Sequence[LocalFile],
    progress: bool | None,
) -> dict[str, Fetched]:
    """Fetch what files need that is not there yet, with a progress bar; see `fetch_files`."""
    wanted = {item.path: item for file in files for item in file.wanted()}
    with byte_progress(sum(item.size for item in wanted.values()), progress, listing.table.name) as advance:
        return fetch_files(storage, directory, list(wanted.values()), refresh=listing.refresh, advance=advance)


def table_id(table: Table) -> str:
    """Return the id of a copy of a table without an id; it depends on the table's name alone."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"delta-sharing:{table.full_name.lower()}"))


def note_format(directory: Path, response_format: ResponseFormat) -> None:
    """Record the response format of the ids in file names, for a call after a crash.

    Raises:
        DeltaLogError: the note cannot be written.
    """
    with writing("the data", directory):
        make_directories(directory / PRIVATE_FOLDER)
        replace_file(directory / PRIVATE_FOLDER / _NOTE, json.dumps({"responseFormat": response_format}).encode())


def noted_format(directory: Path) -> ResponseFormat | None:
    """Return the response format that an unfinished copy's files are named in; None where there is none."""
    try:
        found = json.loads((directory / PRIVATE_FOLDER / _NOTE).read_bytes())["responseFormat"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return "parquet" if found == "parquet" else "delta" if found == "delta" else None


def remove_private(directory: Path) -> None:
    """Remove the folder for unfinished files, if nothing is left in it."""
    remove_quietly(directory / PRIVATE_FOLDER / _NOTE)
    for folder in (directory / PRIVATE_FOLDER / PARTIAL, directory / PRIVATE_FOLDER):
        with contextlib.suppress(OSError):
            folder.rmdir()
