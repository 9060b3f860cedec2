"""What a streaming query makes of every file that it reads, from its start to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.cdf.planner import CHANGE_COLUMNS, change_spec
from delta_sharing_client.errors import TableReplacedError
from delta_sharing_client.model.schema_evolution import ColumnChange
from delta_sharing_client.parquet.tasks import ReadSpec
from delta_sharing_client.scan.data_skipping import project, read_spec
from delta_sharing_client.spark.stream_options import StreamOptions
from delta_sharing_client.spark.stream_schemas import changes_between
from delta_sharing_client.wire.answers import TableInfo


@dataclass(frozen=True)
class Reading:
    """What a streaming query makes of every file, from its start to its end.

    Attributes:
        options: what the user asks for.
        info: the table's metadata, as of the version whose columns Spark was told.
        spec: what to read of each file.
        chosen: the names of the table's columns that are read, where they were chosen; None for all.
    """

    options: StreamOptions
    info: TableInfo
    spec: ReadSpec = field(repr=False)
    chosen: frozenset[str] | None

    @classmethod
    def of(cls, options: StreamOptions, info: TableInfo) -> Reading:
        """Return what to read of a table, all columns that the options name.

        Raises:
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError: the options name columns that it lacks.
        """
        info.protocol.check_readable(options.what)
        spec = read_spec(info.metadata, options.columns, None, options.variant, info.protocol)
        if options.read_change_feed:
            spec = change_spec(spec, "timestamp", what=options.what)
        chosen = None if options.columns is None else _table_columns(spec.output.names)
        return cls(options, info, spec, chosen)

    def narrowed(self, names: Sequence[str]) -> Reading:
        """Return what to read when Spark wants but these columns."""
        output = project(self.spec.output, names)
        if len(output.fields) == len(self.spec.output.fields):
            return replace(self, spec=replace(self.spec, output=output))
        return replace(self, spec=replace(self.spec, output=output), chosen=_table_columns(output.names))

    @property
    def version(self) -> int:
        """The version whose columns Spark was told."""
        return self.info.version or 0

    @property
    def changes_query(self) -> ChangeOptions:
        """In which form the rows of changes are wanted."""
        options = self.options
        return ChangeOptions(
            columns=options.columns,
            response_format=options.response_format,
            commit_timestamp="timestamp",
            variant=options.variant,
        )

    def matters(self, change: ColumnChange) -> bool:
        """Whether a change of a column is one of those that are read."""
        return self.chosen is None or change.top.lower() in self.chosen

    def misfit(self, info: TableInfo) -> tuple[ColumnChange, ...]:
        """Return what keeps the files of another version from being read with these columns.

        Of a version before that of the columns, whatever is not an addition; of one after it, additions too:
        after a restart they are read.
        """
        if (info.version or 0) <= self.version:
            return tuple(c for c in changes_between(info, self.info) if not c.additive and self.matters(c))
        return tuple(c for c in changes_between(self.info, info) if self.matters(c))

    def check_identity(self, table_id: str, version: int) -> None:
        """Raise `TableReplacedError` if the server tells of another table than the one that is read."""
        if table_id != self.info.metadata.id:
            raise TableReplacedError(
                f"{self.options.what}: it was made anew under its name (its id was {self.info.metadata.id}, and "
                f"is {table_id}). To read the new one, start the query with a new checkpoint location",
                version=version,
                expected=self.info.metadata.id,
                actual=table_id,
            )


def _table_columns(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name not in CHANGE_COLUMNS)
