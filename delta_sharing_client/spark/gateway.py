"""Gateway of a Spark session: shared files under paths of WebHDFS, for Spark's own Parquet reader.

It runs on threads of the driver's process, on loopback unless configured otherwise, until the session stops.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import secrets
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import SparkError, no_thread
from delta_sharing_client.fork_safe import ForkAware, ForkSafeLock
from delta_sharing_client.messages import module_logger
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.spark.gateway_files import PlanFiles, RangeCache
from delta_sharing_client.spark.session import kept_for
from delta_sharing_client.spark.webhdfs import ROOT, GatewayServer, ServerClosed
from delta_sharing_client.storage.byte_source import StorageReader, Transfers

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

logger = module_logger(__name__)

#: The setting of the session with the address on which executors of a cluster reach the driver.
HOST_SETTING: Final = "spark.delta.sharing.gateway.host"
LOOPBACK: Final = "127.0.0.1"
#: Maximum memory in bytes of the ranges that a gateway keeps.
_CACHE: Final = 384 * 1024 * 1024
#: Seconds that a plan without a DataFrame is kept after its last request: an RDD may still read it.
LINGER: float = 3600.0
#: Time-out of Spark for one answer, which may take as long as the store's retries.
_READ_TIMEOUT: Final = "15m"


@dataclass
class _Open:
    """A plan that is served.

    relations: weak references of Java to what the DataFrames over the plan refer to; none while they are made.
    """

    files: PlanFiles
    used: float
    relations: list[Any] = field(default_factory=list)


class Gateway(ForkAware):
    """Serves the files of plans to one Spark session.

    Args:
        context: the session's context; the gateway closes when it stops.
        host: the address to listen on.

    Raises:
        SparkError: the address cannot be used.
    """

    def __init__(self, context: SparkContext, host: str, options: TransportOptions) -> None:
        self._context = weakref.ref(context)
        self._header = f"X-Delta-Sharing-{secrets.token_hex(16)}"
        self.cache = RangeCache(min(_CACHE, options.memory_budget), options.max_connections)
        self._lock = ForkSafeLock()
        self._plans: dict[str, _Open] = {}
        self._keys = itertools.count()
        self._closed = False
        try:
            self._server = GatewayServer(host, self._header, self)
        except OSError as error:
            raise SparkError(
                f"the gateway of engine='native' cannot listen on {host} ({error.strerror}): set {HOST_SETTING} "
                "to an address of the driver"
            ) from None
        self.host, self.port = host, int(self._server.server_address[1])
        super().__init__()
        thread = threading.Thread(target=self._serve, name="delta-sharing-gateway", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._server.server_close()
            raise no_thread(error) from None

    def open(
        self,
        files: Sequence[tuple[FileScanTask, str]],
        storage: StorageReader,
        transfers: Transfers,
        readers: int = 1,
    ) -> tuple[str, PlanFiles]:
        """Serve files to so many tasks at a time; return the key of the plan and its state."""
        self._sweep()
        self.cache.budget = min(self.cache.budget, storage.options.memory_budget)
        plan = PlanFiles(files, storage, transfers, self.cache, readers)
        key = str(next(self._keys))
        with self._lock:
            self._plans[key] = _Open(plan, time.monotonic())
        return key, plan

    def folder(self, table: str, key: str, group: int) -> str:
        """Return the URL for Spark of a group of files."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", table)
        return f"webhdfs://{self.host}:{self.port}/{ROOT}/{name}/{key}/{group}"

    @property
    def reader_options(self) -> dict[str, str]:
        """The options of Spark's reader, with the secret, which its plans and logs leave out."""
        return {
            "dfs.webhdfs.rest-csrf.enabled": "true",
            "dfs.webhdfs.rest-csrf.custom-header": self._header,
            "dfs.webhdfs.rest-csrf.methods-to-ignore": "TRACE",
            "dfs.webhdfs.socket.read-timeout": _READ_TIMEOUT,
            "fs.webhdfs.impl.disable.cache": "true",
            # By vectored reads Spark requests one column chunk at a time.
            "parquet.hadoop.vectored.io.enabled": "true",
        }

    def hold(self, key: str, frame: DataFrame) -> None:
        """Serve a plan as long as Java has a plan over the relation of a DataFrame.

        Raises:
            SparkError: the gateway was closed meanwhile, or this release of Spark keeps its files elsewhere.
        """
        from py4j.protocol import Py4JError

        try:
            jvm: Any = frame.sparkSession._jvm
            index = frame._jdf.queryExecution().analyzed().relation().location()
            kept = jvm.java.lang.ref.WeakReference(index)
        except (AttributeError, TypeError, Py4JError) as error:
            raise SparkError(
                f"Java does not tell which files this DataFrame reads ({type(error).__name__}), which "
                "engine='native' needs: use engine='arrow'"
            ) from error
        plan = self._plans.get(key)
        if plan is None:
            raise SparkError(
                "the gateway of engine='native' was closed while the table was being loaded, because the session "
                "stopped: load the table again in a new session"
            )
        plan.relations.append(kept)

    def drop(self, key: str) -> None:
        """Serve a plan no longer."""
        with self._lock:
            dropped = self._plans.pop(key, None)
        if dropped is not None:
            _cancel(dropped.files)
            self.cache.forget(dropped.files)

    def plan(self, key: str) -> PlanFiles | None:
        """Return an open plan; see `webhdfs.ServedPlans`."""
        found = self._plans.get(key)
        if found is None:
            return None
        found.used = time.monotonic()
        return found.files

    def has_ended(self) -> bool:
        """Return whether the session has stopped, or the gateway was closed; see `webhdfs.ServedPlans`."""
        context = self._context()
        return self._closed or context is None or context._jsc is None

    def close(self) -> None:
        """Stop listening, and cancel the transfers; running queries fail."""
        self._closed = True
        with self._lock:
            plans, self._plans = list(self._plans.values()), {}
        for each in plans:
            _cancel(each.files)
        self.cache.close()

    def after_fork(self) -> None:
        """Leave the gateway to the parent, which listens on its socket; its threads do not exist here."""
        self._closed = True
        self._server.socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(ServerClosed), self._server:
            self._server.serve_forever()
        self.close()

    def _sweep(self) -> None:
        """Drop the plans of which Java has nothing left, and that nobody has read for an hour."""
        now = time.monotonic()
        with self._lock:
            idle = [(key, plan) for key, plan in self._plans.items() if now - plan.used >= LINGER]
        for key, plan in idle:
            if plan.relations and all(relation.refersTo(None) for relation in plan.relations):
                self.drop(key)


def _cancel(plan: PlanFiles) -> None:
    if plan.transfers.cancelled is not None:
        plan.transfers.cancelled.set()


def gateway_of(context: SparkContext, host: str, options: TransportOptions) -> Gateway:
    """Return the gateway of a session; started on first use.

    Raises:
        SparkError: the address cannot be used, or the gateway listens on another one.
    """
    kept = kept_for(context)
    with kept.lock:
        gateway = kept.gateway
        if gateway is None or gateway.has_ended():
            gateway = kept.gateway = Gateway(context, host, options)
            logger.info("the gateway for Spark listens on %s:%d", gateway.host, gateway.port)
    if gateway.host != host:
        raise SparkError(
            f"the gateway of this session listens on {gateway.host} already: set {HOST_SETTING} before the first "
            "table is loaded with engine='native'"
        )
    return gateway
