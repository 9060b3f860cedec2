"""Mutations of samples: changed, removed and repeated bytes, inserted tokens, and parts of other samples."""

from __future__ import annotations

from hypothesis import strategies as st

_TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b"\n",
    b",",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"NaN",
    b"\xff\xfe",
]
_TOKENS += [
    b"\\u0000",
    b"\\ud800",
    b"9" * 40,
    b"0",
    b"\x00" * 8,
    b"\xff" * 8,
    b"<Code>",
    b"</Message>",
    b"{}",
    b"[]",
]


def mutations(samples: list[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy for mutated samples and for arbitrary bytes."""

    @st.composite
    def changed(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(samples))
        for _ in range(draw(st.integers(1, 5))):
            at = draw(st.integers(0, len(data)))
            kind = draw(st.integers(0, 4))
            if kind == 0:
                data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
            elif kind == 1:
                data = data[:at] + data[at + draw(st.integers(1, 60)) :]
            elif kind == 2:
                data = data[:at] + draw(st.sampled_from(_TOKENS)) * draw(st.integers(1, 3)) + data[at:]
            elif kind == 3:
                data = data[:at]
            else:
                other = draw(st.sampled_from(samples))
                data = data[:at] + other[draw(st.integers(0, len(other))) :]
        return data

    return st.one_of(changed(), st.sampled_from(samples), st.binary(max_size=200))
