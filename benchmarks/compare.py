"""Benchmark of this client against the official client and polars, in one run, on one store and one machine.

    make bench                                    all cases, twenty minutes; BENCH="..." passes the options below
    python benchmarks/compare.py --quick          small tables, a minute or two; shows trends only
    python benchmarks/compare.py --only large     one case; several are separated by commas
    python benchmarks/compare.py --clients ours,polars --only small,large,columns,local-large,local-small
                                                  beside polars, which reads the same signed URLs
    python benchmarks/compare.py --first          the first load of a process, with the import of the client
    python benchmarks/compare.py --json out.json  also writes each measurement to a file

The cases, and the cost in the official client that they show:

    small, partition      it fetches one file after the other: latency times number of files
    large                 it uses one connection and decodes only between downloads: bandwidth of one connection
    columns, rows         it fetches whole files and selects afterwards
    changes               it fetches the files of the changes one after the other, several requests per file
    local-*               no delay: the time of the client itself; pyarrow reads the same files from disk
    local-tiny            10,000 files of 10 rows: the cost of a file, beside that of pyarrow
    listing               300,000 files, one line of JSON each, up to the first download; for the official client
                          in delta format also the time to receive the lines without planning

polars reads the same signed URLs with its own Parquet reader, in Rust. It gets the URLs, so that the request for
them is not measured. Beside it, this client loads to Arrow, polars and pandas.

Every measurement runs in its own process. The clients take turns (A, B, C, A, B, C, ...), and the report contains
medians. The official client runs with `use_delta_format` True and False; compare with the faster one. It requires
older versions of pandas and pyarrow, so it has its own environment (`peer.py`), which is created on first use and
needs a package index. To exclude the effect of these versions, use `--our-python` with the interpreter of an
environment that has this package and the same versions.

The store delays the first byte of every response by 60 ms and limits a connection to 40 MB/s, as object stores do
within a region; `--latency` and `--bandwidth` change this. Peak memory is that of the measured process, including
interpreter and libraries ("base" is their part). Processor seconds of the process include those of its imports.
Results are compared with the sums of the data.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import cases
import data
import measure
import store
from peer import peer_python

HERE = Path(__file__).resolve().parent
NAMES = {
    "ours": "delta-sharing-client",
    "ours-parquet": "delta-sharing-client, parquet format",
    "delta": "delta-sharing, delta format",
    "delta-lines": "delta-sharing, delta format, lines as text only",
    "parquet": "delta-sharing, parquet format",
    "pyarrow": "pyarrow, local files",
    "ours-arrow": "delta-sharing-client, to Arrow",
    "ours-polars": "delta-sharing-client, to polars",
    "polars": "polars, signed URLs",
}
TIMEOUT = 1800
#: A run that takes more seconds is not repeated; its relative noise is small.
NO_REPEAT_AFTER = 120

Results = dict[tuple[str, str], list[dict[str, Any]]]


def run_child(python: str, arguments: list[str]) -> dict[str, Any]:
    """Run `measure.py` and return its output, or the error if it fails."""
    command = [python, str(HERE / "measure.py"), *arguments]
    # The modules of this package are compiled once, as those of an installed package are.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {TIMEOUT} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    output: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return output


def interpreters(options: argparse.Namespace) -> dict[str, str]:
    """Return the Python interpreter of each client."""
    ours = options.our_python or sys.executable
    pythons = dict.fromkeys(("ours", "ours-parquet", "pyarrow", *cases.BESIDE_POLARS), ours)
    if {"delta", "parquet"} & set(options.clients):
        pythons |= dict.fromkeys(("delta", "delta-lines", "parquet"), options.peer_python or peer_python())
    return pythons


def compare(options: argparse.Namespace, running: store.RunningStore, profile: str) -> Results:
    """Run every case, the clients taking turns."""
    pythons = interpreters(options)
    results: Results = defaultdict(list)
    for name, case in options.cases.items():
        running.settings(case.latency, case.bandwidth)
        # The first process with a client compiles modules.
        for repetition in range(-1 if options.first else 0, options.repeat):
            for client in case.clients:
                if client.partition("-")[0] not in options.clients:
                    continue
                if any(run.get("seconds", 0) > NO_REPEAT_AFTER for run in results[name, client]):
                    continue
                arguments = ["--client", client, "--case", name, "--scale", options.scale]
                arguments += ["--base", running.base, "--profile", profile, *["--first"][: options.first]]
                result = run_child(pythons[client], arguments)
                if repetition < 0:
                    continue
                error = result.get("error") or error_in(case, result, options.scale)
                summary = error or f"{result['seconds']:8.2f} s, {result['peak'] / 1e6:6.0f} MB"
                print(f"{name} {repetition + 1}/{options.repeat} {client:12} {summary}", file=sys.stderr)
                results[name, client].append({**result, "error": error} if error else result)
    return results


def error_in(case: cases.Case, result: dict[str, Any], scale: str) -> str | None:
    """Compare a result with the manifest of the table; return the difference, or None."""
    manifest = data.read_manifest(case.table, scale)
    if case.result == "files":
        expected, rows = manifest["listed"], result["rows"]
        # The lines of the official client may include a line that is not a file.
        return None if abs(rows - expected) <= 2 else f"{rows} files listed, not {expected}"
    if case.result == "changes":
        expected = sum(json.loads(entry["stats"])["numRecords"] for entry in data.changed_files(manifest["files"]))
        return None if result["rows"] == expected else f"{result['rows']} rows, not {expected}"
    if case.filters:
        return None if result["rows"] else "no rows"
    if result["rows"] != manifest["rows"]:
        return f"{result['rows']} rows, not {manifest['rows']}"
    wrong = [name for name, total in result["sums"].items() if total != manifest["sums"][name]]
    return f"wrong sums of {', '.join(wrong)}" if wrong else None


def results_agree(case_results: dict[str, list[dict[str, Any]]]) -> bool:
    """Return whether all clients returned the same rows and sums; pyarrow does not filter and is ignored."""
    runs = [run for client, all_ in case_results.items() if client != "pyarrow" for run in all_]
    results = {(run["rows"], json.dumps(run.get("sums"), sort_keys=True)) for run in runs if "error" not in run}
    return len(results) <= 1


def median(runs: list[dict[str, Any]], key: str) -> float:
    """Return the median of one value over the runs without error."""
    return statistics.median(run[key] for run in runs if "error" not in run)


def report(options: argparse.Namespace, results: Results, environment: dict[str, str]) -> str:
    """Return the results as Markdown."""
    clock = "the first load of a process, with the import of the client" if options.first else "imports excluded"
    lines = [
        f"{environment['machine']}. {environment['versions']}.",
        f"Medians of {options.repeat}, spread in brackets; tables of scale `{options.scale}`; "
        f"{options.latency * 1000:.0f} ms to the first byte, {options.bandwidth / 1e6:.0f} MB/s per connection "
        f"unless the case has no delay; {clock}.",
        "",
        "| case | client | seconds | ours is faster by | CPU s (process) | peak MB (base) | requests "
        "| MB fetched |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, case in options.cases.items():
        by_client = {client: results[name, client] for client in case.clients if results.get((name, client))}
        succeeded = {client for client, runs in by_client.items() if any("error" not in run for run in runs)}
        for client, runs in by_client.items():
            title = f"**{case.title}**" if client == next(iter(by_client)) else ""
            if client not in succeeded:
                lines.append(f"| {title} | {NAMES[client]} | {runs[0]['error']} | | | | | |")
                continue
            seconds = [run["seconds"] for run in runs if "error" not in run]
            ratio = ""
            if client != "ours" and "ours" in succeeded:
                ratio = f"{median(runs, 'seconds') / median(by_client['ours'], 'seconds'):.1f}x"
            first = next(run for run in runs if "error" not in run)
            requests, fetched = sum(first["requests"].values()), sum(first["bytes"].values()) / 1e6
            cells = [
                title,
                NAMES[client],
                f"{statistics.median(seconds):.2f} ({_spread(seconds)})",
                ratio,
                f"{median(runs, 'cpu'):.2f} ({median(runs, 'process_cpu'):.2f})",
                f"{median(runs, 'peak') / 1e6:.0f} ({median(runs, 'base') / 1e6:.0f})",
                f"{requests:,}",
                f"{fetched:,.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        if not results_agree(by_client):
            lines.append(f"| | **the results of the clients differ for {name}** | | | | | | |")
    return "\n".join(lines)


def _spread(seconds: list[float]) -> str:
    return "once" if len(seconds) == 1 else f"{min(seconds):.2f} to {max(seconds):.2f}"


def describe_environment(options: argparse.Namespace) -> dict[str, str]:
    """Return the machine and the versions of the clients."""
    pythons = interpreters(options)
    versions = []
    for client in sorted({"ours", "delta"} & set(pythons) | {"polars"} & set(options.clients), reverse=True):
        output = run_child(pythons[client], ["--client", client, "--versions"])
        versions.append(", ".join(f"{name} {version}" for name, version in output.items()))
    return {"machine": measure.machine(), "versions": "; ".join(versions)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="small tables, one repetition")
    parser.add_argument("--only", metavar="CASE,...", help=f"cases: {', '.join(cases.cases('full'))}")
    parser.add_argument(
        "--clients", metavar="CLIENT,...", default="ours,delta,parquet,pyarrow,polars", help="default: %(default)s"
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="the first load of a process: only pandas is imported before the clock starts",
    )
    parser.add_argument("--repeat", type=int, help="repetitions; default: 3, or 1 with --quick")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each measurement to this file")
    parser.add_argument("--peer-python", help="interpreter of an environment with the official client")
    parser.add_argument("--our-python", help="interpreter for this client; default: the current one")
    parser.add_argument("--latency", type=float, default=store.LATENCY, help="seconds; default: %(default)s")
    parser.add_argument("--bandwidth", type=float, default=store.BANDWIDTH, help="bytes/s; default: %(default)s")
    parser.add_argument("--scale", choices=sorted(data.SCALES), help="default: full, or quick with --quick")
    options = parser.parse_args()
    options.scale = options.scale or ("quick" if options.quick else "full")
    options.repeat = options.repeat or (1 if options.quick else 3)
    options.clients = options.clients.split(",")
    known = cases.cases(options.scale)
    names = options.only.split(",") if options.only else list(known)
    if unknown := set(names) - set(known):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; cases: {', '.join(known)}")
    options.cases = {}
    for name in names:
        case = known[name]
        if case.bandwidth is not None:
            case = replace(case, latency=options.latency, bandwidth=options.bandwidth)
        options.cases[name] = case
    return options


def main() -> int:
    options = parse()
    # In its own process, to keep this one small: the peak memory of a child starts at that of its parent.
    subprocess.run([sys.executable, str(HERE / "data.py"), "--scale", options.scale], check=True)
    start = time.monotonic()
    environment = describe_environment(options)
    with store.running_store(options.scale) as running, tempfile.TemporaryDirectory() as directory:
        profile = Path(directory) / "bench.share"
        running.write_profile(profile)
        results = compare(options, running, str(profile))
    print(f"took {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(report(options, results, environment))
    if options.json:
        runs = [
            {"case": name, "client": client, **run} for (name, client), all_ in results.items() for run in all_
        ]
        options.json.write_text(json.dumps({**environment, "scale": options.scale, "runs": runs}, indent=1))
    return 1 if any("error" in run for runs in results.values() for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
