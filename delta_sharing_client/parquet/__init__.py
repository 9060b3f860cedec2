"""Parquet files to record batches of the table's types; the only code that reads Parquet data."""
