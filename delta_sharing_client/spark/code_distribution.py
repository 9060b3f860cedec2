"""What Spark sends to its workers, and this package with it.

A worker may lack this package, or have another release of it. So what is sent carries the package's own source
(some 150 kB), and imports it from memory where it has to; where the same release is installed, that is used.
Nothing is written to the worker's disk. The libraries that the package needs must be there.

Functions and classes that are defined inside a function are pickled by value. So everything that a worker runs
before it has the package is defined inside one here, and uses the standard library and PySpark alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delta_sharing_client._version import __version__

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

_PACKAGE: Final = "delta_sharing_client"
#: Parts of the package that no worker needs.
_LEFT_OUT: Final = frozenset({"server", "cli", "load", "delta_log", "materialize", "mirror", "poll", "sinks"})

#: Imports a module of this package, by its name below the package.
Load: TypeAlias = Callable[[str], Any]


@lru_cache(maxsize=1)
def package_source() -> bytes:
    """Return the source of this package's modules: JSON of name to (is a package, text), compressed.

    Texts that lie beside them are named by their package, a slash, and the name of the file.
    """
    modules: dict[str, tuple[bool, str]] = {}

    def collect(folder: Traversable, name: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                if entry.name not in _LEFT_OUT and entry.joinpath("__init__.py").is_file():
                    collect(entry, f"{name}.{entry.name}")
            elif entry.name.endswith(".py"):
                stem = entry.name.removesuffix(".py")
                package = stem == "__init__"
                modules[name if package else f"{name}.{stem}"] = (package, entry.read_text("utf-8"))
            elif entry.name.endswith(".txt"):
                modules[f"{name}/{entry.name}"] = (False, entry.read_text("utf-8"))

    collect(files(_PACKAGE), _PACKAGE)
    return zlib.compress(json.dumps(modules).encode(), level=9)


def package_loader(source: bytes | None = None, version: str = __version__) -> Load:
    """Return a function that imports modules of this very release wherever it is called.

    Args:
        source: what `package_source` returned; this release's without.
        version: the release that it is the source of.
    """
    compressed = package_source() if source is None else source

    def load(name: str) -> Any:
        import importlib
        import importlib.util
        import json
        import sys
        import zlib

        package = "delta_sharing_client"

        class FromMemory:
            """Imports modules from the source that was sent."""

            def __init__(self) -> None:
                self.modules: dict[str, tuple[bool, str]] = json.loads(zlib.decompress(compressed))

            def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
                if fullname not in self.modules:
                    return None
                loader: Any = self
                is_package = self.modules[fullname][0]
                return importlib.util.spec_from_loader(fullname, loader, is_package=is_package)

            def create_module(self, spec: Any) -> None:
                return None

            def exec_module(self, module: Any) -> None:
                text = self.modules[module.__name__][1]
                exec(compile(text, f"<{module.__name__}>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102

            def get_source(self, fullname: str) -> str:
                return self.modules[fullname][1]

            def get_resource_reader(self, fullname: str) -> Any:
                return Beside(self.modules, fullname)

        class Beside:
            """Opens the texts that lie beside a package's modules, for `importlib.resources`."""

            def __init__(self, modules: dict[str, tuple[bool, str]], package: str) -> None:
                self.modules = modules
                self.package = package

            def open_resource(self, name: str) -> Any:
                import io

                return io.BytesIO(self.modules[f"{self.package}/{name}"][1].encode())

            def is_resource(self, name: str) -> bool:
                return f"{self.package}/{name}" in self.modules

            def contents(self) -> list[str]:
                start = f"{self.package}/"
                return [name.removeprefix(start) for name in self.modules if name.startswith(start)]

        def imported_version() -> Any:
            try:
                return importlib.import_module(f"{package}._version").__version__
            except ImportError:
                return None

        if imported_version() != version:
            for module in [m for m in sys.modules if m == package or m.startswith(f"{package}.")]:
                del sys.modules[module]
            sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "FromMemory"]
            finder: Any = FromMemory()
            sys.meta_path.insert(0, finder)
        try:
            return importlib.import_module(f"{package}.{name}")
        except ImportError as error:
            raise ImportError(
                f"Spark's worker, {sys.executable}, cannot import {error.name}: say pip install "
                f"delta-sharing-client=={version} on the workers; in local mode set PYSPARK_PYTHON to the Python "
                "that has it before the session starts"
            ) from None

    return load


def partition_reader(job: bytes, parts: Sequence[bytes], load: Load) -> Callable[[Any], Iterator[Any]]:
    """Return the function for `DataFrame.mapInArrow`.

    Args:
        job: the encoded job.
        parts: the encoded partitions.
        load: what `package_loader` returned.

    Returns:
        A function from batches of partition numbers to the batches of these partitions.
    """

    def read_shared_table(numbers: Iterator[Any]) -> Iterator[Any]:
        read_part = load("spark.executor").read_part
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_part(job, parts[number])

    return read_shared_table


def data_source(load: Load, cores: int | None = None) -> type[DataSource]:
    """Return the class of the data source ``deltaSharing`` (PySpark 4.0 and later).

    Spark makes an instance of it, pickles that, and asks another process to plan with it; the executors get what
    `reader` returned, and the instance too, which has no options left by then.

    Args:
        load: what `package_loader` returned.
        cores: tasks that can run at a time; those of the driver's machine without.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
    except ImportError:  # Spark before 4.2
        AvailableNow = object  # type: ignore[assignment, misc]  # noqa: N806

    class SharedTableReader(DataSourceReader):
        def __init__(self, job: bytes, parts: list[bytes]) -> None:
            self.job = job
            self.parts = parts

        def partitions(self) -> list[Any]:
            parts, self.parts = self.parts, []
            return [InputPartition(part) for part in parts or [b""]]

        def read(self, partition: Any) -> Iterator[Any]:
            if partition is None or not partition.value:
                return iter(())
            return load("spark.executor").read_part(self.job, partition.value)  # type: ignore[no-any-return]

    class SharedTableStreamReader(DataSourceStreamReader, AvailableNow):
        """One of them lives as long as a query and plans it; another, without options, runs on executors."""

        def __init__(self, asked: dict[str, str], pinned: int | None, schema: Any) -> None:
            self.asked = asked
            self.pinned = pinned
            self.schema = schema
            self.stream: Any = None

        def __getstate__(self) -> dict[str, Any]:
            return {}  # for executors, which get all they need with their partition

        def call(self, method: str, *arguments: Any) -> Any:
            try:
                if self.stream is None:
                    opened = load("spark.stream").TableStream
                    self.stream = opened(self.asked, self.pinned, self.schema, cores)
                return getattr(self.stream, method)(*arguments)
            except Exception as error:  # noqa: BLE001
                raise error.with_traceback(None) from None

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802
            return self.call("initial_offset")  # type: ignore[no-any-return]

        # Spark before 4.2 gives neither; later ones look whether there are parameters at all.
        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
            told = None
            if limit is not None:
                told = type(limit).__name__, next(iter(vars(limit).values()), 0)
            return self.call("latest_offset", start, told)  # type: ignore[no-any-return]

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            from pyspark.sql.streaming import datasource

            kind, number = self.call("default_limit")
            return getattr(datasource, kind)(number)

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            return self.call("report_latest_offset")  # type: ignore[no-any-return]

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self.call("prepare_for_available_now")

        def partitions(self, start: Any, end: Any) -> list[Any]:
            return [InputPartition(pair) for pair in self.call("partitions", start, end)]

        def read(self, partition: Any) -> Iterator[Any]:
            if partition is None or not partition.value:
                return iter(())
            return load("spark.executor").read_part(*partition.value)  # type: ignore[no-any-return]

        def commit(self, end: Any) -> None:
            self.call("commit", end)

        def stop(self) -> None:
            if self.stream is not None:
                self.stream.stop()

    class SharedTableSource(DataSource):
        def __init__(self, options: Any) -> None:
            self.asked: dict[str, str] = {name.lower(): str(value) for name, value in options.items()}
            self.pinned: int | None = None

        @classmethod
        def name(cls) -> str:
            return "deltaSharing"

        def schema(self) -> Any:
            from pyspark.sql.types import StructType

            try:
                text, self.pinned = load("spark.data_source").describe(self.asked)
            except Exception as error:  # noqa: BLE001
                raise error.with_traceback(None) from None  # Spark shows the whole of it
            return StructType.fromJson(text)

        def reader(self, schema: Any) -> Any:
            asked, self.asked = self.asked, {}
            try:
                job, parts = load("spark.data_source").plan(asked, self.pinned, schema, cores)
            except Exception as error:  # noqa: BLE001
                raise error.with_traceback(None) from None
            return SharedTableReader(job, parts)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            asked, self.asked = self.asked, {}
            return SharedTableStreamReader(asked, self.pinned, schema)

    return SharedTableSource
