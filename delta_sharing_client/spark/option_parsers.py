"""Parsers of the texts of the data source's options; each raises `ValueError` with the values that are allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from delta_sharing_client.wire.requests import format_timestamp

_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_number(text: str, least: int = 0) -> int:
    """Parse a whole number, `least` or more."""
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
        raise ValueError(f"it takes a whole number, {least} or more")
    return int(text)


def one_of(
    words: Mapping[str, Any], described: str, otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return a parser of words in any case, else of the values that `otherwise` parses."""

    def parse(text: str) -> Any:
        word = text.replace(" ", "").lower()
        if word in words:
            return words[word]
        if otherwise is not None:
            try:
                return otherwise(text)
            except ValueError:
                pass
        raise ValueError(f"it takes {described}")

    return parse


def parse_bytes(text: str) -> int:
    """Parse a number of bytes with or without a unit, as Delta does: ``10m`` is 10 * 1024 * 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower(), re.ASCII)
    if match is None or int(match[1]) < 1:
        raise ValueError("it takes a number of bytes such as 1000000 or 10m")
    return int(match[1]) << _SHIFTS[match[2]]


def parse_seconds(text: str) -> float:
    """Parse a number of seconds, more than 0."""
    try:
        seconds = float(text.strip().removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("it takes a number of seconds, more than 0")
    return seconds


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names with commas between them, or a JSON list of names."""
    names: Any = [part.strip() for part in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ValueError("it takes names with commas between them, or a JSON list of names")
    return tuple(names)


def parse_time(text: str) -> str:
    """Parse a time in ISO 8601, as the text of a request."""
    try:
        return format_timestamp(text)
    except ValueError:
        raise ValueError("it takes a time in ISO 8601, such as 2024-01-31T12:00:00Z or 2024-01-31") from None


def parse_driver_folder(text: str) -> Path:
    """Parse the absolute path of a folder, or its ``file:`` URL."""
    parts = urlsplit(text)
    path = Path(unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else text)
    if not path.is_absolute():
        raise ValueError(
            "it takes an absolute path of a folder that the driver can write to, by convention one under the "
            "query's checkpoint location"
        )
    return path


parse_positive_number = partial(parse_number, least=1)
parse_boolean = one_of({"true": True, "false": False}, "true or false")
parse_variant = one_of({"variant": "struct", "json": "json"}, "'variant' or 'json'")
parse_version_or_latest = one_of({"latest": "latest"}, "a version, or 'latest'", parse_number)
parse_response_format = one_of(
    {"delta": "delta", "parquet": "parquet", **dict.fromkeys(("auto", "delta,parquet", "parquet,delta"), "auto")},
    "'auto', 'delta' or 'parquet'",
)
parse_accepted_changes = one_of(
    {"always": "always", "true": "always", "false": None},
    "'always', or the version that the error names",
    parse_number,
)
