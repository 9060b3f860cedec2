"""`TransportOptions`: time-outs, retries, connections, memory, certificates."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from delta_sharing_client._version import __version__


@lru_cache(maxsize=1)
def default_user_agent() -> str:
    """Return ``delta-sharing-client/<version> Python/<version> requests/<version>``."""
    try:
        requests_version = version("requests")
    except PackageNotFoundError:  # bundlers may leave out the metadata
        requests_version = "unknown"
    return f"delta-sharing-client/{__version__} Python/{platform.python_version()} requests/{requests_version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportOptions:
    """Options of requests to the sharing server and to stores.

    Attributes:
        connect_timeout: time-out for opening a connection; 10 s, because a reachable host answers within 1 s.
        read_timeout: time-out for the head of a response, and for each pause within its body; 60 s, because a
            server may read a long table log before it answers. Every request has a time-out.
        minimum_speed: minimum speed of a response body in bytes per second, measured over `read_timeout`; 100,
            which no usable network falls below.
        api_attempts: attempts per request to the sharing server; 6, which with the backoff below take longer than
            a restart of the server.
        api_deadline: total wait for an answer over all attempts; 120 s, so that an outage is reported within
            minutes. Time in which an answer arrives does not count.
        query_deadline: maximum time for an asynchronous query; 10 minutes, which a view over a large table may
            need. The server is polled at least every 10 s.
        asynchronous_queries: allow asynchronous queries (`asyncquery=true`), which a view over a large table may
            require; off, because some servers ignore the fields of such a query. An asynchronous answer is
            accepted only from a server that announces it; otherwise the query is repeated synchronously.
        backoff_base: upper bound of the random wait before the second attempt; each further wait may be twice as
            long. 0.2 s, because most faults are short.
        backoff_cap: maximum wait between attempts; 20 s. A longer `Retry-After` of the server is respected.
        storage_attempts: consecutive attempts to download a file without progress; 5. A download with progress is
            resumed after every interruption.
        max_connections: maximum number of open connections per host; 48, beyond which two cores load 400 small
            files at a latency of 60 ms no faster.
        memory_budget: bytes of files in flight per load, encoded or decoded; 512 MiB, which keep 48 connections
            busy with files of 10 MB.
        batch_memory_limit: maximum bytes of decoded rows that cannot be decoded separately, at least of a single
            row; 1 GiB. Rows are decoded in smaller steps if the file allows it. A larger row raises `DataError`
            before its memory is allocated.
        allow_http: allow tokens and files over plain http to other machines; off, because both are secrets. Plain
            http on loopback is always allowed.
        ca_bundle: file or directory of trusted certificates instead of the default ones; by default
            `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE`. Verification cannot be turned off.
        client_certificate: file of a client certificate with its key, or the two files; none by default.
        proxies: proxy URLs by scheme, as for `requests`; they take precedence over the environment variables
            (`HTTPS_PROXY`, `NO_PROXY`, ...). Loopback is never proxied.
        user_agent: the `User-Agent` header; by default the versions of this package, Python and requests.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value has the wrong type.
    """

    connect_timeout: timedelta = timedelta(seconds=10)
    read_timeout: timedelta = timedelta(seconds=60)
    minimum_speed: int = 100
    api_attempts: int = 6
    api_deadline: timedelta = timedelta(seconds=120)
    query_deadline: timedelta = timedelta(minutes=10)
    asynchronous_queries: bool = False
    backoff_base: timedelta = timedelta(seconds=0.2)
    backoff_cap: timedelta = timedelta(seconds=20)
    storage_attempts: int = 5
    max_connections: int = 48
    memory_budget: int = 512 * 1024 * 1024
    batch_memory_limit: int = 1024 * 1024 * 1024
    allow_http: bool = False
    ca_bundle: str | os.PathLike[str] | None = None
    client_certificate: str | tuple[str, str] | None = field(default=None, repr=False)
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    user_agent: str = field(default_factory=default_user_agent)

    def __post_init__(self) -> None:
        for item in fields(self):
            name, value = item.name, getattr(self, item.name)
            if item.type == "timedelta":
                if not isinstance(value, timedelta):
                    raise TypeError(f"{name} is a timedelta, as timedelta(seconds=30), not {type(value).__name__}")
                if value <= timedelta(0):
                    raise ValueError(f"{name} is {value}; it has to be more than zero")
            elif item.type == "int":
                if isinstance(value, bool) or not isinstance(value, int):
                    raise TypeError(f"{name} is an int, not {type(value).__name__}")
                if value < 1:
                    raise ValueError(f"{name} is {value}; it has to be at least 1")
            elif item.type == "bool" and not isinstance(value, bool):
                raise TypeError(f"{name} is True or False, not {value!r}")
        if self.backoff_cap < self.backoff_base:
            raise ValueError(f"backoff_cap ({self.backoff_cap}) is less than backoff_base ({self.backoff_base})")
        if not self.user_agent.isascii() or not self.user_agent.isprintable():
            raise ValueError("user_agent has characters that cannot stand in a header")
        object.__setattr__(self, "proxies", dict(self.proxies))
