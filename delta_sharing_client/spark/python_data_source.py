"""The data source ``deltaSharing`` in the classes of PySpark's data source API (4.0 and later).

Spark pickles an instance of the source, and another process plans with it. The executors receive what `reader`
returned, and the instance too, by then without options. Pickled by value; see `entry_points`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import wraps
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from delta_sharing_client.spark.entry_points import package_module, pickle_by_value

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
except ImportError:  # Spark before 4.2
    AvailableNow = object  # type: ignore[assignment, misc]


def _without_traceback(method: Callable[..., Any]) -> Callable[..., Any]:
    """Drop the traceback of errors: Spark's error has all of it."""

    @wraps(method)  # Spark inspects the signature
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:  # noqa: BLE001  # raised again, whatever it is
            raise error.with_traceback(None) from None

    return call


class SharedTableReader(DataSourceReader):
    """The encoded job and partitions of a batch query."""

    def __init__(self, job: bytes, parts: list[bytes]) -> None:
        self.job = job
        self.parts = parts

    def partitions(self) -> list[Any]:
        """Return the partitions, once: the reader is pickled to the executors without them."""
        parts, self.parts = self.parts, []
        return [InputPartition(part) for part in parts or [b""]]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the batches of a partition, on an executor."""
        if partition is not None and partition.value:
            yield from package_module("spark.executor").read_part(self.job, partition.value)


class SharedTableStreamReader(DataSourceStreamReader, AvailableNow):
    """A `stream.TableStream` in Spark's terms, and the zip of the package if Spark does not copy it to streams.

    One instance plans a query as long as it runs; copies of it without options run on executors.
    """

    def __init__(
        self,
        given: dict[str, str],
        planned_version: int | None,
        schema: Any,
        cores: int | None,
        archive: bytes,
        settings: bytes,
    ) -> None:
        self.given = given
        self.planned_version = planned_version
        self.schema = schema
        self.cores = cores
        self.archive = archive
        self.settings = settings
        self.opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"archive": self.archive}  # all that an executor needs beside its partition

    @property
    def stream(self) -> Any:
        """The query, opened on first use."""
        if self.opened is None:
            stream = package_module("spark.stream", self.archive)
            self.opened = stream.TableStream(
                self.given, self.planned_version, self.schema, self.cores, self.settings
            )
        return self.opened

    @_without_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset that the query begins with."""
        offset: dict[str, Any] = self.stream.initial_offset()
        return offset

    @_without_traceback
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; Spark before 4.2 passes no arguments."""
        # A limit is a dataclass of one number, or of none.
        kind = None if limit is None else (type(limit).__name__, sum(astuple(limit)))
        offset: dict[str, Any] = self.stream.latest_offset(start, kind)
        return offset

    @_without_traceback
    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return the limit of a batch that the options give."""
        from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxFiles

        kind, number = self.stream.default_limit()
        return ReadMaxBytes(number) if kind == "ReadMaxBytes" else ReadMaxFiles(number)

    @_without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the version at which the query ends."""
        self.stream.prepare_for_available_now()

    @_without_traceback
    def partitions(self, start: Any, end: Any) -> list[Any]:
        """Return the partitions between two offsets."""
        return [InputPartition(pair) for pair in self.stream.partitions(start, end)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the batches of a partition, on an executor."""
        if partition is not None and partition.value:
            yield from package_module("spark.executor", self.archive).read_part(*partition.value)

    @_without_traceback
    def commit(self, end: Any) -> None:
        """Release what batches up to an offset needed."""
        self.stream.commit(end)

    def stop(self) -> None:
        """Close the connections of the query."""
        if self.opened is not None:
            self.opened.stop()


class SharedTableSource(DataSource):
    """The data source, for the options of one query.

    Attributes:
        cores: tasks that can run at a time; None for the cores of the driver's machine.
        archive: the zip of the package, if Spark does not copy it to streams.
        settings: the encoded `SourceSettings`, which may contain secrets.
    """

    cores: int | None = None
    archive: bytes = b""
    settings: bytes = b""

    def __init__(self, options: Any) -> None:
        self.given: dict[str, str] = {name.lower(): str(value) for name, value in options.items()}
        self.planned_version: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # An executor receives the instance after planning: it must not have the attributes of the session's class.
        return type(self) if self.given else SharedTableSource, ({},), vars(self)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "deltaSharing"

    @_without_traceback
    def schema(self) -> Any:
        """Return the columns that the options select."""
        from pyspark.sql.types import StructType

        fields, self.planned_version = package_module("spark.data_source").describe(self.given, self.settings)
        return StructType.fromJson(fields)

    @_without_traceback
    def reader(self, schema: Any) -> Any:
        """Plan a batch query."""
        given, self.given = self.given, {}
        return SharedTableReader(
            *package_module("spark.data_source").plan(
                given, self.planned_version, schema, self.cores, self.settings
            )
        )

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        """Begin a streaming query."""
        given, self.given = self.given, {}
        return SharedTableStreamReader(
            given, self.planned_version, schema, self.cores, self.archive, self.settings
        )


def source_for(task_count: int, zipped: bytes = b"", encoded: bytes = b"") -> type[DataSource]:
    """Return the data source for a session; see the attributes of `SharedTableSource`.

    Spark registers and pickles a class: only attributes of a class can carry what belongs to a session.
    """

    class SharedTableSourceOfSession(SharedTableSource):
        cores = task_count
        archive = zipped
        settings = encoded

    return SharedTableSourceOfSession


pickle_by_value(__name__)
