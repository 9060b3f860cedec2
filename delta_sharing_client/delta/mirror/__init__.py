"""Mirrors: local Delta tables that follow shared tables."""
