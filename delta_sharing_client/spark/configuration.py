"""Spark's configuration as options, and what `register` gives to the data source.

The keys are those of the connector for the JVM and of Delta's own source, where they mean the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.errors import ConfigurationError
from delta_sharing_client.option_texts import parse_boolean, parse_duration, parse_number
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.spark.option_parsers import ACCEPTED_CHANGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NETWORK: Final = "spark.delta.sharing.network."
_PROXY_HOST, _PROXY_PORT, _NO_PROXY = (_NETWORK + name for name in ("proxyHost", "proxyPort", "noProxyHosts"))
#: Seconds between two requests of a stream for the table's version.
INTERVAL: Final = "spark.delta.sharing.streaming.queryTableVersionIntervalSeconds"
#: The zone of times without one.
TIME_ZONE: Final = "spark.sql.session.timeZone"
#: Keys of Delta's own source, by the names of the options that they set.
ACCEPTED_KEYS: Final = {name: f"spark.databricks.delta.streaming.{name}" for name in ACCEPTED_CHANGES}


def _parse_retries(text: str) -> int:
    """Parse a number of retries as a number of attempts."""
    return parse_number(text) + 1


_parse_milliseconds: Final = partial(parse_duration, unit="ms")
#: Keys of the configuration: the parser of the text, and the options that the value sets.
NETWORK_KEYS: Final[Mapping[str, tuple[Callable[[str], Any], tuple[str, ...]]]] = {
    _NETWORK + "numRetries": (_parse_retries, ("api_attempts", "storage_attempts")),
    _NETWORK + "timeout": (parse_duration, ("connect_timeout", "read_timeout")),
    _NETWORK + "maxConnections": (partial(parse_number, least=1), ("max_connections",)),
    _NETWORK + "maxRetryDuration": (_parse_milliseconds, ("api_deadline",)),
    _NETWORK + "useAsyncQuery": (parse_boolean, ("asynchronous_queries",)),
    _NETWORK + "asyncQueryTimeout": (_parse_milliseconds, ("query_deadline",)),
}
KEYS: Final = (
    *(*NETWORK_KEYS, _PROXY_HOST, _PROXY_PORT, _NO_PROXY),
    *(INTERVAL, TIME_ZONE, *ACCEPTED_KEYS.values()),
)


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """What `register` gives to the data source.

    Attributes:
        configuration: the session's configuration, by the names in `KEYS`.
        options: options of the HTTP client, instead of the configuration.
        credential_provider: returns tokens in place of the profile's credential.
    """

    configuration: Mapping[str, str] = field(default_factory=dict)
    options: TransportOptions | None = field(default=None, repr=False)
    credential_provider: CredentialProvider | None = field(default=None, repr=False)

    @property
    def transport(self) -> TransportOptions:
        """The options of the HTTP client."""
        return self.options or options_of(self.configuration)

    def encode(self) -> bytes:
        """Return the settings for the process that plans; Spark pickles a function of a notebook by value."""
        from pyspark.cloudpickle import dumps

        encoded: bytes = dumps(self)  # type: ignore[no-untyped-call]
        return encoded

    @classmethod
    def decode(cls, encoded: bytes) -> SourceSettings:
        """Return the settings that `encode` encoded; the empty ones of a source that Spark has found by itself."""
        if not encoded:
            return cls()
        settings: SourceSettings = pickle.loads(encoded)  # noqa: S301  # Spark itself sends pickles the same way
        return settings


def configuration_of(session: SparkSession) -> dict[str, str]:
    """Return the values of `KEYS` that a session has: those that are set, and its time zone."""
    values = {key: session.conf.get(key, None) for key in KEYS}
    values[TIME_ZONE] = session.conf.get(TIME_ZONE)  # with a default, which the other call does not return
    return {key: value for key, value in values.items() if value is not None}


def configured_options(spark: SparkSession | None) -> TransportOptions:
    """Return the options that the configuration of a session sets: the given one, or else the active one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return TransportOptions()  # that PySpark is missing is reported when a session is needed
    session = spark or SparkSession.getActiveSession()
    return TransportOptions() if session is None else options_of(configuration_of(session))


def options_of(configuration: Mapping[str, str]) -> TransportOptions:
    """Return the options that a configuration sets.

    Raises:
        ConfigurationError: a value is malformed.
    """
    values: dict[str, Any] = {}
    for key, (parse, names) in NETWORK_KEYS.items():
        if key in configuration:
            values |= dict.fromkeys(names, parse_key(configuration, key, parse))
    return TransportOptions(**values, **_proxies(configuration))


def parse_key(configuration: Mapping[str, str], key: str, parse: Callable[[str], Any]) -> Any:
    """Return the parsed value of a key of the configuration."""
    try:
        return parse(configuration[key])
    except ValueError as error:
        raise ConfigurationError(f"{key} is {configuration[key]!r}; {error}", setting=key) from None


def _proxies(configuration: Mapping[str, str]) -> dict[str, Any]:
    """Return the option `proxies`, if a proxy is configured; a host without proxy has an empty one."""
    host, port = configuration.get(_PROXY_HOST), configuration.get(_PROXY_PORT)
    if host is None and port is None:
        return {}
    if not host or port is None:
        raise ConfigurationError(f"{_PROXY_HOST} and {_PROXY_PORT} have to be set together", setting=_PROXY_HOST)
    number = parse_key(configuration, _PROXY_PORT, partial(parse_number, least=1))
    direct = [name.strip() for name in configuration.get(_NO_PROXY, "").split(",") if name.strip()]
    proxies: dict[str, str] = {}
    for scheme in ("http", "https"):
        proxies |= {scheme: f"http://{host}:{number}", **{f"{scheme}://{name}": "" for name in direct}}
    return {"proxies": proxies}
