"""Spark for the tests: a session in this process, and clusters and a Connect server beside it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spark_processes
from change_tables import ChangeTable
from spark_processes import Jobs

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer, write_sample_tables
from delta_sharing_client.spark import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore PySpark's warnings about sockets that the garbage collector closes; warnings are errors otherwise."""
    theirs = pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning",
        "ignore:PySpark does not yet fully support pandas:FutureWarning",
        "ignore::DeprecationWarning:pyspark",
    )
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(theirs)


@pytest.fixture(scope="session")
def java() -> Path:
    """The Java that Spark runs on."""
    home = spark_processes.java_home()
    if home is None:
        pytest.fail("there is no Java 17 or later: run `make java`, which sets one up", pytrace=False)
    return home


@pytest.fixture(scope="session")
def spark(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two cores of this process."""
    import pyspark
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            patch.delenv(name)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", spark_processes.JAVA_OPTIONS)
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        assert pyspark.__version__ == session.version
        try:
            yield session
        finally:
            session.stop()
            gateway = SparkContext._gateway
            if gateway is not None:  # the JVM would stay until this process ends
                gateway.shutdown()
                SparkContext._gateway = SparkContext._jvm = None
                process: subprocess.Popen[bytes] = gateway.proc
                assert process.stdin is not None
                process.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait(10)


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has all that the package needs, and not the package."""
    return spark_processes.bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="session")
def standalone(java: Path, bare_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A master and two workers, whose Python does not have the package."""
    folder = tmp_path_factory.mktemp("standalone")
    with spark_processes.standalone_cluster(folder, bare_python) as master:
        session = {"master": master, "conf": {"spark.executor.memory": "512m"}}
        with Jobs(folder, session, bare_python) as jobs:
            yield jobs


@pytest.fixture(scope="session")
def spark_connect(java: Path, bare_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A Spark Connect server, whose Python does not have the package."""
    folder = tmp_path_factory.mktemp("connect")
    with spark_processes.connect_server(folder, bare_python) as remote, Jobs(folder, {"remote": remote}) as jobs:
        yield jobs


@pytest.fixture(scope="session")
def sample_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    """The embedded server with the sample tables."""
    with SharingServer(write_sample_tables(tmp_path_factory.mktemp("samples"))) as server:
        yield server


@pytest.fixture(scope="session")
def sample_profile(sample_server: SharingServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a profile of that server."""
    return str(sample_server.write_profile(tmp_path_factory.mktemp("profile") / "samples.share"))


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    """A session with the data source registered."""
    if sessions.spark_version(spark) < (4, 0):
        pytest.skip("Spark 3.5 has no Python data sources")
    ds.spark.register(spark)
    return spark


@pytest.fixture
def serve() -> Iterator[Callable[..., SharingServer]]:
    """Share a local table; keywords are those of `ServerOptions`."""
    with contextlib.ExitStack() as stack:

        def start(table: ChangeTable, **options: Any) -> SharingServer:
            return stack.enter_context(SharingServer({"s.s.t": table.root}, **options))

        yield start
