"""Local Delta tables: the transaction log, materialized tables, mirrors."""
