"""A Delta table's transaction log, read from a local directory.

    log = DeltaLog.for_table("warehouse/orders")
    snapshot = log.snapshot()
    for add in snapshot.files:
        ...

The log is replayed as the Delta transaction protocol says: commits, classic, multi-part and V2
checkpoints. An action keeps the JSON object it was read from in `raw`, so that nothing a newer writer
put there is lost.
"""

from __future__ import annotations

from delta_sharing_client.delta_log.actions import (
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
from delta_sharing_client.delta_log.log import DeltaLog
from delta_sharing_client.delta_log.paths import resolve_path
from delta_sharing_client.delta_log.snapshot import Commit, Snapshot

__all__ = [
    "Action",
    "AddFile",
    "CdcFile",
    "Commit",
    "DeletionVector",
    "DeltaLog",
    "Metadata",
    "OtherAction",
    "Protocol",
    "RemoveFile",
    "Snapshot",
    "Transaction",
    "resolve_path",
]
