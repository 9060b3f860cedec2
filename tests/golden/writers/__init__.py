"""The golden cases: each function writes one Delta table with Spark and delta-spark."""

from __future__ import annotations
