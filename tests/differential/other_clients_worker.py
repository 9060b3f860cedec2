"""Worker that runs the loads with the other clients; `conftest.py` starts it once, in their environment.

    python other_clients_worker.py jobs.json results.pickle

The results contain plain Python values only (`plain_values.py`), so other versions of the libraries can load them.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

from plain_values import Column, arrow_columns, frame_columns


def read(job: dict[str, Any]) -> list[Column]:
    """Run one load and return its columns."""
    import delta_sharing

    arguments = dict(job["arguments"])
    if job["reader"] == "deltalake":
        return arrow_columns(read_log(job["path"], arguments["version"]))
    arguments["use_delta_format"] = job["reader"] == "delta"
    load = delta_sharing.load_as_pandas
    if "starting_version" in arguments:
        load = delta_sharing.load_table_changes_as_pandas
    return frame_columns(load(job["url"], **arguments))


def read_log(path: str, version: int) -> Any:
    """Return the rows of a local Delta table as an Arrow table, read by deltalake."""
    import deltalake
    import pyarrow as pa

    table = deltalake.DeltaTable(path, version=version)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("select * from t").read_all())


def main(jobs: str, output: str) -> None:
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    for name, job in json.loads(Path(jobs).read_text("utf-8")).items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the client prints to stdout
                results[name] = read(job)
        except BaseException as error:  # noqa: BLE001 - a panic in Rust is a BaseException
            results[name] = f"{type(error).__name__}: {error}"
    with Path(output).open("wb") as file:
        pickle.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
