"""Tables with long histories made at random: applying the changes of each version gives the version."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from change_tables import ChangeTable, change_rows, rows

from delta_sharing_client.table.shared_table import SharedTable


class RandomTable:
    """A table, what its files hold and which rows of them are deleted; each step is one version."""

    def __init__(self, root: Path, seed: int, *, vectors: bool) -> None:
        self.chance = random.Random(seed)
        self.table = ChangeTable(root, features=["deletionVectors"] if vectors else [])
        self.files: dict[str, list[int]] = {}
        self.deleted: dict[str, frozenset[int]] = {}
        self.descriptors: dict[str, Any] = {}
        self.versions: list[set[int]] = []
        self.next_id = 0
        self.steps = [self.append, self.overwrite, self.rewrite, self.update]
        if vectors:
            self.steps += [self.mark, self.mark, self.mark]

    def grow(self) -> None:
        actions = self.chance.choice(self.steps if self.files else [self.append])()
        self.table.commit(*actions)
        self.versions.append(
            {i for name, ids in self.files.items() for p, i in enumerate(ids) if p not in self.deleted[name]}
        )

    def add(self, ids: list[int], *, data_change: bool = True) -> dict[str, Any]:
        name = f"f{len(self.versions)}-{self.chance.randrange(10**9)}"
        self.files[name], self.deleted[name], self.descriptors[name] = ids, frozenset(), None
        return self.table.add(name, rows(*ids), data_change=data_change, row_group_size=3)

    def remove(self, name: str, *, data_change: bool = True) -> dict[str, Any]:
        action = self.table.remove(name, vector=self.descriptors[name], data_change=data_change)
        del self.files[name], self.deleted[name], self.descriptors[name]
        return action

    def fresh(self, count: int) -> list[int]:
        self.next_id += count
        return list(range(self.next_id - count, self.next_id))

    def some(self) -> str:
        return self.chance.choice(sorted(self.files))

    def left(self, name: str) -> list[int]:
        return [i for position, i in enumerate(self.files[name]) if position not in self.deleted[name]]

    def append(self) -> list[dict[str, Any]]:
        return [self.add(self.fresh(self.chance.randint(1, 12))) for _ in range(self.chance.randint(1, 3))]

    def overwrite(self) -> list[dict[str, Any]]:
        actions = [self.remove(self.some()), *self.append()]
        self.chance.shuffle(actions)
        return actions

    def rewrite(self) -> list[dict[str, Any]]:
        """Files put together, and no row changed."""
        name = self.some()
        ids = self.left(name)
        return [self.remove(name, data_change=False), self.add(ids, data_change=False)]

    def update(self) -> list[dict[str, Any]]:
        """Rows replaced by others, in a change file."""
        name = self.some()
        ids = self.left(name)
        gone = self.chance.sample(ids, min(len(ids), 2))
        new = self.fresh(len(gone) + 1)
        table = rows(*gone, *new)
        kinds = ["update_preimage"] * len(gone) + ["update_postimage"] * len(gone) + ["insert"]
        change = self.table.cdc(f"c{len(self.versions)}", table, kinds)
        return [self.remove(name), self.add([i for i in ids if i not in gone] + new), change]

    def mark(self) -> list[dict[str, Any]]:
        """Another deletion vector for a file: rows deleted, restored, or both."""
        name = self.some()
        size = len(self.files[name])
        marked = frozenset(self.chance.sample(range(size), self.chance.randint(0, size)))
        stored = f"v{len(self.versions)}.bin" if self.chance.random() < 0.5 else None
        vector = self.table.vector(*marked, name=stored) if marked else None
        actions = [
            self.table.remove(name, vector=self.descriptors[name]),
            self.table.add(name, vector=vector),
        ]
        self.deleted[name], self.descriptors[name] = marked, vector
        self.chance.shuffle(actions)
        return actions


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("response_format", ["delta", "parquet"])
def test_applying_the_changes_of_a_version_gives_the_version(
    tmp_path: Path, share: Callable[..., SharedTable], seed: int, response_format: Any
) -> None:
    made = RandomTable(tmp_path / "t", seed, vectors=response_format == "delta")
    for _ in range(40):
        made.grow()
    shared = share(made.table.root)
    changes = change_rows(shared.changes(0, response_format=response_format).to_arrow(), "id", "s")
    assert [row[0] for row in changes] == sorted(row[0] for row in changes)
    held: set[int] = set()
    for version, expected in enumerate(made.versions):
        now = [row for row in changes if row[0] == version]
        gone = [i for _, kind, i, _ in now if kind in ("delete", "update_preimage")]
        new = [i for _, kind, i, _ in now if kind in ("insert", "update_postimage")]
        assert len(set(gone)) == len(gone)
        assert set(gone) <= held
        held -= set(gone)
        assert not held & set(new)
        assert len(set(new)) == len(new)
        held |= set(new)
        assert held == expected, version
    assert all(text == str(i) for *_, i, text in changes)
    first, last = 13, 29
    part = change_rows(shared.changes(first, last, response_format=response_format).to_arrow(), "id", "s")
    assert part == [row for row in changes if first <= row[0] <= last]
    assert sorted(shared.scan().to_arrow().column("id").to_pylist()) == sorted(made.versions[-1])
