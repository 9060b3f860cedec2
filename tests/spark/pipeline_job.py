"""examples/spark_pipeline.py as a process, and the shared table that it follows."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import spark_processes
from change_tables import GrowingTable
from script_modules import ROOT
from waiting import HANG, wait_until

#: Sets a small local master, as spark-submit would, and runs the job.
SUBMIT = """
import json, runpy, sys
from spark_jobs import open_session

open_session({"master": "local[2]", "conf": json.loads(sys.argv[1])})
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Pipeline(GrowingTable):
    """A shared table, and the job that follows it.

    Args:
        folder: where everything is.
        *options: of the job, beside those of `run`.
        settings: of its Spark session.
    """

    def __init__(self, folder: Path, *options: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self.checkpoint, self.target = folder / "checkpoint", folder / "t"
        self._options, self._settings = options, dict(settings or {})

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the job in a session of its own, of which no process is left at the end."""
        url = f"{self.folder / 'source.share'}#s.s.t"
        command = [sys.executable, "-W", "ignore", "-c", SUBMIT, json.dumps(self._settings)]
        command += [str(ROOT / "examples" / "spark_pipeline.py"), url, str(self.target), "--start", "0"]
        command += ["--checkpoint", str(self.checkpoint), *self._options, *arguments]
        path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
        env = spark_processes.environment(PYTHONPATH=path)
        with (
            self.log.open("ab") as log,
            spark_processes.session_of(command, cwd=self.folder, env=env, stderr=log) as process,
        ):
            yield process

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run the job to its end; returns what it logged."""
        with self.start(*arguments) as process:
            assert process.wait(HANG) == code, self.log.read_text()[-3000:]
        return self.log.read_text()

    def kill_when(self, condition: Callable[[], object]) -> None:
        """Run the job with a batch for each version, and kill it while a condition is true."""

        def reached() -> object:
            if self.count("commits") > self.table.version:  # or there would be no more batches
                self.grow(1)
            return condition()

        while True:
            self.grow(1)  # a batch that is repeated must not have rows of newer versions
            with self.start("--follow", "--interval", "0", "--max-files", "1") as process:
                self.wait_until(reached, process)
            if condition():  # or the job was faster than the signal, and runs again
                return

    def wait_until(self, condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
        """Wait until a condition is true while the job runs."""
        wait_until(lambda: process.poll() is not None or condition(), lambda: self.log.read_text()[-3000:])
        assert process.poll() is None, self.log.read_text()[-3000:]

    def count(self, name: str) -> int:
        """The number of batches in a folder of the checkpoint."""
        return len(list((self.checkpoint / name).glob("[0-9]*")))
