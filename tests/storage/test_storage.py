"""Downloads from a store with resets, stalls, expired URLs, wrong sizes and changed files."""

import logging
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from url_renewals import FunctionRenewal
from waiting import FOREVER, HANG, NEVER, meanwhile, wait_until

sys.path.append(str(Path(__file__).parents[1]))

from faults.server import FaultServer, Reply, file_reply

from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    FileGoneError,
    InsecureUrlError,
    StorageError,
    UrlExpiredError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import Cancelled, Transfers
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.retry import RetryBudget
from delta_sharing_client.transport.storage_transport import StorageTransport

SIZE = 400_000
DATA = os.urandom(SIZE)
PATH = "/t/part-0.parquet"
EXPIRED = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running


@pytest.fixture
def slept():
    return []


@pytest.fixture
def reader(slept):
    options = TransportOptions(read_timeout=NEVER)
    with StorageTransport(options, endpoint_is_loopback=True) as transport:
        yield DownloadReader(transport, options, sleep=slept.append, rng=lambda: 1.0)


@pytest.fixture
def hasty(slept):
    options = TransportOptions(read_timeout=timedelta(seconds=0.5))
    with StorageTransport(options, endpoint_is_loopback=True) as transport:
        yield DownloadReader(transport, options, sleep=slept.append, rng=lambda: 1.0)


def fetch(reader, server, *, size=SIZE, path=PATH, **arguments):
    url = f"{server.url}{path}?X-Amz-Signature=canary-1"
    return bytes(reader.fetch(SecretUrl(url), "f1", size, Transfers(**arguments)))


def ranges(server):
    return [request.headers.get("range") for request in server.requests]


class TestWholeFiles:
    def test_one_get_and_no_head(self, server, reader):
        server.on("GET", PATH, file_reply(DATA))
        assert fetch(reader, server) == DATA
        assert [(request.method, request.headers.get("range")) for request in server.requests] == [("GET", None)]

    @pytest.mark.parametrize("changes", [{}, {"chunk": 70_000}, {"length": None}])
    @pytest.mark.parametrize("size", [SIZE, 0])
    def test_known_and_unknown_lengths(self, server, reader, changes, size):
        server.on("GET", PATH, file_reply(DATA, **changes))
        assert fetch(reader, server, size=size) == DATA

    def test_buffer_can_be_wrapped_by_arrow(self, server, reader):
        import pyarrow as pa

        server.on("GET", PATH, file_reply(DATA))
        buffer = reader.fetch(SecretUrl(server.url + PATH), "f1", SIZE)
        assert pa.py_buffer(buffer).size == SIZE

    def test_connections_are_reused(self, server, reader):
        server.on("GET", PATH, file_reply(DATA))
        for _ in range(4):
            fetch(reader, server)
        assert server.connections == 1

    def test_one_byte(self, server, reader):
        server.on("GET", PATH, file_reply(b"x"))
        assert fetch(reader, server, size=1) == b"x"

    @pytest.mark.parametrize("changes", [{}, {"chunk": 5}, {"length": None}])
    def test_empty_file(self, server, reader, changes):
        server.on("GET", PATH, Reply(**changes))
        assert fetch(reader, server, size=0) == b""


class TestResuming:
    @pytest.mark.parametrize("ending", ["close", "reset"])
    @pytest.mark.parametrize("cut_at", [1, 20_000, 300_000, SIZE - 1])
    def test_a_cut_file_is_resumed_at_the_byte_reached(self, server, reader, ending, cut_at):
        server.on("GET", PATH, file_reply(DATA, cut_at=cut_at, ending=ending), file_reply(DATA))
        assert fetch(reader, server) == DATA
        first, second = server.requests
        assert first.headers.get("range") is None
        if (cut_at, ending) == (1, "reset") and "range" not in second.headers:
            return  # the reset overtook the one byte: nothing had arrived that could be resumed
        assert second.headers["range"] == f"bytes={cut_at}-{SIZE - 1}"
        assert second.headers["if-match"] == '"v1"'

    def test_stalled_file_is_resumed_at_the_byte_reached(self, server, hasty):
        server.on("GET", PATH, file_reply(DATA, cut_at=150_000, ending="stall"), file_reply(DATA))
        assert fetch(hasty, server) == DATA
        assert ranges(server)[1] == f"bytes=150000-{SIZE - 1}"

    def test_progress_resets_the_count_of_failures(self, server, reader, slept):
        server.on("GET", PATH, file_reply(DATA, cut_at=25_000, ending="reset"))
        assert fetch(reader, server, budget=RetryBudget()) == DATA
        assert len(server.requests) == 16
        assert set(slept) == {0.2}

    def test_file_without_an_etag_is_resumed(self, server, reader):
        server.on("GET", PATH, file_reply(DATA, etag=None, cut_at=1000), file_reply(DATA, etag=None))
        assert fetch(reader, server) == DATA
        assert "if-match" not in server.requests[1].headers

    def test_different_weak_etags_are_not_a_change(self, server, reader):
        server.on("GET", PATH, file_reply(DATA, etag='W/"1"', cut_at=1000), file_reply(DATA, etag='W/"2"'))
        assert fetch(reader, server) == DATA

    def test_a_store_without_ranges_starts_again(self, server, reader):
        server.on("GET", PATH, file_reply(DATA, cut_at=200_000), file_reply(DATA, ranges=False))
        assert fetch(reader, server) == DATA
        assert len(server.requests) == 2

    @pytest.mark.parametrize("etag", ['"v2"'])
    def test_a_file_that_changed_starts_again(self, server, reader, etag):
        other = os.urandom(SIZE)
        server.on("GET", PATH, file_reply(DATA, cut_at=200_000), file_reply(other, etag=etag))
        assert fetch(reader, server) == other
        assert [request.headers.get("if-match") for request in server.requests] == [None, '"v1"', None]

    def test_a_changed_etag_starts_again_even_if_the_store_ignores_the_condition(self, server, reader):
        other = os.urandom(SIZE)

        def ignores(request):
            headers = {name: value for name, value in request.headers.items() if name != "if-match"}
            return file_reply(other, etag='"v2"')(type(request)("GET", request.target, headers, b"", 0))

        server.on("GET", PATH, file_reply(DATA, cut_at=200_000), ignores)
        assert fetch(reader, server) == other
        assert ranges(server) == [None, f"bytes=200000-{SIZE - 1}", None]

    def test_file_that_always_changes_raises(self, server, reader):
        numbers = iter(range(100))
        server.on(
            "GET", PATH, lambda request: file_reply(DATA, etag=f'"{next(numbers)}"', cut_at=200_000)(request)
        )
        with pytest.raises(StorageError, match="file f1: the file changes while it is being read"):
            fetch(reader, server)

    @pytest.mark.parametrize(
        "content_range",
        [
            "bytes 5-399999/400000",
            "bytes 200000-199999/400000",
            "bytes 200000-400000/400001",
            "bytes */400000",
            "",
            "x",
        ],
    )
    def test_the_wrong_range_is_never_used(self, server, reader, content_range):
        wrong = Reply(
            status=206, body=os.urandom(200_000), headers={"Content-Range": content_range, "ETag": '"v1"'}
        )
        server.on("GET", PATH, file_reply(DATA, cut_at=200_000), wrong, file_reply(DATA))
        assert fetch(reader, server) == DATA

    def test_a_shorter_range_than_asked_for_is_continued(self, server, reader):
        def some(request):
            reply = file_reply(DATA)(request)
            if reply.status != 206:
                return reply.but(cut_at=100_000)
            first = int(reply.headers["Content-Range"].split()[1].split("-")[0])
            piece = {**reply.headers, "Content-Range": f"bytes {first}-{min(first + 99_999, SIZE - 1)}/{SIZE}"}
            return reply.but(body=reply.body[:100_000], headers=piece)

        server.on("GET", PATH, some)
        assert fetch(reader, server) == DATA

    @pytest.mark.parametrize("chunk", [None, 50_000])
    def test_a_file_of_unknown_size(self, server, reader, chunk):
        server.on("GET", PATH, file_reply(DATA, cut_at=200_000, chunk=chunk), file_reply(DATA, chunk=chunk))
        assert fetch(reader, server, size=0) == DATA
        assert len(server.requests) == 2


class TestSizes:
    @pytest.mark.parametrize("actual", [SIZE - 1, SIZE + 1, 1])
    @pytest.mark.parametrize("changes", [{}, {"chunk": 50_000}])
    def test_file_of_another_size_is_read_again_once(self, server, reader, actual, changes):
        wrong = file_reply((DATA + b"more")[:actual], **changes)
        server.on("GET", PATH, wrong, wrong, wrong, wrong, wrong, wrong, wrong, wrong)
        with pytest.raises((DataError, StorageError), match="file f1") as caught:
            fetch(reader, server)
        if actual > SIZE or not changes:
            assert isinstance(caught.value, DataError)
            assert len(server.requests) == 2
        server.on("GET", PATH, wrong, file_reply(DATA))
        assert fetch(reader, server) == DATA

    def test_nothing_is_read_beyond_the_size(self, server, reader):
        endless = Reply(body=DATA + bytes(10_000_000), length=None)
        server.on("GET", PATH, endless)
        with pytest.raises(DataError, match="more than"):
            fetch(reader, server)

    def test_huge_expected_size_allocates_nothing(self, server, reader):
        server.on("GET", PATH, Reply(body=DATA))
        with pytest.raises(DataError):
            fetch(reader, server, size=10**15)

    def test_truncated_file_raises_on_resumption(self, server, reader):
        server.on("GET", PATH, file_reply(DATA, cut_at=200_000), file_reply(DATA[:100_000]))
        with pytest.raises(DataError, match="file f1"):
            fetch(reader, server)


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "headers", "body", "kind", "text"),
        [
            (403, {}, EXPIRED, UrlExpiredError, "AccessDenied: Request has expired"),
            (400, {}, b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>",
             UrlExpiredError, "ExpiredToken"),
            (403, {"x-ms-error-code": "AuthenticationFailed"}, b"", UrlExpiredError, "AuthenticationFailed"),
            (403, {}, b"<?xml version='1.0'?><Error><Code>AuthenticationFailed</Code></Error>", UrlExpiredError,
             "AuthenticationFailed"),
            (401, {}, b"the link has expired", UrlExpiredError, "401"),
            (403, {}, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>", StorageError,
             r"answered 403 \(AccessDenied: Access Denied\); ask the provider"),
            (400, {}, b"<Error><Code>InvalidArgument</Code></Error>", StorageError, "InvalidArgument"),
            (401, {}, b"", StorageError, "answered 401; ask the provider"),
            (404, {}, b"<Error><Code>NoSuchKey</Code></Error>", FileGoneError, "NoSuchKey"),
            (404, {"x-ms-error-code": "BlobNotFound"}, b"", FileGoneError, "BlobNotFound"),
            (410, {}, b"", FileGoneError, "410"),
            (400, {}, b'{"error": {"code": "NoSuchKey", "message": "x"}}', FileGoneError, "NoSuchKey"),
            (416, {}, b"", StorageError, "416"),
            (206, {}, b"", StorageError, "206"),
            (501, {}, b"", StorageError, "501"),
        ],
    )  # fmt: skip
    def test_permanent_errors_are_typed_and_not_retried(self, server, reader, status, headers, body, kind, text):
        server.on("GET", PATH, Reply(status=status, headers=headers, body=body))
        with pytest.raises(kind, match=text) as caught:
            fetch(reader, server)
        error = caught.value
        assert type(error) is kind
        assert (error.file_id, error.status) == ("f1", status)
        assert "canary" not in str(error) + repr(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("status", "body"),
        [(408, b""), (429, b""), (500, b""), (502, b""), (504, b""), (503, b"<Code>SlowDown</Code>"),
         (400, b"<Error><Code>RequestTimeout</Code></Error>")],
    )  # fmt: skip
    def test_temporary_errors_are_retried(self, server, reader, slept, status, body):
        busy = Reply(status=status, body=body)
        server.on("GET", PATH, busy, busy, file_reply(DATA))
        assert fetch(reader, server) == DATA
        assert slept == pytest.approx([0.2, 0.4])

    def test_repeated_errors_raise_after_five_attempts(self, server, reader, slept):
        server.on("GET", PATH, Reply(status=503, body=b"<Error><Code>SlowDown</Code></Error>"))
        with pytest.raises(StorageError, match=r"503 \(SlowDown\) \(gave up after 5 attempts") as caught:
            fetch(reader, server)
        assert caught.value.status == 503
        assert len(server.requests) == 5
        assert slept == pytest.approx([0.2, 0.4, 0.8, 1.6])

    def test_retry_after_is_honoured(self, server, reader, slept):
        server.on("GET", PATH, Reply(status=503, headers={"Retry-After": "7"}), file_reply(DATA))
        fetch(reader, server)
        assert slept == [7]

    def test_retry_after_beyond_the_deadline_raises(self, server, reader, slept):
        server.on("GET", PATH, Reply(status=503, headers={"Retry-After": "3600"}))
        with pytest.raises(StorageError, match="asks to wait 3600 s"):
            fetch(reader, server)
        assert slept == []

    @pytest.mark.parametrize("fault", [Reply(drop=True), Reply(raw=b"junk\r\n\r\n"), file_reply(DATA, cut_at=0)])
    def test_a_dead_connection_ends_as_a_storage_error(self, server, reader, fault):
        server.on("GET", PATH, fault)
        with pytest.raises(StorageError, match=r"file f1: .*gave up after 5 attempts") as caught:
            fetch(reader, server)
        assert "canary" not in str(caught.value)
        assert len(server.requests) == 5

    def test_a_url_that_may_not_be_fetched(self, reader):
        with pytest.raises(InsecureUrlError):
            reader.fetch(SecretUrl("file:///etc/passwd"), "f1")

    def test_nothing_secret_is_logged(self, server, reader, caplog):
        caplog.set_level(logging.DEBUG)
        server.on("GET", PATH, Reply(status=503), file_reply(DATA))
        fetch(reader, server)
        assert caplog.records
        assert "canary" not in caplog.text


class TestRenewal:
    def renewing(self, server, *, urls=None):
        asked = []

        def renewal(file_id, url):
            asked.append((file_id, url.reveal().rpartition("=")[2]))
            return SecretUrl(f"{server.url}/fresh-{len(asked)}?X-Amz-Signature=canary-{len(asked) + 1}")

        return asked, renewal

    def test_an_expired_url_is_renewed(self, server, reader, slept):
        asked, renewal = self.renewing(server)
        server.on("GET", PATH, Reply(status=403, body=EXPIRED))
        server.on("GET", "/fresh-1", file_reply(DATA))
        assert fetch(reader, server, renewal=FunctionRenewal(renewal)) == DATA
        assert asked == [("f1", "canary-1")]
        assert slept == []

    def test_renewal_during_a_transfer_resumes_at_the_byte_reached(self, server, reader):
        _, renewal = self.renewing(server)
        server.on("GET", PATH, file_reply(DATA, cut_at=123_456), Reply(status=403, body=EXPIRED))
        server.on("GET", "/fresh-1", file_reply(DATA))
        assert fetch(reader, server, renewal=FunctionRenewal(renewal)) == DATA
        assert server.requests[-1].headers["range"] == f"bytes=123456-{SIZE - 1}"
        assert server.requests[-1].headers["if-match"] == '"v1"'

    def test_url_is_renewed_at_most_twice(self, server, reader):
        asked, renewal = self.renewing(server)
        server.on("GET", "*", Reply(status=403, body=EXPIRED))
        with pytest.raises(UrlExpiredError, match="query the table again") as caught:
            fetch(reader, server, renewal=FunctionRenewal(renewal))
        assert [signature for _, signature in asked] == ["canary-1", "canary-2"]
        assert len(server.requests) == 3
        assert "canary" not in str(caught.value)

    def test_expired_url_without_renewal_raises(self, server, reader):
        server.on("GET", PATH, Reply(status=403, body=EXPIRED))
        with pytest.raises(UrlExpiredError):
            fetch(reader, server)

    def test_error_of_the_renewal_is_raised(self, server, reader):
        def renewal(file_id, url):
            raise StorageError("moved on", file_id=file_id)

        server.on("GET", PATH, Reply(status=403, body=EXPIRED))
        with pytest.raises(StorageError, match="moved on"):
            fetch(reader, server, renewal=FunctionRenewal(renewal))

    def test_a_fresh_url_is_checked_too(self, server, reader):
        server.on("GET", PATH, Reply(status=403, body=EXPIRED))
        with pytest.raises(InsecureUrlError):
            fetch(
                reader, server, renewal=FunctionRenewal(lambda file_id, url: SecretUrl("http://169.254.169.254/x"))
            )


class SlowLookups(FunctionRenewal):
    """Renews a URL when all other ranges have looked theirs up, which they do when the renewal has begun."""

    def __init__(self, fresh, ranges):
        super().__init__(self.renewed)
        self.fresh = fresh
        self.asked = []
        self._first = threading.Lock()
        self._begun = threading.Event()
        self._others = threading.Semaphore(0)
        self._count = ranges - 1

    def renewed(self, file_id, refused):
        self.asked.append(refused)
        self._begun.set()
        for _ in range(self._count if len(self.asked) == 1 else 0):
            assert self._others.acquire(timeout=HANG)
        return self.fresh

    def current_url(self, file_id, url):
        found = super().current_url(file_id, url)
        if not self._first.acquire(blocking=False) and found != self.fresh:
            assert self._begun.wait(HANG)
            self._others.release()
        return found


class TestRanges:
    wanted = ((0, 4), (100_000, 300_000), (SIZE - 8, SIZE))

    def get(self, reader, server, *, size=SIZE, wanted=wanted, executor=None, **arguments):
        file = reader.source(SecretUrl(server.url + PATH + "?sig=canary-1"), "f1", size, Transfers(**arguments))
        run = map if executor is None else executor.map
        return file.restarting(lambda: [bytes(part) for part in run(lambda pair: file.range(*pair), wanted)])

    def expected(self, data=DATA, wanted=wanted):
        return [data[start:stop] for start, stop in wanted]

    @pytest.mark.parametrize("size", [SIZE, 0])
    def test_each_range_is_one_request(self, server, reader, size):
        server.on("GET", PATH, file_reply(DATA))
        assert self.get(reader, server, size=size) == self.expected()
        assert ranges(server) == ["bytes=0-3", "bytes=100000-299999", f"bytes={SIZE - 8}-{SIZE - 1}"]
        assert [request.headers.get("if-match") for request in server.requests] == [None, '"v1"', '"v1"']
        assert server.connections == 1

    def test_ranges_are_read_in_parallel(self, server, reader):
        wanted = [(start, start + 1000) for start in range(0, SIZE, 1000)]
        server.on("GET", PATH, file_reply(DATA))
        with ThreadPoolExecutor(8) as executor:
            parts = self.get(reader, server, wanted=wanted, executor=executor)
        assert b"".join(parts) == DATA

    def test_a_store_without_ranges_gives_the_whole_file_once(self, server, reader):
        server.on("GET", PATH, file_reply(DATA, ranges=False))
        assert self.get(reader, server) == self.expected()
        assert len(server.requests) == 2
        server.requests.clear()
        with ThreadPoolExecutor(3) as executor:
            assert self.get(reader, server, executor=executor) == self.expected()
        assert len(server.requests) <= 4

    def test_a_cut_range_is_resumed(self, server, reader):
        server.on("GET", PATH, file_reply(DATA), file_reply(DATA, cut_at=50_000, ending="reset"), file_reply(DATA))
        assert self.get(reader, server) == self.expected()
        assert ranges(server)[2] == "bytes=150000-299999"

    def test_all_ranges_are_of_the_same_state_of_the_file(self, server, reader):
        other = os.urandom(SIZE)
        server.on("GET", PATH, file_reply(DATA), file_reply(other, etag='"v2"'))
        assert self.get(reader, server) == self.expected(other)
        with ThreadPoolExecutor(3) as executor:
            server.on("GET", PATH, file_reply(DATA), file_reply(other, etag='"v2"'))
            assert self.get(reader, server, executor=executor) == self.expected(other)

    def test_expired_url_is_renewed_once_for_all_ranges(self, server, reader):
        asked = []

        def renewal(file_id, url):
            asked.append(url)
            return SecretUrl(server.url + "/fresh")

        server.on("GET", PATH, Reply(status=403, body=EXPIRED, delay=0.05))
        server.on("GET", "/fresh", file_reply(DATA))
        with ThreadPoolExecutor(3) as executor:
            assert self.get(reader, server, renewal=FunctionRenewal(renewal), executor=executor) == self.expected()
        assert len(asked) == 1

    def test_a_url_looked_up_before_a_renewal_is_not_renewed_again(self, server, reader):
        renewal = SlowLookups(SecretUrl(server.url + "/fresh"), ranges=len(self.wanted))
        server.on("GET", PATH, Reply(status=403, body=EXPIRED))
        server.on("GET", "/fresh", file_reply(DATA))
        with ThreadPoolExecutor(len(self.wanted)) as executor:
            assert self.get(reader, server, renewal=renewal, executor=executor) == self.expected()
        assert len(renewal.asked) == 1

    def test_range_beyond_the_end_of_the_file_raises(self, server, reader):
        server.on("GET", PATH, file_reply(DATA[:1000]))
        with pytest.raises(DataError, match="file f1"):
            self.get(reader, server)

    @pytest.mark.parametrize("changes", [{}, {"ranges": False}])
    def test_a_range_is_read_into_a_view(self, server, reader, changes):
        server.on("GET", PATH, file_reply(DATA, **changes))
        file = reader.source(SecretUrl(server.url + PATH), "f1", SIZE)
        memory = bytearray(1000)
        file.range(500, 1500, memoryview(memory))
        assert memory == DATA[500:1500]

    def test_failed_range_fails_the_call(self, server, reader):
        server.on("GET", PATH, file_reply(DATA), Reply(status=404))
        with ThreadPoolExecutor(2) as executor, pytest.raises(FileGoneError):
            self.get(reader, server, executor=executor)


class TestBudget:
    def test_dead_store_exhausts_the_budget_before_all_attempts_of_all_files(self, server, reader):
        server.on("GET", "*", Reply(status=503))
        budget = RetryBudget(files=10, connections=4)
        failures = []

        def load(number):
            try:
                fetch(reader, server, path=f"/{number}", budget=budget)
            except StorageError as error:
                failures.append(str(error))

        with ThreadPoolExecutor(4) as executor:
            list(executor.map(load, range(10)))
        assert len(failures) == 10
        assert len(server.requests) == 10 + (10 + 4 + 2)
        # Four files at the most can make all of their attempts.
        assert sum("share are used up" in failure for failure in failures) >= 6

    def test_files_that_arrive_give_retries_back(self):
        budget = RetryBudget(files=0)
        error = StorageError("x")
        assert [budget.take(error) for _ in range(11)] == [True] * 10 + [False]
        budget.give_back()
        assert budget.take(error)
        for _ in range(100):
            budget.give_back()
        assert sum(budget.take(error) for _ in range(100)) == 10

    def test_a_time_out_costs_more(self, server, hasty):
        server.on("GET", PATH, Reply(delay=FOREVER))
        with pytest.raises(StorageError, match=r"no answer came in time \(gave up after 3 attempts.*used up"):
            fetch(hasty, server, budget=RetryBudget())


class TestCancelling:
    def test_cancelled_read_sends_no_request(self, server, reader):
        event = threading.Event()
        event.set()
        with pytest.raises(Cancelled):
            fetch(reader, server, cancelled=event)
        assert server.requests == []
        assert not issubclass(Cancelled, DeltaSharingError)

    @pytest.mark.parametrize("reply", [Reply(delay=FOREVER), file_reply(DATA, cut_at=100, ending="stall")])
    def test_a_wait_for_the_store_ends_at_once(self, server, reply):
        options = TransportOptions(read_timeout=NEVER)
        event = Cancellation()
        server.on("GET", PATH, reply)
        with (
            StorageTransport(options, endpoint_is_loopback=True) as transport,
            meanwhile(lambda: wait_until(lambda: server.requests), event.set),
            pytest.raises(Cancelled),
        ):
            fetch(DownloadReader(transport, options), server, cancelled=event)

    def test_a_wait_between_attempts_ends_at_once(self, server):
        options = TransportOptions(api_deadline=NEVER)
        event = threading.Event()
        server.on("GET", PATH, Reply(status=503, headers={"Retry-After": "3600"}))
        with (
            StorageTransport(options, endpoint_is_loopback=True) as transport,
            meanwhile(lambda: wait_until(lambda: server.requests), event.set),
            pytest.raises(Cancelled),
        ):
            fetch(DownloadReader(transport, options), server, cancelled=event)

    def test_abort_and_close(self, server, reader):
        server.on("GET", PATH, file_reply(DATA))
        fetch(reader, server)
        reader.abort()
        reader.close()
        assert fetch(reader, server) == DATA


class TestChaos:
    def test_random_faults_give_the_right_bytes(self, server, reader):
        """Every third answer goes wrong in some way; no file does."""
        import random

        source = random.Random(7)
        faults = [
            lambda request: file_reply(DATA, cut_at=source.randrange(SIZE), ending="reset")(request),
            lambda request: file_reply(DATA, cut_at=source.randrange(SIZE))(request),
            lambda request: file_reply(DATA, cut_at=source.randrange(SIZE), chunk=10_000)(request),
            lambda request: file_reply(DATA, ranges=False)(request),
            lambda request: Reply(status=source.choice([408, 429, 500, 502, 503, 504])),
            lambda request: Reply(drop=True),
            lambda request: Reply(raw=b"HTTP/1.1 junk\r\n\r\n"),
        ]
        good = file_reply(DATA)
        server.on(
            "GET",
            PATH,
            lambda request: source.choice(faults)(request) if source.random() < 0.35 else good(request),
        )
        for _ in range(100):
            assert fetch(reader, server) == DATA
        assert len(server.requests) > 130
