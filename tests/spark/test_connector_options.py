"""Options and configuration of the connector for the JVM and of Delta's streaming source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfoNotFoundError

import pytest
from stream_query import Query, flat
from waiting import HANG

pytest.importorskip("pyspark")

from change_tables import COLUMNS, ChangeTable, rows
from test_stream_schemas import BEFORE, BROKEN, MAPPED

import delta_sharing_client as ds
from delta_sharing_client.errors import BadRequestError, ChangesGoneError, ConfigurationError, SchemaChangedError
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.configuration import ACCEPTED_KEYS, TIME_ZONE, SourceSettings
from delta_sharing_client.spark.data_source_options import StreamOptions, parse_options, parse_stream_options
from delta_sharing_client.spark.option_parsers import NOT_OF_STREAMS, OPTIONS, STREAM_OPTIONS, parse_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Serve = Callable[..., SharingServer]
GIVEN = {"path": "s.d.t", "endpoint": "https://host/api", "bearerToken": "x"}
TRACKED = {**GIVEN, "schemaTrackingLocation": "/x"}


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Versions 0 to 2 with the rows 0 to 2."""
    table = ChangeTable(tmp_path / "t")
    for version in range(3):
        table.commit(table.add(f"f{version}", rows(version)))
    return table


def remove_versions(table: ChangeTable, *versions: int) -> None:
    for version in versions:
        (table.log / f"{version:020}.json").unlink()


# -- batch and stream in Spark


def test_a_time_without_a_zone_is_in_that_of_the_session(
    source: SparkSession, table: ChangeTable, serve: Serve
) -> None:
    """Version 1 was committed at 23:13:20 UTC, two hours later in Helsinki."""
    profile = {name: str(value) for name, value in serve(table).profile.items()}

    def count(time: str) -> int:
        reader = source.read.format("deltaSharing").options(**profile, callerOrg="Acme")
        return reader.option("timestampAsOf", time).load("s.s.t").count()

    before = source.conf.get(TIME_ZONE)
    try:
        source.conf.set(TIME_ZONE, "Europe/Helsinki")
        ds.spark.register(source)
        assert count("2023-11-15 01:13:20") == 2
        assert count("2023-11-15 01:13:19") == 1
        assert count("2023-11-14T23:13:20Z") == 2
        source.conf.set(TIME_ZONE, "UTC")
        ds.spark.register(source)
        assert count("2023-11-14T23:13:19") == 1
    finally:
        source.conf.set(TIME_ZONE, str(before))
        ds.spark.register(source)


@pytest.fixture
def configured(source: SparkSession) -> Iterator[SparkSession]:
    for key in ACCEPTED_KEYS.values():
        source.conf.set(key, "always")
    ds.spark.register(source)
    yield source
    for key in ACCEPTED_KEYS.values():
        source.conf.unset(key)
    ds.spark.register(source)


@pytest.mark.slow
def test_a_stream_in_spark_takes_them_all(configured: SparkSession, serve: Serve, tmp_path: Path) -> None:
    table = ChangeTable(tmp_path / "m", BEFORE, configuration=MAPPED, features=["columnMapping"])
    for version in range(3):
        table.commit(table.add(f"f{version}", rows(version)))
    server = serve(table)
    options = {
        **{name: str(value) for name, value in server.profile.items()},
        "schemaLocation": str(tmp_path / "checkpoint" / "schemas"),
        "streamingSourceTrackingId": "one",
        "ignoreFileDeletion": "true",
        "failOnDataLoss": "false",
        "excludeRegex": "no/such/path",
        "callerOrg": "Acme",
        "queryTableVersionIntervalSeconds": "0.2",
    }

    def run() -> None:
        stream = configured.readStream.format("deltaSharing").options(**options).load("s.s.t")
        writer = stream.select("id").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
        assert query.awaitTermination(HANG)

    run()
    table.commit(table.metadata(BROKEN["rename"][0], MAPPED))
    with pytest.raises(Exception, match="was renamed to 'text'"):
        run()
    table.commit(table.add("f4", rows(4)), table.remove("f0"))
    run()  # the configuration accepts the change
    found = configured.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["id"] for row in found) == [0, 1, 2, 4]
    (log,) = (tmp_path / "checkpoint" / "schemas").iterdir()
    assert log.name == "_schema_log_table-id_one"


# -- versions that the provider has removed


@pytest.mark.parametrize("changes", ["false", "true"])
def test_fail_on_data_loss_false_skips_removed_versions(
    table: ChangeTable, serve: Serve, changes: str, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(serve(table), readChangeFeed=changes)
    assert sorted(flat(query.all())) == [0, 1, 2]
    for version in range(3, 9):
        table.commit(table.add(f"f{version}", rows(version)))
    checkpoint(table, 5)
    remove_versions(table, *range(5))
    with pytest.raises(ChangesGoneError):
        query.batch()
    query.start(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert sorted(flat(query.all())) == [5, 6, 7, 8]
    assert "failOnDataLoss is false: skipping versions 3 to 4" in caplog.text
    start, end = query.pairs[-1]
    query.start()
    assert query.rows(start, end).column("id").to_pylist()


def test_fail_on_data_loss_false_skips_the_rest_of_a_version(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table), startingVersion=0, failOnDataLoss="false")
    assert flat(query.all()) == [0, 1, 2]
    table.commit(table.add("f3", rows(3)), table.add("f4", rows(4)))
    table.commit(table.add("f5", rows(5)))
    first = query.ids(("ReadMaxFiles", 1))
    assert len(first) == 1
    assert query.end is not None
    assert query.end["version"] == 3
    checkpoint(table, 4)
    remove_versions(table, *range(4))
    query.start()
    assert flat(query.all()) == [5]


def test_fail_on_data_loss_false_does_not_skip_versions_that_no_request_reads(
    table: ChangeTable, serve: Serve
) -> None:
    query = Query(serve(table), failOnDataLoss="false", readChangeFeed="true")
    query.all()
    table.commit(table.metadata(COLUMNS, {}), table.add("f3", rows(3)))
    before = query.end
    with pytest.raises(BadRequestError, match="change data feed"):
        query.batch()
    assert query.end == before


def checkpoint(table: ChangeTable, version: int) -> None:
    """Write a checkpoint, so that the commits up to it may be removed."""
    from delta_sharing_client.log.checkpoint_writer import write_checkpoint

    write_checkpoint(ds.DeltaLog(table.root).snapshot_at(version))


# -- the others


def test_excluded_files_are_not_read_and_offsets_do_not_depend_on_them(table: ChangeTable, serve: Serve) -> None:
    from delta_sharing_client.spark.job import decode

    server = serve(table)
    query = Query(server)
    start = query.stream.initial_offset()
    end = query.planned(start)
    urls = {
        task.url.reveal(): pair for pair in query.stream.partitions(start, end) for task in decode(pair[1]).tasks
    }
    key = next(iter(urls)).partition("?")[0].rpartition("/")[2]
    everything = query.rows(start, end).column("id").to_pylist()
    query.start(excludeRegex=f"/{key}$")
    assert query.planned(start) == end
    left = query.rows(start, end).column("id").to_pylist()
    assert len(left) == 2
    assert set(left) < set(everything)
    query.start(excludeRegex=".")
    assert query.all() == []


def test_ignore_file_deletion_is_ignore_changes(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table), ignoreFileDeletion="true", ignoreChanges="false")
    query.all()
    table.commit(table.remove("f0"), table.add("f3", rows(3)))
    table.commit(table.remove("f1"))
    assert query.all() == [[3]]


@pytest.mark.parametrize(
    ("change", "option"), [("rename", "allowSourceColumnRename"), ("drop", "allowSourceColumnDrop")]
)
def test_each_kind_of_change_has_its_option(serve: Serve, tmp_path: Path, change: str, option: str) -> None:
    table = ChangeTable(tmp_path / "m", BEFORE, configuration=MAPPED, features=["columnMapping"])
    table.commit(table.add("f0", rows(0)))
    query = Query(serve(table), schemaTrackingLocation=tmp_path / "schemas", streamingSourceTrackingId="two")
    query.all()
    table.commit(table.metadata(BROKEN[change][0], MAPPED))
    table.commit(table.add("f2", rows(2)))
    with pytest.raises(SchemaChangedError, match="allowSourceColumnRenameAndDrop=1"):
        query.batch()
    others = {"allowSourceColumnRename", "allowSourceColumnDrop", "allowSourceColumnTypeChange"} - {option}
    query.start(**dict.fromkeys(others, "always"))
    with pytest.raises(SchemaChangedError):
        query.batch()
    query.start(**{option: "1"})
    assert flat(query.all()) == [2]
    assert [log.name for log in (tmp_path / "schemas").iterdir()] == ["_schema_log_table-id_two"]


def test_the_configuration_accepts_changes_unless_an_option_does() -> None:
    key = ACCEPTED_KEYS["allowSourceColumnDrop"]
    assert key == "spark.databricks.delta.streaming.allowSourceColumnDrop"
    settings = SourceSettings(configuration={key: "always"})
    assert parse_stream_options(GIVEN, settings).allow_drops == "always"
    assert parse_stream_options({**TRACKED, "allowSourceColumnDrop": "7"}, settings).allow_drops == 7
    with pytest.raises(ConfigurationError, match=f"{key} is 'maybe'; it takes 'always'"):
        parse_stream_options(GIVEN, SourceSettings(configuration={key: "maybe"}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"allowSourceColumnDrop": "always"}, "allowSourceColumnDrop needs schemaTrackingLocation"),
        ({"streamingSourceTrackingId": "x"}, "streamingSourceTrackingId needs schemaTrackingLocation"),
        ({"schemaLocation": "/x", "streamingSourceTrackingId": "a/b"}, "it takes a name of letters"),
        ({"schemaLocation": "/x", "schemaTrackingLocation": "/y"}, "given twice, with different values"),
        ({"excludeRegex": "("}, "it takes a regular expression"),
        ({"excludeRegex": "x", "readChangeFeed": "true"}, "excludeRegex does not go with readChangeFeed"),
        ({"ignoreFileDeletion": "true", "readChangeFeed": "true"}, "cannot be given together"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss is .perhaps."),
        ({"callerOrg": "a\nb"}, "printable ASCII"),
        ({"startingTimestamp": "2024-01-01"}, "it has no zone, .* or give a time with a zone"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_stream_options({**GIVEN, **given})


def test_an_unknown_option_lists_those_of_the_query() -> None:
    """Each listed option is accepted, and no option of the other kind is suggested."""
    for parse, others in ((parse_options, STREAM_OPTIONS), (parse_stream_options, NOT_OF_STREAMS)):
        with pytest.raises(ValueError, match=r"^the option 'unheard' is unknown; there are path, ") as raised:
            parse({**GIVEN, "unheard": "1"})
        listed = str(raised.value).partition("there are ")[2].split(", ")
        assert listed.pop() == "and the fields of a profile"
        assert not set(listed) & set(others)
        assert {*listed, *others} >= set(OPTIONS)
        for name in others:
            with pytest.raises(ValueError, match="is unknown; ") as raised:
                parse({**GIVEN, f"{name}s": "1"})
            assert f"is {name!r} meant?" not in str(raised.value)
    with pytest.raises(ValueError, match=r"'maxFilePerTrigger' is unknown; is 'maxFilesPerTrigger' meant\?"):
        parse_stream_options({**GIVEN, "maxFilePerTrigger": "1"})
    with pytest.raises(ValueError, match=r"'readChangeDatum' is unknown; is 'readChangeFeed' meant\?"):
        parse_options({**GIVEN, "readChangeDatum": "1"})


def test_other_names_of_options() -> None:
    options = parse_stream_options({**GIVEN, "schemaLocation": "/x", "shareCredentialsType": "bearer_token"})
    assert isinstance(options, StreamOptions)
    assert options.schema_tracking == Path("/x")
    assert options.fail_on_data_loss


def test_caller_org_is_in_the_user_agent() -> None:
    default = ds.TransportOptions().user_agent
    assert (
        parse_options({**GIVEN, "callerOrg": "Acme Inc"}).transport.user_agent == f"{default} callerOrg-Acme Inc"
    )


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        *(("UTC", "12:00"), ("Z", "12:00"), ("+01:00", "11:00"), ("GMT-3", "15:00"), ("UTC+05:30", "06:30")),
        ("America/Lima", "17:00"),
    ],
)
def test_zones_of_spark(zone: str, hours: str) -> None:
    settings = SourceSettings(configuration={TIME_ZONE: zone})
    query = parse_options({**GIVEN, "timestampAsOf": "2024-01-31 12:00"}, settings).query
    assert isinstance(query, ScanOptions)
    assert query.timestamp == f"2024-01-31T{hours}:00Z"


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ZoneInfoNotFoundError):
        parse_zone("../x")
    with pytest.raises(
        ValueError, match=r"timestampAsOf is '2024-01-01'; .*session.timeZone, 'Mars/X', is unknown"
    ):
        parse_options(
            {**GIVEN, "timestampAsOf": "2024-01-01"}, SourceSettings(configuration={TIME_ZONE: "Mars/X"})
        )
