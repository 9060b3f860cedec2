"""Scans as collections of Dask and Ray, planned in the caller's process and read by their workers."""
