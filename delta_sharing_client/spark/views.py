"""Temporary views of shared tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.errors import DeltaSharingError, NotFoundError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.names import Schema, Table
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.table_planner import TablePlanner
from delta_sharing_client.spark.configuration import configured_options
from delta_sharing_client.spark.engine import scan_dataframe
from delta_sharing_client.spark.partition_plan import ExecutorOptions
from delta_sharing_client.spark.session import session_for
from delta_sharing_client.spark.spark_schema import quoted
from delta_sharing_client.state import ClientState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = module_logger(__name__)

#: Tables whose files are listed at a time.
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
    state = ClientState(loaded, options, credential_provider)
    rest, storage = state.rest, state.storage
    tables = _by_name(rest, share, database)
    created = []
    pool = ThreadPoolExecutor(_THREADS, "delta-sharing-views")
    try:
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
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interrupt waits for no request
    return created


def _by_name(rest: RestClient, share: str | None, database: str | None) -> dict[str, Table]:
    """Return the shared tables by the names of their views.

    Raises:
        NotFoundError: there is no such share, or no share has the schema.
        ValueError: two have the same name, to Spark.
    """
    found: dict[str, Table] = {}
    names: dict[str, Table] = {}
    for table in _tables(rest, share, database):
        other = names.setdefault(table.name.lower(), table)
        if other is not table:
            raise ValueError(
                f"{other.full_name} and {table.full_name} would have the same view: choose one with share= and "
                "database="
            )
        found[table.name] = table
    return found


def _tables(rest: RestClient, share: str | None, database: str | None) -> list[Table]:
    """Return the tables of a share or of all shares; with `database` those of its schema with that name."""
    shares = [each.name for each in rest.list_shares()] if share is None else [share]
    if database is None:
        return [table for each in shares for table in rest.list_all_tables(each)]
    tables: list[Table] = []
    missing: list[NotFoundError] = []
    for each in shares:
        try:
            tables += rest.list_tables(Schema(database, each))
        except NotFoundError as error:
            missing.append(error)
    if missing and len(missing) == len(shares):
        raise missing[0]
    return tables
