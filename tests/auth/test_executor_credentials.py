"""Credentials on Spark's executors: every type renews URLs there."""

import pickle
from datetime import timedelta

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from deltalake import write_deltalake
from faults.server import FaultServer, Reply
from token_server import SECRET, TokenServer

from delta_sharing_client import Profile, SharingClient, TransportOptions
from delta_sharing_client.model.names import Table
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.executor import read_part
from delta_sharing_client.spark.executor_url_renewal import encode_renewer
from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

CLIENT = {"clientId": "client-1", "tokenEndpoint": "https://login.example/token"}


@pytest.fixture(scope="module")
def key():
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return private.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server whose URLs are about to expire from the start."""
    path = tmp_path_factory.mktemp("travel") / "t"
    write_deltalake(path, pa.table({"x": [1, 2, 3]}))
    with SharingServer({"s.d.t": path}, url_lifetime=timedelta(seconds=15)) as server:
        yield server


@pytest.fixture
def token_endpoint(shared):
    with FaultServer() as server:
        yield server


def fields_of(kind, shared, token_endpoint, key, tmp_path):
    tokens = TokenServer(token_endpoint)
    # The token that it gives is the server's own.
    token_endpoint.on(
        "POST", "/token", Reply.of_json({"access_token": shared.profile["bearerToken"], "expires_in": 60})
    )
    if kind == "oauth_client_credentials":
        return tokens.fields(endpoint=shared.endpoint, scope="s", audience="a")
    file = tmp_path / "key.pem"
    file.touch(0o600)
    file.write_text(key)
    return {**tokens.key_fields({"privateKeyFile": str(file)}, scope="s"), "endpoint": shared.endpoint}


@pytest.mark.parametrize("kind", ["oauth_client_credentials", "oauth_jwt_bearer_private_key_jwt"])
def test_executor_renews_urls_with_its_own_token(kind, shared, token_endpoint, key, tmp_path):
    with SharingClient(fields_of(kind, shared, token_endpoint, key, tmp_path)) as client:
        plan = client.table("s.d.t").scan().plan()
        job, parts = encode_plan(client._rest, plan, ExecutorOptions())
    (tmp_path / "key.pem").unlink(missing_ok=True)  # the executor's host has no such file
    asked, listed = len(token_endpoint.requests), len(shared.requests)
    batches = list(read_part(job, parts[0]))
    assert sum(batch.num_rows for batch in batches) == 3
    assert len(token_endpoint.requests) == asked + 1
    assert any(request.path.endswith("/query") for request in shared.requests[listed:])


def test_current_token_of_a_credential_provider_is_sent(shared):
    calls = []

    def provider():
        calls.append(1)
        return shared.profile["bearerToken"], timedelta(hours=1)

    with SharingClient({"endpoint": shared.endpoint}, credential_provider=provider) as client:
        plan = client.table("s.d.t").scan().plan()
        job, parts = encode_plan(client._rest, plan, ExecutorOptions())
        elsewhere = client._rest.profile_elsewhere()
    assert (elsewhere.type, elsewhere.expired()) == ("bearer_token", False)
    assert sum(batch.num_rows for batch in read_part(job, parts[0])) == 3
    assert len(calls) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "bearer_token", "bearerToken": SECRET, "expirationTime": "2099-01-01T00:00:00+00:00"},
        {"type": "basic", "username": "u", "password": f" {SECRET} "},
        {"type": "oauth_client_credentials", **CLIENT, "clientSecret": SECRET, "scope": "s", "audience": None},
        {
            "type": "oauth_jwt_bearer_private_key_jwt",
            "auth": {
                **CLIENT,
                "issuer": "i",
                "audience": "a",
                "scope": None,
                "privateKey": {"privateKey": "PEM canary", "keyId": "k", "algorithm": "ES256"},
            },
        },
    ],
    ids=lambda fields: fields["type"],
)
def test_profile_is_pickled_with_its_credential_only_for_executors(fields):
    profile = Profile.from_dict({"shareCredentialsVersion": 2, "endpoint": "https://h", **fields})
    plan = ScanPlan(
        table=Table("t", "s", "d"),
        **dict.fromkeys(("version", "protocol", "metadata", "spec", "tasks", "skipped", "limit")),
    )
    renewer = pickle.loads(encode_renewer(profile, TransportOptions(), plan))
    assert renewer._arguments[0] == profile
    for value in (profile, renewer):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(value)
