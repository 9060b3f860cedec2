"""Plans of very many files for Spark, in the memory of a small driver."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.stream_kills import Sink, running_driver
from long_listing import running_server
from spark_processes import processes_of
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
def test_streams_of_100_000_files_start_in_a_driver_of_2_gb(java: Path, tmp_path: Path) -> None:
    """A driver of 1 GB is one whose JVM ends beyond that heap, and leaves 1 GB to two planners in Python."""
    buffer, sinks = io.BytesIO(), [Sink(tmp_path, mode) for mode in ("rows", "changes")]
    pq.write_table(pa.table({"id": [1]}), buffer)
    queries = {
        sink.mode: sink.query({"maxFilesPerTrigger": "10", "readChangeFeed": str(sink.mode == "changes")})
        for sink in sinks
    }
    with running_server(buffer.getvalue()) as (server, endpoint):
        fields = {"shareCredentialsVersion": "1", "endpoint": endpoint, "bearerToken": "t"}
        arguments = {"fields": fields, "table": "s.d.100000", "queries": queries, "memory": "1g"}
        with running_driver(tmp_path, **arguments) as driver:
            wait_until(lambda: all(sink.done >= 2 for sink in sinks) or driver.poll() is not None)
            assert driver.poll() is None, (tmp_path / "errors").read_text()[-3000:]
            peaks = [peak_memory(pid) for pid in processes_of(driver.pid)]
    for sink in sinks:
        rows = sink.rows().total()
        assert rows >= 30
        assert rows % 10 == 0
    assert sum(path.endswith("/query") for path in server.requests) == len(sinks)
    # Only the planner of a query holds the list. The number of workers, and what they share, is Spark's.
    pythons = [megabytes for name, megabytes in peaks if name.startswith("python")]
    assert len(pythons) > len(sinks), peaks
    assert max(pythons) < 512, peaks


def peak_memory(pid: int) -> tuple[str, int]:
    """Return the name of a process and the largest resident memory that it had, in MB; 0 if it has ended."""
    with contextlib.suppress(OSError):
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return fields["Name"].strip(), int(fields.get("VmHWM", "0").split()[0]) // 1024
    return "", 0
