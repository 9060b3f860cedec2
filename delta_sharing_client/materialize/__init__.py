"""Shared tables as Delta tables on disk: what a server answers, written as files and a `_delta_log`."""
