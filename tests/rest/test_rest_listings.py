"""Listings of shares, schemas and tables: pages, endpoints, error statuses."""

import itertools

import pytest
import responses
from faults.server import Reply

from delta_sharing_client.errors import (
    AuthenticationError,
    BadRequestError,
    DeltaSharingError,
    ForbiddenError,
    IncompleteResponseError,
    NotFoundError,
    ProtocolError,
    RateLimitError,
    RestError,
    ServerError,
    TableNameError,
    TransportError,
)
from delta_sharing_client.model.names import Schema, Share, Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest import calls
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.shown_text import cut
from delta_sharing_client.transport.retry import Retrier
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest

SHARE = {"name": "a", "id": "1"}


class TestPages:
    def test_no_results_are_one_page(self, server, rest):
        """A server may return a token with no items, for ever."""
        server.on("GET", "/shares", Reply.of_json({"nextPageToken": "t"}))
        assert list(rest.list_shares(max_results=0)) == []
        assert [request.query for request in server.requests] == [{"maxResults": "0"}]

    @pytest.mark.parametrize(("given", "sent"), [(None, "7"), (3, "3")])
    def test_the_size_of_a_page_is_an_option(self, server, given, sent):
        server.on("GET", "/shares", Reply.of_json({"items": [SHARE]}))
        options = TransportOptions(max_results=7)
        with RestClient(Profile.from_dict(server.profile), options) as client:
            assert len(list(client.list_shares(max_results=given))) == 1
        assert server.requests[0].query == {"maxResults": sent}

    def test_pages_are_requested_lazily(self, server, rest):
        server.on(
            "GET",
            "/shares",
            Reply.of_json({"items": [SHARE, {"name": "b"}], "nextPageToken": "t/1 +="}),
            Reply.of_json({"items": [{"name": "c"}], "nextPageToken": "t2"}),
            Reply.of_json({"items": [{"name": "d"}]}),
        )
        shares = rest.list_shares(max_results=2)
        assert server.requests == []
        assert next(shares) == Share("a")
        assert len(server.requests) == 1
        assert [share.name for share in shares] == ["b", "c", "d"]
        assert [request.query for request in server.requests] == [
            {"maxResults": "2"},
            {"maxResults": "2", "pageToken": "t/1 +="},
            {"maxResults": "2", "pageToken": "t2"},
        ]

    @pytest.mark.parametrize(
        "answer",
        [
            {},
            {"items": []},
            {"items": None},
            {"items": [], "nextPageToken": ""},
            {"nextPageToken": None},
            {"x": 1},
        ],
    )
    def test_missing_items_are_an_empty_list(self, server, rest, answer):
        server.on("GET", "/shares", Reply.of_json(answer))
        assert list(rest.list_shares()) == []
        assert server.requests[0].query == {}

    def test_empty_page_does_not_end_the_listing(self, server, rest):
        server.on(
            "GET",
            "/shares",
            Reply.of_json({"nextPageToken": "1"}),
            Reply.of_json({"items": None, "nextPageToken": "2"}),
            Reply.of_json({"items": [SHARE]}),
        )
        assert [share.name for share in rest.list_shares()] == ["a"]

    def test_repeated_token_raises(self, server, rest):
        server.on("GET", "/shares", Reply.of_json({"items": [SHARE], "nextPageToken": "same"}))
        with pytest.raises(ProtocolError, match="same page token"):
            list(rest.list_shares())
        assert len(server.requests) == 2

    def test_cycle_of_tokens_raises(self, server, rest):
        pages = itertools.cycle("abc")
        server.on(
            "GET", "/shares", lambda request: Reply.of_json({"items": [SHARE], "nextPageToken": next(pages)})
        )
        with pytest.raises(ProtocolError, match="never ends"):
            list(rest.list_shares())
        assert len(server.requests) == 4

    def test_number_of_pages_is_bounded(self, server, rest, monkeypatch):
        monkeypatch.setattr(calls, "MAX_PAGES", 20)
        numbers = itertools.count()
        server.on("GET", "/shares", lambda request: Reply.of_json({"nextPageToken": str(next(numbers))}))
        with pytest.raises(ProtocolError, match="more than 20 pages"):
            list(rest.list_shares())

    @pytest.mark.parametrize(
        "answer",
        [[], "x", 3, {"items": {}}, {"items": "abc"}, {"items": [3]}, {"items": [SHARE], "nextPageToken": 3}],
    )
    def test_malformed_listings(self, server, rest, answer):
        server.on("GET", "/shares", Reply.of_json(answer))
        with pytest.raises(ProtocolError):
            list(rest.list_shares())

    @pytest.mark.parametrize("item", [{}, {"name": None}, {"name": ""}, {"name": 3}])
    def test_items_without_a_name(self, server, rest, item):
        server.on("GET", "/shares", Reply.of_json({"items": [item]}))
        with pytest.raises(ProtocolError, match="name"):
            list(rest.list_shares())

    @pytest.mark.parametrize("body", [b"", b"<html>Please log in</html>", b"{", b'{"items": [', b"\xff\xfe"])
    def test_answer_that_is_not_json_names_the_endpoint(self, server, rest, body):
        server.on("GET", "/shares", Reply(body=body))
        with pytest.raises(ProtocolError, match=r"is http://127\.0\.0\.1:.* the endpoint of a sharing server"):
            list(rest.list_shares())
        assert len(server.requests) == 1

    def test_deep_json(self, server, rest):
        server.on("GET", "/shares", Reply(body=b'{"items": ' + b"[" * 100_000))
        with pytest.raises(ProtocolError):
            list(rest.list_shares())

    def test_max_results_is_checked_at_once(self, rest):
        with pytest.raises(ValueError, match="max_results"):
            rest.list_shares(max_results=-1)


class TestEndpoints:
    @pytest.mark.protocol(
        "GET /shares",
        "GET /shares/{share}",
        "GET /shares/{share}/schemas",
        "GET .../schemas/{schema}/tables",
        "GET /shares/{share}/all-tables",
    )
    def test_paths_and_objects(self, server, rest):
        server.on(
            "GET", "/shares/my.share/schemas", Reply.of_json({"items": [{"name": "s", "share": "my.share"}]})
        )
        table = {"name": "t", "schema": "s", "share": "my.share", "id": "9", "shareId": "8"}
        server.on("GET", "/shares/my.share/schemas/s/tables", Reply.of_json({"items": [table]}))
        server.on("GET", "/shares/my.share/all-tables", Reply.of_json({"items": [table]}))
        server.on("GET", "/shares/my.share", Reply.of_json({"share": SHARE}))
        assert list(rest.list_schemas("my.share")) == [Schema("s", "my.share")]
        assert list(rest.list_schemas(Share("my.share"))) == [Schema("s", "my.share")]
        assert list(rest.list_tables(Schema("s", "my.share"))) == [Table("t", "my.share", "s")]
        (listed,) = rest.list_all_tables("my.share")
        assert (listed.id, listed.share_id) == ("9", "8")
        assert rest.get_share("my.share").id == "1"

    def test_names_are_percent_encoded(self, server, rest):
        server.on("GET", "*", Reply.of_json({}))
        list(rest.list_tables(Schema("ü%41?", "a#b&c=;:@")))
        assert server.requests[0].target == "/shares/a%23b%26c%3D%3B%3A%40/schemas/%C3%BC%2541%3F/tables"

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb"])
    def test_invalid_names_raise_without_a_request(self, server, rest, name):
        for send in (
            lambda: rest.list_schemas(name),
            lambda: rest.list_all_tables(name),
            lambda: rest.get_share(name),
            lambda: rest.list_tables(Schema(name, "a")),
            lambda: rest.table_version(Table(name, "a", "b")),
        ):
            with pytest.raises(TableNameError):
                send()
        assert server.requests == []

    @pytest.mark.parametrize("answer", [{}, {"share": None}, {"share": []}, {"share": {}}])
    def test_malformed_share_raises(self, server, rest, answer):
        server.on("GET", "/shares/a", Reply.of_json(answer))
        with pytest.raises(ProtocolError):
            rest.get_share("a")


class TestServersWithoutAllTables:
    @pytest.fixture(autouse=True)
    def listing(self, server):
        server.on(
            "GET",
            "/shares/a/schemas",
            Reply.of_json({"items": [{"name": "s1", "share": "a"}, {"name": "s2", "share": "a"}]}),
        )
        for schema in ("s1", "s2"):
            item = {"name": "t", "schema": schema, "share": "a"}
            server.on("GET", f"/shares/a/schemas/{schema}/tables", Reply.of_json({"items": [item]}))

    @pytest.mark.parametrize("status", [404, 405, 501])
    def test_each_schema_is_listed(self, server, rest, status):
        server.on("GET", "/shares/a/all-tables", Reply(status=status))
        assert [table.schema for table in rest.list_all_tables("a")] == ["s1", "s2"]

    def test_a_share_that_does_not_exist_is_reported_as_such(self, server, rest):
        with pytest.raises(NotFoundError, match="share nope"):
            list(rest.list_all_tables("nope"))
        paths = ["/shares/nope/all-tables", "/shares/nope/schemas", "/shares"]
        assert [request.path for request in server.requests] == paths

    @pytest.mark.parametrize(
        ("status", "kind"), [(400, BadRequestError), (401, AuthenticationError), (403, ForbiddenError)]
    )
    def test_other_statuses_are_raised(self, server, rest, status, kind):
        server.on("GET", "/shares/a/all-tables", Reply(status=status))
        with pytest.raises(kind):
            list(rest.list_all_tables("a"))

    def test_an_error_on_a_later_page_is_raised(self, server, rest):
        item = {"name": "t", "schema": "s1", "share": "a"}
        server.on(
            "GET",
            "/shares/a/all-tables",
            Reply.of_json({"items": [item], "nextPageToken": "1"}),
            Reply.of_json({"errorCode": "GONE", "message": "no such page"}, status=404),
        )
        tables = rest.list_all_tables("a")
        assert next(tables).name == "t"
        with pytest.raises(NotFoundError):
            next(tables)


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "kind", "hint"),
        [
            (400, BadRequestError, ""),
            (401, AuthenticationError, "ask the provider for a new profile"),
            (403, ForbiddenError, "ask the provider for access"),
            (404, NotFoundError, "Check the endpoint"),
            (405, RestError, ""),
            (409, RestError, ""),
            (418, RestError, ""),
            (501, ServerError, ""),
        ],
    )
    def test_each_status_has_its_class_and_hint_and_is_not_retried(self, server, rest, status, kind, hint):
        server.on("GET", "*", Reply.of_json({"errorCode": "SOME_CODE", "message": "some words"}, status=status))
        with pytest.raises(kind) as caught:
            rest.get_share("a")
        error = caught.value
        assert type(error) is kind
        assert (error.status, error.error_code, error.server_message) == (status, "SOME_CODE", "some words")
        assert f"share a: the sharing server answered {status} (SOME_CODE: some words)" in str(error)
        assert hint in str(error)
        assert len(server.seen("/shares/a")) == 1

    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    def test_retryable_statuses_are_retried(self, server, rest, status):
        server.on("GET", "*", Reply(status=status), Reply(status=status), Reply.of_json({"share": SHARE}))
        assert rest.get_share("a").name == "a"
        assert len(server.requests) == 3

    @pytest.mark.parametrize(
        ("status", "kind"), [(408, RestError), (429, RateLimitError), (500, ServerError), (503, ServerError)]
    )
    def test_retryable_statuses_are_raised_after_six_attempts(self, server, rest, status, kind):
        server.on("GET", "*", Reply(status=status, body=b"busy"))
        with pytest.raises(kind, match=r"busy.*gave up after 6 attempts over") as caught:
            rest.get_share("a")
        assert caught.value.status == status
        assert len(server.requests) == 6

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.protocol("Retry-After")
    def test_retry_after_is_honoured(self, server, rest, clock, status):
        server.on("GET", "*", Reply(status=status, headers={"Retry-After": "31"}), Reply.of_json({"share": SHARE}))
        rest.get_share("a")
        assert clock.slept == [31]

    def test_a_retry_after_past_the_deadline(self, server, rest, clock):
        server.on("GET", "*", Reply(status=429, headers={"Retry-After": "3600"}))
        with pytest.raises(RateLimitError, match="the server asks to wait 3600 s"):
            rest.get_share("a")
        assert clock.slept == []

    def test_the_hint_of_a_401_names_the_expiration_time(self, server, clock):
        profile = Profile.from_dict({**server.profile, "expirationTime": "2021-11-12T00:12:29Z"}, "x.share")
        server.on("GET", "*", Reply(status=401))
        with pytest.raises(AuthenticationError, match="expirationTime is 2021-11-12T00:12:29Z"):
            RestClient(profile).get_share("a")

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", None),
            (b"gateway down", "gateway down"),
            (b"<html><style>p {}</style><script>x()</script><h1>502</h1>\n<p>Bad  gateway</p>", "502 Bad gateway"),
            (b"x" * 100_000, cut("x" * 65_536, 200)),
            (b"\xff\x00\x1b[31mred", "\ufffd\\x00\\x1b[31mred"),
            (b'{"message": "only words"}', "only words"),
            (b'{"error_code": "C", "message": null}', None),
            (b'{"errorCode": "C", "message": {"a": 1}}', "{'a': 1}"),
            (b"[" * 100_000, cut("[" * 65_536, 200)),
        ],
    )
    def test_bodies_of_errors(self, server, rest, body, message):
        server.on("GET", "*", Reply(status=400, body=body))
        with pytest.raises(BadRequestError) as caught:
            rest.get_share("a")
        assert caught.value.server_message == message
        assert caught.value.__cause__ is None

    @pytest.mark.parametrize(("status", "kind"), [(401, AuthenticationError), (403, ForbiddenError)])
    @pytest.mark.parametrize(
        "reply",
        [
            Reply(body=b""),
            Reply(body=b"401 Unauthorized", headers={"Content-Type": "text/plain"}),
            Reply(body=b"<html><h1>Forbidden</h1></html>"),
            Reply(body=b'["no"]'),
            Reply(body=b"null"),
            Reply(body=b'{"message": 1e999999999, "errorCode": "\\ud800"}'),
            Reply(body=b"\xff\xfe\x00"),
            Reply(body=b"no gzip", headers={"Content-Encoding": "gzip"}),
            Reply(body=b'{"message": "cut"}', cut_at=5),
        ],
    )
    def test_refused_token_is_reported_with_any_body(self, server, rest, reply, status, kind):
        server.on("*", "*", reply.but(status=status))
        table = Table("t", "sh", "sc")
        for ask in (
            lambda: list(rest.list_shares()),
            lambda: rest.table_version(table),
            lambda: rest.table_metadata(table),
            lambda: rest.query_table(table, QueryRequest(limit_hint=1)),
            lambda: rest.table_changes(table, ChangesRequest(starting_version=0)),
        ):
            with pytest.raises(kind) as caught:
                ask()
            assert caught.value.status == status
            str(caught.value).encode()
        assert len(server.requests) == 5

    def test_no_secret_comes_back_in_an_error(self, server, rest):
        token = server.profile["bearerToken"]
        text = f"bad token {token}; see https://bucket/x?X-Amz-Signature=canary-signature and Bearer {token}"
        for body in (text.encode(), b'{"message": "%s"}' % text.encode()):
            server.on("GET", "*", Reply(status=403, body=body))
            with pytest.raises(ForbiddenError) as caught:
                rest.get_share("a")
            shown = str(caught.value) + repr(caught.value) + str(caught.value.__dict__)
            assert token not in shown
            assert "canary" not in shown

    @pytest.mark.parametrize(
        "fault",
        [
            Reply(drop=True),
            Reply.of_json({"share": SHARE}, cut_at=5),
            Reply.of_json({"share": SHARE}, cut_at=5, chunk=3),
            Reply.of_json({"share": SHARE}, cut_at=5, ending="reset"),
            Reply(raw=b"nonsense\r\n\r\n"),
        ],
    )
    def test_faults_of_the_connection_are_retried(self, server, rest, fault):
        server.on("GET", "*", fault, fault, Reply.of_json({"share": SHARE}))
        assert rest.get_share("a").name == "a"
        assert len(server.requests) == 3

    @pytest.mark.parametrize(
        ("fault", "kind"),
        [(Reply(drop=True), TransportError), (Reply.of_json({"share": SHARE}, cut_at=5), IncompleteResponseError)],
    )
    def test_faults_of_the_connection_are_raised_after_the_retries(self, server, rest, fault, kind):
        server.on("GET", "*", fault)
        with pytest.raises(kind, match="gave up after 6 attempts"):
            rest.get_share("a")


class TestWithoutSockets:
    """The same client on the `responses` library, as users may test theirs."""

    @responses.activate
    def test_answers_can_be_mocked(self):
        responses.get("https://sharing.example/x/shares", json={"items": [SHARE]})
        profile = Profile.from_dict(
            {"shareCredentialsVersion": 1, "endpoint": "https://sharing.example/x/", "bearerToken": "t"}
        )
        with RestClient(profile) as rest:
            assert [share.name for share in rest.list_shares()] == ["a"]
        assert responses.calls[0].request.headers["Authorization"] == "Bearer t"

    @responses.activate
    def test_errors_can_be_mocked(self):
        responses.get("https://sharing.example/shares", body=ConnectionResetError(104, "Connection reset by peer"))
        profile = Profile.from_dict(
            {"shareCredentialsVersion": 1, "endpoint": "https://sharing.example", "bearerToken": "t"}
        )
        rest = RestClient(profile, retrier=Retrier(TransportOptions(), sleep=lambda seconds: None))
        with pytest.raises(DeltaSharingError, match="connection reset by peer"):
            list(rest.list_shares())
        assert len(responses.calls) == 6


def test_the_client_shows_no_secret(server, rest):
    assert server.profile["bearerToken"] not in repr(rest)
    assert server.url in repr(rest)
