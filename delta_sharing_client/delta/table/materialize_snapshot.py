"""Materialization of a snapshot as a local Delta table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from delta_sharing_client.delta.table.file_download import StoredFile
from delta_sharing_client.delta.table.local_actions import LocalLayout, now_in_ms
from delta_sharing_client.delta.table.local_metadata import local_metadata, local_protocol
from delta_sharing_client.delta.table.local_table import LocalTable
from delta_sharing_client.messages import warn
from delta_sharing_client.model.access_modes import directory_only
from delta_sharing_client.wire.requests import QueryRequest

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
    local: LocalTable, request: QueryRequest, data: MaterializedData = "files"
) -> Materialized:
    """Write a shared table's snapshot as a local Delta table of one version.

    The data files are written before the commit. After a crash, another call keeps the files that are complete.

    Args:
        local: the local table; its directory is created if it is missing.
        request: the snapshot.
        data: ``files`` downloads the files; ``urls`` writes their signed URLs to the log.

    Raises:
        ValueError: `data` has another value.
        DeltaLogError: the directory contains a table, or cannot be written.
        DeltaSharingError: a request failed, or a file cannot be fetched.
    """
    if data not in ("files", "urls"):
        raise ValueError(f"data is {data!r}; it takes 'files' or 'urls'")
    urls = data == "urls"
    transaction = local.new_log(allow_absolute_paths=urls).start_transaction()
    answer = local.list_files(request)
    if request.json_predicate_hints is not None:
        from delta_sharing_client.expressions.hint_check import warn_about_hint

        warn_about_hint(request.json_predicate_hints, answer.metadata.schema, f"table {local.shared.full_name}")
    if urls and answer.source is not None:
        raise directory_only(local.shared, "data='urls' needs the URLs of its files", "data='files' copies it")
    layout = LocalLayout(answer.protocol, answer.metadata)
    files = [layout.file(action) for block in answer.items for action in block]
    now = now_in_ms()
    stored: dict[str, StoredFile] = {}
    head = [
        {"protocol": local_protocol(answer.protocol, answer.metadata)},
        {"metaData": local_metadata(answer.protocol, answer.metadata, local.shared)},
    ]
    parameters = {"table": local.shared.full_name, "sharedVersion": answer.version, "data": data}
    if urls:
        adds = [file.add_by_url(now_ms=now) for file in files]
        version = transaction.commit([*head, *adds], "MATERIALIZE", parameters, private=True)
        warn(
            f"{local.directory}/_delta_log holds pre-signed URLs: anyone who can read it can read the data until "
            "they expire. Only its owner has access now; delete it when it is no longer needed",
            SignedUrlsWarning,
            stacklevel=3,
        )
    else:
        with local.alone():
            stored = local.download(answer, (part for file in files for part in file.remote_files()))
            adds = [file.add(stored, now_ms=now) for file in files]
            version = transaction.commit([*head, *adds], "MATERIALIZE", parameters)
            local.finish()
    return Materialized(
        path=local.directory,
        version=version,
        shared_version=answer.version,
        files=len(files),
        bytes_fetched=sum(file.fetched for file in stored.values()),
    )
