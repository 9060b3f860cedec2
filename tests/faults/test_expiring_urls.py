"""Loads that take longer than the lifetime of their URLs, which are renewed early or after a refusal."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.faulty_share import TABLE, FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request
from waiting import WallClock

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import StorageError
from delta_sharing_client.options import TransportOptions

QUICK = {"backoff_base": timedelta(milliseconds=1), "backoff_cap": timedelta(milliseconds=2)}


def file(number: int, count: int = 10, row_group: int = 10**6) -> File:
    table = rows(number * 1_000_000, count)
    return File(f"f{number}", table, parquet(table, row_group))


SMALL = [file(n) for n in range(12)]


def connect(server: FaultServer, **options: Any) -> SharingClient:
    return SharingClient(server.profile, options=TransportOptions(**{**QUICK, **options}))


def slowly(reader: pa.RecordBatchReader, clock: WallClock, seconds: float) -> pa.Table:
    """Read all batches, with a number of seconds for each."""
    batches = []
    for batch in reader:
        batches.append(batch)
        clock.advance(seconds)
    return pa.Table.from_batches(batches)


class TestEarlyRenewal:
    @pytest.mark.parametrize("tokens", [True, False])
    def test_urls_are_renewed_before_they_expire(
        self, server: FaultServer, tokens: bool, wall_clock: WallClock
    ) -> None:
        """A slow reader gets no refusal, although the read takes longer than the lifetime of the URLs."""
        share = FaultyShare(server=server, versions=[SMALL], lifetime=100, tokens=tokens)
        with connect(server, max_connections=1, memory_budget=1) as client:
            loaded = slowly(client.table("s.s.t").scan().to_record_batch_reader(), wall_clock, 15)
        assert loaded.equals(share.rows_at(0))
        assert share.refused == 0
        first, *others = share.queries
        assert others
        assert "refreshToken" not in first
        for query in others:
            renewal = {key: query[key] for key in ("refreshToken", "version") if key in query}
            assert renewal == ({"refreshToken": "canary-refresh-0"} if tokens else {"version": 0})

    def test_load_within_the_lifetime_renews_nothing(self, server: FaultServer) -> None:
        share = FaultyShare(server=server, versions=[SMALL], lifetime=3600)
        with connect(server) as client:
            assert client.table("s.s.t").scan().to_arrow().equals(share.rows_at(0))
        assert share.listings == 1

    @pytest.mark.parametrize("skew", [-7200.0, 7200.0])
    def test_clock_offset_of_the_server_is_respected(
        self, server: FaultServer, skew: float, wall_clock: WallClock
    ) -> None:
        share = FaultyShare(server=server, versions=[SMALL], lifetime=100, skew=skew)
        with connect(server, max_connections=1, memory_budget=1) as client:
            loaded = slowly(client.table("s.s.t").scan().to_record_batch_reader(), wall_clock, 12)
        assert loaded.equals(share.rows_at(0))
        assert 2 <= share.listings <= 12

    def test_wrong_expiration_time_costs_no_row(self, server: FaultServer) -> None:
        """The server sends a past expiration time; the store accepts the URLs."""
        share = FaultyShare(server=server, versions=[SMALL])

        def wrong_time(request: Request, reply: Reply) -> Reply:
            if request.path != f"{TABLE}/query":
                return reply
            field = b'"minUrlExpirationTimestamp": '
            return reply.but(body=reply.body.replace(field, field + b'1000, "x": '))

        share.fault = wrong_time
        with connect(server) as client:
            assert client.table("s.s.t").scan().to_arrow().equals(share.rows_at(0))
        assert share.listings == 1

    def test_failed_early_renewal_costs_no_row(self, server: FaultServer, wall_clock: WallClock) -> None:
        """Early renewal fails; the client uses the URLs until they expire."""
        share = FaultyShare(server=server, versions=[SMALL], lifetime=100)
        down = Reply(status=503)
        share.fault = lambda request, reply: (
            down if request.path == f"{TABLE}/query" and share.listings > 1 else reply
        )
        with connect(server, max_connections=1, memory_budget=1, api_attempts=2) as client:
            reader = client.table("s.s.t").scan().to_record_batch_reader()
            first = reader.read_next_batch()
            wall_clock.advance(85)  # between early renewal and expiration
            rest = reader.read_all()
        assert pa.concat_tables([pa.Table.from_batches([first]), rest]).equals(share.rows_at(0))
        assert share.listings == 3
        assert share.refused == 0


class TestRenewalAfterRefusal:
    """Without an expiration time in the response, URLs are renewed after a refusal by the store."""

    @pytest.mark.parametrize("lifetime", [30, 150])
    def test_urls_of_a_snapshot_are_renewed(
        self, server: FaultServer, lifetime: float, wall_clock: WallClock
    ) -> None:
        share = FaultyShare(server=server, versions=[SMALL], lifetime=lifetime, sends_expiration=False)
        with connect(server, max_connections=1, memory_budget=1) as client:
            loaded = slowly(client.table("s.s.t").scan().to_record_batch_reader(), wall_clock, 18)
        assert loaded.equals(share.rows_at(0))
        assert share.refused >= 1
        assert share.listings == 1 + share.refused

    def test_waiting_files_share_one_renewal(self, server: FaultServer, wall_clock: WallClock) -> None:
        """The URLs of twelve files expire at the same time, and one listing renews them."""
        share = FaultyShare(server=server, versions=[SMALL], lifetime=30, sends_expiration=False)
        with connect(server) as client:
            reader = client.table("s.s.t").scan().to_record_batch_reader()
            wall_clock.advance(40)
            share.lifetime = 3600
            assert reader.read_all().equals(share.rows_at(0))
        assert share.listings == 2
        assert 1 <= share.refused <= 12

    def test_later_files_use_the_renewed_urls(self, server: FaultServer, wall_clock: WallClock) -> None:
        share = FaultyShare(server=server, versions=[SMALL], lifetime=30, sends_expiration=False)
        with connect(server, max_connections=1, memory_budget=1) as client:
            reader = client.table("s.s.t").scan().to_record_batch_reader()
            wall_clock.advance(40)
            share.lifetime = 3600
            assert reader.read_all().equals(share.rows_at(0))
        assert (share.listings, share.refused) == (2, 1)

    def test_large_file_is_read_through_several_renewals(self, server: FaultServer, wall_clock: WallClock) -> None:
        """The URL is renewed again as long as the download makes progress."""
        large = file(1, 200_000, row_group=20_000)
        share = FaultyShare(server=server, versions=[[large]], lifetime=25, sends_expiration=False)
        with connect(server, max_connections=1, memory_budget=1) as client:
            # With a limit, each row group is fetched separately.
            reader = client.table("s.s.t").scan(columns=["noise"], limit=200_000).to_record_batch_reader()
            loaded = slowly(reader, wall_clock, 20)
        assert loaded.equals(large.table.select(["noise"]))
        assert all("range" in request.headers for request in share.file_requests)
        assert share.refused > 2

    def test_download_resumes_at_the_byte_reached(self, server: FaultServer, wall_clock: WallClock) -> None:
        large = file(1, 20_000)
        share = FaultyShare(server=server, versions=[[large]], lifetime=40, sends_expiration=False)
        half = len(large.data) // 2
        tries = 0

        def cut_once(request: Request, reply: Reply) -> Reply:
            nonlocal tries
            tries += request.path.startswith("/data/")
            if tries == 1 and request.path.startswith("/data/"):
                wall_clock.advance(50)
                return reply.but(cut_at=half)
            return reply

        share.fault = cut_once
        with connect(server) as client:
            assert client.table("s.s.t").scan().to_arrow().equals(large.table)
        first, refused, resumed = share.file_requests
        assert "range" not in first.headers
        assert refused.headers["range"] == resumed.headers["range"] == f"bytes={half}-{len(large.data) - 1}"
        assert resumed.headers["if-match"] == '"f1"'
        assert share.refused == 1

    def test_never_valid_url_is_renewed_twice(self, server: FaultServer) -> None:
        share = FaultyShare(server=server, versions=[SMALL[:1]], lifetime=-1, sends_expiration=False)
        with connect(server) as client, pytest.raises(StorageError, match="its URL has expired"):
            client.table("s.s.t").scan().to_arrow()
        assert share.listings == 3
        assert share.refused == 3


class TestTablesWithANewVersion:
    """The table has a new version when its URLs expire."""

    def load(self, share: FaultyShare, wall_clock: WallClock) -> pa.Table:
        with connect(share.server, max_connections=1, memory_budget=1) as client:
            reader = client.table("s.s.t").scan().to_record_batch_reader()
            first = reader.read_next_batch()
            share.version = 1
            wall_clock.advance(40)
            share.lifetime = 3600
            return pa.concat_tables([pa.Table.from_batches([first]), reader.read_all()])

    @pytest.mark.parametrize(("tokens", "history"), [(True, False), (False, True), (True, True)])
    def test_the_same_version_is_requested(
        self, server: FaultServer, tokens: bool, history: bool, wall_clock: WallClock
    ) -> None:
        share = FaultyShare(
            server=server,
            versions=[SMALL[:6], SMALL[6:]],
            lifetime=30,
            sends_expiration=False,
            tokens=tokens,
            history=history,
        )
        assert self.load(share, wall_clock).equals(share.rows_at(0))

    def test_files_of_both_versions_are_read_without_time_travel(
        self, server: FaultServer, wall_clock: WallClock
    ) -> None:
        share = FaultyShare(
            server=server,
            versions=[SMALL[:6], [SMALL[7], *reversed(SMALL[:6])]],
            lifetime=30,
            sends_expiration=False,
            tokens=False,
            history=False,
        )
        assert self.load(share, wall_clock).equals(share.rows_at(0))

    def test_file_missing_from_the_new_version_raises(self, server: FaultServer, wall_clock: WallClock) -> None:
        share = FaultyShare(
            server=server,
            versions=[SMALL[:6], SMALL[:5]],
            lifetime=30,
            sends_expiration=False,
            tokens=False,
            history=False,
        )
        with pytest.raises(
            StorageError, match=r"file f5: .*does not list the file any more.*later version than 0"
        ):
            self.load(share, wall_clock)

    def test_expired_refresh_token_falls_back_to_the_version(
        self, server: FaultServer, wall_clock: WallClock
    ) -> None:
        share = FaultyShare(server=server, versions=[SMALL[:6], SMALL[6:]], lifetime=30, sends_expiration=False)
        refusal = Reply.of_json({"errorCode": "INVALID", "message": "the refresh token has expired"}, status=400)
        share.fault = lambda request, reply: refusal if b"refreshToken" in request.body else reply
        assert self.load(share, wall_clock).equals(share.rows_at(0))
        assert [query.get("version") for query in share.queries] == [None, None, 0]


@pytest.mark.parametrize("sends_expiration", [True, False])
def test_urls_of_changes_are_renewed(server: FaultServer, sends_expiration: bool, wall_clock: WallClock) -> None:
    versions = [SMALL[:4], SMALL[2:8], SMALL[5:12]]
    share = FaultyShare(
        server=server, versions=versions, lifetime=50, sends_expiration=sends_expiration, version=2
    )
    with connect(server, max_connections=1, memory_budget=1) as client:
        loaded = slowly(client.table("s.s.t").changes(0).to_record_batch_reader(), wall_clock, 10)
    assert loaded.equals(share.changes(0, 2))
    assert share.listings > 1
    if sends_expiration:
        assert share.refused == 0
    ranges = [request.query.get("endingVersion") for request in server.seen(f"{TABLE}/changes")]
    assert ranges == [None] + ["2"] * (len(ranges) - 1)


@pytest.mark.parametrize("sends_expiration", [True, False])
def test_urls_of_a_sync_are_renewed(
    server: FaultServer, tmp_path: Path, sends_expiration: bool, wall_clock: WallClock
) -> None:
    share = FaultyShare(server=server, versions=[SMALL], lifetime=50, sends_expiration=sends_expiration)

    def late(request: Request, reply: Reply) -> Reply:
        if request.path.startswith("/data/"):
            wall_clock.advance(10)
        return reply

    share.fault = late
    with connect(server, max_connections=1) as client:
        result = client.table("s.s.t").mirror(tmp_path / "m").sync()
    assert result.files_added == 12
    tables = [pq.read_table(path) for path in (tmp_path / "m").rglob("*.parquet")]
    assert pa.concat_tables(tables).sort_by("id").equals(share.rows_at(0))
    assert share.listings > 1
    if sends_expiration:
        assert share.refused == 0
