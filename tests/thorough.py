"""How many examples property tests try: `make soak` tries all, other runs a third of them."""

from __future__ import annotations

import os


def examples(thorough: int) -> int:
    """Return the number of examples, of which `make soak` tries `thorough`."""
    return thorough if os.environ.get("DELTA_SHARING_THOROUGH") else -(-thorough // 3)
