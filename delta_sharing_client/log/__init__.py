"""The transaction log of a Delta table in a local directory: replay, checkpoints, commits.

    log = DeltaLog.for_table("warehouse/orders")
    snapshot = log.snapshot()
    for add in snapshot.files:
        ...
    log.commit([{"add": {...}}])

Replay reads commits and classic, multi-part and V2 checkpoints, as the Delta transaction protocol describes. An
action keeps its JSON object in `raw`, so that fields of newer writers are not lost.
"""

from __future__ import annotations

from delta_sharing_client.log.actions import Action, OtherAction, Transaction, file_key
from delta_sharing_client.log.log import CommitInfo, DeltaLog, OptimisticTransaction
from delta_sharing_client.log.paths import deletion_vector_path, deletion_vector_uri, resolve_path, uri_of
from delta_sharing_client.log.snapshot import Commit, Snapshot
from delta_sharing_client.model.actions import AddFile, CdcFile, DeletionVector, Metadata, Protocol, RemoveFile

__all__ = [
    "Action",
    "AddFile",
    "CdcFile",
    "Commit",
    "CommitInfo",
    "DeletionVector",
    "DeltaLog",
    "Metadata",
    "OptimisticTransaction",
    "OtherAction",
    "Protocol",
    "RemoveFile",
    "Snapshot",
    "Transaction",
    "deletion_vector_path",
    "deletion_vector_uri",
    "file_key",
    "resolve_path",
    "uri_of",
]
