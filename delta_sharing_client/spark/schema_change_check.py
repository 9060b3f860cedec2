"""Schema change check: whether a streaming query may read versions after a change of the table's columns."""

from __future__ import annotations

from delta_sharing_client.errors import DeltaSharingError, SchemaChangedError
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.spark.schema_log import SchemaLog, changes_between, schema_error
from delta_sharing_client.spark.stream_files import Stop
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

        Everything before `begin` was read with the columns of the version before it. Later changes are found when
        their versions are listed.

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
                raise self.error(Stop(read, changed, before))

    def error(self, stop: Stop) -> DeltaSharingError:
        """Return the error for a version that stops the query; first writes its schema to the log, if tracked."""
        if stop.error is not None:
            return stop.error
        version: int | None = stop.version
        late, tracked = stop.version <= self._table.version, False
        if late:
            version = self._changed_after(stop.version)
        elif self._log is not None and stop.info is not None:
            self._log = self._log.add(stop.info, stop.version)
            tracked = True
        return schema_error(self._table.options.what, version, stop.changed, late=late, tracked=tracked)

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
        if changed and not table.options.allows(begin.version):
            raise SchemaChangedError(
                f"{table.options.what}: in version {begin.version} {'; '.join(map(str, changed))}. If the query's "
                "sink is ready for that, restart the query with "
                f"allowSourceColumnRenameAndDrop={begin.version} (or 'always')",
                version=begin.version,
                columns=list(dict.fromkeys(item.column for item in changed)),
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
