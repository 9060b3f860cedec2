"""Requests to the Iceberg catalog: credentials, transport options, URL rules, retries, errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from auth.token_server import TokenServer
from faults.server import Reply
from iceberg_server import ROOT, TOKEN, IcebergServer

import delta_sharing_client as ds
from delta_sharing_client import errors
from delta_sharing_client.iceberg.file_io import VendedFileIO

ORDERS = pa.table({"id": [1, 2, 3]})
NAME = "retail.sales.orders"


def load(client: ds.SharingClient) -> pa.Table:
    with client:
        return client.iceberg.table(NAME).to_arrow()


@pytest.mark.protocol(
    "GET /v1/config", "GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{schema}/tables"
)
def test_listings_are_read_page_by_page(iceberg: IcebergServer) -> None:
    for name in ("sales.orders", "sales.items", "sales.refunds", "stock.levels", "hr.people"):
        iceberg.create(name, ORDERS)
    with iceberg.client() as client:
        catalog = client.iceberg
        assert [share.name for share in catalog.list_shares()] == ["retail"]
        assert [schema.full_name for schema in catalog.list_schemas("retail")] == [
            "retail.hr",
            "retail.sales",
            "retail.stock",
        ]
        names = {table.name for table in catalog.list_tables("retail.sales")}
        assert names == {"orders", "items", "refunds"}
        assert len(catalog.list_all_tables()) == len(catalog.tables("retail")) == 5
        assert {table.schema for table in catalog.list_all_tables("`retail`")} == {"hr", "sales", "stock"}
    assert len(iceberg.seen("/config")) == 1


def test_a_listing_without_an_end_is_an_error(iceberg: IcebergServer) -> None:
    endless = Reply.of_json({"namespaces": [["sales"]], "next-page-token": "again"})
    iceberg.server.on("GET", re.compile("/shares/retail/namespaces"), endless)
    with iceberg.client() as client, pytest.raises(errors.ProtocolError, match="never ends"):
        client.iceberg.list_schemas("retail")


@pytest.mark.parametrize(
    ("name", "subject"),
    [("retail.sales.none", "Iceberg table retail.sales.none"), ("none.sales.orders", "Iceberg share none")],
)
def test_a_missing_name_is_named(iceberg: IcebergServer, name: str, subject: str) -> None:
    iceberg.create("sales.orders", ORDERS)
    with iceberg.client() as client, pytest.raises(errors.NotFoundError, match=subject) as caught:
        client.iceberg.table(name).to_pandas()
    assert caught.value.error_code
    assert "list_tables()" in str(caught.value)


def test_a_wrong_token_is_refused_without_showing_it(iceberg: IcebergServer) -> None:
    profile = iceberg.profile(bearerToken="canary-wrong")
    with ds.SharingClient(profile) as client, pytest.raises(errors.AuthenticationError) as caught:
        client.iceberg.list_schemas("retail")
    assert "the token is not known" in str(caught.value)
    assert "ask the provider" in str(caught.value)
    assert "canary" not in repr(caught.value) + repr(client.iceberg) + repr(vars(client.iceberg))


def test_options_apply_to_the_catalog(iceberg: IcebergServer) -> None:
    iceberg.create("sales.orders", ORDERS)
    assert load(iceberg.client(headers={"X-Gateway": "key"}, user_agent="tests/1")) == ORDERS
    sent = [request.headers for request in iceberg.server.requests]
    assert len(sent) == 2
    assert {(head["x-gateway"], head["user-agent"], head["authorization"]) for head in sent} == {
        ("key", "tests/1", f"Bearer {TOKEN}")
    }
    assert {head["x-iceberg-access-delegation"] for head in sent} == {"vended-credentials"}


def test_a_proxy_and_the_ca_bundle_are_those_of_the_options() -> None:
    profile = {"shareCredentialsVersion": 1, "endpoint": "https://h.invalid", "bearerToken": "t"}
    profile["icebergEndpoint"] = "https://h.invalid/iceberg"
    options = ds.TransportOptions(proxies={"https": "http://127.0.0.1:9"}, api_attempts=1)
    with ds.SharingClient(profile, options=options) as client, pytest.raises(errors.TransportError, match="proxy"):
        client.iceberg.list_schemas("retail")
    with (
        pytest.raises(ValueError, match="CA bundle"),
        ds.SharingClient(profile, options=ds.TransportOptions(ca_bundle="/nowhere.pem")) as client,
    ):
        client.iceberg.list_schemas("retail")


def test_requests_are_retried(iceberg: IcebergServer) -> None:
    iceberg.create("sales.orders", ORDERS)
    iceberg.server.on("GET", "*", Reply(status=503), nth=1)
    iceberg.server.on("GET", "*", Reply(drop=True), nth=2)
    assert load(iceberg.client()) == ORDERS


def test_oauth_tokens_are_renewed(iceberg: IcebergServer) -> None:
    tokens = TokenServer(iceberg.server)
    iceberg.create("sales.orders", ORDERS)
    iceberg.tokens = {tokens.token(1)}
    profile = tokens.fields(icebergEndpoint=iceberg.profile()["icebergEndpoint"])
    with ds.SharingClient(profile) as client:
        assert client.iceberg.table(NAME).count() == 3
        iceberg.tokens = {tokens.token(2)}
        assert client.iceberg.table(NAME).count() == 3
    assert tokens.given == 2


def test_tokens_of_a_credential_provider_are_used(iceberg: IcebergServer) -> None:
    iceberg.create("sales.orders", ORDERS)
    profile = iceberg.profile(bearerToken="canary-unused")
    assert load(ds.SharingClient(profile, credential_provider=lambda: (TOKEN, None))) == ORDERS


def test_credentials_are_sent_to_no_other_host(iceberg: IcebergServer) -> None:
    iceberg.create("sales.orders", ORDERS)
    other = iceberg.server.url.replace("127.0.0.1", "localhost")
    iceberg.config = {"overrides": {"uri": f"{other}{ROOT}", "prefix": "shares/retail"}}
    with pytest.raises(errors.InsecureUrlError, match="another host"):
        load(iceberg.client())
    assert len(iceberg.server.requests) == 1


def test_the_configuration_chooses_neither_headers_nor_classes(iceberg: IcebergServer) -> None:
    iceberg.create("sales.orders", ORDERS)
    properties = {"header.authorization": "Bearer other", "header.User-Agent": "other", "token": "other"}
    iceberg.config = {"defaults": {**properties, "py-io-impl": "subprocess.Popen", "rest.sigv4-enabled": "true"}}
    assert load(iceberg.client()) == ORDERS
    assert {request.headers["authorization"] for request in iceberg.server.requests} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("answer", [Reply(body=b"<html>"), Reply.of_json([]), Reply.of_json({"metadata": {}})])
def test_an_answer_that_is_none_of_a_catalog_is_an_error(iceberg: IcebergServer, answer: Reply) -> None:
    iceberg.create("sales.orders", ORDERS)
    iceberg.server.on("GET", f"{ROOT}/v1/shares/retail/namespaces/sales/tables/orders", answer)
    with pytest.raises(errors.IcebergError, match=NAME):
        load(iceberg.client())


def test_plain_http_is_refused() -> None:
    profile = {"shareCredentialsVersion": 1, "endpoint": "https://h", "bearerToken": "canary"}
    client = ds.SharingClient({**profile, "icebergEndpoint": "http://example.invalid/iceberg"})
    with client, pytest.raises(errors.InsecureUrlError, match="plain http"):
        client.iceberg.list_schemas("retail")


@pytest.mark.protocol("icebergEndpoint")
def test_a_profile_without_the_endpoint(iceberg: IcebergServer) -> None:
    client = ds.SharingClient(iceberg.profile(icebergEndpoint=None))
    with client, pytest.raises(errors.ProfileError, match="no 'icebergEndpoint'") as caught:
        client.iceberg.list_all_tables()
    assert caught.value.field == "icebergEndpoint"
    with pytest.raises(errors.ProfileError, match="not a URL"):
        ds.SharingClient(iceberg.profile(icebergEndpoint="ftp://h"))


def test_without_pyiceberg(iceberg: IcebergServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with iceberg.client() as client, pytest.raises(errors.MissingDependencyError, match=r"\[iceberg\]"):
        client.iceberg.table(NAME)


def opened(location: str, options: ds.TransportOptions | None = None, **properties: str) -> Any:
    given = {name.replace("_", "-").replace("--", "."): text for name, text in properties.items()}
    io = VendedFileIO(given, options or ds.TransportOptions(), catalog_is_loopback=False)
    assert "canary" not in repr(io)
    return io.new_input(location)


KEYS = {"s3--access-key-id": "canary", "s3--secret-access-key": "canary", "s3--session-token": "canary"}


@pytest.mark.parametrize(
    ("location", "properties", "path"),
    [
        ("s3://bucket/t/a%20b.parquet", {**KEYS, "s3--region": "eu-west-1"}, "bucket/t/a%20b.parquet"),
        ("s3a://bucket/x", {**KEYS, "s3--endpoint": "https://minio.example"}, "bucket/x"),
        ("gs://bucket/t/x", {"gcs--oauth2--token": "canary"}, "bucket/t/x"),
        (
            "abfss://box@account.dfs.core.windows.net/t/x",
            {"adls--sas-token--account--dfs--core--windows--net": "sig=canary"},
            "box/t/x",
        ),
        ("abfss://box@account.dfs.core.windows.net/x", {"adls--sas-token": "sig=canary"}, "box/x"),
    ],
)
def test_stores_are_opened_with_vended_credentials(location: str, properties: dict[str, str], path: str) -> None:
    assert opened(location, **properties)._path == path


@pytest.mark.parametrize(
    ("location", "properties", "error"),
    [
        ("s3://bucket/x", {}, errors.DirectoryAccessError),
        ("s3://bucket/x", {"gcs--oauth2--token": "canary"}, errors.DirectoryAccessError),
        ("/etc/hosts", KEYS, errors.DirectoryAccessError),
        ("file:///etc/hosts", KEYS, errors.DirectoryAccessError),
        ("hdfs://host/x", KEYS, errors.DirectoryAccessError),
        ("s3://bucket/x", {**KEYS, "s3--endpoint": "http://minio.example"}, errors.InsecureUrlError),
        ("s3://bucket/x", {**KEYS, "s3--endpoint": "https://169.254.169.254"}, errors.InsecureUrlError),
    ],
)
def test_other_stores_are_refused(location: str, properties: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        opened(location, **properties)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(("status", "error"), [(404, errors.FileGoneError), (403, errors.StorageError)])
def test_a_store_is_requested_with_the_vended_credentials(
    iceberg: IcebergServer, monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own-key")
    table = iceberg.create("sales.orders", ORDERS)
    (snapshot,) = table.metadata.snapshots
    moved = snapshot.model_copy(update={"manifest_list": "s3://bucket/metadata/list.avro"})
    table.metadata = table.metadata.model_copy(update={"snapshots": [moved]})
    iceberg.loaded = table
    iceberg.credentials = {"s3.endpoint": iceberg.server.url, "s3.region": "eu-west-1"}
    iceberg.credentials |= {f"s3.{name}": f"canary-{name}" for name in ("access-key-id", "secret-access-key")}
    iceberg.server.on("*", "/bucket/metadata/list.avro", Reply(status=status))
    with pytest.raises(error, match=NAME) as caught:
        load(iceberg.client())
    assert "canary" not in str(caught.value)
    (request,) = iceberg.seen("list.avro")
    assert "Credential=canary-access-key-id/" in request.headers["authorization"]


def test_shared_files_are_not_written() -> None:
    io = VendedFileIO({}, ds.TransportOptions(), catalog_is_loopback=True)
    for call in (io.new_output, io.delete):
        with pytest.raises(errors.IcebergError, match="not"):
            call("x")


def test_an_answer_beyond_the_limit_names_the_option(iceberg: IcebergServer) -> None:
    iceberg.create("sales.orders", pa.table({f"column_{number}": [1] for number in range(200)}))
    with (
        iceberg.client(metadata_limit=10_000) as client,
        pytest.raises(errors.ProtocolError, match="metadata_limit"),
    ):
        client.iceberg.table("retail.sales.orders").schema()
    with iceberg.client() as client:
        assert len(client.iceberg.table("retail.sales.orders").schema().fields) == 200


@pytest.mark.parametrize("size", [0, 2_000_000])
def test_a_manifest_beyond_the_limit_is_named(iceberg: IcebergServer, size: int) -> None:
    """The limit is not one of data files, which are longer here."""
    rows = pa.table({"id": range(20_000)})
    table = iceberg.create("sales.orders", rows)
    folder = Path(table.location().removeprefix("file://"))
    manifest = next(folder.rglob("*-m0.avro"))
    with manifest.open("ab") as file:
        file.truncate(max(size, manifest.stat().st_size))
    with iceberg.client(metadata_limit=50_000) as client:
        table = client.iceberg.table("retail.sales.orders")
        if not size:
            assert table.scan().to_arrow().num_rows == 20_000
            return
        with pytest.raises(
            errors.IcebergError, match=r"-m0\.avro has 2,000,000 bytes; .*metadata_limit allows 50,000"
        ):
            table.scan().to_arrow()
