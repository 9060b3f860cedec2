"""`ProfileFields`: the checked fields of a profile file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from delta_sharing_client.errors import ProfileError
from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.secrets import Secret, redact_url

#: The kinds of JSON values in messages, which never show the value itself.
_KINDS: Final = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


class ProfileFields:
    """The fields of an object in a profile file.

    The methods raise `ProfileError` with the name of the field if it is missing, empty, malformed or of the wrong
    type.

    Args:
        values: the decoded JSON object.
        source: where the profile came from, for messages.
    """

    def __init__(self, values: Mapping[str, Any], source: str | None) -> None:
        self._values = values
        self._source = source

    def error(self, name: str, reason: str, kind: type[ProfileError] = ProfileError) -> ProfileError:
        """Return the error for a field."""
        return kind(reason, field=name, source=self._source)

    def wrong_type(self, name: str, wanted: str) -> ProfileError:
        """Return the error for a field of the wrong type."""
        value = self._values.get(name)
        return self.error(
            name, f"{name!r} has to be {wanted}, not {_KINDS.get(type(value), type(value).__name__)}"
        )

    def has(self, name: str) -> bool:
        """Return whether a field is present and not null."""
        return self._values.get(name) is not None

    def required(self, name: str) -> Any:
        """Return a field of any type."""
        if not self.has(name):
            raise self.error(name, f"the field {name!r} is missing; download the profile again, or add it")
        return self._values[name]

    def text(self, name: str) -> str:
        """Return a text without the space around it."""
        value = self.required(name)
        if not isinstance(value, str):
            raise self.wrong_type(name, "a text")
        if not value.strip():
            raise self.error(name, f"{name!r} is empty; download the profile again, or fill it in")
        return value.strip()

    def optional_text(self, name: str) -> str | None:
        """Return a text that may be missing or empty."""
        value = self._values.get(name)
        return None if value is None or (isinstance(value, str) and not value.strip()) else self.text(name)

    def secret(self, name: str) -> Secret:
        """Return a secret; a space at its end may be part of it."""
        self.text(name)
        value = str(self._values[name])
        if any(char in value for char in "\r\n\0"):
            raise self.error(name, f"{name!r} has a line end in it; download the profile again")
        return Secret(value)

    def inner(self, name: str) -> ProfileFields:
        """Return the fields of an object."""
        value = self.required(name)
        if not isinstance(value, Mapping):
            raise self.wrong_type(name, "an object")
        return ProfileFields(value, self._source)

    def url(self, name: str, example: str) -> str:
        """Return a URL of http or https, without user name, query and fragment."""
        value = self.text(name)
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or any(ord(char) <= 0x20 or ord(char) == 0x7F for char in value):
            given = f" ({redact_url(value)!r})" if "://" in value else ""
            raise self.error(name, f"{name!r}{given} is not a URL of http or https; it looks like {example}")
        if "@" in parts.netloc or parts.query or parts.fragment:
            shown = redact_url(value)
            reason = f"{name!r} has a user name, a query or a fragment in it: {shown}; leave those out"
            raise self.error(name, reason)
        return value

    def time(self, name: str) -> datetime | None:
        """Return a time in ISO 8601 as a datetime in UTC; None if it is missing or empty."""
        if isinstance(self._values.get(name), str | None):
            text = self.optional_text(name)
            try:
                return None if text is None else parse_iso8601(text)
            except ValueError:
                pass
        value = self._values.get(name)
        shown = repr(value)[:60] if isinstance(value, str) else _KINDS.get(type(value), type(value).__name__)
        raise self.error(name, f"{name!r} is not a time in ISO 8601, such as 2030-01-31T00:00:00Z: {shown}")
