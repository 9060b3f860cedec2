"""Write the files of `layout_cases.py` with parquet-java, and check what Spark reads of them.

    pip install pyspark==4.2.0
    python tests/golden/make_layouts.py

Needs Java 17. parquet-java, its example writer included, comes with PySpark. What is made lies in `layouts/`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from layout_cases import LAYOUTS, Layout

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.sql.session.timeZone": "UTC",
    # The other reader lacks some of these layouts.
    "spark.sql.parquet.enableVectorizedReader": "false",
}


class Writer:
    """Writes Parquet records by the names of their fields."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm
        self._gateway = spark.sparkContext._gateway
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()
        # Small numbers come over as 32 bits, so the method for 64 has to be asked for.
        lang = self._jvm.java.lang
        kinds = self._array(lang.Class, lang.Class.forName("java.lang.String"), lang.Long.TYPE)
        self._append_long = lang.Class.forName("org.apache.parquet.example.data.Group").getMethod("append", kinds)

    def write(self, path: Path, layout: Layout) -> None:
        parquet = self._jvm.org.apache.parquet
        message = parquet.schema.MessageTypeParser.parseMessageType(
            "message table { required int32 id; " + layout.message + " }"
        )
        target = self._jvm.org.apache.hadoop.fs.Path(str(path))
        builder = parquet.hadoop.example.ExampleParquetWriter.builder(target)
        writer = builder.withType(message).withConf(self._conf).build()
        groups = parquet.example.data.simple.SimpleGroupFactory(message)
        for number, record in enumerate(layout.records, 1):
            group = groups.newGroup()
            self._fill(group, {"id": number} | record)
            writer.write(group)
        writer.close()

    def _fill(self, group: Any, record: dict[str, Any]) -> None:
        for name, value in record.items():
            kind = group.getType().getType(name)
            for item in value if kind.getRepetition().toString() == "REPEATED" else [value]:
                if not kind.isPrimitive():
                    self._fill(group.addGroup(name), item)
                elif isinstance(item, bytes | str):
                    data = item.encode() if isinstance(item, str) else item
                    group.append(name, self._jvm.org.apache.parquet.io.api.Binary.fromConstantByteArray(data))
                elif kind.asPrimitiveType().getPrimitiveTypeName().toString() == "INT64":
                    number = self._jvm.java.lang.Long.valueOf(str(item))
                    self._append_long.invoke(group, self._array(self._jvm.java.lang.Object, name, number))
                else:
                    group.append(name, item)

    def _array(self, kind: Any, *items: Any) -> Any:
        array = self._gateway.new_array(kind, len(items))
        for position, item in enumerate(items):
            array[position] = item
        return array


def plain(value: Any) -> Any:
    """What Spark gives, as `layout_cases.py` writes it: maps as lists of pairs, no special classes."""
    from pyspark.sql import Row

    if isinstance(value, Row):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return [(plain(key), plain(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, bytearray) else value


def main() -> None:
    import os
    import time

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    # Spark hands timestamps over in the time zone of this process.
    os.environ["TZ"] = "UTC"
    time.tzset()
    builder = SparkSession.builder.master("local[1]").appName("layouts")
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    writer = Writer(spark)
    target = HERE / "layouts"
    target.mkdir(exist_ok=True)
    failed = []
    for name, layout in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / f"{name}.parquet"
            writer.write(file, layout)
            frame = spark.read.schema(StructType.fromJson(layout.schema)).parquet(str(file))
            rows = [tuple(plain(row[column]) for column in layout.fields) for row in frame.orderBy("id").collect()]
            # Times without a zone are those of UTC, whose instants Spark gives without saying so.
            expected = [tuple(_naive(value) for value in row) for row in layout.rows]
            if rows != expected:
                failed.append(f"{name}: Spark reads {rows}, expected {expected}")
            (target / file.name).write_bytes(file.read_bytes())
    spark.stop()
    if failed:
        sys.exit("\n".join(failed))


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


if __name__ == "__main__":
    main()
