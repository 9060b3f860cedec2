"""Execution of the notebooks: runs them and saves their output; `make notebooks` runs it.

Metadata that differs between runs is removed: execution times, the version of Python, the name of the kernel, and
the messages of Spark's start.
"""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).resolve().parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SECONDS = 600
#: Lines that Spark's start writes to stderr: warnings of Java, and of Spark about logs, the machine and pandas.
SPARK_START = re.compile(
    r"(WARNING: |Using Spark's default log4j profile|Setting default log level|To adjust logging level"
    r"|\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN |.*FutureWarning: PySpark does not yet fully support pandas"
    r"|  require_minimum_pandas_version).*\n?|\n"
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run a notebook in an empty temporary directory."""
    notebook.metadata["kernelspec"] = dict(KERNEL)
    with TemporaryDirectory(prefix="notebook-") as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],
        )
        client.execute()


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Remove metadata that differs between runs, so that a second run changes nothing."""
    notebook.metadata.clear()
    notebook.metadata.update({"kernelspec": dict(KERNEL), "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = without_spark_start(merge_streams(cell.outputs))


def merge_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Merge consecutive outputs of one stream; their number differs between runs."""
    result: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = result[-1] if result else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            result.append(output)
    return result


def without_spark_start(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Remove the lines that Spark's start writes to stderr."""
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            output.text = "".join(line for line in output.text.splitlines(True) if not SPARK_START.fullmatch(line))
    return [output for output in outputs if output.output_type != "stream" or output.text]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run notebooks; return 0, or 1 if a cell of one raised."""
    parser = argparse.ArgumentParser(description="Run notebooks and save their output.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="the notebooks (default: all in this folder)")
    parser.add_argument("--to", type=Path, metavar="DIR", help="write the results to this directory instead")
    options = parser.parse_args(arguments)
    runpy.run_path(str(HERE.parent / "scripts" / "java.py"))["use"]()
    for path in options.notebooks or sorted(HERE.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        try:
            execute(notebook)
        except CellExecutionError as error:
            print(f"{path.name}: {COLOURS.sub('', str(error))}", file=sys.stderr)
            return 1
        normalise(notebook)
        target = path if options.to is None else options.to / path.name
        nbformat.write(notebook, target)
        cells = sum(cell.cell_type == "code" for cell in notebook.cells)
        print(f"{path.name}: {cells} code cells ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
