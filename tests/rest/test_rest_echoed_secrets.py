"""A server that repeats the token in its errors: the message is shown, the token is redacted."""

from __future__ import annotations

import pytest
from faults.server import Reply

from delta_sharing_client.errors import BadRequestError, QueryError
from delta_sharing_client.model.names import Table
from delta_sharing_client.wire.requests import QueryRequest

TABLE = Table("t", "share", "schema")


def token_of(rest):
    return rest.profile.bearer_token.reveal()


def test_error_code_is_redacted(rest, server):
    token = token_of(rest)
    server.on("GET", "*", Reply.of_json({"errorCode": f"BAD_{token}", "message": f"no {token} here"}, status=400))
    with pytest.raises(BadRequestError, match="no ") as caught:
        rest.table_version(TABLE)
    assert token not in str(caught.value)
    assert token not in repr(vars(caught.value))


def test_error_in_the_end_of_an_answer_is_redacted(rest, server):
    token = token_of(rest)
    server.on("POST", "*", Reply.of_lines({"endStreamAction": {"errorMessage": f"failed for {token}"}}))
    with pytest.raises(QueryError, match="failed for") as caught:
        rest.query_table(TABLE, QueryRequest())
    assert token not in str(caught.value)
    assert token not in repr(vars(caught.value))
