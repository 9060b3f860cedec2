"""Compute `delta_sharing_client/parquet/legacy_zones.txt` from the tz database.

    python zones.py DIRECTORY > legacy_zones.txt

DIRECTORY holds compiled time zones, such as `tzdata/zoneinfo` of the package tzdata. The file in the package
comes from tzdata 2022.2 (release 2022b): the time zones that Spark 3 and 4 rebase with are of that age.
"""

import sys
import zoneinfo
from collections import defaultdict
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Where Java's old time zones begin to know of history: 1900-01-01 UTC.
HISTORY = -2_208_988_800

#: What Java calls zones beside their names in the tz database (`java.time.ZoneId.SHORT_IDS`).
SHORT = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


def offset(zone, second):
    return int((EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset().total_seconds())


def standard_offset(zone, year):
    """Today's standard time: the least offset of a year."""
    start = int((datetime(year, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
    return min(offset(zone, start + week * 7 * 86_400) for week in range(53))


def history(zone, year=2023):
    """Today's standard offset, the first offset, and the changes before 1900 as (instant, offset)."""
    start = int((datetime(1800, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
    first = now = offset(zone, start)
    changes = []
    for before in range(start, HISTORY, 10 * 86_400):
        after = min(before + 10 * 86_400, HISTORY)
        following = offset(zone, after)
        if following != now:
            low, high = before, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(zone, middle) == now else (low, middle)
            changes.append((high, following))
            now = following
    return standard_offset(zone, year), first, tuple(change for change in changes if change[0] < HISTORY)


def main(directory):
    zoneinfo.reset_tzpath([directory])
    sys.modules["tzdata"] = None
    names = defaultdict(list)
    for name in sorted(zoneinfo.available_timezones()):
        names[history(zoneinfo.ZoneInfo(name))].append(name)
    for short, name in SHORT.items():
        next(group for group in names.values() if name in group).append(short)
    print("# Offsets from UTC before 1900, in seconds, from the tz database 2022b, which is in the public domain.")
    print("# Standard offset in 2023, first offset, then pairs of an instant and the offset from it on: names.")
    for (standard, first, changes), group in sorted(names.items(), key=lambda item: item[1]):
        numbers = [standard, first, *(number for change in changes for number in change)]
        print(*numbers, end=": ")
        print(*group)


if __name__ == "__main__":
    main(sys.argv[1])
