"""OAuth client credentials: caching, renewal, errors and redaction of access tokens."""

import base64
import gzip
import logging
import pickle
from datetime import timedelta

import pytest
from faults.server import FaultServer, Reply
from token_server import NOW, SECRET, TOKEN_CANARY, TokenServer, at_once, used
from waiting import FOREVER, SleepClock

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import AuthenticationError, InsecureUrlError, TokenError
from delta_sharing_client.options import TransportOptions


@pytest.fixture
def tokens(server):
    return TokenServer(server)


@pytest.fixture
def clock():
    return SleepClock(NOW)


def basic(name, secret):
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


class TestTheRequest:
    @pytest.mark.protocol("oauth_client_credentials")
    def test_request_has_the_form_and_header_of_the_protocol(self, tokens):
        with SharingClient(tokens.fields()) as client:
            assert [share.name for share in client.list_shares()] == ["1"]
        (request,) = tokens.server.seen("/token")
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"
        assert request.headers["accept"] == "application/json"
        assert request.headers["authorization"] == basic("client-1", SECRET)
        assert tokens.forms == [{"grant_type": "client_credentials"}]
        assert b"canary" not in request.body

    def test_scope_and_audience_are_sent_where_the_profile_has_them(self, tokens):
        profile = tokens.profile(scope="read all", audience="https://a.example/x?y=1&z")
        assert used(tokens.client(profile=profile)) == 1
        assert tokens.forms[0]["scope"] == "read all"
        assert tokens.forms[0]["audience"] == "https://a.example/x?y=1&z"

    def test_id_and_secret_stay_percent_encoded_once_a_server_requires_it(self, tokens):
        secret = "a+b/c=%:d"
        good = basic("client-1", "a%2Bb%2Fc%3D%25%3Ad")

        def check(request, form):
            if request.headers["authorization"] != good:
                return Reply.of_json({"error": "invalid_client"}, status=401)
            return None

        tokens.check = check
        clock = SleepClock(NOW)
        client = tokens.client(clock, tokens.profile(clientSecret=secret))
        assert used(client) == 1
        sent = [request.headers["authorization"] for request in tokens.server.seen("/token")]
        assert sent == [basic("client-1", secret), good]
        clock.now += 3600
        assert used(client) == 2
        assert tokens.asked == 3

    def test_refused_unreserved_secret_is_sent_once(self, tokens):
        tokens.check = lambda request, form: Reply.of_json({"error": "invalid_client"}, status=401)
        with pytest.raises(TokenError):
            used(tokens.client())
        assert tokens.asked == 1


class TestLifetime:
    @pytest.mark.parametrize(
        ("lifetime", "renewed_after"), [(3600, 3000), ("3600", 3000), (7200.0, 6600), (100, 80), ("2.5", 2)]
    )
    def test_a_token_is_renewed_ten_minutes_or_a_fifth_of_its_life_ahead(
        self, tokens, clock, lifetime, renewed_after
    ):
        tokens.lifetime = lifetime
        client = tokens.client(clock)
        begun = clock.now
        assert used(client) == 1
        for moment in (0, renewed_after / 2, renewed_after - 0.01):
            clock.now = begun + moment
            assert used(client) == 1
        clock.now = begun + renewed_after
        assert used(client) == 2
        assert used(client) == 2
        assert tokens.asked == 2

    @pytest.mark.parametrize("lifetime", [None])
    def test_a_token_without_a_lifetime_is_used_until_it_is_refused(self, tokens, clock, lifetime):
        tokens.lifetime = lifetime
        client = tokens.client(clock)
        assert used(client) == 1
        clock.now += 10**7
        assert used(client) == 1
        tokens.revoked.add(tokens.token(1))
        assert used(client) == 2
        assert tokens.asked == 2

    def test_threads_share_the_first_token(self, tokens):
        client = tokens.client()
        assert at_once(8, lambda: used(client)) == [1] * 8
        assert tokens.asked == 1

    def test_each_client_has_its_own_token(self, tokens):
        assert [used(tokens.client()), used(tokens.client())] == [1, 2]

    def test_other_threads_use_the_old_token_during_a_renewal(self, tokens, clock):
        client = tokens.client(clock)
        assert used(client) == 1
        clock.now += 3100
        arrived = []

        def slow(request, form):
            arrived.append(used(client))  # another request, while the token is being renewed
            return

        tokens.check = slow
        assert used(client) == 2
        assert arrived == [1]


class TestRefusal:
    def test_a_401_renews_once_and_tries_once_more(self, tokens):
        client = tokens.client()
        assert used(client) == 1
        tokens.revoked.add(tokens.token(1))
        assert used(client) == 2
        assert tokens.asked == 2

    def test_a_second_401_is_an_error_that_names_client_and_endpoint(self, tokens):
        tokens.refuse_all = True
        with pytest.raises(AuthenticationError, match="client-1") as caught:
            used(tokens.client())
        assert f"{tokens.server.url}/token" in str(caught.value)
        assert TOKEN_CANARY not in str(caught.value)
        assert tokens.asked == 2
        assert len(tokens.server.seen("/shares")) == 2

    def test_refused_threads_share_one_renewal(self, tokens):
        client = tokens.client()
        assert used(client) == 1
        tokens.revoked.add(tokens.token(1))
        assert at_once(8, lambda: used(client)) == [2] * 8
        assert tokens.asked == 2


class TestTheEndpointIsDown:
    def test_unexpired_token_is_kept(self, tokens, clock, caplog):
        client = tokens.client(clock)
        assert used(client) == 1
        tokens.check = lambda request, form: Reply(status=503)
        clock.now += 3100
        begun = clock.now
        assert used(client) == 1
        assert used(client) == 1
        assert tokens.asked == 2  # not at each request again
        assert clock.now == begun  # and no request waited
        assert "used until it expires" in caplog.text
        clock.now += 30
        assert used(client) == 1
        assert tokens.asked == 3
        tokens.check = lambda request, form: None
        clock.now += 30
        assert used(client) == 2

    def test_expired_token_raises_after_a_minute(self, tokens, clock):
        client = tokens.client(clock, api_attempts=1000)
        assert used(client) == 1
        tokens.check = lambda request, form: Reply(status=503)
        clock.now += 3601
        begun = clock.now
        with pytest.raises(TokenError, match="503") as caught:
            used(client)
        assert 30 < clock.now - begun <= 60
        assert caught.value.status == 503
        assert "deadline is 60 s" in str(caught.value)

    def test_attempts_are_bounded(self, tokens, clock):
        tokens.check = lambda request, form: Reply(status=500)
        with pytest.raises(TokenError, match="3 attempts"):
            used(tokens.client(clock, api_attempts=3))
        assert tokens.asked == 3

    @pytest.mark.parametrize(
        "fault",
        [
            Reply(status=503),
            Reply(status=429, headers={"Retry-After": "3"}),
            Reply(drop=True),
            Reply.of_json({"access_token": "x" * 100}, cut_at=20),
            Reply.of_json({"access_token": "x" * 100}, cut_at=20, ending="reset"),
        ],
    )
    def test_transient_fault_is_retried(self, tokens, clock, fault):
        tokens.server.on("POST", "/token", fault, nth=1)
        assert used(tokens.client(clock)) == 1
        assert tokens.asked == 2
        if "Retry-After" in fault.headers:
            assert clock.slept == [3.0]

    def test_retry_after_past_the_deadline_raises_at_once(self, tokens, clock):
        tokens.check = lambda request, form: Reply(status=429, headers={"Retry-After": "61"})
        with pytest.raises(TokenError, match="asks to wait 61 s"):
            used(tokens.client(clock))
        assert tokens.asked == 1
        assert clock.slept == []

    def test_connection_refused_raises(self, tokens, clock):
        with FaultServer() as gone:
            url = gone.url
        profile = tokens.profile(tokenEndpoint=f"{url}/token")
        with pytest.raises(TokenError, match="no access token for client 'client-1'"):
            used(tokens.client(clock, profile))

    def test_path_of_the_endpoint_does_not_hide_the_reason(self, tokens, clock):
        tokens.check = lambda request, form: Reply(drop=True)
        with pytest.raises(TokenError, match="/token: the connection was closed"):
            used(tokens.client(clock))

    def test_silent_endpoint_times_out(self, tokens):
        tokens.server.on("POST", "/token", Reply(delay=FOREVER))
        client = tokens.client(read_timeout=timedelta(seconds=0.5), api_attempts=2)
        with pytest.raises(TokenError, match="no answer came in time"):
            used(client)

    def test_waiting_threads_raise_the_error_of_the_renewal(self, tokens):
        tokens.check = lambda request, form: Reply.of_json({"error": "invalid_client"}, status=401, delay=1)
        client = tokens.client()
        results = at_once(6, lambda: used(client))
        assert [type(result) for result in results] == [TokenError] * 6
        assert tokens.asked < 6


class TestRules:
    @pytest.mark.parametrize("url", ["http://login.example.com/token", "http://10.0.0.1/token"])
    def test_plain_http_to_another_machine_is_refused_at_once(self, tokens, url):
        with pytest.raises(InsecureUrlError, match="plain http"):
            SharingClient(tokens.fields(tokenEndpoint=url))
        with SharingClient(tokens.fields(tokenEndpoint=url), options=TransportOptions(allow_http=True)):
            pass

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_redirects_are_not_followed(self, tokens, status):
        with FaultServer() as other:
            location = {"Location": f"{other.url}/token"}
            tokens.check = lambda request, form: Reply(status=status, headers=location)
            with pytest.raises(TokenError, match="redirect") as caught:
                used(tokens.client())
            assert other.requests == []
        assert caught.value.status == status
        assert tokens.asked == 1

    def test_netrc_file_is_not_read(self, tokens, tmp_path, monkeypatch):
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login someone password else\n")
        netrc.chmod(0o600)
        monkeypatch.setenv("NETRC", str(netrc))
        assert used(tokens.client()) == 1
        assert tokens.server.seen("/token")[0].headers["authorization"] == basic("client-1", SECRET)

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(body=b"<html>Log in</html>"),
            Reply(body=b""),
            Reply(body=b"[1]"),
            Reply(body=b"[" * 100_000),
            Reply(body=b'{"a": "' + b"x" * 2_000_000 + b'"}'),
            Reply(body=gzip.compress(b" " * 200_000_000, 1), headers={"Content-Encoding": "gzip"}),
            Reply.of_json({}),
            Reply.of_json({"access_token": ""}),
            Reply.of_json({"access_token": 7}),
            Reply.of_json({"access_token": "a\r\nX-Evil: 1"}),
            Reply.of_json({"access_token": "a b"}),
            Reply.of_json({"access_token": "a\u00fc"}),
            Reply.of_json({"access_token": "a", "token_type": "mac"}),
            Reply.of_json({"access_token": "a", "expires_in": 0}),
            Reply.of_json({"access_token": "a", "expires_in": -1}),
            Reply.of_json({"access_token": "a", "expires_in": True}),
            Reply.of_json({"access_token": "a", "expires_in": "soon"}),
            Reply.of_json({"access_token": "a", "expires_in": "nan"}),
            Reply.of_json({"access_token": "a", "expires_in": [1]}),
            Reply.of_json({"error": "unauthorized_client", "access_token": "a"}),
        ],
    )
    def test_malformed_answer_raises_without_a_retry(self, tokens, reply):
        tokens.check = lambda request, form: reply
        with pytest.raises(TokenError, match="token endpoint http://127"):
            used(tokens.client())
        assert tokens.asked == 1
        assert tokens.server.seen("/shares") == []

    def test_error_contains_the_message_of_the_endpoint(self, tokens):
        answer = {"error": "invalid_scope", "error_description": "no\nsuch scope"}
        tokens.check = lambda request, form: Reply.of_json(answer, status=400)
        with pytest.raises(TokenError, match=r"answered 400 \(invalid_scope, no such scope\)") as caught:
            used(tokens.client())
        assert (caught.value.status, caught.value.error_code) == (400, "invalid_scope")
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), vars(again)) == (str(caught.value), vars(caught.value))


class TestSecrets:
    def test_messages_logs_reprs_and_pickles_hold_no_secret(self, tokens, caplog):
        caplog.set_level(logging.DEBUG)

        def echo(request, form):
            header = request.headers["authorization"]
            text = f"bad secret {SECRET} in {header}"
            return Reply.of_json({"error": f"bad {SECRET}", "error_description": text}, status=400)

        client = SharingClient(tokens.fields())
        assert client.list_shares()
        tokens.check = echo
        tokens.refuse_all = True
        with pytest.raises(TokenError) as caught:
            client.list_shares()
        authorize = client._rest._caller.transport.authorize
        header = basic("client-1", SECRET).split()[1]
        texts = [str(caught.value), repr(caught.value), repr(vars(caught.value)), caplog.text]
        texts += [repr(thing) for thing in (client, client.profile, client._rest, authorize, authorize._source)]
        texts += [repr(authorize.current_token()), repr(client.profile.credential)]
        for text in texts:
            assert "canary" not in text
            assert header not in text
        for thing in (client.profile, authorize, authorize.current_token()):
            with pytest.raises(TypeError):
                pickle.dumps(thing)
