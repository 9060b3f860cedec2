"""The command group `delta-sharing` and its commands."""

from __future__ import annotations

import click

import delta_sharing_client as ds
from delta_sharing_client.cli.catalog import count, history, ls, schema, show
from delta_sharing_client.cli.command import CommandGroup, examples
from delta_sharing_client.cli.follow import mirror, pull, serve
from delta_sharing_client.cli.profiles import login, logout, profile
from delta_sharing_client.cli.rows import changes, export, head


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "delta-sharing ls config.share --recursive",
        "delta-sharing head config.share#retail.sales.orders",
        "delta-sharing export config.share#retail.sales.orders orders.parquet",
    ),
)
@click.version_option(ds.__version__, prog_name="delta-sharing")
def cli() -> None:
    """Read tables that are shared over the Delta Sharing protocol.

    TABLE_URL is PROFILE#SHARE.SCHEMA.TABLE. PROFILE is the path or URL of a profile file. Without PROFILE# the
    environment selects the profile: DELTA_SHARING_PROFILE, or DELTA_SHARING_ENDPOINT and
    DELTA_SHARING_BEARER_TOKEN.

    Exit codes: 0 success, 1 error of the data or the server, 2 wrong usage, 3 no such share, schema or table,
    4 profile or credential refused, 5 server not reachable or overloaded.
    """


for _command in (
    ls,
    schema,
    show,
    head,
    count,
    history,
    export,
    changes,
    pull,
    mirror,
    serve,
    profile,
    login,
    logout,
):
    cli.add_command(_command)
