"""Kinds of faults of the chaos test, and the files that it serves.

A fault is a function of a random generator, the request and the correct reply. It returns the reply to send, or
None if it does not apply to the reply.
"""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable
from email.utils import formatdate

import pyarrow as pa
import pyarrow.parquet as pq
from faults.faulty_share import EXPIRED, File, parquet, rows
from faults.server import Reply, Request
from waiting import FOREVER

Fault = Callable[[random.Random, Request, Reply], "Reply | None"]


def _busy(rng: random.Random, request: Request, reply: Reply) -> Reply:
    status = rng.choice((408, 429, 500, 502, 503, 504))
    retry_after = rng.choice((None, "0", formatdate(time.time(), usegmt=True)))
    body = rng.choice((b"", b"<Error><Code>SlowDown</Code></Error>", b'{"errorCode": "BUSY", "message": "later"}'))
    return Reply(status=status, body=body, headers={} if retry_after is None else {"Retry-After": retry_after})


def _delay(rng: random.Random, request: Request, reply: Reply) -> Reply:
    return reply.but(delay=rng.uniform(0, 0.05))


def _drop(rng: random.Random, request: Request, reply: Reply) -> Reply:
    return Reply(drop=True)


def _no_reply(rng: random.Random, request: Request, reply: Reply) -> Reply:
    return reply.but(delay=FOREVER)


def _cut(ending: str) -> Fault:
    def fault(rng: random.Random, request: Request, reply: Reply) -> Reply | None:
        chunk = rng.choice((None, 100)) if len(reply.body) < 10_000 else None
        return reply.but(cut_at=rng.randrange(len(reply.body)), ending=ending, chunk=chunk) if reply.body else None

    return fault


def _length_too_long(rng: random.Random, request: Request, reply: Reply) -> Reply:
    return reply.but(length=len(reply.body) + rng.randrange(1, 1000))


def _line_cut(rng: random.Random, request: Request, reply: Reply) -> Reply | None:
    """The response ends after a complete line, with a matching Content-Length."""
    lines = reply.body.splitlines(keepends=True)
    return reply.but(body=b"".join(lines[: rng.randrange(len(lines))])) if len(lines) > 1 else None


def _truncated_gzip(rng: random.Random, request: Request, reply: Reply) -> Reply | None:
    packed = gzip.compress(reply.body)
    cut = packed[: rng.randrange(1, len(packed))]
    return reply.but(body=cut, headers={**reply.headers, "Content-Encoding": "gzip"}) if reply.body else None


def _failed_late(rng: random.Random, request: Request, reply: Reply) -> Reply | None:
    """The server fails after the start of the response."""
    lines = reply.body.splitlines(keepends=True)
    end = b'{"endStreamAction": {"errorMessage": "out of workers", "httpStatusErrorCode": 503}}\n'
    return reply.but(body=b"".join(lines[: rng.randrange(1, len(lines))]) + end) if len(lines) > 1 else None


def _expired(rng: random.Random, request: Request, reply: Reply) -> Reply:
    status, text = rng.choice(EXPIRED)
    return Reply(status=status, body=text.encode(), headers={"Content-Type": "application/xml"})


def _broken_line(rng: random.Random, request: Request, reply: Reply) -> Reply | None:
    lines = reply.body.splitlines(keepends=True)
    if len(lines) < 2:
        return None
    broken = rng.choice((b"{", b"[]\n", b'{"file": 7}\n', b'{"what": {}}\n', b"\xff\xfe\n", b'{"file": {}}\n'))
    where = rng.randrange(len(lines))
    return reply.but(body=b"".join([*lines[:where], broken, *lines[where:]]))


def _bomb(rng: random.Random, request: Request, reply: Reply) -> Reply:
    return reply.but(body=_BOMB, headers={**reply.headers, "Content-Encoding": "gzip"})


def _refused(rng: random.Random, request: Request, reply: Reply) -> Reply:
    status = rng.choice((400, 401, 403, 404, 410, 418))
    return Reply(status=status, body=b"<Error><Code>No</Code></Error>")


def _endless(rng: random.Random, request: Request, reply: Reply) -> Reply:
    return reply.but(length=None, endless=b"x")


def _shorter(rng: random.Random, request: Request, reply: Reply) -> Reply | None:
    return reply.but(body=reply.body[: rng.randrange(len(reply.body))]) if reply.body else None


def _flip(rng: random.Random, request: Request, reply: Reply) -> Reply | None:
    """Flip a bit in the body of a page, which has a checksum; None if the reply contains no page body."""
    name = request.path.rpartition("/")[2]
    first = 0
    if reply.status == 206:
        first = int(reply.headers["Content-Range"].removeprefix("bytes ").partition("-")[0])
    ranges = [
        (max(start, first), min(stop, first + len(reply.body)))
        for start, stop in PAGES[name]
        if start < first + len(reply.body) and stop > first
    ]
    if not ranges:
        return None
    at = rng.randrange(*rng.choice(ranges)) - first
    flipped = bytes([reply.body[at] ^ (1 << rng.randrange(8))])
    return reply.but(body=reply.body[:at] + flipped + reply.body[at + 1 :])


API: dict[str, Fault] = {
    "busy": _busy,
    "delay": _delay,
    "drop": _drop,
    "late": _no_reply,
    "cut": _cut("close"),
    "reset": _cut("reset"),
    "stall": _cut("stall"),
    "length too long": _length_too_long,
    "cut at a line": _line_cut,
    "cut gzip": _truncated_gzip,
    "failed late": _failed_late,
}
API_PERMANENT: dict[str, Fault] = {
    "broken line": _broken_line,
    "gzip bomb": _bomb,
    "refused": _refused,
    "endless": _endless,
}
STORE: dict[str, Fault] = {
    "busy": _busy,
    "delay": _delay,
    "drop": _drop,
    "late": _no_reply,
    "cut": _cut("close"),
    "reset": _cut("reset"),
    "stall": _cut("stall"),
    "expired": _expired,
}
STORE_PERMANENT: dict[str, Fault] = {
    "length too long": _length_too_long,
    "refused": _refused,
    "endless": _endless,
    "shorter": _shorter,
    "flipped bit": _flip,
}
#: A compressed line of 80 MB.
_BOMB = gzip.compress(b" " * 2**20) * 80


def _file(number: int, count: int, row_group: int = 10**6) -> File:
    table = rows(number * 1_000_000, count)
    return File(f"f{number}", table, parquet(table, row_group))


FILES = [_file(n, 50 + 37 * n) for n in range(12)] + [_file(20, 60_000, 15_000)]
VERSIONS = [FILES[:6], FILES[2:9], [*FILES[4:12], FILES[12]], [*FILES[8:], *FILES[:2]]]


def _pages(data: bytes) -> list[tuple[int, int]]:
    """Return the byte ranges of page bodies; page headers, which have no checksum, take less than 200 bytes."""
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    chunks = (
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    ranges = [(c.data_page_offset + 200, c.data_page_offset + c.total_compressed_size) for c in chunks]
    return [(start, stop) for start, stop in ranges if start < stop]


PAGES = {file.name: _pages(file.data) for file in FILES}
