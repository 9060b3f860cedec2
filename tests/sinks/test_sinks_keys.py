"""Net changes per key, compared with a row-by-row implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.errors import SinkError, SinkKeyError
from delta_sharing_client.sinks.keys import check_unique, net_changes, numbers_of

KINDS = ("insert", "delete", "update_preimage", "update_postimage")
Change = tuple[int, str, str, int]


def changes(found: list[Change]) -> pa.Table:
    """Rows of changes: two key columns, the kind, the version."""
    names = ["a", "b", "_change_type", "_commit_version"]
    types = [pa.int64(), pa.string(), pa.string(), pa.int64()]
    arrays = [pa.array([row[i] for row in found], kind) for i, kind in enumerate(types)]
    return pa.table([*arrays, pa.array(range(len(found)), pa.int64())], names=[*names, "n"])


def by_rows(found: list[Change]) -> dict[str, Any] | None:
    """Row by row, with dictionaries; None where a key is there twice."""
    there: dict[tuple[int, str], int | None] = {}
    new: set[tuple[int, str]] = set()
    numbered = sorted(
        enumerate(found), key=lambda item: (item[1][3], item[1][2] in ("insert", "update_postimage"))
    )
    brought: set[tuple[tuple[int, str], int]] = set()
    for number, (a, b, kind, version) in numbered:
        key = (a, b)
        if kind in ("delete", "update_preimage"):
            there[key] = None
            continue
        if (key, version) in brought or (kind == "insert" and there.get(key) is not None):
            return None
        if kind == "insert" and key not in there:
            new.add(key)
        brought.add((key, version))
        there[key] = number
    return {"touched": set(there), "new": new, "rows": {n for n in there.values() if n is not None}}


found_changes = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.sampled_from(KINDS), st.integers(0, 4)), max_size=14
)


@settings(deadline=None)
@given(found_changes)
def test_net_changes_are_those_of_the_row_by_row_implementation(found: list[Change]) -> None:
    expected = by_rows(found)
    if expected is None:
        with pytest.raises(SinkKeyError):
            net_changes(changes(found), ["a", "b"], ["n"], "t")
        return
    net = net_changes(changes(found), ["a", "b"], ["n"], "t")
    assert {tuple(row.values()) for row in net.touched.to_pylist()} == expected["touched"]
    assert net.touched.num_rows == len(expected["touched"])
    assert {tuple(row.values()) for row in net.new.to_pylist()} == expected["new"]
    assert net.rows.column("n").to_pylist() == sorted(expected["rows"])


keys = st.lists(st.tuples(st.integers(-3, 3) | st.none(), st.text("ab", max_size=2) | st.none()), max_size=30)


def key_table(rows: list[tuple[int | None, str | None]]) -> pa.Table:
    return pa.table(
        {"a": pa.array([r[0] for r in rows], pa.int64()), "b": pa.array([r[1] for r in rows], pa.string())}
    )


@settings(deadline=None)
@given(keys)
def test_combinations_of_keys_have_distinct_numbers(rows: list[tuple[int | None, str | None]]) -> None:
    numbers = numbers_of(key_table(rows), ["a", "b"])
    assert len(set(zip(rows, numbers.tolist(), strict=True))) == len(set(rows)) == len(set(numbers.tolist()))


@settings(deadline=None)
@given(keys)
def test_duplicate_keys_in_the_target_raise(rows: list[tuple[int | None, str | None]]) -> None:
    if len(set(rows)) == len(rows):
        check_unique(key_table(rows), "t")
    else:
        with pytest.raises(SinkKeyError, match="two rows have the key"):
            check_unique(key_table(rows), "t")


def test_chunks_and_slices_make_no_difference() -> None:
    table = pa.concat_tables([key_table([(1, "a"), (2, "b")]), key_table([(1, "a")])])
    assert numbers_of(table, ["a", "b"]).tolist() == [0, 1, 0]
    assert numbers_of(table.slice(1), ["a", "b"]).tolist() == [0, 1]
    assert numbers_of(key_table([]), ["a", "b"]).dtype == np.int64


def test_an_unknown_change_type_raises() -> None:
    with pytest.raises(SinkError, match="changes of an unknown kind: 'truncate'"):
        net_changes(changes([(1, "x", "truncate", 1)]), ["a"], ["n"], "t")


def test_a_long_key_is_truncated_in_messages() -> None:
    table = changes([(1, "x" * 5000, "insert", 1), (1, "x" * 5000, "insert", 1)])
    with pytest.raises(SinkKeyError) as raised:
        net_changes(table, ["b"], ["n"], "t")
    assert len(str(raised.value)) < 500
