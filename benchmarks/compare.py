"""Our client against the reference client, in one run, on the same store and the same machine.

    make bench                                    everything, twenty minutes; BENCH="..." takes what follows
    python benchmarks/compare.py --quick          small tables, a minute or two; shows trends only
    python benchmarks/compare.py --only large     one case; several with commas
    python benchmarks/compare.py --json out.json  each measurement, besides the table

What was slow, and what each case shows:

    small, partition      the reference client fetches one file after the other: latency times files
    large                 one connection at a time, no decoding meanwhile: bandwidth of a single connection
    columns, rows         it fetches whole files and selects afterwards
    local-*               no delay: what the client itself takes; pyarrow reads the same files from disk
    listing               one line of JSON to a file, 300,000 of them, up to where a download would begin; for the
                          reference client in delta format also what it takes to have the lines, nothing planned

Every measurement is a process of its own, the clients take turns (A, B, C, A, B, C, ...), and medians are
told. The reference client reads in two ways, `use_delta_format` True and False; ours is held against the
faster one of them. Its own pins keep it on other versions of pandas and pyarrow than ours, so it has an
environment of its own (`peer.py`), which is made on first use and needs a package index. To see what the
versions do, run ours in an environment with the same ones: `--our-python`.

The store delays the first byte of every answer by 60 ms and gives 40 MB/s to a connection, which is what
object stores do within a region; `--latency` and `--bandwidth` say otherwise. Peak memory is that of the
measured process alone, interpreter and libraries included ("base" is what they take). Results are held
against the sums of the data, so that nobody is fast by being wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
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
import store
from peer import peer_python

HERE = Path(__file__).resolve().parent
NAMES = {
    "ours": "delta-sharing-client",
    "ours-parquet": "delta-sharing-client, parquet format",
    "delta": "delta-sharing, delta format",
    "delta-lines": "delta-sharing, delta format, its lines as text and no more",
    "parquet": "delta-sharing, parquet format",
    "pyarrow": "pyarrow, local files",
}
TIMEOUT = 1800
#: A run of more seconds than this is not repeated: noise is small against it.
PATIENCE = 120

Results = dict[tuple[str, str], list[dict[str, Any]]]


def run_child(python: str, arguments: list[str]) -> dict[str, Any]:
    """Run `measure.py` and return what it tells; what went wrong where it fails."""
    command = [python, str(HERE / "measure.py"), *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {TIMEOUT} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def compare(options: argparse.Namespace, running: store.RunningStore, profile: str) -> Results:
    """Run every case, the clients taking turns."""
    pythons = {"ours": options.our_python or sys.executable, "pyarrow": options.our_python or sys.executable}
    if any(client in ("delta", "parquet") for client in options.clients):
        pythons |= dict.fromkeys(("delta", "delta-lines", "parquet"), options.peer_python or peer_python())
    pythons["ours-parquet"] = pythons["ours"]
    results: Results = defaultdict(list)
    for name, case in options.cases.items():
        running.settings(case.latency, case.bandwidth)
        for repetition in range(options.repeat):
            for client in case.clients:
                if client.partition("-")[0] not in options.clients:
                    continue
                if any(run.get("seconds", 0) > PATIENCE for run in results[name, client]):
                    continue
                arguments = ["--client", client, "--case", name, "--scale", options.scale]
                arguments += ["--base", running.base, "--profile", profile]
                told = run_child(pythons[client], arguments)
                problem = told.get("error") or check(case, told, options.scale)
                shown = problem or f"{told['seconds']:8.2f} s, {told['peak'] / 1e6:6.0f} MB"
                print(f"{name} {repetition + 1}/{options.repeat} {client:12} {shown}", file=sys.stderr)
                results[name, client].append({**told, "error": problem} if problem else told)
    return results


def check(case: cases.Case, told: dict[str, Any], scale: str) -> str | None:
    """Hold a result against the table's manifest; return what is wrong with it."""
    manifest = data.read_manifest(case.table, scale)
    if case.result == "files":
        expected, rows = manifest["listed"], told["rows"]
        # The reference client keeps the last line of its own rewriting, so a few more or fewer do not matter.
        return None if abs(rows - expected) <= 2 else f"{rows} files listed, not {expected}"
    if case.filters:
        return None if told["rows"] else "no rows"
    if told["rows"] != manifest["rows"]:
        return f"{told['rows']} rows, not {manifest['rows']}"
    wrong = [name for name, total in told["sums"].items() if total != manifest["sums"][name]]
    return f"wrong sums of {', '.join(wrong)}" if wrong else None


def agree(case_results: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether all clients gave the same rows and sums; pyarrow does not filter and is left out."""
    told = [run for runs in case_results.values() for run in runs if "error" not in run]
    rows = {(run["rows"], json.dumps(run.get("sums"), sort_keys=True)) for run in told}
    return len(rows) <= 1


def middle(runs: list[dict[str, Any]], key: str) -> float:
    """The median of one number over the runs that worked."""
    return statistics.median(run[key] for run in runs if "error" not in run)


def report(options: argparse.Namespace, results: Results, told: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        f"{told['machine']}. {told['versions']}.",
        f"Medians of {options.repeat}, spread in brackets; tables of scale `{options.scale}`; "
        f"{options.latency * 1000:.0f} ms to the first byte, {options.bandwidth / 1e6:.0f} MB/s per connection "
        "where no other is told.",
        "",
        "| case | client | seconds | ours is faster by | CPU s | peak MB (base) | requests | MB fetched |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, case in options.cases.items():
        mine = {client: results[name, client] for client in case.clients if results.get((name, client))}
        worked = {client for client, runs in mine.items() if any("error" not in run for run in runs)}
        for client, runs in mine.items():
            title = f"**{case.title}**" if client == next(iter(mine)) else ""
            if client not in worked:
                lines.append(f"| {title} | {NAMES[client]} | {runs[0]['error']} | | | | | |")
                continue
            seconds = [run["seconds"] for run in runs if "error" not in run]
            ratio = ""
            if client != "ours" and "ours" in worked:
                ratio = f"{middle(runs, 'seconds') / middle(mine['ours'], 'seconds'):.1f}x"
            first = next(run for run in runs if "error" not in run)
            asked, fetched = sum(first["requests"].values()), sum(first["bytes"].values()) / 1e6
            cells = [
                title,
                NAMES[client],
                f"{statistics.median(seconds):.2f} ({_spread(seconds)})",
                ratio,
                f"{middle(runs, 'cpu'):.2f}",
                f"{middle(runs, 'peak') / 1e6:.0f} ({middle(runs, 'base') / 1e6:.0f})",
                f"{asked:,}",
                f"{fetched:,.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        if not agree({client: runs for client, runs in mine.items() if client != "pyarrow"}):
            lines.append(f"| | **the clients disagree on {name}** | | | | | | |")
    return "\n".join(lines)


def _spread(seconds: list[float]) -> str:
    return "once" if len(seconds) == 1 else f"{min(seconds):.2f} to {max(seconds):.2f}"


def machine(options: argparse.Namespace) -> dict[str, str]:
    """Name the machine and the versions."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    system = platform.platform(terse=True)
    pythons = {"ours": options.our_python or sys.executable}
    if {"delta", "parquet"} & set(options.clients):
        pythons["delta"] = options.peer_python or peer_python()
    told = {client: run_child(python, ["--client", client, "--versions"]) for client, python in pythons.items()}
    versions = "; ".join(", ".join(f"{name} {version}" for name, version in one.items()) for one in told.values())
    return {"machine": f"{model}, {os.cpu_count()} cores, {system}", "versions": versions}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="small tables, one repetition")
    parser.add_argument("--only", metavar="CASE,...", help=f"cases: {', '.join(cases.cases('full'))}")
    parser.add_argument(
        "--clients", metavar="CLIENT,...", default="ours,delta,parquet,pyarrow", help="default: %(default)s"
    )
    parser.add_argument("--repeat", type=int, help="repetitions; default: 3, or 1 with --quick")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each measurement there")
    parser.add_argument("--peer-python", help="interpreter of an environment that has the reference client")
    parser.add_argument("--our-python", help="interpreter to run ours with; default: this one")
    parser.add_argument("--latency", type=float, default=store.LATENCY, help="seconds; default: %(default)s")
    parser.add_argument("--bandwidth", type=float, default=store.BANDWIDTH, help="bytes/s; default: %(default)s")
    parser.add_argument("--scale", choices=sorted(data.SCALES), help="default: full, or quick with --quick")
    options = parser.parse_args()
    options.scale = options.scale or ("quick" if options.quick else "full")
    options.repeat = options.repeat or (1 if options.quick else 3)
    options.clients = options.clients.split(",")
    known = cases.cases(options.scale)
    wanted = options.only.split(",") if options.only else list(known)
    if unknown := set(wanted) - set(known):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    options.cases = {}
    for name in wanted:
        case = known[name]
        if case.bandwidth is not None:
            case = replace(case, latency=options.latency, bandwidth=options.bandwidth)
        options.cases[name] = case
    return options


def main() -> int:
    options = parse()
    # In a process of its own: this one stays small, for a child's peak memory begins with its parent's.
    subprocess.run([sys.executable, str(HERE / "data.py"), "--scale", options.scale], check=True)
    begun = time.monotonic()
    told: dict[str, Any] = machine(options)
    with store.running_store(options.scale) as running, tempfile.TemporaryDirectory() as directory:
        profile = Path(directory) / "bench.share"
        running.write_profile(profile)
        results = compare(options, running, str(profile))
    print(f"took {time.monotonic() - begun:.0f} s", file=sys.stderr)
    print(report(options, results, told))
    if options.json:
        runs = [
            {"case": name, "client": client, **run} for (name, client), all_ in results.items() for run in all_
        ]
        options.json.write_text(json.dumps({**told, "scale": options.scale, "runs": runs}, indent=1))
    return 1 if any("error" in run for runs in results.values() for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
