"""An embedded Delta Sharing server, for demos, notebooks and tests.

    from delta_sharing_client.server import SharingServer

    with SharingServer("warehouse") as server:
        client = SharingClient(server.profile)

It serves local Delta tables over the Delta Sharing protocol, in both response formats, on loopback. It is
no production server: one process, one token, no TLS, and the token gives access to every table.

It shares no wire code with the client. It writes the JSON of the protocol itself, so that a misspelled field on
one side fails a test.
"""

from __future__ import annotations

from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.recording import RecordedRequest
from delta_sharing_client.server.runner import SharingServer
from delta_sharing_client.server.samples import write_sample_tables

__all__ = ["RecordedRequest", "ServerOptions", "SharingServer", "write_sample_tables"]
