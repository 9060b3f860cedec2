"""Streaming queries that are killed in the middle of batches; `make kills` kills a hundred times."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from faults.stream_kills import KillError, Result, Round, Sink, run_kills

from delta_sharing_client.spark.session import pyspark_version

KILLS = 3


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sessions of processes and SIGKILL are POSIX")
@pytest.mark.skipif(pyspark_version() < (4, 0), reason="Spark 3.5 has no Python data sources")
@pytest.mark.timeout(900 + 300 * KILLS)
def test_queries_that_are_killed_in_batches_write_each_row_once(java: Path) -> None:
    result = run_kills(14, KILLS)  # with this seed: one table, whose changes are read, with schema tracking
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


def test_what_a_driver_leaves_before_its_first_offsets_is_removed(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "rows")
    sink.clear_first_offsets()
    rest = sink.checkpoint / "offsets" / ".0.1234.tmp"
    rest.parent.mkdir(parents=True)
    rest.touch()
    sink.clear_first_offsets()
    assert not rest.exists()
    rest.parent.mkdir()
    rest.touch()
    rest.with_name("0").touch()
    sink.clear_first_offsets()
    assert rest.exists()
    rest.with_name("0").unlink()
    sink.out.mkdir()
    (sink.out / "part-0.parquet").touch()
    with pytest.raises(KillError, match="before the first offsets"):
        sink.clear_first_offsets()
