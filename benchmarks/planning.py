"""Planning with row filters on statistics, as ratios to planning without one.

A server in its own process sends the listing of a table that has no files on disk; it formats the lines as it
sends them. Each run is a process of its own: it plans a small table first, and then counts processor seconds (user
and system), which another load of the machine changes little, and the peak of its memory over that before. The
variants take turns. `--memory` measures one listing of many files, with a filter that keeps a thousandth of them.

    python benchmarks/planning.py                               # 100,000 files, 4 and 100 columns with statistics
    python benchmarks/planning.py --files 300000 --columns 4
    python benchmarks/planning.py --memory 3000000
    python benchmarks/planning.py --encode                      # tasks of Spark, of 10,000 to 1,000,000 files
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import measure

TYPES = ("long", "timestamp", "string", "double", "date", "decimal(12,2)", "uuid", "decimal(38,9)")
#: The columns of each filter; every one keeps the upper half of the files.
FILTERS = {
    "none": (),
    "1 predicate": ("c0",),
    "3 predicates": ("c0", "c1", "c2"),
    "date": ("c4",),
    "short decimal": ("c5",),
    "long text": ("c6",),
    "long decimal": ("c7",),
    "few": ("few",),
}
_END = b'{"endStreamAction":{}}\n'


def _value(kind: str, number: int) -> str:
    """Return the JSON text of a value that grows with `number`."""
    return {
        "long": f"{number * 1000}",
        "timestamp": f'"20{10 + number // 10**6:02}-01-{1 + number % 10**6 // 36_000:02}'
        f'T{number % 36_000 // 3600:02}:{number % 3600 // 60:02}:{number % 60:02}.000Z"',
        "string": f'"k{number:09}"',
        "double": f"{number}.25",
        "date": f'"20{10 + number // 10**6:02}-01-{1 + number % 10**6 // 36_000:02}"',
        "decimal(12,2)": f"{number}.25",
        "uuid": f'"{number:08x}-0000-4000-8000-000000000000"',
        "decimal(38,9)": f"{number}12345678901.123456789",
    }[kind]


def _kind(column: int) -> str:
    return TYPES[column % len(TYPES)]


def _head(columns: int) -> bytes:
    kinds = [("string" if _kind(n) == "uuid" else _kind(n)) for n in range(columns)]
    fields = [{"name": f"c{n}", "type": kind, "nullable": True, "metadata": {}} for n, kind in enumerate(kinds)]
    fields.append({"name": "day", "type": "date", "nullable": True, "metadata": {}})
    metadata = {
        "id": "m",
        "format": {"provider": "parquet"},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day"],
    }
    lines = ({"protocol": {"minReaderVersion": 1}}, {"metaData": metadata})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _lines(files: int, columns: int) -> Iterator[bytes]:
    """Yield the lines of files, some at a time."""
    nulls = ",".join(f'\\"c{n}\\":0' for n in range(columns))
    signature = "0123456789abcdef" * 24
    some = []
    for number in range(files):
        # Only the first 8 columns change; formatting 100 would take the server longer than the client.
        if number % 64 == 0:
            others = [f'\\"c{n}\\":{_value(_kind(n), number)}'.replace(':"', ':\\"') for n in range(8, columns)]
            tail = "".join("," + (item[:-1] + '\\"' if item.endswith('"') else item) for item in others)
        low, high = (
            ",".join(f'\\"c{n}\\":' + _value(_kind(n), value).replace('"', '\\"') for n in range(min(columns, 8)))
            for value in (number, number + 1)
        )
        some.append(
            f'{{"file":{{"url":"https://bucket.example/events/part-{number:07}.parquet?Signature={signature}",'
            f'"id":"{number:032x}","partitionValues":{{"day":"2025-01-{1 + number * 28 // files:02}"}},'
            f'"size":{45_000_000 + number % 9973},"stats":"{{\\"numRecords\\":{1000 + number % 977},'
            f'\\"minValues\\":{{{low}{tail}}},\\"maxValues\\":{{{high}{tail}}},\\"nullCount\\":{{{nulls}}}}}",'
            '"expirationTimestamp":4102444800000}}\n'
        )
        if len(some) == 256:
            yield "".join(some).encode()
            some.clear()
    yield "".join(some).encode()


class _Handler(BaseHTTPRequestHandler):
    """Answers /metadata and /query of the tables `b.d.<files>_<columns>`."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        files, columns = map(int, self.path.split("/tables/")[1].split("/")[0].split("_"))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Delta-Table-Version", "1")
        self.send_header("delta-sharing-capabilities", "responseformat=parquet;includeendstreamaction=true")
        self.end_headers()
        self.wfile.write(_head(columns))
        if self.path.endswith("/query"):
            for some in _lines(files, columns):
                self.wfile.write(some)
        self.wfile.write(_END)

    do_GET = do_POST = _answer

    def log_message(self, *arguments: Any) -> None:
        pass


def _filters(name: str, files: int) -> list[tuple[str, str, Any]]:
    if name == "few":
        return [("c0", ">=", (files - files // 1000) * 1000)]
    chosen = []
    for column in FILTERS[name]:
        kind, half = _kind(int(column[1:])), json.loads(_value(_kind(int(column[1:])), files // 2))
        chosen.append((column, ">=", str(_value(kind, files // 2)) if "decimal" in kind else half))
    return chosen


def plan(base: str, files: int, columns: int, variant: str) -> dict[str, Any]:
    """Plan once, in this process, after a plan of a small table."""
    import delta_sharing_client as ds

    profile = {"shareCredentialsVersion": 1, "endpoint": base, "bearerToken": "t"}
    with ds.SharingClient(profile) as client:

        def planned(number: int) -> int:
            table = client.table(f"b.d.{number}_{columns}")
            return len(table.scan(filters=_filters(variant, number) or None).files())

        planned(2000)
        gc.collect()
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        resident = measure.resident()["now"]
        kept = planned(files)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "cpu": usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime,
            "seconds": time.perf_counter() - start,
            "files": kept,
            "memory": measure.resident()["peak"] - resident,
        }


def encode(base: str, files: int) -> dict[str, Any]:
    """Plan once, in this process, and encode the tasks for Spark's executors, after those of a small table."""
    import delta_sharing_client as ds
    from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

    profile = {"shareCredentialsVersion": 1, "endpoint": base, "bearerToken": "t"}
    seconds: list[float] = []
    with ds.SharingClient(profile) as client:
        for number in (2000, files):
            table = client.table(f"b.d.{number}_4")
            gc.collect()
            seconds.append(time.process_time())
            plan = table.scan().plan()
            seconds.append(time.process_time())
            job, parts = encode_plan(table._rest, plan, ExecutorOptions(), cores=64)
    seconds.append(time.process_time())
    planned, encoded = seconds[3] - seconds[2], seconds[4] - seconds[3]
    return {
        "plan": planned,
        "encode": encoded,
        "size": len(job) + sum(map(len, parts)),
        "peak": measure.resident()["peak"],
    }


def _report_encoding(base: str) -> None:
    for files in (10_000, 100_000, 1_000_000):
        command = [sys.executable, __file__, "--plan", base, "encode", "--files", str(files), "--columns", "4"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
        print(
            f"{files:9,} files: plan {found['plan'] / files * 1e6:5.1f} us a file, encode "
            f"{found['encode'] / files * 1e6:5.1f} us a file, {found['size'] / 1e6:6.2f} MB encoded, "
            f"peak memory {found['peak'] / 1e6:,.0f} MB",
            flush=True,
        )


def _run(base: str, files: int, columns: int, variant: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--plan", base, variant, "--files", str(files), "--columns", str(columns)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def _report(base: str, files: int, columns: int, variants: list[str], repeat: int) -> None:
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for _ in range(repeat):
        for name in variants:
            runs[name].append(_run(base, files, columns, name))
    plain = statistics.median(run["cpu"] for run in runs[variants[0]])
    print(f"\n{files:,} files, {columns} columns with statistics")
    for name, measured in runs.items():
        cpu = statistics.median(run["cpu"] for run in measured)
        memory = statistics.median(run["memory"] for run in measured) / 2**20
        print(
            f"  {name:14} {cpu:7.2f} s of processor  {cpu / plain:5.2f}x  {memory:6.0f} MB  "
            f"{measured[0]['files']:,} files planned",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--columns", type=int, action="append", help="columns with statistics; default: 4 and 100")
    parser.add_argument("--variants", default="none,1 predicate,3 predicates", help=f"of {', '.join(FILTERS)}")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memory", type=int, metavar="FILES", help="plan so many files once, a thousandth kept")
    parser.add_argument("--encode", action="store_true", help="plan, and encode the tasks for Spark's executors")
    parser.add_argument("--plan", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        print(server.server_port, flush=True)
        server.serve_forever()
    elif options.plan:
        base, variant = options.plan
        print(
            json.dumps(
                encode(base, options.files)
                if variant == "encode"
                else plan(base, options.files, options.columns[0], variant)
            )
        )
    else:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        command = [sys.executable, __file__, "--serve"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            base = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            try:
                if options.encode:
                    _report_encoding(base)
                elif options.memory:
                    _report(base, options.memory, 4, ["few"], 1)
                else:
                    for columns in options.columns or (4, 100):
                        _report(base, options.files, columns, options.variants.split(","), options.repeat)
            finally:
                process.kill()


if __name__ == "__main__":
    main()
