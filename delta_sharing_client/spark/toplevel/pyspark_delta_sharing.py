"""Data source `deltaSharing` for Spark's discovery of top-level modules named `pyspark_...`.

`spark.read.format("deltaSharing")` works without `register` if delta-sharing-client is installed beside Spark's
driver. Spark 4.0 finds no data source here: it would refuse to replace it by the one of `register`, which has the
settings of the session.
"""

from __future__ import annotations

from delta_sharing_client.spark import session

if session.pyspark_version() >= session.REPLACES_DATA_SOURCES_SINCE:
    from delta_sharing_client.spark.python_data_source import SharedTableSource

    #: The data source; Spark looks for this name.
    DefaultSource = SharedTableSource
