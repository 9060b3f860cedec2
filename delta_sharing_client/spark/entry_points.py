"""Functions that Spark pickles by value and runs in Python workers before those can import this package.

Unpickling a reference would import the package before any line of ours runs; these functions first choose which
release to import. Until `package_module` has imported it, they use the standard library alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from delta_sharing_client._version import __version__

#: The name of the zip that `code_distribution` makes.
ARCHIVE_NAME: Final = f"delta_sharing_client-{__version__}-{{digest}}.zip"

_VERSION: Final = __version__
_ARCHIVE: Final = ARCHIVE_NAME.partition("{")[0]


def package_module(name: str, archive: bytes = b"") -> Any:
    """Import a module of this package in the driver's release: the installed one, or the one in the zip.

    Args:
        name: the module's name below the package.
        archive: the zip, for a process to which Spark does not copy it; see `_put_on_path`.

    Raises:
        ImportError: this process has neither the package nor the zip, or lacks a library.
        SparkError: this process has imported another release already.
    """
    import importlib
    import sys

    package = "delta_sharing_client"
    if package not in sys.modules:
        _put_on_path(archive)
    try:
        found = importlib.import_module(f"{package}._version").__version__
        if found == _VERSION:
            return importlib.import_module(f"{package}.{name}")
    except ImportError as error:
        raise ImportError(
            f"Spark's worker, {sys.executable}, cannot import {error.name}: pip install "
            f"delta-sharing-client=={_VERSION} (or its wheel) on the workers; in local mode set PYSPARK_PYTHON to "
            "the Python that has it before the session starts. If only the package is missing, "
            "delta_sharing_client.spark.register(spark) on the driver gives it to the workers"
        ) from None
    raise importlib.import_module(f"{package}.errors").SparkError(
        f"Spark's worker, {sys.executable}, has imported delta-sharing-client {found}, and the driver has "
        f"{_VERSION}. Install the same release on the workers, or call delta_sharing_client.spark.register(spark) "
        "on the driver, which gives them its own, before anything else imports the package there"
    )


def _put_on_path(archive: bytes) -> None:
    """Put the zip before the installed packages, or behind them if they have the driver's release.

    `sys.path` is changed because Spark leaves no other way: it always puts the zip first, and for the process that
    plans a stream, and the executors of streams of a Connect session, it names a path without a file. In a classic
    session the zip is in the folder above; in a Connect session it comes as an argument and is written there.
    """
    import importlib
    import os
    import sys
    from importlib import metadata
    from pathlib import Path

    named = [Path(path) for path in sys.path if Path(path).name.startswith(_ARCHIVE)]
    found = []
    for path in named:
        above = path.parent.parent / path.name
        if not path.exists() and archive and not above.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(archive)
            temporary.replace(path)
        found.append(str(path if path.exists() else above))
    try:
        installed = metadata.version("delta-sharing-client")
    except metadata.PackageNotFoundError:
        installed = ""
    others = [path for path in sys.path if Path(path) not in named]
    sys.path[:] = others + found if installed == _VERSION else others[:1] + found + others[1:]
    importlib.invalidate_caches()


def partition_reader(job: bytes, parts: Sequence[bytes]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function for `DataFrame.mapInArrow`, from batches of partition numbers to their rows."""

    def read_shared_table(numbers: Iterator[Any]) -> Iterator[Any]:
        read_part = package_module("spark.executor").read_part
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_part(job, parts[number])

    return read_shared_table


def pickle_by_value(module: str) -> None:
    """Have PySpark pickle the functions and classes of a module by value.

    A function pickled by reference makes the worker import this package before `package_module` has chosen a
    release. The registration takes a module object; `sys.modules` has that of a module that is being imported.

    Raises:
        MissingDependencyError: PySpark is not installed.
    """
    try:
        from pyspark.cloudpickle.cloudpickle import register_pickle_by_value
    except ImportError:
        from delta_sharing_client.errors import MissingDependencyError

        raise MissingDependencyError(package="pyspark", extra="spark", purpose="Loading into Spark") from None
    register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]


pickle_by_value(__name__)
