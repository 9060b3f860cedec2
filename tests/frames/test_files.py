"""Rows as Parquet, CSV, JSON lines and Arrow files."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.errors import ColumnError, DataError
from delta_sharing_client.frames.files import format_of, opened, write_batches
from delta_sharing_client.representation import plain, to_json


def write(table: pa.Table, name: str, path: Path) -> int:
    with opened(path, overwrite=False) as file:
        return write_batches(iter(table.to_batches()), table.schema, file, name, stream=False)


def test_the_format_is_that_of_the_name_or_the_given_one() -> None:
    assert format_of("a/rows.CSV", None) == "csv"
    assert format_of(Path("rows.feather"), None) == "arrow"
    assert format_of("rows.csv", "jsonl") == "jsonl"
    assert format_of(io.BytesIO(), "parquet") == "parquet"
    for target, given in (("rows", None), ("rows.csv", "xlsx"), (io.BytesIO(), None)):
        with pytest.raises(ValueError, match="is unknown: give the format, one of parquet, csv, jsonl, arrow"):
            format_of(target, given)


@pytest.mark.parametrize("end", [KeyboardInterrupt, DataError("damaged")])
def test_an_interrupted_file_does_not_exist(tmp_path: Path, end: BaseException | type[BaseException]) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        assert len(list(tmp_path.iterdir())) == 1
        raise end

    path = tmp_path / "rows.jsonl"
    with pytest.raises((KeyboardInterrupt, DataError)), opened(path, overwrite=False) as file:
        write_batches(batches(), pa.schema({"n": pa.int64()}), file, "jsonl", stream=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot remove an open file")
def test_a_file_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "rows[1].csv"
    program = (
        "import os, signal, sys\nfrom delta_sharing_client.frames.files import opened\n"
        "with opened(sys.argv[1], overwrite=True): os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)  # our own program
    assert ended.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    others = [tmp_path / ".rows[1].csv.tmp", tmp_path / ".rows1.csv.01234567.tmp"]
    for other in others:
        other.touch()
    with opened(path, overwrite=True):
        assert not left.exists()
        (running,) = set(tmp_path.iterdir()) - set(others)
        with opened(path, overwrite=True):
            assert running.exists()
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"), opened(path, overwrite=False):
        pass
    with pytest.raises(IsADirectoryError), opened(tmp_path, overwrite=True):
        pass
    assert path.read_text() == "mine"


def test_an_open_file_gets_the_stream_format_and_stays_open() -> None:
    table = pa.table({"n": [1, 2]})
    target = io.BytesIO()
    with opened(target, overwrite=False) as file:
        write_batches(iter(table.to_batches()), table.schema, file, "arrow", stream=True)
    assert pa.ipc.open_stream(target.getvalue()).read_all().equals(table)


def test_rows_that_a_format_cannot_represent(tmp_path: Path) -> None:
    table = pa.table({"d": pa.array([-800_000], pa.int32()).cast(pa.date32())})  # before the year 1
    with pytest.raises(DataError, match="cannot be written as jsonl"):
        write(table, "jsonl", tmp_path / "rows.jsonl")
    with pytest.raises(ColumnError, match="at least one column"):
        write(pa.table({}), "parquet", tmp_path / "rows.parquet")
    assert list(tmp_path.iterdir()) == []


def test_values_that_json_lacks() -> None:
    assert plain([float("nan"), float("-inf"), b"\xff", 1.5]) == ["NaN", "-Infinity", "/w==", 1.5]
    rare = {"a": [float("nan"), Decimal("1E+2")], "b": 2**62}
    assert to_json(rare) == '{"a": ["NaN", "100"], "b": 4611686018427387904}'
    pairs = {"a": Decimal("1.50"), "m": [("k", date(2024, 1, 1))]}
    assert to_json(pairs) == '{"a": "1.50", "m": [["k", "2024-01-01"]]}'


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "arrow"])
def test_binaries_maps_and_rare_floats_are_written(tmp_path: Path, name: str) -> None:
    kind = pa.map_(pa.string(), pa.int64())
    table = pa.table(
        {
            "b": pa.array([b"\xff", None], pa.binary()),
            "m": pa.array([[("k", 1)], None], kind),
            "f": [float("nan"), 0.1],
            "s": ["", None],
            "v": pa.nulls(2),
        }
    )
    path = tmp_path / f"rows.{name}"
    assert write(table, name, path) == 2
    texts = {
        "csv": '"b","m","f","s","v"\n"/w==","[[""k"", 1]]",nan,"",\n,,0.1,,\n',
        "jsonl": '{"b": "/w==", "m": [["k", 1]], "f": "NaN", "s": "", "v": null}\n'
        '{"b": null, "m": null, "f": 0.1, "s": null, "v": null}\n',
    }
    if name in texts:
        assert path.read_text() == texts[name]
    else:
        read = pq.read_table(path) if name == "parquet" else pa.ipc.open_file(path).read_all()
        assert read.column("m").to_pylist() == table.column("m").to_pylist()
        assert read.column("b").to_pylist() == table.column("b").to_pylist()


def test_a_file_that_another_process_creates_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with (
        pytest.raises(FileExistsError, match="was created by another process meanwhile"),
        opened(path, overwrite=False) as file,
    ):
        file.write(b"ours")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    missing = opened(tmp_path / "nope" / "rows.csv", overwrite=False)
    with pytest.raises(FileNotFoundError, match=r"there is no directory .*nope to write rows\.csv in"), missing:
        pass


def test_a_long_name_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 245 + ".csv")
    with opened(path, overwrite=False) as file:
        file.write(b"rows")
    assert path.read_bytes() == b"rows"
