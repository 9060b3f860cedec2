"""Record batches to Arrow tables, pandas, polars and DuckDB; progress bars.

The dtype backends of pandas are defined here: to check one needs neither pandas nor Arrow.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

DtypeBackend: TypeAlias = Literal["numpy_nullable", "pyarrow"]


def check_dtype_backend(value: str | None) -> None:
    """Raise `ValueError` if `value` is neither None nor a dtype backend of pandas."""
    if value not in (None, "numpy_nullable", "pyarrow"):
        raise ValueError(f"dtype_backend is {value!r}; it must be None, 'numpy_nullable' or 'pyarrow'")
