"""Schema change check: whether a streaming query may read versions after a change of the table's columns."""

from __future__ import annotations

from collections.abc import Sequence

from delta_sharing_client.errors import DeltaSharingError, SchemaChangedError
from delta_sharing_client.model.schema_evolution import ColumnChange
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.spark.schema_log import SchemaLog, changes_between
from delta_sharing_client.spark.stream_files import StoppingVersion
from delta_sharing_client.spark.stream_offsets import BEFORE, Offset
from delta_sharing_client.spark.stream_table import StreamTable, metadata_at
from delta_sharing_client.wire.answers import TableInfo


class SchemaChangeCheck:
    """Checks the columns of one run of a query; with the schema log if schemas are tracked."""

    def __init__(self, rest: RestClient, table: StreamTable, log: SchemaLog | None) -> None:
        self._rest = rest
        self._table = table
        self._log = log

    def check_start(self, begin: Offset) -> None:
        """Check the columns once, at the offset where this run begins.

        Everything before `begin` was read with the columns of the version before it.

        Raises:
            SchemaChangedError: the columns changed at the offset, and the query may not read on.
            StreamError: the schema log cannot be written.
        """
        table = self._table
        read = begin.version - 1 if begin.index == BEFORE and not begin.is_initial_snapshot else begin.version
        is_new = begin == begin.start
        if self._log is not None and not self._log.entries:
            self._start_log(self._log, None if is_new else read)
        elif self._log is not None:
            self._check_accepted(self._log, begin)
        elif not is_new and 0 <= read < table.version:
            before = self._metadata_of(read)
            changed = () if before is None else table.misfit(before)
            if changed:
                raise self.error(StoppingVersion(read, changed, before))

    def error(self, stop: StoppingVersion) -> DeltaSharingError:
        """Return the error for a version that stops the query; first writes its schema to the log, if tracked."""
        if stop.error is not None:
            return stop.error
        if stop.version <= self._table.version:
            version = self._changed_after(stop.version)
            return self._error(
                version,
                stop.changed,
                "A stream reads one schema, and this query has the columns of later versions, with rows before "
                f"the change still to read. Start it with {_restart(version)}",
            )
        if self._log is not None and stop.info is not None:
            self._log = self._log.add(stop.info, stop.version)
            advice = (
                "The rows before it were read, and the columns from it on were written to schemaTrackingLocation: "
                "restart the query"
            )
            if not all(change.additive for change in stop.changed):
                advice += f", with {_options(stop.changed, stop.version)}"
        elif all(change.additive for change in stop.changed):
            advice = "Restart the query, load() included; it continues with the new columns"
        else:
            advice = f"The rows before it were read. To read on, start a query with {_restart(stop.version)}"
        return self._error(stop.version, stop.changed, advice)

    def _start_log(self, log: SchemaLog, read: int | None) -> None:
        """Write the first schema: the query's own, or that of the last version read if the query runs already."""
        table = self._table
        if read is None or read >= table.version:
            self._log = log.add(table.info, table.version)
            return
        info = self._metadata_of(read) or table.info
        self._log = log.add(info, info.version or 0)
        if changes_between(info, table.info):
            raise SchemaChangedError(
                f"{table.options.what}: the columns of version {info.version}, up to which the query has read, "
                "were written to schemaTrackingLocation: restart the query",
                version=info.version,
            )

    def _check_accepted(self, log: SchemaLog, begin: Offset) -> None:
        """Raise if the run begins at a change that the options do not accept."""
        if len(log.entries) < 2 or (begin.version, begin.index) != (log.entries[-1].version, BEFORE):
            return
        table, (before, after) = self._table, log.entries[-2:]
        changed = [c for c in changes_between(before, after) if not c.additive and table.is_read(c)]
        if not all(table.options.allows(change, begin.version) for change in changed):
            raise self._error(
                begin.version,
                changed,
                "If the query's sink is ready for that, restart the query with "
                f"{_options(changed, begin.version)}",
            )

    def _error(self, version: int | None, changed: Sequence[ColumnChange], advice: str) -> SchemaChangedError:
        where = "meanwhile" if version is None else f"in version {version}"
        return SchemaChangedError(
            f"{self._table.options.what}: {where} {'; '.join(map(str, changed))}. {advice}",
            version=version,
            columns=list(dict.fromkeys(change.column for change in changed)),
        )

    def _changed_after(self, low: int) -> int | None:
        """Return the version after `low` that changed its columns into the query's, by binary search."""
        high = self._table.version
        while high - low > 1:
            middle = (low + high) // 2
            info = self._metadata_of(middle)
            if info is None:
                return None
            if self._table.misfit(info):
                low = middle
            else:
                high = middle
        return high

    def _metadata_of(self, version: int) -> TableInfo | None:
        return metadata_at(self._rest, self._table.options, version)


def _options(changed: Sequence[ColumnChange], version: int) -> str:
    """Return the options that accept the changes of a version."""
    kinds = {change.kind for change in changed}
    names = ["allowSourceColumnRenameAndDrop"] if kinds & {"renamed", "dropped"} else []
    names += ["allowSourceColumnTypeChange"] if "type" in kinds else []
    return " and ".join(f"{name}={version} (or 'always')" for name in names)


def _restart(version: int | None) -> str:
    return (
        f"a new checkpoint location and startingVersion={'the version' if version is None else version}, or "
        "follow such changes with schemaTrackingLocation; or leave the column out with the option columns"
    )
