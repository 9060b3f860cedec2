"""The same tables read by the reference client, in both response formats, and by deltalake from the log.

They give the same values as this package does, or the difference stands in `known_differences.py`. One that
does not stand there fails, and so does one that stands there and does not occur any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from compare_answers import Answer, kinds_of
from differential_jobs import JOBS, Job
from differential_peer import peer_module
from known_differences import KNOWN, table
from plain_values import NAN, NULL, Cell

SUBJECTS: dict[tuple[str, str], list[Job]] = defaultdict(list)
for _job in JOBS:
    SUBJECTS[_job.reader, _job.subject].append(_job)


@pytest.mark.parametrize(("reader", "subject"), SUBJECTS, ids=lambda text: text)
def test_answers_agree_or_the_difference_is_known(
    theirs: dict[str, Answer], ours: Callable[[Job], Answer], reader: str, subject: str
) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for job in SUBJECTS[reader, subject]:
        # deltalake promises no order.
        for kind in kinds_of(ours(job), theirs[job.name], list(job.key), ordered=reader != "deltalake"):
            found[kind].append(job.what)
    known = {kind for (one, kind), subjects in KNOWN.items() if one == reader and subject in subjects}
    assert set(found) == known, f"found: {dict(found)}; known: {sorted(known)}"


def test_known_differences_are_of_what_is_read() -> None:
    assert all(
        subject in {s for r, s in SUBJECTS if r == reader}
        for (reader, _), all_ in KNOWN.items()
        for subject in all_
    )


def test_the_page_lists_the_known_differences() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "differences.md").read_text("utf-8")
    assert page.partition("<!-- differences -->\n")[2].partition("<!-- /differences -->")[0] == table()
    assert f" {len({job.table for job in JOBS if '.' not in job.table})} tables written by Spark" in page
    versions = {package.partition("==")[0]: package.partition("==")[2] for package in peer_module().PACKAGES}
    assert f"`delta-sharing` {versions['delta-sharing']} and deltalake {versions['deltalake']}" in page


INT, FLOAT = ("int", 3), ("float", (3.0).hex())


@pytest.mark.parametrize(
    ("mine", "other", "kinds"),
    [
        (INT, INT, set()),
        (INT, FLOAT, {"integers as floats"}),
        (INT, ("float", (4.0).hex()), {"integers rounded"}),
        (INT, ("int", 4), {"other ints"}),
        (INT, NULL, {"int is null"}),
        (NULL, NAN, {"null as NaN"}),
        (("float", (0.0).hex()), ("float", (-0.0).hex()), {"other floats"}),
        (("decimal", "1.10"), ("decimal", "1.1"), {"other decimals"}),
        (("str", ""), NULL, {"str is null"}),
        (("time", 5, "utc"), ("time", 5, "naive"), {"times without zone"}),
        (("time", 2**63 // 1000, "utc"), ("time", -(2**63) // 1000, "utc"), {"times wrapped"}),
        (("time", 5, "utc"), ("time", 6, "utc"), {"other times"}),
        (("int", 1_700_000_000_123), ("time", 1_700_000_000_123_000, "utc"), {"commit times as timestamps"}),
        (("int", 1_700_000_000_123), ("time", 1_700_000_001_000_000, "utc"), {"int is time"}),
        (("list", INT, NULL), ("list", FLOAT, NAN), {"integers as floats", "null as NaN"}),
        (("list", INT), ("list", INT, INT), {"other lists"}),
        (("struct", ("a", INT), ("b", NULL)), ("struct", ("a", INT)), {"struct fields"}),
        (("struct", ("a", INT), ("b", INT)), ("struct", ("a", INT)), {"other structs"}),
    ],
)
def test_differences_of_values_are_described(mine: Cell, other: Cell, kinds: set[str]) -> None:
    rows = [("id", [INT]), ("v", [mine])], [("id", [INT]), ("v", [other])]
    assert kinds_of(*rows, ["id"]) == kinds


def test_differences_of_answers_are_described() -> None:
    one: Answer = [("id", [("int", 1), ("int", 2)])]
    assert kinds_of(one, [("id", [("int", 2), ("int", 1)])], ["id"]) == {"row order"}
    assert kinds_of(one, [("id", [("int", 2), ("int", 1)])], ["id"], ordered=False) == set()
    assert kinds_of(one, [("id", [("int", 1)])], ["id"]) == {"rows"}
    assert kinds_of(one, [("id", [("int", 1), ("int", 1)])], ["id"]) == {"rows"}
    assert kinds_of(one, [("ID", [("int", 1), ("int", 2)])], ["id"]) == {"columns"}
    assert kinds_of(one, "ValueError: boom", ["id"]) == {"ValueError: boom"}
    assert kinds_of(one, "ValueError: year 0 is out of range", ["id"]) == {"fails: beyond Python"}
    assert kinds_of("DataError: no", one, ["id"]) == {"only we refuse"}
    assert kinds_of("DataError: no", "ValueError: boom", ["id"]) == set()
