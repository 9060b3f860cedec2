"""Responses of stores over TLS."""

import os
import warnings
from datetime import timedelta

import pytest
from packets import CHUNKED, EVIL, FINE, SIGNED, WAYS, PacketServer, check_failure, fetch
from waiting import FOREVER, HANG, NEVER

from delta_sharing_client.errors import (
    DeltaSharingError,
    RequestTimeoutError,
    TransportError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.storage_transport import StorageTransport


class TestTls:
    @pytest.fixture
    def secure(self, certificate):
        options = TransportOptions(ca_bundle=certificate / "cert.pem", read_timeout=NEVER)
        with StorageTransport(options, endpoint_is_loopback=False) as transport:
            yield transport

    @pytest.fixture
    def hasty(self, certificate):
        options = TransportOptions(ca_bundle=certificate / "cert.pem", read_timeout=timedelta(seconds=0.5))
        with StorageTransport(options, endpoint_is_loopback=False) as transport:
            yield transport

    @pytest.mark.parametrize("read", WAYS)
    def test_connections_are_reused(self, secure, context, read):
        body = os.urandom(100_000)
        long = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + body
        chunked = CHUNKED + b"186a0\r\n" + body + b"\r\n0\r\n\r\n"
        with PacketServer([long], [chunked], [FINE], tls=context) as server:
            assert fetch(secure, server, read) == body
            assert fetch(secure, server, read) == body
            assert fetch(secure, server, read) == b"fine"
            assert server.connections == 1

    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize("framing", ["length", "chunked"])
    def test_surplus_in_the_record_of_the_bodys_end(self, secure, context, read, framing):
        """It is decrypted with the body, so that no look at the socket would find it."""
        body = b"b" * 8000
        if framing == "length":
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 8000\r\n\r\n" + body
        else:
            answer = CHUNKED + b"1f40\r\n" + body + b"\r\n0\r\n\r\n"
        with PacketServer([answer + EVIL], [FINE], tls=context) as server:
            assert fetch(secure, server, read) == body
            assert fetch(secure, server, read) == b"fine"
            assert server.connections == 2

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (b"", RequestTimeoutError),
            (FINE[:20], RequestTimeoutError),
            (FINE[:-1], RequestTimeoutError),
            (b"no HTTP\r\n\r\n", TransportError),
            (CHUNKED + b"5\r\nab", RequestTimeoutError),
            (CHUNKED + b"zz\r\n", TransportError),
        ],
    )
    def test_faults_are_typed(self, secure, hasty, context, answer, expected):
        with PacketServer([answer, FOREVER], [FINE], tls=context) as server:
            with pytest.raises(expected) as caught:
                fetch(hasty if expected is RequestTimeoutError else secure, server)
            check_failure(caught.value)
            assert fetch(secure, server) == b"fine"

    @pytest.mark.parametrize("read", WAYS)
    def test_a_cut_body(self, secure, context, read):
        with PacketServer([FINE[:-1], None], tls=context) as server, pytest.raises(DeltaSharingError) as caught:
            fetch(secure, server, read)
        check_failure(caught.value)

    def test_an_answer_dropped_unread(self, secure, context):
        with PacketServer([FINE], tls=context) as server, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del_me = secure.get(SecretUrl(server.url + SIGNED))
            del del_me
            assert server.hung_up.acquire(timeout=HANG)
        assert [warning for warning in caught if issubclass(warning.category, ResourceWarning)] == []
