"""How requests are sent: time-outs, retries, connections, certificates. One frozen value for both transports."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any

from delta_sharing_client._version import __version__


@lru_cache(maxsize=1)
def default_user_agent() -> str:
    """Return ``delta-sharing-client/<version> Python/<version> requests/<version>``."""
    try:
        requests_version = version("requests")
    except PackageNotFoundError:  # installed without its metadata, as some bundlers do
        requests_version = "unknown"
    return f"delta-sharing-client/{__version__} Python/{platform.python_version()} requests/{requests_version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportOptions:
    """How requests are sent, to the sharing server and to the stores that hold the files.

    Attributes:
        connect_timeout: how long a connection may take; 10 s, since a host that is up answers within one.
        read_timeout: how long the head of an answer may take, and how long nothing may come of its body; 60 s,
            since a server may have to read a long table log before it answers. No request is ever without a
            time-out.
        minimum_speed: bytes per second at which the body of an answer arrives at least, measured over
            `read_timeout`; 100, which ends an answer that only trickles and no slow network.
        api_attempts: how often one request to the sharing server is tried; 6, which with the backoff below
            outlasts a restart of the server.
        api_deadline: how long all those attempts together may wait for an answer; 120 s, so that a caller
            learns of an outage within minutes. Time in which an answer is arriving does not count.
        query_deadline: how long an answer may take that the server prepares asynchronously; 10 minutes, which
            a view over a large table may need. Meanwhile the server is asked every 10 s at the most.
        asynchronous_queries: let the server prepare the answer to a query asynchronously (`asyncquery=true`),
            which a view over a large table may need; off, since servers are seen to forget what such a query asks
            for. An asynchronous answer is taken only from a server that says that it can do that; any other is
            asked once more without.
        backoff_base: the first wait between attempts is random up to this, each further one up to double;
            0.2 s, since most faults are gone at once.
        backoff_cap: the most that a wait grows to; 20 s. A server's `Retry-After` is honoured beyond it.
        storage_attempts: how often in a row a file's download may fail without getting further; 5. A
            download that gets further is resumed, however often it is cut.
        max_connections: open connections to one host; 48, beyond which 400 small files 60 ms away come no
            faster to two cores.
        memory_budget: bytes of files that may be on their way, encoded or decoded, in one load; 512 MB, which
            keeps 48 connections busy with files of 10 MB.
        batch_memory_limit: bytes that decoded rows may take which cannot be decoded apart, a single row at the
            least; 1 GiB. Rows are decoded in much smaller steps wherever the file allows it. A larger row
            raises `DataError` before the memory is taken.
        allow_http: send tokens and fetch files over plain http to other machines too; off, since both are
            secrets. Plain http on loopback is always allowed.
        ca_bundle: a file or directory of trusted certificates instead of the default ones. Without it
            `REQUESTS_CA_BUNDLE` and `CURL_CA_BUNDLE` hold. Verification cannot be turned off.
        client_certificate: the file of a client certificate with its key, or the two files; none by default.
        proxies: proxy URLs by scheme, as `requests` takes them; they go before the usual environment
            variables (`HTTPS_PROXY`, `NO_PROXY`, ...), which hold otherwise. Loopback is never proxied.
        user_agent: the `User-Agent` header; names this package, Python and requests with their versions.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is of the wrong type.
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
        for name in (
            "connect_timeout",
            "read_timeout",
            "api_deadline",
            "query_deadline",
            "backoff_base",
            "backoff_cap",
        ):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                raise TypeError(f"{name} is a timedelta, as timedelta(seconds=30), not {type(value).__name__}")
            if value <= timedelta(0):
                raise ValueError(f"{name} is {value}; it has to be more than zero")
        for name in (
            "minimum_speed",
            "api_attempts",
            "storage_attempts",
            "max_connections",
            "memory_budget",
            "batch_memory_limit",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is an int, not {type(value).__name__}")
            if value < 1:
                raise ValueError(f"{name} is {value}; it has to be at least 1")
        for name in ("asynchronous_queries", "allow_http"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is True or False, not {getattr(self, name)!r}")
        if self.backoff_cap < self.backoff_base:
            raise ValueError(f"backoff_cap ({self.backoff_cap}) is less than backoff_base ({self.backoff_base})")
        if not self.user_agent.isascii() or not self.user_agent.isprintable():
            raise ValueError("user_agent has characters that cannot stand in a header")
        object.__setattr__(self, "proxies", MappingProxyType(dict(self.proxies)))

    def __reduce__(self) -> tuple[Any, ...]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["proxies"] = dict(self.proxies)
        return _rebuild, (values,)


def _rebuild(values: dict[str, Any]) -> TransportOptions:
    return TransportOptions(**values)
