"""Sampling profiler of one benchmark case: processor time, waiting time and memory, by thread pool and function.

    python benchmarks/profile_load.py large              functions by processor time, and memory over time
    python benchmarks/profile_load.py small --by wall    functions by wall-clock time, including waits
    python benchmarks/profile_load.py listing --calls    cProfile of the calling thread instead

A sample contains the Python stack of every thread, and the processor time that the thread used since the last
sample (Linux: `schedstat`). So a thread that waits for a socket or for the interpreter lock counts as zero, and
time in a C library counts for the line that called it. Threads without a Python stack, such as those of Arrow, are
listed by name. Threads of one pool are added up.

The case runs once, after a warm-up, against a store in another process, as in `compare.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import re
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import cases
import data
import measure
import store

INTERVAL = 0.003
SWITCH = 0.0001
_PACKAGE = "delta_sharing_client"
_TASKS = Path("/proc/self/task")


def pool_of(name: str) -> str:
    """Return the name of a thread without its number."""
    return re.sub(r"[-_]\d+(_\d+)?$", "", name)


def read_tasks(file: str) -> dict[int, str]:
    """Return the text of a file in `/proc` for each thread of this process; empty if there is none."""
    texts = {}
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                texts[int(task.name)] = (task / file).read_text().strip()
    return texts


def running_nanoseconds() -> dict[int, int]:
    """Return the processor time of each thread of this process; empty if the kernel does not report it."""
    return {task: int(text.split()[0]) for task, text in read_tasks("schedstat").items() if text}


class Sampler:
    """Sampling thread, as a context manager.

    Attributes:
        cpu: seconds of processor time by thread pool and function.
        wall: seconds of wall-clock time by thread pool and function.
        memory: seconds since the start, resident bytes, bytes in Arrow's pool.
    """

    def __init__(self, *, lines: bool = False, interval: float = INTERVAL) -> None:
        self._lines = lines
        self.cpu: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self.wall: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self.memory: list[tuple[float, int, int]] = []
        self.samples = 0
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        # With the default interval, the sampler would run mostly when other threads wait.
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._switch_interval)

    def _sample(self) -> None:
        import pyarrow as pa

        start = last = time.monotonic()
        ran = running_nanoseconds()
        names = read_tasks("comm")
        while not self._stop.wait(self._interval):
            frames = sys._current_frames()
            known = {thread.ident: thread for thread in threading.enumerate()}
            now, running = time.monotonic(), running_nanoseconds()
            passed, last = now - last, now
            self.samples += 1
            seen = {threading.get_native_id()}
            for ident, frame in frames.items():
                thread = known.get(ident)
                native = thread.native_id if thread is not None else None
                if native is None or native in seen or thread is None:
                    continue
                seen.add(native)
                where = place(frame, self._lines)
                self.wall[pool_of(thread.name)][where] += passed
                spent = running.get(native, 0) - ran.get(native, 0)
                if spent > 0:
                    self.cpu[pool_of(thread.name)][where] += spent / 1e9
            if running.keys() - names.keys():
                names |= read_tasks("comm")
            for native in running.keys() - seen:
                spent = running[native] - ran.get(native, 0)
                if spent > 0:
                    self.cpu["(no Python)"][names.get(native, "?"), ""] += spent / 1e9
            ran = running
            if self.samples % 5 == 1:
                self.memory.append((now - start, measure.resident()["now"], pa.total_allocated_bytes()))


def place(frame: FrameType | None, lines: bool) -> tuple[str, str]:
    """Return the innermost function of a stack, and the innermost one in this package."""
    innermost = _name(frame, lines) if frame is not None else "?"
    while frame is not None:
        if f"/{_PACKAGE}/" in frame.f_code.co_filename:
            ours = _name(frame, lines)
            return innermost, "" if ours == innermost else ours
        frame = frame.f_back
    return innermost, ""


def _name(frame: FrameType, lines: bool) -> str:
    parts = Path(frame.f_code.co_filename).parts
    # The last occurrence, because the checkout may have the name of the package.
    inside = len(parts) - parts[::-1].index(_PACKAGE) if _PACKAGE in parts else len(parts) - 2
    short = "/".join(parts[inside:])
    return f"{short}:{frame.f_lineno} {frame.f_code.co_name}" if lines else f"{short} {frame.f_code.co_qualname}"


def print_places(title: str, pools: dict[str, Counter[tuple[str, str]]], top: int) -> None:
    total = sum(sum(places.values()) for places in pools.values())
    print(f"\n{title}: {total:.2f} s")
    for pool, places in sorted(pools.items(), key=lambda item: -sum(item[1].values())):
        spent = sum(places.values())
        print(f"  {pool}: {spent:.2f} s, {spent / total:.0%}" if total else f"  {pool}")
        for (innermost, ours), seconds in places.most_common(top):
            if seconds < total / 200:
                break
            print(f"    {seconds:7.3f}  {innermost}{'   <- ' + ours if ours else ''}")


def print_memory(memory: list[tuple[float, int, int]]) -> None:
    print("\nmemory over time: seconds, resident MB, MB in Arrow's pool")
    step = max(1, len(memory) // 20)
    peak = max(memory, key=lambda sample: sample[1], default=None)
    for sample in memory[::step] + ([peak] if peak else []):
        mark = "  <- peak" if sample is peak else ""
        print(f"    {sample[0]:7.2f}  {sample[1] / 1e6:7.0f}  {sample[2] / 1e6:7.0f}{mark}")


def main() -> None:
    known = cases.cases("full")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("case", choices=list(known))
    parser.add_argument("--scale", choices=sorted(data.SCALES), default="full")
    parser.add_argument("--client", default="ours", choices=["ours", "ours-delta", "ours-parquet", "pyarrow"])
    parser.add_argument("--by", choices=["cpu", "wall", "both"], default="cpu")
    parser.add_argument("--top", type=int, default=12, help="functions per thread pool in the output")
    parser.add_argument("--lines", action="store_true", help="show lines instead of functions")
    parser.add_argument("--calls", action="store_true", help="cProfile of the calling thread")
    parser.add_argument("--latency", type=float, help="seconds; default: the case's")
    options = parser.parse_args()
    data.make(options.scale)
    case = cases.cases(options.scale)[options.case]
    with store.running_store(options.scale) as running, tempfile.TemporaryDirectory() as directory:
        running.settings(case.latency if options.latency is None else options.latency, case.bandwidth)
        profile = Path(directory) / "bench.share"
        running.write_profile(profile)
        arguments = (str(profile), options.scale)
        measure.run(options.client, cases.Case("warm-up", "warm", result=case.result), *arguments)
        if options.calls:
            calls = cProfile.Profile()
            result = calls.runcall(measure.run, options.client, case, *arguments)
            pstats.Stats(calls).sort_stats("tottime").print_stats(options.top)
            print(measure.describe(result))
            return
        start = time.perf_counter()
        with Sampler(lines=options.lines) as sampler:
            result = measure.run(options.client, case, *arguments)
        seconds = time.perf_counter() - start
    print(f"{case.title}: {seconds:.2f} s, {sampler.samples} samples, {measure.describe(result)}")
    if options.by in ("cpu", "both"):
        print_places("processor time", sampler.cpu, options.top)
    if options.by in ("wall", "both"):
        print_places("wall-clock time", sampler.wall, options.top)
    print_memory(sampler.memory)


if __name__ == "__main__":
    main()
