"""Arguments and options that several commands share; the client that they describe."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import datetime, timedelta
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

import delta_sharing_client as ds
from delta_sharing_client.cli.command import Command
from delta_sharing_client.paths import local_path

_OPTIONS: Final = "delta_sharing_client.options"
_TOKENS: Final = "delta_sharing_client.tokens"

F = TypeVar("F", bound=Callable[..., Any])

#: Formats of files, as of `TableScan.to_file`.
FORMATS: Final = ("parquet", "csv", "jsonl", "arrow")


class Number(click.IntRange):
    """A whole number of a range; the error for another text states the range and an example."""

    name = "number"

    def __init__(self, least: int, most: int | None = None, *, example: int) -> None:
        super().__init__(least, most)
        self._range = f"of {least} or more" if most is None else f"from {least} to {most}"
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; raises `click.BadParameter`."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"{str(value)!r} is not a whole number {self._range}, such as {self._example}.", param, ctx)


class LocalPath(click.Path):
    """The type of each argument and option of a command that takes a path of this machine.

    The path is read as by `delta_sharing_client.paths.local_path`: with `~` and `file:` URLs. The arguments are
    those of `click.Path`; `-` is returned as it is with `allow_dash`.
    """

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the path; raises `click.BadParameter`, for which click names the option."""
        if value == "-" and self.allow_dash:
            return value
        try:
            path = local_path(value, "it")
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        super().convert(path, param, ctx)  # checks what is there
        return path


def split_names(_: click.Context, __: click.Parameter, values: Iterable[str] | None) -> list[str] | None:
    """Split comma-separated names; None if there are none."""
    names = [name.strip() for value in values or () for name in value.split(",")]
    if "" in names:
        raise click.BadParameter("a name is empty; give names such as order_id,amount")
    return names or None


def _complete_table(_context: click.Context, _parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """Return the tables that a shell offers for a text, and files as long as it has no `#`."""
    start = text[: text.rfind("#") + 1]
    offered = [] if start else [CompletionItem(text, type="file")]
    try:
        # The shell waits for the names.
        quick = ds.TransportOptions(api_attempts=1, connect_timeout=timedelta(seconds=2))
        with (
            warnings.catch_warnings(action="ignore"),
            redirect_stderr(StringIO()),  # no terminal: pressing a key must not start a sign-in
            ds.SharingClient(start[:-1] or None, options=quick) as client,
        ):
            names = [start + table.full_name for table in client.iter_all_tables()]
    except ds.DeltaSharingError:
        names = []
    return offered + [CompletionItem(name) for name in names if name.startswith(text)]


table_argument: Final = click.argument("table_url", metavar="TABLE_URL", shell_complete=_complete_table)
output_option: Final = click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Form of the output: a table for people; JSON or CSV for programs.",
)
columns_option: Final = click.option(
    "--columns",
    metavar="NAME,...",
    multiple=True,
    callback=split_names,
    help="Columns, in this order; all by default.",
)
_version_option: Final = click.option(
    "--version", type=Number(0, example=3), help="Version of the table; the latest by default."
)
_timestamp_option: Final = click.option(
    "--timestamp", metavar="TIME", help="Time of the version, such as 2024-01-31T00:00:00Z."
)
future_option: Final = click.option(
    "--on-future",
    type=click.Choice(["raise", "latest"]),
    default="raise",
    show_default=True,
    help="For a time after the last commit: raise an error, or read up to the latest version.",
)
_filter_option: Final = click.option(
    "--filter",
    "filters",
    metavar="SQL",
    help="Row filter, such as \"region = 'Europe' AND amount > 5\" (extra sql).",
)


catalog_option: Final = click.option(
    "--catalog",
    type=click.Choice(["delta", "iceberg"]),
    default="delta",
    show_default=True,
    help="Read through the Delta Sharing protocol, or the provider's Iceberg catalog (extra iceberg).",
)


def version_options(command: F) -> F:
    """Add the options that select a version of the table."""

    @wraps(command)
    def checked(*args: Any, **given: Any) -> Any:
        if given["version"] is not None and given["timestamp"] is not None:
            raise click.UsageError("give one of --version and --timestamp")
        if given["timestamp"] is None:
            refuse(("on_future",), "is for a --timestamp")
        return command(*args, **given)

    return cast(F, _version_option(_timestamp_option(future_option(checked))))


def scan_options(command: F) -> F:
    """Add the options that select rows and columns of one version."""
    return columns_option(_filter_option(version_options(command)))


class ServerCommand(Command):
    """A command that sends requests to the sharing server, with the options for its client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["--option"],
                metavar="NAME=VALUE",
                multiple=True,
                expose_value=False,
                callback=_remember_options,
                help="A transport option, such as read_timeout=90s; may be repeated.",
            ),
            click.Option(
                ["--token-command"],
                metavar="COMMAND",
                expose_value=False,
                callback=_remember_token_command,
                help="Command that prints a bearer token, instead of the token of the profile.",
            ),
        ]


def _remember_options(context: click.Context, _: click.Parameter, values: tuple[str, ...]) -> None:
    texts = dict(value.partition("=")[::2] for value in values)
    context.find_root().meta[_OPTIONS] = ds.TransportOptions.from_texts(texts)


def _remember_token_command(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value:
        context.find_root().meta[_TOKENS] = lambda: _token_of(value)


def _token_of(command: str) -> tuple[str, datetime | None]:
    """Run a command, without a shell; return the token that it prints, and its expiration if it prints JSON."""
    try:
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise ValueError(f"the token command cannot be run: {error.strerror}: {error.filename}") from None
    if done.returncode:
        raise ValueError(f"the token command ended with exit code {done.returncode}")
    text = done.stdout.strip()
    if not text.startswith("{"):
        return text, None
    try:
        answer = json.loads(text)
        expires = answer.get("expirationTime")
        return answer["bearerToken"], None if expires is None else datetime.fromisoformat(expires)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "the token command printed JSON that is not as "
            '{"bearerToken": "...", "expirationTime": "2030-01-31T00:00:00Z"}'
        ) from None


def refuse(names: Iterable[str], problem: str) -> None:
    """Raise a usage error for the first of some options that is given on the command line."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if parameter.name in names and given:
            raise click.UsageError(f"{max(parameter.opts, key=len)} {problem}")


def transport_options() -> ds.TransportOptions | None:
    """Return the transport options of the command, None if it has none."""
    found: ds.TransportOptions | None = click.get_current_context().find_root().meta.get(_OPTIONS)
    return found


def connect(profile: str | None) -> ds.SharingClient:
    """Return a client for a profile, None for that of the environment, with the options of the command."""
    meta = click.get_current_context().find_root().meta
    return ds.SharingClient(profile or None, options=transport_options(), credential_provider=meta.get(_TOKENS))


@contextmanager
def open_table(url: str, catalog: str = "delta") -> Iterator[ds.SharedTable]:
    """Open the table of a URL, of the Iceberg catalog if that is chosen; closes its connections at the end."""
    profile, name = ds.Table.split_url(url)
    if profile is None and (name.endswith((".share", ".json")) or Path(name).is_file()):
        raise click.UsageError(
            f"{name} is a profile and names no table: give {name}#SHARE.SCHEMA.TABLE; "
            f"delta-sharing ls {name} --recursive lists the tables"
        )
    table = ds.Table.parse(name)
    with connect(profile) as client:
        yield (client.iceberg if catalog == "iceberg" else client).table(table)
