"""The Spark session: the active one or a new local one, its release, its cores, its Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import SparkError
from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.messages import module_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_sharing_client.spark.gateway import Gateway

logger = module_logger(__name__)

#: The oldest Spark that is supported, and the first with Python data sources.
OLDEST: Final = (3, 5)
DATA_SOURCE_SINCE: Final = (4, 0)
#: Releases of Spark in which a registered data source replaces one that Spark has found by itself.
REPLACES_DATA_SOURCES_SINCE: Final = (4, 1)

#: Spark starts a task per file, up to this number, to look at files.
_LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"

#: The attribute of a Spark context, or of a Connect session, with its `SessionState`.
_ATTRIBUTE: Final = "_delta_sharing_state"


class SessionState:
    """What this package keeps for a Spark context or a Connect session, as long as that exists.

    Attributes:
        lock: held while one of the others is made.
        cores: how many tasks can run at a time, once that is known.
        has_code: whether the zip of this package was added.
        gateway: the gateway of the context, once there is one.
    """

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.cores: int | None = None
        self.has_code = False
        self.gateway: Gateway | None = None


def kept_for(owner: Any) -> SessionState:
    """Return what is kept for a Spark context or a Connect session."""
    found: SessionState = vars(owner).setdefault(_ATTRIBUTE, SessionState())
    return found


def session_for(spark: SparkSession | None) -> SparkSession:
    """Return the session to use.

    Args:
        spark: the caller's; if None the active one, or a new local one.

    Raises:
        SparkError: Java is missing or too old, or Spark is older than 3.5.
        TypeError: `spark` is no session.
    """
    from pyspark.sql import SparkSession

    if spark is not None and not (is_connect(spark) or isinstance(spark, SparkSession)):
        raise TypeError(f"spark takes a SparkSession, not {type(spark).__name__}")
    session = spark or SparkSession.getActiveSession() or _new_session()
    version = spark_version(session)
    if version < OLDEST:
        raise SparkError(f"Spark {version[0]}.{version[1]} is too old: PySpark 3.5 or later is needed")
    return session


def spark_version(spark: SparkSession) -> tuple[int, int]:
    """Return the release of a session: the older one of client and server."""
    return min(_parsed(spark.version), pyspark_version())


def pyspark_version() -> tuple[int, int]:
    """Return the release of the installed PySpark."""
    import pyspark

    return _parsed(pyspark.__version__)


def _parsed(version: str) -> tuple[int, int]:
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2])
    return major, minor


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return ".connect." in type(spark).__module__


def owner_of(spark: SparkSession) -> Any:
    """Return what has the state of a session: a Connect session, or the context that classic sessions share."""
    return spark if is_connect(spark) else spark.sparkContext


def core_count(spark: SparkSession) -> int:
    """Return how many tasks can run at a time; looked up once per session."""
    kept = kept_for(owner_of(spark))
    if kept.cores is None:
        kept.cores = _count_cores(spark)
    return kept.cores


def _count_cores(spark: SparkSession) -> int:
    if not is_connect(spark):
        return max(int(spark.sparkContext.defaultParallelism), 1)
    # Connect has no Spark context. A range has a partition per core by default.
    from pyspark.sql import functions

    numbers = spark.range(0, 1 << 16).select(functions.spark_partition_id().alias("part"))
    row = numbers.agg(functions.max("part")).first()
    return 1 if row is None else int(row[0]) + 1


@contextmanager
def worker_python(spark: SparkSession) -> Iterator[None]:
    """Within this context, functions passed to Spark run with this Python, on a local master without a setting.

    Spark's default is the `python3` on the path, which may lack this package.
    """
    context = None if is_connect(spark) else spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or spark.conf.get("spark.pyspark.python", None)
    local = context is not None and str(context.master).startswith("local[")
    if context is None or chosen or not local or not hasattr(context, "pythonExec"):  # it is not documented
        yield
        return
    before = context.pythonExec
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


@contextmanager
def listed_by_cores(spark: SparkSession) -> Iterator[None]:
    """Within this context, Spark looks at the files that it reads in one task per core.

    Its default beyond 32 files is a task for each. Connect looks at files when a query runs: nothing is set there.
    """
    if is_connect(spark):
        yield
        return
    with with_setting(spark, _LISTING_TASKS, str(core_count(spark))):
        yield


@contextmanager
def with_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Within this context, a setting of the session has this value."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _new_session() -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("delta-sharing-client")
    if not {"SPARK_REMOTE", "MASTER"} & os.environ.keys():
        builder = builder.master("local[*]").config("spark.ui.showConsoleProgress", "false")
        logger.warning(
            "no Spark session is active: starting a local one on all cores of this machine; "
            "to use another, create it first or pass spark=..."
        )
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
    needed = 17 if pyspark_version() >= DATA_SOURCE_SINCE else 8
    raise SparkError(
        f"Spark could not start Java; it needs Java {needed} or later. Install one (apt install "
        "openjdk-17-jre-headless; brew install openjdk@17; conda install openjdk=17), and set JAVA_HOME if it is "
        "not on the path"
    )
