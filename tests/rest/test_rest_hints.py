"""A query that is refused with hints is repeated without them."""

import pytest
from faults.server import Reply
from msgspec.structs import replace
from test_rest_tables import QUERY, TABLE, add, ids, page

from delta_sharing_client.errors import BadRequestError, NotFoundError, QueryError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.wire.requests import QueryRequest

HINTS = {
    "predicateHints": ("canary = 1",),
    "jsonPredicateHints": '{"op": "canary"}',
    "limitHint": 5,
}
FIELDS = {
    "predicateHints": "predicate_hints",
    "jsonPredicateHints": "json_predicate_hints",
    "limitHint": "limit_hint",
}


def hinted(*names, **changes):
    return QueryRequest(**{FIELDS[name]: HINTS[name] for name in names or HINTS}, **changes)


def refusal(message="too new for Standalone"):
    return Reply.of_json({"errorCode": "UNSUPPORTED_OPERATION", "message": message}, status=400)


@pytest.mark.parametrize("name", list(HINTS))
@pytest.mark.protocol("jsonPredicateHints", "predicateHints")
def test_query_is_repeated_without_any_kind_of_hint(server, rest, name):
    server.on("POST", QUERY, refusal(), page(add(1)))
    request = hinted(name, version=7)
    answer = rest.query_table(TABLE, request)
    assert ids(answer) == ["f1"]
    first, second = (sent.json() for sent in server.requests)
    assert first.keys() == {name, "version"}
    assert second == {"version": 7}
    assert answer.request == QueryRequest(version=7, formats=("parquet",))


def test_all_hints_are_left_out_together(server, rest):
    server.on("POST", QUERY, refusal(), page(add(1)))
    rest.query_table(TABLE, hinted(include_refresh_token=True, max_files=3))
    assert server.requests[0].json().keys() == {*HINTS, "includeRefreshToken", "maxFiles"}
    assert server.requests[1].json() == {"includeRefreshToken": True, "maxFiles": 3}


def test_answer_holds_the_request_without_hints(server, rest):
    server.on("POST", QUERY, page(add(1)))
    request = hinted()
    # The same files are asked for again in the format of the answer: their ids depend on it.
    assert rest.query_table(TABLE, request).request == replace(request, formats=("parquet",))


def test_later_pages_have_no_hints(server, rest):
    server.on("POST", QUERY, refusal(), page(add(1), token="t1"), page(add(2)))
    assert ids(rest.query_table(TABLE, hinted())) == ["f1", "f2"]
    assert server.requests[2].json() == {"pageToken": "t1"}


def test_error_within_the_answer_repeats_the_query(server, rest):
    end = {"endStreamAction": {"errorMessage": "no such hint", "httpStatusErrorCode": 400}}
    server.on("POST", QUERY, Reply.of_lines(end), page(add(1)))
    assert ids(rest.query_table(TABLE, hinted())) == ["f1"]


def test_the_error_is_that_of_the_query_without_hints(server, rest):
    server.on("POST", QUERY, refusal("one"), refusal("two"))
    with pytest.raises(BadRequestError, match="two") as caught:
        rest.query_table(TABLE, hinted())
    assert len(server.requests) == 2
    assert caught.value.__context__ is None


def test_refusal_without_hints_raises_at_once(server, rest):
    server.on("POST", QUERY, refusal())
    with pytest.raises(BadRequestError, match="too new"):
        rest.query_table(TABLE, QueryRequest(version=7))
    assert len(server.requests) == 1


def test_other_statuses_do_not_repeat_the_query(server, rest):
    server.on("POST", QUERY, Reply(status=404))
    with pytest.raises(NotFoundError):
        rest.query_table(TABLE, hinted())
    assert len(server.seen(QUERY)) == 1


def test_query_errors_of_other_statuses_raise(server, rest):
    end = {"endStreamAction": {"errorMessage": "no warehouse"}}
    server.on("POST", QUERY, Reply.of_lines(end))
    with pytest.raises(QueryError, match="no warehouse"):
        rest.query_table(TABLE, hinted())
    assert len(server.requests) == 1


def test_refused_later_page_raises(server, rest):
    server.on("POST", QUERY, page(add(1), token="t1"), refusal("the token is too old"))
    with pytest.raises(BadRequestError, match="too old"):
        rest.query_table(TABLE, hinted())
    assert len(server.requests) == 2


def test_refused_renewal_raises(server, rest):
    server.on("POST", QUERY, refusal("the token is too old"))
    with pytest.raises(BadRequestError, match="too old"):
        rest.query_table(TABLE, hinted(refresh_token="r"))
    assert len(server.requests) == 1


def test_repetition_is_logged_without_the_hints(server, rest, caplog):
    server.on("POST", QUERY, refusal(), page(add(1)))
    rest.query_table(TABLE, hinted())
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.name.startswith("delta_sharing_client.")
    assert TABLE.full_name in record.getMessage()
    assert "too new for Standalone" in record.getMessage()
    assert "canary" not in record.getMessage()


class TestAsynchronously:
    @pytest.fixture
    def options(self):
        return TransportOptions(asynchronous_queries=True)

    def test_repeated_query_has_a_new_idempotency_key(self, server, rest):
        server.on("POST", QUERY, refusal(), page(add(1)))
        rest.query_table(TABLE, hinted())
        first, second = (sent.json() for sent in server.requests)
        assert second.keys() == {"idempotencyKey"}
        assert second != {"idempotencyKey": first["idempotencyKey"]}

    def test_pending_query_may_be_refused(self, server, rest):
        capable = {"delta-sharing-capabilities": "asyncquery=true"}
        server.on("POST", QUERY, Reply.of_lines({"queryStatus": {"queryId": "q"}}, headers=capable), page(add(1)))
        server.on("POST", QUERY.replace("/query", "/queries/q"), refusal())
        assert ids(rest.query_table(TABLE, hinted())) == ["f1"]

    def test_server_that_refuses_hints_and_asynchronous_queries(self, server, rest):
        status = Reply.of_lines({"queryStatus": {"queryId": "q"}})
        server.on("POST", QUERY, refusal(), status, page(add(1)))
        assert ids(rest.query_table(TABLE, hinted())) == ["f1"]
        assert server.requests[2].json() == {}
