"""Parsing of times in ISO 8601: basic and extended forms, weeks, any fraction and offset.

It serves profiles and time travel. `partition_values.py` parses the times of partition values, which may have
months and days of one digit and zones such as UTC, and become microseconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

_TIME = re.compile(
    r"(?P<date>[0-9]{4}-?[0-9]{2}-?[0-9]{2}|[0-9]{4}-?W[0-9]{2}-?[0-9])"
    r"(?:[Tt ](?P<hour>[0-9]{2})"
    r"(?::?(?P<minute>[0-9]{2})(?::?(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?)?"
    r"[ ]?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def parse_iso8601(text: str, default: tzinfo | None = UTC) -> datetime:
    """Return a time in ISO 8601, or a date alone, as a datetime in UTC.

    A time without a zone is in the default one; if that is None, the datetime has none either. Fractions are
    truncated to microseconds. Raises `ValueError` for other text.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time in ISO 8601")
    day = date.fromisoformat(match["date"])
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    microsecond = int((match["fraction"] or "")[:6].ljust(6, "0"))
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and (minute or second or microsecond)):
        raise ValueError("no such time of day")
    zone = UTC if match["zone"] else default
    if match["zone"] and match["zone"] not in "Zz":
        digits = match["zone"][1:].replace(":", "")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
        zone = timezone(-offset if match["zone"][0] == "-" else offset)
    start = datetime(day.year, day.month, day.day, tzinfo=zone)
    try:
        moment = start + timedelta(hours=hour, minutes=minute, seconds=second, microseconds=microsecond)
        return moment if zone is None else moment.astimezone(UTC)
    except OverflowError:  # the last hours of the year 9999, which stand for "never"
        return datetime.max.replace(tzinfo=UTC)


def format_time(moment: datetime | None) -> str:
    """Format a time in UTC, to the second, as in profiles."""
    return "never" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
