"""No load starts a thread of a library: a process that ends just after such a thread has started is aborted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from loading_tables import File, column, write_table
from waiting import run_program

from delta_sharing_client.server import SharingServer

#: Reads a table in all ways, and prints which of them started threads that Python does not know.
CHILD = """
import json, os, sys, threading, time
from pathlib import Path
import numpy, pandas, pyarrow.csv, pyarrow.dataset, pyarrow.parquet  # some start threads when they are imported
import delta_sharing_client as ds

profile, folder = json.loads(sys.argv[1])
table = ds.SharingClient(profile).table("s.s.t")

def checkpoint():
    table.mirror(folder + "/mirror").sync(progress=False)
    log = ds.DeltaLog.for_table(folder + "/mirror")
    log.checkpoint()
    ds.DeltaLog.for_table(folder + "/mirror").snapshot().to_arrow()

ways = {
    "to_arrow": table.to_arrow,
    "to_pandas": table.to_pandas,
    "pyarrow dtypes": lambda: table.to_pandas(dtype_backend="pyarrow"),
    "nullable dtypes": lambda: table.to_pandas(dtype_backend="numpy_nullable"),
    "columns": lambda: table.scan(["n0", "text"]).to_pandas(),
    "head": table.head,
    "count": table.count,
    "filters": lambda: table.scan(filters="n0 > 100 and text = 'b'").to_pandas(),
    "reader": lambda: table.scan().to_record_batch_reader().read_all(),
    "dataset": lambda: table.scan().to_dataset().to_table(filter=pyarrow.dataset.field("n0") > 5),
    "to_parquet": lambda: table.scan().to_parquet(folder + "/rows.parquet"),
    "to_csv": lambda: table.scan(limit=9).to_csv(folder + "/rows.csv"),
    "changes": lambda: table.changes(starting_version=0).to_pandas(),
    "history": table.history,
    "checkpoint": checkpoint,
}

JEMALLOC = "jemalloc_bg_thd"  # frees memory; it ends with the process

def name_of(thread):
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    except OSError:
        return JEMALLOC  # it has ended

def unknown():
    known = {str(thread.native_id) for thread in threading.enumerate()}
    found = set(os.listdir("/proc/self/task")) - known
    return {thread for thread in found if name_of(thread) != JEMALLOC}

found = {}
for name, way in ways.items():
    before = unknown()
    way()
    end = time.monotonic() + 5
    while (after := unknown() - before) and time.monotonic() < end:
        time.sleep(0.005)  # Python forgets its threads just before they end
    if after:
        found[name] = len(after)
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the threads are read from /proc")
def test_no_load_starts_a_thread_of_a_library(serve: Callable[..., SharingServer], tmp_path: Path) -> None:
    rows = 100_000  # 6 MB: columns of a single file are decoded on several threads
    numbers = np.random.default_rng(7).integers(0, 10**12, (10, rows))
    table = pa.table({f"n{number}": values for number, values in enumerate(numbers)})
    table = table.append_column("text", pa.array(np.array(["a", "b", "c"])[numbers[0] % 3]))
    columns = [column(f"n{number}", "long") for number in range(len(numbers))]
    root = write_table(
        tmp_path / "t",
        [*columns, column("text", "string")],
        [File(rows=table, name="only.parquet")],
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    server = serve({"s.s.t": root})
    done = run_program([sys.executable, "-c", CHILD, json.dumps([server.profile, str(tmp_path)])])
    assert done.stderr == ""
    assert done.stdout.strip() == "{}"
