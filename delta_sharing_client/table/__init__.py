"""Shared tables, their scans and their changes."""
