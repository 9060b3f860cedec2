"""Old times: in the proleptic calendar, and in the legacy hybrid calendar in several time zones."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_DAYS = [
    "0001-01-01",
    "0001-01-03",
    "0099-12-31",
    "0100-02-28",
    "0100-03-01",
    "0200-03-01",
    "0999-12-31",
    "1000-02-28",
    "1000-03-01",
    "1200-06-15",
    "1500-02-28",
    "1500-03-01",
    "1500-03-10",
    "1582-10-03",
    "1582-10-04",
    "1582-10-15",
    "1582-10-16",
    "1600-01-01",
    "1752-09-14",
    "1883-11-18",
    "1899-12-31",
    "1900-01-01",
    "1901-12-13",
    "1911-01-01",
    "1969-12-31",
    "1970-01-01",
    "2024-03-31",
]
_CLOCKS = ["00:00:00", "02:30:00.123456", "23:59:59.999999"]


def _rows(kind: str, first: int = 0) -> str:
    """One row for each of the days and times of day; the same again in nested columns."""
    moments = [(day, clock) for day in _DAYS for clock in (_CLOCKS if kind != "DATE" else _CLOCKS[:1])]
    literals = [f"{kind}'{day}'" if kind == "DATE" else f"{kind}'{day} {clock}'" for day, clock in moments]
    rows = [
        f"({first + n}, {value}, array({value}, NULL), named_struct('x', {value}), map({value}, {value}))"
        for n, value in enumerate(literals)
    ]
    return (
        "SELECT * FROM VALUES "
        + ", ".join([*rows, f"({first + 900}, NULL, NULL, NULL, NULL)"])
        + " AS t(id, v, a, s, m)"
    )


def _modes(mode: str, unit: str) -> dict[str, str]:
    return {
        "spark.sql.parquet.datetimeRebaseModeInWrite": mode,
        "spark.sql.parquet.int96RebaseModeInWrite": mode,
        "spark.sql.parquet.outputTimestampType": unit,
    }


def _columns(kind: str) -> str:
    return f"id INT, v {kind}, a ARRAY<{kind}>, s STRUCT<x: {kind}>, m MAP<{kind}, {kind}>"


@case("Dates back to the year 1, in the proleptic Gregorian calendar.")
def old_dates(t: GoldenTable) -> None:
    t.create(_columns("DATE"))
    t.append(_rows("DATE"))


@case("Times back to the year 1, in the proleptic Gregorian calendar, as TIMESTAMP_MICROS.")
def old_timestamps_micros(t: GoldenTable) -> None:
    t.create(_columns("TIMESTAMP"))
    with t.conf(_modes("CORRECTED", "TIMESTAMP_MICROS")):
        t.append(_rows("TIMESTAMP"))


@case("Times back to the year 1, in the proleptic Gregorian calendar, as INT96.")
def old_timestamps_int96(t: GoldenTable) -> None:
    t.create(_columns("TIMESTAMP"))
    with t.conf(_modes("CORRECTED", "INT96")):
        t.append(_rows("TIMESTAMP"))


@case("Wall-clock times back to the year 1; the legacy mode does not touch them.")
def old_timestamps_ntz(t: GoldenTable) -> None:
    t.create(_columns("TIMESTAMP_NTZ"))
    t.append(_rows("TIMESTAMP_NTZ"))
    with t.conf(_modes("LEGACY", "TIMESTAMP_MICROS")):
        t.append(_rows("TIMESTAMP_NTZ", 1000))


@case("Dates in the legacy calendar, and a file in the proleptic one beside it.")
def legacy_dates(t: GoldenTable) -> None:
    t.create(_columns("DATE"))
    with t.conf(_modes("LEGACY", "TIMESTAMP_MICROS")):
        t.append(_rows("DATE"))
    t.append(_rows("DATE", 1000))


def _legacy(t: GoldenTable, unit: str, zones: list[str], *, java_too: bool = True) -> None:
    t.create(_columns("TIMESTAMP"))
    for number, zone in enumerate(zones):
        with t.conf(_modes("LEGACY", unit)):
            if java_too:
                with t.zone(zone):
                    t.append(_rows("TIMESTAMP", 1000 * number))
            else:
                with t.conf({"spark.sql.session.timeZone": zone}):
                    t.append(_rows("TIMESTAMP", 1000 * number))
    if zones != ["UTC"]:
        t.note(beyond_python=True)


@case("Times in the legacy calendar as TIMESTAMP_MICROS, written in UTC and five other time zones.")
def legacy_timestamps_micros_zones(t: GoldenTable) -> None:
    _legacy(
        t,
        "TIMESTAMP_MICROS",
        ["UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Shanghai", "Asia/Kolkata", "Australia/Sydney"],
    )


@case("Times in the legacy calendar as TIMESTAMP_MILLIS, written in two time zones.")
def legacy_timestamps_millis(t: GoldenTable) -> None:
    _legacy(t, "TIMESTAMP_MILLIS", ["Europe/Amsterdam", "America/New_York"])


@case("Times in the legacy calendar as INT96, written in UTC.")
def legacy_timestamps_int96_utc(t: GoldenTable) -> None:
    _legacy(t, "INT96", ["UTC"])


@case("Times in the legacy calendar as INT96, written in four time zones.")
def legacy_timestamps_int96_zones(t: GoldenTable) -> None:
    _legacy(t, "INT96", ["America/Los_Angeles", "Europe/Berlin", "Asia/Shanghai", "Africa/Monrovia"])


@case("Times in the legacy calendar, the session's time zone (which the file names) not that of the machine.")
def legacy_timestamps_session_zone(t: GoldenTable) -> None:
    _legacy(t, "TIMESTAMP_MICROS", ["America/Los_Angeles", "+05:30"], java_too=False)


@case("A file in the legacy calendar with recent times only: nothing to rebase.")
def legacy_recent(t: GoldenTable) -> None:
    t.create("id INT, ts TIMESTAMP, dt DATE")
    with t.conf(_modes("LEGACY", "INT96")), t.zone("America/Los_Angeles"):
        t.insert(
            "(1, TIMESTAMP'2024-03-31 02:30:00', DATE'2024-03-31')",
            "(2, TIMESTAMP'1970-01-01 00:00:00', DATE'1900-01-01')",
        )
