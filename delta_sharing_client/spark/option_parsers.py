"""Parsers of the texts of the data source's options; each raises `ValueError` with the values that are allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from delta_sharing_client.option_texts import parse_duration, parse_number
from delta_sharing_client.wire.requests import format_timestamp


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


def parse_seconds(text: str) -> float:
    """Parse a duration, by default in seconds, as seconds."""
    return parse_duration(text).total_seconds()


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
