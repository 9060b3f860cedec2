"""Versions, metadata, snapshots and changes of tables: pages, retries, malformed answers."""

import gzip
import json
import re
import time
from datetime import UTC, date, datetime

import pytest
from faults.server import Reply

from delta_sharing_client.errors import (
    BadRequestError,
    IncompleteResponseError,
    NotFoundError,
    ProtocolError,
    QueryError,
    RequestTimeoutError,
    ResponseFormatError,
    ServerError,
    VersionMismatchError,
)
from delta_sharing_client.model.actions import AddFile, CdcFile, RemoveFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

TABLE = Table("t", "sh", "sc")
PATH = "/shares/sh/schemas/sc/tables/t"
QUERY = PATH + "/query"
CHANGES = PATH + "/changes"

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
)
PROTOCOL = {"protocol": {"minReaderVersion": 1}}
METADATA = {
    "metaData": {"id": "m", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "partitionColumns": []}
}
DELTA_PROTOCOL = {
    "protocol": {"deltaProtocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}}
}
DELTA_METADATA = {"metaData": {"deltaMetadata": METADATA["metaData"]}}
END = {"endStreamAction": {}}
PROMISED = {
    "Delta-Table-Version": "7",
    "delta-sharing-capabilities": "responseformat=parquet;includeendstreamaction=true",
}


def add(number, **changes):
    item = {
        "url": f"https://store/{number}?sig=canary-{number}",
        "id": f"f{number}",
        "partitionValues": {},
        "size": 10,
    }
    return {"file": {**item, **changes}}


def delta_add(number, *, vector=None, **changes):
    inner = {"path": f"https://store/{number}?sig=x", "partitionValues": {}, "size": 10, "dataChange": True}
    if vector is not None:
        inner["deletionVector"] = {
            "storageType": "p",
            "pathOrInlineDv": f"https://store/dv?sig={vector}",
            "sizeInBytes": 40,
            "cardinality": vector,
            "offset": 1,
        }
    inner.update(changes)
    file = {"id": f"f{number}", "deltaSingleAction": {"add": inner}}
    if vector is not None:
        file["deletionVectorFileId"] = f"dv{vector}"
    return {"file": file}


def page(*lines, token=None, version=7, expires=None, **changes):
    end = {"nextPageToken": token, "minUrlExpirationTimestamp": expires}
    headers = {**PROMISED, "Delta-Table-Version": str(version)}
    return Reply.of_lines(PROTOCOL, METADATA, *lines, {"endStreamAction": end}, headers=headers, **changes)


def ids(answer):
    return [item.id for item in answer.items]


class TestVersion:
    def test_version_is_read_from_the_header(self, server, rest):
        server.on("GET", PATH + "/version", Reply(headers={"Delta-Table-Version": "123"}))
        assert rest.table_version(TABLE) == 123

    @pytest.mark.parametrize(
        ("given", "sent"),
        [
            ("2022-01-01T00:00:00Z", "2022-01-01T00:00:00Z"),
            (datetime(2022, 1, 1, 2, tzinfo=UTC), "2022-01-01T02:00:00Z"),
            (date(2022, 1, 1), "2022-01-01T00:00:00Z"),
        ],
    )
    def test_a_starting_timestamp(self, server, rest, given, sent):
        server.on("GET", PATH + "/version", Reply(headers={"Delta-Table-Version": "0"}))
        assert rest.table_version(TABLE, given) == 0
        assert server.requests[0].query == {"startingTimestamp": sent}

    @pytest.mark.parametrize("value", [None, "", "-1", "1.0", "x", "²", "9" * 30])
    def test_missing_or_malformed_version_header_raises(self, server, rest, value):
        headers = {} if value is None else {"Delta-Table-Version": value.encode().decode("latin-1")}
        server.on("GET", PATH + "/version", Reply(headers=headers))
        with pytest.raises(ProtocolError, match="Delta-Table-Version"):
            rest.table_version(TABLE)

    @pytest.mark.parametrize("status", [404, 405, 501])
    @pytest.mark.protocol("HEAD .../tables/{table}")
    def test_old_servers_answer_head(self, server, rest, status):
        server.on("GET", PATH + "/version", Reply(status=status))
        server.on("HEAD", PATH, Reply(headers={"delta-table-version": "5"}))
        assert rest.table_version(TABLE) == 5

    def test_head_request_is_not_used_for_a_starting_timestamp(self, server, rest):
        with pytest.raises(NotFoundError):
            rest.table_version(TABLE, "2022-01-01T00:00:00Z")
        assert "HEAD" not in [request.method for request in server.requests]

    @pytest.mark.parametrize("head", [Reply(status=404), Reply(status=405), Reply(status=401), Reply()])
    def test_missing_table_raises(self, server, rest, head):
        server.on(
            "GET", PATH + "/version", Reply.of_json({"errorCode": "NO", "message": "no such table"}, status=404)
        )
        server.on("HEAD", PATH, head)
        server.on("GET", PATH.removesuffix("/t"), Reply.of_json({"items": [{"name": "u"}]}))
        with pytest.raises(NotFoundError, match=r"table sh\.sc\.t: .*no such table.*list_all_tables\(\)"):
            rest.table_version(TABLE)

    def test_bad_request_is_not_retried(self, server, rest):
        server.on("GET", PATH + "/version", Reply(status=400))
        with pytest.raises(BadRequestError):
            rest.table_version(TABLE)
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("send", "request_and_remedy"),
        [
            (
                lambda rest: rest.table_version(TABLE, "2030-01-01"),
                "at or after 2030-01-01T00:00:00Z was requested: request an earlier time",
            ),
            (
                lambda rest: rest.table_metadata(TABLE, version=999),
                r"Version 999 was requested: leave the version out .*; else request a version up to",
            ),
            (
                lambda rest: rest.query_table(TABLE, QueryRequest(timestamp="2030-01-01")),
                "The version at 2030-01-01T00:00:00Z was requested: request a time from",
            ),
            (
                lambda rest: rest.table_changes(TABLE, ChangesRequest(starting_version=3, ending_version=7)),
                "The changes from version 3 to version 7 were requested: .* and to enable its change data feed",
            ),
            (
                lambda rest: rest.table_changes(TABLE, ChangesRequest(starting_timestamp="2030-01-01")),
                "The changes from 2030-01-01T00:00:00Z to the latest version were requested: ",
            ),
            (
                lambda rest: rest.table_changes(TABLE, VersionsRequest(starting_version=3)),
                "from version 3 to the latest version were requested: .* share the table with its history",
            ),
        ],
    )
    def test_bad_request_has_the_request_and_the_remedy(self, server, rest, send, request_and_remedy):
        server.on("*", "*", Reply(status=400))
        with pytest.raises(BadRequestError, match=request_and_remedy) as caught:
            send(rest)
        assert caught.value.subject == "table sh.sc.t"


class TestMetadata:
    @pytest.mark.protocol("GET .../tables/{table}/metadata", "protocol", "metaData")
    def test_metadata_in_parquet_format(self, server, rest):
        server.on(
            "GET", PATH + "/metadata", Reply.of_lines(PROTOCOL, METADATA, headers={"Delta-Table-Version": "3"})
        )
        info = rest.table_metadata(TABLE)
        assert (info.version, info.metadata.id, info.protocol.response_format) == (3, "m", "parquet")
        (request,) = server.requests
        assert request.query == {}
        capabilities = request.headers["delta-sharing-capabilities"]
        assert "responseformat=delta,parquet" in capabilities
        assert "includeendstreamaction=true" in capabilities

    @pytest.mark.protocol("protocol", "metaData")
    def test_metadata_in_delta_format(self, server, rest):
        server.on("GET", PATH + "/metadata", Reply.of_lines(DELTA_PROTOCOL, DELTA_METADATA, END))
        info = rest.table_metadata(TABLE, ("delta",))
        assert info.version is None
        assert info.protocol.response_format == "delta"

    def test_time_travel(self, server, rest):
        server.on("GET", PATH + "/metadata", Reply.of_lines(PROTOCOL, METADATA))
        rest.table_metadata(TABLE, version=0)
        rest.table_metadata(TABLE, timestamp="2022-01-01T00:00:00Z")
        assert [request.query for request in server.requests] == [
            {"version": "0"},
            {"timestamp": "2022-01-01T00:00:00Z"},
        ]
        with pytest.raises(ValueError, match="together"):
            rest.table_metadata(TABLE, version=1, timestamp="x")
        with pytest.raises(ValueError, match="version"):
            rest.table_metadata(TABLE, version=-1)

    def test_delta_answer_to_a_parquet_request_raises(self, server, rest):
        server.on("GET", PATH + "/metadata", Reply.of_lines(DELTA_PROTOCOL, DELTA_METADATA))
        with pytest.raises(ResponseFormatError):
            rest.table_metadata(TABLE, ("parquet",))
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("lines", "kind"),
        [
            ([], IncompleteResponseError),
            ([PROTOCOL], IncompleteResponseError),
            ([PROTOCOL, END], ProtocolError),
            ([METADATA], ProtocolError),
            ([END], ProtocolError),
            ([PROTOCOL, METADATA, add(1)], ProtocolError),
            ([PROTOCOL, METADATA, END, PROTOCOL], ProtocolError),
            ([PROTOCOL, {"surprise": {}}], ProtocolError),
        ],
    )
    def test_malformed_answers_raise(self, server, rest, lines, kind):
        server.on("GET", PATH + "/metadata", Reply.of_lines(*lines))
        with pytest.raises(kind):
            rest.table_metadata(TABLE)


class TestQuery:
    @pytest.mark.protocol("file")
    def test_one_page(self, server, rest):
        server.on("POST", QUERY, page(add(1), add(2)))
        answer = rest.query_table(TABLE, QueryRequest(limit_hint=5))
        assert ids(answer) == ["f1", "f2"]
        assert all(type(item) is AddFile for item in answer.items)
        assert (answer.version, answer.metadata.id) == (7, "m")
        assert server.requests[0].json() == {"limitHint": 5}
        assert "canary" not in repr(answer)

    def test_answer_without_files(self, server, rest):
        server.on("POST", QUERY, page())
        assert rest.query_table(TABLE, QueryRequest()).items == []

    def test_a_compressed_answer(self, server, rest):
        reply = page(*(add(number) for number in range(500)))
        server.on(
            "POST",
            QUERY,
            reply.but(
                body=gzip.compress(reply.body), headers={**reply.headers, "Content-Encoding": "gzip"}, chunk=99
            ),
        )
        assert len(rest.query_table(TABLE, QueryRequest()).items) == 500

    @pytest.mark.protocol("maxFiles", "pageToken")
    def test_pages_are_followed(self, server, rest):
        server.on(
            "POST",
            QUERY,
            page(add(1), token="t1", expires=9_999_999_999_000),
            page(token="t2"),
            page(add(2), add(3), expires=9_999_999_998_000),
        )
        request = QueryRequest(max_files=1, include_refresh_token=True, predicate_hints=("a > 1",))
        answer = rest.query_table(TABLE, request)
        assert ids(answer) == ["f1", "f2", "f3"]
        assert answer.end.next_page_token is None
        assert answer.end.min_url_expiration_timestamp == 9_999_999_998_000
        first, second, third = [sent.json() for sent in server.requests]
        both = {"maxFiles": 1, "predicateHints": ["a > 1"]}
        assert first == {**both, "includeRefreshToken": True}
        assert second == {**both, "pageToken": "t1"}
        assert third["pageToken"] == "t2"

    @pytest.mark.protocol("refreshToken")
    def test_the_refresh_token_is_that_of_the_first_page(self, server, rest):
        first = Reply.of_lines(
            PROTOCOL, METADATA, add(1), {"endStreamAction": {"refreshToken": "canary-r", "nextPageToken": "t"}}
        )
        server.on("POST", QUERY, first, page(add(2)))
        answer = rest.query_table(TABLE, QueryRequest(include_refresh_token=True))
        assert answer.end.refresh_token == "canary-r"
        assert "canary" not in repr(answer)

    def test_convert_is_called_while_decoding(self, server, rest):
        server.on("POST", QUERY, page(add(1), add(2), token="t"), page(add(3)))
        calls = []

        def convert(protocol, metadata):
            calls.append((protocol.min_reader_version, metadata.id))
            return lambda files: [file_id.upper() for file_id in files.ids if file_id != "f2"]

        assert rest.query_table(TABLE, QueryRequest(), convert).items == ["F1", "F3"]
        assert calls == [(1, "m"), (1, "m")]

    def test_exception_of_convert_is_raised_unchanged(self, server, rest):
        server.on("POST", QUERY, page(add(1)))

        def convert(protocol, metadata):
            raise KeyError("mine")

        with pytest.raises(KeyError):
            rest.query_table(TABLE, QueryRequest(), convert)
        assert len(server.requests) == 1

    @pytest.mark.parametrize("token", ["same", "t1"])
    def test_number_of_pages_is_bounded(self, server, rest, token):
        server.on("POST", QUERY, page(add(1), token="t1"), page(add(2), token=token))
        with pytest.raises(ProtocolError, match="never ends"):
            rest.query_table(TABLE, QueryRequest())

    @pytest.mark.protocol("delta-table-version")
    def test_answer_for_another_version_raises(self, server, rest):
        server.on("POST", QUERY, page(add(1), version=8))
        assert rest.query_table(TABLE, QueryRequest(version=8)).version == 8
        with pytest.raises(VersionMismatchError) as caught:
            rest.query_table(TABLE, QueryRequest(version=7))
        assert (caught.value.expected, caught.value.actual) == (7, 8)

    def test_answer_without_a_version(self, server, rest):
        server.on("POST", QUERY, Reply.of_lines(PROTOCOL, METADATA, add(1)))
        assert rest.query_table(TABLE, QueryRequest(version=7)).version is None

    def test_version_change_between_pages_raises(self, server, rest):
        server.on("POST", QUERY, page(add(1), token="t", version=7), page(add(2), version=8))
        with pytest.raises(VersionMismatchError, match="moved from version 7 to 8"):
            rest.query_table(TABLE, QueryRequest())

    @pytest.mark.parametrize(
        "head",
        [
            (PROTOCOL, {"metaData": {**METADATA["metaData"], "id": "other"}}),
            (PROTOCOL, {"metaData": {**METADATA["metaData"], "configuration": {"a": "b"}}}),
            ({"protocol": {"minReaderVersion": 2}}, METADATA),
            (DELTA_PROTOCOL, DELTA_METADATA),
        ],
    )
    def test_protocol_or_metadata_change_between_pages_raises(self, server, rest, head):
        other = Reply.of_lines(*head, add(2), END)
        server.on("POST", QUERY, page(add(1), token="t"), other)
        with pytest.raises(ProtocolError, match="changed between two pages"):
            rest.query_table(TABLE, QueryRequest())

    def test_last_page_with_only_an_end_action(self, server, rest):
        server.on("POST", QUERY, page(add(1), token="t"), Reply.of_lines(END, headers=PROMISED))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]

    @pytest.mark.parametrize(
        "lines",
        [
            [END],
            [PROTOCOL, END],
            [PROTOCOL, add(1), END],
            [add(1), END],
            [METADATA, PROTOCOL, add(1), END],
            [PROTOCOL, METADATA, {"metaData": {**METADATA["metaData"], "id": "n"}}, END],
            [PROTOCOL, {"protocol": {"minReaderVersion": 2}}, METADATA, END],
            [PROTOCOL, METADATA, {"cdf": add(1)["file"]}, END],
            [PROTOCOL, METADATA, {"remove": add(1)["file"]}, END],
            [PROTOCOL, METADATA, {"queryStatus": {"queryId": "1"}}],
        ],
    )
    def test_answers_that_break_the_protocol_are_not_retried(self, server, rest, lines):
        server.on("POST", QUERY, Reply.of_lines(*lines))
        with pytest.raises(ProtocolError):
            rest.query_table(TABLE, QueryRequest())
        assert len(server.requests) == 1

    def test_repeated_protocol_and_metadata_are_accepted(self, server, rest):
        server.on("POST", QUERY, Reply.of_lines(PROTOCOL, METADATA, add(1), PROTOCOL, METADATA, add(2)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1", "f2"]


@pytest.mark.protocol("maxFiles")
def test_the_number_of_files_of_a_page_is_an_option(server):
    server.on("POST", QUERY, page(add(1), token="t"), page(add(2)), page(add(1)))
    server.on("GET", CHANGES, page())
    with RestClient(Profile.from_dict(server.profile), TransportOptions(max_files=4)) as client:
        assert ids(client.query_table(TABLE, QueryRequest())) == ["f1", "f2"]
        client.query_table(TABLE, QueryRequest(max_files=2))
        client.table_changes(TABLE, ChangesRequest(starting_version=0))
    assert [request.json().get("maxFiles") for request in server.requests[:3]] == [4, 4, 2]
    assert server.requests[3].query["maxFiles"] == "4"


class TestCutAnswers:
    def whole(self):
        return page(*(add(number) for number in range(300)))

    @pytest.mark.protocol("endStreamAction", "includeendstreamaction")
    def test_every_cut_at_a_line_is_noticed_and_retried(self, server, rest):
        """There is no Content-Length: only the missing EndStreamAction shows the cut."""
        body = self.whole().body
        ends = [match.end() for match in re.finditer(rb"\n", body)][:-1]
        for end in [ends[0], ends[1], ends[2], ends[200], ends[-1]]:
            cut = self.whole().but(body=body[:end])
            server.on("POST", QUERY, cut, cut, self.whole())
            server.requests.clear()
            assert len(rest.query_table(TABLE, QueryRequest()).items) == 300
            assert len(server.requests) == 3

    @pytest.mark.parametrize("length", ["auto", None])
    def test_cut_inside_a_line_is_retried(self, server, rest, length):
        for cut_at in (1, 10, 1000, 20_000):
            server.on("POST", QUERY, self.whole().but(cut_at=cut_at, length=length), self.whole())
            assert len(rest.query_table(TABLE, QueryRequest()).items) == 300

    @pytest.mark.parametrize("changes", [{"chunk": 100}, {"ending": "reset"}, {}])
    def test_cut_connection_is_retried(self, server, rest, changes):
        server.on("POST", QUERY, self.whole().but(cut_at=5000, **changes), self.whole())
        assert len(rest.query_table(TABLE, QueryRequest()).items) == 300

    def test_files_of_a_truncated_page_are_dropped(self, server, rest):
        """Files of an attempt that failed are neither kept nor taken for duplicates."""
        second = page(*(add(number) for number in range(300, 600)))
        server.on("POST", QUERY, page(*(add(n) for n in range(300)), token="t"), second.but(cut_at=20_000), second)
        answer = rest.query_table(TABLE, QueryRequest())
        assert ids(answer) == [f"f{number}" for number in range(600)]

    def test_repeated_cut_raises(self, server, rest):
        body = self.whole().body
        server.on("POST", QUERY, self.whole().but(body=body[: body.rindex(b"\n", 0, -1) + 1]))
        with pytest.raises(IncompleteResponseError, match="gave up after 6 attempts"):
            rest.query_table(TABLE, QueryRequest())
        assert len(server.requests) == 6

    def test_answer_without_an_announced_end(self, server, rest):
        server.on("POST", QUERY, Reply.of_lines(PROTOCOL, METADATA, add(1)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]

    def test_stalled_answer_times_out(self, server, clock):
        from datetime import timedelta

        from delta_sharing_client.model.profile import Profile
        from delta_sharing_client.options import TransportOptions
        from delta_sharing_client.rest.client import RestClient
        from delta_sharing_client.transport.retry import Retrier

        options = TransportOptions(read_timeout=timedelta(seconds=0.5))
        retrier = Retrier(options, clock=clock, sleep=clock.sleep)
        stalled = self.whole().but(cut_at=5000, ending="stall")
        with RestClient(Profile.from_dict(server.profile), options, retrier=retrier) as rest:
            server.on("POST", QUERY, stalled, self.whole())
            assert len(rest.query_table(TABLE, QueryRequest()).items) == 300
            server.on("POST", QUERY, stalled)
            with pytest.raises(RequestTimeoutError, match="stopped arriving"):
                rest.query_table(TABLE, QueryRequest())


class TestErrorsInAnswers:
    def end(self, **fields):
        return Reply.of_lines(PROTOCOL, METADATA, add(1), {"endStreamAction": fields}, headers=PROMISED)

    @pytest.mark.protocol("endStreamAction")
    def test_the_servers_message_is_raised(self, server, rest):
        server.on("POST", QUERY, self.end(errorMessage="ran out of luck", httpStatusErrorCode=400))
        with pytest.raises(QueryError, match="ran out of luck") as caught:
            rest.query_table(TABLE, QueryRequest())
        assert caught.value.status == 400
        assert len(server.requests) == 1

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_retryable_errors_in_answers_are_retried(self, server, rest, status):
        server.on("POST", QUERY, self.end(errorMessage="busy", httpStatusErrorCode=status), page(add(1)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]

    def test_retries_of_errors_in_answers_are_bounded(self, server, rest):
        server.on("POST", QUERY, self.end(errorMessage="busy", httpStatusErrorCode=503))
        with pytest.raises(QueryError, match="gave up after 6 attempts"):
            rest.query_table(TABLE, QueryRequest())

    def test_a_404_names_the_table(self, server, rest):
        server.on("GET", PATH.removesuffix("/t"), Reply.of_json({"items": [{"name": None}, {"name": "x" * 300}]}))
        with pytest.raises(NotFoundError, match=r"table sh\.sc\.t.*Check the name with list_all_tables\(\)"):
            rest.query_table(TABLE, QueryRequest())
        assert len(server.seen(QUERY)) == 1

    def test_a_post_is_retried_like_a_get(self, server, rest):
        server.on("POST", QUERY, Reply(status=503), Reply(drop=True), page(add(1)))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]
        server.on("POST", QUERY, Reply(status=500))
        with pytest.raises(ServerError):
            rest.query_table(TABLE, QueryRequest())


class TestDuplicates:
    def query(self, rest, server, *replies):
        server.on("POST", QUERY, *replies)
        return ids(rest.query_table(TABLE, QueryRequest()))

    def test_identical_files_count_once(self, server, rest):
        again = add(1, url="https://store/1?sig=other", expirationTimestamp=5, stats='{"numRecords": 1}')
        assert self.query(rest, server, page(add(1), add(2), again)) == ["f1", "f2"]

    def test_identical_files_of_several_pages_count_once(self, server, rest):
        assert self.query(rest, server, page(add(1), token="t"), page(add(1), add(2))) == ["f1", "f2"]

    def test_partition_values_in_another_order_are_the_same(self, server, rest):
        one = add(1, partitionValues={"a": "1", "b": None})
        two = add(1, partitionValues={"b": None, "a": "1"})
        assert self.query(rest, server, page(one, two)) == ["f1"]

    @pytest.mark.parametrize("changes", [{"size": 11}, {"partitionValues": {"a": "1"}}])
    @pytest.mark.parametrize("paged", [False, True])
    def test_conflicting_files_raise(self, server, rest, changes, paged):
        other = add(1, **changes)
        replies = [page(add(1), token="t"), page(other)] if paged else [page(add(1), other)]
        with pytest.raises(ProtocolError, match="f1 twice, with different contents"):
            self.query(rest, server, *replies)

    def delta(self, *files):
        return Reply.of_lines(DELTA_PROTOCOL, DELTA_METADATA, *files, END)

    def test_deletion_vectors_are_compared_without_their_signatures(self, server, rest):
        one = delta_add(1, vector=3)
        two = json.loads(json.dumps(one).replace("sig=3", "sig=fresh"))
        assert self.query(rest, server, self.delta(one, two)) == ["f1"]

    def test_a_file_has_one_deletion_vector_in_a_snapshot(self, server, rest):
        with pytest.raises(ProtocolError, match="twice"):
            self.query(rest, server, self.delta(delta_add(1), delta_add(1, vector=3)))
        with pytest.raises(ProtocolError, match="twice"):
            self.query(rest, server, self.delta(delta_add(1, vector=4), delta_add(1, vector=3)))


class TestStaleListings:
    """The first page's URLs expire before the last page has come."""

    def expired(self):
        return int(time.time() * 1000) - 60_000

    def test_stale_listing_starts_again(self, server, rest):
        server.on(
            "POST",
            QUERY,
            page(add(1), token="t", expires=self.expired()),
            page(add(2)),
            page(add(1), token="t", expires=9_999_999_999_000),
            page(add(2)),
        )
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1", "f2"]
        assert len(server.requests) == 4

    def test_stale_listing_starts_again_once(self, server, rest):
        replies = [page(add(1), token="t", expires=self.expired()), page(add(2), token="u"), page(add(3))]
        server.on("POST", QUERY, *replies[:2], *replies[:2])
        with pytest.raises(ProtocolError, match="longer than their URLs are valid"):
            rest.query_table(TABLE, QueryRequest())
        assert len(server.requests) == 4

    def test_a_single_page_is_never_stale(self, server, rest):
        server.on("POST", QUERY, page(add(1), expires=self.expired()))
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1"]

    @pytest.mark.protocol("expirationTimestamp")
    def test_expiration_is_compared_with_the_clock_of_the_server(self, server, rest):
        """This machine's clock runs an hour ahead: URLs that it thinks expired are good."""
        served = time.time() - 3600
        date_header = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(served))
        pages = [page(add(1), token="t", expires=int((served + 600) * 1000)), page(add(2))]
        pages = [reply.but(headers={**reply.headers, "Date": date_header}) for reply in pages]
        server.on("POST", QUERY, *pages)
        assert ids(rest.query_table(TABLE, QueryRequest())) == ["f1", "f2"]
        assert rest.clock_offset.total_seconds() == pytest.approx(-3600, abs=10)


class TestChanges:
    def change(self, kind, number, version, **changes):
        return {kind: {**add(number)["file"], "version": version, "timestamp": 1652140000000 + version, **changes}}

    @pytest.mark.protocol("add", "remove", "cdf")
    def test_actions_of_all_kinds(self, server, rest):
        server.on(
            "GET",
            CHANGES,
            page(self.change("add", 1, 0), self.change("cdf", 2, 1), self.change("remove", 1, 2), version=0),
        )
        answer = rest.table_changes(TABLE, ChangesRequest(starting_version=0, ending_version=2))
        assert [type(item) for item in answer.items] == [AddFile, CdcFile, RemoveFile]
        assert [item.version for item in answer.items] == [0, 1, 2]
        assert (answer.version, answer.historical) == (0, ())
        assert server.requests[0].query == {"startingVersion": "0", "endingVersion": "2"}
        assert "includeendstreamaction=true" in server.requests[0].headers["delta-sharing-capabilities"]

    def test_another_starting_version_in_the_header_is_accepted(self, server, rest):
        server.on("GET", CHANGES, page(version=5))
        assert rest.table_changes(TABLE, ChangesRequest(starting_version=3)).version == 5

    def test_changes_of_several_pages(self, server, rest):
        server.on("GET", CHANGES, page(self.change("add", 1, 0), token="t 1"), page(self.change("add", 2, 1)))
        assert ids(rest.table_changes(TABLE, ChangesRequest(starting_version=0))) == ["f1", "f2"]
        assert server.requests[1].query == {"startingVersion": "0", "pageToken": "t 1"}

    def test_files_after_the_ending_version_are_dropped(self, server, rest):
        server.on(
            "GET", CHANGES, page(self.change("add", 1, 0), self.change("add", 2, 1), self.change("add", 3, 2))
        )
        request = ChangesRequest(starting_version=0, ending_version=1)
        assert ids(rest.table_changes(TABLE, request)) == ["f1", "f2"]

    @pytest.mark.protocol("includeHistoricalMetadata")
    def test_historical_metadata(self, server, rest):
        def metadata(version):
            return {"metaData": {**METADATA["metaData"], "version": version, "description": f"v{version}"}}

        first = Reply.of_lines(
            PROTOCOL, METADATA, metadata(0), self.change("add", 1, 0), {"endStreamAction": {"nextPageToken": "t"}}
        )
        second = Reply.of_lines(PROTOCOL, METADATA, metadata(0), metadata(3), self.change("add", 2, 3), END)
        server.on("GET", CHANGES, first, second)
        answer = rest.table_changes(TABLE, ChangesRequest(starting_version=0, include_historical_metadata=True))
        assert server.requests[0].query["includeHistoricalMetadata"] == "true"
        assert [item.version for item in answer.historical] == [0, 3]
        assert answer.metadata.description is None

    def test_the_same_file_in_several_roles(self, server, rest):
        """Only the same action, file, vector and version is a duplicate."""
        actions = [
            self.change("add", 1, 0),
            self.change("remove", 1, 1),
            self.change("add", 1, 1),
            self.change("add", 1, 0),
        ]
        server.on("GET", CHANGES, page(*actions))
        assert len(rest.table_changes(TABLE, ChangesRequest(starting_version=0)).items) == 3
        server.on("GET", CHANGES, page(self.change("add", 1, 0), self.change("add", 1, 0, size=3)))
        with pytest.raises(ProtocolError, match="twice"):
            rest.table_changes(TABLE, ChangesRequest(starting_version=0))

    def test_convert_of_changes(self, server, rest):
        server.on("GET", CHANGES, page(self.change("add", 1, 0)))
        answer = rest.table_changes(
            TABLE, ChangesRequest(starting_version=0), lambda protocol, metadata: lambda files: files.versions
        )
        assert answer.items == [0]

    def test_cut_answers_are_retried(self, server, rest):
        whole = page(*(self.change("add", number, number) for number in range(50)))
        server.on("GET", CHANGES, whole.but(body=whole.body[: whole.body.rindex(b"\n", 0, -1) + 1]), whole)
        assert len(rest.table_changes(TABLE, ChangesRequest(starting_version=0)).items) == 50
