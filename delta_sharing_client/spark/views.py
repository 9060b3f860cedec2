"""Temporary views of shared tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Final

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.model.names import Table
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.table_planner import TablePlanner
from delta_sharing_client.spark.configuration import configured_options
from delta_sharing_client.spark.engine import scan_dataframe
from delta_sharing_client.spark.partition_plan import ExecutorOptions
from delta_sharing_client.spark.session import session_for
from delta_sharing_client.spark.spark_schema import quoted
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.transport.storage_transport import StorageTransport
from delta_sharing_client.transport.url_rules import is_loopback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    created = []
    with ThreadPoolExecutor(_THREADS, "delta-sharing-views") as pool:
        plans = {
            name: pool.submit(TablePlanner(rest, table).plan, ScanOptions()) for name, table in tables.items()
        }
        for name, plan in plans.items():
            try:
                frame = scan_dataframe(
                    (rest, storage), plan.result, session, ScanOptions(), ExecutorOptions(), "auto"
                )
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
