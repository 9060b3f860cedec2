"""The same tables read by the official client, in both response formats, and by deltalake from the log.

Their values equal those of this package, or `known_differences.py` lists the difference. A difference that is not
listed fails the test, and so does a listed difference that no longer occurs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest
from compare_results import Result, kinds_of_differences
from differential_jobs import JOBS, Job
from known_differences import KNOWN, markdown_table
from plain_values import NAN, NULL, Cell
from script_modules import ROOT, load_script

SUBJECTS: dict[tuple[str, str], list[Job]] = defaultdict(list)
for _job in JOBS:
    SUBJECTS[_job.reader, _job.subject].append(_job)


@pytest.mark.parametrize(("reader", "subject"), SUBJECTS, ids=lambda text: text)
def test_results_are_equal_or_the_difference_is_known(
    theirs: dict[str, Result], ours: Callable[[Job], Result], reader: str, subject: str
) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for job in SUBJECTS[reader, subject]:
        # deltalake guarantees no row order.
        for kind in kinds_of_differences(
            ours(job), theirs[job.name], list(job.key), ordered=reader != "deltalake"
        ):
            found[kind].append(job.what)
    known = {kind for (one, kind), subjects in KNOWN.items() if one == reader and subject in subjects}
    assert set(found) == known, f"found: {dict(found)}; known: {sorted(known)}"


def test_known_differences_name_loads_that_run() -> None:
    assert all(
        subject in {s for r, s in SUBJECTS if r == reader}
        for (reader, _), all_ in KNOWN.items()
        for subject in all_
    )


def test_the_page_lists_the_known_differences() -> None:
    page = (ROOT / "docs" / "migration.md").read_text("utf-8")
    assert page.partition("<!-- differences -->\n")[2].partition("<!-- /differences -->")[0] == markdown_table()
    assert f" {len({job.table for job in JOBS if '.' not in job.table})} tables written by Spark" in page
    versions = {
        package.partition("==")[0]: package.partition("==")[2]
        for package in load_script("benchmarks/peer.py").PACKAGES
    }
    assert f"`delta-sharing` {versions['delta-sharing']} and deltalake {versions['deltalake']}" in page


INT, FLOAT = ("int", 3), ("float", (3.0).hex())


@pytest.mark.parametrize(
    ("mine", "other", "kinds"),
    [
        (INT, INT, set()),
        (INT, FLOAT, {"integers as floats"}),
        (INT, ("float", (4.0).hex()), {"integers rounded"}),
        (INT, ("int", 4), {"different ints"}),
        (INT, NULL, {"int is null"}),
        (NULL, NAN, {"null as NaN"}),
        (("float", (0.0).hex()), ("float", (-0.0).hex()), {"different floats"}),
        (("decimal", "1.10"), ("decimal", "1.1"), {"different decimals"}),
        (("str", ""), NULL, {"str is null"}),
        (("time", 5, "utc"), ("time", 5, "naive"), {"timestamps without time zone"}),
        (("time", 2**63 // 1000, "utc"), ("time", -(2**63) // 1000, "utc"), {"timestamp overflow"}),
        (("time", 5, "utc"), ("time", 6, "utc"), {"different timestamps"}),
        (("int", 1_700_000_000_123), ("time", 1_700_000_000_123_000, "utc"), {"commit timestamps as timestamps"}),
        (("int", 1_700_000_000_123), ("time", 1_700_000_001_000_000, "utc"), {"int is time"}),
        (("list", INT, NULL), ("list", FLOAT, NAN), {"integers as floats", "null as NaN"}),
        (("list", INT), ("list", INT, INT), {"different lists"}),
        (("struct", ("a", INT), ("b", NULL)), ("struct", ("a", INT)), {"missing struct fields"}),
        (("struct", ("a", INT), ("b", INT)), ("struct", ("a", INT)), {"different structs"}),
    ],
)
def test_differences_of_values_are_classified(mine: Cell, other: Cell, kinds: set[str]) -> None:
    rows = [("id", [INT]), ("v", [mine])], [("id", [INT]), ("v", [other])]
    assert kinds_of_differences(*rows, ["id"]) == kinds


def test_differences_of_results_are_classified() -> None:
    one: Result = [("id", [("int", 1), ("int", 2)])]
    assert kinds_of_differences(one, [("id", [("int", 2), ("int", 1)])], ["id"]) == {"row order"}
    assert kinds_of_differences(one, [("id", [("int", 2), ("int", 1)])], ["id"], ordered=False) == set()
    assert kinds_of_differences(one, [("id", [("int", 1)])], ["id"]) == {"rows"}
    assert kinds_of_differences(one, [("id", [("int", 1), ("int", 1)])], ["id"]) == {"rows"}
    assert kinds_of_differences(one, [("ID", [("int", 1), ("int", 2)])], ["id"]) == {"columns"}
    assert kinds_of_differences(one, "ValueError: boom", ["id"]) == {"ValueError: boom"}
    assert kinds_of_differences(one, "ValueError: year 0 is out of range", ["id"]) == {"error: date out of range"}
    assert kinds_of_differences("DataError: no", one, ["id"]) == {"error here only"}
    assert kinds_of_differences("DataError: no", "ValueError: boom", ["id"]) == set()
