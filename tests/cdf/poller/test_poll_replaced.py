"""A table that was created again at exactly the version of the poller is noticed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from change_tables import ChangeTable, rows
from poller_helpers import ids, requested

from delta_sharing_client.cdf.options import CHECK_TABLE_EVERY, PollOptions
from delta_sharing_client.errors import TableReplacedError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable


def create_again(table: ChangeTable, table_id: str = "another-id", versions: int | None = None) -> ChangeTable:
    """Replace a table by another one, by default with as many versions."""
    count = table.version + 1 if versions is None else versions
    shutil.rmtree(table.root)
    again = ChangeTable(table.root, table_id=table_id)
    for version in range(count):
        again.commit(again.add(f"n{version}", rows(1000 + version)))
    return again


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint at the latest version."""
    return tmp_path / "orders.checkpoint"


def drain(shared: SharedTable, path: Path | None, **options: Any) -> list[int]:
    """Process all batches, as a short-lived process does."""
    found: list[int] = []
    with shared.poll_changes(path, starting_version=0, **options) as poller:
        while (batch := poller.pull()) is not None:
            found += ids(batch)
            batch.commit()
    return found


def test_short_lived_processes_notice(shared: SharedTable, table: ChangeTable, path: Path) -> None:
    assert drain(shared, path, check_table_every=3) == list(range(10))
    create_again(table)
    with pytest.raises(TableReplacedError) as caught:
        for _ in range(3):
            assert drain(shared, path, check_table_every=3) == []
    assert (caught.value.expected, caught.value.actual) == ("table-id", "another-id")
    assert "delete the checkpoint" in str(caught.value)
    with pytest.raises(TableReplacedError):  # each later process too
        for _ in range(3):
            drain(shared, path, check_table_every=3)


@pytest.mark.parametrize("stored", [True, False])
def test_one_process_notices(shared: SharedTable, table: ChangeTable, path: Path, stored: bool) -> None:
    checkpoint = path if stored else None
    with shared.poll_changes(checkpoint, starting_version=0, check_table_every=4) as poller:
        batch = poller.pull()
        assert batch is not None
        batch.commit()
        create_again(table)
        for _ in range(3):
            assert poller.pull() is None
        with pytest.raises(TableReplacedError):
            poller.pull()
        with pytest.raises(TableReplacedError):
            poller.pull()


def test_idle_poll_is_nearly_always_one_request(shared: SharedTable, server: SharingServer, path: Path) -> None:
    drain(shared, path)
    requested(server)
    with shared.poll_changes(path) as poller:
        for _ in range(2 * CHECK_TABLE_EVERY):
            assert poller.pull() is None
    found = requested(server)
    assert found.count("metadata") == 2
    assert len(found) == 2 * CHECK_TABLE_EVERY + 2


def test_new_version_begins_the_count_again(
    shared: SharedTable, server: SharingServer, table: ChangeTable, path: Path
) -> None:
    """The answer with its changes has the table's id."""
    drain(shared, path, check_table_every=3)
    for version in range(10, 13):
        table.commit(table.add(f"f{version}", rows(version)))
        requested(server)
        assert drain(shared, path, check_table_every=3) == [version]
        assert "metadata" not in requested(server)


def test_checkpoint_of_an_earlier_release(shared: SharedTable, table: ChangeTable, path: Path) -> None:
    drain(shared, path)
    fields = json.loads(path.read_bytes().partition(b"\n")[2])
    del fields["idle_polls"]
    text = json.dumps(fields).encode()
    path.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text + b"\n")
    create_again(table)
    with pytest.raises(TableReplacedError):
        for _ in range(2):
            drain(shared, path, check_table_every=2)


@pytest.mark.parametrize("value", [0, -1, True, "3"])
def test_count_out_of_range(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="check_table_every"):
        PollOptions(check_table_every=value)


@pytest.mark.parametrize("seed", range(4))
def test_random_histories(tmp_path: Path, share: Callable[..., SharedTable], seed: int) -> None:
    """No row of the second table is returned, and it is noticed after so many polls at the latest."""
    choices = random.Random(seed)
    table = ChangeTable(tmp_path / "t")
    table.commit(table.add("f0", rows(0)))
    shared, path, every = share(table.root), tmp_path / "checkpoint", choices.randint(1, 4)
    expected, found = [0], []
    for _ in range(choices.randint(2, 8)):
        for _ in range(choices.choice([0, 0, 1, 2])):
            version = table.commit(table.add(f"f{table.version + 1}", rows(table.version + 1)))
            expected.append(version)
        if choices.random() < 0.7:
            found += drain(shared, path, check_table_every=every)
            assert found == expected
    if not found:
        found += drain(shared, path, check_table_every=every)
    again = create_again(table, versions=table.version + 1 + choices.choice([-1, 0, 0, 0, 1]) or 1)
    with pytest.raises(TableReplacedError):
        for _ in range(every):
            assert drain(shared, path, check_table_every=every) == []
            if choices.random() < 0.2:
                again.commit(again.add(f"n{again.version + 1}", rows(1000)))
