"""HTTP engines compared: processor and wall-clock seconds to fetch the files of a table, and nothing else.

    python benchmarks/http_engines.py                         urllib3 and pycurl, 400 small and 8 large files
    python benchmarks/http_engines.py --engines aiohttp       aiohttp on one event loop; it must be installed

Each engine fetches whole files into one buffer per file, on 48 connections, from the store of `store.py` without
its delays. Each run is a process of its own. The engines take turns, and medians are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import data
import store

CONNECTIONS = 48
File = tuple[str, int]


def by_urllib3(files: list[File]) -> None:
    """Fetch on threads with one pool."""
    import urllib3

    pool = urllib3.PoolManager(maxsize=CONNECTIONS)

    def fetch(file: File) -> None:
        url, size = file
        buffer, position = memoryview(bytearray(size)), 0
        response = pool.request("GET", url, preload_content=False, decode_content=False, redirect=False)
        while count := response.readinto(buffer[position : position + 1024 * 1024]):
            position += count
        response.release_conn()
        assert position == size

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(fetch, files))


def by_pycurl(files: list[File]) -> None:
    """Fetch on threads with one easy handle each."""
    import pycurl

    local = threading.local()

    def fetch(file: File) -> None:
        url, size = file
        buffer, position = memoryview(bytearray(size)), 0

        def write(piece: bytes) -> None:
            nonlocal position
            buffer[position : position + len(piece)] = piece
            position += len(piece)

        curl = getattr(local, "curl", None)
        if curl is None:
            curl = local.curl = pycurl.Curl()
            curl.setopt(pycurl.BUFFERSIZE, 128 * 1024)
            curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.WRITEFUNCTION, write)
        curl.perform()
        assert position == size

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(fetch, files))


def by_aiohttp(files: list[File]) -> None:
    """Fetch on one event loop."""
    import aiohttp

    async def fetch(session: aiohttp.ClientSession, free: asyncio.Semaphore, file: File) -> None:
        url, size = file
        buffer, position = memoryview(bytearray(size)), 0
        async with free, session.get(url, allow_redirects=False) as response:
            async for piece in response.content.iter_any():
                buffer[position : position + len(piece)] = piece
                position += len(piece)
        assert position == size

    async def fetch_all() -> None:
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        free = asyncio.Semaphore(CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            await asyncio.gather(*(fetch(session, free, file) for file in files))

    asyncio.run(fetch_all())


ENGINES: dict[str, Callable[[list[File]], None]] = {
    "urllib3": by_urllib3,
    "pycurl": by_pycurl,
    "aiohttp": by_aiohttp,
}


def measure(engine: str, table: str, base: str, scale: str) -> dict[str, float]:
    """Fetch the warm-up table, then the table; return the seconds of the latter."""
    fetch = ENGINES[engine]
    wanted = {
        name: [
            (f"{base}/files/{name}/{path.name}", path.stat().st_size)
            for path in sorted(data.table_dir(name, scale).glob("*.parquet"))
        ]
        for name in ("warm", table)
    }
    fetch(wanted["warm"])
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    fetch(wanted[table])
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begun
    return {"cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "wall": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", default="urllib3,pycurl", help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--tables", default="small,large")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scale", choices=sorted(data.SCALES), default="full")
    parser.add_argument("--run", nargs=3, metavar=("ENGINE", "TABLE", "BASE"), help="one run, printed as JSON")
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measure(*options.run, options.scale)))
        return
    subprocess.run([sys.executable, data.__file__, "--scale", options.scale], check=True)
    runs = defaultdict(list)
    with store.running_store(options.scale) as running:
        running.settings(0.0, None)
        for table in options.tables.split(","):
            for _ in range(options.repeat):
                for engine in options.engines.split(","):
                    command = [sys.executable, __file__, "--scale", options.scale, "--run", engine, table]
                    done = subprocess.run([*command, running.base], capture_output=True, text=True, check=True)
                    runs[table, engine].append(json.loads(done.stdout))
    for (table, engine), measured in runs.items():
        cpu, wall = (statistics.median(run[key] for run in measured) for key in ("cpu", "wall"))
        print(f"{table:6} {engine:8} {cpu:6.3f} CPU s {wall:6.3f} s")


if __name__ == "__main__":
    main()
