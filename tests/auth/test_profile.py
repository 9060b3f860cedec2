"""Profiles: sources, fields, errors, warnings and redaction."""

import copy
import io
import json
import os
import pickle
import socket
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path

import pytest
from faults.server import FaultServer, Reply

from delta_sharing_client.auth.profile import ENVIRONMENT_VARIABLE, ProfileWarning, load_profile
from delta_sharing_client.auth.provider import provider_for
from delta_sharing_client.errors import (
    MissingDependencyError,
    ProfileError,
    TransportError,
    UnsupportedProfileError,
)
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.model.timestamps import parse_iso8601

CANARY = "canary-9c1e-token"
FIELDS = {
    "shareCredentialsVersion": 1,
    "endpoint": "https://sharing.example/delta-sharing/",
    "bearerToken": CANARY,
    "expirationTime": "2099-11-12T00:12:29.0Z",
}


def without(name):
    return {key: value for key, value in FIELDS.items() if key != name}


def jwt_fields(**key):
    names = {"clientId": "c", "issuer": "i", "audience": "a"}
    return {"tokenEndpoint": "https://i.example/token", **names, "privateKey": {"keyId": "1", **key}}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "config.share"
    file.write_text(json.dumps(FIELDS))
    file.chmod(0o600)
    return file


class TestFields:
    @pytest.mark.protocol("shareCredentialsVersion")
    def test_version_1(self):
        profile = Profile.from_dict(FIELDS)
        assert profile.share_credentials_version == 1
        assert profile.type == "bearer_token"
        assert profile.endpoint == "https://sharing.example/delta-sharing"
        assert profile.bearer_token.reveal() == CANARY
        assert profile.expiration_time == datetime(2099, 11, 12, 0, 12, 29, tzinfo=UTC)

    @pytest.mark.protocol("shareCredentialsVersion", "bearer_token")
    def test_version_2_names_its_type(self):
        profile = Profile.from_dict({**FIELDS, "shareCredentialsVersion": 2, "type": "bearer_token"})
        assert (profile.share_credentials_version, profile.type) == (2, "bearer_token")

    def test_unknown_fields_are_ignored(self):
        assert Profile.from_dict({**FIELDS, "issuer": {"x": 1}}) == Profile.from_dict(FIELDS)

    def test_expiration_time_is_optional(self):
        for fields in (without("expirationTime"), {**FIELDS, "expirationTime": None}):
            profile = Profile.from_dict(fields)
            assert profile.expiration_time is None
            assert not profile.expired()

    @pytest.mark.parametrize("name", ["shareCredentialsVersion", "endpoint", "bearerToken"])
    @pytest.mark.parametrize("value", [None, "", "  ", [], {}, True])
    def test_a_field_that_is_missing_empty_or_of_the_wrong_type_is_named(self, name, value):
        for fields in ({**FIELDS, name: value}, without(name)):
            with pytest.raises(ProfileError, match=name) as caught:
                Profile.from_dict(fields, "x.share")
            assert caught.value.field == name
            assert caught.value.source == "x.share"

    @pytest.mark.parametrize("version", [3, 99, 3.0])
    @pytest.mark.protocol("shareCredentialsVersion")
    def test_higher_version_raises_and_names_the_upgrade(self, version):
        with pytest.raises(UnsupportedProfileError, match="upgrade") as caught:
            Profile.from_dict({**FIELDS, "shareCredentialsVersion": version})
        assert caught.value.field == "shareCredentialsVersion"

    @pytest.mark.parametrize("version", [0, -1, 1.5, "1"])
    def test_invalid_versions_raise(self, version):
        with pytest.raises(ProfileError) as caught:
            Profile.from_dict({**FIELDS, "shareCredentialsVersion": version})
        assert type(caught.value) is ProfileError

    @pytest.mark.parametrize("kind", ["saml", "x"])
    def test_unknown_types_are_named(self, kind):
        with pytest.raises(UnsupportedProfileError, match=kind) as caught:
            Profile.from_dict({**FIELDS, "shareCredentialsVersion": 2, "type": kind})
        assert "upgrade" in str(caught.value)

    def test_version_2_needs_a_type(self):
        with pytest.raises(ProfileError) as caught:
            Profile.from_dict({**FIELDS, "shareCredentialsVersion": 2})
        assert caught.value.field == "type"

    @pytest.mark.parametrize(
        "endpoint",
        [
            "ftp://host/x",
            "host/x",
            "https://",
            "https:///x",
            "https://h:x/",
            "https://h:0",
            "https://h/a b",
            "file:///x",
        ],
    )
    def test_endpoint_must_be_a_url(self, endpoint):
        with pytest.raises(ProfileError, match="endpoint"):
            Profile.from_dict({**FIELDS, "endpoint": endpoint})

    @pytest.mark.parametrize("endpoint", ["https://me:s3cret@h/x", "https://h/x?key=s3cret", "https://h/x#s3cret"])
    def test_endpoint_with_a_secret_raises(self, endpoint):
        with pytest.raises(ProfileError, match="endpoint") as caught:
            Profile.from_dict({**FIELDS, "endpoint": endpoint})
        assert "s3cret" not in str(caught.value)

    @pytest.mark.parametrize("token", ["a b", "a\nb", "tökën", "a\x00"])
    def test_token_invalid_in_a_header_raises(self, token):
        with pytest.raises(ProfileError, match="bearerToken") as caught:
            Profile.from_dict({**FIELDS, "bearerToken": token})
        assert token not in str(caught.value)

    def test_white_space_around_a_token_is_dropped(self):
        assert Profile.from_dict({**FIELDS, "bearerToken": f" {CANARY}\n"}).bearer_token.reveal() == CANARY

    @pytest.mark.parametrize("value", [[1], "x", 3, None])
    def test_profile_must_be_a_json_object(self, value):
        with pytest.raises(ProfileError, match=r"not a JSON object .*; download the profile again"):
            Profile.from_json(json.dumps(value))


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2021-11-12T00:12:29Z", (2021, 11, 12, 0, 12, 29)),
            ("2021-11-12T00:12:29.0Z", (2021, 11, 12, 0, 12, 29)),
            ("2021-11-12T00:12:29.5Z", (2021, 11, 12, 0, 12, 29, 500000)),
            ("2021-11-12T00:12:29.123456789Z", (2021, 11, 12, 0, 12, 29, 123456)),
            ("2021-11-12T00:12:29,25Z", (2021, 11, 12, 0, 12, 29, 250000)),
            ("2021-11-12t00:12:29z", (2021, 11, 12, 0, 12, 29)),
            ("2021-11-12 00:12:29", (2021, 11, 12, 0, 12, 29)),
            ("2021-11-12 00:12:29 +02:00", (2021, 11, 11, 22, 12, 29)),
            ("2021-11-12T00:12:29+02:00", (2021, 11, 11, 22, 12, 29)),
            ("2021-11-12T00:12:29+0200", (2021, 11, 11, 22, 12, 29)),
            ("2021-11-12T00:12:29+02", (2021, 11, 11, 22, 12, 29)),
            ("2021-11-12T00:12:29-05:30", (2021, 11, 12, 5, 42, 29)),
            ("20211112T001229Z", (2021, 11, 12, 0, 12, 29)),
            ("20211112T0012Z", (2021, 11, 12, 0, 12)),
            ("20211112", (2021, 11, 12)),
            ("2021-11-12", (2021, 11, 12)),
            ("2021-11-12T07", (2021, 11, 12, 7)),
            ("2021-11-12T07:30", (2021, 11, 12, 7, 30)),
            ("2021-W45-5", (2021, 11, 12)),
            ("2021-11-12T24:00:00Z", (2021, 11, 13)),
            ("2016-12-31T23:59:60Z", (2017, 1, 1)),
        ],
    )
    def test_every_form_of_iso_8601(self, text, expected):
        assert parse_iso8601(text) == datetime(*expected, tzinfo=UTC)
        assert Profile.from_dict({**FIELDS, "expirationTime": text}).expiration_time == datetime(
            *expected, tzinfo=UTC
        )

    def test_latest_expiration_time_never_expires(self):
        assert parse_iso8601("9999-12-31T23:59:59-12:00") == datetime.max.replace(tzinfo=UTC)
        assert parse_iso8601("9999-12-31T23:59:59Z").year == 9999

    @pytest.mark.parametrize(
        "value",
        [
            "soon",
            "2021-13-01",
            "2021-02-30T00:00:00Z",
            "2021-11-12T25:00:00Z",
            "2021-11-12T24:00:01Z",
            "2021-11-12T00:60:00Z",
            "2021-11-12T00:12:29+2:00",
            "2021-11-12T00:12:29+24:00",
            "2021-11-12T00:12:29Zulu",
            "12.11.2021",
            "2021-11-1२",
            1636675949,
            True,
            ["2021-11-12"],
        ],
    )
    def test_malformed_time_names_the_field(self, value):
        with pytest.raises(ProfileError, match="expirationTime") as caught:
            Profile.from_dict({**FIELDS, "expirationTime": value})
        assert caught.value.field == "expirationTime"

    def test_expired_compares_with_the_time_given(self):
        profile = Profile.from_dict({**FIELDS, "expirationTime": "2021-11-12T00:12:29Z"})
        assert profile.expired()
        assert profile.expired(datetime(2021, 11, 12, 0, 12, 29, tzinfo=UTC))
        assert not profile.expired(datetime(2021, 11, 12, 0, 12, 28, tzinfo=UTC))


class TestSources:
    def test_paths_of_every_kind_are_read(self, path, monkeypatch):
        expected = Profile.from_dict(FIELDS)
        monkeypatch.setenv("HOME", str(path.parent))
        monkeypatch.chdir(path.parent)
        for source in (
            str(path),
            path,
            path.as_uri(),
            "file:" + str(path),
            "~/config.share",
            Path("config.share"),
        ):
            assert load_profile(source) == expected
        assert load_profile(str(path)).source == str(path)

    def test_a_file_url_with_escapes(self, tmp_path):
        file = tmp_path / "my config.share"
        file.write_text(json.dumps(FIELDS))
        file.chmod(0o600)
        assert load_profile(file.as_uri()).endpoint == "https://sharing.example/delta-sharing"

    def test_a_file_url_of_another_machine_is_refused(self):
        with pytest.raises(ProfileError, match="this machine"):
            load_profile("file://elsewhere/config.share")

    def test_dictionaries_text_and_open_files(self, path):
        text = json.dumps(FIELDS)
        expected = Profile.from_dict(FIELDS)
        assert load_profile(FIELDS) == expected
        assert load_profile(text) == expected
        assert load_profile(f"\n  {text}\n") == expected
        assert load_profile(io.StringIO(text)) == expected
        assert load_profile(io.BytesIO(text.encode())) == expected
        with path.open() as file:
            assert load_profile(file) == expected

    def test_a_profile_is_returned_as_it_is(self):
        profile = Profile.from_dict({**FIELDS, "expirationTime": "2001-01-01"})
        assert load_profile(profile) is profile

    @pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
    def test_byte_order_mark_is_ignored(self, path, mark):
        path.write_bytes(mark + json.dumps(FIELDS).encode())
        assert load_profile(path).bearer_token.reveal() == CANARY

    def test_the_environment_holds_a_path_or_the_text(self, path, monkeypatch):
        for value in (str(path), path.as_uri(), json.dumps(FIELDS)):
            monkeypatch.setenv(ENVIRONMENT_VARIABLE, value)
            assert load_profile() == Profile.from_dict(FIELDS)

    @pytest.mark.parametrize("value", [None, "", " "])
    def test_missing_environment_variable_is_named(self, monkeypatch, value):
        monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(ENVIRONMENT_VARIABLE, value)
        with pytest.raises(ProfileError, match="export DELTA_SHARING_PROFILE="):
            load_profile()

    def test_other_urls_go_through_fsspec(self):
        import fsspec

        with fsspec.open("memory://profiles/config.share", "wb") as file:
            file.write(json.dumps(FIELDS).encode())
        profile = load_profile("memory://profiles/config.share")
        assert profile == Profile.from_dict(FIELDS)
        assert profile.source == "memory://profiles/config.share"
        with pytest.raises(ProfileError, match="no such file"):
            load_profile("memory://profiles/nothing.share")

    @pytest.mark.parametrize(
        ("scheme", "extra"), [("s3", "s3"), ("https", "http"), ("abfss", "abfs"), ("gs", "gcs")]
    )
    def test_an_error_names_the_package_that_the_scheme_needs(self, monkeypatch, scheme, extra):
        import fsspec

        def without_package(*arguments):
            raise ImportError("Install the package of that scheme")

        monkeypatch.setattr(fsspec, "open", without_package)
        with pytest.raises(ProfileError, match=rf"that scheme; pip install 'fsspec\[{extra}\]'"):
            load_profile(f"{scheme}://host/config.share")

    def test_without_fsspec_the_error_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(MissingDependencyError, match=r"delta-sharing-client\[remote\]") as caught:
            load_profile("s3://bucket/config.share?sig=s3cret")
        assert (caught.value.package, caught.value.extra) == ("fsspec", "remote")
        assert "s3cret" not in str(caught.value)

    def test_a_url_that_cannot_be_reached(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        for place, reason, cause in (
            (f"127.0.0.1:{port}", "connection refused", ConnectionRefusedError),
            ("no-such-host.invalid", "the host's name cannot be resolved", socket.gaierror),
        ):
            scheme = "http" if cause is ConnectionRefusedError else "https"
            with pytest.raises(TransportError) as caught:
                load_profile(f"{scheme}://user:canary@{place}/x.share?sig=canary")
            assert str(caught.value) == f"profile {scheme}://{place}/x.share?***: {reason}"
            assert type(caught.value.__cause__) is cause
            assert "canary" not in repr(caught.value) + repr(caught.value.__cause__)

    @pytest.mark.parametrize(
        ("status", "reason"),
        [(404, "there is no such file"), (403, "the server answered 403"), (503, "the server answered 503")],
    )
    def test_a_url_with_an_error_status(self, status, reason):
        with FaultServer() as server:
            server.on("*", "*", Reply(status=status))
            with pytest.raises(ProfileError) as caught:
                load_profile(f"{server.url}/x.share?sig=canary")
        assert str(caught.value) == f"profile {server.url}/x.share?***: {reason}"

    def test_a_connection_that_is_closed(self):
        with FaultServer() as server:
            server.on("*", "*", Reply(drop=True))
            with pytest.raises(TransportError, match=r"^profile .*/x\.share: the connection was closed"):
                load_profile(f"{server.url}/x.share")

    def test_an_unknown_scheme_is_a_profile_error(self):
        with pytest.raises(ProfileError, match=r"fsspec knows no such scheme; a profile is .*s3://"):
            load_profile("nosuchscheme://x/config.share")

    def test_profile_over_plain_http_is_refused(self):
        with pytest.raises(ProfileError, match="plain http"):
            load_profile("http://example.com/config.share")

    def test_unreadable_profile_names_the_path(self, tmp_path):
        for source, reason in (
            (tmp_path / "no.share", "no such file"),
            (tmp_path, "directory"),
            ("a\0b.share", "null character"),
        ):
            with pytest.raises(ProfileError, match=reason) as caught:
                load_profile(source)
            assert caught.value.source == str(source)
        with pytest.raises(ProfileError, match="empty"):
            load_profile("  ")

    @pytest.mark.parametrize(
        "token", ["dapi0123456789", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln", "a+b/c3d==", "x" * 5000]
    )
    def test_a_token_in_place_of_a_path_is_masked(self, monkeypatch, token):
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, token)
        with pytest.raises(ProfileError, match=r"profile \*\*\* \(not shown: .* may be a token\): ") as caught:
            load_profile()
        assert token[:10] not in str(caught.value)

    @pytest.mark.parametrize(
        "path", ["/nowhere/config", "~/config", "profiles/config.share", "./c", "../c", "C:\\c"]
    )
    def test_a_path_is_shown(self, path):
        with pytest.raises(ProfileError) as caught:
            load_profile(path)
        assert caught.value.source == path

    def test_a_wrong_endpoint_is_shown_without_its_query(self, monkeypatch):
        monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
        monkeypatch.setenv("DELTA_SHARING_ENDPOINT", "ftp://host/share?key=s3cret")
        with pytest.raises(ProfileError, match=r"'endpoint' \('ftp://host/share\?\*\*\*'\) is not a URL of http"):
            load_profile()

    @pytest.mark.parametrize("source", [5, b"{}", object()])
    def test_other_types_of_source_are_type_errors(self, source):
        with pytest.raises(TypeError, match="a profile is"):
            load_profile(source)

    def test_huge_file_is_refused(self, path):
        path.write_bytes(b" " * (1024 * 1024 + 2))
        with pytest.raises(ProfileError, match="1 MB"):
            load_profile(path)

    def test_closed_file_raises(self, path):
        file = path.open()
        file.close()
        with pytest.raises(ProfileError, match="cannot be read"):
            load_profile(file)


class TestWarnings:
    def test_expired_token_warns_with_its_time(self):
        with pytest.warns(ProfileWarning, match="expired at 2021-11-12T00:12:29Z") as caught:
            load_profile({**FIELDS, "expirationTime": "2021-11-12T00:12:29Z"})
        assert caught[0].filename == __file__
        assert issubclass(ProfileWarning, UserWarning)

    @pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
    @pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o640, True), (0o604, True), (0o600, False)])
    def test_file_readable_by_others_warns(self, path, mode, warned):
        path.chmod(mode)
        for source in (path, str(path), path.as_uri()):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                load_profile(source)
            assert [item.category for item in caught] == [ProfileWarning] * warned
            if warned:
                assert "chmod 600" in str(caught[0].message)
                assert caught[0].filename == __file__

    @pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
    @pytest.mark.parametrize(
        ("fields", "warned"),
        [
            ({"type": "oauth_authorization_code", "issuer": "https://i.example", "clientId": "c"}, False),
            (
                {
                    "type": "oauth_workload_identity",
                    "tokenEndpoint": "https://i.example/token",
                    "clientId": "c",
                    "tokenFile": "/var/run/token",
                },
                False,
            ),
            ({"type": "oauth_jwt_bearer_private_key_jwt", "auth": jwt_fields(privateKeyFile="key.pem")}, False),
            ({"type": "oauth_jwt_bearer_private_key_jwt", "auth": jwt_fields(privateKey=CANARY)}, True),
            ({"type": "basic", "username": "ada", "password": CANARY}, True),
        ],
    )
    def test_only_a_file_with_a_secret_warns(self, path, fields, warned):
        path.write_text(json.dumps({"shareCredentialsVersion": 2, "endpoint": FIELDS["endpoint"], **fields}))
        path.chmod(0o644)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load_profile(path)
        assert ["contains a secret" in str(item.message) for item in caught] == [True] * warned

    def test_profile_of_the_environment_warns(self, path, monkeypatch):
        path.chmod(0o644)
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(path))
        with pytest.warns(ProfileWarning) as caught:
            load_profile()
        assert caught[0].filename == __file__


class TestFieldsInTheEnvironment:
    @pytest.fixture(autouse=True)
    def environment(self, monkeypatch):
        monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
        monkeypatch.setenv("DELTA_SHARING_ENDPOINT", "https://sharing.example.com/api/")
        monkeypatch.setenv("DELTA_SHARING_BEARER_TOKEN", CANARY)

    def test_endpoint_and_token(self):
        profile = load_profile()
        assert (profile.type, profile.endpoint) == ("bearer_token", "https://sharing.example.com/api")
        assert profile.bearer_token.reveal() == CANARY
        assert CANARY not in repr(profile)

    def test_the_profile_of_the_environment_is_preferred(self, path, monkeypatch):
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(path))
        assert load_profile().source == str(path)

    def test_a_missing_token_is_named(self, monkeypatch):
        monkeypatch.delenv("DELTA_SHARING_BEARER_TOKEN")
        with pytest.raises(ProfileError, match=r"DELTA_SHARING_BEARER_TOKEN.*bearerToken"):
            load_profile()

    def test_a_credential_provider_needs_the_endpoint_alone(self, monkeypatch):
        monkeypatch.delenv("DELTA_SHARING_BEARER_TOKEN")
        assert load_profile(external=True).endpoint == "https://sharing.example.com/api"


class TestSecrecy:
    def test_nothing_shows_the_token(self, path):
        profile = load_profile(path)
        provider = provider_for(profile)
        for text in (repr(profile), str(profile), f"{profile}", repr(provider), repr(profile.credential)):
            assert CANARY not in text
        assert profile.endpoint in repr(profile)

    def test_profile_with_a_token_is_neither_pickled_nor_copied(self):
        profile = Profile.from_dict(FIELDS)
        for attempt in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="Secret"):
                attempt(profile)

    @pytest.mark.parametrize(
        "content",
        [
            f'{{"bearerToken": "{CANARY}", ',
            f'["{CANARY}"]',
            f'{{"bearerToken": "{CANARY}"}} {CANARY}',
            f"{CANARY}\xff".encode("latin-1"),
            "[" * 100_000 + CANARY,
            f'{{"shareCredentialsVersion": 1, "endpoint": "https://h/\\ud83d", "bearerToken": "{CANARY}"}}',
            f'{{"shareCredentialsVersion": 1e999999999, "endpoint": "https://h", "bearerToken": "{CANARY}"}}',
            f'{{"shareCredentialsVersion": {"9" * 5000}, "endpoint": "https://h", "bearerToken": "{CANARY}"}}',
        ],
    )
    def test_bad_json_is_not_repeated(self, path, content):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ProfileError) as caught:
            load_profile(path)
        error = caught.value
        assert CANARY not in str(error) + repr(error)
        assert error.__cause__ is None
        assert error.__context__ is None or error.__suppress_context__
        assert CANARY not in str(pickle.loads(pickle.dumps(error)))


class TestBearerAuth:
    def test_headers(self):
        provider = provider_for(Profile.from_dict(FIELDS))
        assert provider.headers() == {"Authorization": f"Bearer {CANARY}"}
        assert provider.headers(refused=provider.headers()) == provider.headers()
        assert not provider.renewable

    def test_the_hint_names_an_expiration_that_has_passed(self):
        expired = Profile.from_dict({**FIELDS, "expirationTime": "2021-11-12T02:12:29+02:00"}, "x.share")
        assert "expirationTime is 2021-11-12T00:12:29Z" in provider_for(expired).hint()
        assert "x.share" in provider_for(expired).hint()
        assert "revoked" in provider_for(Profile.from_dict(FIELDS)).hint()
