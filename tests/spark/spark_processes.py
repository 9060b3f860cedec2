"""Spark processes that tests need beside their own: clusters, a Connect server, and programs that use them.

Everything listens on loopback and on ports that the system chooses, is waited for by what it logs, and ends with
its process group.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

sys.path.append(str(Path(__file__).resolve().parents[1]))

from script_modules import load_script
from spark_java import JAVA_OPTIONS
from waiting import HANG, wait_until

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).resolve().parent
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
#: The program that runs the jobs of a cluster; a process can have one Spark context.
JOBS = Path(__file__).resolve().parent / "spark_jobs.py"
#: What the line begins with that holds the results of jobs.
RESULTS = "results: "


def java_home() -> Path | None:
    """The Java that `scripts/java.py` finds, for this process and all that it starts."""
    home: Path | None = load_script("scripts/java.py").use()
    return home


def environment(worker_python: str | None = sys.executable, **more: str) -> dict[str, str]:
    """The environment of a Spark process: loopback only, this PySpark, and a Python for its workers or none."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    kept.pop("PYTHONPATH", None)
    return {
        **kept,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        **({"PYSPARK_PYTHON": worker_python, "PYSPARK_DRIVER_PYTHON": sys.executable} if worker_python else {}),
        **more,
    }


def bare_python(folder: Path) -> str:
    """Make a Python that has what the package needs, but not the package; return its path.

    It is the interpreter that this environment was made with, and a folder of links to everything that is
    installed here, without the package itself and without the `.pth` files that lead to a checkout.
    """
    links = folder / "site"
    links.mkdir(parents=True)
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            ours = "delta_sharing" in entry.name.replace("-", "_")
            if not ours and entry.suffix != ".pth" and not (links / entry.name).exists():
                (links / entry.name).symlink_to(entry)
    base = getattr(sys, "_base_executable", sys.executable)
    python = folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(links))}${{PYTHONPATH:+:$PYTHONPATH}}\n"
        "export PYTHONPATH\n"
        f'exec {shlex.quote(base)} -s "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    return str(python)


@dataclass(frozen=True)
class Running:
    """A process that has been started.

    Attributes:
        process: the process, the first of a group of its own.
        log: what it has printed so far.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def until(self, ready: str) -> re.Match[str]:
        """Wait until its output matches, and return the match.

        Raises:
            RuntimeError: it ended; with the end of its output.
        """

        def look() -> re.Match[str] | None:
            ended = self.process.poll() is not None
            found = re.search(ready, text := self.log.read_text(errors="replace"))
            if found is None and ended:
                raise RuntimeError(f"{self.log.name}: it did not come up:\n{text[-3000:]}")
            return found

        found = wait_until(look, lambda: self.log.read_text(errors="replace")[-3000:])
        assert found is not None
        return found


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, env: dict[str, str]) -> Iterator[Running]:
    """Run a process until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/bash", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=env,
            start_new_session=True,
        )
    try:
        yield Running(process, log)
    finally:
        end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and its whole group; kindly first."""
    for sign, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
            if not group_lives(process.pid):
                return
            time.sleep(0.05)


def group_lives(group: int) -> bool:
    """Whether a process of a group is still there."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def processes_of(session: int) -> list[int]:
    """The ids of the processes of a session, which may be of several groups; none where there is no /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            facts = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(facts[3]) == session and facts[0] != "Z":
                found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def session_of(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a session of its own, and kill it at the end; then no process of the session is left.

    Spark's Python workers have a process group of their own.
    """
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in processes_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(HANG)
        wait_until(lambda: not processes_of(process.pid))


@contextlib.contextmanager
def standalone_cluster(folder: Path, worker_python: str, workers: int = 2) -> Iterator[str]:
    """Run a standalone master and its workers, one core each; yield the master's URL."""
    start = [str(SPARK_HOME / "bin" / "spark-class")]
    where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    env = environment(
        worker_python,
        SPARK_WORKER_DIR=str(folder / "work"),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=JAVA_OPTIONS,
    )
    with contextlib.ExitStack() as stack:
        command = [*start, "org.apache.spark.deploy.master.Master", *where]
        master = stack.enter_context(running(command, folder / "master.log", env))
        url = master.until(r"Starting Spark master at (spark://\S+)")[1]
        command = [*start, "org.apache.spark.deploy.worker.Worker", *where, "--cores", "1", "--memory", "1g", url]
        logs = [folder / f"worker{number}.log" for number in range(workers)]
        for worker in [stack.enter_context(running(command, log, env)) for log in logs]:
            worker.until("Successfully registered with master")
        yield url


@contextlib.contextmanager
def connect_server(folder: Path, worker_python: str) -> Iterator[str]:
    """Run a Spark Connect server; yield its URL."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "768m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with running(command, folder / "connect.log", environment(worker_python)) as server:
        port = server.until(r"Spark Connect server started at: \S+:(\d+)")[1]
        yield f"sc://127.0.0.1:{port}"


class Jobs:
    """Somewhere to run jobs: one session for all of them, of `spark_jobs.py` in a process of its own.

    It starts with the first job, and ends with the block of a `with` statement.

    Args:
        folder: where the program runs; nothing of this repository is there.
        session: what its session is made of: `master` or `remote`, and `conf`.
        worker_python: the Python of the workers; None to leave it to Spark.
        env: more of its environment.
    """

    def __init__(
        self,
        folder: Path,
        session: Mapping[str, Any],
        worker_python: str | None = sys.executable,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._output, self._errors = folder / "jobs.out", folder / "jobs.err"
        self._command = [sys.executable, str(JOBS), json.dumps(session)]
        self._folder = folder
        self._env = environment(worker_python, **(env or {}))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            end(self._process)
            self._process = None

    def run(self, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
        """Run jobs one after the other; return the result of each.

        Args:
            *jobs: for each its name, `job`, and its arguments.

        Raises:
            RuntimeError: a job failed; with the end of the program's output.
        """
        process = self._started()
        assert process.stdin is not None
        before = len(self._results())
        process.stdin.write(json.dumps(jobs).encode() + b"\n")
        process.stdin.flush()
        wait_until(lambda: len(self._results()) > before or process.poll() is not None, self._said)
        if process.poll() is not None:
            self.__exit__()
            raise RuntimeError(f"the jobs failed:\n{self._said()}")
        results: list[dict[str, Any]] = json.loads(self._results()[before])
        return results

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with self._output.open("wb") as out, self._errors.open("wb") as err:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=err,
                    cwd=self._folder,
                    env=self._env,
                    start_new_session=True,
                )
        return self._process

    def _results(self) -> list[str]:
        """What has been printed as results so far; a line that is not whole yet is none."""
        if not self._output.exists():
            return []
        *lines, _ = self._output.read_text(encoding="utf-8").split("\n")
        return [line.removeprefix(RESULTS) for line in lines if line.startswith(RESULTS)]

    def _said(self) -> str:
        return self._errors.read_text(encoding="utf-8", errors="replace")[-6000:]
