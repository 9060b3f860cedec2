"""Record batches to Arrow tables, pandas, polars and DuckDB; progress bars."""
