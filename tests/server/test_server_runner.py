from __future__ import annotations

import contextlib
import gc
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import warnings
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
import requests
from deltalake import DeltaTable
from served_tables import END, Caller, add, at, metadata, protocol, write_table
from waiting import HANG, WallClock, run_program, wait_until

from delta_sharing_client.errors import MissingDependencyError
from delta_sharing_client.server import ServerOptions, SharingServer, write_sample_tables
from delta_sharing_client.server.__main__ import main

ORDERS = "retail.sales.orders"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "t", [protocol(), metadata(), add("f")])


def test_start_and_stop(table: Path) -> None:
    before = set(threading.enumerate())
    server = SharingServer({"s.s.t": table})
    with pytest.raises(RuntimeError, match="before it is started"):
        _ = server.endpoint
    assert repr(server) == "<SharingServer stopped, 1 tables>"
    server.stop()
    assert server.start() is server
    with pytest.raises(RuntimeError, match="runs already"):
        server.start()
    endpoint = server.endpoint
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/delta-sharing", endpoint)
    with Caller(server) as caller:
        assert caller.get("/shares").status == 200
        server.stop()
        server.stop()
    with pytest.raises(requests.ConnectionError):
        requests.get(endpoint, timeout=HANG)
    server.start()
    assert server.endpoint == endpoint
    server.stop()
    # Threads of earlier tests may end meanwhile.
    wait_until(lambda: set(threading.enumerate()) <= before, threading.enumerate)


def test_stop_with_open_downloads(table: Path) -> None:
    with (table / "f").open("wb") as file:
        file.truncate(200 << 20)
    before = set(threading.enumerate())
    server = SharingServer({"s.s.t": table}).start()
    with Caller(server) as caller:
        url = caller.query("s.s.t").files[0]["url"]
        with requests.get(url, stream=True, timeout=HANG) as response:
            response.raw.read(100)
            server.stop()
            wait_until(lambda: set(threading.enumerate()) <= before, threading.enumerate)


def test_connections_accepted_during_a_stop_are_closed(table: Path) -> None:
    """Clients connect as fast as they can while the server stops."""

    def connect(address: tuple[str, int], clients: list[socket.socket]) -> None:
        with contextlib.suppress(OSError):  # the server has stopped
            while len(clients) < 300:
                clients.append(socket.create_connection(address, timeout=HANG))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(10):
            clients: list[socket.socket] = []
            with SharingServer({"s.d.t": table}) as server:
                url = urlsplit(server.endpoint)
                thread = threading.Thread(target=connect, args=((url.hostname, url.port), clients))
                thread.start()
                wait_until(partial(bool, clients))
            thread.join(HANG)
            for client in clients:
                client.close()
        gc.collect()
    assert [str(warning.message) for warning in caught if warning.category is ResourceWarning] == []


def test_a_port_in_use_raises(table: Path) -> None:
    with SharingServer({"s.s.t": table}) as server:
        port = int(server.endpoint.split(":")[2].split("/")[0])
        with pytest.raises(OSError, match=f"port {port} on 127.0.0.1 is in use: choose another"):
            SharingServer({"s.s.t": table}, port=port).start()
        assert requests.get(server.endpoint + "/shares", timeout=HANG).status_code == 401
    with SharingServer({"s.s.t": table}, port=port) as again:
        assert f":{port}/" in again.endpoint


def test_the_server_listens_on_loopback_only(table: Path) -> None:
    with SharingServer({"s.s.t": table}) as server:
        port = int(server.endpoint.split(":")[2].split("/")[0])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match="refused"):
                probe.connect(("127.0.0.2", port))


def test_the_profile_is_private_and_valid(table: Path, tmp_path: Path) -> None:
    with SharingServer({"s.s.t": table}, token="canary-7f3a") as server:
        profile = server.profile
        assert profile["shareCredentialsVersion"] == 1
        assert profile["endpoint"] == server.endpoint
        assert profile["bearerToken"] == "canary-7f3a"
        expires = datetime.fromisoformat(profile["expirationTime"])
        assert timedelta(hours=23) < expires - datetime.now(UTC) < timedelta(hours=25)
        target = tmp_path / "p.share"
        target.write_text("old")
        target.chmod(0o644)
        assert server.write_profile(str(target)) == target
        assert json.loads(target.read_text()) == profile
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert sorted(path.name for path in tmp_path.iterdir()) == ["p.share", "t"]
        with pytest.raises(OSError, match="nowhere"):
            server.write_profile(tmp_path / "nowhere" / "p.share")
        shown = f"{server!r} {server} {vars(server)} {server.options} {server.requests}"
        assert "canary" not in shown
    assert "canary" not in repr(ServerOptions(token="canary-7f3a"))


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer ", "Bearer wrong", "Basic dXNlcjpwYXNz", "Bearer tökens", "token"]
)
def test_token_is_checked(table: Path, serve: Any, header: str | None) -> None:
    caller = serve({"s.s.t": table})
    for method, path in [
        ("GET", "/shares"),
        ("POST", f"{at('s.s.t')}/query"),
        ("GET", f"{at('no.no.no')}/version"),
    ]:
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        response = requests.request(method, caller.server.endpoint + path, headers=headers, json={}, timeout=HANG)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["errorCode"] == "UNAUTHENTICATED"


def test_token_expires(table: Path, serve: Any, wall_clock: WallClock) -> None:
    caller = serve({"s.s.t": table}, token_lifetime=timedelta(minutes=1))
    assert caller.get("/shares").status == 200
    wall_clock.advance(60)
    assert "expired" in caller.get("/shares").error(401)


def test_tokens_are_random(table: Path) -> None:
    with SharingServer({"s.s.t": table}) as one, SharingServer({"s.s.t": table}) as two:
        assert one.profile["bearerToken"] != two.profile["bearerToken"]
        assert len(one.profile["bearerToken"]) > 30


def test_urls_use_the_host_of_the_request(table: Path, serve: Any) -> None:
    """URLs have the host that the client used, through a proxy too; a malformed host is refused."""
    caller = serve({"s.s.t": table})
    url = caller.call("POST", f"{at('s.s.t')}/query", json={}, headers={"Host": "localhost:99"}).files[0]["url"]
    assert url.startswith("http://localhost:99/files/")
    for host in ("a/b", "a@b", "a?b", "a b"):
        assert caller.call("POST", f"{at('s.s.t')}/query", json={}, headers={"Host": host}).status in (400, 404)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"url_lifetime": timedelta(0)}, "url_lifetime"),
        ({"token_lifetime": timedelta(-1)}, "token_lifetime"),
        ({"page_size": 0}, "page_size"),
        ({"max_files_per_page": 0}, "max_files_per_page"),
        ({"prefer_format": "avro"}, "prefer_format"),
        ({"port": 70_000}, "port"),
        ({"recorded_requests": -1}, "recorded_requests"),
        ({"imitate": "other"}, "imitate"),
        ({"token": ""}, "token"),
        ({"token": "a b"}, "token"),
    ],
)
def test_invalid_options_raise(table: Path, options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SharingServer({"s.s.t": table}, **options)
    with pytest.raises(TypeError):
        SharingServer({"s.s.t": table}, no_such_option=1)


def test_options_can_be_an_object(table: Path) -> None:
    server = SharingServer({"s.s.t": table}, options=ServerOptions(page_size=7, token="t"), history=False)
    assert (server.options.page_size, server.options.history, server.options.token) == (7, False, None)


def test_requests_are_recorded_without_secrets(sample: Caller) -> None:
    answer = sample.query(ORDERS, END, maxFiles=1, predicateHints=["order_id > 1"], includeRefreshToken=True)
    sample.query(ORDERS, END, refreshToken=answer.end["refreshToken"])
    sample.get("/shares", pageToken="x", maxResults=3)
    content = sample.file(answer.files[0]["url"], Range="bytes=5-14").content
    query, refreshed, listing, file = sample.server.requests
    assert (query.method, query.path, query.status) == ("POST", f"/delta-sharing{at(ORDERS)}/query", 200)
    assert query.body == {"maxFiles": 1, "predicateHints": ["order_id > 1"], "includeRefreshToken": True}
    assert query.bytes_sent == len(answer.response.content)
    assert query.capabilities == "includeendstreamaction=true"
    assert query.has_authorization
    assert refreshed.body == {"refreshToken": "***"}
    assert (listing.query, listing.status) == ({"pageToken": "***", "maxResults": "3"}, 400)
    assert (file.range, file.bytes_sent, file.status) == ("bytes=5-14", len(content), 206)
    assert file.query["X-Amz-Signature"] == "***"
    sample.server.reset_requests()
    assert sample.server.requests == []


def test_the_newest_requests_are_recorded(table: Path, serve: Any) -> None:
    caller = serve({"s.s.t": table}, recorded_requests=3)
    for size in range(10):
        caller.get("/shares", maxResults=size)
    assert [request.query["maxResults"] for request in caller.server.requests] == ["7", "8", "9"]
    caller = serve({"s.s.t": table}, recorded_requests=0)
    assert caller.get("/shares").status == 200
    assert caller.server.requests == []


def test_internal_errors_hide_their_cause(
    table: Path, serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caller = serve({"s.s.t": table})
    from delta_sharing_client.server import app

    def fail(*_: object) -> None:
        raise RuntimeError(f"secret {table}")

    monkeypatch.setattr(app, "query_snapshot", fail)
    assert caller.query("s.s.t").error(500) == "The server failed to answer this request."
    assert "POST /delta-sharing/shares/s/schemas/s/tables/t/query failed" in caplog.text


def test_a_missing_extra_raises(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("itsdangerous", "starlette", "uvicorn"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, package, None)
            with pytest.raises(MissingDependencyError, match=rf"needs {package}.*\[server\]"):
                SharingServer({"s.s.t": table})


def test_importing_the_server_does_not_import_starlette() -> None:
    heavy = ("itsdangerous", "starlette", "uvicorn", "pyarrow", "deltalake", "asyncio")
    code = f"import sys, delta_sharing_client.server; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_sample_tables(tmp_path / "new" / "place")
    assert sorted(paths) == ["retail.ops.sensor_readings", "retail.sales.customers", ORDERS]
    assert {name: DeltaTable(path).version() for name, path in paths.items()} == {
        ORDERS: 7,
        "retail.sales.customers": 0,
        "retail.ops.sensor_readings": 2,
    }
    rows = sum(pq.read_metadata(uri).num_rows for uri in DeltaTable(paths[ORDERS]).file_uris())
    assert rows == 60_000 - 10
    assert SharingServer(tmp_path / "new" / "place").tables == tuple(sorted(paths))
    assert SharingServer(paths).tables == tuple(sorted(paths))
    with pytest.raises(FileExistsError, match="orders exists already"):
        write_sample_tables(tmp_path / "new" / "place")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingDependencyError, match=r"deltalake.*\[delta\]"):
        write_sample_tables(tmp_path / "other")


def test_command_line_runs_until_ctrl_c(table: Path, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("canary-0815\n")
    command = [sys.executable, "-m", "delta_sharing_client.server", str(tmp_path), "--profile", "mine.share"]
    command += ["--token-file", str(token_file), "--url-lifetime", "30"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    shown = []
    while not shown or "Ctrl-C" not in shown[-1]:
        shown.append(process.stdout.readline())
        assert shown[-1], process.communicate()
    profile = json.loads((tmp_path / "mine.share").read_text())
    assert f"Listening on {profile['endpoint']}\n" in shown
    assert "  local.default.t\n" in shown
    assert any(line.endswith(f"{tmp_path / 'mine.share'}\n") for line in shown)
    headers = {"Authorization": "Bearer canary-0815"}
    assert requests.get(profile["endpoint"] + "/shares", headers=headers, timeout=HANG).status_code == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG)
    assert (process.returncode, out, err) == (0, "\nStopped.\n", "")
    assert "canary" not in "".join(shown)


def test_the_command_line_refuses_invalid_arguments(table: Path, tmp_path: Path, capsys: Any) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    a_file = tmp_path / "a-file"
    a_file.touch()
    with SharingServer({"s.s.t": table}) as server:
        port = server.endpoint.split(":")[2].split("/")[0]
        for arguments, word in [
            ([str(tmp_path / "nope")], "there is no such directory"),
            ([str(empty)], "no Delta table in this directory"),
            ([str(a_file)], "it is a file; give the directory"),
            ([str(table.parent), "--host", "192.0.2.1"], "cannot listen on 192.0.2.1, port 0"),
            ([str(tmp_path), "--port", port], "is in use"),
            ([str(tmp_path), "--url-lifetime", "-5"], "Error: url_lifetime is -5 s; it must be positive"),
            ([str(tmp_path), "--token-file", str(tmp_path / "no-token")], "no-token"),
            ([str(tmp_path), "--profile", str(tmp_path / "no" / "p.share")], "profile cannot be written"),
        ]:
            assert main(arguments) == 2
            shown = capsys.readouterr()
            assert shown.out == ""
            assert shown.err.startswith("Error: ")
            assert word in shown.err
            assert shown.err.count("\n") == 1


@pytest.mark.parametrize("held", ["import pandas\n", '{"a": 1}', "[1]", "\x00"])
def test_the_command_line_replaces_only_profiles(table: Path, tmp_path: Path, capsys: Any, held: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(held)
    assert main([str(tmp_path), "--profile", str(mine)]) == 2
    assert "mine.py exists and is not a profile" in capsys.readouterr().err
    assert mine.read_text() == held


@pytest.mark.parametrize("held", ["", '{"shareCredentialsVersion": 1, "endpoint": "http://127.0.0.1:1/x"}'])
def test_command_line_replaces_a_profile(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    profile = tmp_path / "old.share"
    profile.write_text(held)
    monkeypatch.setattr(SharingServer, "wait", lambda server: None)
    assert main([str(tmp_path), "--profile", str(profile)]) == 0
    assert json.loads(profile.read_text())["bearerToken"]


def test_help(capsys: Any) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    for word in (
        "--host",
        "--port",
        "--profile",
        "--url-lifetime",
        "--token-file",
        "share.schema.table",
        "example:",
    ):
        assert word in shown
    with pytest.raises(SystemExit) as done:
        main([])
    assert done.value.code == 2


def test_process_ends_without_stopping_the_server(table: Path) -> None:
    """A notebook that is closed leaves nothing behind: the thread is a daemon."""
    start = f"SharingServer({{'s.s.t': {str(table)!r}}}).start()"
    code = f"from delta_sharing_client.server import SharingServer; {start}"
    done = run_program([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (0, "")
