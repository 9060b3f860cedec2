"""Asynchronous queries: polling, pages, unannounced answers, failures."""

import re
from datetime import timedelta

import pytest
from faults.server import Reply
from test_rest_tables import QUERY, TABLE, add, ids, page

from delta_sharing_client.errors import NotFoundError, ProtocolError, QueryError, ServerError, VersionMismatchError
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.transport.retry import Retrier
from delta_sharing_client.wire.requests import QueryRequest, VersionsRequest

POLL = QUERY.replace("/query", "/queries/q-1")


#: The capabilities header of a server that announces asynchronous answers.
CAPABLE = {"delta-sharing-capabilities": "responseformat=parquet;includeendstreamaction=true;AsyncQuery=True"}


@pytest.fixture
def options():
    return TransportOptions(asynchronous_queries=True)


def pending(**fields):
    status = {"queryStatus": {"queryId": "q-1", **fields}}
    return Reply.of_lines(status, headers={"Delta-Table-Version": "0", **CAPABLE})


class TestTheRequests:
    @pytest.mark.protocol("POST .../tables/{table}/queries/{queryId}", "asyncquery", "queryStatus")
    def test_query_is_polled_until_it_is_answered(self, server, rest, clock):
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, pending(status="pending"), pending(status="RUNNING"), page(add(1), add(2)))
        answer = rest.query_table(TABLE, QueryRequest(limit_hint=5))
        assert ids(answer) == ["f1", "f2"]
        assert answer.version == 7
        first, *polls = server.requests
        assert [request.path for request in polls] == [POLL] * 3
        assert [request.json() for request in polls] == [{}] * 3
        assert first.json()["limitHint"] == 5
        for request in server.requests:
            assert request.headers["delta-sharing-capabilities"].endswith(";asyncquery=true")
        assert clock.slept == [0.5, 0.75, 1.125]

    def test_waits_grow_to_ten_seconds(self, server, rest, clock):
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, *[pending()] * 12, page(add(1)))
        rest.query_table(TABLE, QueryRequest())
        assert clock.slept == sorted(clock.slept)
        assert clock.slept[-1] == 10

    @pytest.mark.protocol("Retry-After")
    def test_retry_after_is_the_shortest_wait(self, server, rest, clock):
        server.on("POST", QUERY, pending().but(headers={**CAPABLE, "Retry-After": "7"}))
        server.on("POST", POLL, page(add(1)))
        rest.query_table(TABLE, QueryRequest())
        assert clock.slept == [7]

    @pytest.mark.protocol("idempotencyKey")
    def test_retries_share_an_idempotency_key_and_queries_do_not(self, server, rest):
        server.on("POST", QUERY, Reply(status=503), Reply(drop=True), pending(), pending())
        server.on("POST", POLL, page(add(1)))
        rest.query_table(TABLE, QueryRequest())
        rest.query_table(TABLE, QueryRequest())
        keys = [request.json()["idempotencyKey"] for request in server.seen(QUERY)]
        assert len(keys) == 4
        assert len(set(keys[:3])) == 1
        assert len(set(keys)) == 2

    def test_pages_are_requested_by_query_id(self, server, rest):
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, page(add(1), token="t1"), pending(), page(add(2)))
        answer = rest.query_table(TABLE, QueryRequest(max_files=1, include_refresh_token=True))
        assert ids(answer) == ["f1", "f2"]
        bodies = [request.json() for request in server.seen(POLL)]
        assert bodies == [{"maxFiles": 1}, *[{"maxFiles": 1, "pageToken": "t1"}] * 2]

    def test_files_of_versions_are_queried_asynchronously(self, server, rest):
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, page(add(1, version=7, timestamp=1)))
        assert ids(rest.table_changes(TABLE, VersionsRequest(starting_version=7))) == ["f1"]

    def test_answer_for_another_version_is_refused(self, server, rest):
        """As of a server that forgets the version while it prepares the answer."""
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, page(add(1), version=9))
        with pytest.raises(VersionMismatchError):
            rest.query_table(TABLE, QueryRequest(version=3))

    def test_later_page_may_be_pending(self, server, rest):
        server.on("POST", QUERY, page(add(1), token="t1"), pending())
        server.on("POST", POLL, page(add(2)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1", "f2"]
        first, second = (request.json() for request in server.seen(QUERY))
        assert second == {"idempotencyKey": first["idempotencyKey"], "pageToken": "t1"}
        assert server.seen(POLL)[0].json() == {"pageToken": "t1"}

    def test_polls_are_retried(self, server, rest):
        server.on("POST", QUERY, pending())
        cut = page(add(1), add(2))
        server.on("POST", POLL, Reply(status=502), Reply(drop=True), cut.but(cut_at=90), page(add(1)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]
        assert len(server.seen(POLL)) == 4

    def test_query_id_is_one_path_segment(self, server, rest):
        server.on("POST", QUERY, Reply.of_lines({"queryStatus": {"queryId": "a/../b?c"}}, headers=CAPABLE))
        server.on("POST", re.compile("/queries/a%2F..%2Fb%3Fc$"), page(add(1)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]

    def test_lines_after_the_status_are_ignored(self, server, rest):
        more = Reply.of_lines({"queryStatus": {"queryId": "q-1"}}, {"endStreamAction": {}})
        server.on("POST", QUERY, pending().but(body=b"\n" + more.body))
        server.on("POST", POLL, page(add(1)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]


def unannounced(**fields):
    """The status of a server that does not announce asynchronous answers, and ignores the fields of the query."""
    status = {"queryStatus": {"queryId": "q-1", **fields}}
    return Reply.of_lines(status, headers={"delta-sharing-capabilities": "responseformat=parquet"})


class TestNotAsked:
    @pytest.fixture
    def options(self):
        return TransportOptions()

    @pytest.mark.parametrize("of_versions", [False, True])
    @pytest.mark.protocol("asyncquery")
    def test_asynchronous_fields_are_not_sent_by_default(self, server, rest, of_versions):
        server.on("POST", QUERY, page(add(1)))
        if of_versions:
            rest.table_changes(TABLE, VersionsRequest(starting_version=7))
        else:
            rest.query_table(TABLE, QueryRequest())
        (request,) = server.requests
        assert "asyncquery" not in request.headers["delta-sharing-capabilities"]
        assert "idempotencyKey" not in request.json()

    @pytest.mark.parametrize("fields", [{}, {"status": "failed", "message": "no warehouse"}])
    def test_an_asynchronous_answer_that_is_not_announced_is_an_error(self, server, rest, fields):
        server.on("POST", QUERY, unannounced(**fields))
        with pytest.raises(ProtocolError, match=r"answers asynchronously.* asyncquery=true"):
            rest.query_table(TABLE, QueryRequest())
        assert len(server.requests) == 1

    def test_announced_asynchronous_answer_is_awaited(self, server, rest):
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, page(add(1)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]
        for request in server.requests:
            assert "asyncquery" not in request.headers["delta-sharing-capabilities"]


class TestUnannounced:
    """The option is on, and the server answers asynchronously without saying that it can."""

    @pytest.mark.parametrize("fields", [{}, {"status": "failed", "message": "no warehouse"}])
    def test_query_is_repeated_synchronously(self, server, rest, fields):
        server.on("POST", QUERY, unannounced(**fields), page(add(1), version=3))
        request = QueryRequest(version=3, json_predicate_hints="{}", limit_hint=4)
        assert ids(rest.query_table(TABLE, request)) == ["f1"]
        first, second = server.requests
        assert first.headers["delta-sharing-capabilities"].endswith(";asyncquery=true")
        assert "asyncquery" not in second.headers["delta-sharing-capabilities"]
        assert second.json() == {"version": 3, "jsonPredicateHints": "{}", "limitHint": 4}
        assert first.json() == {**second.json(), "idempotencyKey": first.json()["idempotencyKey"]}

    def test_later_pages_are_requested_synchronously(self, server, rest):
        server.on("POST", QUERY, unannounced(), page(add(1), token="t1"), page(add(2)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1", "f2"]
        assert [request.json().keys() for request in server.requests[1:]] == [set(), {"pageToken"}]

    def test_later_page_may_be_the_first_asynchronous_one(self, server, rest):
        server.on("POST", QUERY, page(add(1), token="t1"), unannounced(), page(add(2)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1", "f2"]
        assert server.requests[2].json() == {"pageToken": "t1"}

    def test_second_unannounced_status_raises(self, server, rest):
        server.on("POST", QUERY, unannounced())
        with pytest.raises(ProtocolError, match="answers asynchronously") as caught:
            rest.query_table(TABLE, QueryRequest())
        assert len(server.requests) == 2
        assert caught.value.__context__ is None

    def test_files_of_versions_are_repeated_synchronously(self, server, rest):
        server.on("POST", QUERY, unannounced(), page(add(1, version=7, timestamp=1)))
        assert ids(rest.table_changes(TABLE, VersionsRequest(starting_version=7))) == ["f1"]
        first, second = server.requests
        assert second.json() == {"startingVersion": 7}
        assert first.json().keys() == {"startingVersion", "idempotencyKey"}

    def test_repetition_is_logged(self, server, rest, caplog):
        server.on("POST", QUERY, unannounced(), page(add(1)))
        rest.query_table(TABLE, QueryRequest())
        (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert record.name.startswith("delta_sharing_client.")
        assert "repeating the query synchronously" in record.getMessage()


class TestFailures:
    @pytest.mark.parametrize(
        "status",
        [
            {"status": "failed", "message": "no warehouse"},
            {"status": "FAILED", "errorMessage": "no warehouse"},
            {"status": "failed", "error": {"code": "X", "message": "no warehouse"}},
            {"errorMessage": "no warehouse"},
            {"message": "no warehouse"},
            {"status": "canceled", "statusMessage": "no warehouse"},
        ],
    )
    @pytest.mark.parametrize("when", ["at once", "later"])
    def test_failed_query_raises(self, server, rest, status, when):
        server.on("POST", QUERY, pending(**status) if when == "at once" else pending())
        server.on("POST", POLL, pending(**status))
        with pytest.raises(QueryError, match="no warehouse") as caught:
            rest.query_table(TABLE, QueryRequest())
        assert "share.schema" in str(caught.value) or TABLE.full_name in str(caught.value)
        assert len(server.requests) == (1 if when == "at once" else 2)

    def test_failure_without_a_reason_raises(self, server, rest):
        server.on("POST", QUERY, pending(status="failed"))
        with pytest.raises(QueryError, match="FAILED, without a reason"):
            rest.query_table(TABLE, QueryRequest())

    def test_a_secret_in_the_reason_does_not_show(self, server, rest):
        token = rest.profile.bearer_token.reveal()
        server.on("POST", QUERY, pending(status="failed", message=f"for {token}: https://h/p?sig=canary-sig"))
        with pytest.raises(QueryError) as caught:
            rest.query_table(TABLE, QueryRequest())
        assert "canary" not in str(caught.value)

    def test_query_that_stays_pending_raises(self, server, clock):
        options = TransportOptions(asynchronous_queries=True, query_deadline=timedelta(seconds=60))
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, pending())
        retrier = Retrier(options, clock=clock, sleep=clock.sleep)
        with (
            RestClient(Profile.from_dict(server.profile), options, retrier=retrier) as rest,
            pytest.raises(QueryError, match=r"q-1 is still pending after 60 s; raise .*query_deadline"),
        ):
            rest.query_table(TABLE, QueryRequest())
        assert clock.now == pytest.approx(60)

    def test_retry_after_past_the_deadline_is_cut(self, server, rest, clock):
        server.on("POST", QUERY, pending().but(headers={**CAPABLE, "Retry-After": "100000"}))
        server.on("POST", POLL, pending())
        with pytest.raises(QueryError, match="still pending after 600 s"):
            rest.query_table(TABLE, QueryRequest())
        assert clock.now == pytest.approx(600)

    def test_unknown_query_id_raises(self, server, rest):
        server.on("POST", QUERY, pending())
        server.on("GET", QUERY.removesuffix("/t/query"), Reply.of_json({"items": [{"name": "T"}]}))
        with pytest.raises(NotFoundError, match="run it again"):
            rest.query_table(TABLE, QueryRequest())
        assert [request.method for request in server.requests] == ["POST", "POST", "GET"]

    def test_server_error_while_polling_raises(self, server, rest):
        server.on("POST", QUERY, pending())
        server.on("POST", POLL, Reply(status=500))
        with pytest.raises(ServerError):
            rest.query_table(TABLE, QueryRequest())

    @pytest.mark.parametrize("name", [None, "", ".", "..", 7, ["q"], "x" * 2000])
    def test_a_status_without_a_usable_query_id(self, server, rest, name):
        server.on("POST", QUERY, Reply.of_lines({"queryStatus": {"queryId": name}}, headers=CAPABLE))
        with pytest.raises(ProtocolError, match="queryId"):
            rest.query_table(TABLE, QueryRequest())
        assert len(server.requests) == 1

    @pytest.mark.parametrize("status", [None, [], "pending", 1])
    def test_malformed_status_raises(self, server, rest, status):
        server.on("POST", QUERY, Reply.of_lines({"queryStatus": status}))
        with pytest.raises(ProtocolError):
            rest.query_table(TABLE, QueryRequest())

    def test_a_status_in_the_middle_of_an_answer(self, server, rest):
        lines = page(add(1)).body.splitlines()
        body = b"\n".join([*lines[:-1], b'{"queryStatus": {"queryId": "q"}}', lines[-1]])
        server.on("POST", QUERY, page().but(body=body))
        with pytest.raises(ProtocolError, match="asynchronously"):
            rest.query_table(TABLE, QueryRequest())

    def test_other_endpoints_do_not_offer_it(self, server, rest):
        server.on("GET", "*", pending())
        with pytest.raises(ProtocolError, match="asynchronously"):
            rest.table_metadata(TABLE)
        assert "asyncquery" not in server.requests[0].headers["delta-sharing-capabilities"]
