"""Credential providers: tokens of a caller's function."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
from faults.server import Reply
from token_server import NOW, at_once
from waiting import SleepClock

from delta_sharing_client import Profile, SharingClient
from delta_sharing_client.auth.credential_provider import CredentialProviderTokens
from delta_sharing_client.auth.renewal import RenewingAuth
from delta_sharing_client.errors import AuthenticationError, ProfileError, TokenError

CANARY = "canary-from-a-vault"


class Vault:
    def __init__(self, expiry=timedelta(hours=1)):
        self.expiry = expiry
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return f"{CANARY}-{self.calls}", self.expiry


@pytest.fixture
def open_server(server):
    server.on("GET", "*", Reply.of_json({"items": []}))
    return server


def sent(server):
    return [request.headers["authorization"] for request in server.requests]


def test_token_is_sent_and_cached(open_server):
    vault = Vault()
    with SharingClient({"endpoint": open_server.url}, credential_provider=vault) as client:
        assert vault.calls == 0
        client.list_shares()
        client.list_shares()
    assert sent(open_server) == [f"Bearer {CANARY}-1"] * 2


def test_credential_of_the_profile_is_ignored(open_server, tmp_path):
    file = tmp_path / "p.share"
    file.touch(0o600)
    file.write_text('{"shareCredentialsVersion": 2, "type": "x", "endpoint": "' + open_server.url + '"}')
    for profile in (open_server.profile, Profile.from_dict(open_server.profile), file):
        with SharingClient(profile, credential_provider=Vault()) as client:
            client.list_shares()
            assert client.profile.type == "external"
            with pytest.raises(ProfileError, match="external"):
                client.profile.bearer_token  # noqa: B018
    assert sent(open_server) == [f"Bearer {CANARY}-1"] * 3


def test_endpoint_is_required():
    with pytest.raises(ProfileError, match="endpoint"):
        SharingClient({}, credential_provider=Vault())
    with pytest.raises(ProfileError, match="shareCredentialsVersion"):
        SharingClient({"endpoint": "https://h", "shareCredentialsVersion": 3}, credential_provider=Vault())


@pytest.mark.parametrize("kind", ["timedelta", "aware", "naive"])
def test_provider_is_called_before_the_token_expires(kind):
    clock = SleepClock(NOW)
    end = datetime.fromtimestamp(clock.now + 3600, UTC)
    expiry = {"timedelta": timedelta(hours=1), "aware": end, "naive": end.replace(tzinfo=None)}[kind]
    vault = Vault(expiry)
    auth = RenewingAuth(CredentialProviderTokens(vault, now=clock), now=clock)
    auth.headers()
    clock.now += 2999
    auth.headers()
    assert vault.calls == 1
    clock.now += 2
    auth.headers()
    assert vault.calls == 2


def test_provider_is_called_once_after_status_401(server):
    server.on("GET", "*", Reply(status=401), Reply.of_json({"items": []}), Reply(status=401))
    client = SharingClient({"endpoint": server.url}, credential_provider=Vault(None))
    assert client.list_shares() == []
    assert sent(server) == [f"Bearer {CANARY}-1", f"Bearer {CANARY}-2"]
    with pytest.raises(AuthenticationError, match="credential provider"):
        client.list_shares()
    assert len(server.requests) == 4


def test_threads_share_one_call_of_the_provider(open_server):
    vault = Vault()
    client = SharingClient({"endpoint": open_server.url}, credential_provider=vault)
    assert at_once(8, client.list_shares) == [[]] * 8
    assert vault.calls == 1


def test_exception_of_the_provider_is_a_token_error(open_server, caplog):
    caplog.set_level(logging.DEBUG)

    def broken():
        raise RuntimeError(f'vault error {{"token": "{CANARY}"}}')

    client = SharingClient({"endpoint": open_server.url}, credential_provider=broken)
    with pytest.raises(TokenError, match="RuntimeError: vault error") as caught:
        client.list_shares()
    assert CANARY not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is None
    assert open_server.requests == []


def test_unexpired_token_is_used_when_the_provider_fails():
    clock = SleepClock(NOW)
    vault = Vault()
    auth = RenewingAuth(CredentialProviderTokens(vault, now=clock), now=clock)
    first = auth.headers()
    vault.__class__ = type("Broken", (), {"__call__": lambda self: 1 / 0})
    clock.now += 3100
    assert auth.headers() == first
    clock.now += 500
    with pytest.raises(TokenError, match="ZeroDivisionError"):
        auth.headers()


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (CANARY, "tuple"),
        (None, "NoneType"),
        ((CANARY,), "tuple"),
        ((CANARY, 3600), "int"),
        (("", None), "empty"),
        ((CANARY.encode(), None), "no text"),
        (("a\nb", None), "line ends"),
        ((CANARY, timedelta(0)), "expired already"),
        ((CANARY, datetime(2020, 1, 1)), "expired already"),
    ],
)
def test_malformed_results_of_the_provider_raise(open_server, answer, match):
    client = SharingClient({"endpoint": open_server.url}, credential_provider=lambda: answer)
    with pytest.raises(TokenError, match=match) as caught:
        client.list_shares()
    assert CANARY not in str(caught.value)


def test_provider_must_be_callable():
    with pytest.raises(TypeError, match="function"):
        SharingClient({"endpoint": "https://h"}, credential_provider="token")
