"""Streaming queries that are killed in the middle of batches; `make kills` kills a hundred times."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from faults import stream_kills
from faults.stream_kills import KillError, Result, Round, Sink, run_kills

from delta_sharing_client.spark.session import pyspark_version

KILLS = 6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sessions of processes and SIGKILL are POSIX")
@pytest.mark.skipif(pyspark_version() < (4, 0), reason="Spark 3.5 has no Python data sources")
@pytest.mark.timeout(900 + 120 * KILLS)
def test_queries_that_are_killed_in_batches_write_each_row_once(
    java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_kills, "PER_TABLE", KILLS // 2)
    result = run_kills(7, KILLS)
    assert not result.errors, result.report()
    assert result.interrupted.total() >= KILLS
    assert result.rows > 0


def test_the_comparison_finds_lost_and_repeated_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    round_ = Round("oracle", tmp_path, Result())
    sink = Sink(tmp_path, "changes")
    monkeypatch.setattr(Sink, "offset", lambda self, batch: {"initialVersion": 0, "initialSnapshot": False})
    for mode in ("rows", "changes"):
        expected = round_.source.expected(mode, 0, snapshot=False)
        assert expected.total() > 6
        sink.mode = mode
        monkeypatch.setattr(Sink, "rows", lambda self, right=expected: right)
        round_._compare(sink)
        row, count = next(iter(expected.items()))
        for wrong in (expected - Counter({row: count}), expected + Counter({row: 1})):
            monkeypatch.setattr(Sink, "rows", lambda self, wrong=wrong: wrong)
            with pytest.raises(KillError, match=rf"^{mode}: missing \[.*too many \["):
                round_._compare(sink)
