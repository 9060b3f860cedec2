"""Arrow tables to pandas frames, with dtypes that keep every value.

As `pandas.read_parquet`, save that integers with nulls become `Int64` (and its narrower kin) rather than
floats, booleans with nulls `boolean` rather than objects, and integers with nulls inside lists, maps and
structs stay integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from delta_sharing_client.frames.object_columns import python_values
from delta_sharing_client.frames.pandas_columns import Column, new_column

if TYPE_CHECKING:
    import pandas as pd

DtypeBackend: TypeAlias = Literal["numpy_nullable", "pyarrow"]

#: Rows that are taken over together: fewer mean more calls, more keep memory from being used again.
_ROWS: Final = 65_536


def check_dtype_backend(value: str | None) -> None:
    """Raise `ValueError` unless `value` is None or a dtype backend that pandas has."""
    if value not in (None, "numpy_nullable", "pyarrow"):
        raise ValueError(f"dtype_backend is {value!r}; it takes None, 'numpy_nullable' or 'pyarrow'")


def to_pandas(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    dtype_backend: DtypeBackend | None = None,
    *,
    rows: int = 0,
) -> pd.DataFrame:
    """Fill a frame with batches as they come.

    Args:
        batches: the rows.
        schema: their schema.
        dtype_backend: None for dtypes as `pandas.read_parquet` gives them, widened to nullable ones where
            a column holds nulls; ``numpy_nullable`` or ``pyarrow`` for dtypes that depend on the schema alone.
        rows: about how many there will be; 0 where that is not known.

    Returns:
        The frame, with a `RangeIndex`.

    Raises:
        DataError: a date or a nested time lies outside the years 1 to 9999, which Python's objects end at.
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
    kept: list[pa.RecordBatch] = []
    count = 0
    try:
        for group in _grouped(batches, schema):
            for position, column in filled.items():
                column.add(group.column(position))
            count += group.num_rows
            if rest:
                kept += group.select(rest).to_batches()
            del group
    finally:
        # Whoever keeps the error keeps the batches with it, and what they come from would go on.
        _close(batches)
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


def _close(batches: Iterator[pa.RecordBatch]) -> None:
    """End what gives the batches, where it can be told to."""
    if isinstance(batches, Generator):
        batches.close()


def _grouped(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Put batches together until there are rows enough."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        del batch
        if rows >= _ROWS:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _converted(kept: list[pa.RecordBatch], schema: pa.Schema, dtype_backend: DtypeBackend | None) -> pd.DataFrame:
    """Convert columns as a whole; the batches are given up."""
    import pandas as pd

    mapper: Callable[[pa.DataType], Any] | None = None
    if dtype_backend == "pyarrow":
        mapper = pd.ArrowDtype
    elif dtype_backend == "numpy_nullable":
        mapper = _nullable_mapper()
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
        )
    return frame


def _pandas_metadata(table: pa.Table) -> dict[bytes, bytes]:
    """Metadata that asks Arrow for nullable dtypes in just those columns that hold nulls: booleans."""
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


def _nullable_mapper() -> Callable[[pa.DataType], Any]:
    import pandas as pd

    known: dict[pa.DataType, Any] = {
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype(),
    }
    return known.get
