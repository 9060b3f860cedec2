"""Shared tables by Spark's own Parquet reader, over the pre-signed URLs of a plan, through a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from delta_sharing_client.delta.table.local_names import data_file
from delta_sharing_client.messages import module_logger
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.fetch import fetch_vector
from delta_sharing_client.parquet.fetch_strategy import WHOLE
from delta_sharing_client.parquet.tasks import FileScanTask, VariantForm
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.gateway import HOST_SETTING, LOOPBACK, Gateway, gateway_of
from delta_sharing_client.spark.gateway_files import FooterTooLarge, GatewayFile, PlanFiles
from delta_sharing_client.spark.parquet_frame import ParquetFrame
from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan
from delta_sharing_client.spark.session import core_count, is_connect, spark_version, with_setting
from delta_sharing_client.spark.stored_columns import Footer, parse_footer
from delta_sharing_client.storage.byte_source import StorageReader, Transfers
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.retry import RetryBudget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

logger = module_logger(__name__)

#: The first Spark whose Parquet reader requests one column chunk at a time.
NATIVE_SINCE: Final = (4, 2)
#: Files up to this size are read by this package: each takes Spark several requests to the gateway.
SMALLEST = WHOLE
#: Spark would ask where the blocks of each file are.
_LOCALITY: Final = "spark.sql.sources.ignoreDataLocality"


def native_dataframe(
    connections: tuple[RestClient, StorageReader],
    plan: ScanPlan,
    session: SparkSession,
    options: ExecutorOptions,
    variant: VariantForm,
) -> DataFrame:
    """Return a DataFrame that Spark's own Parquet reader reads, in a session that can use a gateway.

    Raises:
        SparkError: the gateway cannot listen.
        DataError: a file is damaged.
        UnsupportedTypeError: a column has a type that this Spark lacks.
    """
    host = session.conf.get(HOST_SETTING, None) or LOOPBACK
    gateway = gateway_of(session.sparkContext, host, connections[1].options)
    source = _GatewayFiles(session, gateway, connections, plan, options)
    try:
        frame = ParquetFrame(session, plan, source, variant).frame()
    except BaseException:
        source.close()
        raise
    if source.is_unused:
        source.close()
    return frame


def why_not_native(session: SparkSession) -> str | None:
    """Return why a session cannot read through a gateway; None if it can."""
    if is_connect(session):
        return "needs a classic session, whose Java runs on the machine of this process"
    version = spark_version(session)
    if version < NATIVE_SINCE:
        oldest = ".".join(map(str, NATIVE_SINCE))
        return f"needs Spark {oldest} or later, and this is Spark {session.version}"
    if not str(session.sparkContext.master).startswith("local") and not session.conf.get(HOST_SETTING, None):
        return (
            f"needs executors that reach the driver: set {HOST_SETTING} to an address of the driver in a network "
            "that you trust, because the gateway speaks plain http"
        )
    return None


def is_large(task: FileScanTask) -> bool:
    """Whether Spark may read a file; this package reads a smaller one, in the same DataFrame."""
    return task.size > SMALLEST


class _GatewayFiles:
    """The files of a plan behind a gateway; implements `FileSource`."""

    def __init__(
        self,
        session: SparkSession,
        gateway: Gateway,
        connections: tuple[RestClient, StorageReader],
        plan: ScanPlan,
        options: ExecutorOptions,
    ) -> None:
        self._session = session
        self._gateway = gateway
        self._rest = connections[0]
        self._plan = plan
        self._options = options
        self._storage, renewal = plan.file_access(*connections)
        self._threads = self._storage.options.max_connections
        self._transfers = Transfers(renewal, Cancellation(), RetryBudget(len(plan.tasks), self._threads))
        self._key = ""
        self._files: PlanFiles | None = None

    def accepts(self, task: FileScanTask, folders: str) -> bool:
        return is_large(task)

    def footers(self, files: Sequence[tuple[FileScanTask, str]]) -> Sequence[Footer | None]:
        if not files:
            return []
        readers = core_count(self._session)
        self._key, self._files = self._gateway.open(files, self._storage, self._transfers, readers)
        with ThreadPoolExecutor(self._threads, "delta-sharing-footers") as pool:
            return list(pool.map(self._footer_of, files))

    def file_name(self, task: FileScanTask) -> str:
        return data_file(task.file_id)

    def deleted_rows(self, tasks: Sequence[FileScanTask]) -> Sequence[RowPositions | None]:
        with ThreadPoolExecutor(self._threads, "delta-sharing-vectors") as pool:
            return list(pool.map(lambda task: fetch_vector(self._storage, task, self._transfers), tasks))

    def read(self, reader: DataFrameReader, files: Sequence[tuple[FileScanTask, str]]) -> DataFrame:
        group = self._opened.add_group([self._file(task) for task, _ in files])
        folder = self._gateway.folder(self._plan.table.full_name, self._key, group)
        reader = reader.options(basePath=folder, **self._gateway.reader_options)
        with with_setting(self._session, _LOCALITY, "true"):
            frame = reader.parquet(folder)
        self._gateway.hold(self._key, frame)
        return frame

    def encode(self, plan: ScanPlan, cores: int) -> tuple[bytes, list[bytes]]:
        return encode_plan(self._rest, plan, self._options, cores)

    def close(self) -> None:
        """Serve the files no longer."""
        self._gateway.drop(self._key)

    @property
    def is_unused(self) -> bool:
        """Whether Spark reads none of the files."""
        return self._files is None or not self._files.groups

    def _footer_of(self, entry: tuple[FileScanTask, str]) -> Footer | None:
        file = self._file(entry[0])
        try:
            return parse_footer(file.footer(), file.task.file_id, self._storage.options.metadata_limit)
        except FooterTooLarge:
            return None

    @property
    def _opened(self) -> PlanFiles:
        if self._files is None:
            raise RuntimeError("footers() opens the files")
        return self._files

    def _file(self, task: FileScanTask) -> GatewayFile:
        file = self._opened.named(data_file(task.file_id))
        if file is None:
            raise RuntimeError("the file is not open")
        return file
