"""`KnownTables`: the metadata of the tables that a client queried last."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from delta_sharing_client.fork_safe import ForkAware, ForkSafeLock
from delta_sharing_client.model.names import Table
from delta_sharing_client.wire.answers import TableInfo

#: Tables whose metadata is kept in memory.
_MAX_TABLES: Final = 256


class KnownTables(ForkAware):
    """The metadata of the tables that one client queried last. May be used by several threads.

    It may be outdated: hints for the server are made of it, and the metadata of the answer confirms them.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._tables: OrderedDict[Table, TableInfo] = OrderedDict()
        super().__init__()

    def get(self, table: Table) -> TableInfo | None:
        """Return the metadata of a table; None if it is not known."""
        with self._lock:
            return self._tables.get(table)

    def put(self, table: Table, info: TableInfo) -> None:
        """Keep the metadata of a table; beyond 256 tables the one queried longest ago is removed."""
        with self._lock:
            self._tables[table] = info
            self._tables.move_to_end(table)
            if len(self._tables) > _MAX_TABLES:
                self._tables.popitem(last=False)

    def after_fork(self) -> None:
        """Know no table."""
        self._tables = OrderedDict()
