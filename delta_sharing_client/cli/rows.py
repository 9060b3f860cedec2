"""Commands that read rows: `head`, `export` and `changes`."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

import delta_sharing_client as ds
from delta_sharing_client.cli.command import examples
from delta_sharing_client.cli.options import (
    FORMATS,
    LocalPath,
    Number,
    ServerCommand,
    catalog_option,
    columns_option,
    future_option,
    open_table,
    output_option,
    refuse,
    scan_options,
    table_argument,
)
from delta_sharing_client.cli.output import echo, show_rows, stdout_for

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
@click.option("-n", "rows", type=Number(0, example=10), default=10, show_default=True, help="Number of rows.")
@scan_options
@catalog_option
@output_option
def head(table_url: str, rows: int, catalog: str, output: str, **selection: Any) -> None:
    """Show the first rows of a table."""
    with open_table(table_url, catalog) as table:
        scan = table.scan(limit=rows, variant="json", **selection)
        if output == "csv":  # written as `export` writes it
            _save(scan, "-", "csv", overwrite=False)
            return
        found = scan.to_arrow()
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
@click.argument("target", metavar="FILE|-", type=LocalPath(allow_dash=True))
@_format_option
@scan_options
@click.option("--limit", type=Number(0, example=100), help="Maximum number of rows.")
@_overwrite_option
@catalog_option
def export(
    table_url: str,
    target: str | Path,
    file_format: str | None,
    limit: int | None,
    overwrite: bool,
    catalog: str,
    **selection: Any,
) -> None:
    """Write rows to a Parquet, CSV, JSON lines or Arrow IPC file, in bounded memory.

    FILE appears when it is complete. `-` is stdout, for CSV, JSON lines and the Arrow stream format.
    """
    with open_table(table_url, catalog) as table:
        _save(table.scan(limit=limit, **selection), target, file_format, overwrite)


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing changes config.share#retail.sales.orders --from 6",
        "delta-sharing changes config.share#retail.sales.orders --from 2024-01-31T00:00:00Z -o csv",
        "delta-sharing changes config.share#retail.sales.orders changes.parquet --from 6 --to 7",
    ),
)
@table_argument
@click.argument("target", metavar="[FILE|-]", type=LocalPath(allow_dash=True), required=False)
@click.option("--from", "start", metavar="VERSION|TIME", required=True, help="First version, or a time.")
@click.option("--to", "end", metavar="VERSION|TIME", help="Last version, or a time; the latest by default.")
@click.option("-n", "rows", type=Number(0, example=20), default=20, show_default=True, help="Rows to show.")
@columns_option
@future_option
@_format_option
@_overwrite_option
@output_option
def changes(
    table_url: str,
    target: str | Path | None,
    start: str,
    end: str | None,
    rows: int,
    columns: list[str] | None,
    on_future: Any,
    file_format: str | None,
    overwrite: bool,
    output: str,
) -> None:
    """Show the first changes of a range of versions, or write all of them to FILE, or with `-` to stdout.

    The range includes both ends. The table must be shared with its history and have a change data feed. With
    --on-future latest a range that starts after the last commit has no changes.
    """
    if target is None:
        refuse(("file_format", "overwrite"), "is for a FILE")
    else:
        refuse(("rows", "output"), "is for changes that are shown; a FILE holds all")
    from delta_sharing_client.frames.files import write_batches  # which imports pyarrow

    limits = {**_bound("starting", start), **({} if end is None else _bound("ending", end))}
    with open_table(table_url) as table:
        given = {"columns": columns, "commit_timestamp": "timestamp", "on_future": on_future}
        found = table.changes(**given, **limits)
        if target is not None:
            _save(found, target, file_format, overwrite)
            return
        first = _first_rows(found.replace(variant="json").to_record_batch_reader(), rows + 1)
    shown = first.slice(0, rows)
    if output == "csv":  # written as `export` writes it
        write_batches(iter(shown.to_batches()), shown.schema, stdout_for("csv"), "csv", stream=True)
    else:
        names = shown.column_names
        if output == "table":  # what changed first, because a terminal may not show all columns
            names = [*names[-3:], *names[:-3]]
        show_rows(names, shown.to_pylist(), output)
    if first.num_rows > rows:
        echo(f"There are more changes: -n shows more than {rows}, a FILE holds all.", err=True)


def _bound(side: str, text: str) -> dict[str, Any]:
    """Return the argument for one end of a range: digits are a version, anything else is a time."""
    if text.isascii() and text.isdigit():
        return {f"{side}_version": int(text)}
    if not text[:4].isdigit():
        raise click.BadParameter(
            f"{text!r} is neither a version, such as 6, nor a time, such as 2024-01-31T12:00:00Z",
            param_hint="--from" if side == "starting" else "--to",
        )
    return {f"{side}_timestamp": text}


def _first_rows(reader: pa.RecordBatchReader, limit: int) -> pa.Table:
    """Return the first rows."""
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    left = limit
    for batch in reader:
        batches.append(batch.slice(0, left))
        left -= batches[-1].num_rows
        if not left:
            break
    return pa.Table.from_batches(batches, reader.schema)


def _save(
    rows: ds.TableScan | ds.TableChanges, target: str | Path, file_format: str | None, overwrite: bool
) -> None:
    """Write rows to a file or, for ``-``, to stdout."""
    sink: str | Path | IO[bytes] = target
    if target == "-":
        refuse(("overwrite",), "is for a FILE; - is stdout")
        if file_format in (None, "parquet"):
            raise click.UsageError("stdout needs --format csv, jsonl or arrow; Parquet needs a file")
        sink = stdout_for(file_format)
    elif Path(target).is_file() and not overwrite:
        raise click.ClickException(f"{target} exists: give another file, or --overwrite to replace it")
    count = rows.to_file(sink, file_format, overwrite=overwrite)  # type: ignore[arg-type]  # click checks the format
    if target != "-":
        echo(f"{count:,} rows written to {target}", err=True)
