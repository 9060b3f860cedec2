"""Temporary views of shared tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Final

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.model.names import Table
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.table_planner import TablePlanner
from delta_sharing_client.spark.configuration import configured_options
from delta_sharing_client.spark.frame import to_dataframe
from delta_sharing_client.spark.native_dataframe import native_dataframe, why_not_native
from delta_sharing_client.spark.partition_plan import ExecutorOptions
from delta_sharing_client.spark.session import session_for
from delta_sharing_client.spark.spark_schema import quoted
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.transport.storage_transport import StorageTransport
from delta_sharing_client.transport.url_rules import is_loopback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

#: Tables that are listed at a time.
_THREADS: Final = 8


def create_views(
    spark: SparkSession | None,
    profile: ProfileSource,
    share: str | None,
    database: str | None,
    options: TransportOptions | None,
    credential_provider: CredentialProvider | None,
) -> list[str]:
    """Create a temporary view of each shared table; see `delta_sharing_client.spark.create_views`."""
    loaded = load_profile(profile, external=credential_provider is not None, stacklevel=4)
    session = session_for(spark)
    options = options or configured_options(session)
    rest = RestClient(loaded, options, credential_provider=credential_provider)
    storage = DownloadReader(StorageTransport(options, is_loopback(loaded.endpoint)), options)
    tables = _by_name(rest, share, database)
    reason = why_not_native(session)
    if reason is not None:
        logger.info("the views are read in Python, which prunes nothing: engine='native' %s", reason)
    created = []
    with ThreadPoolExecutor(_THREADS, "delta-sharing-views") as pool:
        plans = {
            name: pool.submit(TablePlanner(rest, table).plan, ScanOptions()) for name, table in tables.items()
        }
        for name, plan in plans.items():
            try:
                frame = _frame(session, (rest, storage), plan, native=reason is None)
            except DeltaSharingError as error:
                logger.warning("no view of table %s: %s", tables[name].full_name, error)
            else:
                frame.createOrReplaceTempView(quoted(name))
                created.append(name)
    return created


def _by_name(rest: RestClient, share: str | None, database: str | None) -> dict[str, Table]:
    """Return the shared tables by the names of their views.

    Raises:
        ValueError: two have the same name, to Spark.
    """
    shares: Iterator[str] = (each.name for each in rest.list_shares()) if share is None else iter([share])
    found: dict[str, Table] = {}
    names: dict[str, Table] = {}
    for table in chain.from_iterable(map(rest.list_all_tables, shares)):
        if database is not None and table.schema.lower() != database.lower():
            continue
        other = names.setdefault(table.name.lower(), table)
        if other is not table:
            raise ValueError(
                f"{other.full_name} and {table.full_name} would have the same view: choose one with share= and "
                "database="
            )
        found[table.name] = table
    return found


def _frame(
    session: SparkSession, connections: tuple[RestClient, StorageReader], plan: Future[ScanPlan], *, native: bool
) -> DataFrame:
    plan_files: Callable[[], ScanPlan] = plan.result
    if native:
        return native_dataframe(connections, plan_files, session, ExecutorOptions(), "struct")
    return to_dataframe(connections[0], plan_files, session, ExecutorOptions())
