"""Decoding of answers to actions: ends, formats, malformed answers."""

import json
import pickle

import pytest
from answer_lines import (
    BOTH,
    DELTA_METADATA,
    DELTA_PROTOCOL,
    END,
    FILE,
    METADATA,
    NOTHING,
    PROTOCOL,
    SCHEMA,
    SECRET,
    URL,
    body,
    decode,
    decode_line,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client._version import __version__
from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    ProtocolError,
    QueryError,
    ResponseFormatError,
)
from delta_sharing_client.model.actions import (
    AddFile,
    DeletionVector,
    EndStreamAction,
    Format,
    Metadata,
    Protocol,
)
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.wire.answers import AnswerReader, keep_files
from delta_sharing_client.wire.decoder import decode_actions
from delta_sharing_client.wire.requests import QueryRequest, VersionsRequest

PROMISED = ResponseCapabilities(None, True)


class TestEnds:
    def test_a_whole_answer(self):
        protocol, metadata, file, end = decode(body(PROTOCOL, METADATA, FILE, END), capabilities=PROMISED)
        assert protocol == Protocol(1)
        assert metadata == Metadata("m1", SCHEMA)
        assert file == AddFile(SecretUrl(URL), "f1", {"p": "1"}, 573)
        assert type(file) is AddFile
        assert end == EndStreamAction()

    @pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n", "\n \n"])
    def test_the_last_newline_may_be_missing(self, end):
        assert len(decode(body(PROTOCOL, METADATA, FILE, END, end=end))) == 4

    def test_blank_lines_are_skipped(self):
        assert len(decode(b"\n\n" + body(PROTOCOL, "", METADATA, "  ", "\r", FILE, "\t", END))) == 4

    @pytest.mark.parametrize(
        "bare",
        [
            {},
            {"refreshToken": "r"},
            {"nextPageToken": "n"},
            {"refreshToken": "r", "nextPageToken": "n", "minUrlExpirationTimestamp": 5},
            {"minUrlExpirationTimestamp": "5"},
            {"errorMessage": None},
            {"refreshToken": None, "nextPageToken": "", "minUrlExpirationTimestamp": None},
            {"refreshToken": "r", "somethingNew": 1},
        ],
    )
    @pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"endStreamAction": x}])
    def test_the_end_may_be_wrapped_or_not(self, bare, wrap):
        end = decode(body(PROTOCOL, METADATA, wrap(bare)), capabilities=PROMISED)[-1]
        assert type(end) is EndStreamAction
        assert end.refresh_token == bare.get("refreshToken")
        assert end.next_page_token == (bare.get("nextPageToken") or None)
        expiry = bare.get("minUrlExpirationTimestamp")
        assert end.min_url_expiration_timestamp == (None if expiry is None else int(expiry))

    def test_a_promised_end_that_is_missing_raises(self):
        for items in ([PROTOCOL, METADATA, FILE], [PROTOCOL, METADATA], [PROTOCOL]):
            with pytest.raises(IncompleteResponseError, match=r"s\.d\.t.*EndStreamAction"):
                decode(body(*items), capabilities=PROMISED)

    def test_an_end_that_is_not_promised_may_be_missing(self):
        assert len(decode(body(PROTOCOL, METADATA, FILE))) == 3

    def test_an_end_that_is_not_promised_is_accepted(self):
        assert len(decode(body(PROTOCOL, METADATA, FILE, END))) == 4

    @pytest.mark.parametrize("capabilities", [NOTHING, PROMISED])
    @pytest.mark.parametrize("empty", [b"", b"\n", b" \r\n\n"])
    def test_an_empty_answer(self, capabilities, empty):
        with pytest.raises(IncompleteResponseError):
            decode(empty, capabilities=capabilities)

    def test_every_prefix_of_an_answer_that_promised_its_end_is_incomplete(self):
        text = body(PROTOCOL, METADATA, FILE, FILE, {"endStreamAction": {"refreshToken": "r"}}, end="")
        for cut in range(len(text)):
            with pytest.raises(IncompleteResponseError, match=r"s\.d\.t"):
                decode(text[:cut], capabilities=PROMISED)

    def test_a_truncated_last_line_is_incomplete_without_a_promised_end(self):
        text = body(PROTOCOL, METADATA, FILE, end="")
        for cut in range(len(text) - 1, len(text) - 40, -1):
            with pytest.raises(IncompleteResponseError, match="cut inside line 3"):
                decode(text[:cut])

    @pytest.mark.parametrize("after", [FILE, PROTOCOL, METADATA, END, {}, {"unknown": 1}])
    def test_a_line_after_the_end(self, after):
        with pytest.raises(ProtocolError, match="line 4 of the answer comes after its EndStreamAction"):
            decode(body(PROTOCOL, METADATA, END, after))

    @pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"endStreamAction": x}])
    def test_an_error_message_is_the_servers_error(self, wrap):
        message = f"no space left, see https://h/p?sig={SECRET}"
        with pytest.raises(QueryError) as caught:
            decode(body(PROTOCOL, METADATA, FILE, wrap({"errorMessage": message, "httpStatusErrorCode": "503"})))
        assert caught.value.status == 503
        assert caught.value.subject == "table s.d.t"
        assert "no space left" in str(caught.value)
        assert SECRET not in str(caught.value)

    def test_an_error_status_without_a_message_is_an_error_too(self):
        with pytest.raises(QueryError) as caught:
            decode(body(PROTOCOL, METADATA, {"endStreamAction": {"httpStatusErrorCode": 500}}))
        assert caught.value.status == 500

    def test_an_error_object_names_the_table(self):
        error = {"errorCode": "INTERNAL_ERROR", "message": f"boom Bearer {SECRET}"}
        for items in ([error], [PROTOCOL, METADATA, error]):
            with pytest.raises(QueryError) as caught:
                decode(body(*items))
            assert "table s.d.t" in str(caught.value)
            assert "INTERNAL_ERROR: boom" in str(caught.value)
            assert SECRET not in str(caught.value)

    def test_actions_are_checked_before_they_are_yielded(self):
        actions = decode_actions(
            [body(PROTOCOL, "nonsense", FILE)], formats=BOTH, capabilities=NOTHING, subject="t"
        )
        assert next(actions) == Protocol(1)
        with pytest.raises(ProtocolError):
            next(actions)

    def test_an_asynchronous_answer_that_was_not_requested(self):
        with pytest.raises(ProtocolError, match="asynchronously"):
            decode(body({"queryStatus": {"queryId": "q"}}))


class TestMalformed:
    @pytest.mark.parametrize(
        "line", [b"nonsense", b'{"file":', b"[]", b"12", b"null", b"\xff\xff", b'{"a":1}{"b":2}', b"{'a': 1}"]
    )
    def test_a_line_in_the_middle(self, line):
        with pytest.raises(ProtocolError, match=r"^table s\.d\.t: line 3 of the answer") as caught:
            decode(body(PROTOCOL, METADATA, line, FILE, END))
        assert not isinstance(caught.value, IncompleteResponseError)

    def test_line_numbers_leave_blank_lines_out(self):
        with pytest.raises(ProtocolError, match="line 2 of the answer"):
            decode(body(PROTOCOL, "", "", "nonsense", END))

    def test_an_unknown_action_raises(self):
        known = f"{__version__}, knows add, cdf, endStreamAction, file, metaData, protocol, remove; a later one"
        with pytest.raises(ProtocolError, match=rf"line 2 .*unknown action 'brandNew'.*{known}"):
            decode(body(PROTOCOL, {"brandNew": {"a": 1}}, END))
        with pytest.raises(ProtocolError, match=r"unknown delta action 'txn'.*knows add, cdc, remove;"):
            decode(body(DELTA_PROTOCOL, {"file": {"id": "1", "deltaSingleAction": {"txn": {}}}}))
        with pytest.raises(ProtocolError, match="unknown delta action"):
            decode(body(DELTA_PROTOCOL, {"file": {"id": "1", "deltaSingleAction": {}}}))

    def test_an_unknown_field_is_ignored(self):
        def more(item):
            (key,) = item
            return {key: item[key] | {"brandNew": {"deep": [1]}}, "brandNew": 1}

        lines = [PROTOCOL, METADATA, FILE, END]
        assert decode(body(*map(more, lines))) == decode(body(*lines))
        lines = [DELTA_PROTOCOL, DELTA_METADATA]
        assert decode(body(*map(more, lines))) == decode(body(*lines))

    def test_null_fields_are_missing(self):
        item = {"protocol": None, "metaData": None, "add": None, "cdf": None, "remove": None} | FILE
        assert decode(body(PROTOCOL, METADATA, item))[2] == decode_line(FILE)

    @pytest.mark.parametrize("first", [METADATA, FILE])
    def test_the_protocol_comes_first(self, first):
        with pytest.raises(ProtocolError, match="does not begin with a protocol line"):
            decode(body(first, PROTOCOL, END))

    @pytest.mark.parametrize(
        "item",
        [
            {"protocol": {}},
            {"protocol": []},
            {"protocol": 1},
            {"protocol": {"minReaderVersion": None}},
            {"protocol": {"minReaderVersion": "one"}},
            {"protocol": {"minReaderVersion": True}},
            {"protocol": {"minReaderVersion": 1.5}},
            {"protocol": {"deltaProtocol": 3}},
            {"protocol": {"deltaProtocol": {}}},
            {"protocol": {"deltaProtocol": {"minReaderVersion": 3, "readerFeatures": "deletionVectors"}}},
            {"metaData": {}},
            {"metaData": {"id": "x"}},
            {"metaData": {"id": "x", "schemaString": ""}},
            {"metaData": {"id": "x", "schemaString": {"type": "struct"}}},
            {"metaData": {"id": "x", "schemaString": SCHEMA, "partitionColumns": "p"}},
            {"metaData": {"id": "x", "schemaString": SCHEMA, "format": {"provider": "orc"}}},
            {"metaData": {"id": "x", "schemaString": SCHEMA, "version": "new"}},
            {"metaData": {"deltaMetadata": []}},
            {"file": "x"},
            {"file": {}},
            {"file": {"id": "1", "size": 1}},
            {"file": {"url": 5, "id": "1"}},
            {"file": {"url": "", "id": "1"}},
            {"file": {"url": URL, "id": "1", "partitionValues": [1]}},
            {"file": {"url": URL, "id": "1", "partitionValues": "x"}},
            {"file": {"url": URL, "id": "1", "partitionValues": {"a": [1]}}},
            {"file": {"url": URL, "id": "1", "partitionValues": {"a": "b", "c": {}}}},
            {"file": {"url": URL, "id": "1", "size": "big"}},
            {"file": {"url": URL, "id": "1", "size": -1}},
            {"file": {"url": URL, "id": "1", "size": 1e400}},
            {"file": {"url": URL, "id": "1", "size": False}},
            {"file": {"url": URL, "id": "1", "size": [1]}},
            {"file": {"url": URL, "id": "1", "version": 1.5}},
            {"file": {"url": URL, "id": "1", "timestamp": "yesterday"}},
            {"file": {"id": "1", "deltaSingleAction": "add"}},
            {"file": {"id": "1", "deltaSingleAction": {"add": {}}}},
            {"file": {"id": "1", "deltaSingleAction": {"add": {"path": None}}}},
            {"file": {"id": "1", "deltaSingleAction": {"add": {"path": URL, "deletionVector": 1}}}},
            {"file": {"id": "1", "deltaSingleAction": {"add": {"path": URL, "deletionVector": {}}}}},
            {
                "file": {
                    "id": "1",
                    "deltaSingleAction": {
                        "add": {"path": URL, "deletionVector": {"storageType": "p", "pathOrInlineDv": URL}}
                    },
                }
            },
            {"endStreamAction": []},
            {"endStreamAction": {"minUrlExpirationTimestamp": "soon"}},
        ],
        ids=lambda item: json.dumps(item)[:70],
    )
    def test_fields_that_are_missing_or_of_the_wrong_type(self, item):
        head = [] if "protocol" in item else [DELTA_PROTOCOL]
        with pytest.raises(
            ProtocolError, match=rf"^table s\.d\.t: line {len(head) + 1} of the answer: "
        ) as caught:
            decode(body(*head, item, END))
        assert SECRET not in str(caught.value)

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )

    @given(st.data())
    @settings(max_examples=examples(300), deadline=None)
    def test_any_object_is_an_action_or_a_typed_error(self, data):
        """Any field of any line replaced by any JSON value."""
        delta_file = {
            "file": {
                "id": "f1",
                "size": 3,
                "deletionVectorFileId": "v",
                "deltaSingleAction": {
                    "add": {
                        "path": URL,
                        "partitionValues": {"p": "1"},
                        "size": 3,
                        "stats": "{}",
                        "dataChange": True,
                        "deletionVector": {
                            "storageType": "p",
                            "pathOrInlineDv": URL,
                            "offset": 1,
                            "sizeInBytes": 3,
                            "cardinality": 1,
                        },
                    }
                },
            }
        }
        lines = json.loads(json.dumps([DELTA_PROTOCOL, DELTA_METADATA, delta_file, END]))
        node, keys = lines[data.draw(st.integers(0, 3), label="line")], []
        while isinstance(node, dict) and node:
            key = data.draw(st.sampled_from(sorted(node)), label="key")
            keys.append((node, key))
            node = node[key]
        if keys:
            parent, key = data.draw(st.sampled_from(keys), label="where")
            parent[key] = data.draw(self.json_values, label="value")
        try:
            actions = decode(body(*(json.dumps(line) for line in lines)))
        except DeltaSharingError as error:
            actions = [error]
        for action in actions:
            assert SECRET not in repr(action)
            again = pickle.loads(pickle.dumps(action))
            assert again == action or str(again) == str(action)
            hash(action)

    @given(st.lists(st.binary(max_size=30), max_size=6))
    @settings(max_examples=examples(150), deadline=None)
    def test_any_bytes_are_a_typed_error(self, chunks):
        with pytest.raises((ProtocolError, QueryError)):
            decode([*chunks, b"x"])


class TestFormats:
    def test_a_delta_answer_to_a_parquet_request_raises(self):
        with pytest.raises(ResponseFormatError, match="requested parquet"):
            decode(body(DELTA_PROTOCOL, DELTA_METADATA, END), formats=("parquet",))

    @pytest.mark.parametrize("formats", [("delta",), ("delta", "parquet"), ("parquet",)])
    def test_parquet_is_always_accepted(self, formats):
        assert decode(body(PROTOCOL, METADATA, FILE, END), formats=formats)[0].response_format == "parquet"

    def test_delta(self):
        protocol, metadata = decode(body(DELTA_PROTOCOL, DELTA_METADATA), formats=("delta",))
        assert protocol == Protocol(3, 7, ("timestampNtz",), ("timestampNtz",), "delta")
        assert metadata == Metadata(
            "m1",
            SCHEMA,
            name="t",
            description="d",
            format=Format("parquet", {"x": "1"}),
            partition_columns=("p",),
            configuration={"a": "b", "n": "", "i": "3"},
            version=20,
            size=123456,
            num_files=5,
            created_time=1700000000000,
        )
        assert metadata.schema.names == ["id"]

    @pytest.mark.parametrize("told", [{}, {"schemaString": None}])
    def test_metadata_of_a_log_that_has_no_schema_yet(self, told):
        line = {"metaData": {"deltaMetadata": {"id": "m1", "partitionColumns": []} | told}}
        _, metadata = decode(body(DELTA_PROTOCOL, line), formats=("delta",))
        assert metadata.schema.names == []
        with pytest.raises(ProtocolError, match="'schemaString' is missing"):
            decode(body(PROTOCOL, {"metaData": {"id": "m1", "partitionColumns": []} | told}))

    def test_the_header_and_the_protocol_line_agree(self):
        header = ResponseCapabilities("delta")
        with pytest.raises(ProtocolError, match="header has delta format"):
            decode(body(PROTOCOL, METADATA, END), capabilities=header)
        assert decode(body(DELTA_PROTOCOL, DELTA_METADATA, END), capabilities=header)

    def test_the_format_is_checked_on_every_protocol_line(self):
        with pytest.raises(ResponseFormatError):
            decode(body(PROTOCOL, METADATA, DELTA_PROTOCOL, END), formats=("parquet",))

    def test_a_delta_file_in_a_parquet_answer(self):
        """Its reader features are known only from a delta protocol line."""
        delta = {"file": {"id": "1", "deltaSingleAction": {"add": {"path": URL}}}}
        with pytest.raises(ProtocolError, match=r"line 3 .*delta"):
            decode(body(PROTOCOL, METADATA, delta, END))
        none = {"file": FILE["file"] | {"deltaSingleAction": None}}
        for odd in ({}, {"version": "3"}):  # in both ways that a line may go
            (file,) = decode(body(PROTOCOL, METADATA, {"file": none["file"] | odd}, END))[2:-1]
            assert file.id == FILE["file"]["id"]


class TestSecrets:
    def actions(self):
        return [
            decode_line(FILE),
            decode_line({"cdf": FILE["file"]}),
            decode_line({"remove": FILE["file"]}),
            decode_line({"endStreamAction": {"refreshToken": SECRET, "nextPageToken": SECRET}}),
            DeletionVector("p", SecretUrl(URL), 1, 1, 1),
            decode_line(METADATA),
            decode_line(PROTOCOL),
        ]

    def test_reprs_show_no_secret(self):
        for action in self.actions():
            assert SECRET not in repr(action)
            assert SECRET not in str(action)
        assert "f1" in repr(decode_line(FILE))

    @pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
    def test_actions_pickle(self, protocol):
        for action in self.actions():
            again = pickle.loads(pickle.dumps(action, protocol))
            assert type(again) is type(action)
            assert again == action
            hash(again)

    def test_actions_take_no_other_attributes(self):
        for action in self.actions():
            with pytest.raises((AttributeError, TypeError)):
                action.urls = "x"


class TestTwoInOneLine:
    """A line holds one action; nothing of a line with two is used."""

    @pytest.mark.parametrize("last", [False, True])
    def test_two_objects(self, last):
        two = json.dumps(FILE) + json.dumps({"file": {**FILE["file"], "id": "f2"}})
        with pytest.raises(ProtocolError, match="line 3 of the answer has two JSON objects instead of one"):
            decode(body(PROTOCOL, METADATA, two, *([] if last else [FILE, END])))

    @pytest.mark.parametrize(
        "line",
        [
            PROTOCOL | METADATA,
            METADATA | FILE,
            FILE | END,
            FILE | {"add": FILE["file"]},
            {"add": FILE["file"], "remove": FILE["file"]},
            {"cdf": FILE["file"], "add": FILE["file"]},
        ],
    )
    def test_two_actions(self, line):
        with pytest.raises(ProtocolError, match=r"line 4 of the answer: it has 2 actions \(\w+, \w+\)"):
            decode(body(PROTOCOL, METADATA, FILE, line, FILE, END))

    def test_two_delta_actions(self):
        single = {"add": {"path": URL}, "remove": {"path": URL}}
        line = {"file": {"id": "f", "deltaSingleAction": single}}
        with pytest.raises(ProtocolError, match=r"it has 2 delta actions \(add, remove\) instead of one"):
            decode(body(DELTA_PROTOCOL, DELTA_METADATA, line))


class TestTwoInOneVersion:
    """Of a version there is one metadata and one protocol, in changes too."""

    @staticmethod
    def read(*pages, changes=True):
        request = VersionsRequest(starting_version=0) if changes else QueryRequest()
        reader = AnswerReader(request, "t", keep_files)
        for lines in pages:
            actions = decode_actions([body(*lines)], formats=BOTH, capabilities=NOTHING, subject="t")
            answer = reader.read_page(actions, version=1)
        return answer

    @staticmethod
    def metadata(version, **fields):
        return {"metaData": {**METADATA["metaData"], "version": version, **fields}}

    def test_two_different_metadata(self):
        first, other = self.metadata(1, size=9, numFiles=1), self.metadata(1, id="m2")
        for lines in ([first, other], [self.metadata(0), first, other]):
            with pytest.raises(ProtocolError, match="two different metadata lines for version 1"):
                self.read([PROTOCOL, *lines])
        with pytest.raises(ProtocolError, match="two different metadata lines"):
            self.read([PROTOCOL, first, other], changes=False)
        again, later = self.metadata(1), self.metadata(2, id="m2")
        assert [item.version for item in self.read([PROTOCOL, first, again, later]).historical] == [1, 2]

    def test_two_pages(self):
        pages = [[PROTOCOL, self.metadata(1), self.metadata(2, id=name)] for name in ("m1", "m2")]
        with pytest.raises(ProtocolError, match="two different metadata lines for version 2"):
            self.read(*pages)

    def test_two_different_protocols(self):
        def protocol(version, reader):
            return {"protocol": {"version": version, "deltaProtocol": {"minReaderVersion": reader}}}

        with pytest.raises(ProtocolError, match="two different protocol lines for version 3"):
            self.read([DELTA_PROTOCOL, DELTA_METADATA, protocol(3, 1), protocol(3, 2)])
        assert len(self.read([DELTA_PROTOCOL, DELTA_METADATA, protocol(3, 1), protocol(4, 2)]).protocols) == 2
