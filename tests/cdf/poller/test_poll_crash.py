"""A process that ends while its poller writes the checkpoint, at every write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from change_tables import ChangeTable, rows
from poller_helpers import FakeClock, ids, spans

from delta_sharing_client import SharingClient
from delta_sharing_client.cdf import checkpoint
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTable]:
    table = ChangeTable(tmp_path_factory.mktemp("crash") / "t")
    for version in range(10):
        table.commit(table.add(f"f{version}", rows(version)))
    with SharingServer({"s.s.t": table.root}) as server, SharingClient(server.profile) as client:
        yield client.table("s.s.t")


class Crash(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("point", range(12))
def test_a_crash_at_every_write_repeats_or_continues(
    shared: SharedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int, written: bool
) -> None:
    """Before or after a file is replaced: the next batches are the same as without the crash."""
    count = 0
    real = checkpoint.replace_file

    def replace(*arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count - 1 != point:
            real(*arguments, **options)
            return
        if written:
            real(*arguments, **options)
        raise Crash

    taken: list[tuple[int, int]] = []
    committed: list[int] = []

    def run() -> None:
        with shared.poll_changes(tmp_path / "c", starting_version=0, max_versions=4, clock=FakeClock()) as poller:
            for batch in poller:
                assert ids(batch) == list(range(batch.first_version, batch.last_version + 1))
                taken.extend(spans([batch]))
                batch.commit()
                committed.append(batch.last_version)

    monkeypatch.setattr(checkpoint, "replace_file", replace)
    with pytest.raises(Crash):
        run()
    before, marks = list(taken), list(committed)
    monkeypatch.setattr(checkpoint, "replace_file", real)
    taken.clear()
    run()
    assert list(dict.fromkeys(before + taken)) == [(0, 3), (4, 7), (8, 9)]
    assert all(first > max(marks, default=-1) for first, _ in taken)
