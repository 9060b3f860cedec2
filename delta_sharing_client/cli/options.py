"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

import delta_sharing_client as ds

F = TypeVar("F", bound=Callable[..., Any])


def _split(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    """Split comma-separated names; None if there are none."""
    names = [name.strip() for value in values for name in value.split(",")]
    return names or None


table_argument: Final = click.argument("table_url", metavar="TABLE_URL")
output_option: Final = click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Form of the output: a table for people; JSON or CSV for programs.",
)
columns_option: Final = click.option(
    "--columns", metavar="NAME,...", multiple=True, callback=_split, help="Columns, in this order; all by default."
)
_version_option: Final = click.option(
    "--version", type=click.IntRange(min=0), help="Version of the table; the latest by default."
)
_timestamp_option: Final = click.option(
    "--timestamp", metavar="TIME", help="Time of the version, such as 2024-01-31T00:00:00Z."
)
_filter_option: Final = click.option(
    "--filter",
    "filters",
    metavar="SQL",
    help="Row filter, such as \"region = 'Europe' AND amount > 5\" (extra sql).",
)


def version_options(command: F) -> F:
    """Add the options that select a version of the table."""
    return _version_option(_timestamp_option(command))


def scan_options(command: F) -> F:
    """Add the options that select rows and columns of one version."""
    return columns_option(_filter_option(version_options(command)))


def split_url(text: str) -> tuple[str | None, str]:
    """Return the profile, None for that of the environment, and the name after the last `#`."""
    profile, _, name = text.strip().rpartition("#")
    return profile or None, name


@contextmanager
def open_table(url: str) -> Iterator[ds.SharedTable]:
    """Open the table of a URL; closes its connections at the end."""
    profile, name = split_url(url)
    table = ds.Table.parse(name)
    with ds.SharingClient(profile) as client:
        yield client.table(table)
