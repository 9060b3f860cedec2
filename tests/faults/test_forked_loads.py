"""A process forked in the middle of another thread's request loads a table with the same client."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from faults.faulty_share import EXPIRED, TABLE, FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request
from waiting import FOREVER, HANG, wait_until

#: Starts a load on another thread, forks when it is told that the request is under way, and loads in the child.
CHILD = """
import faulthandler, json, os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forks of processes with threads
import delta_sharing_client as ds

profile, patience = json.loads(sys.argv[1])
client = ds.SharingClient(profile, options=ds.TransportOptions(max_connections=2))

def load():
    return client.table("s.s.t").scan(filters="id >= 0").to_arrow().num_rows

# The lock of a module that a thread imports stays locked in the child.
from delta_sharing_client.frames import arrow, progress
from delta_sharing_client.parquet import deletion_vector, residual_filter, row_group_skipping
from delta_sharing_client.scan import file_filter, pipeline, query_hints, url_renewal
if sys.argv[2] == "listing":
    threading.Thread(target=client.list_shares, daemon=True).start()
else:
    threading.Thread(target=load, daemon=True).start()
sys.stdin.readline()
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(patience, exit=True)
    assert load() == 60
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""

#: The request that is under way: its path, and which one of that path.
REQUESTS = {
    "token": ("/token", 0),
    "listing": ("/shares", 0),
    "query": (f"{TABLE}/query", 0),
    "file": ("/data/f0", 0),
    "renewal of URLs": (f"{TABLE}/query", 1),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("name", REQUESTS)
def test_a_forked_process_loads_a_table(server: FaultServer, name: str) -> None:
    share = FaultyShare(
        server=server, versions=[[File(f"f{n}", rows(100 * n, 30), parquet(rows(100 * n, 30))) for n in range(2)]]
    )
    path, number = REQUESTS[name]
    counts: dict[str, Callable[[], int]] = {}

    def fault(request: Request, reply: Reply) -> Reply:
        count = counts.setdefault(request.path, itertools.count().__next__)()
        if request.path == path and count == number:
            return reply.but(delay=FOREVER)
        if name == "renewal of URLs" and request.path == "/data/f0" and not count:
            status, text = EXPIRED[0]
            return Reply(status=status, body=text.encode(), headers={"Content-Type": "application/xml"})
        return reply

    share.fault = fault
    token = Reply.of_json({"access_token": "t", "expires_in": 3600, "token_type": "bearer"})
    server.on("POST", "/token", lambda request: fault(request, token))
    profile = {**server.profile, "bearerToken": "t"}
    if name == "token":
        profile = {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "endpoint": server.profile["endpoint"],
            "tokenEndpoint": f"{server.url}/token",
            "clientId": "c",
            "clientSecret": "s",
        }
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps([profile, HANG]), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: len([each for each in list(server.requests) if each.path == path]) > number)
        output, errors = process.communicate("fork\n", timeout=2 * HANG)
    assert (output, errors) == ("0\n", "")
