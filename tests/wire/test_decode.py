"""Decoding of answers to actions: lines, ends, formats, malformed answers."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    ProtocolError,
    QueryError,
    ResponseFormatError,
)
from delta_sharing_client.model.actions import (
    AddFile,
    CdcFile,
    DeletionVector,
    EndStreamAction,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
)
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.wire.decoder import decode_actions
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.ndjson import MAX_DEPTH, Lines, parse_object

BOTH = ("delta", "parquet")
NOTHING = ResponseCapabilities()
PROMISED = ResponseCapabilities(None, True)
SECRET = "s3cr3tS1gn4tur3"
URL = f"https://store.example/t/part-0.parquet?sig={SECRET}"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'

PROTOCOL = {"protocol": {"minReaderVersion": 1}}
METADATA = {"metaData": {"id": "m1", "format": {"provider": "parquet"}, "schemaString": SCHEMA}}
FILE = {"file": {"url": URL, "id": "f1", "partitionValues": {"p": "1"}, "size": 573}}
END = {"endStreamAction": {}}
DELTA_PROTOCOL = {
    "protocol": {
        "deltaProtocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timestampNtz"],
            "writerFeatures": ["timestampNtz"],
        }
    }
}
DELTA_METADATA = {
    "metaData": {
        "version": 20,
        "size": 123456,
        "numFiles": 5,
        "deltaMetadata": {
            "id": "m1",
            "name": "t",
            "description": "d",
            "partitionColumns": ["p"],
            "format": {"provider": "parquet", "options": {"x": 1}},
            "schemaString": SCHEMA,
            "configuration": {"a": "b", "n": None, "i": 3},
            "createdTime": 1700000000000,
        },
    }
}


def body(*items, end="\n"):
    """The items as NDJSON; a str or bytes item goes in as it is."""
    lines = []
    for item in items:
        if isinstance(item, dict):
            item = json.dumps(item, ensure_ascii=False)
        lines.append(item.encode() if isinstance(item, str) else item)
    return b"\n".join(lines) + end.encode()


def decode(data, formats=BOTH, capabilities=NOTHING, what="table s.d.t"):
    chunks = [data] if isinstance(data, bytes) else data
    actions = decode_actions(chunks, formats=formats, capabilities=capabilities, what=what)
    return [action for one_or_more in actions for action in each(one_or_more)]


def each(one_or_more):
    return one_or_more if isinstance(one_or_more, FileBlock) else [one_or_more]


def decode_line(item):
    """The action of one line, which follows a protocol line if it is a file."""
    head = [] if item.keys() & {"protocol", "endStreamAction"} else [DELTA_PROTOCOL]
    return decode(body(*head, item))[-1]


def iter_lines(chunks, **options):
    lines = Lines(chunks, **options)
    return (line for block in lines.blocks() for line in lines.of(block))


def one_file(**fields):
    return decode_line({"file": {"url": URL, "id": "f1", "partitionValues": {}, "size": 1} | fields})


class TestLines:
    def test_one_chunk(self):
        assert list(iter_lines([b"a\nb\nc"])) == [b"a", b"b", b"c"]
        assert list(iter_lines([b"a\nb\nc\n"])) == [b"a", b"b", b"c"]

    @pytest.mark.parametrize("empty", [[], [b""], [b"\n"], [b"\n", b"", b"\n \r\n\t\n"], [b" ", b" ", b"\r"]])
    def test_blank_lines_only(self, empty):
        assert list(iter_lines(empty)) == []

    def test_only_newline_ends_a_line(self):
        line = '{"a":"x\u2028y\u2029z\x85\x1c\x1d\x1e\x0b\x0c\r"}'.encode()
        assert list(iter_lines([line + b"\n" + line])) == [line, line]

    def test_carriage_returns_before_the_newline_are_ignored(self):
        lines = list(iter_lines([b'{"a":1}\r\n', b"\r\n", b'{"b":2}\r\n']))
        assert [parse_object(line) for line in lines] == [{"a": 1}, {"b": 2}]

    @given(st.data())
    @settings(max_examples=150, deadline=None)
    def test_any_cut_into_chunks_gives_the_same_lines(self, data):
        lines = data.draw(
            st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=8), label="lines"
        )
        text = b"\n".join(lines) + data.draw(st.sampled_from([b"", b"\n", b"\n\n"]))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10), label="cuts"))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert b"".join(chunks) == text
        assert list(iter_lines(chunks)) == [line for line in lines if line.strip()]

    def test_every_single_cut_of_an_answer(self):
        text = body(PROTOCOL, METADATA, {"file": FILE["file"] | {"id": "ü\u2028表"}}, END)
        whole = decode(text)
        assert len(whole) == 4
        for cut in range(len(text) + 1):
            assert decode([text[:cut], text[cut:]]) == whole
        assert decode([text[i : i + 1] for i in range(len(text))]) == whole

    @pytest.mark.parametrize("size", [1, 3, 7, 1000])
    def test_a_line_may_not_be_longer_than_the_bound(self, size):
        def cut(text):
            return [text[i : i + size] for i in range(0, len(text), size)]

        assert list(iter_lines(cut(b"x" * 10 + b"\n" + b"y" * 10), max_line=10)) == [b"x" * 10, b"y" * 10]
        for text in (b"x" * 11, b"x" * 11 + b"\nok\n", b"ok\n" + b"x" * 11 + b"\n", b"ok\n" + b"x" * 11):
            with pytest.raises(ProtocolError, match="line of more than 10 bytes"):
                list(iter_lines(cut(text), max_line=10))

    def test_the_bound_stops_an_endless_line_early(self):
        taken = 0

        def endless():
            nonlocal taken
            while True:
                taken += 1
                yield b"x" * 100

        with pytest.raises(ProtocolError, match="line of more than 1000 bytes"):
            list(iter_lines(endless(), max_line=1000))
        assert taken <= 11

    def test_lines_are_yielded_before_the_body_ends(self):
        seen = []

        def chunks():
            for i in range(5):
                seen.append(i)
                yield b'{"n":%d}\n' % i

        lines = iter_lines(chunks())
        assert next(lines) == b'{"n":0}'
        assert seen == [0]


class TestJson:
    def test_depth_is_bounded(self):
        def nested(depth):
            return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)

        assert parse_object(nested(MAX_DEPTH))
        with pytest.raises(ValueError, match="nested deeper"):
            parse_object(nested(MAX_DEPTH + 1))
        with pytest.raises(ValueError, match="nested deeper"):
            parse_object(b'{"a":' + b"[" * 1_000_000)
        with pytest.raises(ValueError, match="nested deeper"):
            parse_object(b'{"a":' + b'[{"b":' * 200 + b"1" + b"}]" * 200 + b"}")

    @pytest.mark.parametrize(
        "text",
        [
            "[" * 200,
            '{"x' * 100,
            "\\" * 300 + "{" * 200,
            '\\"{' * 100,
            '"' * 101 + "[" * 100,
        ],
    )
    def test_brackets_inside_strings_do_not_count(self, text):
        item = {"stats": text, "after": [1]}
        assert parse_object(json.dumps(item).encode()) == item
        assert parse_object(json.dumps({text: 1}).encode()) == {text: 1}

    def test_many_brackets_side_by_side_do_not_count(self):
        item = {"a": [[] for _ in range(1000)]}
        assert parse_object(json.dumps(item).encode()) == item

    @given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
    @settings(max_examples=100, deadline=None)
    def test_counted_depth_equals_that_of_a_parser(self, value):
        def depth(node):
            if isinstance(node, dict):
                return 1 + max(map(depth, node.values()), default=0)
            return 1 + max(map(depth, node), default=0) if isinstance(node, list) else 0

        for missing in range(3):
            wrapped = value
            for _ in range(MAX_DEPTH - 1 - depth(value) + missing):
                wrapped = [wrapped]
            item = {"x": wrapped}
            text = json.dumps(item).encode()
            if depth(item) > MAX_DEPTH:
                with pytest.raises(ValueError, match="nested deeper"):
                    parse_object(text)
            else:
                assert parse_object(text) == item

    @pytest.mark.parametrize(
        "text", [b"", b"[]", b"1", b"null", b'"x"', b"{", b"{}{}", b"{'a':1}", b"\xff\xfe", b'{"a":\xff}', b"nul"]
    )
    def test_other_values_than_objects_raise(self, text):
        with pytest.raises(ValueError):
            parse_object(text)

    def test_a_long_line_of_brackets_in_strings_is_read_in_linear_time(self):
        """In quadratic time it would not end before the limit of a test."""
        line = json.dumps({"a": [{"stats": json.dumps({"b": [{"c": "[" * 40}] * 40})}] * 600}).encode()
        assert len(line) > 1_000_000
        parse_object(line)
        parse_object(b'{"a":"' + b"\\\\" * 1_000_000 + b'","b":' + b"[]," * 0 + b'"' + b"{" * 100 + b'"}')
        with pytest.raises(ValueError):
            parse_object(b"{" * 65 + b'"' + b"a" * 1_000_000)


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
        assert caught.value.what == "table s.d.t"
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
        actions = decode_actions([body(PROTOCOL, "nonsense", FILE)], formats=BOTH, capabilities=NOTHING, what="t")
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
        with pytest.raises(ProtocolError, match=r"line 2 .*unknown action 'brandNew'"):
            decode(body(PROTOCOL, {"brandNew": {"a": 1}}, END))
        with pytest.raises(ProtocolError, match="unknown delta action 'txn'"):
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
    @settings(max_examples=300, deadline=None)
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
    @settings(max_examples=150, deadline=None)
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


class TestFiles:
    @pytest.mark.parametrize(
        ("key", "kind"), [("file", AddFile), ("add", AddFile), ("cdf", CdcFile), ("remove", RemoveFile)]
    )
    def test_parquet_actions(self, key, kind):
        action = decode_line(
            {
                key: {
                    "url": URL,
                    "id": "f1",
                    "partitionValues": {"a": "1", "b": None, "c": ""},
                    "size": 10,
                    "stats": '{"numRecords":1}',
                    "version": 3,
                    "timestamp": 1700000000000,
                    "expirationTimestamp": 1700000900000,
                }
            }
        )
        assert type(action) is kind
        assert action.url.reveal() == URL
        assert action.id == "f1"
        assert action.partition_values == {"a": "1", "b": None, "c": ""}
        assert (action.size, action.version, action.timestamp) == (10, 3, 1700000000000)
        assert action.expiration_timestamp == 1700000900000
        assert action.stats == '{"numRecords":1}'
        assert action.deletion_vector is None
        assert action.data_change

    @pytest.mark.parametrize(("key", "kind"), [("add", AddFile), ("cdc", CdcFile), ("remove", RemoveFile)])
    def test_delta_actions(self, key, kind):
        action = decode_line(
            {
                "file": {
                    "id": "f1",
                    "size": 573,
                    "deletionVectorFileId": "v1",
                    "version": 7,
                    "timestamp": 8,
                    "expirationTimestamp": 9,
                    "deltaSingleAction": {
                        key: {
                            "path": URL,
                            "partitionValues": {"col-1": "x"},
                            "size": 574,
                            "stats": '{"numRecords":1}',
                            "dataChange": False,
                            "deletionVector": {
                                "storageType": "p",
                                "pathOrInlineDv": f"https://h/dv.bin?sig={SECRET}",
                                "offset": 1,
                                "sizeInBytes": 34,
                                "cardinality": 2,
                            },
                        }
                    },
                }
            }
        )
        assert type(action) is kind
        assert action == kind(
            SecretUrl(URL),
            "f1",
            {"col-1": "x"},
            574,
            '{"numRecords":1}',
            7,
            8,
            9,
            DeletionVector("p", SecretUrl(f"https://h/dv.bin?sig={SECRET}"), 34, 2, 1),
            "v1",
            False,
        )
        assert action.expiration_timestamp == 9
        assert SECRET not in repr(action)

    def test_the_size_may_be_a_field_of_the_wrapper(self):
        item = {"id": "f1", "size": 573, "deltaSingleAction": {"add": {"path": URL}}}
        assert decode_line({"file": item}).size == 573
        item["deltaSingleAction"]["add"]["size"] = 0
        assert decode_line({"file": item}).size == 573

    @pytest.mark.parametrize("fields", [{}, {"partitionValues": None}, {"partitionValues": {}}])
    def test_partition_values_may_be_missing(self, fields):
        item = {"url": URL, "id": "f1"} | fields
        action = decode_line({"file": item})
        assert action.partition_values == {}
        assert action.size == 0

    def test_partition_values_that_are_no_strings(self):
        values = {"i": 5, "b": True, "f": 1.5, "n": None, "s": "x", "z": False, "big": 2**60 + 1}
        assert one_file(partitionValues=values).partition_values == {
            "i": "5",
            "b": "true",
            "f": "1.5",
            "n": None,
            "s": "x",
            "z": "false",
            "big": str(2**60 + 1),
        }

    def test_a_partition_value_of_many_digits(self):
        """A decimal that should have come as text: a whole number is exact, any other would be rounded."""
        line = '{"file":{"url":"https://h/x","id":"1","partitionValues":{"d":%s}}}'
        file = decode(body(PROTOCOL, METADATA, line % "123456789012345678901", END))[2]
        assert file.partition_values == {"d": "123456789012345678901"}
        with pytest.raises(ProtocolError, match=r"line 3 of the answer: .*too many digits"):
            decode(body(PROTOCOL, METADATA, line % "123456789012345678901.5", END))

    @pytest.mark.parametrize(
        ("sent", "meant"),
        [
            ("573", 573),
            (573.0, 573),
            (" 573 ", 573),
            (str(2**60 + 1), 2**60 + 1),
            ("0", 0),
            (None, 0),
            (2**60 + 1,) * 2,
        ],
    )
    def test_integers_may_come_as_text(self, sent, meant):
        assert one_file(size=sent).size == meant
        assert one_file(version=sent).version == (meant if sent is not None else None)

    def test_stats_may_come_as_an_object(self):
        assert json.loads(one_file(stats={"numRecords": 3}).stats) == {"numRecords": 3}
        assert one_file(stats=None).stats is None
        assert one_file(stats="").stats is None

    def test_an_id_may_be_missing(self):
        def action(url, **fields):
            return decode_line({"file": {"url": url} | fields})

        first = action("https://h/a/part-0.parquet?sig=1")
        assert first.id
        assert first.id == action("https://h/a/part-0.parquet?sig=2").id
        assert first.id != action("https://h/a/part-1.parquet?sig=1").id
        assert action("https://h/a", id=17).id == "17"

    def test_files_without_id_have_distinct_ids(self):
        ids = {decode_line({"file": {"url": url}}).id for url in ("a/b", "a/c", "https://h:x/1", "https://h:x/2")}
        assert len(ids) == 4

    def test_equality_ignores_the_expiration(self):
        assert one_file(expirationTimestamp=1) == one_file(expirationTimestamp=2)
        assert one_file(size=1) != one_file(size=2)

    def test_kinds_are_never_equal(self):
        item = {"url": URL, "id": "f1"}
        assert decode_line({"add": item}) != decode_line({"remove": item})


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
