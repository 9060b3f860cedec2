"""`TransportOptions`: time-outs, retries, connections, memory, certificates; their environment variables."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Final

from delta_sharing_client._version import __version__
from delta_sharing_client.errors import ConfigurationError
from delta_sharing_client.option_texts import parse_boolean, parse_bytes, parse_duration, parse_number
from delta_sharing_client.paths import local_path

#: Each option has an environment variable: this prefix, then its name in capitals.
ENVIRONMENT_PREFIX: Final = "DELTA_SHARING_OPTION_"

#: Headers that the client sets itself, in lower case.
_OWN_HEADERS: Final = frozenset(
    (
        *("accept-encoding", "authorization", "connection", "content-length", "content-type"),
        *("delta-sharing-capabilities", "fileidhash", "host", "transfer-encoding", "user-agent"),
    )
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


_parse_count: Final = partial(parse_number, least=1)


def _parse_mapping(text: str) -> dict[str, str]:
    found = _json(text)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError('it takes a JSON object of texts, such as {"name": "value"}')
    return found


def _parse_path(text: str) -> str:
    return os.fspath(local_path(text, "it"))


def _parse_certificate(text: str) -> str | tuple[str, str]:
    if not text.lstrip().startswith("["):
        return _parse_path(text)
    found = _json(text)
    if not isinstance(found, list) or len(found) != 2 or not all(isinstance(path, str) for path in found):
        raise ValueError("it takes the path of a file, or a JSON list of the paths of certificate and key")
    return _parse_path(found[0]), _parse_path(found[1])


def _parse_headers(text: str) -> dict[str, str]:
    return _checked_headers(_parse_mapping(text))


def _parse_user_agent(text: str) -> str:
    _check_user_agent(text)
    return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _option(name: str, default: Any, parse: Callable[[str], Any], **settings: Any) -> Any:
    """Return a field that the environment variable of `name` sets, parsed by `parse`; else `default`.

    A function as `default` returns the default.
    """
    metadata = {"parse": parse, "default": default}
    return field(default_factory=partial(_default, name, default, parse), metadata=metadata, **settings)


def _default(name: str, default: Any, parse: Callable[[str], Any]) -> Any:
    variable = ENVIRONMENT_PREFIX + name.upper()
    text = os.environ.get(variable)
    if text:
        return _parsed(parse, text, "the environment variable", variable)
    return default() if callable(default) else default


def _parsed(parse: Callable[[str], Any], text: str, kind: str, name: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:  # the text may be a secret
        raise ConfigurationError(f"{kind} {name} is malformed: {error}", setting=name) from None


@lru_cache(maxsize=1)
def default_user_agent() -> str:
    """Return ``delta-sharing-client/<version> Python/<version>``."""
    return f"delta-sharing-client/{__version__} Python/{platform.python_version()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportOptions:
    """Options of requests to the sharing server and to stores.

    An option that is not given has the value of its environment variable, `DELTA_SHARING_OPTION_` and its name in
    capitals, as in ``DELTA_SHARING_OPTION_READ_TIMEOUT=90s``, or else the default that is named here.

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
        max_files: maximum number of files per page of an answer (`maxFiles`); None, so that the server decides.
            Smaller pages suit a server whose answers take too long; each one is a further request.
        max_results: maximum number of items per page of a listing (`maxResults`); None, as above.
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
        metadata_limit: maximum bytes of what is read as a whole before rows are: the footer of a Parquet file, a
            deletion vector, a line of an answer, a page of a listing, the metadata of an Iceberg table; 64 MiB. A
            file of the log of a table shared by its directory may have 16 times as many bytes. A footer may take
            16 times the limit in memory, and none is near the limit in practice: one of 10,000 columns and 50 row
            groups has some 50 MB.
        allow_http: allow tokens and files over plain http to other machines; off, because both are secrets. Plain
            http on loopback is always allowed.
        ca_bundle: file or directory of trusted certificates instead of the default ones; by default
            `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE`. `~` is the home directory. Verification cannot be turned off.
        client_certificate: file of a client certificate with its key, or the two files; none by default.
        proxies: proxy URLs by scheme, as for `requests`; they take precedence over the environment variables
            (`HTTPS_PROXY`, `NO_PROXY`, ...). Loopback is never proxied.
        headers: further headers of the requests to the sharing server, such as the key of a gateway; none by
            default. They are never sent to stores and token endpoints, and representations hide them.
        user_agent: the `User-Agent` header; by default the versions of this package, Python and requests.

    Raises:
        ValueError: a value is out of its range, or a path is the URL of a store.
        ConfigurationError: an environment variable is malformed, or names no option.
        TypeError: a value has the wrong type.
    """

    connect_timeout: timedelta = _option("connect_timeout", timedelta(seconds=10), parse_duration)
    read_timeout: timedelta = _option("read_timeout", timedelta(seconds=60), parse_duration)
    minimum_speed: int = _option("minimum_speed", 100, parse_bytes)
    api_attempts: int = _option("api_attempts", 6, _parse_count)
    api_deadline: timedelta = _option("api_deadline", timedelta(seconds=120), parse_duration)
    query_deadline: timedelta = _option("query_deadline", timedelta(minutes=10), parse_duration)
    asynchronous_queries: bool = _option("asynchronous_queries", False, parse_boolean)
    max_files: int | None = _option("max_files", None, _parse_count)
    max_results: int | None = _option("max_results", None, _parse_count)
    backoff_base: timedelta = _option("backoff_base", timedelta(seconds=0.2), parse_duration)
    backoff_cap: timedelta = _option("backoff_cap", timedelta(seconds=20), parse_duration)
    storage_attempts: int = _option("storage_attempts", 5, _parse_count)
    max_connections: int = _option("max_connections", 48, _parse_count)
    memory_budget: int = _option("memory_budget", 512 * 1024 * 1024, parse_bytes)
    batch_memory_limit: int = _option("batch_memory_limit", 1024 * 1024 * 1024, parse_bytes)
    metadata_limit: int = _option("metadata_limit", 64 * 1024 * 1024, parse_bytes)
    allow_http: bool = _option("allow_http", False, parse_boolean)
    ca_bundle: str | os.PathLike[str] | None = _option("ca_bundle", None, _parse_path)
    client_certificate: str | os.PathLike[str] | tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = (
        _option("client_certificate", None, _parse_certificate, repr=False)
    )
    proxies: Mapping[str, str] = _option("proxies", dict, _parse_mapping, repr=False, hash=False)
    headers: Mapping[str, str] = _option("headers", dict, _parse_headers, repr=False, hash=False)
    user_agent: str = _option("user_agent", default_user_agent, _parse_user_agent)

    def __post_init__(self) -> None:
        _check_variables()
        for item in fields(self):
            name, value = item.name, getattr(self, item.name)
            if item.type == "timedelta":
                if not isinstance(value, timedelta):
                    raise TypeError(f"{name} is a timedelta, as timedelta(seconds=30), not {type(value).__name__}")
                if value <= timedelta(0):
                    raise ValueError(f"{name} is {value}; it has to be more than zero")
            elif item.type == "int" or (item.type == "int | None" and value is not None):
                if isinstance(value, bool) or not isinstance(value, int):
                    raise TypeError(f"{name} is an int, not {type(value).__name__}")
                if value < 1:
                    raise ValueError(f"{name} is {value}; it has to be at least 1")
            elif item.type == "bool" and not isinstance(value, bool):
                raise TypeError(f"{name} is True or False, not {value!r}")
        if self.backoff_cap < self.backoff_base:
            message = f"backoff_cap ({self.backoff_cap}) is less than backoff_base ({self.backoff_base})"
            for variable in (f"{ENVIRONMENT_PREFIX}BACKOFF_{bound}" for bound in ("CAP", "BASE")):
                if os.environ.get(variable):
                    raise ConfigurationError(f"the environment variable {variable}: {message}", setting=variable)
            raise ValueError(message)
        _check_user_agent(self.user_agent)
        if self.ca_bundle is not None:
            object.__setattr__(self, "ca_bundle", os.fspath(local_path(self.ca_bundle, "ca_bundle")))
        object.__setattr__(self, "client_certificate", _certificate_paths(self.client_certificate))
        object.__setattr__(self, "proxies", dict(self.proxies))
        object.__setattr__(self, "headers", _checked_headers(self.headers))

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> TransportOptions:
        """Return the options that texts describe, by their names; the texts are as in environment variables.

        Raises:
            ConfigurationError: a text is malformed, or a name is unknown.
        """
        parsers = {item.name: item.metadata["parse"] for item in fields(cls)}
        for name in texts:
            if name not in parsers:
                raise _unknown("the option", name, list(parsers))
        return cls(**{name: _parsed(parsers[name], text, "the option", name) for name, text in texts.items()})


def _certificate_paths(given: Any) -> str | tuple[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, tuple | list):
        return os.fspath(local_path(given, "client_certificate"))
    if len(given) != 2:
        raise ValueError("client_certificate is a path, or the two paths of certificate and key")
    certificate, key = (os.fspath(local_path(path, "client_certificate")) for path in given)
    return certificate, key


def _check_variables() -> None:
    """Raise `ConfigurationError` for an environment variable that names no option."""
    found = [variable for variable in os.environ if variable.startswith(ENVIRONMENT_PREFIX)]
    if found:
        known = [ENVIRONMENT_PREFIX + item.name.upper() for item in fields(TransportOptions)]
        for variable in found:
            if variable not in known:
                raise _unknown("the environment variable", variable, known)


def _unknown(kind: str, name: str, known: Sequence[str]) -> ConfigurationError:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    hint = f"is {close[0]} meant?" if close else f"there are {', '.join(known)}"
    return ConfigurationError(f"{kind} {name} is unknown; {hint}", setting=name)


def _check_user_agent(text: str) -> None:
    if not text.isascii() or not text.isprintable():
        raise ValueError("user_agent has characters that cannot stand in a header")


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a copy; the messages show no value, because it may be a secret."""
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError("headers is a mapping of texts to texts")
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"headers has {name!r}, which is not the name of a header")
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"headers has {name!r}, which the client sets itself")
        if not value.isascii() or not value.isprintable() or value != value.strip():
            raise ValueError(f"headers: the value of {name!r} has characters that cannot stand in a header")
    return dict(headers)
