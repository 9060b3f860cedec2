"""Signing in as a person: authorization code with PKCE, device code, renewal, sign-out."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
import webbrowser
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import keyring
import keyring.backends.fail
import keyring.backends.null
import openid_server
import platformdirs
import pytest
from faults.server import Reply
from openid_server import ACCESS, CODE, DEVICE, REFRESH, OpenIdServer, visit
from waiting import HANG, SleepClock, join, wait_until

import delta_sharing_client as ds
from delta_sharing_client.auth.openid import OpenIdProvider, RedirectReceiver
from delta_sharing_client.auth.provider import with_bearer_token
from delta_sharing_client.auth.renewal import RenewingAuth
from delta_sharing_client.auth.token_cache import TokenCache
from delta_sharing_client.auth.user_tokens import UserTokens
from delta_sharing_client.errors import InsecureUrlError, ProfileError, SignInRequiredError, TokenError
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions

NOW = 1_800_000_000.0
SECRETS = (ACCESS, REFRESH, CODE, DEVICE)


@pytest.fixture
def openid(server):
    return OpenIdServer(server)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "cache")
    return tmp_path / "cache" / "tokens"


@pytest.fixture
def browser(openid, monkeypatch):
    """A browser whose person approves; returns the pages that it opened."""
    pages: list[str] = []

    def open_page(page):
        pages.append(page)
        threading.Thread(target=openid.browser, args=(page,), daemon=True).start()
        return True

    monkeypatch.setattr("webbrowser.get", lambda: None)
    monkeypatch.setattr("webbrowser.open", open_page)
    return pages


@pytest.fixture
def no_browser(monkeypatch):
    def none():
        raise webbrowser.Error("no browser")

    monkeypatch.setattr("webbrowser.get", none)


@pytest.fixture
def clock():
    return SleepClock(NOW)


def provider_of(openid, clock, notify=None, **fields):
    profile = Profile.from_dict(openid.fields(**fields))
    said: list[str] = []
    provider = OpenIdProvider(
        profile, profile.credential, TransportOptions(), now=clock, sleep=clock.sleep, notify=notify or said.append
    )
    return provider, said


def tokens_of(openid, clock, *, terminal=False, **fields):
    profile = Profile.from_dict(openid.fields(**fields), "config.share")
    provider, _ = provider_of(openid, clock, **fields)
    return UserTokens(
        profile, profile.credential, TransportOptions(), provider=provider, interactive=lambda: terminal, now=clock
    )


def signed_in(openid, clock, **fields):
    tokens = tokens_of(openid, clock, **fields)
    tokens.sign_in(device_code=True, open_browser=False, keyring=None, timeout=600)
    return tokens


class TestBrowser:
    def test_code_with_pkce_gives_a_token_that_clients_use(self, openid, browser):
        found = ds.sign_in(openid.fields())
        assert (found.account, found.renewable) == ("ada@example.com", True)
        with ds.SharingClient(openid.fields()) as client:
            assert [share.name for share in client.list_shares()] == ["1"]
        assert openid.given == 1
        asked = dict(parse_qsl(urlsplit(browser[0]).query))
        (form,) = openid.forms()
        assert asked["code_challenge_method"] == "S256"
        assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"
        assert form["redirect_uri"] == asked["redirect_uri"]
        assert len(asked["state"]) >= 43
        assert len(form["code_verifier"]) >= 43
        assert form["code_verifier"] not in browser[0]

    def test_each_sign_in_has_its_own_state_and_challenge(self, openid, browser):
        ds.sign_in(openid.fields())
        ds.sign_in(openid.fields())
        first, second = (dict(parse_qsl(urlsplit(page).query)) for page in browser)
        assert first["state"] != second["state"]
        assert first["code_challenge"] != second["code_challenge"]

    def test_without_a_browser_to_open_the_page_is_shown(self, openid, capfd):
        done = []
        thread = threading.Thread(
            target=lambda: done.append(ds.sign_in(openid.fields(), open_browser=False)), daemon=True
        )
        thread.start()
        shown = ""

        def page():
            nonlocal shown
            shown += capfd.readouterr().err
            return next((line for line in shown.splitlines() if line.startswith("http")), None)

        assert openid.browser(wait_until(page)) == 200
        join([thread])
        assert done[0].account == "ada@example.com"

    def test_answers_with_another_state_issuer_or_path_are_refused(self, openid):
        with RedirectReceiver("http://127.0.0.1/", "right", "https://issuer") as receiver:
            base = receiver.redirect_uri
            for target in (
                "?code=canary-code&state=wrong",
                "?code=canary-code",
                "?state=right",
                "other?code=canary-code&state=right",
            ):
                status, page = visit(base + target)
                assert status == 400
                assert "canary" not in page
            status, page = visit(base + "?code=canary-code&state=right&iss=https%3A%2F%2Fissuer")
            assert status == 200
            assert "canary" not in page
            assert receiver.wait(HANG)["code"] == "canary-code"

    @pytest.mark.parametrize("result", ["code=canary-code", "error=access_denied"])
    def test_an_answer_of_another_issuer_ends_the_sign_in(self, result):
        with RedirectReceiver("http://127.0.0.1/", "right", "https://issuer") as receiver:
            _, page = visit(f"{receiver.redirect_uri}?{result}&state=right&iss=https%3A%2F%2Fother")
            assert "The sign-in failed" in page
            with pytest.raises(
                TokenError, match=r"another issuer \(https://other\), not https://issuer"
            ) as raised:
                receiver.wait(0)
        assert "canary" not in str(raised.value)

    def test_a_refusal_of_the_person_raises(self, openid, monkeypatch):
        def refuse(page):
            asked = dict(parse_qsl(urlsplit(page).query))
            threading.Thread(
                target=visit,
                args=(f"{asked['redirect_uri']}?error=access_denied&state={asked['state']}",),
                daemon=True,
            ).start()

        monkeypatch.setattr("webbrowser.get", lambda: None)
        monkeypatch.setattr("webbrowser.open", refuse)
        with pytest.raises(TokenError, match="refused by the person") as raised:
            ds.sign_in(openid.fields())
        assert raised.value.error_code == "access_denied"

    def test_waiting_for_the_person_is_bounded(self, openid):
        with pytest.raises(TokenError, match="nobody signed in"):
            ds.sign_in(openid.fields(), open_browser=False, timeout=timedelta(milliseconds=1))

    @pytest.mark.parametrize(("timeout", "error"), [(30, TypeError), (timedelta(-1), ValueError)])
    def test_a_wrong_timeout_is_refused(self, openid, timeout, error):
        with pytest.raises(error, match=r"timeout is .*(a timedelta|more than zero)"):
            ds.sign_in(openid.fields(), device_code=True, timeout=timeout)
        assert openid.server.seen("/.well-known/openid-configuration") == []

    def test_a_silent_connection_does_not_stop_the_answer(self):
        with RedirectReceiver("http://localhost/back", "right", "i") as receiver:
            assert receiver.redirect_uri.startswith("http://localhost:")
            with socket.create_connection(("127.0.0.1", receiver.server_port)):
                url = receiver.redirect_uri.replace("localhost", "127.0.0.1")
                assert visit(f"{url}?code=c&state=right")[0] == 200

    def test_a_page_of_the_provider_over_plain_http_is_not_opened(self, openid, browser):
        openid.configuration["authorization_endpoint"] = "http://login.example.com/authorize"
        with pytest.raises(InsecureUrlError):
            ds.sign_in(openid.fields())
        assert browser == []

    def test_another_issuer_in_the_discovery_document_is_refused(self, openid):
        openid.configuration["issuer"] = "https://other.example.com"
        with pytest.raises(TokenError, match="names another issuer"):
            ds.sign_in(openid.fields(), device_code=True)

    def test_an_issuer_without_a_discovery_document_is_to_be_corrected(self, openid):
        with pytest.raises(TokenError, match=r"answered 404.*; correct issuer in the profile"):
            ds.sign_in(openid.fields(issuer=f"{openid.server.url}/wrong"), device_code=True)


class TestLifetimes:
    @pytest.mark.parametrize("lifetime", [1e12, 1e300, "1e12", 10**15, 4e9])
    def test_one_beyond_all_dates_is_none(self, openid, browser, lifetime):
        openid.lifetime = lifetime
        assert ds.sign_in(openid.fields()).expires is None
        assert ds.signed_in(openid.fields()).expires is None
        with ds.SharingClient(openid.fields()) as client:
            client.list_shares()
        assert len(openid.forms()) == 1

    @pytest.mark.parametrize("lifetime", [float("nan"), float("inf"), "NaN", -1, 10**400, "x", [], True])
    def test_one_that_is_no_number_is_refused_before_it_is_cached(self, openid, browser, cache, lifetime):
        openid.lifetime = lifetime
        with pytest.raises(TokenError):
            ds.sign_in(openid.fields())
        assert list(cache.glob("*.json")) == []
        assert ds.signed_in(openid.fields()) is None

    @pytest.mark.parametrize("lifetime", [1e12, 1e300])
    def test_a_cache_with_an_absurd_time_is_written_anew(self, openid, browser, cache, lifetime):
        ds.sign_in(openid.fields())
        (file,) = cache.glob("*.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "expires": lifetime}))
        assert ds.signed_in(openid.fields()) is None
        assert ds.sign_in(openid.fields()).expires is not None
        assert ds.signed_in(openid.fields()).expires is not None

    @pytest.mark.parametrize("interval", [1e300, 1e12, float("nan"), -5, "x"])
    def test_an_absurd_interval_between_polls_is_replaced(self, openid, clock, interval):
        openid.device |= {"interval": interval, "expires_in": interval}
        openid.pending = ["authorization_pending"]
        began = clock()
        tokens = tokens_of(openid, clock)
        tokens.sign_in(device_code=True, open_browser=False, keyring=None, timeout=600)
        assert clock() - began <= 120


class TestDeviceCode:
    def test_polls_until_the_person_has_signed_in(self, openid, clock):
        openid.pending = ["authorization_pending", "slow_down", "authorization_pending"]
        provider, said = provider_of(openid, clock)
        began = clock()
        token = provider.sign_in(device_code=True, open_browser=True, timeout=600)
        assert token.account == "ada@example.com"
        assert "WDJB-MJHT" in said[0]
        assert DEVICE not in said[0]
        assert clock() - began == 5 + 5 + 10 + 10
        assert {form["device_code"] for form in openid.forms("device_code")} == {DEVICE}

    @pytest.mark.parametrize(
        ("code", "message"), [("access_denied", "refused by the person"), ("expired_token", "nobody signed in")]
    )
    def test_a_refusal_raises(self, openid, clock, code, message):
        openid.pending = ["authorization_pending", code]
        provider, _ = provider_of(openid, clock)
        with pytest.raises(TokenError, match=message) as raised:
            provider.sign_in(device_code=True, open_browser=True, timeout=600)
        assert raised.value.error_code == code
        assert "***" not in str(raised.value)

    def test_polling_ends_with_the_life_of_the_code(self, openid, clock):
        openid.pending = ["authorization_pending"] * 1000
        openid.device["expires_in"] = 60
        provider, _ = provider_of(openid, clock)
        with pytest.raises(TokenError, match="nobody signed in while the device code was valid"):
            provider.sign_in(device_code=True, open_browser=True, timeout=600)
        assert len(openid.forms()) == 11

    def test_polling_ends_with_the_timeout(self, openid, clock):
        openid.pending = ["slow_down"] * 1000
        provider, _ = provider_of(openid, clock)
        with pytest.raises(TokenError, match="nobody signed in within 12 s") as raised:
            provider.sign_in(device_code=True, open_browser=True, timeout=12)
        assert raised.value.error_code is None

    def test_is_used_where_no_browser_is(self, openid, clock, no_browser):
        provider, said = provider_of(openid, clock)
        provider.sign_in(device_code=False, open_browser=True, timeout=600)
        assert "enter the code" in said[0]

    def test_control_characters_of_the_provider_are_not_shown(self, openid, clock):
        openid.device["user_code"] = "AB\x1b[2JCD"
        provider, said = provider_of(openid, clock)
        provider.sign_in(device_code=True, open_browser=True, timeout=600)
        assert "\x1b" not in said[0]

    def test_a_provider_without_it_is_named(self, openid, clock):
        del openid.configuration["device_authorization_endpoint"]
        provider, _ = provider_of(openid, clock)
        with pytest.raises(TokenError, match="device_authorization_endpoint"):
            provider.sign_in(device_code=True, open_browser=True, timeout=600)


class TestKeyring:
    @pytest.mark.parametrize("backend", [keyring.backends.fail.Keyring, keyring.backends.null.Keyring])
    def test_is_tried_before_the_person_signs_in(self, openid, monkeypatch, backend):
        monkeypatch.setattr(keyring.core, "_keyring_backend", backend())
        with pytest.raises(TokenError, match="keyring of the system failed"):
            ds.sign_in(openid.fields(), device_code=True, keyring=True)
        assert openid.server.seen("/device_authorization") == []


class TestRenewal:
    def test_a_token_is_renewed_and_the_refresh_token_replaced(self, openid, clock):
        auth = RenewingAuth(signed_in(openid, clock), now=clock)
        for number in (1, 2, 3):
            assert auth.headers()["Authorization"] == f"Bearer {ACCESS}-{number}"
            clock.sleep(3000)
        assert [form["refresh_token"] for form in openid.forms("refresh_token")] == [
            f"{REFRESH}-{n}" for n in (1, 2)
        ]

    def test_a_token_that_the_sharing_server_refuses_is_renewed(self, openid, clock):
        auth = RenewingAuth(signed_in(openid, clock), now=clock)
        first = auth.headers()
        assert first["Authorization"].endswith("-1")
        assert auth.headers(refused=first)["Authorization"].endswith("-2")
        assert auth.headers(refused=first)["Authorization"].endswith("-2")

    def test_a_token_that_another_process_renewed_is_used(self, openid, clock):
        first = RenewingAuth(signed_in(openid, clock), now=clock)
        second = RenewingAuth(tokens_of(openid, clock), now=clock)
        first.headers(), second.headers()
        clock.sleep(3000)
        assert first.headers() == second.headers()
        assert len(openid.forms("refresh_token")) == 1

    def test_a_provider_that_keeps_the_refresh_token(self, openid, clock):
        tokens = signed_in(openid, clock)
        openid.rotates = openid.gives_refresh_token = False
        for number in (1, 2, 3):
            assert tokens.fetch(retry=True).token.reveal() == f"{ACCESS}-{number}"

    def test_a_token_about_to_expire_is_not_taken_from_the_cache(self, openid, clock):
        openid.lifetime = 100
        signed_in(openid, clock)
        clock.sleep(70)
        openid.refuse_refresh = openid_server.error("temporarily_unavailable")
        with pytest.raises(TokenError, match="temporarily_unavailable"):
            tokens_of(openid, clock).fetch(retry=True)

    def test_a_valid_token_is_used_while_the_provider_fails(self, openid, clock):
        signed_in(openid, clock)
        clock.sleep(3100)
        openid.refuse_refresh = openid_server.error("temporarily_unavailable")
        assert tokens_of(openid, clock).fetch(retry=True).token.reveal() == f"{ACCESS}-1"

    def test_a_refused_refresh_token_names_the_command(self, openid, clock):
        tokens = signed_in(openid, clock)
        openid.revoked.add(f"{REFRESH}-1")
        clock.sleep(4000)
        with pytest.raises(SignInRequiredError, match=r"run: delta-sharing login config\.share") as raised:
            tokens.fetch(retry=True)
        assert raised.value.error_code == "invalid_grant"
        assert REFRESH not in str(raised.value)

    def test_a_refused_refresh_token_leads_to_a_sign_in_at_a_terminal(self, openid, clock, no_browser):
        signed_in(openid, clock)
        openid.revoked.add(f"{REFRESH}-1")
        clock.sleep(4000)
        tokens = tokens_of(openid, clock, terminal=True)
        assert tokens.fetch(retry=True).token.reveal() == f"{ACCESS}-2"
        assert len(openid.forms("device_code")) == 2

    @pytest.mark.parametrize("meanwhile", ["nothing", "another sign-in"])
    def test_a_renewed_token_that_was_not_written_is_not_lost(self, openid, clock, meanwhile):
        """The refresh token before it works once; the system limits the size of files."""
        resource = pytest.importorskip("resource")
        tokens = signed_in(openid, clock)
        clock.sleep(4000)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))
        try:
            for _ in range(2):
                with pytest.raises(TokenError, match="the token cache"):
                    tokens.fetch(retry=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if meanwhile == "another sign-in":
            signed_in(openid, clock)
        number = 2 if meanwhile == "nothing" else 3
        assert tokens.fetch(retry=True).token.reveal() == f"{ACCESS}-{number}"
        assert tokens_of(openid, clock).fetch(retry=True).token.reveal() == f"{ACCESS}-{number}"
        assert tokens.fetch(retry=True).token.reveal() == f"{ACCESS}-{number + 1}"
        used = [form["refresh_token"] for form in openid.forms("refresh_token")]
        assert used == [f"{REFRESH}-1", f"{REFRESH}-{number}"]

    def test_nobody_signed_in(self, openid):
        with (
            ds.SharingClient(openid.fields()) as client,
            pytest.raises(SignInRequiredError, match=r"nobody has signed in.*delta-sharing login PROFILE"),
        ):
            client.list_shares()

    def test_no_refresh_token(self, openid, clock):
        openid.gives_refresh_token = False
        tokens = signed_in(openid, clock)
        clock.sleep(4000)
        with pytest.raises(SignInRequiredError, match="offline_access"):
            tokens.fetch(retry=True)

    def test_executors_get_the_current_token_alone(self, openid, clock):
        tokens = signed_in(openid, clock)
        profile = with_bearer_token(Profile.from_dict(openid.fields()), RenewingAuth(tokens, now=clock))
        assert profile.bearer_token.reveal() == f"{ACCESS}-1"


class TestSignOut:
    def test_deletes_the_token_and_revokes_the_refresh_token(self, openid, browser, cache):
        ds.sign_in(openid.fields())
        assert ds.signed_in(openid.fields()).account == "ada@example.com"
        assert ds.sign_out(openid.fields())
        assert openid.revoked == {f"{REFRESH}-1"}
        assert list(cache.glob("*.json")) == []
        assert ds.signed_in(openid.fields()) is None
        assert not ds.sign_out(openid.fields())

    def test_works_without_the_provider(self, openid, browser, cache, caplog):
        ds.sign_in(openid.fields())
        openid.configuration["revocation_endpoint"] = f"{openid.server.url}/gone"
        assert ds.sign_out(openid.fields())
        assert list(cache.glob("*.json")) == []
        assert "could not be revoked" in caplog.text


class TestSecrets:
    def test_no_message_repr_or_log_contains_one(self, openid, clock, caplog, capfd):
        caplog.set_level(logging.DEBUG)
        tokens = signed_in(openid, clock)
        texts = [repr(tokens), repr(tokens.cached()), tokens.hint()]
        openid.refuse_refresh = openid_server.error("invalid_grant", f"refused {REFRESH}-1")
        clock.sleep(4000)
        with pytest.raises(SignInRequiredError) as raised:
            tokens.fetch(retry=True)
        texts += [str(raised.value), repr(raised.value.__cause__), repr(raised.value.__context__)]
        openid.pending = ["access_denied"]
        with pytest.raises(TokenError) as raised:
            tokens.sign_in(device_code=True, open_browser=False, keyring=None, timeout=600)
        captured = capfd.readouterr()
        texts += [str(raised.value), caplog.text, captured.out, captured.err]
        assert not [(secret, text) for text in texts for secret in SECRETS if secret in text]


def refusing(server, encode, place):
    """Answer to token requests by an error, or an unusable token, that repeats the whole form."""

    def answer(request):
        form = dict(parse_qsl(request.body.decode()))
        text = " ".join(encode(form[name]) for name in FORM_SECRETS if name in form)
        fields = {"access_token": "a", "token_type": "bearer", "error": "invalid_grant"}
        if place == "token_type":
            del fields["error"]
        return Reply.of_json({**fields, place: text}, status=200 if place == "token_type" else 400)

    server.on("POST", "/token", answer)


FORM_SECRETS = ("code", "code_verifier", "device_code", "refresh_token")
ENCODINGS = {
    "plain": str,
    "percent": lambda text: "".join(f"%{ord(char):02x}" for char in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "json": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
}


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("place", ["error", "error_description", "token_type"])
class TestEchoes:
    def check(self, openid, message, encode):
        for form in openid.forms():
            for name in FORM_SECRETS:
                if name in form:
                    assert "***" in message
                    for size in (len(form[name]), 12):
                        assert encode(form[name][:size])[:12] not in message, name

    def test_of_a_code_and_its_verifier(self, openid, browser, place, encode):
        refusing(openid.server, encode, place)
        with pytest.raises(TokenError) as raised:
            ds.sign_in(openid.fields())
        assert {"code", "code_verifier"} <= openid.forms()[0].keys()
        self.check(openid, str(raised.value) + repr(raised.value.error_code), encode)

    def test_of_a_device_code(self, openid, clock, place, encode):
        refusing(openid.server, encode, place)
        provider, _ = provider_of(openid, clock)
        with pytest.raises(TokenError) as raised:
            provider.sign_in(device_code=True, open_browser=True, timeout=600)
        assert "device_code" in openid.forms()[0]
        self.check(openid, str(raised.value) + repr(raised.value.error_code), encode)

    def test_of_a_refresh_token(self, openid, clock, place, encode):
        tokens = signed_in(openid, clock)
        refusing(openid.server, encode, place)
        clock.sleep(4000)
        with pytest.raises(TokenError) as raised:
            tokens.fetch(retry=True)
        self.check(openid, str(raised.value) + repr(raised.value.error_code), encode)


class TestProfiles:
    @pytest.mark.parametrize("uri", ["https://127.0.0.1/", "http://example.com/", "http://0.0.0.0/"])
    def test_a_redirect_elsewhere_is_refused(self, openid, uri):
        with pytest.raises(ProfileError, match="redirectUri"):
            Profile.from_dict(openid.fields(redirectUri=uri))

    def test_other_profiles_need_no_sign_in(self, openid):
        with pytest.raises(ProfileError, match="needs no sign-in"):
            ds.sign_in({"shareCredentialsVersion": 1, "endpoint": openid.server.url, "bearerToken": "t"})

    def test_entries_differ_by_issuer_client_scope_and_audience(self, openid, tmp_path):
        changes = ({}, {"clientId": "2"}, {"scope": "s"}, {"audience": "a"}, {"issuer": "https://i.example.com"})
        profiles = [Profile.from_dict(openid.fields(**change)) for change in changes]
        files = {TokenCache(profile.credential, tmp_path)._file.name for profile in profiles}
        assert len(files) == len(changes)
        assert not [name for name in files if "client" in name]
