"""Where Spark looks for data sources that nobody registered: top-level modules called `pyspark_...`.

So that `spark.read.format("deltaSharing")` works wherever delta-sharing-client is installed beside Spark's driver
(PySpark 4.0 and later).
"""

from __future__ import annotations

from delta_sharing_client.spark.python_data_source import SharedTableSource

#: The data source; Spark looks for this name.
DefaultSource = SharedTableSource
