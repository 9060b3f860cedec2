"""History of a shared table: how many rows each version changed, counted in the change data feed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delta_sharing_client.cdf.options import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

if TYPE_CHECKING:
    from delta_sharing_client.table.shared_table import SharedTable

_COUNTS: Final = {"insert": "inserted", "update_postimage": "updated", "delete": "deleted"}


@dataclass(frozen=True)
class VersionChanges:
    """What a version changed.

    Attributes:
        version: the version.
        time: when it was committed.
        inserted, updated, deleted: numbers of rows.
    """

    version: int
    time: datetime
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def history_of(table: SharedTable, limit: int) -> list[VersionChanges]:
    """Return what the latest versions changed, newest first; see `SharedTable.history`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit is {limit!r}; it must be an integer of at least 1")
    first = max(0, table.version() - limit + 1)
    changes = table.changes(first, columns=[], commit_timestamp="timestamp")
    keys = [COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE]
    found: dict[int, VersionChanges] = {}
    for batch in changes.to_record_batch_reader():
        groups = (
            pa.Table.from_batches([batch.select(keys)])
            .group_by(keys, use_threads=False)
            .aggregate([([], "count_all")])
        )
        for group in groups.to_pylist():
            version = group[COMMIT_VERSION]
            row = found.get(version, VersionChanges(version, group[COMMIT_TIMESTAMP]))
            if (name := _COUNTS.get(group[CHANGE_TYPE])) is not None:
                row = replace(row, **{name: vars(row)[name] + group["count_all"]})
            found[version] = row
    return [found[version] for version in sorted(found, reverse=True)]
