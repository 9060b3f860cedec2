"""HTTP Basic authentication: sent with each request, and never shown."""

import base64
import logging

import pytest
from faults.server import Reply

from delta_sharing_client import Profile, SharingClient
from delta_sharing_client.errors import AuthenticationError, ProfileError

PASSWORD = "canary-pässword: with space "


def fields(server, **changes):
    profile = {"shareCredentialsVersion": 2, "type": "basic", "endpoint": server.url}
    return {**profile, "username": "me@example.com", "password": PASSWORD, **changes}


@pytest.mark.protocol("basic")
def test_requests_carry_user_and_password_in_utf_8(server):
    server.on("GET", "*", Reply.of_json({"items": []}))
    with SharingClient(fields(server)) as client:
        client.list_shares()
        client.list_shares()
    assert len(server.requests) == 2
    for request in server.requests:
        scheme, _, pair = request.headers["authorization"].partition(" ")
        assert scheme == "Basic"
        assert base64.b64decode(pair).decode() == f"me@example.com:{PASSWORD}"


def test_status_401_is_not_retried_and_hides_the_password(server, caplog):
    caplog.set_level(logging.DEBUG)
    server.on(
        "GET", "*", lambda request: Reply.of_json({"message": f"{PASSWORD} {dict(request.headers)}"}, status=401)
    )
    with pytest.raises(AuthenticationError, match="user name or password in the profile") as caught:
        SharingClient(fields(server)).list_shares()
    assert len(server.requests) == 1
    assert "canary" not in str(caught.value) + repr(vars(caught.value)) + caplog.text
    pair = server.requests[0].headers["authorization"].split()[1]
    assert pair not in str(caught.value) + caplog.text


def test_error_names_the_expiration_of_the_profile(server):
    server.on("GET", "*", Reply(status=401))
    profile = Profile.from_dict(fields(server, expirationTime="2021-01-01T00:00:00Z"))
    with pytest.raises(AuthenticationError, match="expirationTime is 2021-01-01T00:00:00Z"):
        SharingClient(profile).list_shares()


@pytest.mark.parametrize(
    ("name", "value"), [("username", "a:b"), ("username", "a\nb"), ("password", "a\nb"), ("password", "  ")]
)
def test_characters_invalid_in_a_header_are_refused(server, name, value):
    with pytest.raises(ProfileError, match=name) as caught:
        Profile.from_dict(fields(server, **{name: value}))
    assert caught.value.field == name
