"""Arguments and options of commands that take a path of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command_runs import run

from delta_sharing_client.cli.app import cli
from delta_sharing_client.cli.options import LocalPath
from delta_sharing_client.server import SharingServer

#: Texts that are no paths. PROFILE and TABLE_URL may be URLs; `load_profile` reads them.
TEXTS = {
    *("TABLE_URL", "[PROFILE]", "PROFILE[#SHARE[.SCHEMA]]", "NAME=VALUE", "COMMAND", "NAME,...", "SQL"),
    *("TIME", "VERSION|TIME", "snapshot|latest|VERSION", "TABLE", "HOST"),
}


def parameters(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """The parameters of a command and of those below it."""
    for parameter in command.params:
        yield f"{path} {parameter.name}".strip(), parameter
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from parameters(below, f"{path} {name}")


PATHS = {name: found for name, found in parameters(cli) if isinstance(found.type, LocalPath)}


@pytest.fixture
def home(profile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    return tmp_path / "home"


def test_each_text_of_a_command_is_a_path_of_this_machine_or_listed_as_none() -> None:
    texts = {
        name: found.metavar or f"{found.type}"
        for name, found in parameters(cli)
        if isinstance(found.type, click.types.StringParamType | click.Path) and name not in PATHS
    }
    assert {name: text for name, text in texts.items() if text not in TEXTS} == {}
    assert set(PATHS) == {
        *("export target", "changes target", "mirror directory"),
        *("pull checkpoint", "pull files", "pull delta", "pull duckdb", "pull sqlite"),
        *("serve directory", "serve profile", "serve token_file"),
    }


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_refused_or_expanded(home: Path, name: str) -> None:
    parameter = PATHS[name]
    context = click.Context(cli.commands[name.partition(" ")[0]])
    (home / "place").mkdir()
    for text in ("~/place", (home / "place").as_uri(), str(home / "place")):
        assert parameter.process_value(context, text) == home / "place"
    for text in (
        "s3://bucket/place",
        "abfss://c@a/x",
        "dbfs:/place",
        "",
        "~nobody-of-this-name/x",
        "file://host/x",
    ):
        with pytest.raises(click.BadParameter, match=r"^it(:| is| has| begins)") as caught:
            parameter.process_value(context, text)
        assert caught.value.param is parameter


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["pull", "--checkpoint", "p", "--delta", "s3://bucket/d"], "'--delta'"),
        (["pull", "--checkpoint", "p", "--files", "s3://bucket/d"], "'--files'"),
        (["pull", "--checkpoint", "s3://bucket/p", "--files", "out"], "'--checkpoint'"),
        (["pull", "--checkpoint", "p", "--sqlite", "gs://bucket/d"], "'--sqlite'"),
        (["pull", "--checkpoint", "p", "--duckdb", "https://host/d"], "'--duckdb'"),
        (["mirror", "abfss://c@a/x"], "'DIR'"),
        (["export", "s3://bucket/x.parquet"], "'FILE|-'"),
        (["changes", "s3://bucket/x.parquet", "--from", "0"], "'[FILE|-]'"),
    ],
)
def test_a_target_in_a_store_is_refused_before_any_request(
    server: SharingServer, orders: str, arguments: list[str], named: str
) -> None:
    server.reset_requests()
    error = run(arguments[0], orders, *arguments[1:], code=2).stderr
    assert f"Error: Invalid value for {named}: it has the scheme " in error
    assert "which is not supported; it takes a path of this machine, or its file: URL." in error
    assert server.requests == []
    assert list(Path().iterdir()) == []


def test_targets_in_the_home_directory(home: Path, orders: str, customers: str) -> None:
    run("mirror", customers, "~/mirror")
    run("export", customers, "~/rows.csv")
    run("pull", orders, "--checkpoint", "~/p", "--files", (home / "a b").as_uri(), "--start", "6")
    assert (home / "mirror" / "_delta_log").is_dir()
    assert (home / "rows.csv").is_file()
    assert (home / "p").is_file()
    assert len(list((home / "a b").iterdir())) == 1
    assert list(Path().iterdir()) == []


def test_duckdb_s_own_prefixes(server: SharingServer, orders: str) -> None:
    server.reset_requests()
    error = run("pull", orders, "--checkpoint", "p", "--duckdb", "md:shop", code=2).stderr
    assert "the prefix md:, which names an extension of DuckDB" in error
    assert server.requests == []
