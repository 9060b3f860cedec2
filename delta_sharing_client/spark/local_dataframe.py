"""Mirrors and snapshots of local logs as Spark DataFrames: Spark's own Parquet reader reads the local files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delta_sharing_client.delta.mirror.mirror import MirrorScan
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.fetch import fetch_vector
from delta_sharing_client.parquet.tasks import FileScanTask, VariantForm
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.job import Job, encode
from delta_sharing_client.spark.parquet_frame import ParquetFrame
from delta_sharing_client.spark.partition_plan import divide
from delta_sharing_client.spark.session import listed_by_cores, session_for
from delta_sharing_client.spark.stored_columns import Footer, parse_footer
from delta_sharing_client.storage.local import LocalSource, LogFileReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_THREADS: Final = 8
#: Names of files that Spark reads, and shows as they are.
_SHOWN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def mirror_dataframe(scan: MirrorScan, spark: SparkSession | None = None) -> DataFrame:
    """Return a DataFrame over the local files of a mirror.

    Sends no request and downloads nothing. The executors must see the files under the same paths. Spark prunes
    columns and pushes filters down.

    Args:
        scan: the scan, with columns but without filters and limit: use `where` and `limit` of the DataFrame.
        spark: the session; if None the active one, or a new local one.

    Raises:
        ValueError: the scan has filters or a limit.
        MissingDependencyError: PySpark is not installed.
        FileGoneError: a file of the mirror is missing.
        DataError: a file of the mirror is damaged.
        UnsupportedTypeError: a column has a type that this Spark lacks.
    """
    if scan.options.filters is not None or scan.options.limit is not None:
        raise ValueError(
            "Spark itself filters the rows of a mirror: leave filters and limit out, and use where() and limit() "
            "of the DataFrame"
        )
    return local_dataframe(scan.plan, scan.directory, scan._storage.options, scan.options.variant, spark)


def local_dataframe(
    plan_files: Callable[[], ScanPlan],
    directory: Path,
    options: TransportOptions,
    variant: VariantForm,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return a DataFrame over the files of a local table; see `mirror_dataframe`.

    This package reads files behind URLs, and the files of a plan with a filter or a limit.

    Args:
        plan_files: returns the plan; called once the session is there.
        directory: the table's directory.
        options: time-outs and retries for files behind URLs.
        variant: the form of variants.
        spark: as for `mirror_dataframe`.
    """
    session = session_for(spark)
    plan = plan_files()
    return ParquetFrame(session, plan, _LocalFiles(session, directory, options, plan), variant).frame()


def read_footers(tasks: Sequence[FileScanTask], limit: int) -> list[Footer]:
    """Read the footers of local files, of at most `limit` bytes each.

    Raises:
        FileGoneError: a file is missing.
        DataError: a file is damaged, or is no Parquet file.
    """
    with ThreadPoolExecutor(_THREADS, "delta-sharing-footers") as pool:
        return list(pool.map(partial(_footer_of, limit), tasks))


def _footer_of(limit: int, task: FileScanTask) -> Footer:
    data = LocalSource(task.url.reveal(), task.file_id, task.size, None).whole()
    return parse_footer(data, task.file_id, limit)


class _LocalFiles:
    """The local files of a plan; implements `FileSource`."""

    def __init__(self, session: SparkSession, directory: Path, options: TransportOptions, plan: ScanPlan) -> None:
        self._session = session
        self._directory = directory
        self._storage = LogFileReader(options)
        self._names = Counter(map(self.file_name, plan.tasks))

    def accepts(self, task: FileScanTask, folders: str) -> bool:
        path, _, name = task.url.reveal().rpartition("/")
        prefix, found, below = f"{path}/".partition(f"{self._directory}/")
        # Spark hides files of other names, shows them encoded, and takes folders with "=" for partition values.
        return (
            not prefix
            and bool(found)
            and below.endswith(folders)
            and "=" not in below.removesuffix(folders)
            and _SHOWN.fullmatch(name) is not None
            and self._names[name] == 1
        )

    def footers(self, files: Sequence[tuple[FileScanTask, str]]) -> Sequence[Footer | None]:
        return read_footers([task for task, _ in files], self._storage.options.metadata_limit)

    def file_name(self, task: FileScanTask) -> str:
        return Path(task.url.reveal()).name

    def deleted_rows(self, tasks: Sequence[FileScanTask]) -> Sequence[RowPositions | None]:
        return [fetch_vector(self._storage, task) for task in tasks]

    def read(self, reader: DataFrameReader, files: Sequence[tuple[FileScanTask, str]]) -> DataFrame:
        paths = [task.url.reveal() for task, _ in files]
        with listed_by_cores(self._session):
            return reader.option("basePath", str(self._directory)).parquet(*paths)

    def encode(self, plan: ScanPlan, cores: int) -> tuple[bytes, list[bytes]]:
        job = Job(
            table=plan.table.full_name,
            spec=plan.spec,
            table_columns=plan.metadata.schema,
            options=self._storage.options,
            endpoint_is_loopback=False,
            local=True,
        )
        return encode(job), [encode(part) for part in divide(plan, cores)]
