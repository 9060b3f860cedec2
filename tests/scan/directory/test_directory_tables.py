"""Tables that are offered by their directory only, read from an S3 imitation over real sockets."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import DeltaTable, write_deltalake
from directory_store import BUCKET, PATH, SECRET, SESSION, DirectoryServer, refusal
from faults.server import Reply
from waiting import WallClock

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.errors import (
    BadRequestError,
    ColumnError,
    DataError,
    DeltaLogError,
    DeltaSharingError,
    DirectoryAccessError,
    FileGoneError,
    InsecureUrlError,
    NotFoundError,
    ProtocolError,
    StorageError,
    UnsupportedFeatureError,
    UrlExpiredError,
    VersionNotFoundError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.table.shared_table import SharedTable

GOLDEN = Path(__file__).parents[2] / "golden" / "tables"


def write(path: Path, versions: int = 3, **options: object) -> None:
    for number in range(versions):
        rows = pa.table({"p": [number % 2] * 4, "x": list(range(4 * number, 4 * number + 4))})
        write_deltalake(path, rows, mode="append", **options)


@pytest.fixture
def table(shared: DirectoryServer) -> SharedTable:
    write(shared.path, partition_by=["p"])
    (listed,) = SharingClient(shared.api.profile).list_all_tables()
    return SharingClient(shared.api.profile).table(listed)


def xs(rows: pa.Table) -> list[int]:
    return sorted(rows["x"].to_pylist())


class TestLimits:
    @pytest.mark.parametrize("name", ["00000000000000000001.json", "00000000000000000002.checkpoint.parquet"])
    def test_a_file_of_the_log_beyond_the_limit_is_named(
        self, shared: DirectoryServer, table: SharedTable, name: str
    ) -> None:
        DeltaTable(shared.path).create_checkpoint()
        if name.endswith(".json"):
            (shared.path / "_delta_log" / "00000000000000000002.checkpoint.parquet").unlink()
        with (shared.path / "_delta_log" / name).open("ab") as file:
            file.truncate(3_000_000)
        limited = SharingClient(shared.api.profile, options=TransportOptions(metadata_limit=100_000))
        reason = (
            rf"the file _delta_log/{name} of the log has 3,000,000 bytes; 16 times .*metadata_limit \(100,000\)"
        )
        with pytest.raises(DeltaLogError, match=reason) as raised:
            limited.table(table.name).scan().to_arrow()
        assert "table s.d.t" in str(raised.value)

    def test_the_footer_of_a_checkpoint_beyond_the_limit_is_named(
        self, shared: DirectoryServer, table: SharedTable
    ) -> None:
        DeltaTable(shared.path).create_checkpoint()
        limited = SharingClient(shared.api.profile, options=TransportOptions(metadata_limit=5_000))
        with pytest.raises(DataError, match=r"checkpoint.parquet: its footer has [\d,]+ bytes; .*metadata_limit"):
            limited.table(table.name).scan().to_arrow()


class TestReading:
    @pytest.mark.protocol("POST .../tables/{table}/temporary-table-credentials", "location")
    def test_rows_are_those_of_the_table(self, shared: DirectoryServer, table: SharedTable) -> None:
        assert table.name.access_modes == ("dir",)
        rows = table.scan().to_arrow()
        expected = DeltaTable(shared.path).to_pyarrow_table().select(["p", "x"])
        assert rows.sort_by("x").equals(expected.sort_by("x"))
        assert shared.asked == 1
        assert shared.api.seen(f"{PATH}/query") == []

    def test_a_table_that_was_named_is_found_out(self, shared: DirectoryServer) -> None:
        write(shared.path)
        with SharingClient(shared.api.profile) as client:
            assert len(client.table("s.d.t").scan().to_pandas()) == 12
        assert len(shared.api.seen(f"{PATH}/query")) == 1

    def test_a_table_url(self, shared: DirectoryServer, tmp_path: Path) -> None:
        write(shared.path)
        profile = tmp_path / "p.share"
        profile.touch(0o600)
        profile.write_text(str(shared.api.profile).replace("'", '"'))
        frame = ds.load_as_pandas(f"{profile}#s.d.t", columns=["x"], filters=[("x", ">", 9)])
        assert sorted(frame["x"]) == [10, 11]

    def test_filters_prune_files_and_filter_rows(self, shared: DirectoryServer, table: SharedTable) -> None:
        scan = table.scan(columns=["x"], filters=[("p", "=", 0), ("x", "<", 5)])
        assert xs(scan.to_arrow()) == [0, 1, 2, 3]
        assert len({name for name in shared.fetched if name.startswith("part-")}) == 1
        assert sum(scan.plan().skipped.values()) == 2

    def test_limit_count_schema_and_reader(self, shared: DirectoryServer, table: SharedTable) -> None:
        assert table.scan(limit=5).to_arrow().num_rows == 5
        assert table.scan(limit=0).to_arrow().schema.names == ["p", "x"]
        assert table.scan().count() == 12
        assert table.scan().to_record_batch_reader().read_all().num_rows == 12
        assert table.scan().explain()
        with pytest.raises(ColumnError):
            table.scan(columns=["nope"]).to_arrow()

    def test_versions(self, shared: DirectoryServer, table: SharedTable) -> None:
        assert xs(table.scan(version=0).to_arrow()) == [0, 1, 2, 3]
        assert len(xs(table.scan(version=1).to_arrow())) == 8
        with pytest.raises(VersionNotFoundError, match=r"table s\.d\.t: there is no version 9") as caught:
            table.scan(version=9).to_arrow()
        assert "/tmp" not in str(caught.value)

    @pytest.mark.parametrize(
        ("said", "instead"),
        [
            ('"size":', '"size":1e300,"was":'),
            ('"size":', '"size":18446744073709551616,"was":'),
            ('"modificationTime":', '"modificationTime":1e999999999,"was":'),
            ('"path":"', r'"path":"\ud83d'),
            ('"p":"0"', r'"p":"\ud83d"'),
            ('"p":"0"', '"p":"1e999999999"'),
            ('\\"name\\":\\"x\\"', r"\"name\":\"\\ud83d\""),
        ],
    )
    def test_a_log_with_what_no_table_can_hold(
        self, shared: DirectoryServer, table: SharedTable, said: str, instead: str
    ) -> None:
        commit = shared.path / "_delta_log" / f"{0:020}.json"
        text = commit.read_text()
        assert said in text
        commit.write_text(text.replace(said, instead))
        with pytest.raises(DeltaSharingError) as caught:
            table.scan().to_arrow()
        str(caught.value).encode()

    def test_times(self, shared: DirectoryServer, table: SharedTable) -> None:
        for number in range(3):
            os.utime(shared.path / "_delta_log" / f"{number:020}.json", (1_700_000_000 + number * 100,) * 2)
        assert len(xs(table.scan(timestamp="2023-11-14T22:15:00Z").to_arrow())) == 8  # 100 s after the first
        with pytest.raises(VersionNotFoundError, match="newer"):
            table.scan(timestamp="2020-01-01").to_arrow()
        future = table.scan(timestamp="2099-01-01")
        with pytest.raises(VersionNotFoundError, match=r"2099-01-01.* is after the last commit; .*'latest'"):
            future.to_arrow()
        assert future.replace(on_future="latest").to_arrow() == table.scan().to_arrow()

    @pytest.mark.parametrize("cleaned", [False, True])
    def test_of_a_long_log_only_what_is_needed_is_fetched(self, shared: DirectoryServer, cleaned: bool) -> None:
        write(shared.path, 8)
        DeltaTable(shared.path).create_checkpoint()
        write(shared.path, 2)
        if cleaned:
            for number in range(7):
                (shared.path / "_delta_log" / f"{number:020}.json").unlink()
        with SharingClient(shared.api.profile) as client:
            assert client.table("s.d.t").scan().to_arrow().num_rows == 40
        commits = sorted({name for name in shared.fetched if name.endswith(".json")})
        assert commits == [f"{number:020}.json" for number in (7, 8, 9)]

    def test_each_file_takes_two_requests(self, shared: DirectoryServer, table: SharedTable) -> None:
        table.scan().to_arrow()
        assert len(set(shared.fetched)) == 3 + 3  # commits and files
        assert len(shared.fetched) == 2 * 6  # pyarrow asks for a file's size first

    def test_a_large_file_is_read_in_ranges(self, shared: DirectoryServer) -> None:
        import numpy as np

        noise = np.random.default_rng(1).random((8, 300_000))
        write_deltalake(shared.path, pa.table({f"c{i}": column for i, column in enumerate(noise)}))
        with SharingClient(shared.api.profile) as client:
            scan = client.table("s.d.t").scan(columns=["c3"])
            assert scan.to_arrow()["c3"].to_pylist() == noise[3].tolist()
            few = sum(
                len(_range(request.headers["range"]))
                for request in shared.store.requests
                if _part(request) and request.method == "GET"
            )
            assert few < 4_000_000
            assert client.table("s.d.t").scan().to_arrow().num_rows == 300_000


def _part(request: object) -> bool:
    return ".parquet" in request.target and "_delta_log" not in request.target


def _range(header: str) -> range:
    start, stop = header.removeprefix("bytes=").split("-")
    return range(int(start), int(stop) + 1)


def values(rows: pa.Table) -> list[list[str]]:
    """What compares equal where the values are, NaN and times beyond Python's too."""

    def plain(value: pa.Scalar) -> object:
        if isinstance(value, pa.StructScalar | pa.ListScalar | pa.LargeListScalar) and value.is_valid:
            items = value.values() if isinstance(value, pa.StructScalar) else value.values
            return [plain(item) for item in items]
        return value.value if isinstance(value, pa.TimestampScalar | pa.Date32Scalar) else value.as_py()

    return [[repr(plain(value)) for value in column] for column in rows.columns]


@pytest.mark.parametrize("name", [path.parent.name for path in sorted(GOLDEN.glob("*/case.json"))])
def test_golden_tables_are_read_as_by_url(shared: DirectoryServer, name: str) -> None:
    """Deletion vectors, column mapping, sidecars and the rest: the same rows by directory as by URL."""
    from delta_sharing_client.errors import DeltaSharingError
    from delta_sharing_client.server import SharingServer

    shutil.copytree(GOLDEN / name / "table", shared.path)

    def rows(client: SharingClient) -> object:
        try:
            return client.table("s.d.t").scan().to_arrow()
        except DeltaSharingError as error:
            return type(error)

    with SharingServer({"s.d.t": shared.path}) as server, SharingClient(server.profile) as by_url:
        expected = rows(by_url)
    with SharingClient(shared.api.profile) as by_directory:
        found = rows(by_directory)
    if isinstance(expected, pa.Table):
        assert isinstance(found, pa.Table), found
        assert found.schema == expected.schema
        assert values(found) == values(expected)
    else:
        assert found is expected


@pytest.mark.parametrize(
    ("feature", "error", "reason"),
    [
        ("catalogManaged", DirectoryAccessError, "a catalog manages it"),
        ("brandNew", UnsupportedFeatureError, "brandNew"),
    ],
)
def test_what_a_directory_alone_cannot_tell(
    shared: DirectoryServer, feature: str, error: type[Exception], reason: str
) -> None:
    write(shared.path, 1)
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features}
    (shared.path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(protocol))
    with SharingClient(shared.api.profile) as client, pytest.raises(error, match=reason) as caught:
        client.table("s.d.t").scan().to_arrow()
    assert str(caught.value).startswith("table s.d.t")


class TestCredentials:
    def test_they_are_renewed_ahead_of_their_end(
        self, shared: DirectoryServer, table: SharedTable, wall_clock: WallClock
    ) -> None:
        shared.expires_in = 3600
        plan = table.scan().plan()
        wall_clock.advance(3550)
        reader, _ = plan.source
        task = plan.tasks[0]
        reader.fetch(task.url, task.file_id, task.size)
        assert shared.asked == 2
        assert shared.store.requests[-1].headers["x-amz-security-token"] == shared.session(2)

    def test_they_are_renewed_once_when_the_store_refuses_them(
        self, shared: DirectoryServer, table: SharedTable
    ) -> None:
        scan = table.scan()
        plan = scan.plan()
        shared.expired.add(shared.session(1))
        rows = pa.Table.from_batches(scan._batches(plan, None))
        assert rows.num_rows == 12
        assert shared.asked == 2

    def test_those_that_stay_refused_are_an_error(self, shared: DirectoryServer, table: SharedTable) -> None:
        scan = table.scan()
        plan = scan.plan()
        shared.expired.update(shared.session(number) for number in range(1, 50))
        with pytest.raises(UrlExpiredError, match="temporary credentials"):
            list(scan._batches(plan, None))
        assert shared.asked <= 3 * len(plan.tasks)

    def test_without_a_time_they_are_used_until_refused(self, shared: DirectoryServer, table: SharedTable) -> None:
        shared.expires_in = None
        assert table.scan().to_arrow().num_rows == 12
        assert shared.asked == 1

    def test_no_secret_shows(
        self, shared: DirectoryServer, table: SharedTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        plan = table.scan().plan()
        shared.store.on("*", "*", lambda request: refusal(403, f"AccessDenied {dict(request.headers)}"))
        with pytest.raises(StorageError) as caught:
            table.scan().to_arrow()
        reader, _ = plan.source
        files = plan.source[1]
        texts = [repr(plan), repr(reader), repr(files), repr(plan.tasks), str(caught.value), caplog.text]
        texts += [repr(table._rest.temporary_credentials(plan.table)), repr(vars(caught.value))]
        for text in texts:
            assert SECRET not in text
            assert SESSION not in text
        for secret in (table._rest.temporary_credentials(plan.table), plan):
            with pytest.raises(TypeError):
                pickle.dumps(secret)
        assert SECRET.encode() not in pickle.dumps(plan.tasks)

    def test_this_machines_own_are_not_used(
        self, shared: DirectoryServer, table: SharedTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
        table.scan().to_arrow()
        for request in shared.store.requests:
            assert "AKIA1/" in request.headers["authorization"]
            assert request.headers["x-amz-security-token"] == shared.session(1)

    def test_the_temporary_copy_of_the_log_is_removed(
        self, shared: DirectoryServer, table: SharedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "temporary"
        folder.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        table.scan().to_arrow()
        assert list(folder.iterdir()) == []


class TestFaults:
    @pytest.mark.parametrize("subject", ["list-type", r"\.json", r"part-.*\.parquet"])
    @pytest.mark.parametrize(
        "fault", [Reply(status=503), Reply(drop=True), refusal(503, "SlowDown"), refusal(500, "InternalError")]
    )
    def test_a_passing_fault_is_tried_again(
        self, shared: DirectoryServer, table: SharedTable, subject: str, fault: Reply
    ) -> None:
        shared.store.on("GET", re.compile(subject), fault, nth=1)
        assert table.scan().to_arrow().num_rows == 12

    def test_an_answer_that_is_cut(self, shared: DirectoryServer, table: SharedTable) -> None:
        def cut(request: object) -> Reply:
            return shared._object(request).but(cut_at=100)

        shared.store.on("GET", re.compile(r"part-.*\.parquet"), cut, nth=1)
        assert table.scan().to_arrow().num_rows == 12

    def test_a_file_that_is_gone(self, shared: DirectoryServer, table: SharedTable) -> None:
        next(shared.path.rglob("part-*.parquet")).unlink()
        with pytest.raises(FileGoneError, match="vacuumed"):
            table.scan().to_arrow()

    def test_a_file_that_is_shorter_than_the_log_says(self, shared: DirectoryServer, table: SharedTable) -> None:
        file = next(shared.path.rglob("part-*.parquet"))
        file.write_bytes(file.read_bytes()[:-50])
        with pytest.raises((StorageError, DataError)):
            table.scan().to_arrow()

    def test_a_store_that_refuses(self, shared: DirectoryServer, table: SharedTable) -> None:
        shared.store.on("*", "*", refusal(403, "AccessDenied"))
        with pytest.raises(StorageError, match="refuses access") as caught:
            table.scan().to_arrow()
        assert caught.value.status == 403

    def test_there_is_no_table(self, shared: DirectoryServer) -> None:
        with SharingClient(shared.api.profile) as client, pytest.raises(ds.errors.DeltaLogError, match=r"s\.d\.t"):
            client.table("s.d.t").scan().to_arrow()

    def test_a_commit_is_missing(self, shared: DirectoryServer, table: SharedTable) -> None:
        (shared.path / "_delta_log" / f"{1:020}.json").unlink()
        with pytest.raises(ds.errors.DeltaLogError, match=r"table s\.d\.t: "):
            table.scan().to_arrow()

    @pytest.mark.parametrize(
        "path", ["../../other/part.parquet", "s3://other/x/t/part.parquet", "/etc/passwd", "file:///etc/passwd"]
    )
    def test_files_outside_the_directory_are_refused(self, shared: DirectoryServer, path: str) -> None:
        write(shared.path, 1)
        log = shared.path / "_delta_log" / f"{0:020}.json"
        log.write_text(re.sub(r'"path":"[^"]*"', f'"path":"{path}"', log.read_text()))
        with SharingClient(shared.api.profile) as client, pytest.raises(DirectoryAccessError):
            client.table("s.d.t").scan().to_arrow()
        assert not any(
            "passwd" in request.target or "other" in request.target for request in shared.store.requests
        )

    @pytest.mark.parametrize("scheme", ["s3", "s3a"])
    def test_absolute_paths_inside_the_directory_are_read(self, shared: DirectoryServer, scheme: str) -> None:
        write(shared.path, 1)
        log = shared.path / "_delta_log" / f"{0:020}.json"
        log.write_text(re.sub(r'"path":"([^"]*)"', rf'"path":"{scheme}://{BUCKET}/x/t/\1"', log.read_text()))
        with SharingClient(shared.api.profile) as client:
            assert client.table("s.d.t").scan().to_arrow().num_rows == 4


class TestAuxiliaryLocations:
    """A log may name files outside the table's directory; the server names the locations that it opens."""

    def move(self, shared: DirectoryServer, place: str = "y/aux", **item: object) -> SharedTable:
        write(shared.path, 2)
        folder = shared.path.parent / "aux files"
        folder.mkdir()
        commit = shared.path / "_delta_log" / f"{1:020}.json"
        name = re.search(r'"path":"([^"]*)"', commit.read_text())[1]
        (shared.path / name).rename(folder / name)
        commit.write_text(commit.read_text().replace(name, f"s3://{BUCKET}/{place}/{name}"))
        shared.auxiliary["y/aux/"] = folder
        shared.item |= item
        (listed,) = SharingClient(shared.api.profile).list_all_tables()
        return SharingClient(shared.api.profile).table(listed)

    @pytest.mark.protocol("auxiliaryLocations")
    def test_a_file_there_is_read_with_credentials_for_it(self, shared: DirectoryServer) -> None:
        table = self.move(shared, auxiliaryLocations=[f"s3://{BUCKET}/z", f"s3a://{BUCKET}/y/aux/"])
        shared.opened[f"s3://{BUCKET}/y/aux"] = shared.opened.setdefault(f"s3a://{BUCKET}/y/aux/", set())
        assert xs(table.scan().to_arrow()) == list(range(8))
        bodies = [request.json() for request in shared.api.seen(f"{PATH}/temporary-table-credentials")]
        assert bodies == [{}, {"location": f"s3a://{BUCKET}/y/aux/"}]

    def test_its_credentials_are_renewed_by_themselves(self, shared: DirectoryServer) -> None:
        table = self.move(shared, auxiliaryLocations=[f"s3://{BUCKET}/y/aux"])
        scan = table.scan()
        plan = scan.plan()
        shared.expired.add(shared.session(2))
        assert xs(pa.Table.from_batches(scan._batches(plan, None))) == list(range(8))
        bodies = [request.json() for request in shared.api.seen(f"{PATH}/temporary-table-credentials")]
        assert bodies == [{}, {"location": f"s3://{BUCKET}/y/aux"}, {"location": f"s3://{BUCKET}/y/aux"}]

    @pytest.mark.parametrize("place", ["y/aux/../aux", "y/auxiliary", "other"])
    def test_other_files_are_refused(self, shared: DirectoryServer, place: str) -> None:
        table = self.move(shared, place, auxiliaryLocations=[f"s3://{BUCKET}/y/aux"])
        with pytest.raises(DirectoryAccessError, match=r"auxiliary locations|unusable path"):
            table.scan().to_arrow()

    def test_a_named_table(self, shared: DirectoryServer) -> None:
        self.move(shared, auxiliaryLocations=[f"s3://{BUCKET}/y/aux"])
        with SharingClient(shared.api.profile) as client:
            assert xs(client.table("s.d.t").scan().to_arrow()) == list(range(8))


class TestAccessModes:
    """A named table is recognised by the access modes that the server states, whatever its errors say."""

    @pytest.mark.parametrize("status", [400, 403, 405, 501])
    @pytest.mark.parametrize("answered", ["parquet", "delta"])
    def test_of_the_metadata(self, shared: DirectoryServer, status: int, answered: str) -> None:
        write(shared.path)
        shared.api.on("GET", re.compile("/tables$"), Reply(status=403))
        shared.api.on("POST", f"{PATH}/query", Reply.of_json({"message": "no"}, status=status))
        shared.api.on("GET", f"{PATH}/metadata", Reply.of_lines(*described(answered, ["dir"])))
        with SharingClient(shared.api.profile) as client:
            assert client.table("s.d.t").scan().to_arrow().num_rows == 12
            metadata = client.table("s.d.t").metadata()
        assert metadata.access_modes == ("dir",)
        assert metadata.location == f"s3://{BUCKET}/x/t"
        assert metadata.auxiliary_locations == (f"s3://{BUCKET}/y",)

    @pytest.mark.parametrize("modes", [["url", "dir"], [], None])
    @pytest.mark.protocol("accessModes")
    def test_of_a_table_that_is_offered_by_url(self, shared: DirectoryServer, modes: list[str] | None) -> None:
        shared.api.on("GET", f"{PATH}/metadata", Reply.of_lines(*described("parquet", modes)))
        with SharingClient(shared.api.profile) as client, pytest.raises(BadRequestError, match="Access mode url"):
            client.table("s.d.t").scan().to_arrow()
        assert shared.asked == 0


def described(answered: str, modes: list[str] | None) -> list[dict[str, object]]:
    metadata: dict[str, object] = {"id": "m", "format": {"provider": "parquet"}, "partitionColumns": []}
    metadata["schemaString"] = '{"type": "struct", "fields": []}'
    protocol: dict[str, object] = {"minReaderVersion": 1}
    if answered == "delta":
        metadata, protocol = {"deltaMetadata": metadata}, {"deltaProtocol": protocol | {"minWriterVersion": 2}}
    places = {"location": f"s3://{BUCKET}/x/t", "auxiliaryLocations": [f"s3://{BUCKET}/y"]}
    return [{"protocol": protocol}, {"metaData": metadata | places | {"accessModes": modes}}]


class TestRefusals:
    def test_executors_need_a_credential(self, table: SharedTable) -> None:
        from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

        with pytest.raises(
            DirectoryAccessError, match=r"table s\.d\.t is offered by its directory only"
        ) as caught:
            encode_plan(table._rest, table.scan().plan(), ExecutorOptions(credentials=False))
        assert "executors need executorCredentials to open it, and a mirror needs none" in str(caught.value)
        assert caught.value.access_modes == ("dir",)
        assert caught.value.location == f"s3://{BUCKET}/x/t"

    def test_a_server_without_the_endpoint(self, shared: DirectoryServer, table: SharedTable) -> None:
        shared.api.on("POST", f"{PATH}/temporary-table-credentials", Reply(status=404))
        for name in (table.name, "s.d.t"):
            other = SharingClient(shared.api.profile).table(name)
            for call in (other.to_arrow, other.version, other.metadata, other.changes(0).to_arrow):
                with pytest.raises(NotFoundError, match=r"by its directory only, .* or to share the table by URL"):
                    call()

    def test_other_refusals_ask_for_no_credentials(self, shared: DirectoryServer) -> None:
        shared.item["accessModes"] = ["url"]
        shared.api.on("POST", f"{PATH}/query", Reply.of_json({"message": "version is too old"}, status=400))
        with pytest.raises(BadRequestError, match="too old"):
            SharingClient(shared.api.profile).table("s.d.t").scan().to_arrow()
        assert shared.asked == 0

    @pytest.mark.protocol("accessModes")
    def test_a_table_that_is_offered_both_ways_is_read_by_url(self, shared: DirectoryServer) -> None:
        shared.item["accessModes"] = ["url", "dir"]
        client = SharingClient(shared.api.profile)
        (listed,) = client.list_all_tables()
        with pytest.raises(BadRequestError):
            client.table(listed).scan().to_arrow()
        assert shared.asked == 0

    @pytest.mark.parametrize(
        "answer",
        [
            {},
            {"credentials": None},
            {"credentials": {"location": "s3://b/t"}},
            {"credentials": {"location": "s3://b/t", "awsTempCredentials": {"accessKeyId": "a"}}},
            {"credentials": {"location": "s3://b/t", "unknownCredentials": {}}},
            {"credentials": {"location": 3, "gcpOauthToken": {"oauthToken": "canary"}}},
            {
                "credentials": {
                    "location": "gs://b/t",
                    "gcpOauthToken": {"oauthToken": "canary"},
                    "expirationTime": "soon",
                }
            },
            *(
                {"credentials": {"location": "gs://b/t", "gcpOauthToken": {"oauthToken": "canary"}, **expires}}
                for expires in (
                    {"expirationTime": 10**400},
                    {"expirationTime": "9" * 5000},
                    {"expirationTime": 1e300},
                )
            ),
        ],
    )
    def test_answers_that_are_none(self, shared: DirectoryServer, table: SharedTable, answer: object) -> None:
        shared.api.on("POST", f"{PATH}/temporary-table-credentials", Reply.of_json(answer))
        with pytest.raises(ProtocolError, match=r"table s\.d\.t") as caught:
            table.scan().to_arrow()
        assert "canary" not in str(caught.value)

    @pytest.mark.parametrize(
        "location",
        [
            "",
            "/local/path",
            "file:///etc",
            "https://host/x",
            "gs://bucket/t",
            "s3://",
            "s3://b:99/t",
            "s3://u:p@b/t",
        ],
    )
    def test_locations_that_do_not_go_with_the_credential(
        self, shared: DirectoryServer, table: SharedTable, location: str
    ) -> None:
        shared.location = location
        with pytest.raises((DirectoryAccessError, ProtocolError)):
            table.scan().to_arrow()
        assert shared.store.requests == []

    def test_a_store_over_plain_http_elsewhere(
        self, shared: DirectoryServer, table: SharedTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for url in ("http://store.example.com", "http://169.254.169.254"):
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
            with pytest.raises(InsecureUrlError):
                table.scan().to_arrow()

    @pytest.mark.parametrize("missing", ["S3FileSystem", "AzureFileSystem", "GcsFileSystem"])
    def test_a_pyarrow_without_the_file_system(
        self, shared: DirectoryServer, table: SharedTable, monkeypatch: pytest.MonkeyPatch, missing: str
    ) -> None:
        credentials = {
            "S3FileSystem": {
                "location": "s3://b/t",
                "awsTempCredentials": {"accessKeyId": "a", "secretAccessKey": "b", "sessionToken": "c"},
            },
            "AzureFileSystem": {
                "location": "abfss://c@account.dfs.core.windows.net/t",
                "azureUserDelegationSas": {"sasToken": "sv=1&sig=canary"},
            },
            "GcsFileSystem": {"location": "gs://b/t", "gcpOauthToken": {"oauthToken": "canary"}},
        }[missing]
        shared.api.on("POST", f"{PATH}/temporary-table-credentials", Reply.of_json({"credentials": credentials}))
        monkeypatch.delattr(pyarrow.fs, missing)
        with pytest.raises(DirectoryAccessError, match=f"no {missing}") as caught:
            table.scan().to_arrow()
        assert "canary" not in str(caught.value)


def test_options_reach_the_store(shared: DirectoryServer) -> None:
    write(shared.path)
    options = TransportOptions(max_connections=2, memory_budget=1_000_000)
    with SharingClient(shared.api.profile, options=options) as client:
        assert client.table("s.d.t").scan().to_arrow().num_rows == 12
