"""A random table for streams: rows, protocol and columns change, and the rows of every version are known."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from cdf.feed.change_tables import FEED, ChangeTable
from loading.loading_tables import Column, column

Row = dict[str, Any]
#: What happens to the columns and the protocol; a stream without schema tracking follows the first of them only.
ADDITIVE = ("vectors", "mapping", "add", "add", "add")
TRACKED = ("vectors", "mapping", "add", "widen", "rename", "drop", "widen", "rename", "add")
_TYPES = {"integer": pa.int32(), "long": pa.int64(), "string": pa.string()}


@dataclass(frozen=True)
class _File:
    name: str
    rows: list[Row]
    deleted: frozenset[int] = field(default=frozenset())

    @property
    def left(self) -> list[Row]:
        return [row for position, row in enumerate(self.rows) if position not in self.deleted]


class Source:
    """A table that gains versions; rows are dicts by the columns' physical names.

    Args:
        root: the table's folder.
        chance: what the versions depend on.
        tracked: whether columns are renamed, dropped and widened too.
    """

    def __init__(self, root: Path, chance: random.Random, *, tracked: bool) -> None:
        self.columns = [column("id", "long"), column("s", "string"), column("n", "integer")]
        self.table = ChangeTable(root, self.columns)
        self.chance = chance
        self.changes: list[tuple[int, str, Row]] = []
        self.snapshots: list[list[Row]] = []
        self.appends: set[int] = set()
        self.evolved: dict[int, str] = {}
        self.upgrades: list[str] = []
        self._names: list[dict[str, str]] = []
        self._events = chance.sample(TRACKED if tracked else ADDITIVE, len(TRACKED if tracked else ADDITIVE))
        self._configuration = dict(FEED)
        self._features: list[str] = []
        self._files: dict[str, _File] = {}
        self._removed: list[tuple[int, Path]] = []
        self._next = 0

    @property
    def version(self) -> int:
        return self.table.version

    def commit(self) -> None:
        """Write one version."""
        version, chance = self.version + 1, self.chance
        kinds = ["append"] * 3 + ["update", "delete", "part", "rearrange"]
        if "deletionVectors" in self._features:
            kinds += ["vector"] * 2
        if self._files and self._events and chance.random() < 0.3:
            actions = self._evolve(version, self._events.pop())
        else:
            kind = chance.choice(kinds) if len(self._files) > 1 else "append"
            actions = getattr(self, f"_{kind}")(version)
        self._names.append({_physical(c): c["name"] for c in self.columns})
        self.snapshots.append([row for file in self._files.values() for row in file.left])
        assert self.table.commit(*actions) == version

    def vacuum(self, done: int) -> int:
        """Delete the files that versions up to `done` removed or wrote changes to; return how many."""
        gone = [path for version, path in self._removed if version <= done]
        self._removed = [item for item in self._removed if item[0] > done]
        for path in gone:
            path.unlink()
        return len(gone)

    def expected(self, mode: str, version: int, *, snapshot: bool) -> Counter[Any]:
        """Return what a stream writes that began with a version, or with the whole table as of it."""
        found = [(version, "insert", row) for row in self.snapshots[version]] if snapshot else []
        found += [change for change in self.changes if change[0] >= version + snapshot]
        if mode == "rows":
            found = [c for c in found if c[0] in self.appends or (snapshot and c[0] == version)]
        return Counter(
            (v, kind, self._named(v, row)) if mode == "changes" else self._named(v, row) for v, kind, row in found
        )

    def _named(self, version: int, row: Row) -> frozenset[tuple[str, Any]]:
        names = self._names[version]
        return frozenset((names[key], value) for key, value in row.items() if key in names and value is not None)

    # -- versions with rows

    def _append(self, version: int) -> list[dict[str, Any]]:
        self.appends.add(version)
        return [self._add(version, self._new(self.chance.randint(1, 3))) for _ in range(self.chance.randint(1, 4))]

    def _delete(self, version: int) -> list[dict[str, Any]]:
        file = self._pick()
        self.changes += [(version, "delete", row) for row in file.left]
        return [self._remove(version, file)]

    def _part(self, version: int) -> list[dict[str, Any]]:
        """Rewrite a file without change files: all its rows are deleted, and the rest is inserted again."""
        file = self._pick()
        self.changes += [(version, "delete", row) for row in file.left]
        return [self._remove(version, file), self._add(version, file.left[1:] or self._new(1))]

    def _update(self, version: int) -> list[dict[str, Any]]:
        file = self._pick()
        (old, *others), (new,) = file.left, self._new(1)
        added = self._add(version, [new, *others], data_change=False)
        added["add"]["dataChange"] = True
        pair = [("update_preimage", old), ("update_postimage", new)]
        self.changes += [(version, kind, row) for kind, row in pair]
        name = f"c{version}"
        self._removed.append((version, self.table.root / "_change_data" / name))
        data = self._data([row for _, row in pair])
        return [self._remove(version, file), added, self.table.cdc(name, data, [kind for kind, _ in pair])]

    def _rearrange(self, version: int) -> list[dict[str, Any]]:
        """Write two files as one: no row changes."""
        files = self.chance.sample(list(self._files.values()), 2)
        removed = [self._remove(version, file, data_change=False) for file in files]
        return [*removed, self._add(version, [row for file in files for row in file.left], data_change=False)]

    def _vector(self, version: int) -> list[dict[str, Any]]:
        """Delete a row by a deletion vector, or all rows of a file with one row."""
        file = self._pick()
        if len(file.left) < 2:
            return self._delete(version)
        position = self.chance.choice([i for i in range(len(file.rows)) if i not in file.deleted])
        self.changes.append((version, "delete", file.rows[position]))
        after = self._files[file.name] = replace(file, deleted=file.deleted | {position})
        vectors = [self.table.vector(*sorted(f.deleted)) if f.deleted else None for f in (file, after)]
        return [
            self.table.remove(file.name, vector=vectors[0]),
            self.table.add(file.name, vector=vectors[1]),
        ]

    # -- versions with other columns, or another protocol

    def _evolve(self, version: int, event: str) -> list[dict[str, Any]]:
        others = [c for c in self.columns if c["name"] != "id"]
        narrow = [c for c in others if c["type"] == "integer"]
        if event in ("rename", "drop") and ("columnMapping" not in self._features or len(others) < 2):
            self._events.insert(0, event)
            event = "add" if "columnMapping" in self._features else "mapping"
        if (event == "widen" and not narrow) or (event == "mapping" and "columnMapping" in self._features):
            event = "add"
        if event == "vectors":
            self._upgrade("deletionVectors", {"delta.enableDeletionVectors": "true"})
        elif event == "mapping":
            self._upgrade("columnMapping", {"delta.columnMapping.mode": "name"})
            self.columns = [_mapped(c, c["name"]) for c in self.columns]
        elif event == "add":
            self.columns = [*self.columns, self._added(version)]
        elif event == "drop":
            dropped = self.chance.choice(others)
            self.columns = [c for c in self.columns if c is not dropped]
        elif event == "rename":
            self._change(self.chance.choice(others), name=f"renamed{version}")
        elif event == "widen":
            self._upgrade("typeWidening", {"delta.enableTypeWidening": "true"})
            chosen = self.chance.choice(narrow)
            listed = [{"fromType": "integer", "toType": "long"}]
            self._change(chosen, type="long", metadata=chosen["metadata"] | {"delta.typeChanges": listed})
        if event not in ("vectors", "mapping"):
            self.evolved[version] = event
        actions = [self.table.protocol(self._features), self.table.metadata(self.columns, self._configuration)]
        return actions + (self._append(version) if self.chance.random() < 0.5 else [])

    def _upgrade(self, feature: str, configuration: dict[str, str]) -> None:
        if feature not in self._features:
            self.upgrades.append(f"upgrade {feature}")
            self._features.append(feature)
        self._configuration |= configuration

    def _added(self, version: int) -> Column:
        added = column(f"added{version}", self.chance.choice(["integer", "string"]))
        return _mapped(added, f"col-{version}") if "columnMapping" in self._features else added

    def _change(self, chosen: Column, **fields: Any) -> None:
        self.columns = [c | fields if c is chosen else c for c in self.columns]

    # -- files

    def _new(self, count: int) -> list[Row]:
        self._next += count
        return [self._row(number) for number in range(self._next - count, self._next)]

    def _row(self, number: int) -> Row:
        large = {"integer": number, "long": number + 2**40, "string": f"text {number}"}
        return {_physical(c): number if c["name"] == "id" else large[c["type"]] for c in self.columns}

    def _data(self, rows: list[Row]) -> pa.Table:
        return pa.table(
            {
                _physical(c): pa.array([row.get(_physical(c)) for row in rows], _TYPES[c["type"]])
                for c in self.columns
            }
        )

    def _pick(self) -> _File:
        return self.chance.choice(list(self._files.values()))

    def _add(self, version: int, rows: list[Row], *, data_change: bool = True) -> dict[str, Any]:
        name = f"f{version}-{len(self._files)}-{self.chance.getrandbits(32):08x}"
        self._files[name] = _File(name, rows)
        if data_change:
            self.changes += [(version, "insert", row) for row in rows]
        return self.table.add(name, self._data(rows), data_change=data_change)

    def _remove(self, version: int, file: _File, *, data_change: bool = True) -> dict[str, Any]:
        del self._files[file.name]
        self._removed.append((version, self.table.root / file.name))
        vector = self.table.vector(*sorted(file.deleted)) if file.deleted else None
        return self.table.remove(file.name, vector=vector, data_change=data_change)


def _physical(item: Column) -> str:
    name: str = item["metadata"].get("delta.columnMapping.physicalName", item["name"])
    return name


def _mapped(item: Column, physical: str) -> Column:
    # The id depends on the name alone, because data files are read by name.
    names = {
        "delta.columnMapping.physicalName": physical,
        "delta.columnMapping.id": zlib.crc32(physical.encode()) >> 1,
    }
    return item | {"metadata": item["metadata"] | names}
