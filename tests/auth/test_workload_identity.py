"""Workload identity federation, and credentials of azure-identity."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from azure.core.credentials import AccessToken
from azure.identity import ManagedIdentityCredential
from faults.server import Reply
from token_server import SECRET, TokenServer, used

from delta_sharing_client import Profile, SharingClient
from delta_sharing_client.auth.credential_provider import CredentialProviderTokens
from delta_sharing_client.errors import ProfileError, TokenError

SCOPE = "api://sharing/.default"


@pytest.fixture
def tokens(server):
    return TokenServer(server)


@pytest.fixture
def token_file(tmp_path):
    file = tmp_path / "platform-token"
    file.write_text(f"{SECRET}-1\n")
    return file


def workload(tokens, token_file, **fields):
    return Profile.from_dict(
        tokens.fields(type="oauth_workload_identity", tokenFile=str(token_file), scope=SCOPE, **fields)
    )


class TestWorkloadIdentity:
    def test_the_token_file_is_the_client_assertion(self, tokens, token_file):
        with SharingClient(workload(tokens, token_file, audience="a")) as client:
            assert used(client) == 1
        assert tokens.forms == [
            {
                "grant_type": "client_credentials",
                "client_id": "client-1",
                "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                "client_assertion": f"{SECRET}-1",
                "scope": SCOPE,
                "audience": "a",
            }
        ]

    def test_the_file_is_read_for_each_request(self, tokens, token_file):
        with SharingClient(workload(tokens, token_file)) as client:
            assert used(client) == 1
            token_file.write_text(f"{SECRET}-2")
            tokens.revoked.add(tokens.token(1))
            assert used(client) == 2
        assert [form["client_assertion"] for form in tokens.forms] == [f"{SECRET}-1", f"{SECRET}-2"]

    def test_a_relative_path_starts_at_the_profile(self, tokens, token_file, tmp_path):
        profile = Profile.from_dict(
            tokens.fields(type="oauth_workload_identity", tokenFile=token_file.name), str(tmp_path / "p.share")
        )
        with SharingClient(profile) as client:
            assert used(client) == 1

    @pytest.mark.parametrize("content", [None, "", " \n", "two words", "caf\u00e9"])
    def test_a_file_without_a_token_is_named(self, tokens, token_file, content):
        token_file.unlink() if content is None else token_file.write_text(content, encoding="utf-8")
        with (
            SharingClient(workload(tokens, token_file)) as client,
            pytest.raises(ProfileError, match="platform-token") as raised,
        ):
            client.list_shares()
        assert raised.value.field == "tokenFile"
        assert tokens.asked == 0

    def test_a_refusal_does_not_repeat_the_token(self, tokens, token_file):
        tokens.check = lambda request, form: Reply.of_json(
            {"error": "invalid_client", "error_description": f"bad {form['client_assertion']}"}, status=401
        )
        with SharingClient(workload(tokens, token_file)) as client, pytest.raises(TokenError) as raised:
            client.list_shares()
        assert SECRET not in str(raised.value)


class TestAzure:
    def test_managed_identity_for_the_scope_of_the_profile(self, tokens, server, monkeypatch):
        expires = int(time.time()) + 86_400
        server.on("GET", "/identity", Reply.of_json({"access_token": tokens.token(1), "expires_on": expires}))
        tokens.given = 1
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/identity")
        monkeypatch.setenv("IDENTITY_HEADER", SECRET)
        profile = {"endpoint": server.url, "scope": SCOPE}
        with (
            ManagedIdentityCredential() as credential,
            SharingClient(profile, credential_provider=credential) as client,
        ):
            assert used(client) == 1
        (request,) = server.seen("/identity")
        assert request.query["resource"] == "api://sharing"
        assert tokens.asked == 0

    def test_the_scope_of_any_profile_counts(self, tokens):
        asked = []

        class Credential:
            def get_token(self, *scopes, **_):
                asked.append(scopes)
                return AccessToken(tokens.token(1), 4_000_000_000)

        tokens.given = 1
        for profile in (tokens.profile(scope=SCOPE), tokens.fields(scope="a b")):
            with SharingClient(profile, credential_provider=Credential()) as client:
                assert used(client) == 1
        assert asked == [(SCOPE,), ("a", "b")]

    def test_expiration_is_that_of_the_credential(self):
        class Credential:
            def get_token(self, *scopes):
                return AccessToken("t", 1_900_000_000)

        token = CredentialProviderTokens(Credential(), SCOPE, now=lambda: 1_800_000_000.0).fetch(retry=True)
        assert datetime.fromtimestamp(token.expires, UTC) == datetime.fromtimestamp(1_900_000_000, UTC)

    def test_a_profile_without_scope_is_refused(self, server):
        class Credential:
            def get_token(self, *scopes):
                raise AssertionError

        with pytest.raises(ProfileError, match="scope"):
            SharingClient({"endpoint": server.url}, credential_provider=Credential())
