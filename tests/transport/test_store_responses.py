"""Responses of stores over real sockets: accepted and refused responses, reuse of connections."""

import contextlib
import gc
import os
import threading
import warnings
from datetime import timedelta

import pytest
import urllib3
from faults.server import FaultServer, Reply
from packets import (
    CHUNKED,
    EVIL,
    FINE,
    SIGNED,
    WAYS,
    PacketServer,
    by_chunks,
    by_some,
    by_view,
    check_failure,
    fetch,
)
from waiting import FOREVER, HANG, NEVER

from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    InsecureUrlError,
    RequestTimeoutError,
    TransportError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.storage_transport import StorageTransport


@pytest.fixture
def storage():
    options = TransportOptions(read_timeout=NEVER)
    with StorageTransport(options, endpoint_is_loopback=True) as transport:
        yield transport


@pytest.fixture
def hasty():
    options = TransportOptions(read_timeout=timedelta(seconds=0.5))
    with StorageTransport(options, endpoint_is_loopback=True) as transport:
        yield transport


def fails(storage, answer, expected=TransportError, read=by_some, match=None):
    """Check that an answer raises a typed error without secrets, and that its connection is closed."""
    with PacketServer([answer, FOREVER]) as server:
        with pytest.raises(expected, match=match) as caught:
            fetch(storage, server, read)
        check_failure(caught.value)
        if expected is TransportError:  # in vain it would have waited for more
            assert not isinstance(caught.value, RequestTimeoutError)
        server._stopping.set()
        assert server.hung_up.acquire(timeout=HANG)


KEPT = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", b"0123456789"),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "chunked": (CHUNKED + b"4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n", b"0123456789"),
    "length, blanks": (b"HTTP/1.1 200 OK\r\nContent-Length: 3 \t\r\n\r\nabc", b"abc"),
    "chunked, blanks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\tchunked \r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"abc"),
    "chunked, empty": (CHUNKED + b"0\r\n\r\n", b""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "no content, chunked": (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", b""),
    "1.0, kept alive": (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
}

#: Answers after which the server leaves the connection open, and we must not use it again.
NOT_KEPT = {
    "close": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    "Close among others": (
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 3\r\n\r\nabc",
        b"abc",
    ),
    "close, chunked": (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"",
    ),
    "close, no content": (b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", b""),
    "1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    "1.0, chunked": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"a",
    ),
}


#: What a malformed body raises: the first if it is seen with the head.
MALFORMED = (TransportError, IncompleteResponseError)


class TestReuse:
    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize("name", KEPT)
    def test_connection_is_reused(self, storage, name, read):
        answer, body = KEPT[name]
        with PacketServer([answer], [answer], [FINE]) as server:
            assert fetch(storage, server, read) == body
            assert fetch(storage, server, read) == body
            assert fetch(storage, server, read) == b"fine"
            assert server.connections == 1

    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize("name", NOT_KEPT)
    def test_connection_is_not_reused(self, storage, name, read):
        answer, body = NOT_KEPT[name]
        with PacketServer([answer], [FINE]) as server:
            assert fetch(storage, server, read) == body
            assert server.hung_up.acquire(timeout=HANG)
            assert fetch(storage, server, read) == b"fine"
            assert server.connections == 2

    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize("version", [b"1.0", b"1.1"])
    def test_body_without_length_ends_with_the_connection(self, storage, version, read):
        head = b"HTTP/" + version + b" 200 OK\r\nConnection: keep-alive\r\n\r\n"
        with PacketServer([head, b"0123", 0.05, b"456789", None], [FINE]) as server:
            assert fetch(storage, server, read) == b"0123456789"
            assert fetch(storage, server, read) == b"fine"
            assert server.connections == 2

    @pytest.mark.parametrize(
        "coding", [b"gzip", b"chunked, gzip", b"chunkedx", b"\x0bchunked", b"chunked", b"identity"]
    )
    def test_body_of_another_transfer_coding_raises(self, storage, coding):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: " + coding + b"\r\n\r\n"
        fails(storage, head + b"012345", match="is not valid HTTP")

    def test_redirects_with_an_empty_body(self, storage):
        head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /next\r\n\r\n"
        with PacketServer([head], [head], [FINE]) as server:
            assert fetch(storage, server) == b"fine"
            assert server.connections == 1
            assert server.heads[2].startswith(b"GET /next HTTP/1.1\r\n")

    def test_redirect_with_an_unread_body(self, storage):
        head = b"HTTP/1.1 302 Found\r\nContent-Length: 4\r\nLocation: /next\r\n\r\n"
        with PacketServer([head, b"over"], [FINE]) as server:
            assert fetch(storage, server) == b"fine"
            assert server.connections == 2

    def test_connection_closed_by_the_server_is_replaced(self, storage):
        with PacketServer([FINE, None], [FINE]) as server:
            assert fetch(storage, server) == b"fine"
            assert server.closed.acquire(timeout=HANG)
            assert fetch(storage, server) == b"fine"
            assert server.connections == 2

    @pytest.mark.parametrize("how", ["close", "fork"])
    def test_idle_connections_close_with_the_transport(self, storage, how):
        with PacketServer([FINE], [FINE]) as server:
            assert fetch(storage, server) == b"fine"
            if how == "close":
                storage.close()
            else:
                storage.after_fork()  # as in a child
            assert server.hung_up.acquire(timeout=HANG)
            assert fetch(storage, server) == b"fine"


class TestInterimAnswers:
    EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Length: 7\r\n\r\n"
    CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

    @pytest.mark.parametrize(
        "packets",
        [
            (CONTINUE + FINE,),
            (CONTINUE, 0.02, EARLY, 0.02, FINE),
            (EARLY * 9 + FINE,),
            (CONTINUE[:-1], b"\n" + FINE),
        ],
    )
    def test_interim_responses_are_skipped(self, storage, packets):
        with PacketServer(packets, [FINE]) as server:
            with storage.get(SecretUrl(server.url + SIGNED)) as response:
                assert response.status == 200
                assert response.length == 4
                assert "Link" not in response.headers
                assert by_view(response) == b"fine"
            assert fetch(storage, server) == b"fine"
            assert server.connections == 1

    def test_too_many_interim_responses_raise(self, storage):
        fails(storage, self.EARLY * 10 + FINE)


class TestHeads:
    def head(self, storage, *lines, end=b"\r\n"):
        answer = end.join((b"HTTP/1.1 200 OK", *lines, b"Content-Length: 4", b"", b"fine"))
        with PacketServer([answer]) as server, storage.get(SecretUrl(server.url + SIGNED)) as response:
            assert by_view(response) == b"fine"
            return response

    def test_names_are_case_insensitive(self, storage):
        headers = self.head(storage, b'ETag: "v1"', b"x-NUMBER:1").headers
        assert headers["etag"] == headers["ETAG"] == headers.get("Etag") == '"v1"'
        assert "X-Number" in headers
        assert "X-Other" not in headers
        assert headers.get("X-Other") is None

    def test_line_feeds_without_carriage_returns(self, storage):
        assert self.head(storage, b"A: 1", b"B: 2", end=b"\n").headers["B"] == "2"

    @pytest.mark.parametrize("line", [b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.0 200 Tr\xe8s: bien"])
    def test_status_lines(self, storage, line):
        answer = line + b"\r\nContent-Length: 1\r\n\r\nx"
        with PacketServer([answer]) as server, storage.get(SecretUrl(server.url + SIGNED)) as response:
            assert (response.status, by_some(response)) == (200, b"x")

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"HTTP/2 200 OK",
            b"HTTP/2.0 200 OK",
            b"http/1.1 200 OK",
            b"HTTP/1.1 20 OK",
            b"HTTP/1.1 2000 OK",
            b"HTTP/1.1 099 OK",
            b"HTTP/1.1 200OK",
            b"HTTP/1.1 \xb2\xb2\xb2 OK",
            b"SSH-2.0-OpenSSH_9.2p1 canary",
            b"\x15\x03\x03\x00\x02\x02\x50",
        ],
    )
    def test_malformed_status_lines_raise(self, storage, line):
        fails(storage, line + b"\r\nContent-Length: 4\r\n\r\nfine")

    def test_head_received_byte_by_byte(self, storage):
        head = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 4\r\n\r\n"
        packets = [part for number in head for part in (bytes([number]), 0.001)]
        with PacketServer([*packets, b"fine"], [FINE]) as server:
            with storage.get(SecretUrl(server.url + SIGNED)) as response:
                assert response.headers["A"] == "b"
                assert by_view(response) == b"fine"
            assert fetch(storage, server) == b"fine"
            assert server.connections == 1

    @pytest.mark.parametrize(
        "cut", [1, 16, 17, len(FINE) - 8, len(FINE) - 7, len(FINE) - 6, len(FINE) - 5, len(FINE) - 2]
    )
    def test_head_received_in_two_packets(self, storage, cut):
        with PacketServer([FINE[:cut], 0.02, FINE[cut:]], [FINE]) as server:
            assert fetch(storage, server, by_view) == b"fine"
            assert fetch(storage, server, by_view) == b"fine"
            assert server.connections == 1

    @pytest.mark.parametrize("read", WAYS)
    def test_the_beginning_of_a_long_body_in_the_same_packet(self, storage, read):
        body = os.urandom(300_000)
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + body
        with PacketServer([answer], [FINE]) as server:
            assert fetch(storage, server, lambda r: read(r) if read is by_chunks else read(r, 9999)) == body
            assert fetch(storage, server) == b"fine"
            assert server.connections == 1

    def test_head_with_too_many_lines_raises(self, storage):
        with PacketServer([b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 98 + b"Content-Length: 0\r\n\r\n"]) as server:
            assert fetch(storage, server) == b""
        fails(storage, b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 101 + b"\r\n")

    def test_line_that_is_not_a_header_raises(self, storage):
        """What follows it would not be read as headers."""
        fails(storage, b"HTTP/1.1 200 OK\r\ncolonless\r\nContent-Length: 4\r\n\r\nfine")

    def test_head_with_a_long_line_is_accepted(self, storage):
        value = b"x" * 60_000
        assert self.head(storage, b"A: " + value).headers["A"] == value.decode()

    def test_endless_head_raises(self, storage):
        """It is given up on after some 64 kB, however much more there would be."""
        with FaultServer() as server:
            server.on("GET", "*", Reply(headers={"A": "x" * 1_000_000}))
            with pytest.raises(TransportError) as caught:
                fetch(storage, server)
        check_failure(caught.value)

    @pytest.mark.parametrize(
        "begun", [b"", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\nA: b\r\n", TestInterimAnswers.CONTINUE]
    )
    def test_connection_closed_within_the_head_raises(self, storage, begun):
        with (
            PacketServer([begun, None]) as server,
            pytest.raises(TransportError, match="closed before an answer came") as caught,
        ):
            fetch(storage, server)
        check_failure(caught.value)

    @pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", TestInterimAnswers.CONTINUE])
    def test_stalled_head_raises(self, hasty, begun):
        fails(hasty, begun, RequestTimeoutError, match="no answer came in time")


class TestLengths:
    @pytest.mark.parametrize(
        "length", [b"5, 6", b"5\r\nContent-Length: 6", b"0\r\nContent-Length: 5", b"5,5,05,6", b"5, 5"]
    )
    def test_two_lengths_raise(self, storage, length):
        fails(
            storage, b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\nhello", match="is not valid HTTP"
        )

    @pytest.mark.parametrize(
        "length", [b"", b"abc", b"-1", b"+5", b"5_0", b"0x5", b"5.0", b"\xb2", b"5 5", b"5,", b"\xa05", b"5\x0b"]
    )
    def test_length_that_is_not_a_number_raises(self, storage, length):
        fails(
            storage,
            b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\nhello, you",
            match="is not valid HTTP",
        )

    @pytest.mark.parametrize("digits", [20, 4000, 5000])
    def test_huge_length_raises(self, storage, digits):
        fails(storage, b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * digits + b"\r\n\r\nhello")

    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize("received", [b"", b"h", b"hell"])
    def test_a_body_that_is_cut(self, storage, read, received):
        with PacketServer([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + received, None], [FINE]) as server:
            with pytest.raises(
                IncompleteResponseError, match=f"{5 - len(received)} bytes of it are missing"
            ) as caught:
                fetch(storage, server, read)
            check_failure(caught.value)
            assert fetch(storage, server) == b"fine"

    @pytest.mark.parametrize("read", WAYS)
    def test_a_body_that_stops_arriving(self, hasty, read):
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"
        fails(hasty, answer, RequestTimeoutError, read, match="the answer stopped arriving")

    @pytest.mark.parametrize("read", WAYS)
    def test_a_body_without_length_that_stops_arriving(self, hasty, read):
        fails(hasty, b"HTTP/1.1 200 OK\r\n\r\nhe", RequestTimeoutError, read, match="the answer stopped arriving")

    def test_read_of_zero_bytes_does_not_end_the_body(self, storage):
        """A connection with an unread body must not go back to the pool."""
        with PacketServer([b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nab", 0.2, b"cdefgh"], [FINE]) as server:
            with storage.get(SecretUrl(server.url + SIGNED)) as response:
                response._raw.read1(0)
                assert fetch(storage, server) == b"fine"
                assert by_some(response) == b"abcdefgh"
            assert server.connections == 2


class TestChunks:
    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize(
        "body",
        [
            b"5\r\nhello\r\n0\r\n\r\n",
            b"5;name=value\r\nhello\r\n0;last\r\n\r\n",
            b'5;a="b;c"\r\nhello\r\n0\r\n\r\n',
            b"0000005\r\nhello\r\n000\r\n\r\n",
            b"5\r\nhello\r\n0\r\nETag: x\r\n\r\n",
            b"5\r\nhello\r\n0\r\n" + b"A: b\r\n" * 99 + b"\r\n",
            b"5;" + b"x" * 60_000 + b"\r\nhello\r\n0\r\n\r\n",
        ],
    )
    def test_well_formed_chunks(self, storage, body, read):
        with PacketServer([CHUNKED + body], [FINE]) as server:
            assert fetch(storage, server, read) == b"hello"
            assert fetch(storage, server) == b"fine"
            assert server.connections == 1

    def test_sizes_are_hexadecimal(self, storage):
        data = os.urandom(0xABC)
        with PacketServer([CHUNKED + b"aBC\r\n" + data + b"\r\n1\r\nx\r\n0\r\n\r\n"]) as server:
            assert fetch(storage, server, by_chunks) == data + b"x"

    def test_trailers_are_not_headers(self, storage):
        with (
            PacketServer([CHUNKED + b"0\r\nETag: x\r\n\r\n"]) as server,
            storage.get(SecretUrl(server.url + SIGNED)) as response,
        ):
            assert by_some(response) == b""
            assert "ETag" not in response.headers

    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize(
        "size",
        [
            b"",
            b"5 5",
            b"5,",
            b"zz",
            b"\xb2",
            b"5\x00",
        ],
    )
    def test_malformed_chunk_sizes_raise(self, storage, size, read):
        answer = CHUNKED + b"2\r\nab\r\n" + size + b"\r\nhello\r\n0\r\n\r\n"
        fails(storage, answer, MALFORMED, read)
        fails(storage, CHUNKED + size + b"\r\nhello\r\n0\r\n\r\n", MALFORMED, read)

    @pytest.mark.parametrize("size", [b"7fffffffffffffff", b"fffffffffffffff", b"80000000"])
    def test_huge_chunk_sizes_raise(self, storage, size):
        with (
            PacketServer([CHUNKED + size + b"\r\nhello", None]) as server,
            pytest.raises(IncompleteResponseError) as caught,
        ):
            fetch(storage, server, by_chunks)
        check_failure(caught.value)

    @pytest.mark.parametrize("tail", [b"!\r\n0\r\n\r\n", b"\r!\n0\r\n\r\n", b" \r\n0\r\n\r\n", b"0\r\n\r\n"])
    def test_chunk_longer_than_its_size_raises(self, storage, tail):
        fails(storage, CHUNKED + b"5\r\nhello" + tail, MALFORMED)

    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize("end", range(len(b"5\r\nhello\r\n2;x\r\nab\r\n0")))
    def test_truncated_chunked_body_raises(self, storage, end, read):
        with PacketServer([CHUNKED + b"5\r\nhello\r\n2;x\r\nab\r\n0"[:end], None], [FINE]) as server:
            with pytest.raises(IncompleteResponseError) as caught:
                fetch(storage, server, read)
            check_failure(caught.value)
            assert fetch(storage, server) == b"fine"

    @pytest.mark.parametrize("end", [b"", b"\r", b"A: b", b"A: b\r\n"])
    def test_a_connection_closed_before_the_end_of_the_trailers_raises(self, storage, end):
        with PacketServer([CHUNKED + b"5\r\nhello\r\n0\r\n" + end, None], [FINE]) as server:
            with pytest.raises(IncompleteResponseError):
                fetch(storage, server)
            assert fetch(storage, server) == b"fine"
            assert server.connections == 2

    @pytest.mark.parametrize("before", [b"", b"5", b"5;", b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n"])
    def test_a_line_without_end(self, storage, before):
        fails(storage, CHUNKED + before + b"x" * 100_000, MALFORMED)


class TestSurplus:
    """What follows a body is never taken for the answer to the next request."""

    @pytest.mark.parametrize("read", WAYS)
    @pytest.mark.parametrize("at_once", [True, False])
    @pytest.mark.parametrize("name", KEPT)
    def test_it_closes_the_connection(self, storage, name, read, at_once):
        answer, body = KEPT[name]
        was_read = threading.Event()
        packets = [answer + EVIL] if at_once else [answer, was_read, EVIL]
        with PacketServer(packets, [FINE]) as server:
            assert fetch(storage, server, read) == body
            was_read.set()
            assert server.sent.acquire(timeout=HANG)
            assert fetch(storage, server, read) == b"fine"
            assert server.connections == 2


class TestReturnOfConnections:
    HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabcd"

    @pytest.mark.parametrize("begun", [HALF, CHUNKED + b"8\r\nabcd", b"HTTP/1.1 200 OK\r\n\r\nabcd"])
    def test_closing_again_leaves_the_connection_to_its_new_user(self, storage, begun):
        """The connection was given back, and another request may use it."""
        with PacketServer([begun], [self.HALF, 0.2, b"efgh"], [FINE]) as server:
            first = storage.get(SecretUrl(server.url + SIGNED))
            assert first.read_some(2) == b"ab"
            first.close()
            assert server.hung_up.acquire(timeout=HANG)
            with storage.get(SecretUrl(server.url + SIGNED)) as second:
                first.close()
                del first
                gc.collect()
                assert by_view(second) == b"abcdefgh"
            assert fetch(storage, server) == b"fine"
            assert server.connections == 2

    @pytest.mark.parametrize("begun", [HALF, CHUNKED + b"8\r\nabcd", b"HTTP/1.1 200 OK\r\n\r\nabcd"])
    def test_a_closed_half_read_answer_reads_no_bytes_of_the_next_one(self, storage, begun):
        with PacketServer([begun], [self.HALF, 0.1, b"efgh"]) as server:
            first = storage.get(SecretUrl(server.url + SIGNED))
            first.read_some(4)
            first.close()
            with storage.get(SecretUrl(server.url + SIGNED)) as second:
                assert second.read_some(4) == b"abcd"
                with contextlib.suppress(IncompleteResponseError):
                    assert first.read_some(4) == b""
                assert by_view(second) == b"efgh"

    @pytest.mark.parametrize("read", WAYS)
    def test_an_answer_read_to_its_end_stays_at_it(self, storage, read):
        with PacketServer([FINE], [self.HALF, 0.1, b"efgh"]) as server:
            with storage.get(SecretUrl(server.url + SIGNED)) as first:
                assert by_view(first) == b"fine"
                first.close()
                with storage.get(SecretUrl(server.url + SIGNED)) as second:
                    assert read(first) == b""
                    first.close()
                    assert by_view(second) == b"abcdefgh"
            assert server.connections == 1

    @pytest.mark.parametrize("answer", [FINE, HALF, CHUNKED, b"HTTP/1.1 200 OK\r\n\r\n"])
    def test_an_answer_that_is_dropped_unread(self, storage, answer):
        with PacketServer([answer]) as server, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.disable()  # the socket must not stay open until it is run
            try:
                response = storage.get(SecretUrl(server.url + SIGNED))
                del response
                assert server.hung_up.acquire(timeout=HANG)
            finally:
                gc.enable()
            gc.collect()
        assert [warning for warning in caught if issubclass(warning.category, ResourceWarning)] == []

    def test_a_failed_head_leaves_no_socket(self, storage):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for answer in (b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n"):
                fails(storage, answer)
            gc.collect()
        assert [warning for warning in caught if issubclass(warning.category, ResourceWarning)] == []

    def test_threads_never_mix_up_answers(self, storage):
        def answer(request):
            number = int(request.path[1:])
            body = request.path.encode() * (1 + number * 37 % 4000)
            return Reply(body=body, chunk=7000 if number % 3 == 1 else None)

        wrong, done = [], []

        def work(worker):
            for turn in range(30):
                number = worker * 100 + turn
                with storage.get(SecretUrl(f"{server.url}/{number}")) as response:
                    path = f"/{number}".encode()
                    if number % 5 == 0:
                        data = response.read_some(1000)
                        expected = (path * 1000)[: len(data)]
                    else:
                        data = (by_view if number % 2 else by_some)(response, 5000)
                        expected = path * (1 + number * 37 % 4000)
                    if data != expected:
                        wrong.append((number, data[:20]))
                done.append(number)

        with FaultServer() as server:
            server.on("GET", "*", answer)
            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert wrong == []
            assert len(done) == 16 * 30
            assert server.connections < 16 * 30 / 2


class TestRequests:
    @pytest.mark.parametrize(
        "path", ["/a b", "/a\tb", "/a\r\nX: y", "/a?b=\n", "/a\x00", "/a\x7f", "/a#\r\n", "/\\evil", "?a b"]
    )
    def test_urls_that_are_refused(self, storage, path):
        with PacketServer([FINE]) as server:
            for _ in range(2):
                with pytest.raises(InsecureUrlError) as caught:
                    storage.get(SecretUrl(f"{server.url}{path}?sig=canary"))
                assert "canary" not in str(caught.value)
            assert server.connections == 0

    @pytest.mark.parametrize(
        "path",
        [
            "",
            "/",
            "?a=b",
            "/a/b.parquet?X-Sig=a%2Fb%2b&c=d/e?f",
            '/ü/%e2%82%ac?q=ä|{}^`<>"',
            "/a#fragment",
            "/a?b#c?d",
            "#x",
            "/.hidden",
            "/a?path=/../b",
            "//evil.example/x",
            "/a;b=c,d:e@f!$&'()*+~",
            "/100%",
            "/a\xa0b\u2028c",
        ],
    )
    def test_urls_are_encoded_as_urllib3_does(self, storage, path):
        with PacketServer([FINE], [FINE], [FINE]) as server:
            for _ in range(2):
                assert fetch(storage, server, path=path) == b"fine"
            with urllib3.PoolManager() as other:
                other.request("GET", server.url + path)
            targets = [head.split(b"\r\n")[0] for head in server.heads]
        assert targets[0] == targets[1] == targets[2]

    def test_dot_segments_of_a_signed_path_are_sent_unchanged(self, storage):
        with PacketServer([FINE]) as server:
            assert fetch(storage, server, path="/a/../b/./c") == b"fine"
            assert server.heads[0].startswith(b"GET /a/../b/./c HTTP/1.1\r\n")

    def test_headers_of_a_request(self, storage):
        with PacketServer([FINE]) as server:
            with storage.get(
                SecretUrl(server.url + "/x"), headers={"Range": "bytes=0-3", "If-Match": '"ä"'}
            ) as response:
                assert by_some(response) == b"fine"
            assert server.heads[0].decode("latin-1").split("\r\n") == [
                "GET /x HTTP/1.1",
                f"Host: 127.0.0.1:{server.port}",
                f"User-Agent: {storage.options.user_agent}",
                "Accept-Encoding: identity",
                "Accept: */*",
                "Range: bytes=0-3",
                'If-Match: "ä"',
            ]

    @pytest.mark.parametrize("value", ["canary\r\nX: y", "canary\ny", "canary\u20ac"])
    def test_headers_that_are_refused(self, storage, value):
        with PacketServer([FINE]) as server:
            with pytest.raises(DeltaSharingError) as caught:
                storage.get(SecretUrl(server.url + SIGNED), headers={"If-Match": value})
            assert "canary" not in str(caught.value)
            assert fetch(storage, server) == b"fine"
            assert len(server.heads) == 1

    @pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
    def test_the_host_as_it_is_sent(self, storage, name):
        address = "::1" if ":" in name else "127.0.0.1"
        try:
            running = PacketServer([FINE], address=address)
        except OSError:
            pytest.skip("this machine has no IPv6")
        with running as server:
            with storage.get(SecretUrl(f"http://{name}:{server.port}/x")) as response:
                assert by_some(response) == b"fine"
            assert f"\r\nHost: {name.lower()}:{server.port}\r\n".encode() in server.heads[0]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabcd", CHUNKED + b"8\r\nabcd"])
def test_a_cut_answer_is_closed_at_once(storage, answer):
    """Its exception's traceback may keep the response."""
    with PacketServer([answer, None]) as server:
        response = storage.get(SecretUrl(server.url + SIGNED))
        with pytest.raises(IncompleteResponseError):
            by_some(response)
        assert server.closed.acquire(timeout=HANG)
        assert response._raw._sock.fileno() == -1
