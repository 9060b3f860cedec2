"""The catalog: shares, schemas and tables by name, found in local directories.

A Delta table is a directory with a `_delta_log`. The path of a table below the server's directory is its name:
`share/schema/table`, `schema/table` (in the default share) or `table` (in the default share and schema). If the
directory is a table itself, its own name is the table's. Deeper directories, names that begin with `.` or `_`, and
tables with an empty log are skipped.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import DeltaLogError, DeltaTableNotFoundError
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.messages import module_logger
from delta_sharing_client.paths import local_path
from delta_sharing_client.server.problems import not_found

_NAMESPACE: Final = uuid.UUID("5b0c4c1e-6f0e-5d7a-9d35-6d1f0f3a2f61")
_FORBIDDEN: Final = re.compile(r"[\s/\x00-\x1f\x7f]")
_LEVELS: Final = 3
logger = module_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServedTable:
    """One shared table: its names, its directory with every link resolved, and its log."""

    share: str
    schema: str
    name: str
    path: Path
    log: DeltaLog

    @property
    def full_name(self) -> str:
        """`share.schema.table`."""
        return f"{self.share}.{self.schema}.{self.name}"


_Names: TypeAlias = tuple[str, str, str]
_Path: TypeAlias = str | os.PathLike[str]
_Paths: TypeAlias = Mapping[_Names, _Path]


class Catalog:
    """The shared tables by name; lookups are case-insensitive, listings sorted by name.

    `refresh` finds tables that were added or removed. Thread-safe.
    """

    def __init__(self, find: Callable[[], _Paths]) -> None:
        self._find = find
        self._tables: dict[_Names, ServedTable] = {}
        self._tables = self._open(find(), strict=True)

    @classmethod
    def named(cls, tables: Mapping[str, _Path]) -> Catalog:
        """Share the tables of a mapping of `share.schema.table` to directories, which may change later.

        Raises:
            ValueError: a name is malformed or not unique.
            DeltaTableNotFoundError: a directory has no Delta table.
        """
        return cls(lambda: {split_name(name): path for name, path in tables.items()})

    @classmethod
    def scan(cls, directory: _Path, *, default_share: str, default_schema: str) -> Catalog:
        """Share all Delta tables in a directory.

        Raises:
            ValueError: a directory's name cannot be the name of a table, schema or share.
            DeltaTableNotFoundError: the directory does not exist, or has no Delta table.
        """
        root = local_path(directory, "tables")
        if not root.is_dir():
            reason = (
                "it is a file; give the directory of the tables" if root.exists() else "there is no such directory"
            )
            raise DeltaTableNotFoundError(reason, path=str(root))
        catalog = cls(lambda: _named_tables(root, default_share, default_schema))
        if not catalog.tables:
            raise DeltaTableNotFoundError(
                "there is no Delta table in this directory (share/schema/table, schema/table or table)",
                path=str(root),
            )
        return catalog

    def refresh(self) -> None:
        """Find tables that were added or removed; skip and log one that cannot be shared."""
        try:
            found = self._find()
        except (ValueError, OSError) as error:
            logger.warning("the shared tables cannot be listed: %s", error)
            return
        self._tables = self._open(found, strict=False)

    def _open(self, found: _Paths, *, strict: bool) -> dict[_Names, ServedTable]:
        tables: dict[_Names, ServedTable] = {}
        for names, path in sorted(found.items(), key=lambda item: _key(*item[0])):
            key = _key(*names)
            try:
                if key in tables:
                    raise ValueError(f"two tables have the name {'.'.join(names)!r}; names are case-insensitive")
                tables[key] = self._open_table(names, local_path(path, "tables").resolve())
            except (TypeError, ValueError, DeltaLogError, OSError) as error:
                if strict:
                    raise
                logger.warning("not shared: %s", error)
        return tables

    def _open_table(self, names: _Names, root: Path) -> ServedTable:
        share, schema, name = names
        known = self._tables.get(_key(*names))
        if known is not None and known.path == root:
            return known
        for part in names:
            if _FORBIDDEN.search(part) or ("." in part and part is not share):
                raise ValueError(
                    f"the table in {root} cannot be shared: {part!r} is not a name of a share, schema or table "
                    "(no space, slash or control character, and a dot in a share's name only)"
                )
        # `links` checks that no path leads out of the table's directory.
        log = DeltaLog.for_table(root, allow_absolute_paths=True, any_features=True)
        log.latest_version()
        return ServedTable(share=share, schema=schema, name=name, path=root, log=log)

    @property
    def tables(self) -> tuple[ServedTable, ...]:
        """Every table, sorted by name."""
        return tuple(self._tables.values())

    def shares(self) -> list[dict[str, Any]]:
        """Return the items of the listing of shares."""
        names = {key[0]: table.share for key, table in reversed(self._tables.items())}
        return [{"name": name, "id": _stable_id(name)} for _, name in sorted(names.items())]

    def share(self, share: str) -> dict[str, Any]:
        """Return one share; raise `Problem` (404) if it does not exist."""
        for item in self.shares():
            if item["name"].lower() == share.lower():
                return item
        raise not_found(f"There is no share {share!r}.")

    def schemas(self, share: str) -> list[dict[str, Any]]:
        """Return the items of the listing of a share's schemas; raise `Problem` (404)."""
        name = self.share(share)["name"]
        schemas = {key[1]: t.schema for key, t in reversed(self._tables.items()) if key[0] == share.lower()}
        return [{"name": schema, "share": name} for _, schema in sorted(schemas.items())]

    def list_tables(self, share: str, schema: str | None) -> list[dict[str, Any]]:
        """Return the items of the listing of the tables of a schema, or of a share; raise `Problem` (404)."""
        share_id = self.share(share)["id"]
        wanted = (share.lower(), None if schema is None else schema.lower())
        items = [
            {
                "name": table.name,
                "schema": table.schema,
                "share": table.share,
                "shareId": share_id,
                "id": _stable_id(table.share, table.schema, table.name),
            }
            for key, table in self._tables.items()
            if key[0] == wanted[0] and wanted[1] in (None, key[1])
        ]
        if not items:
            raise not_found(f"There is no schema {schema!r} in share {share!r}.")
        return items

    def find(self, share: str, schema: str, name: str) -> ServedTable | None:
        """Return a table by name; None if it does not exist."""
        return self._tables.get(_key(share, schema, name))

    def table(self, share: str, schema: str, name: str) -> ServedTable:
        """Return one table; raise `Problem` (404) if it does not exist."""
        table = self.find(share, schema, name)
        if table is None:
            raise not_found(f"There is no table {share}.{schema}.{name}.")
        return table


def split_name(full_name: str) -> tuple[str, str, str]:
    """Split `share.schema.table` from the right (a share's name may contain dots); raise `ValueError`."""
    parts = full_name.rsplit(".", 2)
    if len(parts) != _LEVELS or not all(parts) or any(_FORBIDDEN.search(part) for part in parts):
        raise ValueError(f"{full_name!r} is not of the form share.schema.table")
    return parts[0], parts[1], parts[2]


def _stable_id(*names: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\0".join(name.lower() for name in names)))


def _key(share: str, schema: str, name: str) -> _Names:
    return share.lower(), schema.lower(), name.lower()


def _named_tables(root: Path, default_share: str, default_schema: str) -> _Paths:
    """Return the tables in a directory."""
    found: dict[_Names, _Path] = {}
    for parts, path in _find_tables(root, ()):
        if not DeltaLog.for_table(path).table_exists:
            logger.warning("not shared: the _delta_log in %s has no commit and no checkpoint", path)
            continue
        *above, name = parts or (root.resolve().name,)
        share, schema = [default_share, default_schema][: 2 - len(above)] + above
        found[share, schema, name] = path
    return found


def _find_tables(directory: Path, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Path]]:
    if (directory / "_delta_log").is_dir():
        yield parts, directory
    elif len(parts) < _LEVELS:
        for child in sorted(directory.iterdir()):
            if not child.name.startswith((".", "_")) and child.is_dir():
                yield from _find_tables(child, (*parts, child.name))
