"""JSON as servers write it, odd numbers included."""

import json
import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.model.json_text import loads, loads_exact

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(values)
@settings(max_examples=examples(150), deadline=None)
def test_results_equal_those_of_pythons_module(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert loads(text) == json.loads(text)
        try:
            data = text.encode()
        except UnicodeEncodeError:
            continue
        assert loads(data) == json.loads(data)


@pytest.mark.parametrize("number", [0, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1])
def test_whole_numbers_of_64_bits(number):
    for source in (f'{{"a":{number}}}', f'{{"a":{number}}}'.encode()):
        assert loads(source) == {"a": number}
        assert type(loads(source)["a"]) is int


def test_common_departures_from_json():
    assert math.isnan(loads('{"a":NaN}')["a"])
    assert loads(b'{"a":-Infinity}') == {"a": -math.inf}
    assert loads(b'\xef\xbb\xbf{"a":1}') == {"a": 1}


def test_lone_surrogates_raise_or_are_replaced():
    for text in ('"\\ud800"', '["x", {"a": "\\udc00"}]', '{"\\ud83d": 1}', '{"a": NaN, "b": "\\ud83dx"}'):
        for source in (text, text.encode()):
            with pytest.raises(ValueError, match="an unpaired surrogate"):
                loads(source)
    with pytest.raises(ValueError, match="an unpaired surrogate"):
        loads('"\ud800"')
    item = loads('{"stats": "a\\ud83d", "list": [{"stats": "\\udc00"}], "b": "\\ud83d\\ude00"}', lenient={"stats"})
    assert item == {"stats": "a\ufffd", "list": [{"stats": "\ufffd"}], "b": "\U0001f600"}
    with pytest.raises(ValueError, match="an unpaired surrogate"):
        loads('{"stats": ["\\ud83d"]}', lenient={"stats"})


@pytest.mark.parametrize("text", [b"", b"{", b"{'a':1}", b"\xff", b"[1,]", b"nul", b"{}x", b'"\xed\xa0\x80'])
def test_malformed_text_raises(text):
    with pytest.raises(ValueError):
        loads(text)


def test_exact_numbers():
    item = loads_exact('{"a":0.10000000000000000000000001,"b":1e400,"c":5,"d":123456789012345678901234567890}')
    assert item["a"] == Decimal("0.10000000000000000000000001")
    assert item["b"] == Decimal("1e400")
    assert (item["c"], item["d"]) == (5, 123456789012345678901234567890)
    assert type(item["c"]) is int
