"""Conversion of a table's batches to a frame, as a load does it."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from delta_sharing_client.frames import pandas


def to_pandas(table: pa.Table, dtype_backend: str | None = None) -> pd.DataFrame:
    """Convert a table batch by batch."""
    return pandas.to_pandas(iter(table.to_batches()), table.schema, dtype_backend, rows=table.num_rows)
