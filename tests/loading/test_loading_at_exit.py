"""Loads at interpreter exit end with a typed error, and the process ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from loading_tables import File, column, write_table
from waiting import HANG

from delta_sharing_client.server import SharingServer

CHILD = """
import json, sys, threading
from datetime import timedelta
import delta_sharing_client as ds
import delta_sharing_client.delta.mirror.sync  # modules cannot be loaded any more when the interpreter exits

profile, call = json.loads(sys.argv[1])
begun = threading.Event()

def load():
    main = threading.main_thread()
    with ds.SharingClient(profile, options=ds.TransportOptions(max_connections=1)) as client:
        table = client.table("s.s.t")
        try:
            if call == "load":
                for batch in table.scan().to_record_batch_reader():
                    begun.set()
                    main.join()
            else:
                begun.set()
                main.join()
                table.mirror(sys.argv[2]).sync(progress=False)
        except BaseException as error:
            kind = "ours" if isinstance(error, ds.DeltaSharingError) else type(error).__name__
            print(kind, error, flush=True)
        else:
            print("whole", flush=True)

threading.Thread(target=load).start()
begun.wait()
"""


@pytest.mark.parametrize("call", ["load", "mirror"])
def test_a_load_that_outlives_the_main_thread_ends_with_a_typed_error(
    call: str, serve: Callable[..., SharingServer], tmp_path: Path
) -> None:
    files = [File(rows=pa.table({"id": [number]}), name=f"{number:03}.parquet") for number in range(300)]
    root = write_table(tmp_path / "t", [column("id", "long")], files)
    server = serve({"s.s.t": root})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([server.profile, call]), str(tmp_path / "mirror")],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.stderr == ""
    assert done.stdout.startswith(
        "ours the load was stopped: no thread can be started (cannot schedule new futures"
    )
