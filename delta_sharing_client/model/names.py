"""Shares, schemas and tables, and their names.

Names are case-insensitive on the server. A share name may contain dots, schema and table names may not, so a full
name is split from the right. A name in backticks may contain dots and `#`; a doubled backtick in it is a backtick.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delta_sharing_client.errors import ProtocolError, TableNameError
from delta_sharing_client.representation import representation, short_repr
from delta_sharing_client.secrets import redact_url
from delta_sharing_client.views import html_view

MAX_NAME = 255
#: A whole name in backticks.
_QUOTED: Final = re.compile(r"(?:^|(?<=[.#]))`(?:[^`]|``)*`(?=\.|$)")


@short_repr
@dataclass(frozen=True)
class Share:
    """A share: a logical grouping of schemas handed to a recipient.

    Attributes:
        name: the share's name.
        id: its immutable id, if the server sends it.
        display_name, comment, properties: the provider's texts, if the server sends them.
    """

    name: str
    id: str | None = field(default=None, compare=False, kw_only=True)
    display_name: str | None = field(default=None, compare=False, kw_only=True, repr=False)
    comment: str | None = field(default=None, compare=False, kw_only=True, repr=False)
    properties: Mapping[str, str] | None = field(default=None, compare=False, kw_only=True, repr=False)

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Share:
        """Build a share from an item of a listing; unknown fields are ignored."""
        return cls(
            _required(item, "name", "share"),
            id=_optional(item, "id"),
            display_name=_optional(item, "displayName"),
            comment=_optional(item, "comment"),
            properties=item.get("properties") if isinstance(item.get("properties"), Mapping) else None,
        )

    @representation
    def _repr_html_(self) -> str:
        facts = {"name": self.display_name, "comment": self.comment, **(self.properties or {})}
        return html_view(self, self.name, facts)


@short_repr
@dataclass(frozen=True)
class Schema:
    """A schema: a logical grouping of tables within a share."""

    name: str
    share: str

    def __str__(self) -> str:
        return self.full_name

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Schema:
        """Build a schema from an item of a listing; unknown fields are ignored."""
        return cls(_required(item, "name", "schema"), _required(item, "share", "schema"))

    @classmethod
    def parse(cls, full_name: str) -> Schema:
        """Split ``share.schema`` from the right; raise `TableNameError` if these are not two names."""
        names = _split(full_name.strip(), 2)
        if len(names) != 2:
            raise TableNameError(f"{full_name!r} is not a schema's name: it takes share.schema")
        share, name = names
        return cls(check_name(name, "schema"), check_name(share, "share"))

    @property
    def full_name(self) -> str:
        """``share.schema``."""
        return f"{self.share}.{self.name}"

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, self.full_name)


@short_repr
@dataclass(frozen=True)
class Table:
    """A shared table, by its three names.

    Attributes:
        name, share, schema: the three names.
        id, share_id: immutable ids, if the server sends them.
        location: the table's directory in cloud storage, if the server sends it.
        auxiliary_locations: further directories with files of the table, if the server sends them.
        access_modes: `url` (pre-signed files) or `dir` (temporary credentials); none means `url`.
    """

    name: str
    share: str
    schema: str
    id: str | None = field(default=None, compare=False, kw_only=True, repr=False)
    share_id: str | None = field(default=None, compare=False, kw_only=True, repr=False)
    location: str | None = field(default=None, compare=False, kw_only=True, repr=False)
    access_modes: tuple[str, ...] = field(default=(), compare=False, kw_only=True, repr=False)
    auxiliary_locations: tuple[str, ...] = field(default=(), compare=False, kw_only=True, repr=False)

    def __str__(self) -> str:
        return self.full_name

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Table:
        """Build a table from an item of a listing; unknown fields are ignored."""
        return cls(
            _required(item, "name", "table"),
            _required(item, "share", "table"),
            _required(item, "schema", "table"),
            id=_optional(item, "id"),
            share_id=_optional(item, "shareId"),
            location=_optional(item, "location"),
            access_modes=_texts(item, "accessModes"),
            auxiliary_locations=_texts(item, "auxiliaryLocations"),
        )

    @classmethod
    def parse(cls, full_name: str) -> Table:
        """Split ``share.schema.table`` from the right; raise `TableNameError` if these are not three names.

        A name may be in backticks, as in Spark: ``share.`my.schema`.table``.
        """
        parts = _split(full_name.strip(), 3)
        if len(parts) != 3:
            raise TableNameError(
                f"{full_name!r} is not a table name: it takes share.schema.table "
                "(SharingClient(...).list_all_tables() lists them)"
            )
        share, schema, name = parts
        return cls(check_name(name, "table"), check_name(share, "share"), check_name(schema, "schema"))

    @staticmethod
    def split_url(url: str) -> tuple[str | None, str]:
        """Split a table URL at its last ``#`` outside backticks.

        Returns:
            The profile, None if there is none (the profile of the environment), and the name as it is written.
        """
        text = url.strip()
        at = _masked(text).rfind("#")
        return text[: max(at, 0)] or None, text[at + 1 :]

    @property
    def full_name(self) -> str:
        """``share.schema.table``."""
        return f"{self.share}.{self.schema}.{self.name}"

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, self.full_name)


def table_named(name: str | Table | tuple[str, str, str]) -> Table:
    """Return the table of ``share.schema.table``, a `Table`, or a tuple of the three names.

    Raises:
        TableNameError: the name is malformed, or the URL of a table.
    """
    if isinstance(name, str):
        profile, rest = Table.split_url(name)
        if profile is not None and profile.endswith((".share", ".json")):
            raise TableNameError(f"{name!r} is a table's URL, and the client already has a profile: pass {rest!r}")
        return Table.parse(name)
    if isinstance(name, Table):
        return name
    if isinstance(name, tuple) and len(name) == 3:
        share, schema, table = name
        return Table(check_name(table, "table"), check_name(share, "share"), check_name(schema, "schema"))
    raise TypeError(f"a table is named by 'share.schema.table', a Table or a tuple of three names, not {name!r}")


def unquoted(name: str) -> str:
    """Return a name without its backticks."""
    return name[1:-1].replace("``", "`") if _QUOTED.fullmatch(name) else name


def _masked(text: str) -> str:
    """Return a text of equal length without the dots and `#` of names in backticks."""
    return _QUOTED.sub(lambda match: "_" * len(match[0]), text)


def _split(text: str, count: int) -> list[str]:
    """Split a full name at its last dots into at most `count` names, and remove their backticks."""
    dots = [match.start() for match in re.finditer(r"\.", _masked(text))][1 - count :]
    starts = [0, *(dot + 1 for dot in dots)]
    return [unquoted(text[start:end]) for start, end in zip(starts, [*dots, len(text)], strict=True)]


def check_name(name: str, kind: str) -> str:
    """Return a valid name of a share, schema or table, which is its `kind` for messages.

    Raises:
        TableNameError: it is empty, too long, a path step, or contains a control character or a slash.
    """
    if not isinstance(name, str):
        raise TypeError(f"a {kind} name is a str, not {type(name).__name__}")
    if not name:
        raise TableNameError(f"the {kind} name is empty")
    if len(name) > MAX_NAME:
        raise TableNameError(f"the {kind} name has {len(name)} characters; at most {MAX_NAME} are allowed")
    if name in {".", ".."} or "/" in name or any(unicodedata.category(c) == "Cc" for c in name):
        raise TableNameError(f"{name!r} cannot be a {kind} name: no slash, path step or control character")
    return name


def parse_table_url(url: str) -> tuple[str | None, Table]:
    """Split ``<profile>#<share>.<schema>.<table>``.

    Returns:
        The profile, None if it is empty (the profile of the environment), and the table.

    Raises:
        TableNameError: there is no ``#``, or no table name after it.
    """
    if not isinstance(url, str):
        raise TypeError(f"a table URL is a str, not {type(url).__name__}")
    profile, name = Table.split_url(url)
    if profile is None and not url.strip().startswith("#"):
        shown = redact_url(url) if "://" in url else repr(url)
        raise TableNameError(f"{shown} is not a table URL: it takes '<profile>#<share>.<schema>.<table>'")
    return profile, Table.parse(name)


def parse_bare_table(url: str) -> Table:
    """Split ``<share>.<schema>.<table>`` of a table whose profile is another argument.

    Raises:
        TableNameError: the text contains a profile too, or is not three names.
    """
    if not isinstance(url, str):
        raise TypeError(f"a table name is a str, not {type(url).__name__}")
    profile, name = Table.split_url(url)
    if profile:
        raise TableNameError(
            f"the profile is given twice, apart and in the table URL: leave out the part before #{name}"
        )
    return Table.parse(name)


def _required(item: Mapping[str, Any], key: str, kind: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"the server listed a {kind} without a {key!r}")
    return value


def _optional(item: Mapping[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) and value else None


def _texts(item: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = item.get(key)
    return tuple(map(str, value)) if isinstance(value, list) else ()
