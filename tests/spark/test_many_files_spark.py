"""Plans of very many files for Spark, in the memory of a small driver."""

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.stream_kills import Sink, processes, running_driver
from long_listing import running_server
from waiting import wait_until

from delta_sharing_client.spark.session import pyspark_version

FILES = 1_000_000
#: Prints the number of planned files, the size of the encoded plan in bytes, and the peak of the memory in MB.
CHILD = """
import resource, sys
import delta_sharing_client as ds
from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

profile = {"shareCredentialsVersion": 1, "endpoint": sys.argv[1], "bearerToken": "t"}
with ds.SharingClient(profile) as client:
    table = client.table(f"s.d.{sys.argv[2]}")
    plan = table.scan().plan()
    job, parts = encode_plan(table._rest, plan, ExecutorOptions(), cores=64)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)
print(len(plan.tasks), len(job) + sum(map(len, parts)), peak)
"""


@pytest.mark.slow
def test_a_plan_of_a_million_files_fits_into_a_driver_of_2_gb():
    with running_server() as (_, endpoint):
        command = [sys.executable, "-c", CHILD, endpoint, str(FILES)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    files, encoded, megabytes = map(int, done.stdout.split())
    assert files == FILES
    # Spark Connect accepts messages of at most 128 MB.
    assert encoded < 64 * 1024 * 1024
    assert megabytes < 1500


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory in /proc")
@pytest.mark.skipif(pyspark_version() < (4, 0), reason="Spark 3.5 has no Python data sources")
@pytest.mark.parametrize("changes", ["false", "true"])
def test_a_stream_of_100_000_files_starts_in_a_driver_of_2_gb(java: Path, tmp_path: Path, changes: str) -> None:
    buffer, sink = io.BytesIO(), Sink(tmp_path, "rows")
    pq.write_table(pa.table({"id": [1]}), buffer)
    options = {"maxFilesPerTrigger": "10", "readChangeFeed": changes}
    with running_server(buffer.getvalue()) as (server, endpoint):
        fields = {"shareCredentialsVersion": "1", "endpoint": endpoint, "bearerToken": "t"}
        table, queries = "s.d.100000", {"rows": sink.query(options)}
        with running_driver(tmp_path, fields=fields, table=table, queries=queries, memory="2g") as driver:
            wait_until(lambda: sink.done >= 2 or driver.poll() is not None)
            assert driver.poll() is None, (tmp_path / "errors").read_text()[-3000:]
            # All processes: the JVM, the driver, Python's planners and workers.
            kilobytes = sum(map(peak_memory, processes(driver.pid)))
    rows = sink.rows().total()
    assert rows >= 30
    assert rows % 10 == 0
    assert sum(path.endswith("/query") for path in server.requests) == 1
    assert kilobytes < 2 * 1024 * 1024


def peak_memory(pid: int) -> int:
    """Return the largest resident memory that a process had, in kB; 0 if it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
