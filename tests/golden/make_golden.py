"""Write the golden tables with Spark and delta-spark, and the rows that Spark itself reads from them.

    pip install pyspark==4.2.0 delta-spark==4.4.0
    python tests/golden/make_golden.py                 # all cases; ten minutes or so
    python tests/golden/make_golden.py primitives ...  # only these, for a case in the making

Needs Java 17 and the means to fetch `io.delta:delta-spark_4.2_2.13:4.4.0` (Spark does it by itself). What is
made lies in `tables/`, one directory a case: `table/`, `expected/v<version>.parquet`, `case.json`. File names
and ids are random, so that every run makes other bytes; the rows are the same.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

PYSPARK = "4.2.0"
DELTA = "4.4.0"
JAVA = "17"
ARTIFACT = f"io.delta:delta-spark_4.2_2.13:{DELTA}"

HERE = Path(__file__).resolve().parent
TABLES = HERE / "tables"
MODULES = [
    "types",
    "names",
    "partitions",
    "deletion_vectors",
    "mapping",
    "widening",
    "history",
    "checkpoints",
    "writer_features",
    "changes",
    "variants",
    "calendars",
    "statistics",
]

READER_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "variantType",
}

SETTINGS = {
    "spark.jars.packages": ARTIFACT,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # What is stored; Spark would pad char(n) columns as it reads them.
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}


def start_spark() -> Any:
    import pyspark
    from pyspark.sql import SparkSession

    if pyspark.__version__ != PYSPARK:
        sys.exit(f"this script is for pyspark {PYSPARK}; here is {pyspark.__version__}")
    builder = SparkSession.builder.master("local[1]").appName("golden")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    java = spark._jvm.java.lang.System.getProperty("java.version")
    if java.split(".")[0] != JAVA:
        sys.exit(f"this script is for Java {JAVA}; here is {java}")
    return spark


def make_case(spark: Any, case: Any, directory: Path) -> dict[str, Any]:
    """Write one case into an empty directory and return what stands in its `case.json`."""
    from writers.kit import GoldenTable

    table = GoldenTable(spark, directory / "table")
    case.write(table)
    tidy(table.path)
    latest = table.version()
    # Spark shall read what will lie in the repository, not what it remembers.
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    (directory / "expected").mkdir()
    versions = {}
    for version in sorted(table.versions | {latest}):
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(table.path))
        facts, state = write_expected(frame, case.key, directory / "expected" / f"v{version}.parquet"), {}
        if facts.pop("void"):
            state["void_columns"] = [f.name for f in frame.schema.fields if f.dataType.typeName() == "void"]
        versions[str(version)] = facts | state | (protocol_at(table.log, version) or latest_protocol(table))
    changes = []
    for first, last in table.changes:
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        frame = reader.option("startingVersion", first).option("endingVersion", last).load(str(table.path))
        # The time of a commit is that of its file, which a checkout changes.
        frame = frame.drop("_commit_timestamp")
        name = f"changes-{first}-{last}.parquet"
        facts = write_expected(
            frame, ("_commit_version", *case.key, "_change_type"), directory / "expected" / name
        )
        facts.pop("void")
        changes.append({"first": first, "last": last, "file": name} | facts)
    return {
        "about": case.about,
        "key": list(case.key),
        "latest": latest,
        "versions": versions,
        **({"changes": changes} if changes else {}),
        **table.notes,
    }


def write_expected(frame: Any, key: tuple[str, ...], target: Path) -> dict[str, Any]:
    """Write the rows that Spark reads to one Parquet file, ordered by the key."""
    from pyspark.sql import functions
    from writers.kit import comparable, quoted

    frame, void = comparable(frame)
    frame = frame.orderBy(*[functions.expr(quoted(name)) for name in key if name not in void])
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        spark = frame.sparkSession
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        try:
            frame.coalesce(1).write.option("compression", "zstd").parquet(str(out))
        finally:
            spark.conf.unset("spark.sql.parquet.outputTimestampType")
        (part,) = out.glob("part-*.parquet")
        shutil.copyfile(part, target)
        rows = spark.read.parquet(str(out)).count()
    return {"rows": rows, "void": void}


def protocol_at(log: Path, version: int) -> dict[str, Any]:
    """Return the protocol and the column mapping in force at a version, from the commits."""
    protocol: dict[str, Any] = {}
    configuration: dict[str, str] = {}
    for number in range(version + 1):
        commit = log / f"{number:020}.json"
        if commit.exists():
            for line in commit.read_text().splitlines():
                action = json.loads(line)
                protocol = action.get("protocol", protocol)
                configuration = action.get("metaData", {}).get("configuration", configuration)
    if not protocol:
        return {}
    return {
        "min_reader_version": protocol["minReaderVersion"],
        "reader_features": sorted(protocol.get("readerFeatures", [])),
        "writer_features": sorted(protocol.get("writerFeatures", [])),
        "column_mapping": configuration.get("delta.columnMapping.mode", "none"),
    }


def latest_protocol(table: Any) -> dict[str, Any]:
    """Return the same of the latest version, for a log whose first commits are gone."""
    detail = table.spark.sql(f"DESCRIBE DETAIL {table.name}").collect()[0]
    listed = set(detail.tableFeatures) if detail.minReaderVersion >= 3 else set()
    return {
        "min_reader_version": detail.minReaderVersion,
        "reader_features": sorted(listed & READER_FEATURES),
        "writer_features": sorted(listed) if detail.minWriterVersion >= 7 else [],
        "column_mapping": detail.properties.get("delta.columnMapping.mode", "none"),
    }


def tidy(table: Path) -> None:
    """Delete checksums, staging directories and data files that no commit names."""
    for path in [*table.rglob("*.crc"), *table.rglob("_SUCCESS")]:
        path.unlink()
    named = set()
    for commit in (table / "_delta_log").glob("*.json"):
        if commit.stem.isdigit():
            for line in commit.read_text().splitlines():
                for action in json.loads(line).values():
                    if isinstance(action, dict) and "path" in action:
                        named.add(unquote(action["path"]))
    whole = (table / "_delta_log" / f"{0:020}.json").exists()
    for path in table.rglob("*.parquet"):
        relative = str(path.relative_to(table))
        if whole and not relative.startswith("_delta_log") and relative not in named:
            path.unlink()
    for path in sorted(table.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def write_readme() -> None:
    """Write the tables of README.md from what lies in the repository."""
    versions = json.loads((HERE / "versions.json").read_text())
    lines = [
        "| " + " | ".join(versions) + " |",
        "|---" * len(versions) + "|",
        "| " + " | ".join(versions.values()) + " |",
    ]
    cases = ["| case | what it holds | versions compared | reader features |", "|---|---|---|---|"]
    for path in sorted(TABLES.glob("*/case.json")):
        facts = json.loads(path.read_text("utf-8"))
        last = facts["versions"][str(facts["latest"])]
        features = set(last.get("reader_features", []))
        if last.get("column_mapping", "none") != "none":
            features.add(f"columnMapping ({last['column_mapping']})")
            features.discard("columnMapping")
        compared = ", ".join(facts["versions"])
        if "changes" in facts:
            compared += "; changes " + ", ".join(f"{c['first']} to {c['last']}" for c in facts["changes"])
        cases.append(f"| `{path.parent.name}` | {facts['about']} | {compared} | {', '.join(sorted(features))} |")
    text = (HERE / "README.md").read_text("utf-8")
    for name, table in (("versions", lines), ("cases", cases)):
        before, rest = text.split(f"<!-- {name} -->\n")
        after = rest.split(f"<!-- /{name} -->")[1]
        text = f"{before}<!-- {name} -->\n" + "\n".join(table) + f"\n<!-- /{name} -->{after}"
    (HERE / "README.md").write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="names of cases; all without")
    parser.add_argument("--readme", action="store_true", help="only write the tables of README.md")
    arguments = parser.parse_args()
    if arguments.readme:
        write_readme()
        return
    chosen = arguments.cases
    sys.path.insert(0, str(HERE))
    spark = start_spark()
    from writers.kit import CASES

    for module in MODULES:
        importlib.import_module(f"writers.{module}")
    unknown = set(chosen) - CASES.keys()
    if unknown:
        sys.exit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    failed = []
    for case in CASES.values():
        if chosen and case.name not in chosen:
            continue
        began = time.monotonic()
        directory = TABLES / case.name
        # Not in place: a directory under a neutral name, because its path may stand in the log.
        scratch = Path(tempfile.gettempdir()) / "golden" / case.name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            facts = make_case(spark, case, scratch)
        except Exception as error:  # noqa: BLE001 - one case that fails shall not hide the others
            lines = str(error).splitlines()
            causes = [line for line in lines[1:] if line.startswith("Caused by")]
            print(f"FAILED {case.name}:", *lines[:3], *causes, sep="\n    ", flush=True)
            failed.append(case.name)
            continue
        (scratch / "case.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(scratch, directory)
        shutil.rmtree(scratch)
        print(f"{case.name}: {len(facts['versions'])} versions, {time.monotonic() - began:.1f} s", flush=True)
    if not chosen:
        for stale in TABLES.iterdir():
            if stale.name not in CASES:
                shutil.rmtree(stale)
    versions = {
        "pyspark": PYSPARK,
        "delta-spark": DELTA,
        "artifact": ARTIFACT,
        "java": spark._jvm.java.lang.System.getProperty("java.version"),
        "python": platform.python_version(),
    }
    (HERE / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")
    spark.stop()
    write_readme()
    if failed:
        sys.exit(f"{len(failed)} cases failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
