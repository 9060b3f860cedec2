"""One measurement in its own process, printed as one line of JSON; `compare.py` runs it.

A load of a table of one file comes first, so that imports, first calls and the memory of the interpreter are not
measured. Then the case runs once. With `--first` the case is the first load of the process: only pandas is
imported before, and the clock includes the import of the client and of all that it imports.

The output contains wall-clock and processor seconds (of the case, and of the process with its imports and the load
before), peak resident memory, the requests to the store, and the rows and sums of the result, which `compare.py`
compares with the table's manifest.

The module also runs in the environment of the official client, so its top-level imports are from the standard
library only.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import operator
import os
import platform
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import cases
import data
import store

_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}


def run_ours(case: cases.Case, url: str, response_format: bool | None = None) -> Any:
    import delta_sharing_client as ds

    selection = {"columns": case.columns, "filters": list(case.filters) or None}
    if case.result == "polars":
        return ds.load_as_polars(url, **selection)
    options: dict[str, Any] = {"use_delta_format": response_format, "progress": False}
    if case.result == "changes":
        return ds.load_table_changes_as_pandas(url, starting_version=1, **options)
    options |= selection
    if case.result == "arrow":
        return ds.load_as_arrow(url, **options)
    if case.result == "pandas":
        return ds.load_as_pandas(url, **options)
    profile, _, name = url.rpartition("#")
    with ds.SharingClient(profile) as client:
        name_of_format = {None: "auto", True: "delta", False: "parquet"}[response_format]
        return client.table(name).scan(response_format=name_of_format).files()


def run_official(case: cases.Case, url: str, use_delta_format: bool, raw_lines: bool) -> Any:
    import delta_sharing

    if case.result == "files":
        return _official_files(url, use_delta_format, raw_lines)
    if case.result == "changes":
        return delta_sharing.load_table_changes_as_pandas(
            url, starting_version=1, use_delta_format=use_delta_format
        )
    frame = delta_sharing.load_as_pandas(url, jsonPredicateHints=case.hint, use_delta_format=use_delta_format)
    for column, op, value in case.filters:
        if column == "event_date":
            import datetime

            value = datetime.date.fromisoformat(value)
        frame = frame[_COMPARE[op](frame[column], value)]
    return frame if case.columns is None else frame[list(case.columns)]


def _official_files(url: str, use_delta_format: bool, raw_lines: bool) -> Any:
    """Run the official client up to the first download, and return one item per file.

    In parquet format it builds a list of actions. In delta format it writes the lines as a transaction log to a
    temporary directory, from which its engine then reads; with `raw_lines` nothing is written.
    """
    from delta_sharing.protocol import DeltaSharingProfile, Table
    from delta_sharing.reader import DeltaSharingReader
    from delta_sharing.rest_client import DataSharingRestClient

    profile, _, name = url.rpartition("#")
    share, schema, table_name = name.split(".")
    client = DataSharingRestClient(DeltaSharingProfile.read_from_file(profile))
    table = Table(table_name, share, schema)
    if not use_delta_format:
        return client.list_files_in_table(table).add_files
    client.set_delta_format_header()
    lines = client.list_files_in_table(table).lines
    if raw_lines:
        del lines[:2]  # the protocol and the metadata; writing the log removes them too
        return lines
    reader = DeltaSharingReader(table, client)
    with tempfile.TemporaryDirectory() as directory:
        reader._DeltaSharingReader__write_temp_delta_log_snapshot(directory, lines)
    return lines


def run_pyarrow(case: cases.Case, scale: str) -> Any:
    """Read the same files from local disk: the lower bound for a client without network."""
    import pyarrow.parquet as pq

    paths = sorted(data.table_dir(case.table, scale).glob("*.parquet"))
    table = pq.read_table(paths, columns=None if case.columns is None else list(case.columns))
    return table if case.result == "arrow" else table.to_pandas()


def run_polars(case: cases.Case, urls: list[str]) -> Any:
    """Read the files with the Parquet reader of polars, which gets their signed URLs."""
    import polars as pl

    rows = pl.scan_parquet(urls, glob=False, hive_partitioning=False)
    return (rows if case.columns is None else rows.select(case.columns)).collect()


def signed_urls(profile: str, table: str) -> list[str]:
    """Return the URLs of the files of a table, as the server lists them."""
    values = json.loads(Path(profile).read_text())
    address = f"{values['endpoint']}/shares/bench/schemas/default/tables/{table}/query"
    headers = {"Authorization": f"Bearer {values['bearerToken']}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, b"{}", headers), timeout=60) as response:
        lines = [json.loads(line) for line in response]
    return [line["file"]["url"] for line in lines if "file" in line]


def prepared(client: str, case: cases.Case, profile: str, scale: str) -> Callable[[], Any]:
    """Return what runs a case with a client; polars has the URLs by then."""
    url = f"{profile}#bench.default.{case.table}"
    if client == "pyarrow":
        return partial(run_pyarrow, case, scale)
    if client == "polars":
        return partial(run_polars, case, signed_urls(profile, case.table))
    ours, _, form = client.partition("-")
    if ours == "ours":
        if form in ("arrow", "polars"):
            case = replace(case, result=form)
        return partial(run_ours, case, url, {"delta": True, "parquet": False}.get(form))
    return partial(run_official, case, url, client.startswith("delta"), client == "delta-lines")


def run(client: str, case: cases.Case, profile: str, scale: str) -> Any:
    """Run a case with a client and return its result."""
    return prepared(client, case, profile, scale)()


def describe(result: Any) -> dict[str, Any]:
    """Return the number of rows and the sums of a result, for checks."""
    if isinstance(result, list):
        return {"rows": len(result)}
    description: dict[str, Any] = {"rows": len(result), "sums": {}}
    names = result.column_names if hasattr(result, "column_names") else list(result.columns)
    description["columns"] = len(names)
    for name in ("event_id", "user_id", "quantity"):
        if name in names:
            column = result.column(name).to_pandas() if hasattr(result, "column_names") else result[name]
            description["sums"][name] = int(column.sum())
    return description


def resident() -> dict[str, int]:
    """Return the current and the peak resident memory of this process, in bytes."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        values = dict(line.split(":", 1) for line in status.splitlines())
        return {key: int(values[name].split()[0]) * 1024 for key, name in (("now", "VmRSS"), ("peak", "VmHWM"))}
    scale = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    return {"now": peak, "peak": peak}


def measure(
    client: str, case: cases.Case, base: str, profile: str, scale: str, *, first: bool = False
) -> dict[str, Any]:
    """Run a case once and return the measured values."""
    if first:
        import_module("pandas")
    else:
        run(client, cases.Case("warm-up", "warm", result=case.result), profile, scale)
    load = prepared(client, case, profile, scale)
    gc.collect()
    before = resident()
    store.counters(base, reset=True)
    usage_before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    result = load()
    seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = resident()["peak"]
    counters = store.counters(base)
    description = describe(result)
    with contextlib.suppress(ImportError):
        import pyarrow as pa

        gc.collect()
        pa.default_memory_pool().release_unused()
    return {
        "client": client,
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime - usage_before.ru_utime - usage_before.ru_stime,
        "process_cpu": usage.ru_utime + usage.ru_stime,
        "peak": peak,
        "base": before["now"],
        "held": resident()["now"] - before["now"],
        **counters,
        **description,
    }


def versions(client: str) -> dict[str, str]:
    """Return the versions of Python, of the client and of its main libraries."""
    from importlib.metadata import version

    if client == "polars":
        return {"polars": version("polars")}
    package = "delta-sharing-client" if client == "ours" else "delta-sharing"
    return {"Python": sys.version.split()[0]} | {name: version(name) for name in (package, "pandas", "pyarrow")}


def machine() -> str:
    """Return the processor, the number of cores and the operating system."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, {platform.platform(terse=True)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client", required=True)
    parser.add_argument("--case")
    parser.add_argument("--base")
    parser.add_argument("--profile")
    parser.add_argument("--scale")
    parser.add_argument("--first", action="store_true", help="measure the first load of a process")
    parser.add_argument("--versions", action="store_true", help="only print the versions")
    options = parser.parse_args()
    if options.versions:
        output: dict[str, Any] = versions(options.client)
    else:
        case = cases.cases(options.scale)[options.case]
        output = measure(options.client, case, options.base, options.profile, options.scale, first=options.first)
    print(json.dumps(output), flush=True)


if __name__ == "__main__":
    main()
