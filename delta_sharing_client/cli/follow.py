"""Commands for jobs and servers: `pull`, `mirror` and `serve`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

import delta_sharing_client as ds
from delta_sharing_client.cli.command import Command, examples
from delta_sharing_client.cli.options import (
    FORMATS,
    LocalPath,
    Number,
    ServerCommand,
    open_table,
    output_option,
    refuse,
    split_names,
    table_argument,
)
from delta_sharing_client.cli.output import echo, show_facts, show_records


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing pull config.share#retail.sales.orders --checkpoint orders.checkpoint --files changes",
        "delta-sharing pull config.share#retail.sales.orders --checkpoint copy.checkpoint \\",
        "    --duckdb shop.duckdb --into orders --mode apply --keys order_id",
    ),
)
@table_argument
@click.option(
    "--checkpoint", metavar="FILE", type=LocalPath(), required=True, help="File that stores the position."
)
@click.option(
    "--start",
    metavar="snapshot|latest|VERSION",
    default="snapshot",
    show_default=True,
    help="Where to start without a position: the whole table, the next version, or a version.",
)
@click.option("--files", metavar="DIR", type=LocalPath(), help="Write one file per batch into this directory.")
@click.option(
    "--delta", metavar="DIR", type=LocalPath(), help="Store the batches in this Delta table (extra delta)."
)
@click.option(
    "--duckdb", metavar="FILE", type=LocalPath(), help="Store the batches in this DuckDB database (extra duckdb)."
)
@click.option("--sqlite", metavar="FILE", type=LocalPath(), help="Store the batches in this SQLite database.")
@click.option("--into", metavar="TABLE", help="Table of the database; by default the name of the shared table.")
@click.option("--mode", type=click.Choice(["append", "apply"]), default="append", show_default=True)
@click.option(
    "--keys", metavar="NAME,...", multiple=True, callback=split_names, help="Key columns, for --mode apply."
)
@click.option("--format", "file_format", type=click.Choice(FORMATS), default="parquet", show_default=True)
@click.option("--rebind", is_flag=True, help="Go on with a checkpoint that was used for another target.")
@output_option
def pull(
    table_url: str,
    checkpoint: Path,
    start: str,
    file_format: str,
    rebind: bool,
    output: str,
    **target: Any,
) -> None:
    """Store the changes since the last pull, then end: for cron.

    Each change is stored exactly once, also if a pull was interrupted: a file has the versions of its batch in its
    name, and a database or Delta table stores them with the rows. `append` stores each change as a row; `apply`
    makes the changes to a copy of the table. A checkpoint is for one table and one target. The output has a line
    per batch: the rows of changes that were written, or for `apply` the rows that were inserted and deleted.
    """
    chosen = [name for name in ("files", "delta", "duckdb", "sqlite") if target[name] is not None]
    if len(chosen) != 1:
        raise click.UsageError("give one of --files, --delta, --duckdb and --sqlite")
    _check_combination(target)
    counts = ("inserted", "deleted") if target["mode"] == "apply" else ("rows_written",)
    results: list[dict[str, Any]] = []
    with open_table(table_url) as table, ExitStack() as stack:
        given: dict[str, Any] = {"target": _name_of(chosen[0], table, target), "rebind": rebind}
        if target["files"]:  # as `changes` writes them; tables that pulls have made keep their integers
            given["commit_timestamp"] = "timestamp"
        poller = stack.enter_context(table.poll_changes(checkpoint, starting_version=_start(start), **given))
        sink = None if target["files"] else stack.enter_context(_sink(table, target))
        while (batch := poller.pull()) is not None:
            if sink is None:
                rows = [_write_file(batch, table.name, target["files"], file_format)]
            else:
                written = sink.write(batch)
                rows = [written.inserted, written.deleted]
            batch.commit()
            versions = {"first_version": batch.first_version, "last_version": batch.last_version}
            results.append(versions | dict(zip(counts, rows, strict=False)))
    if output == "table" and not results:
        echo("Nothing new.")
    else:
        show_records(["first_version", "last_version", *counts], results, output)


def _name_of(kind: str, table: ds.SharedTable, target: dict[str, Any]) -> str:
    """Return the name of a target, to which the checkpoint is bound."""
    place = os.path.realpath(target[kind])
    return (
        f"{kind} {place}" if kind in ("files", "delta") else f"{kind} {place}, {target['into'] or table.name.name}"
    )


def _check_combination(target: dict[str, Any]) -> None:
    """Raise a usage error for an option that the chosen target does not use."""
    if target["files"] is not None:
        refuse(("mode", "keys", "into"), "is for --delta, --duckdb and --sqlite; --files stores changes")
    else:
        refuse(("file_format",), "is for --files")
    if target["delta"] is not None:
        refuse(("into",), "is for --duckdb and --sqlite")
    if (target["mode"] == "apply") != bool(target["keys"]):
        raise click.UsageError("--mode apply and --keys need each other")


def _start(text: str) -> int | Literal["latest", "snapshot"]:
    if text == "latest":
        return "latest"
    if text == "snapshot":
        return "snapshot"
    if text.isascii() and text.isdigit():
        return int(text)
    raise click.BadParameter(f"{text!r} is not snapshot, latest or a version, such as 6", param_hint="--start")


def _sink(table: ds.SharedTable, target: dict[str, Any]) -> ds.sinks.Sink:
    mode, keys = target["mode"], target["keys"] or []
    name = target["into"] or table.name.name
    if target["delta"] is not None:
        return ds.sinks.DeltaSink(target["delta"], mode=mode, keys=keys)
    if target["duckdb"] is not None:
        return ds.sinks.DuckDBSink(target["duckdb"], name, mode=mode, keys=keys)
    return ds.sinks.SQLiteSink(target["sqlite"], name, mode=mode, keys=keys)


def _write_file(batch: ds.ChangeBatch, table: ds.Table, directory: Path, file_format: str) -> int:
    """Write a batch to the file of its versions; a batch that is pulled again replaces it."""
    if batch.continues and not directory.is_dir():
        raise ds.errors.SinkError(
            "it does not exist, and earlier batches were committed: their rows would be missing. Restore it; or "
            "start over: delete the checkpoint; or pull with rebind=True, to go on without them",
            target=f"directory {directory}",
        )
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{table.name}-{batch.first_version:020}-{batch.last_version:020}.{file_format}"
    return batch.to_file(path, overwrite=True)


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing mirror config.share#retail.sales.orders lake/orders",
        "delta-sharing mirror config.share#retail.sales.orders lake/orders --repair",
    ),
)
@table_argument
@click.argument("directory", metavar="DIR", type=LocalPath())
@click.option("--version", type=Number(0, example=3), help="Version of the shared table; the latest by default.")
@click.option("--repair", is_flag=True, help="Verify all files, and fetch missing and damaged ones again.")
@output_option
def mirror(table_url: str, directory: Path, version: int | None, repair: bool, output: str) -> None:
    """Bring a local Delta table up to date with a shared table; fetches only new files."""
    with open_table(table_url) as table:
        result = table.mirror(directory).sync(at_version=version, repair=repair)
    show_facts({"directory": str(directory), **asdict(result)}, output)


@click.command(cls=Command, epilog=examples("delta-sharing serve warehouse --port 8787 --profile warehouse.share"))
@click.argument("directory", metavar="DIR", type=LocalPath(exists=True, file_okay=False))
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=Number(0, 65535, example=8787), default=0, help="Port; by default any free one.")
@click.option(
    "--profile",
    metavar="PATH",
    type=LocalPath(),
    default="embedded-server.share",
    show_default=True,
    help="Profile to write.",
)
@click.option("--url-lifetime", metavar="SECONDS", type=Number(1, example=3600), default=3600, show_default=True)
@click.option(
    "--token-file",
    metavar="PATH",
    type=LocalPath(),
    help="File with the bearer token; by default a random token.",
)
def serve(
    directory: Path, host: str, port: int, profile: Path, url_lifetime: int, token_file: Path | None
) -> None:
    """Share the Delta tables of a directory until Ctrl-C: for demos, notebooks and tests (extra server)."""
    from delta_sharing_client.server.__main__ import main

    arguments = ["--host", host, "--port", str(port), "--url-lifetime", str(url_lifetime)]
    arguments += ["--profile", str(profile)]
    arguments += [] if token_file is None else ["--token-file", str(token_file)]
    if main([*arguments, "--", str(directory)]):
        raise click.exceptions.Exit(1)
