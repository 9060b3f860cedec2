"""From tasks to Arrow record batches: fetching and decoding; the only code that touches Parquet data."""
