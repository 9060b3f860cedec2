"""Bodies and query strings of requests."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, check_version, format_timestamp

SECRET = "s3cr3tS1gn4tur3"


class TestQuery:
    def test_a_request_without_options_has_an_empty_body(self):
        assert QueryRequest().body() == {}

    def test_everything(self):
        request = QueryRequest(
            predicate_hints=("a = 1", "b > 2"),
            json_predicate_hints='{"op":"x"}',
            limit_hint=0,
            version=0,
            max_files=10,
            include_refresh_token=True,
            refresh_token="r",
        )
        assert request.body() == {
            "predicateHints": ["a = 1", "b > 2"],
            "jsonPredicateHints": '{"op":"x"}',
            "limitHint": 0,
            "version": 0,
            "maxFiles": 10,
            "includeRefreshToken": True,
            "refreshToken": "r",
        }
        assert QueryRequest(timestamp="2024-01-31").body() == {"timestamp": "2024-01-31T00:00:00Z"}
        assert request.without_hints().body() == {
            "version": 0,
            "maxFiles": 10,
            "includeRefreshToken": True,
            "refreshToken": "r",
        }

    def test_following_pages_carry_no_refresh_token(self):
        request = QueryRequest(include_refresh_token=True, refresh_token="r")
        assert request.page("p").body() == {"pageToken": "p"}

    def test_version_and_timestamp_exclude_each_other(self):
        with pytest.raises(ValueError, match="version and timestamp"):
            QueryRequest(version=1, timestamp="t")

    def test_repr_shows_no_token(self):
        assert SECRET not in repr(QueryRequest(page_token=SECRET, refresh_token=SECRET))
        assert SECRET not in repr(ChangesRequest(starting_version=1, page_token=SECRET))


class TestChanges:
    def test_params_are_text(self):
        request = ChangesRequest(
            starting_version=0, ending_version=5, include_historical_metadata=True, max_files=7, page_token="p"
        )
        assert request.params() == {
            "startingVersion": "0",
            "endingVersion": "5",
            "maxFiles": "7",
            "pageToken": "p",
            "includeHistoricalMetadata": "true",
        }
        first, last = "2024-01-31T00:00:00Z", "2024-02-01T12:00:00Z"
        assert ChangesRequest(starting_timestamp=first, ending_timestamp=last).params() == {
            "startingTimestamp": first,
            "endingTimestamp": last,
        }

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"starting_version": 1, "starting_timestamp": "t"},
            {"starting_version": 1, "ending_version": 1, "ending_timestamp": "t"},
            {"ending_version": 1},
        ],
    )
    def test_bounds_that_contradict(self, arguments):
        with pytest.raises(ValueError, match="give"):
            ChangesRequest(**arguments)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("2024-01-01", "2024-01-01T00:00:00Z"),
        ("2024-01-01 12:30:00.25", "2024-01-01T12:30:00.250000Z"),
        ("2024-01-01T00:00:00+02:00", "2023-12-31T22:00:00Z"),
        (datetime(2024, 1, 2, 3, 4, 5), "2024-01-02T03:04:05Z"),
        (datetime(2024, 1, 2, 3, 4, 5, 678), "2024-01-02T03:04:05.000678Z"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "2024-01-02T03:04:05Z"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))), "2024-01-01T21:34:05Z"),
        (date(2024, 1, 2), "2024-01-02T00:00:00Z"),
    ],
)
def test_format_timestamp(value, text):
    assert format_timestamp(value) == text


@pytest.mark.parametrize("text", ["yesterday", "", "2024-13-01", "2024-01-01T25:00:00Z", "1704067200000"])
def test_malformed_times_raise_before_they_are_sent(text):
    with pytest.raises(ValueError, match="ISO 8601"):
        format_timestamp(text)


def test_format_timestamp_takes_pandas_and_refuses_numbers():
    import pandas as pd

    assert format_timestamp(pd.Timestamp("2024-01-02", tz="Europe/Berlin")) == "2024-01-01T23:00:00Z"
    with pytest.raises(TypeError, match="not int"):
        format_timestamp(5)


def test_check_version():
    import numpy as np

    assert check_version(None, "version") is None
    assert check_version(0, "version") == 0
    assert type(check_version(np.int64(3), "version")) is int
    with pytest.raises(ValueError, match="version is -1"):
        check_version(-1, "version")
    for bad in (True, "1", 1.0, np.float64(1), np.bool_(True)):
        with pytest.raises(TypeError, match="starting_version is an int"):
            check_version(bad, "starting_version")
