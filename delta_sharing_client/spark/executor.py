"""Reading of one partition's files into record batches, in the workers of Spark, Dask and Ray."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from msgspec import structs

from delta_sharing_client.errors import DeltaSharingError, SparkError, UrlExpiredError
from delta_sharing_client.expressions.predicates import columns_of
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.file_tasks import project
from delta_sharing_client.scan.pipeline import Load, read_batches
from delta_sharing_client.secrets import SecretUrl, redact_text
from delta_sharing_client.spark.arrow_schema import spark_batches
from delta_sharing_client.spark.job import Job, Part, decode, with_urls
from delta_sharing_client.storage.byte_source import StorageReader, UrlRenewal
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.storage.local import LogFileReader
from delta_sharing_client.transport.storage_transport import StorageTransport

#: Bytes of files in flight in one task: an executor runs a task per core, in little memory.
_MEMORY_BUDGET: Final = 128 * 1024 * 1024
#: A URL that expires within this time is renewed before its first use, seconds.
_URL_MARGIN: Final = 20
#: Least bytes of a batch for Spark that is not the only one: more than the buffers of a socket keep while Spark
#: does not read.
_LEAST_BYTES: Final = 4 * 1024 * 1024


def read_part(job_bytes: bytes, part_bytes: bytes) -> Iterator[pa.RecordBatch]:
    """Read one encoded partition of an encoded job, in exactly the schema that Spark expects.

    Raises:
        DeltaSharingError: a file cannot be fetched or decoded. It contains no URL and no credential.
    """
    with _redacted():
        job = decoded_job(job_bytes)
        with closing(_batches(job_bytes, part_bytes, job.spec)) as batches:
            yield from _ended_by_closed_pipe(spark_batches(batches, job.spec.output, job.spec.variant, job.names))


def read_columns(
    job_bytes: bytes, part_bytes: bytes, columns: Iterable[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read columns of one encoded partition of an encoded job, all columns by default, in the table's types.

    Raises:
        DeltaSharingError: as for `read_part`.
    """
    with _redacted():
        spec = decoded_job(job_bytes).spec
        if columns is not None:
            output = project(spec.output, columns)
            needed = columns_of(spec.predicate) if spec.predicate is not None else ()
            extra = tuple(dict.fromkeys(column for column in needed if column not in output.fields))
            spec = structs.replace(spec, output=output, extra=extra)
        with closing(_batches(job_bytes, part_bytes, spec)) as batches:
            yield from batches


def _batches(job_bytes: bytes, part_bytes: bytes, spec: ReadSpec) -> Generator[pa.RecordBatch, None, None]:
    job = decoded_job(job_bytes)
    part: Part = decode(part_bytes)
    renewal = _url_renewal(job_bytes)
    if job.in_directory:
        storage: StorageReader = renewal.reader  # type: ignore[attr-defined]  # a `HostDirectory`
    else:
        storage = LogFileReader(job.options) if job.local else _storage(job.options, job.endpoint_is_loopback)
    load = Load(
        tasks=[_renewed(task, renewal) for task in part.tasks],
        spec=spec,
        storage=storage,
        renewal=renewal,
        limit=part.limit,
        table_columns=job.table_columns,
        memory_budget=_MEMORY_BUDGET,
    )
    yield from read_batches(load)


@contextmanager
def _redacted() -> Iterator[None]:
    """Raise errors without the URLs that messages of libraries may contain."""
    try:
        yield
    except DeltaSharingError as error:
        raise error from None
    except Exception as error:  # noqa: BLE001  # the message of a library may contain a URL
        raise SparkError(
            f"reading failed on an executor: {type(error).__name__}: {redact_text(str(error))}"
        ) from None


@lru_cache(maxsize=4)
def decoded_job(job_bytes: bytes) -> Job:
    """Return an encoded job."""
    job: Job = decode(job_bytes)
    return job


@lru_cache(maxsize=4)
def _storage(options: TransportOptions, endpoint_is_loopback: bool) -> StorageReader:
    """The reader of a worker process; its connections outlive a task."""
    return DownloadReader(StorageTransport(options, endpoint_is_loopback), options)


@lru_cache(maxsize=4)
def _url_renewal(job_bytes: bytes) -> UrlRenewal:
    """The job's URL renewal; unpickling it imports the client of the sharing server."""
    job = decoded_job(job_bytes)
    if job.executor_credentials is None:
        return _NoRenewal(job.table)
    renewal: UrlRenewal = pickle.loads(job.executor_credentials)  # noqa: S301  # made by our own driver
    return renewal


class _NoRenewal(UrlRenewal):
    """The URL renewal of a job without a credential: raises."""

    def __init__(self, table: str) -> None:
        self._table = table

    def renew(self, file_id: str, refused: SecretUrl) -> SecretUrl:
        raise UrlExpiredError(
            f"its URL expired, and executors cannot renew it because executorCredentials is off: load table "
            f"{self._table} again and use it sooner, or leave executorCredentials on",
            file_id=file_id,
        )

    def current_url(self, file_id: str, url: SecretUrl) -> SecretUrl:
        return url


def _renewed(task: FileScanTask, renewal: UrlRenewal) -> FileScanTask:
    """The task with usable URLs; missing and expired ones are renewed."""
    usable = task.expiration is None or task.expiration / 1000 > time.time() + _URL_MARGIN
    if task.url and (usable or isinstance(renewal, _NoRenewal)):
        return task
    return structs.replace(with_urls(task, renewal.renew), expiration=None)


def _ended_by_closed_pipe(batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    """Yield batches to PySpark; while PySpark writes them, a closed pipe ends this process without a message.

    Spark closes the pipe once ``show`` or ``limit`` has enough rows. PySpark's daemon prints a traceback when it
    cannot write the rest of the output, though nothing is wrong. A Unix filter whose reader is gone ends by the
    signal SIGPIPE instead. Python ignores that signal by default; here a handler ends the worker.

    The signal is blocked while a batch is read, and so in the threads that this starts: a store that closes a
    connection does not end the process.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None or not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        yield from batches
        return
    handler = _signal_handler(task.taskAttemptId(), TaskContext.get)
    written = _written_at_once(batches)
    try:
        while True:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
            batch = next(written, None)
            if batch is None:
                return
            _end_at_signal(handler)
            yield batch
    finally:
        _end_at_signal(handler)


def _written_at_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: the last batch is the only one, or does not fit into the buffers of the pipe.

    PySpark's worker then writes to the closed pipe before its daemon does. The first write to a connection that
    was reset fails without a signal, so the daemon must not make it.
    """
    joined: list[pa.RecordBatch] = []
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        small.append(batch)
        size += batch.nbytes
        if size >= _LEAST_BYTES:
            yield from _joined(joined)
            joined, small, size = small, [], 0
    yield from _joined(joined + small)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _end_at_signal(handler: Any) -> None:
    """Unblock SIGPIPE for a handler, without signals that were pending: ignoring them discards them."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})


def _signal_handler(task: int, current: Callable[[], Any]) -> Callable[[int, Any], None]:
    """End the process, unless Spark has reused it for another task since."""

    def end(_number: int, _frame: Any) -> None:
        running = current()
        if running is None or running.taskAttemptId() == task:
            os._exit(0)

    return end
