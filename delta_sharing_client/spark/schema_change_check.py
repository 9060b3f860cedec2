"""Whether a streaming query may go on past versions that change the table's columns, and what it says if not."""

from __future__ import annotations

from delta_sharing_client.errors import DeltaSharingError, SchemaChangedError
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.spark.stream_offsets import BEFORE, Offset
from delta_sharing_client.spark.stream_plan import Stop
from delta_sharing_client.spark.stream_reading import Reading
from delta_sharing_client.spark.stream_schemas import SchemaLog, changes_between, schema_error
from delta_sharing_client.spark.stream_start import metadata_at
from delta_sharing_client.wire.answers import TableInfo


class SchemaGuard:
    """Watches over the columns of one run of a query.

    Args:
        rest: the server.
        reading: what is read.
        log: the schemas that the query has gone through, where they are tracked.
    """

    def __init__(self, rest: RestClient, reading: Reading, log: SchemaLog | None) -> None:
        self._rest = rest
        self._reading = reading
        self._log = log

    def check_start(self, begin: Offset) -> None:
        """Check the columns once, where the query starts or goes on.

        Everything before `begin` was read with the columns of the version before it. Later changes show when
        their versions are listed.

        Raises:
            SchemaChangedError: the columns changed just there, and the query may not pass it.
            StreamError: the log of schemas cannot be written.
        """
        reading = self._reading
        behind = begin.version - 1 if begin.index == BEFORE and not begin.is_snapshot else begin.version
        fresh = begin == begin.start
        if self._log is not None and not self._log.entries:
            self._begin(self._log, None if fresh else behind)
        elif self._log is not None:
            self._check_passed(self._log, begin)
        elif not fresh and 0 <= behind < reading.version:
            before = self._metadata_of(behind)
            changed = () if before is None else reading.misfit(before)
            if changed:
                raise self.error(Stop(behind, changed, before))

    def error(self, stop: Stop) -> DeltaSharingError:
        """Return the error for a version at which the query stops.

        Where schemas are tracked, that version's is written down first.
        """
        if stop.error is not None:
            return stop.error
        version: int | None = stop.version
        late, tracked = stop.version <= self._reading.version, False
        if late:
            version = self._changed_after(stop.version)
        elif self._log is not None and stop.info is not None:
            self._log = self._log.add(stop.info, stop.version)
            tracked = True
        return schema_error(self._reading.options.what, version, stop.changed, late=late, tracked=tracked)

    def _begin(self, log: SchemaLog, behind: int | None) -> None:
        """Write down the first schema: the query's own, or of one that runs already that of what it has read."""
        reading = self._reading
        if behind is None or behind >= reading.version:
            self._log = log.add(reading.info, reading.version)
            return
        info = self._metadata_of(behind) or reading.info
        self._log = log.add(info, info.version or 0)
        if changes_between(info, reading.info):
            raise SchemaChangedError(
                f"{reading.options.what}: the columns of version {info.version}, up to which the query has read, "
                "were written down in schemaTrackingLocation: restart the query",
                version=info.version,
            )

    def _check_passed(self, log: SchemaLog, begin: Offset) -> None:
        """Raise where the query stands before a change that it may not pass."""
        if len(log.entries) < 2 or (begin.version, begin.index) != (log.entries[-1].version, BEFORE):
            return
        reading, (before, after) = self._reading, log.entries[-2:]
        changed = [c for c in changes_between(before, after) if not c.additive and reading.matters(c)]
        if changed and not reading.options.allows(begin.version):
            raise SchemaChangedError(
                f"{reading.options.what}: in version {begin.version} {'; '.join(map(str, changed))}. If what the "
                "query writes to is ready for that, restart it with "
                f"allowSourceColumnRenameAndDrop={begin.version} (or 'always')",
                version=begin.version,
                columns=list(dict.fromkeys(item.column for item in changed)),
            )

    def _changed_after(self, low: int) -> int | None:
        """The version that made the columns of version `low` into those that the query has; by halves."""
        high = self._reading.version
        while high - low > 1:
            middle = (low + high) // 2
            info = self._metadata_of(middle)
            if info is None:
                return None
            if self._reading.misfit(info):
                low = middle
            else:
                high = middle
        return high

    def _metadata_of(self, version: int) -> TableInfo | None:
        return metadata_at(self._rest, self._reading.options, version)
