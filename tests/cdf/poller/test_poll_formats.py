"""A poller of a table, or a server, that changes the response format between two runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from change_tables import ChangeTable, rows
from poller_helpers import ids

from delta_sharing_client import SharingClient
from delta_sharing_client.cdf.batch import ChangeBatch
from delta_sharing_client.cdf.checkpoint import BatchRange, CheckpointFile
from delta_sharing_client.server import SharingServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Two versions, with the rows 0 to 3, and 4."""
    table = ChangeTable(tmp_path / "t")
    table.commit(*(table.add(f"f{number}", rows(number)) for number in range(4)))
    table.commit(table.add("f4", rows(4)))
    return table


def pull(server: SharingServer, path: Path, start: Any, *, commit: bool = False) -> ChangeBatch:
    """Pull one batch in a process of its own, so to speak."""
    with SharingClient(server.profile) as client:
        with client.table("s.s.t").poll_changes(path, starting_version=start) as poller:
            batch = poller.pull()
            assert batch is not None
            if commit:
                batch.commit()
            assert ids(batch)
        return batch


def listed(batch: ChangeBatch) -> list[str]:
    return [task.file_id for task in batch.plan().tasks]


def other(table: ChangeTable, server: SharingServer, **options: Any) -> SharingServer:
    """A server in the place of another one."""
    port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    return SharingServer({"s.s.t": table.root}, file_ids_by_format=True, port=port, token=token, **options)


@pytest.mark.parametrize("start", [0, "snapshot"])
def test_a_repeated_batch_is_listed_in_its_format(table: ChangeTable, path: Path, start: Any) -> None:
    """Its rows are in the same order, although the ids have another order in the other format."""
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True) as server:
        before = listed(pull(server, path, start))
    table.commit(table.protocol(["deletionVectors"]), table.add("f5", rows(50, 51), vector=table.vector(0)))
    with other(table, server, prefer_format="delta") as server:
        assert listed(pull(server, path, start, commit=True)) == before
        assert server.requests[0].capabilities == "responseformat=parquet;includeendstreamaction=true"
        later = pull(server, path, start, commit=True)
        assert listed(later) == [hashlib.sha256(b"f5").hexdigest()]
    position = CheckpointFile(path).load("s.s.t")
    assert position is not None
    assert (position.pending, position.committed) == ((), 2)


def test_a_format_that_is_no_longer_available(table: ChangeTable, path: Path) -> None:
    """The rows are the same in the other one."""
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True, prefer_format="delta") as server:
        pull(server, path, 0)
    with other(table, server, prefer_format="parquet") as server:
        batch = pull(server, path, 0)
        assert ids(batch) == [0, 1, 2, 3, 4]
    position = CheckpointFile(path).load("s.s.t")
    assert position is not None
    assert position.pending == (BatchRange(0, 1, response_format="parquet"),)


@pytest.mark.parametrize("start", [0, "snapshot"])
def test_a_checkpoint_of_the_first_releases_continues(table: ChangeTable, path: Path, start: Any) -> None:
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True) as server:
        pull(server, path, start)
        fields = json.loads(path.read_bytes().split(b"\n")[1])
        assert fields["format"] == 2
        fields["format"] = 1
        for pending in fields["pending"]:
            del pending["response_format"]
        text = json.dumps(fields).encode()
        path.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text + b"\n")
        batch = pull(server, path, start, commit=True)
        assert sorted(ids(batch)) == [0, 1, 2, 3, 4]
        assert batch.range.response_format == "parquet"
        table.commit(table.add("f5", rows(5)))
        assert ids(pull(server, path, start)) == [5]
