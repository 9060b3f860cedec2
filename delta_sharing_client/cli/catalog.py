"""Commands about shares and tables: `ls`, `schema`, `show`, `count` and `history`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

import delta_sharing_client as ds
from delta_sharing_client.cli.command import examples
from delta_sharing_client.cli.options import (
    Number,
    ServerCommand,
    catalog_option,
    connect,
    open_table,
    output_option,
    table_argument,
    version_options,
)
from delta_sharing_client.cli.output import echo, show_facts, show_records


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing ls config.share",
        "delta-sharing ls config.share#retail",
        "delta-sharing ls config.share#retail.sales",
        "delta-sharing ls config.share --recursive --output csv",
    ),
)
@click.argument("subject", metavar="PROFILE[#SHARE[.SCHEMA]]", required=False, default="")
@click.option("--recursive", "-r", is_flag=True, help="List all tables below.")
@catalog_option
@output_option
def ls(subject: str, recursive: bool, catalog: str, output: str) -> None:
    """List the shares, the schemas of a share, or the tables of a schema."""
    profile, name = ds.Table.split_url(subject if "#" in subject else f"{subject.strip()}#")
    with connect(profile) as client:
        rows = _listing(client.iceberg if catalog == "iceberg" else client, name, recursive)
        show_records(list(rows[0]) if rows else ["share"], rows, output)


def _listing(client: ds.SharingClient | ds.IcebergCatalog, name: str, recursive: bool) -> list[dict[str, Any]]:
    if not name and not recursive:
        return [{"share": share.name, "comment": share.comment} for share in client.iter_shares()]
    if not name:
        return _tables(client.list_all_tables())
    try:
        schema = ds.Schema.parse(name)
    except ds.errors.TableNameError:
        schema = None
    # A share name may hold dots, so a name with a dot is a share if there is such a share.
    if schema is not None and name.lower() not in {share.name.lower() for share in client.iter_shares()}:
        try:
            return _tables(client.list_tables(schema))
        except ds.errors.NotFoundError as error:
            if name.count(".") < 2:
                raise
            raise click.UsageError(
                f"{name} is no share and no schema: ls takes SHARE or SHARE.SCHEMA; schema and show take a table"
            ) from error
    if recursive:
        return _tables(client.list_all_tables(name))
    return [{"share": schema.share, "schema": schema.name} for schema in client.list_schemas(name)]


def _tables(tables: list[ds.Table]) -> list[dict[str, Any]]:
    return [{"share": table.share, "schema": table.schema, "table": table.name} for table in tables]


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing schema config.share#retail.sales.orders",
        "delta-sharing schema config.share#retail.sales.orders --version 3 --output json",
    ),
)
@table_argument
@version_options
@catalog_option
@output_option
def schema(table_url: str, catalog: str, output: str, **snapshot: Any) -> None:
    """Show the columns of a table: name, type, nullable, partition column, comment."""
    with open_table(table_url, catalog) as table:
        columns = table.schema(**snapshot)
    rows = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "partition": field.name in columns.partition_columns,
            "comment": field.metadata.get("comment"),
        }
        for field in columns
    ]
    show_records(["name", "type", "nullable", "partition", "comment"], rows, output)


@click.command(cls=ServerCommand, epilog=examples("delta-sharing show config.share#retail.sales.orders"))
@table_argument
@catalog_option
@output_option
def show(table_url: str, catalog: str, output: str) -> None:
    """Show a table's version, partition columns, size, properties and reader features.

    If the server does not state the size, the files of the table are listed.
    """
    with open_table(table_url, catalog) as table:
        if isinstance(table, ds.IcebergTable):
            plan = table.scan().plan()
            version, metadata, protocol, columns = plan.version, plan.metadata, plan.protocol, table.schema()
        else:
            version, metadata, protocol = table.version(), table.metadata(), table.protocol()
            columns = metadata.schema
        size, files = metadata.size, metadata.num_files
        if size is None or files is None:
            tasks = table.scan().files()
            size, files = sum(task.size for task in tasks), len(tasks)
    facts: Mapping[str, Any] = {
        "table": table.name.full_name,
        "description": metadata.description,
        "id": metadata.id,
        "version": version,
        "files": files,
        "bytes": size,
        "columns": len(columns),
        "partition_columns": list(metadata.partition_columns),
        "format": catalog if catalog == "iceberg" else protocol.response_format,
        "reader_version": protocol.min_reader_version,
        "reader_features": list(protocol.reader_features),
        "properties": dict(metadata.configuration),
    }
    show_facts(facts, output)


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing count config.share#retail.sales.orders",
        "delta-sharing count config.share#retail.sales.orders --filter \"region = 'Europe'\"",
    ),
)
@table_argument
@click.option("--filter", "filters", metavar="SQL", help="Count only matching rows (extra sql).")
@version_options
@catalog_option
@output_option
def count(table_url: str, filters: str | None, catalog: str, output: str, **snapshot: Any) -> None:
    """Count the rows of a table, without reading files whose row count the server states."""
    with open_table(table_url, catalog) as table:
        rows = table.scan(filters=filters, **snapshot).count()
    if output == "table":
        echo(str(rows))
    else:
        show_records(["count"], [{"count": rows}], output)


@click.command(
    cls=ServerCommand,
    epilog=examples(
        "delta-sharing history config.share#retail.sales.orders",
        "delta-sharing history config.share#retail.sales.orders -n 100 --output csv",
    ),
)
@table_argument
@click.option("-n", "versions", type=Number(1, example=20), default=20, show_default=True, help="Latest versions.")
@output_option
def history(table_url: str, versions: int, output: str) -> None:
    """Show when the latest versions of a table changed how many rows, newest first.

    The protocol has no history of a table; this command reads it from the change data feed. The table must be
    shared with its history and have a change data feed. Versions that changed no row are not listed.
    """
    with open_table(table_url) as table:
        rows = [vars(found) for found in table.history(versions)]
    show_records(["version", "time", "inserted", "updated", "deleted"], rows, output)
