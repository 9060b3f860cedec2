"""However an answer is cut into packets, it is read the same, and as the standard library reads it."""

import http.client

import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import Pieces


def outcome(packets, sizes):
    """Read an answer; return all that can be told of it."""
    connection = Pieces(packets)
    try:
        answer = connection.getresponse()
    except (http.client.HTTPException, urllib3.exceptions.HTTPError) as error:
        return type(error), str(error)
    head = answer.status, dict(answer.headers), answer.left
    data, turn = b"", 0
    known = answer.left is not None
    while True:
        size = sizes[turn % len(sizes)]
        turn += 1
        try:
            if known and turn % 2:
                piece = bytearray(size)
                piece = bytes(piece[: answer.read_into(memoryview(piece))])
            else:
                piece = answer.read1(size)
        except (http.client.HTTPException, urllib3.exceptions.HTTPError) as error:
            return *head, data, type(error), str(error)
        if not piece:
            return *head, data, answer.left, connection.closed
        data += piece


TOKENS = st.text("abcXYZ-09", min_size=1, max_size=8)
VALUES = st.text('az09 ,;=:"/\xe9', max_size=12).map(str.strip)
FRAMING = ("content-length", "transfer-encoding", "connection", "keep-alive")
HEADERS = st.lists(st.tuples(TOKENS.filter(lambda name: name.lower() not in FRAMING), VALUES), max_size=6)


@st.composite
def answers(draw):
    """A well-formed answer and its body."""
    body = draw(st.binary(max_size=60))
    framing = draw(st.sampled_from(("length", "chunked", "close")))
    version = 1 if framing == "chunked" else draw(st.integers(0, 1))
    lines = [f"HTTP/1.{version} {draw(st.sampled_from((200, 206, 404, 503)))} Said so"]
    lines += [f"{name}:{draw(st.sampled_from(('', ' ', '  ')))}{value}" for name, value in draw(HEADERS)]
    sent = body
    if framing == "length":
        lines.append(f"Content-Length: {len(body)}")
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
        size = draw(st.integers(1, 20))
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        sent = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    if draw(st.booleans()):
        lines.append(f"Connection: {draw(st.sampled_from(('close', 'keep-alive', 'Keep-Alive')))}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + sent, body


@st.composite
def damaged(draw):
    """An answer of which a part is missing, changed or too much."""
    data, _ = draw(answers())
    start = draw(st.integers(0, len(data)))
    return data[:start] + draw(st.binary(max_size=4)) + data[start + draw(st.integers(0, 4)) :]


@settings(deadline=None)
@given(answers() | damaged().map(lambda data: (data, None)), st.data())
def test_packets_make_no_difference(answer, data):
    whole, body = answer
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    packets = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3))
    expected = outcome([whole], [1000])
    if body is not None:
        assert expected[3] == body
    got = outcome(packets, sizes)
    assert got[:5] == expected[:5]
    single = outcome([whole[index : index + 1] for index in range(len(whole))], sizes)
    assert single[:5] == expected[:5]


@settings(deadline=None)
@given(answers())
def test_the_standard_library_reads_the_same(answer):
    data, body = answer
    theirs = http.client.HTTPResponse(Pieces([data]), method="GET")
    theirs.begin()
    names = {name.lower() for name in theirs.headers}
    headers = {name: ", ".join(theirs.headers.get_all(name)) for name in names}
    connection = Pieces([data])
    ours = connection.getresponse()
    assert ours.status == theirs.status
    assert dict(ours.headers) == headers
    assert ours.left == theirs.length
    assert ours._keeps is not theirs.will_close
    pieces = iter(lambda: ours.read(16), b"")
    assert b"".join(pieces) == theirs.read() == body
    assert connection.closed is theirs.will_close
