"""Connections to stores: reuse, limits, close."""

from __future__ import annotations

import gc
import signal

import pytest
from packets import FINE, SIGNED, PacketServer, by_view, fetch
from urllib3.util.ssl_match_hostname import CertificateError
from waiting import BRIEFLY, HANG, interrupt, meanwhile

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport import pooled_adapter
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError, translate
from delta_sharing_client.transport.storage_transport import StorageTransport

HALF = (b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabcd", 0.05, b"efgh")


@pytest.fixture
def storage():
    with StorageTransport(TransportOptions(), endpoint_is_loopback=True) as one:
        yield one


def test_connections_in_use_close_after_the_transport_is_closed(storage):
    with PacketServer(HALF, [FINE]) as server:
        response = storage.get(SecretUrl(server.url + SIGNED))
        storage.close()
        with response:
            assert by_view(response) == b"abcdefgh"
        assert server.hung_up.acquire(timeout=HANG)
        assert fetch(storage, server) == b"fine"
        assert server.connections == 2


def test_pool_keeps_at_most_max_connections():
    with (
        StorageTransport(TransportOptions(max_connections=1), endpoint_is_loopback=True) as storage,
        PacketServer(HALF, HALF) as server,
    ):
        with (
            storage.get(SecretUrl(server.url + SIGNED)) as first,
            storage.get(SecretUrl(server.url + SIGNED)) as second,
        ):
            assert by_view(first) == by_view(second) == b"abcdefgh"
        assert server.hung_up.acquire(timeout=HANG)
        assert not server.hung_up.acquire(timeout=BRIEFLY)
        assert server.connections == 2


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_an_interrupt_leaves_the_connections_usable(storage):
    pool = storage._adapter_for("http://127.0.0.1").direct_pool("http://127.0.0.1")

    def use():
        pool._put_conn(pool._get_conn())

    def use_elsewhere():
        with meanwhile(use):
            pass

    interrupt(use, 200, use_elsewhere)


def test_connections_of_the_oldest_stores_are_closed(storage, monkeypatch):
    monkeypatch.setattr(pooled_adapter, "_HOSTS", 1)
    with PacketServer([FINE], [FINE]) as one, PacketServer([FINE]) as other:
        assert fetch(storage, one) == b"fine"
        assert fetch(storage, other) == b"fine"
        assert one.hung_up.acquire(timeout=HANG)
        assert fetch(storage, one) == b"fine"


def test_connections_of_a_collected_transport_are_closed():
    storage = StorageTransport(TransportOptions(), endpoint_is_loopback=True)
    with PacketServer([FINE]) as server:
        assert fetch(storage, server) == b"fine"
        del storage
        gc.collect()
        assert server.hung_up.acquire(timeout=HANG)


def test_failed_connection_is_not_reused(storage):
    with PacketServer([b"no HTTP\r\n\r\n", FINE], [FINE]) as server:
        with pytest.raises(Exception, match="is not valid HTTP"):
            storage.get(SecretUrl(server.url + SIGNED))
        assert server.hung_up.acquire(timeout=HANG)
        assert fetch(storage, server) == b"fine"
        assert server.connections == 2


def test_host_name_mismatch_found_by_urllib3_is_not_retried():
    """Where the TLS library leaves comparing names to it."""
    error = translate(CertificateError("hostname 'a' doesn't match 'b'"), url="https://a/f?sig=s")
    assert isinstance(error, NonRetryableTransportError)
    assert "the TLS connection was refused" in str(error)
