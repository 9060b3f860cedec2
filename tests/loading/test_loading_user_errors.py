"""User errors raise one typed error with a remedy."""

from __future__ import annotations

import json
import pickle
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults.server import FaultServer, Reply
from loading_tables import File, column, write_table

import delta_sharing_client as ds
from delta_sharing_client import errors
from delta_sharing_client.server import ServerOptions, SharingServer

LOADERS = [ds.load_as_pandas, ds.load_as_arrow, ds.load_as_polars]


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]
) -> tuple[SharingServer, Path]:
    root = tmp_path_factory.mktemp("mistakes")
    table = write_table(root / "t", [column("id", "long")], [File(rows=pa.table({"id": [1]}), name="a.parquet")])
    server = serve({"shop.sales.orders": table})
    return server, server.write_profile(root / "good.share")


def profile_file(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(0o600)
    return path


def mistaken(url: str, kind: type[errors.DeltaSharingError], *words: str, **arguments: Any) -> None:
    """Each loader raises this error, in one line that holds these words."""
    for load in LOADERS:
        with pytest.raises(kind) as caught:
            load(url, **arguments)
        text = str(caught.value)
        assert "\n" not in text
        assert 20 < len(text) < 400, text
        assert all(word in text for word in words), text
        assert caught.value.__cause__ is None
        assert type(caught.value) is kind


class TestProfiles:
    def test_missing_profiles_raise(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mistaken(f"{tmp_path / 'no.share'}#s.s.t", errors.ProfileError, "no such file", "no.share")
        mistaken(f"{tmp_path}#s.s.t", errors.ProfileError, "directory")
        monkeypatch.delenv("DELTA_SHARING_PROFILE", raising=False)
        mistaken("#s.s.t", errors.ProfileError, "DELTA_SHARING_PROFILE")

    @pytest.mark.parametrize(
        ("content", "kind", "words"),
        [
            ("not json", errors.ProfileError, ["not JSON", "line 1"]),
            ("[]", errors.ProfileError, ["not a JSON object", "download the profile again"]),
            (
                {"endpoint": "https://x.example", "bearerToken": "t"},
                errors.ProfileError,
                ["shareCredentialsVersion"],
            ),
            ({"shareCredentialsVersion": 1, "bearerToken": "t"}, errors.ProfileError, ["endpoint", "missing"]),
            (
                {"shareCredentialsVersion": 1, "endpoint": "https://x.example", "bearerToken": ""},
                errors.ProfileError,
                ["bearerToken", "empty"],
            ),
            (
                {"shareCredentialsVersion": 99, "endpoint": "https://x.example", "bearerToken": "t"},
                errors.UnsupportedProfileError,
                ["99", "upgrade"],
            ),
            (
                {"shareCredentialsVersion": 1, "endpoint": "http://x.example", "bearerToken": "t"},
                errors.InsecureUrlError,
                ["plain http", "allow_http"],
            ),
        ],
    )
    def test_malformed_profiles_raise(
        self, tmp_path: Path, content: Any, kind: type[errors.DeltaSharingError], words: list[str]
    ) -> None:
        mistaken(f"{profile_file(tmp_path / 'p.share', content)}#s.s.t", kind, *words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", ["share.schema.table", "list_all_tables"]),
        ("orders", ["share.schema.table"]),
        ("sales.orders", ["share.schema.table"]),
        ("shop..orders", ["schema name is empty"]),
        ("shop.sales.a/b", ["no slash"]),
        ("shop.sales." + "x" * 256, ["256 characters"]),
    ],
)
def test_malformed_table_names(served: tuple[SharingServer, Path], name: str, words: list[str]) -> None:
    server, profile = served
    server.reset_requests()
    mistaken(f"{profile}#{name}", errors.TableNameError, *words)
    assert server.requests == []


def test_url_instead_of_a_name_raises(served: tuple[SharingServer, Path]) -> None:
    with ds.SharingClient(str(served[1])) as client:
        for url in ("config.share#shop.sales.orders", "/a/b.json#shop.sales.orders"):
            with pytest.raises(errors.TableNameError, match=r"already has a profile: pass 'shop\.sales\.orders'"):
                client.table(url)
        assert client.table("sh#re.sales.orders").name.share == "sh#re"


def test_a_url_without_a_table(served: tuple[SharingServer, Path]) -> None:
    mistaken(str(served[1]), errors.TableNameError, "<profile>#<share>.<schema>.<table>")


@pytest.mark.parametrize("name", ["nope.sales.orders", "shop.nope.orders", "shop.sales.nope"])
def test_tables_that_are_not_shared(served: tuple[SharingServer, Path], name: str) -> None:
    server, profile = served
    server.reset_requests()
    mistaken(f"{profile}#{name}", errors.NotFoundError, f"table {name}", "404", "list_all_tables()", "There is no")
    paths = [request.path for request in server.requests]
    assert len(set(paths)) == len(paths) / len(LOADERS), "a 404 is not tried again"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop.sales.order", "There is no table 'order'; did you mean 'orders'?"),
        ("shop.sale.orders", "There is no schema 'sale'; did you mean 'sales'?"),
        ("shp.sales.orders", "There is no share 'shp'; did you mean 'shop'?"),
        ("SHOP.Sales.0rders", "There is no table '0rders'; did you mean 'orders'?"),
        ("nope.nope.nope", "There is no share 'nope'. Check the name"),
    ],
)
def test_similar_names_are_suggested(served: tuple[SharingServer, Path], name: str, words: str) -> None:
    mistaken(f"{served[1]}#{name}", errors.NotFoundError, words)
    with pytest.raises(errors.NotFoundError) as caught:
        ds.get_table_version(f"{served[1]}#{name}")
    assert caught.value.missing is not None
    assert f"There is no {caught.value.missing} " in words
    assert pickle.loads(pickle.dumps(caught.value)).missing == caught.value.missing


def test_similar_shares_and_schemas_are_suggested(served: tuple[SharingServer, Path]) -> None:
    with ds.SharingClient(str(served[1])) as client:
        with pytest.raises(errors.NotFoundError, match=r"There is no share 'shopp'\)\. Did you mean 'shop'\?"):
            client.list_schemas("shopp")
        with pytest.raises(errors.NotFoundError, match=r"'sles' in share 'shop'\)\. Did you mean 'sales'"):
            client.list_tables("shop.sles")
        with pytest.raises(errors.NotFoundError, match="Did you mean 'shop'"):
            client.list_all_tables("shoop")
        with pytest.raises(errors.NotFoundError) as caught:
            client.list_all_tables("nope")
        assert str(caught.value).count("There is no share 'nope'") == 1
        assert str(caught.value).endswith("There is no share 'nope'). Check the name with list_shares()")
        with pytest.raises(errors.NotFoundError, match="did you mean 'orders'"):
            client.table("shop.sales.ordrs").version()


def test_a_listing_that_fails_adds_nothing(faults: FaultServer) -> None:
    faults.on("*", re.compile(r".*"), Reply.of_json({"errorCode": "NONE"}, status=404))
    faults.on("GET", re.compile(r".*/schemas/s/tables$"), Reply(status=500))
    with ds.SharingClient(faults.profile) as client, pytest.raises(errors.NotFoundError) as caught:
        client.table("s.s.t").version()
    assert str(caught.value).endswith("Check the name with list_all_tables()")
    assert len(faults.seen("/shares/s/schemas/s/tables")) == 1


def test_a_wrong_token(served: tuple[SharingServer, Path], tmp_path: Path) -> None:
    server, _ = served
    server.reset_requests()
    profile = profile_file(tmp_path / "p.share", server.profile | {"bearerToken": "wrong"})
    mistaken(f"{profile}#shop.sales.orders", errors.AuthenticationError, "401", "token is not valid")
    assert len(server.requests) == len(LOADERS)


def test_an_expired_token(
    served: tuple[SharingServer, Path], serve: Callable[..., SharingServer], tmp_path: Path
) -> None:
    server, _ = served
    expiry = {"bearerToken": "wrong", "expirationTime": "2021-11-12T00:12:29.0Z"}
    profile = profile_file(tmp_path / "p.share", server.profile | expiry)
    with pytest.warns(UserWarning, match="expired at 2021-11-12"):
        mistaken(f"{profile}#shop.sales.orders", errors.AuthenticationError, "2021-11-12", "expired")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"version": 5},
            [
                "no version 5",
                "versions 0 to 0",
                "Version 5 was requested: leave the version out if the table is shared without its history",
            ],
        ),
        (
            {"timestamp": "1999-01-01T00:00:00Z"},
            ["newer than the timestamp", "The version at 1999-01-01T00:00:00Z was requested: request a time"],
        ),
        (
            {"timestamp": "2999-01-01T00:00:00Z"},
            ["after the latest version", "committed at 20", "on_future='latest'"],
        ),
    ],
)
def test_missing_versions_raise(
    served: tuple[SharingServer, Path], arguments: dict[str, Any], words: list[str]
) -> None:
    mistaken(f"{served[1]}#shop.sales.orders", errors.BadRequestError, "400", *words, **arguments)


class TestTimesAfterTheLastCommit:
    LATER = "2999-01-01T00:00:00Z"

    def test_the_latest_version_on_request(self, served: tuple[SharingServer, Path]) -> None:
        with ds.SharingClient(str(served[1])) as client:
            table = client.table("shop.sales.orders")
            scan = table.scan(timestamp=self.LATER, on_future="latest")
            assert scan.to_arrow().equals(table.to_arrow())
            assert scan.schema == table.scan().schema
            assert table.count(timestamp=self.LATER, on_future="latest", filters=[("id", "=", 1)]) == 1
            with pytest.raises(errors.BadRequestError, match="newer than the timestamp"):
                table.scan(timestamp="1999-01-01T00:00:00Z", on_future="latest").to_arrow()
            with pytest.raises(ValueError, match="on_future is 'now'"):
                table.scan(on_future="now")

    @pytest.mark.parametrize("load", [*LOADERS, ds.scan_polars, ds.load_as_duckdb])
    def test_of_functions(self, served: tuple[SharingServer, Path], load: Callable[..., Any]) -> None:
        url = f"{served[1]}#shop.sales.orders"
        rows = load(url, timestamp=self.LATER, on_future="latest")
        collected = rows.collect() if load is ds.scan_polars else rows
        assert len(collected) == 1

    def test_of_versions_and_metadata(self, served: tuple[SharingServer, Path]) -> None:
        url = f"{served[1]}#shop.sales.orders"
        with ds.SharingClient(str(served[1])) as client:
            table = client.table("shop.sales.orders")
            for load in (table.version, table.metadata, table.protocol):
                at: Any = {"starting_timestamp" if load == table.version else "timestamp": self.LATER}
                with pytest.raises(errors.BadRequestError, match=r"an earlier time|on_future='latest'"):
                    load(**at)
                latest = load() if load == table.version else load(version=0)
                assert load(**at, on_future="latest") == latest
                with pytest.raises(ValueError, match="on_future is 'now'"):
                    load(**at, on_future="now")
            assert table.snapshot(timestamp=self.LATER, on_future="latest").count() == table.count()
            assert table.version("1999-01-01T00:00:00Z", on_future="latest") == 0
        assert ds.get_table_version(url, self.LATER, on_future="latest") == 0

    def test_an_end_of_changes_needs_no_option(self, tmp_path: Path, serve: Callable[..., SharingServer]) -> None:
        """The end of a range is the last version at or before a time, whenever that is."""
        table = write_table(
            tmp_path / "t",
            [column("id", "long")],
            [File(rows=pa.table({"id": [1]}), name="a.parquet")],
            configuration={"delta.enableChangeDataFeed": "true"},
        )
        server = serve({"shop.sales.orders": table})
        with ds.SharingClient(server.profile) as client:
            changes = client.table("shop.sales.orders").changes(0, ending_timestamp=self.LATER)
            assert changes.to_arrow().num_rows == 1

    def test_not_without_history(self, tmp_path: Path, serve: Callable[..., SharingServer]) -> None:
        table = write_table(
            tmp_path / "t", [column("id", "long")], [File(rows=pa.table({"id": [1]}), name="a.parquet")]
        )
        server = serve({"shop.sales.orders": table}, options=ServerOptions(history=False))
        with ds.SharingClient(server.profile) as client:
            for time in (self.LATER, "2020-01-01T00:00:00Z"):
                scan = client.table("shop.sales.orders").scan(timestamp=time, on_future="latest")
                with pytest.raises(errors.BadRequestError, match="history is not shared"):
                    scan.to_arrow()


def test_a_table_without_a_change_data_feed(served: tuple[SharingServer, Path]) -> None:
    with pytest.raises(errors.BadRequestError, match=r"ask the provider to set .*delta\.enableChangeDataFeed"):
        ds.load_table_changes_as_pandas(f"{served[1]}#shop.sales.orders", starting_version=0)


MISFITS = [
    {"columns": ["nope"]},
    {"filters": [("nope", "=", 1)]},
    {"filters": [("id", "~", 1)]},
    {"filters": [("id", "=", "one")]},
    {"filters": "id + 1 = 2"},
]


class TestMisfitsNameTheTable:
    """Errors of columns and filters name the table, however its rows are requested."""

    WHAT = "table shop.sales.orders"

    def misfit(self, call: Callable[[], Any], subject: str = WHAT) -> None:
        with pytest.raises((errors.ColumnError, errors.FilterError)) as caught:
            call()
        assert caught.value.subject == subject
        assert str(caught.value).startswith(f"{subject}: ")
        assert str(caught.value).count(subject) == 1
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    @pytest.mark.parametrize("arguments", MISFITS)
    def test_of_scans(self, served: tuple[SharingServer, Path], arguments: dict[str, Any]) -> None:
        with ds.SharingClient(str(served[1])) as client:
            table = client.table("shop.sales.orders")
            scan = table.scan(**arguments)
            for call in (scan.to_arrow, scan.count, scan.replace(limit=0).to_pandas):
                self.misfit(call)
            for call in (scan.to_dataset, scan.to_duckdb, scan.to_polars_lazy):
                self.misfit(call)
            if "columns" in arguments:
                self.misfit(lambda: scan.schema)
        for load in LOADERS:
            self.misfit(lambda load=load: load(f"{served[1]}#shop.sales.orders", **arguments))

    @pytest.mark.parametrize("arguments", MISFITS)
    def test_of_local_tables(self, served: tuple[SharingServer, Path], arguments: dict[str, Any]) -> None:
        root = served[1].parent / "t"
        self.misfit(ds.DeltaLog.for_table(root).snapshot().scan(**arguments).to_arrow, f"the table in {root}")

    def test_of_changes(self, tmp_path: Path, serve: Callable[..., SharingServer]) -> None:
        file = File(rows=pa.table({"id": [1]}), name="a.parquet")
        feed = {"delta.enableChangeDataFeed": "true"}
        root = write_table(tmp_path / "t", [column("id", "long")], [file], configuration=feed)
        with ds.SharingClient(serve({"shop.sales.orders": root}).profile) as client:
            changes = client.table("shop.sales.orders").changes(0, columns=["nope"])
            self.misfit(changes.to_arrow)
            self.misfit(lambda: changes.schema)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"version": -1}, ValueError, "version is -1"),
        ({"version": 1.0}, TypeError, "version is an int"),
        ({"version": True}, TypeError, "version is an int"),
        ({"version": 0, "timestamp": "2024-01-01T00:00:00Z"}, ValueError, "together"),
        ({"timestamp": 5}, TypeError, "timestamp"),
        ({"timestamp": "yesterday"}, ValueError, "ISO 8601"),
        ({"limit": -5}, ValueError, "limit is -5"),
        ({"limit": "5"}, TypeError, "limit is an int"),
        ({"columns": "id"}, TypeError, r"\['id'\]"),
        ({"columns": [1]}, TypeError, "names, not int"),
    ],
)
def test_arguments_of_the_wrong_kind(
    served: tuple[SharingServer, Path], arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    for load in LOADERS:
        with pytest.raises(kind, match=words) as caught:
            load(f"{served[1]}#shop.sales.orders", **arguments)
        assert not isinstance(caught.value, errors.DeltaSharingError)


def test_unreachable_server_raises(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        options = ds.TransportOptions(api_attempts=2, backoff_base=timedelta(milliseconds=1))
        profile = {
            "shareCredentialsVersion": 1,
            "endpoint": f"http://127.0.0.1:{port}/delta-sharing",
            "bearerToken": "t",
        }
        with ds.SharingClient(profile, options=options) as client, pytest.raises(errors.TransportError) as caught:
            client.table("s.s.t").scan().to_arrow()
    assert "refused" in str(caught.value)
    assert "gave up after 2 attempts" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_endpoint_of_another_service_raises(served: tuple[SharingServer, Path], tmp_path: Path) -> None:
    server, _ = served
    elsewhere = server.profile | {"endpoint": server.endpoint.replace("/delta-sharing", "/wiki")}
    with ds.SharingClient(elsewhere) as client:
        for call in (client.table("shop.sales.orders").version, client.table("shop.sales.orders").to_arrow):
            with pytest.raises(errors.NotFoundError, match="Check the endpoint in the profile: there is"):
                call()
        with pytest.raises(errors.NotFoundError, match="Check the endpoint in the profile") as caught:
            client.list_shares()
        assert "404" in str(caught.value)
