"""Files in Spark's legacy calendar: rebased as Spark does, or refused."""

import io
import json
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.errors import UnsupportedTableError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.statistics import parse_stats
from delta_sharing_client.model.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.legacy_calendar import (
    LegacyCalendar,
    Zone,
    find_zone,
    gregorian_days,
    gregorian_times,
)
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.secrets import SecretUrl

GOLDEN = Path(__file__).parent / "golden_legacy"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
DATE, TIMESTAMP, NTZ, INTEGER = map(PrimitiveType, ("date", "timestamp", "timestamp_ntz", "integer"))

VERSION = "org.apache.spark.version"
ZONE = "org.apache.spark.timeZone"
ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
TIMES, INT96 = "org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"

DAY = 86_400
MICRO = 1_000_000
#: 1582-10-15 and 1900-01-01.
GREGORIAN, HISTORY = -141_427, -25_567 * DAY * MICRO


def struct(**fields):
    return StructType(tuple(StructField(name, kind) for name, kind in fields.items()))


GOLDEN_SCHEMA = struct(
    n=INTEGER,
    d=DATE,
    t=TIMESTAMP,
    s=struct(d=DATE, x=INTEGER, t=TIMESTAMP),
    l=ArrayType(struct(t=TIMESTAMP, d=DATE)),
    m=MapType(DATE, ArrayType(TIMESTAMP)),
    ntz=NTZ,
)


def table_of(data, schema, filters=None):
    predicate = bind_filters(filters, schema) if filters else None
    task = FileScanTask(url=SecretUrl(""), file_id="f1", size=len(data), all_rows_match=predicate is None)
    with ParquetSource(data, task, ReadSpec(output=schema, predicate=predicate)) as source:
        batches = [
            batch
            for piece in source.read_units(unit_size=1)
            for decoded in source.decode(piece)
            for batch in decoded.batches
        ]
    return pa.Table.from_batches(batches, arrow_schema(schema)).combine_chunks()


def numbers(array):
    return array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64()).to_pylist()


def parquet(table, metadata, **options):
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink, **options)
    return sink.getvalue()


class TestGolden:
    """What Spark wrote, as Spark reads it."""

    @pytest.mark.parametrize("name", EXPECTED)
    def test_is_read_as_spark_reads_it(self, name):
        table = table_of((GOLDEN / f"{name}.parquet").read_bytes(), GOLDEN_SCHEMA)
        days, times = numbers(table["d"]), numbers(table["t"])
        assert table["n"].to_pylist() == list(range(len(days)))
        assert days == EXPECTED[name]["d"]
        assert times == EXPECTED[name]["t"]
        [inner] = table["s"].chunks
        assert (numbers(inner.field("d")), numbers(inner.field("t"))) == (days, times)
        [lists] = table["l"].chunks
        assert [length is None for length in lists.value_lengths().to_pylist()] == [n % 3 == 0 for n in range(46)]
        assert numbers(lists.values.field("t"))[::2] == [t for n, t in enumerate(times) if n % 3]
        assert numbers(lists.values.field("d"))[::2] == [d for n, d in enumerate(days) if n % 3]
        [maps] = table["m"].chunks
        assert numbers(maps.keys)[::2] == days
        assert numbers(maps.items.values)[::2] == times
        assert table["ntz"].to_pylist() == [datetime(1, 1, 1)] * 46

    def test_what_the_files_hold_is_not_what_they_mean(self):
        """Otherwise the test above would prove nothing."""
        for name, expected in EXPECTED.items():
            stored = pq.read_table(
                GOLDEN / f"{name}.parquet", columns=["d", "t"], coerce_int96_timestamp_unit="us"
            ).combine_chunks()
            assert numbers(stored["d"]) != expected["d"]
            assert numbers(stored["t"].cast(pa.timestamp("us"))) != expected["t"]

    @pytest.mark.parametrize("name", ["utc_micros", "los_angeles_int96"])
    @pytest.mark.parametrize("op", ["=", "<", ">=", "!="])
    def test_filters_see_the_rebased_values(self, name, op):
        data = (GOLDEN / f"{name}.parquet").read_bytes()
        schema = struct(n=INTEGER, d=DATE, t=TIMESTAMP)
        everything = list(zip(EXPECTED[name]["d"], EXPECTED[name]["t"], strict=True))
        for day, time in everything[2:12]:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
            found = table_of(data, schema, [("t", op, moment)])
            assert numbers(found["t"]) == [t for _, t in everything if compare(op, t, time)]
            found = table_of(data, schema, [("d", op, date(1970, 1, 1) + timedelta(day))])
            assert numbers(found["d"]) == [d for d, _ in everything if compare(op, d, day)]


def compare(op, left, right):
    return {"=": left == right, "!=": left != right, "<": left < right, ">=": left >= right}[op]


def julian_day(year, month, day):
    """Days since 1970-01-01 of a date of the Julian calendar, by counting."""
    lengths = [31, 29 if year % 4 == 0 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return (year - 1) * 365 + (year - 1) // 4 + sum(lengths[: month - 1]) + day - 1 - 719_164


class TestDays:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (julian_day(1582, 10, 4), date(1582, 10, 4)),
            (julian_day(1582, 10, 4) + 1, date(1582, 10, 15)),
            (julian_day(1500, 2, 28), date(1500, 2, 28)),
            (julian_day(1500, 2, 29), date(1500, 3, 1)),
            (julian_day(1500, 3, 1), date(1500, 3, 1)),
            (julian_day(1600, 1, 1) - 10, date(1600, 1, 1)),
            (julian_day(4, 2, 29), date(4, 2, 29)),
            (julian_day(1, 1, 1), date(1, 1, 1)),
            (0, date(1970, 1, 1)),
            (2_932_896, date(9999, 12, 31)),
        ],
        ids=str,
    )
    def test_examples(self, before, after):
        [day] = gregorian_days(np.array([before])).tolist()
        assert day == (after - date(1970, 1, 1)).days

    def test_every_date_of_the_julian_calendar(self):
        last = julian_day(1582, 10, 4)
        days = gregorian_days(np.arange(julian_day(1, 1, 1), last + 1))
        expected = []
        for year in range(1, 1583):
            for month in range(1, 13):
                for day in range(1, 32):
                    if (year, month, day) > (1582, 10, 4):
                        continue
                    leap = 29 if year % 4 == 0 else 28
                    if day > [31, leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]:
                        continue
                    expected.append(date(year, month, 1).toordinal() + day - 1 - 719_163)
        assert days.tolist() == expected

    def test_before_our_era(self):
        """The year 0 is the one before 1 in both calendars, and 29 February of -100 is 1 March."""
        assert gregorian_days(np.array([julian_day(1, 1, 1) - 1])).tolist() == [-719_163]
        before, leap, after = gregorian_days(np.array([-755_997, -755_996, -755_995])).tolist()
        assert before + 1 == leap == after

    def test_present_times_are_not_rebased(self):
        days = np.arange(GREGORIAN, 20_000)
        assert (gregorian_days(days) == days).all()


class TestTimes:
    @settings(max_examples=examples(200))
    @given(
        st.datetimes(datetime(1, 1, 2), datetime(1899, 12, 30)),  # Python has no time an hour before the year 1
        st.sampled_from(["UTC", "America/New_York", "Europe/Paris", "Asia/Tokyo", "Australia/Sydney"]),
    )
    def test_rebased_times_keep_the_wall_clock_time(self, wall, name):
        """Java's old zones take today's standard time before 1900; the wall's instant is the zone's own."""
        zone = find_zone(name)
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        days = julian_day(wall.year, wall.month, wall.day) if wall < datetime(1582, 10, 5) else None
        if days is None:
            if wall < datetime(1582, 10, 15):
                return
            days = (wall.date() - date(1970, 1, 1)).days
        stored = days * DAY * MICRO + (wall - midnight) // timedelta(microseconds=1) - zone.standard * MICRO
        [got] = gregorian_times(np.array([stored]), zone, MICRO).tolist()
        local = wall.replace(tzinfo=ZoneInfo(name))
        if (local + timedelta(hours=1)).utcoffset() != (local - timedelta(hours=1)).utcoffset():
            return  # about a change of local time; the golden files have those
        assert got == (local.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def test_units(self):
        seconds = np.array([-62_135_769_600, -12_219_292_801, -3_000_000_000, HISTORY // MICRO, 0])
        zone = find_zone("America/Los_Angeles")
        expected = gregorian_times(seconds, zone, 1)
        for unit in (1_000, MICRO):
            assert (gregorian_times(seconds * unit, zone, unit) == expected * unit).all()

    def test_overlaps_and_gaps_of_local_time(self):
        """Clocks in Los Angeles went back at noon of 18 November 1883, by 7 minutes and 2 seconds."""
        zone = find_zone("America/Los_Angeles")
        noon = -2_717_640_000
        times = np.array([noon - 1, noon, noon + 1])
        assert gregorian_times(times, zone, 1).tolist() == [noon - 1 - 422, noon, noon + 1]

    @pytest.mark.parametrize("name", ["UTC", "Asia/Kolkata", "Pacific/Apia"])
    def test_from_1900_on_nothing_changes(self, name):
        times = np.array([HISTORY, HISTORY + 1, 0, 2**62])
        assert (gregorian_times(times, find_zone(name), MICRO) == times).all()

    def test_extreme_times_do_not_overflow(self):
        extremes = np.array([-(2**63), -(2**63) + 1])
        for name in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
            after = gregorian_times(extremes, find_zone(name), MICRO)
            assert (after > extremes).all()
            assert (after < HISTORY).all()


class TestZones:
    def test_offsets(self):
        assert find_zone("GMT+8") == Zone(28_800, 28_800)
        assert find_zone("GMT+08:30") == find_zone("GMT+0830") == Zone(30_600, 30_600)
        assert find_zone("GMT-3") == Zone(-10_800, -10_800)
        # What Java's old time zones do not know is GMT to them, for the writer as for Spark's reader.
        for name in ("+05:30", "-08:00", "+8", "UTC+5", "UTC+05:30", "Z", "UTC", "GMT", "Etc/UTC", "+01:02:03"):
            assert find_zone(name) == Zone(0, 0), name

    @pytest.mark.parametrize(
        "name", ["", "Mars/Olympus", "GMT+24", "GMT+1:60", "utc+5", "America/los_angeles", "#"]
    )
    def test_unknown(self, name):
        assert find_zone(name) is None

    def test_short_names_of_java(self):
        assert find_zone("PST") == find_zone("America/Los_Angeles")
        assert find_zone("IST") == find_zone("Asia/Kolkata")
        assert find_zone("EST") == Zone(-18_000, -18_000)

    @pytest.mark.parametrize(
        "name",
        ["America/Los_Angeles", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Asia/Tokyo",
         "Australia/Sydney", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Africa/Casablanca", "UTC"],
    )  # fmt: skip
    def test_the_table_is_what_the_system_says(self, name):
        """For zones whose history and builds agree; `golden_legacy/zones.py` makes the table the same way."""
        sys.path.append(str(GOLDEN))
        try:
            from zones import history
        finally:
            sys.path.remove(str(GOLDEN))
        zone = find_zone(name)
        assert history(ZoneInfo(name)) == (zone.standard, zone.first, zone.changes)


class TestFlags:
    @pytest.mark.parametrize(
        ("metadata", "expected"),
        [
            (None, None),
            ({}, None),
            ({"writer": "other"}, None),
            ({VERSION: "3.5.1", ROW_METADATA: "{}", ZONE: "UTC"}, None),
            ({VERSION: "3.1.0"}, None),
            ({VERSION: "10.0.0"}, None),
            ({VERSION: "3.0.3"}, ("no", "yes", None)),
            ({VERSION: "2.4.8", ROW_METADATA: "{}"}, ("yes", "yes", None)),
            ({VERSION: "3.5.1", TIMES: "", ZONE: "Asia/Kolkata"}, ("yes", "no", "Asia/Kolkata")),
            ({VERSION: "3.5.1", INT96: "", ZONE: "UTC"}, ("no", "yes", "UTC")),
            ({VERSION: "4.2.0", TIMES: "", INT96: "", ZONE: "UTC"}, ("yes", "yes", "UTC")),
            ({TIMES: ""}, ("yes", "no", None)),
            ({ROW_METADATA: "{}"}, ("maybe", "maybe", None)),
            ({ROW_METADATA: "{}", INT96: ""}, ("maybe", "yes", None)),
            ({VERSION: "unknown"}, ("maybe", "maybe", None)),
        ],
        ids=str,
    )
    def test_the_calendar_follows_from_the_footer(self, metadata, expected):
        known = None if metadata is None else {k.encode(): v.encode() for k, v in metadata.items()}
        calendar = LegacyCalendar.of(known)
        assert calendar == (None if expected is None else LegacyCalendar(*expected))


#: The year 1, 1582-10-14 and 1899-12-31 on the wall of UTC; what is legacy of them differs.
OLD_DAYS = [None, julian_day(1, 1, 1), GREGORIAN - 1, GREGORIAN]
OLD_TIMES = [None, -62_135_769_600 * MICRO, HISTORY - 1, HISTORY]


def old_table(instants):
    times = pa.array(OLD_TIMES, pa.int64())
    return pa.table(
        {
            "d": pa.array(OLD_DAYS, pa.int32()).cast(pa.date32()),
            "t": times.cast(pa.timestamp("us", tz="UTC") if instants == "INT64" else pa.timestamp("us")),
        }
    )


class TestFiles:
    @pytest.mark.parametrize("instants", ["INT64", "INT96"])
    @pytest.mark.parametrize(
        ("metadata", "dates", "int64", "int96"),
        [
            ({}, False, False, False),
            ({VERSION: "3.5.1", ZONE: "UTC"}, False, False, False),
            ({VERSION: "2.4.6", ZONE: "UTC"}, True, True, True),
            ({VERSION: "3.0.1", ZONE: "UTC"}, False, False, True),
            ({VERSION: "3.5.1", TIMES: "", ZONE: "UTC"}, True, True, False),
            ({VERSION: "3.5.1", INT96: "", ZONE: "UTC"}, False, False, True),
        ],
        ids=str,
    )
    def test_each_kind_has_its_flag(self, metadata, dates, int64, int96, instants):
        data = parquet(old_table(instants), metadata, use_deprecated_int96_timestamps=instants == "INT96")
        table = table_of(data, struct(d=DATE, t=TIMESTAMP))
        rebased = gregorian_days(np.array(OLD_DAYS[1:])).tolist()
        assert numbers(table["d"]) == [None, *(rebased if dates else OLD_DAYS[1:])]
        rebased = gregorian_times(np.array(OLD_TIMES[1:]), Zone(0, 0), MICRO).tolist()
        legacy = int64 if instants == "INT64" else int96
        assert numbers(table["t"]) == [None, *(rebased if legacy else OLD_TIMES[1:])]

    @pytest.mark.parametrize("zone", [{}, {ZONE: "Mars/Olympus"}], ids=["absent", "unknown"])
    def test_a_zone_is_needed_for_instants_alone(self, zone):
        data = parquet(old_table("INT64"), {VERSION: "2.4.8", **zone})
        assert numbers(table_of(data, struct(d=DATE))["d"])[1] == -719_162
        with pytest.raises(UnsupportedTableError, match="file f1: column 't' holds times from before 1900"):
            table_of(data, struct(t=TIMESTAMP))

    def test_a_zone_is_needed_for_old_instants_alone(self):
        times = pa.array([None, HISTORY, 0]).cast(pa.timestamp("us", tz="UTC"))
        data = parquet(pa.table({"t": times}), {VERSION: "2.4.8"})
        assert numbers(table_of(data, struct(t=TIMESTAMP))["t"]) == [None, HISTORY, 0]

    def test_old_times_without_calendar_metadata_raise(self):
        data = parquet(old_table("INT64"), {ROW_METADATA: "{}"})
        with pytest.raises(UnsupportedTableError, match=r"'d' holds times from before 1582-10-15, and the file"):
            table_of(data, struct(d=DATE))
        with pytest.raises(UnsupportedTableError, match=r"columns=\[...\]"):
            table_of(data, struct(t=TIMESTAMP))
        recent = old_table("INT64").slice(3)
        assert table_of(parquet(recent, {ROW_METADATA: "{}"}), struct(d=DATE, t=TIMESTAMP)).num_rows == 1

    def test_old_dates_widened_to_wall_clocks_are_rebased_first(self):
        data = parquet(old_table("INT64"), {VERSION: "2.4.8"})
        table = table_of(data, struct(d=NTZ))
        assert table["d"].to_pylist()[:2] == [None, datetime(1, 1, 1)]

    def test_statistics_of_such_times_are_in_todays_calendar(self):
        """As Delta Lake wrote them for a session in Los Angeles: local mean time has seconds in its offset."""
        stats = parse_stats(
            '{"numRecords":1,"minValues":{"d":"0001-01-01","t":"0001-01-01T00:00:00.000-07:52:58"},'
            '"maxValues":{"d":"1582-10-04","t":"1850-01-01T00:00:00.000-07:52:58"},"nullCount":{"d":0,"t":0}}'
        )
        times = stats.bounds("t", TIMESTAMP)
        assert (times.lower, times.upper) == (-62_135_568_422_000_000 - 1_000, -3_786_797_222_000_000 + 1_000)
        days = stats.bounds("d", DATE)
        assert (days.lower, days.upper) == (None, date(1582, 10, 4))  # the first date stands for all before it

    def test_columns_without_times_are_not_rebased(self):
        table = pa.table({"x": pa.array([[1, None], None], pa.list_(pa.int32())), "s": pa.array(["a", None])})
        schema = struct(x=ArrayType(INTEGER), s=PrimitiveType("string"))
        got = table_of(parquet(table, {VERSION: "2.4.8"}), schema)
        assert got.to_pydict() == table.to_pydict()

    def test_only_nulls(self):
        table = pa.table({"d": pa.array([None, None], pa.date32())})
        assert table_of(parquet(table, {VERSION: "2.4.8"}), struct(d=DATE))["d"].null_count == 2

    @settings(max_examples=examples(25), deadline=None)
    @given(st.lists(st.integers(-800_000, -100_000), min_size=1, max_size=40), st.integers(1, 7))
    def test_row_groups_are_never_pruned_by_legacy_bounds(self, days, size):
        data = parquet(
            pa.table({"d": pa.array(days, pa.int32()).cast(pa.date32())}),
            {VERSION: "3.5.1", TIMES: ""},
            row_group_size=size,
        )
        meant = gregorian_days(np.array(days)).tolist()
        for day in meant[:3]:
            if day < -719_162:
                continue
            found = table_of(data, struct(d=DATE), [("d", "<=", date(1970, 1, 1) + timedelta(day))])
            assert numbers(found["d"]) == [d for d in meant if d <= day]

    def test_slices_of_nested_columns(self):
        """Arrays that begin inside their buffers, as pieces of a file may."""
        kind = pa.struct(
            [("d", pa.date32()), ("l", pa.list_(pa.date32())), ("m", pa.map_(pa.int32(), pa.date32()))]
        )
        day = date(1500, 2, 28)
        rows = [{"d": day, "l": [day, None], "m": [(n, day)]} if n % 3 else None for n in range(20)]
        calendar = LegacyCalendar("yes", "yes", "UTC")
        array = pa.array(rows, kind)
        leaves = ["INT32"] * 4
        whole = calendar.rebase(pa.chunked_array([array]), leaves, "x").to_pylist()
        cut = calendar.rebase(pa.chunked_array([array.slice(7, 9), array.slice(1, 2)]), leaves, "x").to_pylist()
        assert cut == whole[7:16] + whole[1:3]
        assert whole[1]["d"] == date(1500, 2, 19)
        assert whole[1] == {"d": date(1500, 2, 19), "l": [date(1500, 2, 19), None], "m": [(1, date(1500, 2, 19))]}
        lists = pa.array([[day], None, [], [day, day]], pa.list_(pa.date32())).slice(2, 2)
        got = calendar.rebase(pa.chunked_array([lists]), ["INT32"], "x").to_pylist()
        assert got == [[], [date(1500, 2, 19)] * 2]
