"""From record batches to what users hold: Arrow tables and readers, pandas frames."""
