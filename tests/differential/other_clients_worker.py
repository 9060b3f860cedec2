"""Reads tables with the other clients; `conftest.py` runs it, once, in their environment.

    python other_clients_worker.py jobs.json answers.pickle

The answers hold plain Python alone (`plain_values.py`), so that libraries of other versions can load them.
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
    """Do one job: `reader`, `url`, and the arguments of the load."""
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
    """A table's rows as an Arrow table, by deltalake from the table's own log."""
    import deltalake
    import pyarrow as pa

    table = deltalake.DeltaTable(path, version=version)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("select * from t").read_all())


def main(jobs: str, answers: str) -> None:
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name, job in json.loads(Path(jobs).read_text("utf-8")).items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the client prints
                found[name] = read(job)
        except BaseException as error:  # noqa: BLE001 - a panic of Rust code is no Exception
            found[name] = f"{type(error).__name__}: {error}"
    with Path(answers).open("wb") as file:
        pickle.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
