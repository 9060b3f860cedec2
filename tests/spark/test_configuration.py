"""Spark's configuration `spark.delta.sharing.*`; options and credential providers of both ways to load."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from faults.faulty_share import FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply

import delta_sharing_client as ds
from delta_sharing_client.errors import ConfigurationError
from delta_sharing_client.spark.configuration import (
    INTERVAL,
    NETWORK_KEYS,
    TIME_ZONE,
    SourceSettings,
    configuration_of,
    configured_options,
    options_of,
)
from delta_sharing_client.spark.data_source_options import parse_options, parse_stream_options
from delta_sharing_client.spark.job import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

NETWORK = "spark.delta.sharing.network."
KEY = "canary-key-78"
OPTIONS = ds.TransportOptions(headers={"X-Api-Key": KEY}, user_agent="spark-test/1")
FILES = [File(f"f{n}", rows(100 * n, 20), parquet(rows(100 * n, 20))) for n in range(3)]
GIVEN = {"path": "s.d.t", "endpoint": "https://host/api", "bearerToken": "x"}


@pytest.fixture
def share() -> Iterator[FaultyShare]:
    with FaultServer() as server:
        yield FaultyShare(server=server, versions=[FILES[:2], FILES], version=1)


@pytest.fixture
def url(share: FaultyShare, tmp_path: Path) -> str:
    path = tmp_path / "t.share"
    path.touch(0o600)
    path.write_text(json.dumps({**share.server.profile, "bearerToken": "of-the-profile"}))
    return f"{path}#s.s.t"


@pytest.fixture
def configured(spark: SparkSession) -> Iterator[SparkSession]:
    values = {NETWORK + "numRetries": "2", NETWORK + "timeout": "45s", INTERVAL: "60s"}
    for key, value in values.items():
        spark.conf.set(key, value)
    yield spark
    for key in values:
        spark.conf.unset(key)


def from_a_vault() -> tuple[str, timedelta]:
    return "from-a-vault", timedelta(hours=1)


def check_requests(share: FaultyShare) -> None:
    """The requests to the server have the token and the header, those for files have neither."""
    assert share.file_requests
    for request in share.file_requests:
        assert "x-api-key" not in request.headers
        assert "authorization" not in request.headers
    calls = [request for request in share.server.requests if request not in share.file_requests]
    assert {request.headers.get("x-api-key") for request in calls} == {KEY}
    assert {request.headers["authorization"] for request in calls} == {"Bearer from-a-vault"}
    assert {request.headers["user-agent"] for request in calls} == {"spark-test/1"}


def test_each_key_sets_its_options() -> None:
    values = {
        "numRetries": "3",
        "timeout": "2m",
        "maxConnections": "7",
        "maxRetryDuration": "1500",
        "useAsyncQuery": "true",
        "asyncQueryTimeout": "60000",
        "proxyHost": "proxy",
        "proxyPort": "3128",
        "noProxyHosts": "a.example, b.example",
    }
    options = options_of({NETWORK + name: value for name, value in values.items()})
    proxies = {"http": "http://proxy:3128", "https": "http://proxy:3128"}
    direct = {f"{scheme}://{host}.example": "" for scheme in ("http", "https") for host in "ab"}
    assert options == ds.TransportOptions(
        api_attempts=4,
        storage_attempts=4,
        connect_timeout=timedelta(minutes=2),
        read_timeout=timedelta(minutes=2),
        max_connections=7,
        api_deadline=timedelta(seconds=1.5),
        asynchronous_queries=True,
        query_deadline=timedelta(minutes=1),
        proxies=proxies | direct,
    )
    assert {NETWORK + name for name in values if "roxy" not in name} == set(NETWORK_KEYS)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("numRetries", "-1", "it takes a whole number"),
        ("timeout", "0", "it takes a duration"),
        ("maxConnections", "0", "it takes a whole number, 1 or more"),
        ("useAsyncQuery", "yes", "it takes true or false"),
        ("proxyHost", "proxy", "have to be set together"),
    ],
)
def test_a_malformed_value_raises_with_its_key(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        options_of({NETWORK + key: value})
    assert caught.value.setting == NETWORK + key
    assert NETWORK + key in str(caught.value)


def test_a_host_without_proxy_is_reached_directly() -> None:
    from delta_sharing_client.transport.base_transport import proxy_for

    configuration = {"proxyHost": "proxy", "proxyPort": "3128", "noProxyHosts": "a.example"}
    options = options_of({NETWORK + name: value for name, value in configuration.items()})
    assert proxy_for("https://a.example", options) is None
    assert proxy_for("https://b.example", options) == "http://proxy:3128"


def test_an_option_of_the_query_comes_before_register_before_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DELTA_SHARING_OPTION_API_ATTEMPTS", "9")
    monkeypatch.setenv("DELTA_SHARING_OPTION_MAX_CONNECTIONS", "8")
    configuration = {NETWORK + "useAsyncQuery": "true", NETWORK + "numRetries": "4"}
    settings = SourceSettings(configuration=configuration)
    transport = parse_options(GIVEN, settings).transport
    assert (transport.asynchronous_queries, transport.api_attempts, transport.max_connections) == (True, 5, 8)
    query = GIVEN | {"asynchronousQueries": "false"}
    assert not parse_options(query, settings).transport.asynchronous_queries
    given = SourceSettings(configuration=configuration, options=ds.TransportOptions(api_attempts=2))
    assert parse_options(GIVEN, given).transport == ds.TransportOptions(api_attempts=2)
    assert parse_options(GIVEN).transport.api_attempts == 9


def test_the_interval_of_a_stream_comes_from_its_option_or_the_configuration() -> None:
    settings = SourceSettings(configuration={INTERVAL: "2min"})
    assert parse_stream_options(GIVEN, settings).interval == 120
    assert parse_stream_options(GIVEN | {"queryTableVersionIntervalSeconds": "40"}, settings).interval == 40
    with pytest.raises(ConfigurationError, match="queryTableVersionIntervalSeconds is 'often'; it takes"):
        parse_stream_options(GIVEN, SourceSettings(configuration={INTERVAL: "often"}))
    with pytest.raises(ValueError, match="queryTableVersionIntervalSeconds is 5; servers require at least 10"):
        parse_stream_options(GIVEN, SourceSettings(configuration={INTERVAL: "5"}))


def test_settings_survive_encoding_and_hide_secrets() -> None:
    provider = lambda: ("a-token", None)  # noqa: E731  # a function without a name, as in a notebook
    settings = SourceSettings(configuration={INTERVAL: "60"}, options=OPTIONS, credential_provider=provider)
    decoded = SourceSettings.decode(settings.encode())
    assert (decoded.configuration, decoded.options) == (settings.configuration, OPTIONS)
    assert decoded.credential_provider is not None
    assert decoded.credential_provider() == ("a-token", None)
    assert KEY not in repr(settings)
    assert SourceSettings.decode(b"") == SourceSettings()


def test_load_as_spark_reads_the_configuration_of_the_session(configured: SparkSession) -> None:
    expected = ds.TransportOptions(
        api_attempts=3,
        storage_attempts=3,
        connect_timeout=timedelta(seconds=45),
        read_timeout=timedelta(seconds=45),
    )
    assert configured_options(configured) == configured_options(None) == expected


def test_the_time_zone_of_a_session_may_be_the_default(spark: SparkSession) -> None:
    before = spark.conf.get(TIME_ZONE)
    assert before is not None
    spark.conf.unset(TIME_ZONE)
    try:
        assert configuration_of(spark) == {TIME_ZONE: spark.conf.get(TIME_ZONE)}
    finally:
        spark.conf.set(TIME_ZONE, before)


def test_a_malformed_configuration_stops_load_as_spark(spark: SparkSession, url: str) -> None:
    spark.conf.set(NETWORK + "timeout", "soon")
    try:
        with pytest.raises(ConfigurationError, match=r"network\.timeout is 'soon'"):
            ds.load_as_spark(url, spark=spark)
    finally:
        spark.conf.unset(NETWORK + "timeout")


@pytest.mark.parametrize("load", [ds.load_as_spark, ds.load_table_changes_as_spark])
def test_load_as_spark_passes_options_and_credential_provider(
    spark: SparkSession, share: FaultyShare, url: str, load: Any
) -> None:
    given = {"starting_version": 1} if load is ds.load_table_changes_as_spark else {}
    frame = load(url, **given, spark=spark, options=OPTIONS, credential_provider=from_a_vault)
    assert frame.count() == (20 if given else 60)
    check_requests(share)


def test_views_have_options_and_credential_provider(spark: SparkSession, share: FaultyShare, url: str) -> None:
    profile = url.rpartition("#")[0]
    listed = {"items": [{"name": "t", "schema": "s", "share": "s"}]}
    share.server.on("GET", "/shares/s/all-tables", Reply.of_json(listed))
    names = ds.spark.create_views(spark, profile, share="s", options=OPTIONS, credential_provider=from_a_vault)
    assert [spark.table(name).count() for name in names] == [60]
    check_requests(share)


def test_the_data_source_has_options_and_credential_provider_of_register(
    source: SparkSession, share: FaultyShare, url: str
) -> None:
    # A lambda is pickled by value: the process that plans cannot import this module.
    ds.spark.register(source, options=OPTIONS, credential_provider=lambda: ("from-a-vault", None))
    try:
        assert source.read.format("deltaSharing").load(url).count() == 60
    finally:
        ds.spark.register(source)
    check_requests(share)


def test_an_executor_receives_neither_options_nor_provider_with_the_source() -> None:
    pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no Python data sources")
    from pyspark.cloudpickle import dumps

    from delta_sharing_client.spark.python_data_source import source_for

    encoded = SourceSettings(options=OPTIONS, credential_provider=from_a_vault).encode()
    assert KEY.encode() in encoded
    source = source_for(2, b"zip", encoded)({"path": "s.d.t"})
    assert KEY.encode() in dumps(source)
    planned = pickle.loads(dumps(source))
    assert (planned.given, planned.settings, planned.cores) == ({"path": "s.d.t"}, encoded, 2)
    stream = source.streamReader(None)
    assert KEY.encode() not in dumps(source)
    assert KEY.encode() not in dumps(stream)


def test_the_job_of_an_executor_has_no_headers(share: FaultyShare, url: str) -> None:
    from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

    profile, _, name = url.rpartition("#")
    with ds.SharingClient(profile, options=OPTIONS) as client:
        scan = client.table(name).scan()
        for credentials in (True, False):
            options = ExecutorOptions(credentials=credentials)
            job, _ = encode_plan(scan._connections()[0], scan.plan(), options)
            found = decode(job)
            assert found.options.headers == {}
            # The request for fresh URLs needs them.
            renewer = found.executor_credentials
            assert renewer is None or KEY.encode() in renewer
            assert (renewer is not None) == credentials
