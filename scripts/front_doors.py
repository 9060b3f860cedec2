"""A short run of each front door of the package, by the extra that it needs; `scripts/lowest.py` runs it.

    python scripts/front_doors.py core duckdb    the front doors without an extra, and those of `duckdb`

Serves sample tables on loopback. It uses no test framework, because the versions of all libraries may be old ones.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer, write_sample_tables

ROOT = Path(__file__).resolve().parents[1]
ORDERS = "retail.sales.orders"
CUSTOMERS = "retail.sales.customers"
#: The rows of `ORDERS` that the front doors read.
SELECTION: dict[str, Any] = {"columns": ["order_id", "region"], "filters": [("order_date", "=", "2024-01-02")]}


class Run:
    """The sample tables on loopback, and a folder for files.

    Attributes:
        folder: an empty folder.
        profile: the path of the profile of the server.
        client: a client of the server.
        rows: the number of rows of `SELECTION`.
    """

    def __init__(self, folder: Path, server: SharingServer) -> None:
        self.folder = folder
        self.profile = str(server.write_profile(folder / "config.share"))
        self.client = ds.SharingClient(self.profile)
        self.rows = self.scan().count()

    @property
    def url(self) -> str:
        """The table URL of `ORDERS`."""
        return f"{self.profile}#{ORDERS}"

    def scan(self) -> ds.TableScan:
        """A scan of `SELECTION`."""
        return self.client.table(ORDERS).scan(**SELECTION)

    def follow(self, name: str, sink: Any) -> None:
        """Store all changes of the customers and of the orders' last version in a sink."""
        with sink, self.client.table(CUSTOMERS).poll_changes(starting_version="snapshot") as poller:
            batch = poller.pull()
            check(batch is not None and sink.write(batch).inserted > 0, f"{name} stores a batch")


def check(condition: object, subject: str) -> None:
    """Raise `AssertionError` if a condition is false."""
    if not condition:
        raise AssertionError(subject)


def core(run: Run) -> None:
    """What works without an extra: pandas, Arrow, files, changes, mirrors, logs, SQLite, the official names."""
    check(run.client.list_all_tables(), "tables are listed")
    check(len(run.scan().to_pandas()) == run.rows, "pandas")
    check(len(run.client.table(CUSTOMERS).to_pandas(dtype_backend="pyarrow")), "pandas with Arrow types")
    check(len(run.client.table(CUSTOMERS).to_pandas(dtype_backend="numpy_nullable")), "pandas with nullable types")
    check(run.scan().to_arrow().num_rows == run.rows, "Arrow")
    check(pa.table(run.scan()).num_rows == run.rows, "the Arrow C stream")
    check(run.scan().to_dataset().count_rows() == run.rows, "a dataset of pyarrow")
    check(run.client.table(ORDERS).to_dataset().head(3).num_rows == 3, "the head of a dataset")
    for kind in ("parquet", "csv", "jsonl", "arrow"):
        run.scan().to_file(run.folder / f"orders.{kind}")
        check((run.folder / f"orders.{kind}").stat().st_size, f"a file of {kind}")
    changes = ds.load_table_changes_as_pandas(run.url, starting_version=5)
    check("_change_type" in changes.columns and len(changes), "changes")
    mirror = run.client.table(ORDERS).mirror(run.folder / "mirror")
    mirror.sync()
    check(ds.DeltaLog.for_table(run.folder / "mirror").snapshot().version >= 0, "the log of a mirror")
    run.follow("SQLite", ds.sinks.SQLiteSink(run.folder / "shop.sqlite", "customers"))
    ds.install_as_delta_sharing()
    import delta_sharing

    check(len(delta_sharing.load_as_pandas(run.url, limit=3)) == 3, "the names of the official client")


def polars(run: Run) -> None:
    """Polars frames and lazy frames."""
    import polars as pl

    check(run.scan().to_polars().height == run.rows, "a frame")
    lazy = ds.scan_polars(run.url).filter(pl.col("order_date") == pl.date(2024, 1, 2)).select("order_id")
    check(lazy.collect().height == run.rows, "a lazy frame")


def duckdb(run: Run) -> None:
    """DuckDB relations, on the default connection and another one, and the sink."""
    import duckdb as engine

    check(len(ds.load_as_duckdb(run.url, **SELECTION).fetchall()) == run.rows, "a relation")
    with engine.connect() as connection:
        relation = run.client.table(ORDERS).to_duckdb(connection)
        check(relation.aggregate("count(*)").fetchall()[0][0] > 0, "an aggregate")
        check(len(relation.filter("order_date = DATE '2024-01-02'").fetchall()) == run.rows, "a filter")
        check(relation.select("ordered_at").limit(1).fetchall(), "a timestamp with a time zone")
    run.follow("DuckDB", ds.sinks.DuckDBSink(run.folder / "shop.duckdb", "customers"))
    with ds.sinks.DuckDBSink(run.folder / "copy.duckdb", "customers", mode="apply", keys=["customer_id"]) as sink:
        run.follow("DuckDB, mode apply", sink)


def delta(run: Run) -> None:
    """The sink that writes a Delta table."""
    run.follow("Delta", ds.sinks.DeltaSink(run.folder / "customers"))
    sink = ds.sinks.DeltaSink(run.folder / "copy", mode="apply", keys=["customer_id"])
    run.follow("Delta, mode apply", sink)
    check(ds.DeltaLog.for_table(run.folder / "copy").snapshot().version >= 0, "its log")


def dask(run: Run) -> None:
    """Dask data frames."""
    frame = run.scan().to_dask()
    check(len(frame.compute(scheduler="synchronous")) == run.rows, "a data frame")


def ray(run: Run) -> None:
    """Ray datasets."""
    import ray as engine

    engine.init(num_cpus=1, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    try:
        check(run.scan().to_ray().count() == run.rows, "a dataset")
    finally:
        engine.shutdown()


def spark(run: Run) -> None:
    """Spark data frames, and the data source where this release of PySpark has them."""
    from pyspark.sql import SparkSession

    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        check(ds.load_as_spark(run.url).where("order_date = '2024-01-02'").count() == run.rows, "a data frame")
        check(ds.load_table_changes_as_spark(run.url, starting_version=5).count(), "changes")
        if int(session.version.partition(".")[0]) >= 4:
            ds.spark.register(session)
            check(session.read.format("deltaSharing").load(run.url).count() > 0, "the data source")
    finally:
        session.stop()


def iceberg(run: Run) -> None:
    """The Iceberg catalog."""
    sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "iceberg")]
    from faults.server import FaultServer
    from iceberg_server import IcebergServer

    with FaultServer() as server:
        catalog = IcebergServer(server, run.folder)
        catalog.create("sales.orders", pa.table({"id": [1, 2, 3]}), pa.table({"id": [4]}))
        with catalog.client() as client:
            table = client.iceberg.table("retail.sales.orders")
            check(sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4], "a table")
            check(len(table.to_pandas(filters=[("id", ">", 2)])) == 2, "a filter")
            check(len(table.snapshots()) == 2, "snapshots")
            check([each.name for each in client.iceberg.list_tables("retail.sales")] == ["orders"], "a listing")


def oauth(run: Run) -> None:
    """A profile with a private key, and the token cache of a person."""
    import jwt
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "auth")]
    from faults.server import FaultServer
    from token_server import TokenServer

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = run.folder / "key.pem"
    path.touch(0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    with FaultServer() as server:
        tokens = TokenServer(server)
        with ds.SharingClient(tokens.key_fields({"privateKeyFile": str(path)})) as client:
            check(client.list_shares(), "a signed assertion")
        claims = jwt.decode(
            tokens.forms[0]["assertion"], key.public_key(), algorithms=["RS256"], options={"verify_aud": False}
        )
        check(claims["iss"], "its claims")
        person = {
            "shareCredentialsVersion": 2,
            "type": "oauth_authorization_code",
            "endpoint": server.url,
            "issuer": server.url,
            "clientId": "client-1",
        }
        check(ds.signed_in(person) is None, "the token cache")


def keyring(run: Run) -> None:
    """The keyring of the system for the tokens of a person."""
    import keyring as library
    from keyring.backend import KeyringBackend

    from delta_sharing_client.auth.renewal import AccessToken
    from delta_sharing_client.auth.token_cache import TokenCache
    from delta_sharing_client.model.credentials import UserSignIn
    from delta_sharing_client.secrets import Secret

    class Memory(KeyringBackend):
        priority = 1
        kept: dict[tuple[str, str], str] = {}  # noqa: RUF012

        def get_password(self, service: str, username: str) -> str | None:
            return self.kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.kept[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del self.kept[service, username]

    library.set_keyring(Memory())
    fields = {
        "shareCredentialsVersion": 2,
        "type": "oauth_authorization_code",
        "endpoint": "https://sharing.example",
        "issuer": "https://issuer.example",
        "clientId": "client-1",
    }
    credential = ds.Profile.from_dict(fields).credential
    check(isinstance(credential, UserSignIn), "a profile of a person")
    cache = TokenCache(credential, run.folder / "tokens")
    with cache.lock(10):
        cache.try_keyring(True)
        cache.write(AccessToken(Secret("token")), keyring=True)
        found = cache.read()
    check(found is not None and found.token == Secret("token") and Memory.kept, "a token in the keyring")


def azure(run: Run) -> None:
    """Credentials of azure-identity."""
    from azure.core.credentials import AccessToken
    from azure.identity import ManagedIdentityCredential  # noqa: F401  # the library can be imported

    class Fixed:
        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            return AccessToken(token, 4_102_444_800)

    token = json.loads(Path(run.profile).read_text())["bearerToken"]
    fields = {
        "shareCredentialsVersion": 1,
        "endpoint": run.client.profile.endpoint,
        "bearerToken": "none",
    }
    with ds.SharingClient(fields | {"scope": "api://x/.default"}, credential_provider=Fixed()) as client:
        check(client.list_shares(), "a token of a credential")


def cli(run: Run) -> None:
    """The command line."""
    from click.testing import CliRunner

    from delta_sharing_client.cli.app import cli as command

    for arguments in (
        ["ls", run.profile],
        ["schema", run.url],
        ["head", run.url],
        ["head", run.url, "--help"],
        ["--help"],
    ):
        result = CliRunner().invoke(command, arguments)
        check(result.exit_code == 0 and result.output, f"{arguments[0]}: {result.output} {result.exception!r}")


def server(run: Run) -> None:
    """The embedded server, in a process of its own."""
    with contextlib.redirect_stdout(io.StringIO()):
        from delta_sharing_client.server import __main__  # noqa: F401  # the command can be imported
    check(run.client.table(ORDERS).version() > 0, "a version")


def testing(run: Run) -> None:
    """The pytest plugin."""
    import pytest

    file = run.folder / "test_pipeline.py"
    file.write_text(
        "import delta_sharing_client as ds\n"
        "def test_rows(delta_sharing_server):\n"
        "    delta_sharing_server.share('a.b.c', {'id': [1, 2]})\n"
        "    delta_sharing_server.faults.refuse(503)\n"
        "    delta_sharing_server.faults.cut()\n"
        "    assert len(ds.load_as_pandas(delta_sharing_server.url('a.b.c'))) == 2\n"
    )
    options = ["-q", "-c", os.devnull, "--rootdir", str(run.folder), "-p", "no:cacheprovider"]
    check(pytest.main([*options, str(file)]) == 0, "the plugin")


def sql(run: Run) -> None:
    """Row filters as SQL text."""
    condition = "order_date = DATE '2024-01-02' AND order_id IS NOT NULL AND (region LIKE '%' OR region IS NULL)"
    check(run.client.table(ORDERS).scan(filters=condition).count() == run.rows, "a filter")


def notebook(run: Run) -> None:
    """Progress bars as widgets."""
    import ipywidgets  # noqa: F401
    from tqdm.notebook import tqdm

    check(list(tqdm(range(3), disable=True)) == [0, 1, 2], "a bar")
    check(len(run.scan().to_pandas(progress=True)) == run.rows, "a load with a bar")


def remote(run: Run) -> None:
    """Profiles at a URL."""
    import fsspec

    with fsspec.open("memory://config.share", "w") as file:
        file.write(Path(run.profile).read_text())
    with ds.SharingClient("memory://config.share") as client:
        check(client.list_shares(), "a profile at a URL")


def store(name: str) -> Callable[[Run], None]:
    """Return the front door of a driver of fsspec: the profile at a URL of its store is looked for."""

    def run_store(run: Run) -> None:
        import fsspec

        check(fsspec.get_filesystem_class(name), f"the driver of {name}")

    return run_store


FRONT_DOORS: Mapping[str, Callable[[Run], None]] = {
    "core": core,
    **{
        function.__name__: function
        for function in (azure, cli, dask, delta, duckdb, iceberg, keyring, notebook, oauth, polars, ray, remote)
    },
    **{function.__name__: function for function in (server, spark, sql, testing)},
    "abfs": store("abfs"),
    "gcs": store("gs"),
    "s3": store("s3"),
}


def main(names: list[str]) -> int:
    """Run the front doors of these names; return 0 if all passed."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with SharingServer(write_sample_tables(root / "tables")) as sharing:
            for name in names:
                (root / name).mkdir()
                try:
                    FRONT_DOORS[name](Run(root / name, sharing))
                except Exception as error:  # each failure is reported
                    logging.exception(name)
                    failed.append(f"{name}: {type(error).__name__}: {error}")
    for line in failed:
        print("FAILED", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(FRONT_DOORS)))
