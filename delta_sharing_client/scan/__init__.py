"""Snapshot scans: options, planning with data skipping, URL renewal, the read pipeline."""
