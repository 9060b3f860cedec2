"""Known differences from other clients: what differs, for which client and tables, and an assessment.

`docs/migration.md` contains them as a table, which a test compares with this module;
`python known_differences.py` prints it. Values are called correct if Spark reads the same ones (`tests/golden`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownDifference:
    """A kind of difference.

    Attributes:
        difference: what the other client does.
        assessment: which client is correct, and the reason.
        subjects: the tables by reader; `<table> changes` means the changes of a table. Blanks separate names, and
            commas separate names with blanks.
    """

    difference: str
    assessment: str
    subjects: dict[str, str]


_TABLES_WITH_FEATURES = (
    "cdf_widening vacuumed variant_shredded_inferred variant_shredded_kinds variant_shredded_nested "
    "variant_shredded_object widening_dates widening_decimals widening_dv_mapping widening_evolved "
    "widening_integers widening_nested widening_partitions widening_to_decimal widening_to_double"
)

DIFFERENCES: dict[str, KnownDifference] = {
    "integers as floats": KnownDifference(
        "Integer columns with nulls are returned as floats.",
        "Correct here: they have the dtype `Int64` (`Int32`, ...), and nested integers stay integers.",
        {
            "parquet": "defaults nested parquet_legacy_format partition_order partition_types primitives "
            "retail.ops.sensor_readings schema_evolution special_names",
            "delta": "cdf_later defaults dv_partitioned_nested dv_update mapping_iceberg_compat mapping_id "
            "mapping_name mapping_upgraded parquet_legacy_format partition_order partition_types primitives "
            "retail.ops.sensor_readings schema_evolution special_names special_names_mapped stats_loose_bounds",
        },
    ),
    "integers rounded": KnownDifference(
        "In such columns, integers beyond 2**53 are rounded.",
        "Correct here: floats cannot represent them; 9223372036854775807 becomes 9223372036854775808.",
        {"parquet": "partition_types primitives", "delta": "partition_types primitives"},
    ),
    "null as NaN": KnownDifference(
        "The nulls of such columns are NaN.",
        "Correct here: nulls are `NA`, or None in nested values.",
        {
            "parquet": "defaults nested parquet_legacy_format partition_order partition_types primitives "
            "retail.ops.sensor_readings",
            "delta": "cdf_later defaults dv_update mapping_iceberg_compat mapping_id mapping_id_partition_dv "
            "mapping_name mapping_name_partition_dv mapping_upgraded parquet_legacy_format partition_order "
            "partition_types primitives restored retail.ops.sensor_readings stats_loose_bounds",
        },
    ),
    "timestamps without time zone": KnownDifference(
        "Timestamps from partition values and INT96 columns have no time zone.",
        "Correct here: `timestamp` is an instant however a file stores it; timestamps are always in UTC.",
        {
            "parquet": "checkpoint_classic checkpoint_cleaned checkpoint_multipart checkpoint_struct_stats "
            "checkpoint_v2_json checkpoint_v2_parquet codecs generated legacy_recent "
            "legacy_timestamps_int96_utc nested old_timestamps_int96 partition_timestamps "
            "partition_timestamps_plain partition_types primitives timestamp_units",
        },
    ),
    "timestamp overflow": KnownDifference(
        "Timestamps before 1677 or after 2262, from INT96 columns or partition values, overflow.",
        "Correct here: values are microseconds. As 64-bit nanoseconds, 9999-12-31 becomes 1816-03-30.",
        {
            "parquet": "legacy_timestamps_int96_utc old_timestamps_int96 partition_types primitives",
            "delta": "primitives stats_times",
            "deltalake": "legacy_timestamps_int96_utc old_timestamps_int96 primitives stats_times",
        },
    ),
    "timestamps as integers": KnownDifference(
        "Such timestamps in structs and maps are returned as integers.",
        "Correct here: they are timestamps. The integers are nanoseconds, with the overflow above.",
        {"parquet": "legacy_timestamps_int96_utc old_timestamps_int96"},
    ),
    "different timestamps": KnownDifference(
        "Timestamps that Spark wrote in the legacy calendar are wrong by days.",
        "Correct here: the files declare the Julian calendar, and the values are rebased as in Spark.",
        {
            "parquet": "legacy_timestamps_int96_utc",
            "deltalake": "legacy_timestamps_int96_utc legacy_timestamps_int96_zones "
            "legacy_timestamps_micros_zones legacy_timestamps_millis legacy_timestamps_session_zone",
        },
    ),
    "different dates": KnownDifference(
        "Dates that Spark wrote in the legacy calendar are wrong by days.",
        "Correct here, as for timestamps.",
        {"deltalake": "legacy_dates"},
    ),
    "missing struct fields": KnownDifference(
        "A struct from a file that is older than one of its fields lacks that field.",
        "Correct here: the table's schema has the field, and its value is null.",
        {"parquet": "schema_evolution"},
    ),
    "commit timestamps as timestamps": KnownDifference(
        "`_commit_timestamp` of changes is a timestamp.",
        'Both valid: milliseconds here, as in parquet format; `commit_timestamp="timestamp"` is available.',
        {
            "delta": "cdf changes, cdf_dv changes, cdf_mapping changes, cdf_partitioned changes, "
            "retail.sales.orders changes"
        },
    ),
    "commit timestamps truncated": KnownDifference(
        "`_commit_timestamp` is truncated to seconds.",
        "Correct here: the server sends milliseconds.",
        {
            "delta": "cdf changes, cdf_dv changes, cdf_mapping changes, cdf_partitioned changes, "
            "retail.sales.orders changes"
        },
    ),
    "error here only": KnownDifference(
        "Nested timestamps outside the years 1 to 9999 are wrong; this package raises an error.",
        'Correct here: pandas has no object for them. `dtype_backend="pyarrow"` and Arrow represent them.',
        {"parquet": "legacy_timestamps_int96_zones"},
    ),
    "error: table feature": KnownDifference(
        "Tables with type widening, variants, V2 checkpoints or vacuumProtocolCheck cannot be read.",
        "Correct here: these features are supported.",
        {
            "delta": f"{_TABLES_WITH_FEATURES}, cdf_widening changes, checkpoint_v2_json checkpoint_v2_parquet "
            "many_writer_features variant variant_added variant_dv_mapping variant_nested variant_types",
            "deltalake": _TABLES_WITH_FEATURES,
        },
    ),
    "error: void": KnownDifference(
        "Tables with a `void` column cannot be read.",
        "Correct here: the column contains nulls.",
        {"parquet": "void", "delta": "void"},
    ),
    "error: nested timestamps": KnownDifference(
        "Tables with INT96 timestamps in arrays cannot be read.",
        "Correct here: they are read as other timestamps are.",
        {"delta": "legacy_timestamps_int96_utc nested old_timestamps_int96 timestamp_units"},
    ),
    "error: date out of range": KnownDifference(
        "Tables with dates in the legacy calendar cannot be read.",
        "Correct here: after rebasing, the dates are not before the year 1, where the dates of Python begin.",
        {"parquet": "legacy_dates", "delta": "legacy_dates"},
    ),
    "error: widened partition": KnownDifference(
        "Tables with a decimal partition column of increased scale cannot be read.",
        "Correct here: partition values keep the scale with which they were written.",
        {"deltalake": "widening_partitions"},
    ),
    "error: in-commit timestamps": KnownDifference(
        "Changes of a table with in-commit timestamps cannot be read.",
        "Correct here: the other client builds a log without the commit information that it then needs.",
        {"delta": "cdf_row_tracking changes"},
    ),
    "error: changed schema": KnownDifference(
        "Changes of versions before and after a column was added cannot be read.",
        "Correct here: the added column is null in older rows.",
        {"delta": "cdf_later changes"},
    ),
}


def _names(text: str) -> set[str]:
    parts = [part.strip() for part in text.split(",")]
    return {name for part in parts for name in ([part] if part.endswith(" changes") else part.split()) if name}


#: Subjects by reader and kind of difference.
KNOWN: dict[tuple[str, str], set[str]] = {
    (reader, kind): _names(text) for kind, known in DIFFERENCES.items() for reader, text in known.subjects.items()
}
_CLIENTS = {
    "parquet": "official client, parquet format",
    "delta": "official client, delta format",
    "deltalake": "deltalake",
}


def markdown_table() -> str:
    """Return the known differences as a Markdown table."""
    lines = ["| difference | client | assessment |", "|---|---|---|"]
    for known in DIFFERENCES.values():
        clients = "; ".join(_CLIENTS[reader] for reader in known.subjects)
        lines.append(f"| {known.difference} | {clients} | {known.assessment} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")
