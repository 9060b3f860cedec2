"""The differences from other clients that are known: what it is, where it occurs, who is right and why.

`docs/differences.md` has the kinds as a table, which a test compares with this; `python known_differences.py`
prints it. The values that we are said to have right are those that Spark itself reads (`tests/golden`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of difference.

    Attributes:
        what: what happens.
        right: who is right.
        why: and why.
        where: the readers it occurs with, and the tables (`... changes` are a table's changes).
    """

    what: str
    right: str
    why: str
    where: dict[str, str]


_FEATURES = (
    "cdf_widening vacuumed variant_shredded_inferred variant_shredded_kinds variant_shredded_nested "
    "variant_shredded_object widening_dates widening_decimals widening_dv_mapping widening_evolved "
    "widening_integers widening_nested widening_partitions widening_to_decimal widening_to_double"
)

KINDS: dict[str, Kind] = {
    "integers as floats": Kind(
        "Integer columns with nulls become floats.",
        "we",
        "The column is one of integers; ours is `Int64` and the like, nested ones stay integers too.",
        {
            "parquet": "defaults nested parquet_legacy_format partition_order partition_types primitives "
            "retail.ops.sensor_readings schema_evolution special_names",
            "delta": "cdf_later defaults dv_partitioned_nested dv_update mapping_iceberg_compat mapping_id "
            "mapping_name mapping_upgraded parquet_legacy_format partition_order partition_types primitives "
            "retail.ops.sensor_readings schema_evolution special_names special_names_mapped stats_loose_bounds",
        },
    ),
    "integers rounded": Kind(
        "In such a column, integers beyond 2**53 become other numbers.",
        "we",
        "A float cannot hold them: 9223372036854775807 comes as 9223372036854775808.",
        {"parquet": "partition_types primitives", "delta": "partition_types primitives"},
    ),
    "null as NaN": Kind(
        "The nulls of such a column are NaN.",
        "we",
        "Ours are `NA`, or None in nested values.",
        {
            "parquet": "defaults nested parquet_legacy_format partition_order partition_types primitives "
            "retail.ops.sensor_readings",
            "delta": "cdf_later defaults dv_update mapping_iceberg_compat mapping_id mapping_id_partition_dv "
            "mapping_name mapping_name_partition_dv mapping_upgraded parquet_legacy_format partition_order "
            "partition_types primitives restored retail.ops.sensor_readings stats_loose_bounds",
        },
    ),
    "times without zone": Kind(
        "Times from partition values and from INT96 columns have no time zone.",
        "we",
        "`timestamp` is an instant, in whatever way a file holds it; ours are always in UTC.",
        {
            "parquet": "checkpoint_classic checkpoint_cleaned checkpoint_multipart checkpoint_struct_stats "
            "checkpoint_v2_json checkpoint_v2_parquet codecs generated legacy_recent "
            "legacy_timestamps_int96_utc nested old_timestamps_int96 partition_timestamps "
            "partition_timestamps_plain partition_types primitives timestamp_units",
        },
    ),
    "times wrapped": Kind(
        "Times before 1677 or after 2262, from INT96 columns or partition values, become other times.",
        "we",
        "64 bits of nanoseconds do not reach them: 9999-12-31 comes as 1816-03-30. Ours are microseconds.",
        {
            "parquet": "legacy_timestamps_int96_utc old_timestamps_int96 partition_types primitives",
            "delta": "primitives stats_times",
            "deltalake": "legacy_timestamps_int96_utc old_timestamps_int96 primitives stats_times",
        },
    ),
    "times as integers": Kind(
        "Such times in structs and maps come as integers.",
        "we",
        "They are times; the integers are nanoseconds, wrapped as above.",
        {"parquet": "legacy_timestamps_int96_utc old_timestamps_int96"},
    ),
    "other times": Kind(
        "Times that Spark wrote in the legacy calendar are days off.",
        "we",
        "The files say that they are in the Julian calendar; ours are rebased, as Spark does it.",
        {
            "parquet": "legacy_timestamps_int96_utc",
            "deltalake": "legacy_timestamps_int96_utc legacy_timestamps_int96_zones "
            "legacy_timestamps_micros_zones legacy_timestamps_millis legacy_timestamps_session_zone",
        },
    ),
    "other dates": Kind(
        "Dates that Spark wrote in the legacy calendar are days off.",
        "we",
        "As with times.",
        {"deltalake": "legacy_dates"},
    ),
    "struct fields": Kind(
        "A struct from a file older than one of its fields lacks that field.",
        "we",
        "The table's schema has the field; it is null there.",
        {"parquet": "schema_evolution"},
    ),
    "commit times as timestamps": Kind(
        "`_commit_timestamp` of changes is a time.",
        "both",
        'Ours are milliseconds, as in parquet format; `commit_timestamp="timestamp"` gives times.',
        {
            "delta": "cdf changes, cdf_dv changes, cdf_mapping changes, cdf_partitioned changes, "
            "retail.sales.orders changes"
        },
    ),
    "commit times cut": Kind(
        "`_commit_timestamp` is cut to seconds.",
        "we",
        "The server told milliseconds.",
        {
            "delta": "cdf changes, cdf_dv changes, cdf_mapping changes, cdf_partitioned changes, "
            "retail.sales.orders changes"
        },
    ),
    "only we refuse": Kind(
        "Nested times outside the years 1 to 9999 come as other times, where we refuse.",
        "we",
        'pandas has no object for them. `dtype_backend="pyarrow"` and Arrow have.',
        {"parquet": "legacy_timestamps_int96_zones"},
    ),
    "fails: feature": Kind(
        "Type widening, variants, V2 checkpoints, vacuumProtocolCheck: the table cannot be read.",
        "we",
        "We read them.",
        {
            "delta": f"{_FEATURES}, cdf_widening changes, checkpoint_v2_json checkpoint_v2_parquet "
            "many_writer_features variant variant_added variant_dv_mapping variant_nested variant_types",
            "deltalake": _FEATURES,
        },
    ),
    "fails: void": Kind(
        "A `void` column: the table cannot be read.",
        "we",
        "It is a column of nulls.",
        {"parquet": "void", "delta": "void"},
    ),
    "fails: nested times": Kind(
        "INT96 times within arrays: the table cannot be read.",
        "we",
        "They are times like others.",
        {"delta": "legacy_timestamps_int96_utc nested old_timestamps_int96 timestamp_units"},
    ),
    "fails: beyond Python": Kind(
        "Dates in the legacy calendar: the table cannot be read.",
        "we",
        "Only without rebasing do they lie before the year 1, where Python's dates begin.",
        {"parquet": "legacy_dates", "delta": "legacy_dates"},
    ),
    "fails: widened partition": Kind(
        "A partition column of decimals whose scale has grown: the table cannot be read.",
        "we",
        "Old partition values keep the digits that they were written with.",
        {"deltalake": "widening_partitions"},
    ),
    "fails: in-commit timestamps": Kind(
        "Changes of a table with in-commit timestamps cannot be read.",
        "we",
        "The client rebuilds a log from the answer, without the commit information that it then asks for.",
        {"delta": "cdf_row_tracking changes"},
    ),
    "fails: changed schema": Kind(
        "Changes over a new column cannot be read.",
        "we",
        "What was added is null in older rows.",
        {"delta": "cdf_later changes"},
    ),
}


def _subjects(text: str) -> set[str]:
    """Names between blanks, or between commas where they hold blanks."""
    parts = [part.strip() for part in text.split(",")]
    return {name for part in parts for name in ([part] if part.endswith(" changes") else part.split()) if name}


#: Tables by reader and kind.
KNOWN: dict[tuple[str, str], set[str]] = {
    (reader, kind): _subjects(text) for kind, told in KINDS.items() for reader, text in told.where.items()
}
_TITLES = {
    "parquet": "reference client, parquet format",
    "delta": "reference client, delta format",
    "deltalake": "deltalake",
}


def table() -> str:
    """The kinds as a Markdown table."""
    lines = ["| what the other does | which | who is right, and why |", "|---|---|---|"]
    for kind in KINDS.values():
        which = "; ".join(_TITLES[reader] for reader in kind.where)
        right = {"we": "We.", "both": "Both."}[kind.right]
        lines.append(f"| {kind.what} | {which} | {right} {kind.why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
