"""Mirrors: local Delta tables that follow shared ones."""
