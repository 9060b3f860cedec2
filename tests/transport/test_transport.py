"""REST and storage transports over real sockets: requests, redirects, proxies, refusals, errors."""

import errno
import gc
import gzip
import http.server
import json
import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from http.cookies import SimpleCookie

import pytest
from faults.server import FaultServer, Reply
from packets import PacketServer
from waiting import BRIEFLY, FOREVER, HANG, NEVER

from delta_sharing_client.errors import (
    IncompleteResponseError,
    InsecureUrlError,
    ProtocolError,
    RequestTimeoutError,
    TransportError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.cancellation import SocketRegistry
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError, translate
from delta_sharing_client.transport.log_redaction import redacted
from delta_sharing_client.transport.pooled_adapter import PooledAdapter
from delta_sharing_client.transport.rest_transport import ApiTransport
from delta_sharing_client.transport.retry import is_retryable
from delta_sharing_client.transport.storage_transport import StorageTransport

TOKEN = "canary-token-7f3a"
SIGNED = "/file.parquet?X-Amz-Signature=canary-signature-11aa&X-Amz-Expires=900"


class Authorizer:
    renewable = False

    def __init__(self):
        self.asked = []

    def headers(self, *, refused=None):
        self.asked.append(refused is not None)
        return {"Authorization": f"Bearer {TOKEN}{'' if refused is None else '-new'}"}

    def hint(self):
        return "ask for a new one"


@pytest.fixture
def api(server):
    with ApiTransport(server.url + "/prefix/", Authorizer(), TransportOptions()) as transport:
        yield transport


@pytest.fixture
def refused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TestApiRequests:
    def test_a_request(self, server, api):
        server.on("POST", "/prefix/shares/a%20b%2F%3F%23%25c/query", Reply.of_json({"x": 1}))
        with api.request(
            "POST",
            ("shares", "a b/?#%c", "query"),
            params={"startingTimestamp": "2022-01-01T00:00:00+01:00", "q": "a b&c"},
            headers={"delta-sharing-capabilities": "responseformat=delta"},
            body={"limitHint": 3},
        ) as response:
            assert response.status == 200
            assert response.ok
            assert json.loads(response.read(1000)) == {"x": 1}
        (request,) = server.requests
        assert (
            request.target.partition("?")[2] == "startingTimestamp=2022-01-01T00%3A00%3A00%2B01%3A00&q=a%20b%26c"
        )
        assert request.json() == {"limitHint": 3}
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        assert request.headers["content-type"] == "application/json; charset=utf-8"
        assert request.headers["accept-encoding"] == "gzip"
        assert request.headers["user-agent"].startswith("delta-sharing-client/")
        assert request.headers["delta-sharing-capabilities"] == "responseformat=delta"

    def test_connections_are_reused(self, server, api):
        server.on("GET", "*", Reply(body=b"x" * 100_000), Reply(body=b"y", chunk=1), Reply())
        for _ in range(4):
            with api.request("GET", ("shares",)) as response:
                b"".join(response.chunks())
        assert server.connections == 1

    @pytest.mark.parametrize("reply", [Reply(length=100), Reply(chunk=1)])
    def test_the_answer_to_head_has_no_body(self, server, api, reply):
        server.on("HEAD", "*", reply)
        for _ in range(2):
            with api.request("HEAD", ("shares",)) as response:
                assert response.read(1000) == b""
        assert server.connections == 1

    @pytest.mark.parametrize("body", [b"hel", b"hello"])
    def test_a_connection_with_the_body_of_an_answer_to_head_is_not_used_again(self, body):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
        with (
            PacketServer([head + body], [head + b"again"]) as server,
            ApiTransport(server.url, Authorizer(), TransportOptions()) as api,
        ):
            assert api.request("HEAD", ("shares",)).status == 200
            with api.request("GET", ("shares",)) as response:
                assert response.read(1000) == b"again"
            assert server.connections == 2

    def test_a_compressed_answer(self, server, api):
        data = os.urandom(500_000)
        server.on("GET", "*", Reply(body=gzip.compress(data), headers={"Content-Encoding": "gzip"}, chunk=1000))
        with api.request("GET", ("shares",)) as response:
            assert b"".join(response.chunks()) == data

    def test_read_is_bounded(self, server, api):
        server.on("GET", "*", Reply(body=b"0123456789" * 100_000))
        with api.request("GET", ("shares",)) as response:
            assert response.read(15) == b"012345678901234"

    def test_renewable_credential_is_requested_again_once(self, server, api):
        api.authorize.renewable = True
        server.on("GET", "*", Reply(status=401), Reply(body=b"ok"), Reply(status=401))
        assert api.request("GET", ("x",)).status == 200
        assert api.authorize.asked == [False, True]
        assert server.requests[1].headers["authorization"].endswith("-new")
        assert api.request("GET", ("x",)).status == 401
        assert len(server.requests) == 4

    def test_fixed_credential_is_not_requested_again(self, server, api):
        server.on("GET", "*", Reply(status=401))
        assert api.request("GET", ("x",)).status == 401
        assert len(server.requests) == 1

    def test_an_error_scrubs_the_credential_that_the_server_repeats(self, server, api):
        server.on("GET", "*", Reply(status=403, body=f"bad token {TOKEN}".encode()))
        with api.request("GET", ("x",)) as response:
            assert response.scrub(response.excerpt().decode()) == "bad token ***"

    def test_plain_http_to_another_machine(self):
        with pytest.raises(InsecureUrlError, match="clear text"):
            ApiTransport("http://sharing.example/x", Authorizer(), TransportOptions())
        ApiTransport("http://sharing.example/x", Authorizer(), TransportOptions(allow_http=True))

    def test_a_transport_can_be_used_after_close_and_in_a_forked_process(self, server, api):
        server.on("GET", "*", Reply(body=b"x"))
        api.request("GET", ("x",)).read(10)
        api.close()
        assert api.request("GET", ("x",)).read(10) == b"x"
        before = api._adapter_for("http://x")
        api.after_fork()  # as in a child
        assert api._adapter_for("http://x") is not before


class TestNoOtherCredentials:
    @pytest.fixture(autouse=True)
    def netrc(self, tmp_path, monkeypatch):
        file = tmp_path / "netrc"
        file.write_text(
            "machine 127.0.0.1 login someone password canary-netrc\nmachine localhost login a password b\n"
        )
        monkeypatch.setenv("NETRC", str(file))

    def test_the_api_session_ignores_netrc(self, server, api):
        server.on("GET", "*", Reply())
        api.request("GET", ("x",))
        assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"

    def test_the_storage_session_has_none_at_all(self, server, storage):
        cookie = SimpleCookie({"session": "canary"})
        server.on("GET", "*", Reply(headers={"Set-Cookie": cookie["session"].OutputString()}))
        for _ in range(2):
            storage.get(SecretUrl(server.url + SIGNED)).read(1)
        for request in server.requests:
            assert "authorization" not in request.headers
            assert "cookie" not in request.headers
            assert request.headers["accept-encoding"] == "identity"
            assert request.target == SIGNED

    def test_loopback_is_never_proxied(self, server, api, storage, monkeypatch, refused_port):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{refused_port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        server.on("GET", "*", Reply())
        assert api.request("GET", ("x",)).ok
        assert storage.get(SecretUrl(server.url + SIGNED)).ok


class TestProxies:
    @pytest.fixture(autouse=True)
    def no_proxy(self, monkeypatch):
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)

    def send(self, options):
        with StorageTransport(options, endpoint_is_loopback=False) as storage:
            return storage.get(SecretUrl("http://store.invalid/file?sig=canary")).read(10)

    def test_proxy_of_the_environment(self, server, monkeypatch):
        monkeypatch.setenv("http_proxy", server.url)
        server.on("GET", "*", Reply(body=b"proxied"))
        assert self.send(TransportOptions(allow_http=True)) == b"proxied"
        assert server.requests[0].target == "http://store.invalid/file?sig=canary"

    def test_proxy_of_the_options_has_precedence(self, server, monkeypatch, refused_port):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{refused_port}")
        server.on("GET", "*", Reply(body=b"proxied"))
        assert self.send(TransportOptions(allow_http=True, proxies={"http": server.url})) == b"proxied"

    def test_unreachable_proxy_raises(self, refused_port):
        proxies = {"http": f"http://me:canary-password@127.0.0.1:{refused_port}"}
        with pytest.raises(TransportError, match="proxy") as caught:
            self.send(TransportOptions(allow_http=True, proxies=proxies))
        assert "canary" not in str(caught.value)
        assert is_retryable(caught.value)

    @pytest.mark.parametrize(
        "proxy", ["http://", "://canary-password", "http://me:canary-password@127.0.0.1:99999"]
    )
    def test_malformed_proxy_url_raises(self, proxy):
        with pytest.raises(NonRetryableTransportError, match="proxy's URL is malformed") as caught:
            self.send(TransportOptions(allow_http=True, proxies={"http": proxy}))
        assert "canary" not in str(caught.value)

    def test_threads_share_the_connections_to_a_proxy(self, monkeypatch):
        import requests.adapters

        made = []

        def slowly(*arguments, original=requests.adapters.proxy_from_url, **named):
            made.append(original(*arguments, **named))
            threading.Event().wait(BRIEFLY)
            return made[-1]

        monkeypatch.setattr(requests.adapters, "proxy_from_url", slowly)
        adapter = PooledAdapter(TransportOptions(max_connections=4), None, SocketRegistry())
        with closing(adapter), ThreadPoolExecutor(4) as executor:
            managers = list(executor.map(adapter.proxy_manager_for, ["http://127.0.0.1:1"] * 4))
        assert len(made) == 1
        assert all(manager is made[0] for manager in managers)

    def test_socks_proxy_without_pysocks_raises(self, monkeypatch):
        import requests.adapters

        def missing(*args, **kwargs):  # what requests has in its place without PySocks
            raise requests.exceptions.InvalidSchema("Missing dependencies for SOCKS support.")

        monkeypatch.setattr(requests.adapters, "SOCKSProxyManager", missing)
        proxies = {"http": "socks5://me:canary-password@127.0.0.1:1"}
        with pytest.raises(NonRetryableTransportError, match="SOCKS proxy needs PySocks") as caught:
            self.send(TransportOptions(allow_http=True, proxies=proxies))
        assert "canary" not in str(caught.value)


class TestRedirects:
    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    def test_the_api_follows_its_own_host(self, server, api, status):
        server.on("POST", "/prefix/x", Reply(status=status, headers={"Location": "/prefix/y?z=1"}))
        server.on("POST", "/prefix/y", Reply(body=b"ok"))
        assert api.request("POST", ("x",), body={"a": 1}).read(10) == b"ok"
        assert server.requests[1].json() == {"a": 1}
        assert server.requests[1].headers["authorization"]

    def test_see_other_becomes_a_get(self, server, api):
        server.on("POST", "*", Reply(status=303, headers={"Location": "y"}))
        server.on("GET", "/prefix/y", Reply(body=b"ok"))
        assert api.request("POST", ("x",), body={}).read(10) == b"ok"

    def test_api_redirect_to_another_host_raises(self, server, api):
        with FaultServer() as other:
            server.on("GET", "*", Reply(status=302, headers={"Location": other.url + "/x?token=canary"}))
            with pytest.raises(TransportError, match="not sent to another host") as caught:
                api.request("GET", ("x",))
            assert other.requests == []
        assert "canary" not in str(caught.value)
        assert not is_retryable(caught.value)

    def test_a_store_may_redirect_to_an_allowed_url(self, server, storage):
        with FaultServer() as other:
            server.on("GET", "*", Reply(status=307, headers={"Location": other.url + "/moved"}))
            other.on("GET", "/moved", Reply(body=b"data"))
            with storage.get(SecretUrl(server.url + SIGNED), headers={"Range": "bytes=0-3"}) as response:
                assert response.read_some(10) == b"data"
            assert other.requests[0].headers["range"] == "bytes=0-3"

    @pytest.mark.parametrize(
        "target", ["http://169.254.169.254/latest", "file:///etc/passwd", "http://store.example/x", "https://a@b/"]
    )
    def test_a_store_may_not_redirect_to_a_refused_url(self, server, storage, target):
        server.on("GET", "*", Reply(status=302, headers={"Location": target}))
        with pytest.raises(InsecureUrlError):
            storage.get(SecretUrl(server.url + SIGNED))

    def test_too_many_redirects_raise(self, server, api, storage):
        server.on("GET", "*", Reply(status=302, headers={"Location": "/again"}))
        for send in (lambda: api.request("GET", ("x",)), lambda: storage.get(SecretUrl(server.url + SIGNED))):
            server.requests.clear()
            with pytest.raises(NonRetryableTransportError, match="5 redirects"):
                send()
            assert len(server.requests) == 6

    def test_a_malformed_location(self, server, storage):
        server.on("GET", "*", Reply(status=302, headers={"Location": "http://[::1"}))
        with pytest.raises(TransportError, match="malformed"):
            storage.get(SecretUrl(server.url + SIGNED))

    def test_a_redirect_without_location_is_an_answer(self, server, storage):
        server.on("GET", "*", Reply(status=304))
        assert storage.get(SecretUrl(server.url + SIGNED)).status == 304


FAULTS = {
    "dropped": (Reply(drop=True), TransportError),
    "garbage": (Reply(raw=b"\x16\x03\x01 no HTTP at all\r\n\r\n"), TransportError),
    "two lengths": (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello"), TransportError),
    "endless header": (Reply(raw=b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"), TransportError),
    "many headers": (Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 200 + b"\r\n"), TransportError),
    "short": (Reply(body=b"0123456789", cut_at=4), IncompleteResponseError),
    "empty": (Reply(body=b"0123456789", cut_at=0), IncompleteResponseError),
    "claims more": (Reply(body=b"0123456789", length=20), IncompleteResponseError),
    "cut chunk": (Reply(body=b"0123456789", cut_at=6, chunk=3), IncompleteResponseError),
    "bad chunk": (
        Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n"),
        (TransportError, IncompleteResponseError),
    ),
    "negative chunk": (
        Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
        (IncompleteResponseError, TransportError),
    ),
    "reset": (Reply(body=b"0123456789", cut_at=4, ending="reset"), (TransportError, IncompleteResponseError)),
    "silent": (Reply(delay=FOREVER), RequestTimeoutError),
    "stalled": (Reply(body=b"0123456789", cut_at=4, ending="stall"), RequestTimeoutError),
}


class TestFaults:
    options = TransportOptions(read_timeout=NEVER)
    hasty = TransportOptions(read_timeout=timedelta(seconds=0.5), connect_timeout=timedelta(seconds=0.5))

    @pytest.mark.parametrize("name", FAULTS)
    # urllib3 lets go of a connection with contradictory lengths without closing it.
    @pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    def test_every_fault_is_typed_retryable_and_shows_nothing(self, server, name):
        reply, expected = FAULTS[name]
        server.on("*", "*", reply)
        options = self.hasty if expected is RequestTimeoutError else self.options
        with (
            ApiTransport(server.url, Authorizer(), options) as api,
            StorageTransport(options, endpoint_is_loopback=True) as storage,
        ):
            for send in (
                lambda: b"".join(api.request("GET", ("x",), params={"pageToken": "canary-page"}).chunks()),
                lambda: drain(storage.get(SecretUrl(server.url + SIGNED))),
            ):
                with pytest.raises(expected) as caught:
                    send()
                error = caught.value
                assert is_retryable(error), error
                assert "canary" not in str(error) + repr(error)
                assert error.__cause__ is None
                assert error.__suppress_context__ or error.__context__ is None
                del caught, error
        gc.collect()

    def test_refused_connection_raises(self, refused_port):
        with (
            StorageTransport(self.options, endpoint_is_loopback=True) as storage,
            pytest.raises(TransportError, match="connection refused") as caught,
        ):
            storage.get(SecretUrl(f"http://127.0.0.1:{refused_port}{SIGNED}"))
        assert caught.value.url == f"http://127.0.0.1:{refused_port}/file.parquet?***"
        assert is_retryable(caught.value)

    def test_a_server_that_is_not_there_names_the_remedy(self, refused_port):
        with (
            ApiTransport(f"http://127.0.0.1:{refused_port}", Authorizer(), self.options) as api,
            pytest.raises(TransportError, match="connection refused; check the endpoint in the profile"),
        ):
            api.request("GET", ("shares",))

    @pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH])
    def test_a_host_without_a_route_names_the_remedy(self, number):
        error = OSError(number, os.strerror(number))
        translated = translate(error, url=SecretUrl("https://h/x"), remedy="; check the endpoint")
        assert str(translated) == f"https://h/x: {os.strerror(number).lower()}; check the endpoint"
        assert is_retryable(translated)

    def test_a_name_that_does_not_resolve(self, monkeypatch):
        def unresolved(*args, **kwargs):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unresolved)
        with (
            StorageTransport(self.options, endpoint_is_loopback=True) as storage,
            pytest.raises(TransportError, match="cannot be resolved") as caught,
        ):
            storage.get(SecretUrl("https://store.invalid" + SIGNED))
        assert is_retryable(caught.value)

    def test_timeout_of_an_attempt_limits_the_other_timeouts(self, server):
        server.on("*", "*", Reply(delay=FOREVER))
        with (
            ApiTransport(server.url, Authorizer(), TransportOptions(read_timeout=NEVER)) as api,
            pytest.raises(RequestTimeoutError, match="no answer came in time"),
        ):
            api.request("GET", ("x",), timeout=0.1)

    def test_once_an_answer_has_begun_only_stalls_count(self, server):
        server.on("*", "*", Reply(body=b"0123456789", cut_at=5, ending="pause", pause=1.0))
        with ApiTransport(server.url, Authorizer(), TransportOptions()) as api:
            response = api.request("GET", ("x",), timeout=0.5)
            assert response.read(100) == b"0123456789"

    @pytest.mark.parametrize("proxied", [False, True])
    def test_a_head_that_trickles_ends_with_the_time_out(self, server, monkeypatch, proxied):
        """Each byte comes in time, and the head as a whole never does."""
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        server.on("*", "*", Reply(headers={"X-Long": "a" * 10_000}, trickle=("head", 0.02)))
        options = replace(self.hasty, allow_http=True, proxies={"http": server.url} if proxied else {})
        url = "http://store.invalid" if proxied else server.url
        with (
            ApiTransport(url, Authorizer(), options) as api,
            StorageTransport(options, endpoint_is_loopback=True) as storage,
        ):
            for send in (
                lambda: api.request("GET", ("x",)),
                lambda: api.request("GET", ("x",), timeout=0.1),
                lambda: storage.get(SecretUrl(url + SIGNED)),
            ):
                with pytest.raises(RequestTimeoutError, match="no answer came in time") as caught:
                    send()
                assert is_retryable(caught.value)

    def test_the_head_of_a_proxys_tunnel_that_trickles_ends_with_the_time_out(self, server, monkeypatch):
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        server.on("CONNECT", "*", Reply(headers={"X-Long": "a" * 10_000}, trickle=("head", 0.02)))
        options = replace(self.hasty, proxies={"https": server.url})
        with (
            ApiTransport("https://store.invalid", Authorizer(), options) as api,
            StorageTransport(options, endpoint_is_loopback=False) as storage,
        ):
            url = "https://store.invalid" + SIGNED
            for send in (lambda: api.request("GET", ("x",)), lambda: storage.get(SecretUrl(url))):
                with pytest.raises(RequestTimeoutError):
                    send()

    @pytest.mark.parametrize("chunk", [None, 1])
    def test_a_listing_below_the_least_speed_is_an_error(self, server, chunk):
        body = b"1\r\na\r\n" * 10_000 if chunk else b"a" * 10_000
        headers = {"Transfer-Encoding": "chunked"} if chunk else {}
        reply = Reply(headers=headers, body=body, length=None if chunk else "auto", trickle=("body", 0.02))
        server.on("*", "*", reply)
        options = replace(self.hasty, minimum_speed=1_000)
        with (
            ApiTransport(server.url, Authorizer(), options) as api,
            api.request("GET", ("x",)) as response,
            pytest.raises(RequestTimeoutError, match="arrived slower than 1000 bytes/s"),
        ):
            b"".join(response.chunks())

    def test_a_listing_at_the_least_speed_is_read_to_its_end(self, server):
        server.on("*", "*", Reply(body=b"a" * 50, trickle=("body", 0.02)))
        with (
            ApiTransport(server.url, Authorizer(), replace(self.hasty, minimum_speed=1)) as api,
            api.request("GET", ("x",)) as response,
        ):
            assert b"".join(response.chunks()) == b"a" * 50

    def test_response_with_another_encoding_raises(self, server, api):
        server.on("GET", "*", Reply(body=b"x", headers={"Content-Encoding": "br"}))
        with pytest.raises(ProtocolError, match="accepts gzip only"):
            b"".join(api.request("GET", ("x",)).chunks())

    def test_an_error_body_that_cannot_be_read_is_empty(self, server, api):
        server.on("GET", "*", Reply(status=500, body=b"oh no", length=50))
        assert api.request("GET", ("x",)).excerpt() in (b"", b"oh no")


def drain(response):
    with response:
        data = b""
        while piece := response.read_some(3):
            data += piece
        return data


class TestBodies:
    def test_read_some_returns_the_received_bytes(self, server, storage):
        server.on("GET", "*", Reply(body=b"0123456789", chunk=4))
        assert drain(storage.get(SecretUrl(server.url + SIGNED))) == b"0123456789"

    def test_length_counts_down(self, server, storage):
        server.on("GET", "*", Reply(body=b"0123456789"))
        with storage.get(SecretUrl(server.url + SIGNED)) as response:
            assert response.length == 10
            response.read_some(4)
            assert response.length == 6

    def test_without_urllib3s_own_check_a_short_body_is_noticed(self, server, storage):
        server.on("GET", "*", Reply(body=b"0123456789", cut_at=5))
        with storage.get(SecretUrl(server.url + SIGNED)) as response:
            response._raw.enforce_content_length = False
            with pytest.raises(IncompleteResponseError, match="5 bytes of it are missing"):
                while response.read_some(3):
                    pass

    def test_nothing_is_decompressed_in_a_file(self, server, storage):
        packed = gzip.compress(b"data")
        server.on("GET", "*", Reply(body=packed, headers={"Content-Encoding": "gzip"}))
        assert drain(storage.get(SecretUrl(server.url + SIGNED))) == packed


class TestLogging:
    def test_nothing_secret_is_logged_at_debug(self, server, api, storage, caplog):
        caplog.set_level(logging.DEBUG)
        server.on("*", "*", Reply(body=b"body-canary"))
        api.request(
            "POST", ("x",), params={"pageToken": "canary-page"}, body={"refreshToken": "canary-body"}
        ).read(99)
        storage.get(SecretUrl(server.url + SIGNED)).read(99)
        server.on("*", "*", Reply(drop=True))
        for send in (
            lambda: api.request("GET", ("x",), params={"a": "canary"}),
            lambda: storage.get(SecretUrl(server.url + SIGNED)),
        ):
            with pytest.raises(TransportError):
                send()
        assert "canary" not in caplog.text
        ours = [record.getMessage() for record in caplog.records if record.name.startswith("delta_sharing_client")]
        assert ours[0].startswith(f"POST {server.url}/prefix/x?*** 200 ")
        assert ours[1].startswith(f"GET {server.url}/file.parquet?*** 200 ")
        theirs = [record.getMessage() for record in caplog.records if record.name == "urllib3.connectionpool"]
        assert any('"POST /prefix/x?***' in message for message in theirs)

    @pytest.mark.parametrize("name", ["urllib3.connectionpool", "urllib3.util.retry"])
    def test_records_whose_args_are_a_mapping_are_masked(self, storage, caplog, name):
        caplog.set_level(logging.DEBUG)
        with redacted():
            logging.getLogger(name).debug(
                "%(method)s %(target)s %(status)d", {"method": "GET", "target": SIGNED, "status": 200}
            )
        assert "canary" not in caplog.text
        assert "GET /file.parquet?*** 200" in caplog.text

    def test_requests_of_other_code_are_logged_unchanged(self, server, api, caplog):
        import requests

        caplog.set_level(logging.DEBUG)
        server.on("*", "*", Reply())
        requests.get(server.url + "/theirs?visible=1", timeout=HANG)
        assert "/theirs?visible=1" in caplog.text


def test_pool_keeps_max_connections(server, caplog):
    """No connection is thrown away as long as there are no more than `max_connections`."""
    caplog.set_level(logging.WARNING, "urllib3")
    server.on("GET", "*", Reply(body=b"x", delay=0.05))
    with StorageTransport(TransportOptions(max_connections=8), endpoint_is_loopback=True) as storage:
        for _ in range(2):
            threads = [
                threading.Thread(target=lambda: drain(storage.get(SecretUrl(server.url + SIGNED))))
                for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert server.connections <= 8
    assert "pool is full" not in caplog.text


def test_the_standard_library_is_not_shadowed():
    assert hasattr(http.server, "ThreadingHTTPServer")
