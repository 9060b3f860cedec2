"""A Delta table's transaction log in a local directory: read, and written.

    log = DeltaLog.for_table("warehouse/orders")
    snapshot = log.snapshot()
    for add in snapshot.files:
        ...
    log.commit([{"add": {...}}])

The log is replayed as the Delta transaction protocol says: commits, classic, multi-part and V2
checkpoints. An action keeps the JSON object it was read from in `raw`, so that nothing a newer writer
put there is lost.
"""

from __future__ import annotations

from delta_sharing_client.delta.log.actions import (
    Action,
    AddFile,
    CdcFile,
    DeletionVector,
    Metadata,
    OtherAction,
    Protocol,
    RemoveFile,
    Transaction,
)
from delta_sharing_client.delta.log.log import DeltaLog
from delta_sharing_client.delta.log.paths import resolve_path, uri_of
from delta_sharing_client.delta.log.snapshot import Commit, Snapshot
from delta_sharing_client.delta.log.transaction import CommitInfo, OptimisticTransaction

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
    "resolve_path",
    "uri_of",
]
