"""The data source ``deltaSharing`` (PySpark 4.0 and later), as Spark pickles it; `data_source` and `stream` plan.

Spark makes an instance of the source, pickles that, and asks another process to plan with it. The executors get
what `reader` returned, and the instance too, which has no options left by then. Pickled by value; see
`entry_points`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from delta_sharing_client.spark.entry_points import package_module, pickle_by_value

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
except ImportError:  # Spark before 4.2
    AvailableNow = object  # type: ignore[assignment, misc]


class SharedTableReader(DataSourceReader):
    """The partitions of a batch query.

    Args:
        job: the encoded job.
        parts: the encoded partitions.
    """

    def __init__(self, job: bytes, parts: list[bytes]) -> None:
        self.job = job
        self.parts = parts

    def partitions(self) -> list[Any]:
        """Return the partitions; the reader that goes to the executors has none left."""
        parts, self.parts = self.parts, []
        return [InputPartition(part) for part in parts or [b""]]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the batches of a partition, on an executor."""
        if partition is None or not partition.value:
            return iter(())
        return package_module("spark.executor").read_part(self.job, partition.value)  # type: ignore[no-any-return]


class SharedTableStreamReader(DataSourceStreamReader, AvailableNow):
    """The offsets and partitions of a streaming query.

    One lives as long as a query and plans it; another, without options, runs on executors.

    Args:
        asked: the options, by names in lower case.
        pinned: the version whose schema Spark was given.
        schema: that schema.
        cores: tasks that can run at a time, where known.
        archive: the zip of the package, where Spark does not give it to streams.
    """

    def __init__(
        self, asked: dict[str, str], pinned: int | None, schema: Any, cores: int | None, archive: bytes
    ) -> None:
        self.asked = asked
        self.pinned = pinned
        self.schema = schema
        self.cores = cores
        self.archive = archive
        self.stream: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"archive": self.archive}  # for executors, which get the rest with their partition

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            if self.stream is None:
                opened = package_module("spark.stream", self.archive).TableStream
                self.stream = opened(self.asked, self.pinned, self.schema, self.cores)
            return getattr(self.stream, method)(*arguments)
        except Exception as error:  # noqa: BLE001
            raise error.with_traceback(None) from None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset that the query begins with."""
        return self._call("initial_offset")  # type: ignore[no-any-return]

    # Spark before 4.2 gives neither; later ones look whether there are parameters at all.
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch."""
        told = None
        if limit is not None:
            told = type(limit).__name__, next(iter(vars(limit).values()), 0)
        return self._call("latest_offset", start, told)  # type: ignore[no-any-return]

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return the limit of a batch that the options ask for."""
        from pyspark.sql.streaming import datasource

        kind, number = self._call("default_limit")
        return getattr(datasource, kind)(number)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the newest offset that the query could reach."""
        return self._call("report_latest_offset")  # type: ignore[no-any-return]

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the offset at which the query ends."""
        self._call("prepare_for_available_now")

    def partitions(self, start: Any, end: Any) -> list[Any]:
        """Return the partitions between two offsets."""
        return [InputPartition(pair) for pair in self._call("partitions", start, end)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the batches of a partition, on an executor."""
        if partition is None or not partition.value:
            return iter(())
        executor = package_module("spark.executor", self.archive)
        return executor.read_part(*partition.value)  # type: ignore[no-any-return]

    def commit(self, end: Any) -> None:
        """Note that everything up to an offset has been processed."""
        self._call("commit", end)

    def stop(self) -> None:
        """Close the connections of the query."""
        if self.stream is not None:
            self.stream.stop()


class SharedTableSource(DataSource):
    """The data source, for the options of one query.

    Attributes:
        cores: tasks that can run at a time; those of the driver's machine where None.
        archive: the zip of the package, where Spark does not give it to streams.
    """

    cores: int | None = None
    archive: bytes = b""

    def __init__(self, options: Any) -> None:
        self.asked: dict[str, str] = {name.lower(): str(value) for name, value in options.items()}
        self.pinned: int | None = None

    @classmethod
    def name(cls) -> str:
        """Return what the source is called in `format(...)`."""
        return "deltaSharing"

    def schema(self) -> Any:
        """Return the columns that the options ask for."""
        from pyspark.sql.types import StructType

        try:
            text, self.pinned = package_module("spark.data_source").describe(self.asked)
        except Exception as error:  # noqa: BLE001
            raise error.with_traceback(None) from None  # Spark shows the whole of it
        return StructType.fromJson(text)

    def reader(self, schema: Any) -> Any:
        """Plan a batch query."""
        asked, self.asked = self.asked, {}
        try:
            job, parts = package_module("spark.data_source").plan(asked, self.pinned, schema, self.cores)
        except Exception as error:  # noqa: BLE001
            raise error.with_traceback(None) from None
        return SharedTableReader(job, parts)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        """Begin a streaming query."""
        asked, self.asked = self.asked, {}
        return SharedTableStreamReader(asked, self.pinned, schema, self.cores, self.archive)


def source_for(task_count: int, zipped: bytes = b"") -> type[DataSource]:
    """Return the data source for a session.

    Args:
        task_count: how many tasks the session can run at a time.
        zipped: the zip of the package, for a Connect session.
    """

    class SharedTableSourceOfSession(SharedTableSource):
        cores = task_count
        archive = zipped

    return SharedTableSourceOfSession


pickle_by_value(__name__)
