"""Lines of an answer's body, and their JSON."""

import json

import pytest
from answer_lines import (
    END,
    FILE,
    METADATA,
    PROTOCOL,
    body,
    decode,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.errors import (
    ProtocolError,
)
from delta_sharing_client.wire.ndjson import BLOCK, MAX_DEPTH, Lines, parse_object


def iter_lines(chunks, **options):
    lines = Lines(chunks, "table t", **options)
    return (lines.single(part) for part in lines if not (lines.is_blank(part) or lines.split(part)))


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
    @settings(max_examples=examples(150), deadline=None)
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

        assert list(iter_lines(cut(b"x" * 10 + b"\n" + b"y" * 10), limit=10)) == [b"x" * 10, b"y" * 10]
        for text in (b"x" * 11, b"x" * 11 + b"\nok\n", b"ok\n" + b"x" * 11 + b"\n", b"ok\n" + b"x" * 11):
            with pytest.raises(ProtocolError, match="line of more than the 10 bytes"):
                list(iter_lines(cut(text), limit=10))

    def test_the_bound_stops_an_endless_line_early(self):
        taken = 0

        def endless():
            nonlocal taken
            while True:
                taken += 1
                yield b"x" * 100

        with pytest.raises(ProtocolError, match="line of more than the 1,000 bytes"):
            list(iter_lines(endless(), limit=1000))
        assert taken <= 11

    def test_lines_are_yielded_before_the_body_ends(self):
        seen = []

        def chunks():
            for i in range(5):
                seen.append(i)
                yield b'{"n":%d}\n' % i * (BLOCK // 4)

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
    @settings(max_examples=examples(100), deadline=None)
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
