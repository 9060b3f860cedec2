"""A tour in a terminal: serve sample tables on this machine, and read them as a recipient would.

`make demo` runs it. It writes three small Delta tables to a temporary folder, shares them with the embedded
server, writes the server's profile to `profiles/local.share`, and then uses nothing but that file. At the end it
stops the server and removes what it wrote.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from quiet_spark import java, local_session

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer, write_sample_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROFILE = Path(__file__).resolve().parents[1] / "profiles" / "local.share"
WIDTH = 100


class Tour:
    """The steps of the demo, against one server.

    Args:
        server: the embedded server, running; the demo only counts requests with it.
        profile: the path of the profile, as a user would type it.
        folder: for what Spark writes meanwhile.
    """

    def __init__(self, server: SharingServer, profile: str, folder: Path) -> None:
        self._server = server
        self._profile = profile
        self._folder = folder
        self._url = f"{profile}#retail.sales.orders"
        self._client = ds.SharingClient(profile)
        self._orders = self._client.table("retail.sales.orders")

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def run(self) -> None:
        """Take every step."""
        self.list_tables()
        self.look()
        self.load()
        self.count()
        self.travel()
        self.types()
        self.formats()
        self.errors()
        self.follow()
        self.spark()

    def list_tables(self) -> None:
        """What is shared."""
        head("2. What is shared")
        say(f'client = SharingClient("{self._profile}")')
        with timed("listed"):
            shares = self._client.list_shares()
            schemas = [schema for share in shares for schema in self._client.list_schemas(share)]
            tables = self._client.list_all_tables()
        say(f"{len(shares)} share, {len(schemas)} schemas, {len(tables)} tables:")
        rows = []
        for table in tables:
            shared = self._client.table(table)
            metadata = shared.metadata()
            partitions = ", ".join(metadata.partition_columns) or "-"
            rows.append((table.full_name, shared.version(), len(metadata.schema), partitions))
        show(("table", "version", "columns", "partitioned by"), rows)

    def look(self) -> None:
        """A table's schema."""
        head("3. What a table looks like")
        say('orders = client.table("retail.sales.orders"); orders.schema()')
        partitions = self._orders.metadata().partition_columns
        show(
            ("column", "type", ""),
            [(c.name, c.type, "partition" if c.name in partitions else "") for c in self._orders.schema()],
        )

    def load(self) -> None:
        """A projection and a filter: what is named, pruned and fetched."""
        head("4. Load some columns of some rows")
        columns = ["order_id", "order_date", "region", "amount"]
        filters = [("order_date", ">=", "2024-01-03"), ("order_id", "<", 25_000), ("region", "=", "Asia")]
        say(f'load_as_pandas("{self._url}",')
        say(f"               columns={columns},")
        for n, term in enumerate(filters):
            say(("               filters=[" if n == 0 else " " * 24) + f"{term}" + ("])" if n == 2 else ","))
        self._server.reset_requests()
        with timed("loaded"):
            frame = ds.load_as_pandas(self._url, columns=columns, filters=filters)
        self._requests()
        show_frame(frame)
        check(len(frame) == 1000, "1,000 rows match")
        check(set(frame["region"]) == {"Asia"}, "no other region came through")
        say("How that came about, by scan.explain():")
        line()
        for text in self._orders.scan(columns=columns, filters=filters).explain().splitlines():
            line(" " * 5 + text)
        line()
        files = self._orders.metadata().num_files
        say(f"The table has {files} files. The server names those of the days asked for. The client leaves")
        say("out those whose statistics show that they hold no such order_id, and applies the filter")
        say("to the rows.")

    def count(self) -> None:
        """Counting without fetching."""
        head("5. Count")
        say("orders.scan().count()")
        self._server.reset_requests()
        with timed("counted"):
            rows = self._orders.scan().count()
        say(f"{rows:,} rows, from the files' statistics:")
        self._requests()

    def travel(self) -> None:
        """Versions, and what changed between two of them."""
        head("6. Time travel")
        latest = self._orders.version()
        say(f"orders.scan(version=0).count() ... orders.scan(version={latest}).count()")
        with timed("counted"):
            rows = [(version, self._orders.scan(version=version).count()) for version in range(latest + 1)]
        show(("version", "rows"), [(version, f"{count:,}") for version, count in rows])
        say(f"Version {latest - 2} against version {latest}, loaded as two frames:")
        columns = ["order_id", "status"]
        before = ds.load_as_pandas(self._url, version=latest - 2, columns=columns)
        after = ds.load_as_pandas(self._url, version=latest, columns=columns)
        both = before.merge(after, on="order_id", how="outer", suffixes=("_before", "_after"), indicator=True)
        gone = int((both["_merge"] == "left_only").sum())
        kept = both[both["_merge"] == "both"]
        changed = kept[kept["status_before"] != kept["status_after"]]
        say(f"{gone} orders were deleted, {len(changed)} have another status. Some of them:")
        show_frame(changed[["order_id", "status_before", "status_after"]].reset_index(drop=True))
        check((gone, len(changed)) == (10, 8), "the provider deleted 10 orders and updated 8")

    def types(self) -> None:
        """Dtypes that keep every value."""
        head("7. Types")
        frame = ds.load_as_pandas(self._url, filters=[("order_date", "=", "2024-01-01")])
        rows = []
        for column in self._orders.schema():
            series = frame[column.name]
            value = series.dropna().iloc[0]
            value = value.item() if hasattr(value, "item") else value  # a number of numpy, as Python's own
            rows.append(
                (
                    column.name,
                    column.type,
                    series.dtype,
                    f"{series.isna().sum():,}",
                    f"{type(value).__name__} {value}",
                )
            )
        show(("column", "Delta type", "pandas dtype", "nulls", "a value"), rows)
        say("quantity has nulls and stays integer, amount is exact, ordered_at is an instant in UTC.")
        say(f"The day's turnover, to the cent: {frame['amount'].sum()}")

    def formats(self) -> None:
        """Both response formats give the same frame."""
        head("8. Both response formats")
        frames: list[pd.DataFrame] = []
        for delta in (False, True):
            with timed(f"use_delta_format={delta!s:5}"):
                frames.append(ds.load_as_pandas(self._url, use_delta_format=delta))
        pd.testing.assert_frame_equal(frames[0], frames[1])
        rows, columns = frames[0].shape
        say(f"{rows:,} rows of {columns} columns from each, equal in every value and dtype.")

    def errors(self) -> None:
        """What a mistake looks like."""
        head("9. Errors")
        self._fails('load_as_pandas("...#retail.sales.order")', f"{self._profile}#retail.sales.order", None)
        self._fails('load_as_pandas("...#retail.sales.orders", columns=["price"])', self._url, ["price"])

    def spark(self) -> None:
        """Two shared tables, joined in Spark SQL."""
        head("11. Spark, without a connector jar")
        if java() is None:
            say("Left out: Spark needs Java 17 or later, and there is none here. `make java` sets one up.")
            return
        with contextlib.ExitStack() as stack:
            with timed("a local Spark session started"):
                spark = stack.enter_context(local_session(self._folder))
            for name in ("orders", "customers"):
                url = f"{self._profile}#retail.sales.{name}"
                say(f'load_as_spark("{url}").createOrReplaceTempView("{name}")')
                ds.load_as_spark(url, spark=spark).createOrReplaceTempView(name)
            query = """
                SELECT c.address.city, count(*) AS orders, sum(o.amount) AS turnover
                FROM orders o JOIN customers c USING (customer_id)
                WHERE o.status = 'shipped' AND c.address IS NOT NULL
                GROUP BY c.address.city ORDER BY turnover DESC"""
            say('spark.sql("""')
            for text in textwrap.dedent(query).strip().splitlines():
                line(" " * 5 + text)
            say('""").show()')
            with timed("loaded and joined by Spark"):
                rows = [tuple(row) for row in spark.sql(query).collect()]
            show(("city", "orders", "turnover"), [(city, f"{n:,}", f"{total:,}") for city, n, total in rows])
            self._compare(rows)
            self._stream(spark)

    def _compare(self, rows: Sequence[tuple[str, int, Decimal]]) -> None:
        """Hold Spark's join against that of pandas."""
        check(len(rows) == 8, "eight cities")
        orders = ds.load_as_pandas(self._url, columns=["customer_id", "amount"], filters="status = 'shipped'")
        customers = ds.load_as_pandas(
            f"{self._profile}#retail.sales.customers", columns=["customer_id", "address"]
        )
        both = orders.merge(customers.dropna(subset="address"), on="customer_id")
        check(sum(row[2] for row in rows) == both["amount"].sum(), "Spark's turnover is that of pandas")
        say("The same join in pandas gives the same turnover, to the cent.")

    def _stream(self, spark: SparkSession) -> None:
        """A streaming query over a table that grows: each run of it brings what is new."""
        head("12. A Spark stream that follows a table that grows")
        url = f"{self._profile}#retail.sales.customers"
        customers = self._folder / "retail" / "sales" / "customers"
        copy, checkpoint = str(self._folder / "copy"), str(self._folder / "stream")

        def catch_up() -> int:
            stream = spark.readStream.format("deltaSharing").load(url)
            writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start(copy)
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)

        say('stream = spark.readStream.format("deltaSharing")')
        say(f'      .load("{url}")')
        say('stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)')
        say("      .trigger(availableNow=True).start(copy)")
        before = catch_up()
        say(f"the first run brings the table as it is: {before:,} rows")
        known = DeltaTable(customers).to_pyarrow_table()
        number = known.schema.get_field_index("customer_id")
        added = known.slice(0, 3).set_column(number, known.field(number), pa.array([9001, 9002, 9003], pa.int64()))
        write_deltalake(customers, added, mode="append")
        say("Meanwhile three customers are new.")
        self._server.reset_requests()
        after = catch_up()
        say(f"the next run of the same query brings these: {after:,} rows")
        self._requests()
        total = spark.read.parquet(copy).count()
        say(f"the copy has {total:,} rows, as the shared table has.")
        check((after, total) == (3, self._table_rows("customers")), "the copy is the table")

    def _table_rows(self, name: str) -> int:
        with ds.SharingClient(self._profile) as client:
            return client.table(f"retail.sales.{name}").scan().count()

    def follow(self) -> None:
        """A table that grows, and a poller that brings what is new, and only that."""
        head("10. Follow a table as it changes")
        say("poller = table.poll_changes(checkpoint, starting_version='latest')")
        checkpoint = self._folder / "orders.checkpoint"
        orders = DeltaTable(self._folder / "retail" / "sales" / "orders")
        with self._orders.poll_changes(checkpoint, starting_version="latest") as poller:
            check(poller.pull() is None, "nothing is new yet")
            self._server.reset_requests()
            check(poller.pull() is None, "nothing is new yet")
            say("poller.pull()   # nothing is new: None")
            self._requests()
            line()
            say("Meanwhile the shop has four orders returned, and deletes ten.")
            orders.update(updates={"status": "'returned'"}, predicate="order_id % 2500 = 9 AND order_id < 10000")
            orders.delete("order_id % 1000 = 998 AND order_date = '2024-01-02'")
            self._server.reset_requests()
            with timed("batch = poller.pull(); frame = batch.to_pandas(); batch.commit()"):
                batch = poller.pull()
                frame = pd.DataFrame() if batch is None else batch.to_pandas()
            if batch is not None:
                batch.commit()
            self._requests()
        counts = frame.groupby(["_commit_version", "_change_type"]).size()
        rows = [(str(version), str(kind), f"{count:,}") for (version, kind), count in counts.items()]
        show(("version", "change", "rows"), rows)
        check([row[2] for row in rows] == ["4", "4", "10"], "the changes are those that were made")

    def _fails(self, call: str, url: str, columns: list[str] | None) -> None:
        say(call)
        try:
            ds.load_as_pandas(url, columns=columns)
        except ds.DeltaSharingError as error:
            text = f"{type(error).__name__}: {error}"
            say(text, indent=5)
            check("\n" not in text, "one line")
        else:
            raise RuntimeError(f"{call} did not fail")
        line()

    def _requests(self) -> None:
        """How many requests the last step took."""
        requests = self._server.requests
        files = [request for request in requests if request.is_file]
        say(
            f"requests: {len(requests) - len(files)} to the API, {len(files)} for files "
            f"({sum(request.bytes_sent for request in files):,} bytes)"
        )


_printed = [""]


def line(text: str = "") -> None:
    """Print a line; of several empty ones only the first."""
    if text or _printed[-1]:
        print(text)
    _printed[:] = [text]


def head(text: str) -> None:
    """Print a heading."""
    line()
    line(text)
    line("-" * len(text))


def say(text: str, indent: int = 3) -> None:
    """Print a sentence, wrapped if it is long."""
    for part in textwrap.wrap(text, WIDTH - indent, drop_whitespace=False):
        line(" " * indent + part.rstrip())


def show(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a small table; columns of numbers are right-aligned."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(column) for column in columns) for columns in zip(names, *cells, strict=True)]
    right = [all(cell.replace(",", "").isdigit() for cell in column) for column in zip(*cells, strict=True)]
    line()
    for row in [list(names), ["-" * width for width in widths], *cells]:
        padded = (
            cell.rjust(width) if by_right else cell.ljust(width)
            for cell, width, by_right in zip(row, widths, right, strict=True)
        )
        line(("     " + "  ".join(padded)).rstrip())
    line()


def show_frame(frame: pd.DataFrame, rows: int = 5) -> None:
    """Print the first rows of a frame, and how many there are."""
    line()
    for text in frame.head(rows).to_string().splitlines():
        line("     " + text)
    line(f"     [{len(frame):,} rows x {frame.shape[1]} columns]")
    line()


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    start = time.perf_counter()
    yield
    say(f"{what} in {time.perf_counter() - start:.3f} s")


def check(holds: bool, what: str) -> None:
    """Fail the demo where it does not show what it claims."""
    if not holds:
        raise RuntimeError(f"this should hold, and does not: {what}")


def refuse_foreign_profile(path: Path) -> None:
    """Raise where the file that would be overwritten is not an earlier demo's."""
    if not path.exists():
        return
    try:
        host = urlsplit(str(json.loads(path.read_text(encoding="utf-8"))["endpoint"])).hostname
    except (ValueError, KeyError, TypeError):
        host = None
    if host != "127.0.0.1":
        raise RuntimeError(f"{path.name} is there already, and is not from this demo: move it away first")


def as_typed(path: Path) -> str:
    """The path as a user in the current folder would type it."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def run(profile: Path) -> None:
    """Serve the sample tables, take the tour, and clean up.

    Args:
        profile: where to write the server's profile; removed at the end.
    """
    started = time.perf_counter()
    line("delta-sharing-client: shared tables as pandas frames")
    line("=" * 52)
    refuse_foreign_profile(profile)
    with tempfile.TemporaryDirectory(prefix="delta-sharing-demo-") as folder:
        head("1. Write sample tables, and share them")
        with timed("three Delta tables written to a temporary folder"):
            tables = write_sample_tables(folder)
        with SharingServer(tables) as server:
            say(f"serving on {server.endpoint}, for this machine only")
            profile.parent.mkdir(exist_ok=True)
            try:
                server.write_profile(profile)
                say(f"profile written to {as_typed(profile)}, readable for you alone; it is all that follows uses")
                with contextlib.closing(Tour(server, as_typed(profile), Path(folder))) as tour:
                    tour.run()
            finally:
                profile.unlink(missing_ok=True)
    head("Done")
    say(f"in {time.perf_counter() - started:.1f} s. The server has stopped. The tables are removed, and so is")
    say(f"{as_typed(profile)}, which is of no use without it.")
    say("Next: notebooks/quickstart.ipynb, README.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status: 0, or 1 if something did not work, 130 if it was interrupted."""
    parser = argparse.ArgumentParser(description="Serve sample tables on this machine and read them.")
    parser.add_argument("--profile", type=Path, default=PROFILE, help="where to write the profile meanwhile")
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal need not know every letter of a city's name
        sys.stdout.reconfigure(errors="replace")
    try:
        run(options.profile.absolute())
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `make demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ds.DeltaSharingError, OSError, RuntimeError) as error:
        print(f"\nThe demo failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
