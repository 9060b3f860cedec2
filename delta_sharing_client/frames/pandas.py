"""Record batches to pandas frames, with dtypes that keep every value.

Dtypes are those of `pandas.read_parquet`, with three exceptions: integers with nulls become `Int64` (or a
narrower nullable dtype) instead of floats, booleans with nulls become `boolean` instead of objects, and integers
with nulls in lists, maps and structs stay integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_sharing_client.frames import DtypeBackend, check_dtype_backend
from delta_sharing_client.frames.arrow import grouped
from delta_sharing_client.frames.pandas_columns import Column, new_column, python_values

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    dtype_backend: DtypeBackend | None = None,
    *,
    rows: int = 0,
) -> pd.DataFrame:
    """Return a frame of all batches; columns of numbers, times and decimals are filled as batches arrive.

    Args:
        batches: the rows.
        schema: their schema.
        dtype_backend: None for the dtypes of `pandas.read_parquet`, widened to nullable ones where a column has
            nulls; ``numpy_nullable`` or ``pyarrow`` for dtypes that depend on the schema alone.
        rows: the expected number of rows; 0 if unknown.

    Returns:
        The frame, with a `RangeIndex`.

    Raises:
        DataError: a date or a nested time is outside the years 1 to 9999, the range of Python's objects.
    """
    import pandas as pd

    check_dtype_backend(dtype_backend)
    if not len(schema):
        return pd.DataFrame(index=pd.RangeIndex(sum(batch.num_rows for batch in batches)))
    filled: dict[int, Column] = {}
    if dtype_backend != "pyarrow":
        nullable = dtype_backend == "numpy_nullable"
        columns = enumerate(new_column(field.type, rows, nullable=nullable) for field in schema)
        filled = {position: column for position, column in columns if column is not None}
    rest = [position for position in range(len(schema)) if position not in filled]
    kept, count = _fill(filled, rest, batches, schema)
    series: dict[int, pd.Series] = {}
    if rest:
        frame = _converted(kept, pa.schema([schema.field(n) for n in rest]), dtype_backend)
        if not filled:
            return frame
        series = {position: frame.iloc[:, place] for place, position in enumerate(rest)}
    while filled:
        position, column = filled.popitem()
        series[position] = column.finish()
    frame = pd.DataFrame(
        {position: series[position] for position in range(len(schema))}, index=pd.RangeIndex(count), copy=False
    )
    frame.columns = pd.Index(schema.names)
    return frame


def _fill(
    filled: Mapping[int, Column], rest: list[int], batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> tuple[list[pa.RecordBatch], int]:
    """Fill columns; return batches of the other columns, and the number of rows."""
    kept: list[pa.RecordBatch] = []
    count = 0
    try:
        for waiting in grouped(batches):
            group = pa.Table.from_batches(waiting, schema)
            waiting.clear()
            for position, column in filled.items():
                column.add(group.column(position))
            count += group.num_rows
            if rest:
                kept += group.select(rest).to_batches()
            del group
    finally:
        # A caller that keeps the error keeps this frame's variables, so the generator would never end by itself.
        if isinstance(batches, Generator):
            batches.close()
    return kept, count


def _converted(kept: list[pa.RecordBatch], schema: pa.Schema, dtype_backend: DtypeBackend | None) -> pd.DataFrame:
    """Convert columns as a whole; empties `kept`, so that Arrow can free each column after its conversion."""
    import pandas as pd

    mapper: Callable[[pa.DataType], Any] | None = None
    if dtype_backend == "pyarrow":
        mapper = pd.ArrowDtype
    elif dtype_backend == "numpy_nullable":
        mapper = {pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}.get
    table = pa.Table.from_batches(kept, schema)
    kept.clear()
    table = table.replace_schema_metadata(_pandas_metadata(table) if mapper is None else None)
    with python_values():
        frame: pd.DataFrame = table.to_pandas(
            types_mapper=mapper,
            integer_object_nulls=True,
            date_as_object=True,
            split_blocks=True,
            self_destruct=True,
            use_threads=False,  # Arrow's threads abort a process that ends just after they have started
        )
    return frame


def _pandas_metadata(table: pa.Table) -> dict[bytes, bytes]:
    """Metadata that makes Arrow use the nullable dtype for boolean columns with nulls, and only for these."""
    columns = [
        {
            "name": field.name,
            "field_name": field.name,
            "pandas_type": "bool",
            "numpy_type": "boolean",
            "metadata": None,
        }
        for position, field in enumerate(table.schema)
        if pa.types.is_boolean(field.type) and table.column(position).null_count
    ]
    text = json.dumps({"columns": columns, "index_columns": [], "column_indexes": []})
    return {b"pandas": text.encode()}
