"""`Incoming`: the rows of a batch that a sink stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from delta_sharing_client.errors import SinkError
from delta_sharing_client.model.schema import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.cdf.batch import ChangeBatch
    from delta_sharing_client.parquet.tasks import VariantForm
    from delta_sharing_client.sinks.base import Sink
    from delta_sharing_client.sinks.keys import NetChanges

#: The column of a change's type.
CHANGE_TYPE: Final = "_change_type"

_VERSION: Final = "_commit_version"
_CHANGE_COLUMNS: Final = (CHANGE_TYPE, _VERSION, "_commit_timestamp")
#: Maximum size of the tables that rows are written in.
_CHUNK_BYTES: Final = 64 * 1024 * 1024
_CHUNK_ROWS: Final = 250_000


class Incoming:
    """The rows of one batch that a sink stores.

    Attributes:
        poller_id: the id of the batch's poller.
        first_version, last_version: the range of versions, inclusive.
        continues: whether an earlier batch of the poller was committed, which the target must have.
        is_snapshot: whether it is the whole table.
        replaces: whether it replaces all rows of the target.
        schema: the columns to store; change columns only if they are stored too.
        variant: the form that variants were read in.
        keys: the key columns, spelled as in `schema`.
    """

    def __init__(self, batch: ChangeBatch, sink: Sink) -> None:
        spec = batch.plan().spec
        self.poller_id = batch.poller_id
        self.first_version = batch.first_version
        self.last_version = batch.last_version
        self.continues = batch.continues
        self.is_snapshot = batch.is_snapshot
        self.replaces = sink.mode == "apply" and batch.is_snapshot
        self.variant: VariantForm = spec.variant
        self._batch = batch
        self._target = sink.target
        self._inserts_only = sink.mode == "append" and not sink.change_columns
        kept = [field for field in spec.output if sink.change_columns or field.name not in _CHANGE_COLUMNS]
        self.schema = StructType(tuple(kept))
        self.keys: tuple[str, ...] = ()
        if sink.keys:
            from delta_sharing_client.sinks.keys import key_columns

            self.keys = key_columns(self.schema, sink.keys, sink.target)

    def chunks(self, after: int) -> Iterator[pa.Table]:
        """Yield the rows of versions after `after` in order, with all columns, as tables of bounded size."""
        return tables_of(self._new(batch, after) for batch in self._batch.to_record_batch_reader())

    def no_rows(self) -> pa.Table:
        """Return an empty table with the columns to store."""
        return self._batch.schema.empty_table().select(self.schema.names)

    def rows(self, after: int) -> Iterator[pa.Table]:
        """Yield the same rows with only the columns to store.

        Raises:
            SinkKeyError: a key of a snapshot that replaces the rows is null or not unique.
        """
        import pyarrow as pa

        from delta_sharing_client.sinks.keys import check_no_nulls, check_unique

        keys: list[pa.Table] = []
        for chunk in self.chunks(after):
            if self.replaces:
                check_no_nulls(chunk, self.keys, self._target)
                keys.append(chunk.select(list(self.keys)))
            yield chunk.select(self.schema.names)
        if keys:
            check_unique(pa.concat_tables(keys), self._target)

    def net(self, after: int) -> NetChanges:
        """Return the net change per key; all changes are held in memory."""
        import pyarrow as pa

        from delta_sharing_client.sinks.keys import net_changes

        chunks = list(self.chunks(after))
        changes = pa.concat_tables(chunks) if chunks else self._batch.schema.empty_table()
        return net_changes(changes, self.keys, self.schema.names, self._target)

    def _new(self, batch: pa.RecordBatch, after: int) -> pa.RecordBatch:
        """Return the rows after a version; after a damaged checkpoint, a batch may have stored ones."""
        import pyarrow.compute as pc

        if self._batch.first_version <= after:
            batch = batch.filter(pc.greater(batch.column(_VERSION), after))
        if self._inserts_only:
            other = batch.filter(pc.not_equal(batch.column(CHANGE_TYPE), "insert"))
            if other.num_rows:
                kind, version = other.column(CHANGE_TYPE)[0].as_py(), other.column(_VERSION)[0].as_py()
                raise SinkError(
                    f"version {version} has a row with the change type {kind!r}, and only inserts can be appended "
                    "without the change columns; use change_columns=True, or mode='apply' with keys",
                    target=self._target,
                )
        return batch


def tables_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of batches as tables of bounded size."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
