"""A sync with a permanent error ends at once, while downloads of other files wait."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from faults.faulty_share import FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request
from waiting import BRIEFLY, FOREVER, NEVER

from delta_sharing_client import SharingClient
from delta_sharing_client.delta.table import partial_file
from delta_sharing_client.errors import FileGoneError
from delta_sharing_client.options import TransportOptions


def file(number: int) -> File:
    table = rows(number * 10_000, 1000)
    return File(f"f{number}", table, parquet(table))


def test_missing_file_ends_a_sync_with_waiting_ranges(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync cancels the remaining ranges."""
    monkeypatch.setattr(partial_file, "CHUNK_SIZE", 1000)
    share = FaultyShare(server=server, versions=[[file(1), file(2)]])
    deleted = threading.Event()
    not_found = Reply(status=404, body=b"<Error><Code>NoSuchKey</Code></Error>")

    def store(request: Request, reply: Reply) -> Reply:
        if request.path == "/data/f2":
            deleted.set()
            return not_found
        if request.path == "/data/f1":
            return reply.but(delay=FOREVER if deleted.is_set() else BRIEFLY)
        return reply

    share.fault = store
    options = TransportOptions(max_connections=2, read_timeout=NEVER)
    with SharingClient(server.profile, options=options) as client:
        mirror = client.table("s.s.t").mirror(tmp_path / "m")
        with pytest.raises(FileGoneError, match="file f2"):
            mirror.sync()
        share.fault = lambda request, reply: reply
        mirror.sync()
        assert mirror.scan().to_arrow().sort_by("id").equals(pa.concat_tables([file(1).table, file(2).table]))
