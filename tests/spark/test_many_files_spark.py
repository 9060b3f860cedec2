"""Plans of very many files for Spark, in the memory of a small driver."""

import subprocess
import sys

import pytest
from long_listing import running_server

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
