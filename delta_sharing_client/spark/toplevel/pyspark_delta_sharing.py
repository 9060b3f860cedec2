"""Data source `deltaSharing` for Spark's discovery of top-level modules named `pyspark_...`.

`spark.read.format("deltaSharing")` works without `register` if delta-sharing-client is installed beside
Spark's driver (PySpark 4.0 or later).
"""

from __future__ import annotations

from delta_sharing_client.spark.python_data_source import SharedTableSource

#: The data source; Spark looks for this name.
DefaultSource = SharedTableSource
