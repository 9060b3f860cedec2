"""Commands that read rows: `head`, `export` and `changes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from delta_sharing_client.cli.command import examples
from delta_sharing_client.cli.files import FORMATS, format_of, write_reader
from delta_sharing_client.cli.options import (
    ServerCommand,
    columns_option,
    open_table,
    output_option,
    scan_options,
    table_argument,
)
from delta_sharing_client.cli.output import show_rows

if TYPE_CHECKING:
    import pyarrow as pa

_format_option = click.option(
    "--format", "file_format", type=click.Choice(FORMATS), help="Format of the file; by default that of its name."
)
_overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an existing file.")


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing head config.share#retail.sales.orders",
        "delta-sharing head config.share#retail.sales.orders -n 3 --columns order_id,amount",
        "delta-sharing head config.share#retail.sales.orders --filter \"region = 'Europe'\" --output json",
    ),
)
@table_argument
@click.option("-n", "rows", type=click.IntRange(min=0), default=10, show_default=True, help="Number of rows.")
@scan_options
@output_option
def head(table_url: str, rows: int, output: str, **selection: Any) -> None:
    """Show the first rows of a table."""
    with open_table(table_url) as table:
        found = table.scan(limit=rows, variant="json", **selection).to_arrow()
    show_rows(found.column_names, found.to_pylist(), output)


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing export config.share#retail.sales.orders orders.parquet",
        "delta-sharing export config.share#retail.sales.orders europe.csv --filter \"region = 'Europe'\"",
        "delta-sharing export config.share#retail.sales.orders - --format jsonl | gzip > orders.jsonl.gz",
    ),
)
@table_argument
@click.argument("target", metavar="FILE|-")
@_format_option
@scan_options
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows.")
@_overwrite_option
def export(
    table_url: str, target: str, file_format: str | None, limit: int | None, overwrite: bool, **selection: Any
) -> None:
    """Write rows to a Parquet, CSV, JSON lines or Arrow IPC file, in bounded memory.

    FILE appears when it is complete. `-` is stdout, for CSV, JSON lines and the Arrow stream format.
    """
    name = format_of(target, file_format)
    with open_table(table_url) as table:
        scan = table.scan(limit=limit, variant=_variant(name), **selection)
        _save(scan.to_record_batch_reader(), target, name, overwrite)


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing changes config.share#retail.sales.orders --from 6",
        "delta-sharing changes config.share#retail.sales.orders --from 2024-01-31T00:00:00Z -o csv",
        "delta-sharing changes config.share#retail.sales.orders changes.parquet --from 6 --to 7",
    ),
)
@table_argument
@click.argument("target", metavar="[FILE|-]", required=False)
@click.option("--from", "start", metavar="VERSION|TIME", required=True, help="First version, or a time.")
@click.option("--to", "end", metavar="VERSION|TIME", help="Last version, or a time; the latest by default.")
@click.option("-n", "rows", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to show.")
@columns_option
@_format_option
@_overwrite_option
@output_option
def changes(
    table_url: str,
    target: str | None,
    start: str,
    end: str | None,
    rows: int,
    columns: list[str] | None,
    file_format: str | None,
    overwrite: bool,
    output: str,
) -> None:
    """Show the first changes of a range of versions, or write all of them to FILE, or with `-` to stdout.

    The range includes both ends. The table must be shared with its history and have a change data feed.
    """
    name = "" if target is None else format_of(target, file_format)
    limits = {**_bound("starting", start), **({} if end is None else _bound("ending", end))}
    with open_table(table_url) as table:
        variant = "json" if target is None else _variant(name)
        found = table.changes(columns=columns, commit_timestamp="timestamp", variant=variant, **limits)
        reader = found.to_record_batch_reader()
        if target is not None:
            _save(reader, target, name, overwrite)
            return
        first, more = _first_rows(reader, rows)
    names = reader.schema.names
    if output == "table":  # what changed first, because a terminal may not show all columns
        names = [*names[-3:], *names[:-3]]
    show_rows(names, first, output)
    if more:
        click.echo(f"There are more changes: -n shows more than {rows}, a FILE holds all.", err=True)


def _bound(side: str, text: str) -> dict[str, Any]:
    """Return the argument for one end of a range: digits are a version, anything else is a time."""
    return {f"{side}_version": int(text)} if text.isascii() and text.isdigit() else {f"{side}_timestamp": text}


def _first_rows(reader: pa.RecordBatchReader, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the first rows, and whether there are more."""
    rows: list[dict[str, Any]] = []
    for batch in reader:
        rows += batch.slice(0, limit + 1 - len(rows)).to_pylist()
        if len(rows) > limit:
            break
    return rows[:limit], len(rows) > limit


def _variant(name: str) -> Literal["struct", "json"]:
    return "json" if name in ("csv", "jsonl") else "struct"


def _save(reader: pa.RecordBatchReader, target: str, name: str, overwrite: bool) -> None:
    rows = write_reader(reader, target, name, overwrite=overwrite)
    if target != "-":
        click.echo(f"{rows:,} rows written to {target}", err=True)
