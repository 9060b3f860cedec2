"""Loads in bounded memory: highly compressed files, read by a process with a memory limit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from loading_tables import File, column, write_table
from waiting import HANG

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DataError
from delta_sharing_client.server import SharingServer

MIB = 1024 * 1024
LONG_TEXT = 20 * MIB
MANY_ROWS = 200_000
WIDE = [f"n{number}" for number in range(16)]
WIDE_ROWS = 3_000_000
NESTED_ROWS = 400_000

#: Reads with a limit on the process's memory, beyond which an allocation fails; reports the peak of what it took.
CHILD = """
import json, resource, sys
from datetime import timedelta
import delta_sharing_client as ds

profile, table, budget, limit, most = json.loads(sys.argv[1])
options = ds.TransportOptions(memory_budget=budget)
with ds.SharingClient(profile, options=options) as client:
    warm = client.table("s.s.small").scan().to_record_batch_reader().read_all()
    held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + limit, held + limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = batches = 0
    reader = client.table(table).scan().to_record_batch_reader()
    for batch in reader:
        rows += batch.num_rows
        batches += 1
        del batch
        if batches == most:
            break
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    reader.close()
print(json.dumps({"rows": rows, "batches": batches, "peak": peak}))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    root = tmp_path_factory.mktemp("memory")
    zeros = pa.array([0]).take(pa.array([0]).take(pa.repeat(0, WIDE_ROWS)))
    text = pa.array(["x" * LONG_TEXT])
    repeated = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), MANY_ROWS), text)
    values = pa.repeat(pa.scalar(7, pa.int64()), 50 * NESTED_ROWS)
    lists = pa.ListArray.from_arrays(pa.array(range(0, 50 * NESTED_ROWS + 1, 50), pa.int32()), values)
    tables = {
        "s.s.small": write_table(
            root / "small", [column("a", "long")], [File(rows=pa.table({"a": [1]}), name="small.parquet")]
        ),
        "s.s.wide": write_table(
            root / "wide",
            [column(name, "long") for name in WIDE],
            [
                File(
                    rows=pa.table(dict.fromkeys(WIDE, zeros)),
                    name="wide.parquet",
                    options={"row_group_size": WIDE_ROWS},
                )
            ],
        ),
        "s.s.long": write_table(
            root / "long",
            [column("t", "string")],
            [
                File(
                    rows=pa.table({"t": repeated}),
                    name="long.parquet",
                    options={
                        "row_group_size": MANY_ROWS,
                        "compression": "zstd",
                        "write_statistics": False,
                        "store_schema": False,
                        "dictionary_pagesize_limit": 2 * LONG_TEXT,
                    },
                )
            ],
        ),
        "s.s.nested": write_table(
            root / "nested",
            [column("l", {"type": "array", "elementType": "long", "containsNull": True})],
            [File(rows=pa.table({"l": lists}), name="nested.parquet", options={"row_group_size": NESTED_ROWS})],
        ),
    }
    with SharingServer(tables) as running:
        yield running


def read_with_limit(server: SharingServer, table: str, budget: int, limit: int, most: int = -1) -> dict[str, Any]:
    order = json.dumps([server.profile, table, budget, limit, most])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, order], capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def size_of(server_root: Path) -> int:
    return sum(path.stat().st_size for path in server_root.glob("*.parquet"))


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA and /proc are Linux's")
class TestLimitedProcess:
    """What the budget allows, and not more: the same reads took 376 MB and 4.7 GB before."""

    def test_a_row_group_of_few_bytes_and_many_rows_is_decoded_in_steps(self, server: SharingServer) -> None:
        found = read_with_limit(server, "s.s.wide", 64 * MIB, 1024 * MIB)
        assert found["rows"] == WIDE_ROWS
        assert found["batches"] > 4
        assert found["peak"] < 160 * MIB  # all of it decoded is 366 MiB

    def test_one_long_repeated_value_is_decoded_in_steps(self, server: SharingServer) -> None:
        found = read_with_limit(server, "s.s.long", 64 * MIB, 1536 * MIB, most=5)
        assert found["batches"] == 5
        assert found["rows"] * LONG_TEXT <= 5 * 64 * MIB
        assert found["peak"] < 512 * MIB  # a hundred rows alone are 2,000 MiB

    @pytest.mark.slow
    def test_lists_of_equal_numbers_are_decoded_in_steps(self, server: SharingServer) -> None:
        found = read_with_limit(server, "s.s.nested", 64 * MIB, 1024 * MIB)
        assert found["rows"] == NESTED_ROWS
        assert found["peak"] < 160 * MIB  # all of it decoded is 153 MiB, and as much again while it is cast


def test_a_row_beyond_the_limit_is_refused_before_it_is_decoded(
    server: SharingServer, connect: Callable[..., SharingClient]
) -> None:
    table = connect(server, batch_memory_limit=8 * MIB).table("s.s.long")
    (file,) = table.scan().files()
    with pytest.raises(DataError, match=r"batch_memory_limit allows 8,388,608") as caught:
        table.scan().to_arrow()
    assert caught.value.file_id == file.file_id


def test_steps_keep_the_order_of_rows_the_limit_and_the_filter(
    server: SharingServer, connect: Callable[..., SharingClient], tmp_path: Path
) -> None:
    rows = pa.table({"id": pa.array(range(700_000), pa.int64()), "k": pa.array([n % 3 for n in range(700_000)])})
    root = write_table(
        tmp_path / "many",
        [column("id", "long"), column("k", "long")],
        [File(rows=rows, name="many.parquet", vector=range(0, 700_000, 7), options={"row_group_size": 700_000})],
        features=["deletionVectors"],
    )
    with SharingServer({"s.s.many": root}) as many:
        table = connect(many, memory_budget=1 * MIB).table("s.s.many")
        expected = [n for n in range(700_000) if n % 7]
        assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == expected
        kept = [n for n in expected if n % 3 == 1]
        assert table.scan(columns=["id"], filters=[("k", "=", 1)]).to_arrow()["id"].to_pylist() == kept
        assert table.scan(columns=["id"], limit=123_456).to_arrow()["id"].to_pylist() == expected[:123_456]
        assert table.scan(filters=[("k", "=", 1)]).count() == len(kept)
