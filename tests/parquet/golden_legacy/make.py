"""Write the golden files of this directory with Spark, and what Spark reads back.

    python make.py         # in an environment with pyspark and Java

Not part of the tests; see README.md.
"""

import json
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

HERE = Path(__file__).parent
DAY = 86_400

#: Days since the epoch: before our era, around the first day of it, around 29 February of 100, 300, 400 and 1500
#: (leap years in one calendar alone, or in both), around the gap of 1582, around 1900, and the epoch.
DAYS = [
    -735_578, -719_163, -719_162, -718_070, -682_945, -682_944, -682_943, -609_898, -609_896, -573_372, -171_605,
    -171_604, -141_437, -141_436, -141_428, -141_427, -141_426, -120_000, -25_568, -25_567, -24_000, 0,
]  # fmt: skip
#: Seconds of the day, in turn.
CLOCK = [0, 1, 18_000, 43_200, 68_399, 86_399]
#: About when local time changed in the zones below before 1900, and 1900 itself.
CHANGES = [-3_645_237_208, -3_155_694_800, -2_840_141_850, -2_717_640_000, -2_450_998_800, -2_208_988_800]

#: File, time zone of the writer, Parquet's type of instants.
FILES = [
    ("utc_micros", "UTC", "TIMESTAMP_MICROS"),
    ("los_angeles_micros", "America/Los_Angeles", "TIMESTAMP_MICROS"),
    ("los_angeles_int96", "America/Los_Angeles", "INT96"),
    ("amsterdam_micros", "Europe/Amsterdam", "TIMESTAMP_MICROS"),
    ("amsterdam_int96", "Europe/Amsterdam", "INT96"),
    ("kolkata_int96", "Asia/Kolkata", "INT96"),
    ("offset_millis", "+05:30", "TIMESTAMP_MILLIS"),
    ("gmt_offset_millis", "GMT+8", "TIMESTAMP_MILLIS"),
]
COLUMNS = """
    n, d, t,
    named_struct('d', d, 'x', n, 't', t) AS s,
    CASE WHEN n % 3 = 0 THEN NULL ELSE array(named_struct('t', t, 'd', d), NULL) END AS l,
    map(d, array(t, NULL), DATE'2020-01-01', array()) AS m,
    timestamp_ntz'0001-01-01 00:00:00' AS ntz
"""


def main() -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
        .config("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    seconds = [day * DAY + CLOCK[k % len(CLOCK)] for k, day in enumerate(DAYS)]
    seconds += [change + k for change in CHANGES for k in (-3_600, -1, 0, 600)]
    rows = [(k, DAYS[k % len(DAYS)], second * 1_000_000 + k) for k, second in enumerate(seconds)]
    expected = {}
    for name, zone, kind in FILES:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        spark.createDataFrame(rows, "n int, d int, t long").selectExpr(
            "n", "date_from_unix_date(d) AS d", "timestamp_micros(t) AS t"
        ).createOrReplaceTempView("rows")
        folder, file = HERE / "out", HERE / f"{name}.parquet"
        spark.sql(f"SELECT {COLUMNS} FROM rows").coalesce(1).write.mode("overwrite").parquet(str(folder))
        shutil.copy(next(folder.glob("part-*.parquet")), file)
        shutil.rmtree(folder)
        # Read under another time zone than the writer's: the file tells what it needs. As numbers, so that no
        # time zone of the reader comes in.
        spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
        numbers = spark.read.parquet(str(file)).selectExpr("n", "unix_date(d) AS d", "unix_micros(t) AS t")
        read = sorted(numbers.collect())
        expected[name] = {"d": [row.d for row in read], "t": [row.t for row in read]}
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
