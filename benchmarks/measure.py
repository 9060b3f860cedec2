"""One measurement in a process of its own, printed as one line of JSON; `compare.py` runs it.

First a table of one file is loaded, so that imports, first calls and the interpreter's own memory are not
measured. Then the case runs once: wall-clock and processor seconds, peak resident memory, what the store
was asked for, and the rows and sums of the result, which `compare.py` holds against the table's manifest.

Runs in the reference client's environment too, so it imports nothing at the top but the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import operator
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cases
import data
import store

_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}


def run_ours(case: cases.Case, url: str, response_format: bool | None = None) -> Any:
    import delta_sharing_client as ds

    options: dict[str, Any] = {"use_delta_format": response_format, "progress": False}
    options |= {"columns": case.columns, "filters": list(case.filters) or None}
    if case.result == "arrow":
        return ds.load_as_arrow(url, **options)
    if case.result == "pandas":
        return ds.load_as_pandas(url, **options)
    profile, _, name = url.rpartition("#")
    with ds.SharingClient(profile) as client:
        wanted = {None: "auto", True: "delta", False: "parquet"}[response_format]
        return client.table(name).scan(response_format=wanted).files()


def run_reference(case: cases.Case, url: str, use_delta_format: bool, lines_alone: bool) -> Any:
    import delta_sharing

    if case.result == "files":
        return _reference_files(url, use_delta_format, lines_alone)
    frame = delta_sharing.load_as_pandas(url, jsonPredicateHints=case.hint, use_delta_format=use_delta_format)
    for column, op, value in case.filters:
        if column == "event_date":
            import datetime

            value = datetime.date.fromisoformat(value)
        frame = frame[_COMPARE[op](frame[column], value)]
    return frame if case.columns is None else frame[list(case.columns)]


def _reference_files(url: str, use_delta_format: bool, lines_alone: bool) -> Any:
    """What the reference client does up to where it would begin to download.

    In parquet format that is a list of actions; in delta format the lines, rewritten as a transaction log
    in a temporary directory, which its engine would have to read again. With `lines_alone` they are not rewritten.
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
    if lines_alone:
        del lines[:2]  # the protocol and the metadata, as the rewriting does
        return lines
    reader = DeltaSharingReader(table, client)
    with tempfile.TemporaryDirectory() as directory:
        reader._DeltaSharingReader__write_temp_delta_log_snapshot(directory, lines)
    return lines


def run_pyarrow(case: cases.Case, scale: str) -> Any:
    """The same files from local disk: what is left to a client that gets them for nothing."""
    import pyarrow.parquet as pq

    paths = sorted(data.table_dir(case.table, scale).glob("*.parquet"))
    table = pq.read_table(paths, columns=None if case.columns is None else list(case.columns))
    return table if case.result == "arrow" else table.to_pandas()


def run(client: str, case: cases.Case, base: str, profile: str, scale: str) -> Any:
    """Run a case with a client and return what it gives."""
    url = f"{profile}#bench.default.{case.table}"
    if client == "pyarrow":
        return run_pyarrow(case, scale)
    if client.startswith("ours"):
        return run_ours(case, url, {"ours": None, "ours-delta": True, "ours-parquet": False}[client])
    return run_reference(case, url, client.startswith("delta"), client == "delta-lines")


def describe(result: Any) -> dict[str, Any]:
    """Count and sum a result, so that it can be checked."""
    if isinstance(result, list):
        return {"rows": len(result)}
    told: dict[str, Any] = {"rows": len(result), "sums": {}}
    names = result.column_names if hasattr(result, "column_names") else list(result.columns)
    told["columns"] = len(names)
    for name in ("event_id", "user_id", "quantity"):
        if name in names:
            column = result.column(name).to_pandas() if hasattr(result, "column_names") else result[name]
            told["sums"][name] = int(column.sum())
    return told


def resident() -> dict[str, int]:
    """Bytes of memory held now and at the most, of this process alone."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        values = dict(line.split(":", 1) for line in status.splitlines())
        return {key: int(values[name].split()[0]) * 1024 for key, name in (("now", "VmRSS"), ("peak", "VmHWM"))}
    scale = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    return {"now": peak, "peak": peak}


def measure(client: str, case: cases.Case, base: str, profile: str, scale: str) -> dict[str, Any]:
    """Run a case once and tell what it took."""
    warm = cases.Case("warm-up", "warm", result=case.result)
    run(client, warm, base, profile, scale)
    gc.collect()
    before = resident()
    store.counters(base, reset=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    begun = time.perf_counter()
    result = run(client, case, base, profile, scale)
    seconds = time.perf_counter() - begun
    spent = resource.getrusage(resource.RUSAGE_SELF)
    peak = resident()["peak"]
    asked = store.counters(base)
    told = describe(result)
    with contextlib.suppress(ImportError):
        import pyarrow as pa

        gc.collect()
        pa.default_memory_pool().release_unused()
    return {
        "client": client,
        "seconds": seconds,
        "cpu": spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime,
        "peak": peak,
        "base": before["now"],
        "held": resident()["now"] - before["now"],
        "requests": asked["requests"],
        "bytes": asked["bytes"],
        **told,
    }


def versions(client: str) -> dict[str, str]:
    """The versions that matter to a result."""
    from importlib.metadata import version

    mine = "delta-sharing-client" if client == "ours" else "delta-sharing"
    return {"Python": sys.version.split()[0]} | {name: version(name) for name in (mine, "pandas", "pyarrow")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client", required=True)
    parser.add_argument("--case")
    parser.add_argument("--base")
    parser.add_argument("--profile")
    parser.add_argument("--scale")
    parser.add_argument("--versions", action="store_true", help="only tell the versions")
    options = parser.parse_args()
    if options.versions:
        told: dict[str, Any] = versions(options.client)
    else:
        case = cases.cases(options.scale)[options.case]
        told = measure(options.client, case, options.base, options.profile, options.scale)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
