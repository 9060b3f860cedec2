"""Fetching what a task names: the data file, and its deletion vector where it has one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.protocol.actions import DeletionVector
from delta_sharing_client.read.deletion_vector import (
    MAX_BYTES,
    RowPositions,
    decode_inline,
    decode_stored,
    file_range,
)
from delta_sharing_client.read.storage import Refresh, RetryBudget, StorageReader
from delta_sharing_client.scan.tasks import FileScanTask


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file as it came from the store.

    Attributes:
        data: its bytes.
        deleted: positions of its rows that do not count.
    """

    data: Any
    deleted: RowPositions | None = None


def vector_id(task: FileScanTask) -> str:
    """Return the id under which a task's deletion vector is renewed."""
    return f"{task.file_id} (deletion vector {task.deletion_vector_id or 'without id'})"


def fetch_file(
    storage: StorageReader,
    task: FileScanTask,
    *,
    refresh: Refresh | None = None,
    cancelled: threading.Event | None = None,
    budget: RetryBudget | None = None,
) -> FetchedFile:
    """Fetch a task's file and its deletion vector.

    Args:
        storage: fetches.
        task: the file.
        refresh: gives a fresh URL for one that has expired.
        cancelled: set when nobody wants the file any more.
        budget: the retries that a load shares.

    Raises:
        StorageError: one of them cannot be downloaded.
        DataError: the deletion vector is damaged.
        ProtocolError: the deletion vector is stored in a way that a sharing server cannot mean.
    """
    deleted = None
    if task.deletion_vector is not None:
        deleted = _fetch_vector(storage, task, task.deletion_vector, refresh, cancelled, budget)
    data = storage.fetch(
        task.url, file_id=task.file_id, size=task.size, refresh=refresh, cancelled=cancelled, budget=budget
    )
    return FetchedFile(data, deleted)


def _fetch_vector(
    storage: StorageReader,
    task: FileScanTask,
    vector: DeletionVector,
    refresh: Refresh | None,
    cancelled: threading.Event | None,
    budget: RetryBudget | None,
) -> RowPositions:
    if not 0 <= vector.size_in_bytes <= MAX_BYTES or (vector.offset or 0) < 0:
        raise ProtocolError(f"file {task.file_id}: its deletion vector has a size or offset that cannot be")
    if vector.storage_type == "i":
        return decode_inline(vector, task.file_id)
    if vector.storage_type == "p" or "://" in vector.path_or_inline:
        (data,) = storage.fetch_ranges(
            vector.path_or_inline,
            file_id=vector_id(task),
            size=0,
            ranges=[file_range(vector)],
            refresh=refresh,
            cancelled=cancelled,
            budget=budget,
        )
        return decode_stored(bytes(data), vector, task.file_id)
    raise ProtocolError(
        f"file {task.file_id}: its deletion vector is stored as {vector.storage_type!r}, which names no URL"
    )
