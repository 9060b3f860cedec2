"""`local_path`, and that every public parameter that takes a path follows it.

The parameters are found by their annotations and names: one that is not listed in `CASES` fails a test.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import inspect
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.official import protocol
from delta_sharing_client.paths import local_path
from delta_sharing_client.server import SharingServer, write_sample_tables
from delta_sharing_client.server import __main__ as command
from delta_sharing_client.spark.option_parsers import ALL_OPTIONS
from delta_sharing_client.testing.table_server import TableServer

PACKAGE = Path(ds.__file__).parent
ELSEWHERE = (
    *("s3://bucket/place", "S3A://bucket/place", "gs://b/p", "abfss://c@a.dfs.core.windows.net/x", "memory://x"),
    *("dbfs:/mnt/place", "hdfs:/place", "https://host/place?sig=secret", " s3://bucket/place", "s3:\\bucket"),
    *("simplecache::s3://bucket/place", Path("s3://bucket/place")),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory; the current directory is another one."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


class TestLocalPath:
    @pytest.mark.parametrize("path", ELSEWHERE)
    def test_a_url_is_refused(self, path: str | Path) -> None:
        with pytest.raises(
            ValueError, match=r"^target has the scheme \w+:, .*; it takes a .*file: URL$"
        ) as caught:
            local_path(path, "target")
        assert "secret" not in str(caught.value)

    def test_text_and_paths_are_returned(self, home: Path) -> None:
        names = (
            "a",
            "a/b.csv",
            "/a/b",
            "../a",
            "C:\\x",
            "C:/x",
            "c:x",
            "2024-01-01T10:30.csv",
            "orders:2024",
            "a b",
            "a~",
        )
        for text in names:
            assert local_path(text, "path") == local_path(Path(text), "path") == Path(text)

    def test_the_home_directory_is_expanded(self, home: Path) -> None:
        assert local_path("~", "path") == home
        assert local_path("~/a b", "path") == local_path(Path("~/a b"), "path") == home / "a b"
        with pytest.raises(ValueError, match=r"^path begins with '~nobody-of-this-name', and this machine has no"):
            local_path("~nobody-of-this-name/a", "path")

    @pytest.mark.parametrize(
        "url", ["file:///a%20b/c%23d%C3%A9", "file://localhost/a b/c%23dé", "FILE:/a%20b/c%23d%c3%A9"]
    )
    def test_a_file_url_is_decoded(self, url: str) -> None:
        assert local_path(url, "path") == Path("/a b/c#dé")

    def test_names_that_are_not_utf_8_are_kept(self) -> None:
        assert os.fsencode(local_path("file:///a%FF", "path")) == b"/a\xff"
        assert local_path(Path(os.fsdecode(b"/a\xff")).as_uri(), "path") == Path(os.fsdecode(b"/a\xff"))

    @pytest.mark.parametrize(
        "url",
        [
            *("file://host/a", "file://a/b", "file:a", "file:", "file://", "file://~/a", "file:~/a", "file://[/a"),
            *("file:///a?b", "file:///a#b", "file:///a%00b"),
        ],
    )
    def test_other_file_urls_are_refused(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"^path (is|has) "):
            local_path(url, "path")

    @pytest.mark.parametrize("path", ["", " ", "a\0b"])
    def test_texts_without_a_path_are_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match=r"^path (is empty|has a null character); it takes a path"):
            local_path(path, "path")

    @pytest.mark.parametrize("path", [b"a", None, 5, ["a"], object(), os.fsencode])
    def test_other_types_are_refused(self, path: Any) -> None:
        with pytest.raises(TypeError, match=r"^path is a str or a path, not "):
            local_path(path, "path")

    @pytest.mark.parametrize("text", ["./~", "./~/a", "./~x", "./s3:/a", "./s3://a", "a", "~/a", "file:///a"])
    def test_a_result_is_returned_unchanged(self, home: Path, text: str) -> None:
        path = local_path(text, "path")
        assert path.resolve() == Path(os.path.realpath(re.sub(r"^~", str(home), text.removeprefix("file://"))))
        assert local_path(path, "path") == local_path(str(path), "path") == path


#: Parameters that may take a path, by their annotation, or by a name and a type that does not exclude it.
ANNOTATIONS = re.compile(r"PathLike|ProfileSource|\bPath\b")
NAMES = re.compile(
    r"(^|_)(paths?|directory|folder|dir|file|location|place|root|database|mirror|checkpoint|target|url|source"
    r"|profile|bundle|certificate|tables|data)$"
)
TYPES = re.compile(r"\bstr\b|\bAny\b")
#: Those that take none: names of things, and what a server said.
NO_PATHS = {
    "Metadata location",
    "Profile source",
    "Profile.from_dict source",
    "Profile.from_json source",
    "RecordedRequest path",
    "SharedTable.poll_changes target",
    "Table location",
    "Table.split_url url",
    "create_views database",
    "redact_url url",
}
MODULES = ("delta_sharing_client", "delta_sharing_client.testing", "delta_sharing_client.official.protocol")


def functions(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public functions of a module, and the constructors and methods of its classes."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    for value in (getattr(module, name) for name in names):
        if isinstance(value, ModuleType) and value.__name__.startswith("delta_sharing_client."):
            yield from functions(value)
        elif not getattr(value, "__module__", "").startswith("delta_sharing_client"):
            continue
        elif inspect.isfunction(value):
            yield value.__qualname__, value
        elif inspect.isclass(value) and not issubclass(value, BaseException):
            yield value.__name__, getattr(value, "__init__")  # noqa: B009  # mypy: unsound for an instance
            for name in (name for name in dir(value) if not name.startswith("_")):
                member = inspect.getattr_static(value, name)
                member = getattr(member, "__func__", member)
                if inspect.isfunction(member) and member.__module__.startswith("delta_sharing_client"):
                    yield member.__qualname__, member


def discovered() -> set[str]:
    found = set()
    for module in MODULES:
        for name, function in functions(importlib.import_module(module)):
            if inspect.isfunction(function):
                for parameter in inspect.signature(function).parameters.values():
                    kind = str(parameter.annotation)
                    if ANNOTATIONS.search(kind) or (NAMES.search(parameter.name) and TYPES.search(kind)):
                        found.add(f"{name} {parameter.name}")
    return found - NO_PATHS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableServer]:
    with TableServer(tmp_path_factory.mktemp("server")) as running:
        running.share("s.s.t", {"a": [1, 2]})
        yield running


@dataclass
class Room:
    """What a case needs: a server, its table, and the path that the case is to use."""

    server: TableServer
    place: Path

    @property
    def url(self) -> str:
        return self.server.url("s.s.t")

    @property
    def table(self) -> ds.SharedTable:
        return ds.SharingClient(self.server.profile).table("s.s.t")

    def copy(self) -> None:
        """Put a Delta table there."""
        shutil.copytree(self.server.path("s.s.t"), self.place)

    def store(self, sink: ds.sinks.Sink) -> None:
        """Store a batch."""
        with sink, self.table.poll_changes(starting_version="snapshot") as poller:
            batch = poller.pull()
            assert batch is not None
            sink.write(batch)

    def profile(self) -> None:
        """Put a profile there."""
        self.server.write_profile(self.place)


def poll(room: Room, path: Any) -> None:
    with room.table.poll_changes(path, starting_version="snapshot") as poller:
        batch = poller.pull()
        assert batch is not None
        batch.commit()


def invalidate_cache(room: Room, path: Any) -> None:
    room.copy()
    before = ds.DeltaLog.for_table(room.place)
    assert ds.DeltaLog.for_table(room.place) is before
    ds.DeltaLog.invalidate_cache(path)
    assert ds.DeltaLog.for_table(room.place) is not before


def serve(room: Room, path: Any) -> None:
    room.place.mkdir()
    shutil.copytree(room.server.path("s.s.t"), room.place / "t")
    assert SharingServer(path).tables == ("local.default.t",)
    assert SharingServer({"a.b.c": room.place / "t"}).tables == ("a.b.c",)


def share(room: Room, path: Any) -> None:
    room.copy()
    TableServer(room.place.parent).share("s.s.t", path)


def transport(name: str) -> Callable[[Room, Any], None]:
    def use(room: Room, path: Any) -> None:
        room.place.touch()
        options = ds.TransportOptions(**{name: path})
        assert Path(getattr(options, name)) == room.place
        assert dataclasses.replace(options) == options
        if name == "client_certificate":
            key = dataclasses.replace(options, client_certificate=(path, path)).client_certificate
            assert key == (str(room.place), str(room.place))

    return use


def with_profile(function: Callable[..., Any], match: str | None = None) -> Callable[[Room, Any], None]:
    """A case of a function whose first argument is a profile; a profile that was read may be of the wrong type."""

    def use(room: Room, path: Any) -> None:
        room.profile()
        try:
            function(path)
        except ds.errors.ProfileError as error:
            if match is None or match not in str(error):
                raise

    return use


def with_url(function: Callable[..., Any]) -> Callable[[Room, Any], None]:
    def use(room: Room, path: Any) -> None:
        room.profile()
        function(f"{path}#s.s.t" if isinstance(path, str) else path)

    return use


WRITES: dict[str, Callable[[Room, Any], Any]] = {
    "ChangePoller checkpoint": poll,
    "DeltaSink path": lambda room, path: room.store(ds.sinks.DeltaSink(path)),
    "DuckDBSink database": lambda room, path: room.store(ds.sinks.DuckDBSink(path, "t")),
    "SQLiteSink database": lambda room, path: room.store(ds.sinks.SQLiteSink(path, "t")),
    "Scan.to_csv target": lambda room, path: room.table.scan().to_csv(path),
    "Scan.to_file target": lambda room, path: room.table.scan().to_file(path, "jsonl"),
    "Scan.to_parquet target": lambda room, path: room.table.changes(0).to_parquet(path),
    "SharedTable.mirror directory": lambda room, path: room.table.mirror(path).sync(),
    "SharedTable.poll_changes checkpoint": poll,
    "SharingServer tables": serve,
    "SharingServer.write_profile path": lambda room, path: room.server.write_profile(path),
    "TableChanges.materialize directory": lambda room, path: room.table.changes(0).materialize(path),
    "TableRows.to_csv target": lambda room, path: room.table.to_csv(path),
    "TableRows.to_file target": lambda room, path: room.table.to_file(path, "arrow"),
    "TableRows.to_parquet target": lambda room, path: room.table.to_parquet(path),
    "TableScan.materialize directory": lambda room, path: room.table.scan().materialize(path),
    "TableScan.mirrored directory": lambda room, path: room.table.scan().mirrored(path),
    "TableServer directory": lambda _, path: TableServer(path).share("s.s.t", {"a": [1]}),
    "TableServer.share data": share,
    "TransportOptions ca_bundle": transport("ca_bundle"),
    "TransportOptions client_certificate": transport("client_certificate"),
    "load_as_arrow mirror": lambda room, path: ds.load_as_arrow(room.url, mirror=path),
    "load_as_pandas mirror": lambda room, path: ds.load_as_pandas(room.url, mirror=path),
    "load_as_spark mirror": lambda room, path: ds.load_as_spark(room.url, mirror=path),
    "write_sample_tables directory": lambda _, path: write_sample_tables(path),
}
#: Logs may be in an object store.
LOGS: dict[str, Callable[[Room, Any], Any]] = {
    "DeltaLog table": lambda room, path: ds.DeltaLog(path).snapshot() and room.copy(),
    "DeltaLog.for_table path": lambda room, path: ds.DeltaLog.for_table(path).snapshot() and room.copy(),
    "DeltaLog.invalidate_cache path": invalidate_cache,
}
#: Profiles may be at any URL that fsspec reads.
PROFILES: dict[str, Callable[[Room, Any], Any]] = {
    "DeltaSharingProfile.read_from_file profile": with_profile(protocol.DeltaSharingProfile.read_from_file),
    "SharingClient profile": with_profile(lambda path: ds.SharingClient(path).close()),
    "create_views profile": with_profile(lambda path: ds.spark.create_views(None, path)),
    "load_as_spark delta_sharing_profile": with_profile(lambda path: ds.load_as_spark("s.s.t", None, None, path)),
    "load_table_changes_as_spark delta_sharing_profile": with_profile(
        lambda path: ds.load_table_changes_as_spark("s.s.t", 0, delta_sharing_profile=path)
    ),
    "sign_in profile": with_profile(ds.sign_in, "of type bearer_token"),
    "sign_out profile": with_profile(ds.sign_out, "of type bearer_token"),
    "signed_in profile": with_profile(ds.signed_in, "of type bearer_token"),
}
URLS: dict[str, Callable[[Room, Any], Any]] = {
    f"{name} url": with_url(getattr(ds, name))
    for name in (
        *("get_table_metadata", "get_table_protocol", "get_table_version", "load_as_arrow", "load_as_duckdb"),
        *("load_as_pandas", "load_as_polars", "load_as_spark", "scan_polars"),
    )
} | {
    f"{name} url": with_url(functools.partial(getattr(ds, name), starting_version=0))
    for name in (*("load_table_changes_as_arrow", "load_table_changes_as_pandas", "load_table_changes_as_spark"),)
}
#: These start Spark once the path is known to be one; `tests/spark` reads and writes with them.
SPARK = re.compile("spark|create_views")


@pytest.fixture
def room(server: TableServer, home: Path) -> Room:
    return Room(server, home / "place")


def test_each_parameter_that_takes_a_path_is_a_case() -> None:
    assert discovered() == {*WRITES, *LOGS, *PROFILES, *URLS}


@pytest.mark.parametrize("name", [*WRITES, *LOGS])
def test_a_url_that_is_not_supported_is_refused_before_anything_is_read(room: Room, name: str) -> None:
    argument = name.rpartition(" ")[2]
    use = (WRITES | LOGS)[name]
    room.server.reset_requests()
    for path in ("dbfs:/mnt/place", Path("s3://bucket/place"), *(ELSEWHERE if name in WRITES else ())):
        with pytest.raises(ValueError, match=rf"^{argument} has the scheme \w+:, .*it takes a .* of (this|a)"):
            use(room, path)
        shutil.rmtree(room.place, ignore_errors=True)
    for path in ("", "a\0b", "file://host/place", "~nobody-of-this-name/place"):
        with pytest.raises(ValueError, match=rf"^{argument}(:| is| has| begins)"):
            use(room, path)
        shutil.rmtree(room.place, ignore_errors=True)
    for path in (b"place", 5):
        with pytest.raises(TypeError):
            use(room, path)
        shutil.rmtree(room.place, ignore_errors=True)
    assert room.server.requests == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", [*PROFILES, *URLS])
def test_a_profile_at_an_unknown_url_is_refused(room: Room, name: str) -> None:
    use = (PROFILES | URLS)[name]
    room.server.reset_requests()
    for path in ("nosuch://host/place", "dbfs:/mnt/place", *([Path("s3://b/place")] if name in PROFILES else ())):
        with pytest.raises(
            ds.errors.ProfileError, match=r"scheme.*a path of this machine, its file: URL, or the text"
        ):
            use(room, path)
    with pytest.raises((TypeError, ds.errors.TableNameError)):
        use(room, b"place")
    assert room.server.requests == []


@pytest.mark.parametrize(
    "name", [name for name in (*WRITES, *LOGS, *PROFILES, *URLS) if not SPARK.search(name.rpartition(" ")[0])]
)
def test_text_paths_file_urls_and_the_home_directory_are_one_path(room: Room, name: str) -> None:
    use = (WRITES | LOGS | PROFILES | URLS)[name]
    texts = "~/place", room.place.as_uri(), str(room.place)
    for path in (*texts, *(() if name in URLS else (Path("~/place"), room.place))):
        use(room, path)
        assert room.place.exists()
        for left in room.place.parent.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    assert list(Path().iterdir()) == []


def test_duckdb_has_prefixes_of_its_own(home: Path) -> None:
    for database in ("md:sales", "sqlite:a.db", Path("motherduck:x")):
        with pytest.raises(ValueError, match=r"^database has the prefix \w+:, .* or a connection"):
            ds.sinks.DuckDBSink(database, "t")


def test_texts_of_options(home: Path) -> None:
    for name in ("ca_bundle", "client_certificate"):
        assert getattr(ds.TransportOptions.from_texts({name: "~/a.pem"}), name) == str(home / "a.pem")
        with pytest.raises(
            ds.errors.ConfigurationError, match=f"the option {name} is malformed: it has the scheme s3:"
        ):
            ds.TransportOptions.from_texts({name: "s3://bucket/a.pem"})
    with pytest.raises(ds.errors.ConfigurationError, match=r"the option client_certificate .* has the scheme s3:"):
        ds.TransportOptions.from_texts({"client_certificate": json.dumps(["a.pem", "s3://bucket/a.pem"])})


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_bundle_of_the_environment(room: Room, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "~/missing.pem")
    missing = re.escape(repr(str(room.place.with_name("missing.pem"))))
    with pytest.raises(ValueError, match=f"^the CA bundle {missing} does not exist"):
        ds.SharingClient(room.server.profile)
    monkeypatch.setenv(name, "s3://bucket/ca.pem")
    with pytest.raises(ValueError, match=f"^{name} has the scheme s3:"):
        ds.SharingClient(room.server.profile)


def test_options_of_spark_s_data_source(home: Path) -> None:
    paths = {name for name in ALL_OPTIONS if re.search("(?i)path|location|dir|folder|file(?!s|deletion)", name)}
    assert paths == {"path", "schemaTrackingLocation"}, "`path` is the URL of a table"
    parse, _ = ALL_OPTIONS["schemaTrackingLocation"]
    assert parse("~/schemas") == parse((home / "schemas").as_uri()) == home / "schemas"
    for text in ("dbfs:/schemas", "s3://bucket/schemas", "schemas", ""):
        with pytest.raises(ValueError, match="it takes an absolute path of a folder that the driver can write to"):
            parse(text)


def test_arguments_of_the_server_s_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [action for action in command._parser()._actions if action.metavar in ("DIR", "PATH", "FILE")]
    assert {action.dest for action in paths} == {"directory", "profile", "token_file"}
    for action in paths:
        assert callable(action.type)
        assert action.type("~/a") == home / "a"
        with pytest.raises(argparse.ArgumentTypeError, match="it has the scheme s3:"):
            action.type("s3://bucket/a")
    with pytest.raises(SystemExit):
        command.main(["s3://bucket/warehouse"])
    assert "argument DIR: it has the scheme s3:, which is not supported" in capsys.readouterr().err


def test_no_other_module_expands_a_home_directory_or_reads_a_file_url() -> None:
    users = {
        str(module.relative_to(PACKAGE))
        for module in PACKAGE.rglob("*.py")
        if re.search(r"\b(expanduser|url2pathname)\b", module.read_text("utf-8"))
    }
    assert users == {"paths.py"}
