"""Functions that load the changes of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from delta_sharing_client.api.opening import open_table, spark_variant
from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.tracebacks import public
from delta_sharing_client.wire.requests import Timestamp, format_for

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.cdf.options import CommitTimestamp
    from delta_sharing_client.frames import DtypeBackend
    from delta_sharing_client.scan.options import OnFuture


@public
def load_table_changes_as_pandas(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_timestamp: Timestamp | None = None,
    use_delta_format: bool | None = None,
    convert_in_batches: bool = False,
    *,
    columns: Iterable[str] | None = None,
    commit_timestamp: CommitTimestamp = "long",
    dtype_backend: DtypeBackend | None = None,
    variant: VariantForm = "struct",
    progress: bool | None = None,
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> pd.DataFrame:
    """Load the changes of a shared table as a pandas frame.

    The range includes both ends. The table must be shared with its history and have a change data feed.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        starting_version: the first version; either this or `starting_timestamp` is required.
        ending_version: the last version; the latest by default.
        starting_timestamp: selects the first version at or after this time: ISO 8601 text, or a datetime (UTC
            without a zone).
        ending_timestamp: selects the last version at or before this time.
        use_delta_format: as for `load_as_pandas`, like `convert_in_batches`, `dtype_backend`, `variant` and
            `progress`.
        convert_in_batches: fetch less ahead.
        columns: names of the table's columns, in the order of the frame; all by default.
        commit_timestamp: ``long`` for `_commit_timestamp` in milliseconds since the epoch (int64), ``timestamp``
            for a time (UTC).
        dtype_backend: ``numpy_nullable`` or ``pyarrow``.
        variant: ``struct`` or ``json``.
        progress: show a progress bar.
        on_future: ``raise`` an error for a range that starts after the last commit; ``latest`` returns no rows
            then, and ends a range at the latest version that would end later.
        options: as for `load_as_pandas`, like `credential_provider`.
        credential_provider: a function that returns a bearer token and its expiration.

    Returns:
        The change rows, ordered by version: the table's columns as at the end of the range, then `_change_type`,
        `_commit_version` and `_commit_timestamp`.

    Raises:
        SchemaChangedError: a column was renamed or dropped, or its type changed, within the range.
    """
    with open_table(url, options, credential_provider) as table:
        times = starting_timestamp, ending_timestamp
        given = starting_version, ending_version, *times, columns, format_for(use_delta_format)
        changes = table.changes(*given, commit_timestamp=commit_timestamp, variant=variant, on_future=on_future)
        return changes.to_pandas(
            dtype_backend=dtype_backend, convert_in_batches=convert_in_batches, progress=progress
        )


@public
def load_table_changes_as_arrow(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_timestamp: Timestamp | None = None,
    use_delta_format: bool | None = None,
    *,
    columns: Iterable[str] | None = None,
    commit_timestamp: CommitTimestamp = "long",
    variant: VariantForm = "struct",
    progress: bool | None = None,
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> pa.Table:
    """Load the changes of a shared table as an Arrow table; arguments as for `load_table_changes_as_pandas`."""
    with open_table(url, options, credential_provider) as table:
        times = starting_timestamp, ending_timestamp
        given = starting_version, ending_version, *times, columns, format_for(use_delta_format)
        changes = table.changes(*given, commit_timestamp=commit_timestamp, variant=variant, on_future=on_future)
        return changes.to_arrow(progress=progress)


@public
def load_table_changes_as_spark(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_timestamp: Timestamp | None = None,
    delta_sharing_profile: ProfileSource = None,
    *,
    spark: SparkSession | None = None,
    columns: Iterable[str] | None = None,
    use_delta_format: bool | None = None,
    commit_timestamp: CommitTimestamp = "timestamp",
    variant: Literal["variant", "json"] = "variant",
    executor_credentials: bool = True,
    partition_size: int | None = None,
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> SparkDataFrame:
    """Return the changes of a shared table as a Spark DataFrame (extra ``spark``).

    Range and columns as for `load_table_changes_as_pandas`, the other arguments as for `load_as_spark`.
    `_commit_timestamp` is a timestamp, or with ``commit_timestamp="long"`` milliseconds since the epoch.
    """
    from delta_sharing_client.spark.configuration import configured_options

    options = options or configured_options(spark)
    with open_table(url, options, credential_provider, delta_sharing_profile) as table:
        times = starting_timestamp, ending_timestamp
        given = starting_version, ending_version, *times, columns, format_for(use_delta_format)
        form = spark_variant(variant)
        changes = table.changes(*given, commit_timestamp=commit_timestamp, variant=form, on_future=on_future)
        return changes.to_spark(spark, executor_credentials=executor_credentials, partition_size=partition_size)
