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
#: Days since the epoch at which something happens: the years -44, 1, 4, 100, 300, 1000, 1500 (which have or lack
#: a leap day in one calendar alone), the gap of 1582, and later ones.
DAYS = [
    -735_578, -719_163, -719_162, -718_070, -682_945, -682_944, -682_943, -609_898, -609_896, -353_288, -354_226,
    -171_605, -171_604, -141_437, -141_436, -141_428, -141_427, -141_426, -120_000, -25_568, -25_567, -24_000, 0,
]  # fmt: skip
#: Seconds of the day.
CLOCK = [0, 1, 18_000, 43_200, 68_399, 86_399]
#: Changes of local time before 1900 in the zones below, and 1900 itself.
CHANGES = [-2_717_640_000, -2_450_998_800, -3_645_237_208, -3_155_694_800, -2_208_988_800, -2_398_377_600]

ZONES = {
    "utc": "UTC",
    "los_angeles": "America/Los_Angeles",
    "amsterdam": "Europe/Amsterdam",
    "kolkata": "Asia/Kolkata",
    "offset": "+05:30",
    "gmt_offset": "GMT+8",
}
COLUMNS = """
    n, d, t,
    named_struct('d', d, 'x', n, 't', t) AS s,
    CASE WHEN n % 3 = 0 THEN NULL ELSE array(named_struct('t', t, 'd', d), NULL) END AS l,
    map(d, array(t, NULL), DATE'2020-01-01', array()) AS m,
    timestamp_ntz'0001-01-01 00:00:00' AS ntz
"""
#: The same in numbers, so that no time zone of a reader comes in.
NUMBERS = """
    n, unix_date(d) AS d, unix_micros(t) AS t,
    named_struct('d', unix_date(s.d), 'x', s.x, 't', unix_micros(s.t)) AS s,
    transform(l, e -> named_struct('t', unix_micros(e.t), 'd', unix_date(e.d))) AS l,
    transform(map_entries(m), e -> named_struct('k', unix_date(e.key), 'v', transform(e.value, t -> unix_micros(t))))
        AS m
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
    times = [day * DAY + CLOCK[k % len(CLOCK)] for k, day in enumerate(DAYS)]
    times += [change + k for change in CHANGES for k in (-3_600, -1, 0, 600)]
    micros = [second * 1_000_000 + k for k, second in enumerate(times)]
    rows = [(k, DAYS[k % len(DAYS)], micros[k]) for k in range(len(micros))]
    expected = {}
    for name, zone in ZONES.items():
        for kind in ("TIMESTAMP_MICROS", "INT96") if "offset" not in name else ("TIMESTAMP_MILLIS",):
            spark.conf.set("spark.sql.session.timeZone", zone)
            spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
            frame = spark.createDataFrame(rows, "n int, d int, t long").selectExpr(
                "n", "date_from_unix_date(d) AS d", "timestamp_micros(t) AS t"
            )
            frame.createOrReplaceTempView("rows")
            folder = HERE / "out"
            plain = spark.sql(f"SELECT {COLUMNS} FROM rows")
            plain.coalesce(1).write.mode("overwrite").parquet(str(folder))
            file = f"{name}_{kind.lower().removeprefix('timestamp_')}.parquet"
            shutil.copy(next(folder.glob("part-*.parquet")), HERE / file)
            shutil.rmtree(folder)
            # Read under another time zone than the writer's: the file tells what it needs.
            spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
            read = spark.read.parquet(str(HERE / file)).selectExpr(f"struct({NUMBERS}) AS r").selectExpr(
                "to_json(r, map('ignoreNullFields', 'false')) AS j"
            )
            expected[file] = [json.loads(row.j) for row in read.collect()]
    lines = [f'"{file}": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows_) + "\n]"
             for file, rows_ in expected.items()]  # fmt: skip
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    spark.stop()


if __name__ == "__main__":
    main()
