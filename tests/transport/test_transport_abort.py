"""Transfers that another thread cancels."""

import os
import threading

import pytest
from faults.server import Reply
from packets import SIGNED, by_some
from waiting import FOREVER, HANG, NEVER, join, wait_until

from delta_sharing_client.errors import (
    IncompleteResponseError,
    TransportError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.storage_transport import StorageTransport


class TestAbort:
    @pytest.fixture
    def storage(self):
        with StorageTransport(TransportOptions(read_timeout=NEVER), endpoint_is_loopback=True) as transport:
            yield transport

    @pytest.mark.parametrize("reply", [Reply(delay=FOREVER), Reply(body=b"0123456789", cut_at=4, ending="stall")])
    def test_transfers_under_way_end_at_once(self, server, storage, reply):
        server.on("GET", "*", reply)
        errors = []

        def fetch():
            try:
                by_some(storage.get(SecretUrl(server.url + SIGNED)))
            except (TransportError, IncompleteResponseError) as error:
                errors.append(error)

        threads = [threading.Thread(target=fetch) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(server.requests) == 3)
        storage.abort()
        join(threads)
        assert len(errors) == 3

    def test_a_cancellation_breaks_its_own_transfers_only(self, server, storage):
        broken = threading.Event()

        def late(request):
            assert broken.wait(HANG)
            return Reply(body=b"fine")

        server.on("GET", "/slow", Reply(delay=FOREVER))
        server.on("GET", "/late", late)
        mine, other = Cancellation(), Cancellation()
        for event in (mine, mine, other):
            storage.break_on(event)
        results = {}

        def fetch(path, event):
            try:
                results[path] = by_some(storage.get(SecretUrl(server.url + path), cancelled=event))
            except (TransportError, IncompleteResponseError) as error:
                results[path] = error

        threads = [threading.Thread(target=fetch, args=pair) for pair in (("/slow", mine), ("/late", other))]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(server.requests) == 2)
        mine.set()
        join(threads[:1])
        broken.set()
        join(threads[1:])
        assert isinstance(results["/slow"], Exception)
        assert results["/late"] == b"fine"

    def test_a_request_for_a_cancelled_load_does_not_wait(self, server, storage):
        server.on("GET", "*", Reply(delay=FOREVER))
        event = Cancellation()
        storage.break_on(event)
        event.set()
        with pytest.raises((TransportError, IncompleteResponseError)):
            storage.get(SecretUrl(server.url + SIGNED), cancelled=event)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    @pytest.mark.parametrize("how", ["abort", "cancel", "close"])
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_child_process_breaks_none_of_its_parent(self, server, storage, how):
        server.on("GET", "*", Reply(body=bytes(200_000), cut_at=100_000, ending="pause", pause=0.3))
        cancelled = Cancellation()
        storage.break_on(cancelled)
        with storage.get(SecretUrl(server.url + SIGNED), cancelled=cancelled) as response:
            left = 200_000 - len(response.read_some(10))
            child = os.fork()
            if not child:
                {"abort": storage.abort, "cancel": cancelled.set, "close": storage.close}[how]()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            while count := response.read_into(memoryview(bytearray(200_000))):
                left -= count
        assert left == 0
