"""Write the golden files with Spark 4.1: `python make.py`, in an environment with pyspark 4.1 and a JVM.

Each file has an `id`, a variant `v` and, in `j`, what Spark's `to_json(v)` gives in the time zone UTC. Those
named `nested_...` have variants inside other columns, and no `j`.
"""

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent

DOCUMENTS = [
    '{"a":1,"b":"x","c":[1,2],"d":{"x":0.5,"y":true}}',
    '{"a":"text","z":{"y":null},"b":null,"c":[],"d":{}}',
    '{"c":[1,"two",null,{"a":3}],"a":-9223372036854775808,"d":{"x":"no","w":1}}',
    '{"b":"' + "long " * 20 + '","d":[1],"e":{"a":1,"b":[{}]}}',
    "{}",
    "[]",
    "null",
    "true",
    '"plain \\u0001 \\" \\\\ / \\n é 😀"',
    "12345678901234567890.12345",
    "-1.50",
    "1e300",
    '[{"a":1.5,"b":["p","q"]},{"a":"no","b":7},3]',
    "[[1],[2,3],[]]",
    None,
    '{"A":1,"a":2,"":3,"é":4}',
    "[" + ",".join(map(str, range(300))) + "]",
]
TYPED = """
SELECT id, to_variant_object(named_struct(
    'i8', CAST(id - 2 AS TINYINT), 'i16', CAST(id * 300 AS SMALLINT), 'i32', CAST(id * 100000 AS INT),
    'i64', id * 12345678901, 'f', CAST(id / 4 AS FLOAT), 'd', CAST(id / 3 AS DOUBLE),
    'dec4', CAST(id / 4 AS DECIMAL(9, 2)), 'dec8', CAST(-id / 8 AS DECIMAL(18, 5)),
    'dec16', CAST(id / 16 AS DECIMAL(38, 9)), 'date', DATE_ADD(DATE'1970-01-01', CAST(id * 9973 - 400000 AS INT)),
    'ts', TIMESTAMP_MICROS(id * 9876543210123456 - 1000001),
    'ntz', CAST(TIMESTAMP_MICROS(id * 9876543210123456) AS TIMESTAMP_NTZ),
    'bin', CAST(CAST(id AS STRING) AS BINARY), 's', REPEAT('x', CAST(id * 30 AS INT)), 'yes', id % 2 = 0,
    'maybe', IF(id % 3 = 0, NULL, id), 'list', ARRAY(id, NULL, id + 1),
    'sub', NAMED_STRUCT('p', id, 'q', IF(id % 2 = 0, NULL, 'z')))) AS v
FROM RANGE(4)
"""
TYPED_SHREDDING = (
    "i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double, dec4 decimal(9,2), dec8 decimal(18,5), "
    "dec16 decimal(38,9), date date, ts timestamp, ntz timestamp_ntz, bin binary, s string, yes boolean, "
    "maybe bigint, list array<bigint>, sub struct<p:bigint,q:string>"
)
OBJECT_SHREDDING = "a bigint, b string, c array<bigint>, d struct<x:double,y:boolean>, absent variant"
NESTED = """
SELECT id, NAMED_STRUCT('v', PARSE_JSON(CONCAT('{"a":', id, '}'))) AS s,
    ARRAY(PARSE_JSON('[1]'), NULL, PARSE_JSON(CAST(id AS STRING))) AS l,
    MAP('x', PARSE_JSON('null'), 'y', CAST(NULL AS VARIANT)) AS m,
    IF(id = 1, NULL, NAMED_STRUCT('v', PARSE_JSON('"q"'))) AS gap
FROM RANGE(3)
"""
NESTED_SHREDDED = """
SELECT id, NAMED_STRUCT('v', PARSE_JSON(CONCAT('{"a":', id, ',"b":[]}'))) AS s FROM RANGE(3)
"""


def write(spark: SparkSession, name: str, frame: DataFrame, shredding: str = "") -> None:
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "true" if shredding else "false")
    spark.conf.set("spark.sql.variant.forceShreddingSchemaForTest", shredding)
    if "v" in frame.columns:
        frame = frame.selectExpr("*", "to_json(v) AS j")
    with tempfile.TemporaryDirectory() as directory:
        frame.coalesce(1).write.mode("overwrite").parquet(directory)
        shutil.copyfile(next(Path(directory).glob("*.parquet")), HERE / f"{name}.parquet")


def main() -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    rows = spark.createDataFrame(list(enumerate(DOCUMENTS)), "id INT, t STRING")
    documents = rows.selectExpr("id", "parse_json(t) AS v")
    write(spark, "documents", documents)
    write(spark, "documents_object", documents, OBJECT_SHREDDING)
    write(spark, "documents_array", documents, "array<struct<a:double,b:array<string>>>")
    write(spark, "documents_decimal", documents, "decimal(9,2)")
    write(spark, "documents_string", documents, "string")
    write(spark, "typed", spark.sql(TYPED))
    write(spark, "typed_object", spark.sql(TYPED), TYPED_SHREDDING)
    write(spark, "nested", spark.sql(NESTED))
    write(spark, "nested_object", spark.sql(NESTED_SHREDDED), "a bigint")
    spark.stop()


if __name__ == "__main__":
    main()
