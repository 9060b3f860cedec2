"""Errors: statuses and their JSON, expired URLs, answers that end early."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from conformance_targets import EXTERNAL, LATEST, ORDERS, OUTSIDE, Target, path_of
from faults.server import FaultServer, Reply
from waiting import HANG, WallClock

from delta_sharing_client import SharingClient, TransportOptions
from delta_sharing_client.errors import (
    AuthenticationError,
    BadRequestError,
    ForbiddenError,
    IncompleteResponseError,
    NotFoundError,
    QueryError,
    RateLimitError,
    RestError,
    ServerError,
)
from delta_sharing_client.model.names import Table
from delta_sharing_client.server import SharingServer
from delta_sharing_client.wire.requests import ChangesRequest

QUICK = TransportOptions(
    api_attempts=3, backoff_base=timedelta(milliseconds=1), backoff_cap=timedelta(milliseconds=2)
)


class TestStatuses:
    def test_400(self, target: Target) -> None:
        with pytest.raises(BadRequestError) as caught:
            target.client.table(ORDERS).scan(version=LATEST + 5).to_arrow()
        assert (caught.value.status, caught.value.error_code) == (400, "INVALID_PARAMETER_VALUE")
        assert caught.value.server_message
        assert f"table {ORDERS}" in str(caught.value)

    def test_401(self, target: Target) -> None:
        with SharingClient(target.stranger) as stranger:
            for ask in (
                stranger.list_shares,
                stranger.table(ORDERS).version,
                stranger.table(ORDERS).metadata,
                stranger.table(ORDERS).scan().to_arrow,
            ):
                with pytest.raises(AuthenticationError) as caught:
                    ask()
                code = None if target.like_reference else "UNAUTHENTICATED"
                assert (caught.value.status, caught.value.error_code) == (401, code)

    def test_403(self, target: Target) -> None:
        with pytest.raises(ForbiddenError) as caught:
            target.client.table(OUTSIDE).scan().to_arrow()
        assert (caught.value.status, caught.value.error_code) == (403, "PERMISSION_DENIED")
        assert OUTSIDE in str(caught.value)

    def test_404(self, target: Target) -> None:
        client = target.client
        for name in ("nope.sales.orders", "shop.nope.orders", "shop.sales.nope"):
            table = client.table(name)
            for ask in (table.version, table.metadata, table.scan().to_arrow):
                with pytest.raises(NotFoundError) as caught:
                    ask()
                assert (caught.value.status, caught.value.error_code) == (404, "RESOURCE_DOES_NOT_EXIST")
            with pytest.raises(NotFoundError):
                target.rest.table_changes(Table.parse(name), ChangesRequest(starting_version=0))
        with pytest.raises(NotFoundError):
            client.get_share("nope")
        with pytest.raises(NotFoundError):
            client.list_tables("shop.nope")

    @pytest.mark.protocol("errorCode", "message")
    def test_error_body_is_json_with_two_fields(self, target: Target) -> None:
        path = path_of(ORDERS)
        answers = [
            target.get(f"{path}/metadata", version="-1"),
            target.query(ORDERS, limitHint="many"),
            target.call("POST", f"{path}/query", data=b"{"),
            target.call("POST", f"{path}/query", json=[]),
            target.call("GET", "/shares", headers={"Authorization": "Basic dTpw"}),
            target.query(OUTSIDE),
            target.get("/shares/nope"),
            target.get("/no/such/endpoint"),
            target.call("POST", "/shares"),
        ]
        assert [answer.status for answer in answers] == [400, 400, 400, 400, 401, 403, 404, 404, 405]
        for answer in answers:
            if answer.status == 401 and target.like_reference:
                assert answer.headers["Content-Type"].startswith("text/plain")
                continue
            assert answer.headers["Content-Type"].startswith("application/json")
            assert set(answer.json) == {"errorCode", "message"}
            assert all(isinstance(text, str) and text for text in answer.json.values())
            assert "/tmp" not in answer.text

    @pytest.mark.parametrize(
        ("status", "kind", "attempts"),
        [
            (400, BadRequestError, 1),
            (403, ForbiddenError, 1),
            (404, NotFoundError, 1),
            (409, RestError, 1),
            (429, RateLimitError, 3),
            (500, ServerError, 3),
            (501, ServerError, 1),
            (503, ServerError, 3),
        ],
    )
    def test_each_status_raises_its_class(
        self, faults: FaultServer, status: int, kind: type[RestError], attempts: int
    ) -> None:
        body = {"errorCode": "CODE", "message": "the reason"}
        faults.on("POST", "*", Reply.of_json(body, status=status))
        with SharingClient(faults.profile, options=QUICK) as client, pytest.raises(RestError) as caught:
            client.table("s.s.t").scan().to_arrow()
        assert type(caught.value) is kind
        assert (caught.value.error_code, caught.value.server_message) == ("CODE", "the reason")
        # A refusal is followed by a request for the table's access modes.
        assert len([request for request in faults.requests if request.method == "POST"]) == attempts

    @pytest.mark.parametrize(
        "body", [b"", b"<html><body>Bad gateway</body></html>", b"[]", b'{"message": 5}', b"\xff"]
    )
    def test_error_body_outside_the_protocol(self, faults: FaultServer, body: bytes) -> None:
        faults.on("GET", "*", Reply(status=400, body=body))
        with SharingClient(faults.profile, options=QUICK) as client, pytest.raises(BadRequestError) as caught:
            client.list_shares()
        assert "\n" not in str(caught.value)


class TestAnswersThatBreakOff:
    HEADERS = {"delta-sharing-capabilities": "responseformat=parquet;includeendstreamaction=true"}

    def lines(self, faults: FaultServer, count: int, *ends: dict[str, Any]) -> list[dict[str, Any]]:
        metadata = {
            "id": "x",
            "format": {"provider": "parquet"},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
        }
        files = [
            {"file": {"url": f"{faults.url}/{n}", "id": str(n), "partitionValues": {}, "size": 9}}
            for n in range(count)
        ]
        return [{"protocol": {"minReaderVersion": 1}}, {"metaData": metadata}, *files, *ends]

    @pytest.mark.protocol("endStreamAction")
    def test_an_error_in_the_last_line_is_the_answer(self, faults: FaultServer) -> None:
        for wrapped in (True, False):
            end = {"errorMessage": "the log vanished", "httpStatusErrorCode": 400}
            last = {"endStreamAction": end} if wrapped else end
            faults.on("POST", "*", Reply.of_lines(*self.lines(faults, 3, last)))
            with SharingClient(faults.profile, options=QUICK) as client, pytest.raises(QueryError) as caught:
                client.table("s.s.t").scan().files()
            assert (caught.value.server_message, caught.value.status) == ("the log vanished", 400)

    def test_missing_announced_end_is_an_incomplete_answer(self, faults: FaultServer) -> None:
        cut = Reply.of_lines(*self.lines(faults, 3), headers=self.HEADERS)
        whole = Reply.of_lines(*self.lines(faults, 4, {"endStreamAction": {}}), headers=self.HEADERS)
        faults.on("POST", "*", cut, cut, whole)
        with SharingClient(faults.profile, options=QUICK) as client:
            assert len(client.table("s.s.t").scan().files()) == 4
        faults.on("POST", "*", cut)
        with SharingClient(faults.profile, options=QUICK) as client, pytest.raises(IncompleteResponseError):
            client.table("s.s.t").scan().files()

    def test_unannounced_end_is_optional(self, faults: FaultServer) -> None:
        faults.on(
            "POST",
            "*",
            Reply.of_lines(*self.lines(faults, 2)),
            Reply.of_lines(*self.lines(faults, 2, {"endStreamAction": {}})),
            Reply.of_lines(*self.lines(faults, 2, {"minUrlExpirationTimestamp": 4_000_000_000_000})),
        )
        with SharingClient(faults.profile, options=QUICK) as client:
            for _ in range(3):
                assert len(client.table("s.s.t").scan().files()) == 2

    def test_a_failure_after_the_status(self, tmp_path: Path) -> None:
        """The embedded server reports a late error in the last line, because the status is sent already."""
        import pyarrow as pa
        from loading_tables import File, column, write_table

        rows = pa.table({"id": [1]})
        files = [File(rows=rows, name=f"{n:05}.parquet") for n in range(900)]
        table = write_table(
            tmp_path / "t", [column("id", "long")], [*files, File(rows=rows, name="z/../../out.parquet")]
        )
        with (
            SharingServer({"s.s.t": table}) as server,
            SharingClient(server.profile, options=QUICK) as client,
            pytest.raises(QueryError, match="outside its own directory") as caught,
        ):
            client.table("s.s.t").scan().files()
        assert caught.value.status == 403


class TestExpiredUrls:
    def test_store_refuses_expired_urls(self, tables: dict[str, Path], wall_clock: WallClock) -> None:
        with SharingServer({ORDERS: tables[ORDERS]}, url_lifetime=timedelta(minutes=1)) as server:
            target = Target("short-lived", server.profile, server)
            answer = target.query(ORDERS, "includeendstreamaction=true")
            file = answer.all("file")[0]
            assert file["expirationTimestamp"] <= (wall_clock() + 60) * 1000
            wall_clock.advance(60)
            refused = requests.get(file["url"], timeout=HANG)
            target.close()
        assert refused.status_code == 403
        assert "Request has expired" in refused.text

    @pytest.mark.parametrize(("history", "prefer_format"), [(True, "auto"), (False, "delta")])
    def test_load_longer_than_the_urls_is_complete(
        self, tables: dict[str, Path], history: bool, prefer_format: Any, wall_clock: WallClock
    ) -> None:
        options = TransportOptions(max_connections=1, memory_budget=1)
        with (
            SharingServer(
                {ORDERS: tables[ORDERS]},
                url_lifetime=timedelta(seconds=100),
                history=history,
                prefer_format=prefer_format,
            ) as server,
            SharingClient(server.profile, options=options) as client,
        ):
            scan = client.table(ORDERS).scan(columns=["id"])
            expected = sorted(scan.to_arrow()["id"].to_pylist())
            server.reset_requests()
            seen: list[int] = []
            for batch in scan.to_record_batch_reader():
                seen += batch["id"].to_pylist()
                wall_clock.advance(25)
            queries = [request for request in server.requests if request.method == "POST"]
        assert sorted(seen) == expected
        assert len(queries) > 1


@pytest.mark.slow
def test_the_suite_runs_against_any_other_server(
    start: Callable[..., Target], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Named by the environment, a server is among the parameters; this one is the embedded one again."""
    import os
    import subprocess
    import sys

    other = start("delta")
    assert other.server is not None
    profile = other.server.write_profile(tmp_path / "other.share")
    tests = Path(__file__).parent / "test_conformance_any_server.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "external", str(tests)],
        cwd=pytestconfig.rootpath,
        env={**os.environ, EXTERNAL: str(profile)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
