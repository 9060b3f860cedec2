"""The scripted server sends the scripted replies and faults."""

import http.client
import re
import socket

import pytest
from faults.server import Reply, file_reply
from waiting import BRIEFLY, FOREVER, HANG, wait_until


def get(server, path="/x", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_replies_come_in_order_and_the_last_one_is_repeated(server):
    server.on("GET", "/x", Reply(status=503), Reply(body=b"one"))
    assert [get(server) for _ in range(3)] == [(503, b""), (200, b"one"), (200, b"one")]
    assert [request.path for request in server.requests] == ["/x"] * 3


def test_later_rules_go_first_and_nth_limits_them(server):
    server.on("GET", re.compile("x"), Reply(body=b"first"))
    server.on("*", "/x", Reply(body=b"second"), nth=2)
    assert [get(server)[1] for _ in range(3)] == [b"first", b"second", b"first"]


def test_unmatched_requests_are_not_found(server):
    assert get(server)[0] == 404


def test_a_cut_body_is_shorter_than_announced(server):
    server.on("GET", "/x", Reply(body=b"0123456789", cut_at=4))
    with pytest.raises(http.client.IncompleteRead) as caught:
        get(server)
    assert caught.value.partial == b"0123"


def test_a_cut_chunked_body_lacks_its_last_chunk(server):
    server.on("GET", "/x", Reply(body=b"0123456789", cut_at=4, chunk=2))
    with pytest.raises(http.client.IncompleteRead):
        get(server)
    server.on("GET", "/x", Reply(body=b"0123456789", chunk=3))
    assert get(server) == (200, b"0123456789")


def test_reset_closes_with_rst(server):
    server.on("GET", "/x", Reply(body=b"0123456789", cut_at=4, ending="reset"))
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        get(server)


def test_a_stall_holds_the_connection_open(server):
    server.on("GET", "/x", Reply(body=b"0123456789", cut_at=4, ending="stall"))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=0.2)
    connection.request("GET", "/x")
    with pytest.raises(TimeoutError):
        connection.getresponse().read()
    connection.close()


def test_a_delay_comes_before_the_first_byte(server):
    server.on("GET", "/x", Reply(delay=FOREVER))
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /x HTTP/1.1\r\n\r\n")
        wait_until(lambda: server.requests)
        connection.settimeout(BRIEFLY)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        server.stopping.set()  # ends the delay
        connection.settimeout(HANG)
        assert connection.recv(8) == b"HTTP/1.1"


def test_a_drop_and_raw_bytes(server):
    server.on("GET", "/x", Reply(drop=True), Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
    with pytest.raises(http.client.RemoteDisconnected):
        get(server)
    assert get(server) == (200, b"hi")


def test_files_answer_ranges_and_conditions_as_stores_do(server):
    server.on("GET", "/x", file_reply(b"0123456789"))
    assert get(server) == (200, b"0123456789")
    assert get(server, Range="bytes=2-4") == (206, b"234")
    assert get(server, Range="bytes=7-") == (206, b"789")
    assert get(server, Range="bytes=10-12")[0] == 416
    assert get(server, Range="bytes=2-4", If_Match='"v1"') == (206, b"234")
    assert get(server, If_Match='"v0"')[0] == 412


def test_a_head_has_no_body(server):
    server.on("HEAD", "/x", Reply(headers={"Delta-Table-Version": "3"}))
    assert get(server, method="HEAD") == (200, b"")


def test_endless_body_ends_with_the_connection(server):
    server.on("GET", "/x", Reply(body=b"start", endless=b"ab", length=None), Reply(body=b"next"))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
    connection.request("GET", "/x")
    data = connection.getresponse().read(200_000)
    connection.close()
    assert data[:9] == b"startabab"
    assert len(data) == 200_000
    assert get(server) == (200, b"next")
