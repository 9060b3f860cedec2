"""Materialization of a snapshot as a local Delta table."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from delta_sharing_client.delta.table.file_download import StoredFile
from delta_sharing_client.delta.table.local_actions import LocalLayout, now_in_ms
from delta_sharing_client.delta.table.local_metadata import local_metadata, local_protocol
from delta_sharing_client.delta.table.local_table import (
    download,
    finish,
    list_files,
    new_log,
    record_unfinished,
    unfinished_format,
)
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.wire.requests import QueryRequest, ask_again

MaterializedData: TypeAlias = Literal["files", "urls"]


class SignedUrlsWarning(UserWarning):
    """Warning that a log on disk has pre-signed URLs, which grant access to the data until they expire."""


@dataclass(frozen=True, kw_only=True)
class Materialized:
    """The result of a materialization.

    Attributes:
        path: the table's directory.
        version: the newest version of the local table.
        shared_version: the version of the shared table, if the server reports it.
        files: the number of data files of the local table.
        bytes_fetched: the number of downloaded bytes.
    """

    path: Path
    version: int
    shared_version: int | None
    files: int
    bytes_fetched: int


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
        storage: opens the files.
        table: the table.
        request: the snapshot.
        directory: the local table's directory; created if it is missing.
        data: ``files`` downloads the files; ``urls`` writes their signed URLs to the log.
        progress: show a progress bar; by default in a terminal or notebook only.

    Raises:
        ValueError: `data` has another value.
        DeltaLogError: the directory contains a table, or cannot be written.
        DeltaSharingError: a request failed, or a file cannot be fetched.
    """
    if data not in ("files", "urls"):
        raise ValueError(f"data is {data!r}; it takes 'files' or 'urls'")
    urls = data == "urls"
    log = new_log(directory, allow_absolute_paths=urls)
    path = log.table_path
    answer = ask_again(request, unfinished_format(path), lambda request: list_files(rest, table, request))
    layout = LocalLayout(answer.protocol, answer.metadata)
    files = [layout.file(action) for action in answer.items]
    now = now_in_ms()
    stored: dict[str, StoredFile] = {}
    if urls:
        adds = [file.add_by_url(now_ms=now) for file in files]
    else:
        record_unfinished(path, answer.protocol.response_format)
        remote = (part for file in files for part in file.remote_files())
        stored = download(rest, storage, table, answer, remote, path, progress=progress)
        adds = [file.add(stored, now_ms=now) for file in files]
    head = [
        {"protocol": local_protocol(answer.protocol, answer.metadata)},
        {"metaData": local_metadata(answer.protocol, answer.metadata, table)},
    ]
    parameters = {"table": table.full_name, "sharedVersion": answer.version, "data": data}
    version = log.start_transaction().commit([*head, *adds], "MATERIALIZE", parameters, private=urls)
    if urls:
        warnings.warn(
            f"{path}/_delta_log holds pre-signed URLs: anyone who can read it can read the data until "
            "they expire. Only its owner has access now; delete it when it is no longer needed",
            SignedUrlsWarning,
            stacklevel=3,
        )
    else:
        finish(path)
    return Materialized(
        path=path,
        version=version,
        shared_version=answer.version,
        files=len(files),
        bytes_fetched=sum(file.fetched for file in stored.values()),
    )
