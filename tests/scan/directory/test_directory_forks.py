"""A process forked while another thread requests temporary credentials reads a table of the same client."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from directory_store import PATH, DirectoryServer
from faults.server import Reply, Request
from waiting import FOREVER, HANG, wait_until

#: Starts a load on another thread, forks when it is told that the request is under way, and loads in the child.
CHILD = """
import faulthandler, json, os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forks of processes with threads
import delta_sharing_client as ds

profile, patience = json.loads(sys.argv[1])
client = ds.SharingClient(profile)

# The lock of a module that a thread imports stays locked in the child.
import pyarrow.fs
from delta_sharing_client.frames import arrow, progress
from delta_sharing_client.scan import directory_log, log_planner, pipeline
from delta_sharing_client.storage import directory, file_systems
threading.Thread(target=lambda: client.table("s.d.t").to_arrow(), daemon=True).start()
sys.stdin.readline()
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(patience, exit=True)
    assert client.table("s.d.t").to_arrow().num_rows == 3
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_during_a_request_for_credentials(shared: DirectoryServer) -> None:
    write_deltalake(shared.path, pa.table({"id": [1, 2, 3]}))

    def late(request: Request) -> Reply:
        return shared._credentials(request).but(delay=FOREVER)

    path = f"{PATH}/temporary-table-credentials"
    shared.api.on("POST", path, late, shared._credentials)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps([shared.api.profile, HANG])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: shared.api.seen(path))
        output, errors = process.communicate("fork\n", timeout=2 * HANG)
    assert (output, errors) == ("0\n", "")
