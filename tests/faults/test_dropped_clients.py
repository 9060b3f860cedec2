"""Clients that are dropped without `close`, in every state of a load, leave no connection and no thread."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from faults.faulty_share import FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request
from waiting import FOREVER, HANG, run_program

#: Drops clients of each way, and prints what is left of them. Nothing needs the garbage collector.
CHILD = """
import gc, json, os, resource, sys, threading, time
from datetime import timedelta
from pathlib import Path

import delta_sharing_client as ds

profile, folder, clients, patience = json.loads(sys.argv[1])
QUICK = dict(backoff_base=timedelta(milliseconds=1), backoff_cap=timedelta(milliseconds=2))

def table(fault="none", **options):
    options = ds.TransportOptions(user_agent=fault, **QUICK, **options)
    return ds.SharingClient(profile, options=options).table("s.s.t")

def failing(fault, **options):
    try:
        table(fault, **options).to_arrow()
    except ds.DeltaSharingError as error:
        return
    raise AssertionError(f"{fault} did not fail")

def half():
    rows = table().scan().to_record_batches()
    next(rows)

def half_while_files_stall():
    rows = table("second file stalls", read_timeout=timedelta(days=1)).scan().to_record_batches()
    next(rows)

def interrupted():
    try:
        for _ in table().scan().to_record_batch_reader():
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass

def poller():
    with table().poll_changes(starting_version=0) as poll:
        for batch in poll:
            batch.to_arrow()
            break

def poller_without_close():
    table().poll_changes(starting_version=0).pull().to_arrow()

numbers = iter(range(10**6))

def mirror():
    table().mirror(f"{folder}/m{next(numbers)}").sync(progress=False)

def failing_mirror():
    try:
        table("files are gone").mirror(f"{folder}/m{next(numbers)}").sync(progress=False)
    except ds.DeltaSharingError:
        return
    raise AssertionError

def dataset():
    table().scan().to_dataset().to_table()

def half_a_dataset():
    next(iter(table().scan().to_dataset().to_batches()))

def missing_table():
    try:
        ds.SharingClient(profile).table("s.s.other").to_arrow()
    except ds.DeltaSharingError:
        return
    raise AssertionError

def module_function():
    path = Path(folder) / f"p{next(numbers)}.share"
    path.touch(0o600)
    path.write_text(json.dumps(profile))
    ds.load_as_pandas(f"{path}#s.s.t")

def listing():
    next(ds.SharingClient(profile).iter_shares())

ways = {
    "a load": lambda: table().to_arrow(),
    "a load to pandas": lambda: table().to_pandas(),
    "a limit": lambda: table().head(3),
    "a count": lambda: table().count(),
    "half a load": half,
    "half a load whose other files stall": half_while_files_stall,
    "an interrupted load": interrupted,
    "a failed query": lambda: failing("query is refused"),
    "a query that is busy": lambda: failing("query is busy", api_attempts=3),
    "files that are gone": lambda: failing("files are gone"),
    "a busy store": lambda: failing("files are busy", storage_attempts=3),
    "cut files": lambda: failing("files are cut", storage_attempts=3),
    "damaged files": lambda: failing("files are damaged"),
    "a missing table": missing_table,
    "a poller": poller,
    "a poller without close": poller_without_close,
    "a mirror": mirror,
    "a mirror that fails": failing_mirror,
    "a dataset": dataset,
    "half a dataset": half_a_dataset,
    "a module function": module_function,
    "a listing": listing,
}

def sockets():
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            pass  # of `listdir`
    return found

def left():
    return sockets(), [t.name for t in threading.enumerate() if t.name.startswith("delta-sharing")]

for way in ways.values():
    way()  # imports
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
gc.collect()
gc.disable()
found = {}
for name, way in ways.items():
    for _ in range(clients):
        way()
    end = time.monotonic() + patience
    while left() != (0, []) and time.monotonic() < end:
        time.sleep(0.005)
    if left() != (0, []):
        found[name] = left()
        gc.collect()
print(json.dumps(found))
"""


def faulty(request: Request, reply: Reply) -> Reply:
    """Send the fault that the user agent names."""
    fault, is_file = request.headers.get("user-agent", ""), request.path.startswith("/data/")
    if is_file:
        if fault == "files are gone":
            return Reply(status=404, body=b"<Error><Code>NoSuchKey</Code></Error>")
        if fault == "files are busy":
            return Reply(status=503)
        if fault == "files are cut":
            return reply.but(cut_at=100)
        if fault == "files are damaged":
            return reply.but(body=bytes(len(reply.body)))
        if fault == "second file stalls" and not request.path.endswith("/f0"):
            return reply.but(delay=FOREVER)
        return reply
    if fault == "query is refused":
        return Reply(status=403)
    if fault == "query is busy":
        return Reply(status=503)
    return reply


@pytest.mark.skipif(sys.platform != "linux", reason="the open sockets are read from /proc")
def test_dropped_clients_leave_no_connection_and_no_thread(server: FaultServer, tmp_path: Path) -> None:
    files = [File(f"f{n}", rows(1000 * n, 30), parquet(rows(1000 * n, 30))) for n in range(3)]
    share = FaultyShare(server=server, versions=[files])
    share.fault = faulty
    clients = 14  # of each way: more than 300
    arguments = json.dumps([server.profile, str(tmp_path), clients, HANG])
    done = run_program([sys.executable, "-c", CHILD, arguments])
    assert done.stderr == ""
    assert done.stdout.strip() == "{}"
