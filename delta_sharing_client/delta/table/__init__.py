"""Materialized tables: a shared table's snapshot or changes as a local Delta table."""
