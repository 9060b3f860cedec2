"""Signed assertions (private_key_jwt), verified with the public key."""

import json
import logging
import sys
import warnings

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from faults.server import Reply
from token_server import NOW, TokenServer, used
from waiting import SleepClock

from delta_sharing_client import SharingClient
from delta_sharing_client.auth.profile import ProfileWarning, load_profile
from delta_sharing_client.errors import MissingDependencyError, ProfileError, TokenError
from delta_sharing_client.model.profile import Profile

PEM = serialization.Encoding.PEM


def pem(key, password=None):
    kind = serialization.PrivateFormat.PKCS8
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(PEM, kind, how)


@pytest.fixture(scope="module")
def key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def path(tmp_path, key):
    file = tmp_path / "key.pem"
    file.touch(0o600)
    file.write_bytes(pem(key))
    return file


@pytest.fixture
def tokens(server, key):
    """A token endpoint that checks the assertion."""
    running = TokenServer(server)
    running.claims = []

    def check(request, form):
        try:
            assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
            assert set(form) == {"grant_type", "assertion"}
            assert "authorization" not in request.headers
            assert jwt.get_unverified_header(form["assertion"])["kid"] == "key-7"
            options = {"verify_exp": False, "verify_iat": False}
            running.claims.append(
                jwt.decode(
                    form["assertion"],
                    key.public_key(),
                    algorithms=["RS256", "PS512"],
                    audience="https://issuer.example",
                    issuer="client-1",
                    options=options,
                )
            )
        except (AssertionError, KeyError, jwt.PyJWTError) as error:
            return Reply.of_json({"error": "invalid_grant", "error_description": repr(error)}, status=400)
        return None

    running.check = check
    return running


@pytest.mark.protocol("oauth_jwt_bearer_private_key_jwt")
def test_the_assertion_has_the_claims_of_the_protocol(tokens, path):
    clock = SleepClock(NOW)
    profile = Profile.from_dict(tokens.key_fields({"privateKeyFile": str(path)}, scope="read"))
    client = tokens.client(clock, profile)
    assert used(client) == 1
    (claims,) = tokens.claims
    assert len(claims.pop("jti")) == 36
    assert claims == {
        "aud": "https://issuer.example",
        "iss": "client-1",
        "iat": int(clock.now),
        "exp": int(clock.now) + 120,
        "resource": "https://sharing.example",
        "scope": "read",
    }
    clock.now += 3600
    assert used(client) == 2
    assert tokens.asked == 2


def test_each_assertion_has_a_new_id(tokens, path):
    clock = SleepClock(NOW)
    client = tokens.client(clock, Profile.from_dict(tokens.key_fields({"privateKeyFile": str(path)})))
    tokens.server.on("POST", "/token", Reply(status=503), nth=1)
    assert used(client) == 1
    first, second = tokens.forms
    assert first["assertion"] != second["assertion"]
    assert "scope" not in tokens.claims[0]


def test_algorithm_of_the_profile_is_used(tokens, path):
    fields = tokens.key_fields({"privateKeyFile": str(path), "algorithm": "PS512"})
    with SharingClient(fields) as client:
        assert client.list_shares()


def test_key_text_in_the_profile(tokens, key):
    with SharingClient(tokens.key_fields({"privateKey": pem(key).decode()})) as client:
        assert client.list_shares()
        assert "BEGIN" not in repr(client.profile)


def test_relative_key_path_starts_at_the_profile_directory(tokens, path, tmp_path, monkeypatch):
    file = tmp_path / "mine.share"
    file.touch(0o600)
    file.write_text(json.dumps(tokens.key_fields({"privateKeyFile": "key.pem"})))
    with SharingClient(file) as client:
        assert client.list_shares()
    monkeypatch.chdir(tmp_path)
    with SharingClient(tokens.key_fields({"privateKeyFile": "key.pem"})) as client:
        assert client.list_shares()


def test_key_file_readable_by_others_warns(tokens, path):
    path.chmod(0o640)
    with pytest.warns(ProfileWarning, match=r"private key .*key\.pem can be read .* chmod 600"):
        load_profile(tokens.key_fields({"privateKeyFile": str(path)}))
    path.chmod(0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_profile(tokens.key_fields({"privateKeyFile": str(path)}))
        load_profile(tokens.key_fields({"privateKeyFile": "missing.pem"}))


class TestKeysThatDoNotWork:
    def refused(self, tokens, key, match, **auth):
        client = SharingClient(tokens.key_fields(key, **auth))
        with pytest.raises(ProfileError, match=match) as caught:
            client.list_shares()
        assert tokens.asked == 0
        return caught.value

    def test_missing_key_file_raises(self, tokens, tmp_path):
        error = self.refused(tokens, {"privateKeyFile": str(tmp_path / "no.pem")}, "No such file")
        assert error.field == "privateKeyFile"
        self.refused(tokens, {"privateKeyFile": str(tmp_path)}, "directory")

    @pytest.mark.parametrize("text", ["a\0b", "s3://bucket/key.pem", "~nobody-of-this-name/key.pem"])
    def test_a_key_file_that_is_no_path_of_this_machine_raises_when_the_profile_is_read(self, tokens, text):
        with pytest.raises(ProfileError, match=r"'privateKeyFile' (has|begins)") as caught:
            load_profile(tokens.key_fields({"privateKeyFile": text}))
        assert caught.value.field == "privateKeyFile"
        assert tokens.asked == 0

    @pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe", b"PRIVATE KEY-----" + b"x" * 70_000])
    def test_file_without_a_key_raises(self, tokens, path, content):
        path.write_bytes(content)
        self.refused(tokens, {"privateKeyFile": str(path)}, "not a private key in PEM format")

    def test_damaged_key_raises(self, tokens, path):
        path.write_bytes(b"-----BEGIN PRIVATE KEY-----\ncanary0000\n-----END PRIVATE KEY-----\n")
        error = self.refused(tokens, {"privateKeyFile": str(path)}, "cannot sign with RS256")
        assert "canary" not in str(error)

    def test_encrypted_key_raises(self, tokens, path, key):
        path.write_bytes(pem(key, b"password"))
        self.refused(tokens, {"privateKeyFile": str(path)}, "unencrypted")

    def test_key_of_another_type_raises(self, tokens, path):
        path.write_bytes(pem(ec.generate_private_key(ec.SECP256R1())))
        self.refused(tokens, {"privateKeyFile": str(path)}, "cannot sign with RS256")

    @pytest.mark.parametrize("algorithm", ["none", "HS256", "rs256", "X"])
    def test_symmetric_algorithms_raise(self, tokens, path, algorithm):
        with pytest.raises(ProfileError, match="RS256") as caught:
            Profile.from_dict(tokens.key_fields({"privateKeyFile": str(path), "algorithm": algorithm}))
        assert caught.value.field == "algorithm"


def test_refused_assertion_raises(tokens, path, caplog):
    caplog.set_level(logging.DEBUG)
    seen = []

    def check(request, form):
        seen.append(form["assertion"])
        answer = {"error": "invalid_grant", "error_description": f"no: {form['assertion']}"}
        return Reply.of_json(answer, status=400)

    tokens.check = check
    with pytest.raises(TokenError, match="invalid_grant") as caught:
        used(tokens.client(profile=Profile.from_dict(tokens.key_fields({"privateKeyFile": str(path)}))))
    signature = seen[0].rpartition(".")[2]
    assert signature not in str(caught.value)
    assert signature not in caplog.text


@pytest.mark.parametrize("module", ["jwt", "cryptography"])
def test_the_extra_is_named_where_it_is_missing(tokens, path, monkeypatch, module):
    client = SharingClient(tokens.key_fields({"privateKeyFile": str(path)}))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=r"delta-sharing-client\[oauth\]"):
        client.list_shares()
