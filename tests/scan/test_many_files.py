"""Long listings: the memory of planning with a row filter, and a client that is slower than the server."""

import subprocess
import sys
import time
from datetime import timedelta

import pytest
from long_listing import running_server

from delta_sharing_client.model.names import Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.wire.requests import QueryRequest

#: The listing has about 200 MB.
FILES = 300_000
#: Prints the number of planned files, and the peak of the memory beyond that of a small plan, in MB.
CHILD = """
import resource, sys
import delta_sharing_client as ds

profile = {"shareCredentialsVersion": 1, "endpoint": sys.argv[1], "bearerToken": "t"}

def planned(files, first):
    with ds.SharingClient(profile) as client:
        return len(client.table(f"s.d.{files}").scan(filters=[("id", ">=", first)]).files())

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)

planned(5000, 0)
before = peak()
print(planned(300_000, 299_000), peak() - before)
"""


@pytest.mark.slow
def test_memory_of_planning_with_a_filter():
    with running_server() as (_, endpoint):
        done = subprocess.run([sys.executable, "-c", CHILD, endpoint], check=True, capture_output=True, text=True)
    files, megabytes = map(int, done.stdout.split())
    assert files == 1000
    # The ids, by which duplicates are detected, take 0.2 kB a file; tasks would take 0.9 kB.
    assert megabytes < 120


def test_a_listing_that_is_decoded_slower_than_it_arrives_is_requested_once():
    """Between two reads the time-out of a read does not run."""
    timeout = timedelta(seconds=0.5)

    def convert(protocol, metadata):
        def slow(files):
            if len(files) > 1000:
                time.sleep(2 * timeout.total_seconds())
            return list(files.ids)

        return slow

    with running_server() as (server, endpoint):
        profile = Profile.from_dict({"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": "t"})
        with RestClient(profile, TransportOptions(read_timeout=timeout)) as rest:
            # Several blocks, and more than the buffers of the sockets hold.
            answer = rest.query_table(Table("15000", "d", "s"), QueryRequest(), convert)
        assert len(answer.items) == 15_000
        assert len(server.requests) == 1
