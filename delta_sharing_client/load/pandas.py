"""Arrow tables to pandas frames, with dtypes that keep every value.

As `pandas.read_parquet`, save that integers with nulls become `Int64` (and its narrower kin) rather than
floats, booleans with nulls `boolean` rather than objects, and integers with nulls inside lists, maps and
structs stay integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from delta_sharing_client.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

DtypeBackend: TypeAlias = Literal["numpy_nullable", "pyarrow"]

_NULLABLE: Final = {
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.bool_(): "boolean",
}


#: Columns of fewer rows are not looked at; of others up to so many rows, to guess whether values repeat.
_SAMPLE: Final = (10_000, 262_144)


def check_dtype_backend(value: str | None) -> None:
    """Raise `ValueError` unless `value` is None or a dtype backend that pandas has."""
    if value not in (None, "numpy_nullable", "pyarrow"):
        raise ValueError(f"dtype_backend is {value!r}; it takes None, 'numpy_nullable' or 'pyarrow'")


def to_pandas(table: pa.Table, dtype_backend: DtypeBackend | None = None) -> pd.DataFrame:
    """Convert a table to a frame; give the table up, for its memory is released column by column.

    Args:
        table: the rows.
        dtype_backend: None for dtypes as `pandas.read_parquet` gives them, widened to nullable ones where
            a column holds nulls; ``numpy_nullable`` or ``pyarrow`` for dtypes that depend on the schema alone.

    Returns:
        The frame, with a `RangeIndex`.

    Raises:
        DataError: a date or a nested time lies outside the years 1 to 9999, which Python's objects end at.
    """
    import pandas as pd

    check_dtype_backend(dtype_backend)
    if not table.num_columns:
        return pd.DataFrame(index=pd.RangeIndex(table.num_rows))
    mapper: Callable[[pa.DataType], Any] | None = None
    if dtype_backend == "pyarrow":
        mapper = pd.ArrowDtype
    elif dtype_backend == "numpy_nullable":
        mapper = _nullable_mapper()
    table = table.replace_schema_metadata(_pandas_metadata(table) if mapper is None else None)
    objects: dict[int, Any] = {}
    if dtype_backend != "pyarrow":
        for position, field in enumerate(table.schema):
            if pa.types.is_decimal(field.type) and _repeats(table.column(position)):
                objects[position] = _shared_objects(table.column(position))
                table = table.set_column(position, field.name, pa.nulls(table.num_rows))
        table = _writable(table)
    try:
        frame: pd.DataFrame = table.to_pandas(
            types_mapper=mapper,
            integer_object_nulls=True,
            date_as_object=True,
            split_blocks=True,
            self_destruct=True,
        )
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError(
            f"a value has no Python object to stand for it in pandas: {error}; "
            "dtype_backend='pyarrow', or loading as Arrow, keeps it"
        ) from None
    for position, values in objects.items():
        frame.isetitem(position, values)
    return frame


def _writable(table: pa.Table) -> pa.Table:
    """Keep pandas from taking over Arrow's memory as it is: such a column of a frame could not be written to.

    Columns of several chunks are copied anyway; an empty second chunk is enough for that.
    """
    for position, field in enumerate(table.schema):
        column = table.column(position)
        fixed = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        if column.num_chunks == 1 and (fixed or pa.types.is_timestamp(field.type)):
            chunks = [column.chunk(0), column.chunk(0).slice(0, 0)]
            table = table.set_column(position, field, pa.chunked_array(chunks))
    return table


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether most values of a column seem to occur more than once, going by its beginning."""
    fewest, most = _SAMPLE
    if len(column) <= fewest:
        return False
    sample = column.slice(0, max(fewest, min(most, len(column) // 4)))
    return len(sample.unique()) < len(sample) // 2


def _shared_objects(column: pa.ChunkedArray) -> Any:
    """A column of decimals as Python objects, one object for all rows of one value.

    Making an object takes longer than all else of the conversion, and 104 bytes.
    """
    import numpy as np

    encoded = column.dictionary_encode()
    if len({chunk.dictionary.buffers()[1].address for chunk in encoded.chunks}) > 1:
        encoded = encoded.unify_dictionaries()  # takes long for many chunks
    distinct = encoded.chunk(0).dictionary.to_numpy(zero_copy_only=False)
    nulls = len(distinct)
    values = np.empty(nulls + 1, dtype=object)
    values[:nulls] = distinct
    rows = np.empty(len(column), dtype=object)
    start = 0
    for chunk in encoded.chunks:
        indices = chunk.indices.fill_null(nulls).to_numpy(zero_copy_only=False)
        np.take(values, indices, out=rows[start : start + len(chunk)], mode="clip")
        start += len(chunk)
    return rows


def _pandas_metadata(table: pa.Table) -> dict[bytes, bytes]:
    """Metadata that asks Arrow for nullable dtypes in just those columns that hold nulls."""
    columns = []
    for position, field in enumerate(table.schema):
        dtype = _NULLABLE.get(field.type)
        if dtype is not None and table.column(position).null_count:
            columns.append(
                {
                    "name": field.name,
                    "field_name": field.name,
                    "pandas_type": str(field.type),
                    "numpy_type": dtype,
                    "metadata": None,
                }
            )
    text = json.dumps({"columns": columns, "index_columns": [], "column_indexes": []})
    return {b"pandas": text.encode()}


def _nullable_mapper() -> Callable[[pa.DataType], Any]:
    import pandas as pd

    known: dict[pa.DataType, Any] = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype(),
    }
    return known.get
