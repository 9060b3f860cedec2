"""Follow the change feed of a shared table into DuckDB, exactly once: a pipeline to copy.

    python duckdb_pipeline.py config.share#retail.sales.orders shop.duckdb --checkpoint orders.checkpoint

stores each change since the last run as a row of the table `orders`, and ends: for cron. `--follow` runs on and
polls. The first run stores the changes from `--start` on: a version, `latest`, or `snapshot` for the whole table
first.

- **Exactly once.** `DuckDBSink` stores the rows of a batch and the position of the poller in one transaction. A
  run that is killed repeats its batch, and the sink skips what it has.
- **Schema changes.** A new column is added to the table and reported. A column that was renamed or dropped, or
  whose type changed, ends the run with exit code 3, after the rows before it were stored. `alert` is the place for
  a pager.
- **Back-fill.** `--backfill FIRST LAST` replaces the rows of these versions by those that the server has now, in
  one transaction, as often as it is run. It leaves the checkpoint alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
from datetime import timedelta
from typing import Literal

import duckdb

import delta_sharing_client as ds

logger = logging.getLogger("duckdb_pipeline")
SCHEMA_CHANGED = 3


def alert(message: str) -> None:
    """Report what a person has to look at; replace this by your pager or chat."""
    logger.error("ALERT: %s", message)


def follow(table: ds.SharedTable, arguments: argparse.Namespace) -> None:
    """Store the changes since the last run; with `--follow` until the process is stopped."""
    poller = table.poll_changes(
        arguments.checkpoint,
        starting_version=arguments.start,
        poll_interval=timedelta(seconds=arguments.interval),
        max_versions=arguments.max_versions,
    )
    known: list[str] | None = None
    with ds.sinks.DuckDBSink(arguments.database, arguments.into) as sink, poller:
        for batch in poller if arguments.follow else iter(poller.pull, None):
            names = list(batch.schema.names)
            if known is not None and (added := [name for name in names if name not in known]):
                alert(f"{table.name.full_name}: version {batch.last_version} has new columns: {', '.join(added)}")
            known = names
            result = sink.write(batch)
            batch.commit()  # after the sink has the rows
            logger.info("versions %d to %d: %s", batch.first_version, batch.last_version, result)


def backfill(table: ds.SharedTable, database: str, into: str, first: int, last: int) -> None:
    """Replace the rows of some versions by the changes that the server has for them."""
    changes = table.changes(first, last).to_arrow()
    name = '"' + into.replace('"', '""') + '"'
    with duckdb.connect(database) as connection:
        connection.begin()
        connection.execute(f"DELETE FROM {name} WHERE _commit_version BETWEEN ? AND ?", [first, last])
        connection.register("changes", changes)
        connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM changes")
        connection.commit()
    logger.info("versions %d to %d: %d rows", first, last, changes.num_rows)


def start(text: str) -> int | Literal["latest", "snapshot"]:
    """Parse `--start`."""
    if text == "latest":
        return "latest"
    return "snapshot" if text == "snapshot" else int(text)


def main() -> int:
    """Run the pipeline; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="PROFILE#SHARE.SCHEMA.TABLE")
    parser.add_argument("database", help="file of the DuckDB database")
    parser.add_argument("--checkpoint", required=True, help="file with the position; one per pipeline")
    parser.add_argument("--into", help="table of the database; by default the name of the shared table")
    parser.add_argument("--start", type=start, default="snapshot", help="where the first run starts")
    parser.add_argument("--follow", action="store_true", help="poll until stopped")
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between two polls")
    parser.add_argument("--max-versions", type=int, default=100, help="versions of a batch")
    parser.add_argument("--backfill", type=int, nargs=2, metavar=("FIRST", "LAST"))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    profile, _, name = arguments.url.rpartition("#")
    with ds.SharingClient(profile or None) as client:
        table = client.table(name)
        arguments.into = arguments.into or table.name.name
        try:
            if arguments.backfill:
                backfill(table, arguments.database, arguments.into, *arguments.backfill)
            else:
                follow(table, arguments)
        except ds.errors.SchemaChangedError as error:
            alert(str(error))
            return SCHEMA_CHANGED
        except KeyboardInterrupt:
            logger.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
