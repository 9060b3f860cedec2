"""Record batches with exactly the Arrow schema that Spark expects, field names and metadata included.

A list has the field `element`, a map `key` and `value`. A variant is a struct of `value` and `metadata`, both not
null, and metadata of a field marks it as a variant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from delta_sharing_client.model.schema import ArrayType, DataType, MapType, StructType
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.parquet.cast import is_variant
from delta_sharing_client.parquet.tasks import VariantForm

#: Rows of a batch; larger batches are not faster, and a worker has two in memory.
BATCH_ROWS: Final = 64 * 1024

#: The column of nulls that rows without columns have.
NO_COLUMN: Final = "no_column"

_VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def spark_type(data_type: DataType, variant: VariantForm) -> pa.DataType:
    """Return the Arrow type that Spark expects for a column's type."""
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", spark_type(data_type.element, variant)))
    if isinstance(data_type, MapType):
        key = pa.field("key", spark_type(data_type.key, variant), nullable=False)
        return pa.map_(key, pa.field("value", spark_type(data_type.value, variant)))
    if isinstance(data_type, StructType):
        return pa.struct([pa.field(f.name, spark_type(f.type, variant)) for f in data_type])
    if variant == "struct" and is_variant(data_type):
        return _VARIANT
    return arrow_type(data_type, variant)


def spark_batches(
    batches: Iterable[pa.RecordBatch],
    schema: StructType,
    variant: VariantForm,
    names: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of `schema` in Spark's types, of at most 64 k rows; `names` renames the columns.

    Rows without columns have one column of nulls.
    """
    types = [spark_type(f.type, variant) for f in schema]
    fields = list(zip(names or schema.names, types, strict=True))
    target = pa.schema(fields or [(NO_COLUMN, pa.bool_())])
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS)
            columns = [_formed(column, kind) for column, kind in zip(part.columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns or [pa.nulls(part.num_rows, pa.bool_())], schema=target)


def _formed(array: pa.Array, target: pa.DataType) -> pa.Array:
    """An array in Spark's type; unchanged if it has that type."""
    if array.type.equals(target, check_metadata=True):
        return array
    if array.offset or array.type.num_fields:
        array = pa.concat_arrays([array])  # so that parents and children start at the same row
    return _rebuilt(array, target)


def _rebuilt(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type.equals(target, check_metadata=True):
        return array
    if target.equals(_VARIANT, check_metadata=True):
        # The parts of a null variant must not be null.
        parts: list[Any] = [array.field("value").fill_null(b""), array.field("metadata").fill_null(b"")]
        return pa.Array.from_buffers(target, len(array), array.buffers()[:1], array.null_count, 0, parts)
    if pa.types.is_struct(target):
        parts = [_rebuilt(array.field(i), target.field(i).type) for i in range(target.num_fields)]
        return pa.Array.from_buffers(target, len(array), array.buffers()[:1], array.null_count, 0, parts)
    if pa.types.is_map(target):
        entries = pa.StructArray.from_arrays(
            [_rebuilt(array.keys, target.key_type), _rebuilt(array.items, target.item_type)],
            fields=[target.key_field, target.item_field],
        )
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], array.null_count, 0, [entries])
    if pa.types.is_list(target):
        values = [_rebuilt(array.values, target.value_type)]
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], array.null_count, 0, values)
    return array.cast(target)
