"""Demo in a terminal: shares sample tables on this machine, and reads them as a recipient; `make demo` runs it.

It writes three small Delta tables to a temporary folder, shares them with the embedded server, and writes the
profile of the server to `profiles/local.share`. The steps use this file only. At the end, the demo stops the
server and removes its files.
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
    """The steps of the demo, with one server.

    Args:
        server: the running embedded server, used to count requests.
        profile: path of the profile, relative to the current directory if possible.
        folder: directory of the sample tables and of Spark's files.
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
        """Run all steps."""
        self.list_tables()
        self.describe_table()
        self.load()
        self.count()
        self.time_travel()
        self.types()
        self.formats()
        self.errors()
        self.poll_changes()
        self.spark()

    def list_tables(self) -> None:
        """List shares, schemas and tables."""
        print_heading("2. List the shared tables")
        print_paragraph(f'client = SharingClient("{self._profile}")')
        with timed("listed"):
            shares = self._client.list_shares()
            schemas = [schema for share in shares for schema in self._client.list_schemas(share)]
            tables = self._client.list_all_tables()
        print_paragraph(f"{len(shares)} share, {len(schemas)} schemas, {len(tables)} tables:")
        rows = []
        for table in tables:
            shared = self._client.table(table)
            metadata = shared.metadata()
            partitions = ", ".join(metadata.partition_columns) or "-"
            rows.append((table.full_name, shared.version(), len(metadata.schema), partitions))
        print_table(("table", "version", "columns", "partitioned by"), rows)

    def describe_table(self) -> None:
        """Print the schema of a table."""
        print_heading("3. The schema of a table")
        print_paragraph('orders = client.table("retail.sales.orders"); orders.schema()')
        partitions = self._orders.metadata().partition_columns
        print_table(
            ("column", "type", ""),
            [(c.name, c.type, "partition" if c.name in partitions else "") for c in self._orders.schema()],
        )

    def load(self) -> None:
        """Load with a projection and a filter, and explain the scan."""
        print_heading("4. Load some columns of some rows")
        columns = ["order_id", "order_date", "region", "amount"]
        filters = [("order_date", ">=", "2024-01-03"), ("order_id", "<", 25_000), ("region", "=", "Asia")]
        print_paragraph(f'load_as_pandas("{self._url}",')
        print_paragraph(f"               columns={columns},")
        for n, term in enumerate(filters):
            print_paragraph(
                ("               filters=[" if n == 0 else " " * 24) + f"{term}" + ("])" if n == 2 else ",")
            )
        self._server.reset_requests()
        with timed("loaded"):
            frame = ds.load_as_pandas(self._url, columns=columns, filters=filters)
        self._print_requests()
        print_frame(frame)
        check(len(frame) == 1000, "1,000 rows match")
        check(set(frame["region"]) == {"Asia"}, "all rows are of the region Asia")
        print_paragraph("The plan of the scan, from scan.explain():")
        print_line()
        for text in self._orders.scan(columns=columns, filters=filters).explain().splitlines():
            print_line(" " * 5 + text)
        print_line()
        files = self._orders.metadata().num_files
        print_paragraph(
            f"The table has {files} files. The server lists those of the requested days. The client skips files "
            "whose statistics exclude all requested order_ids, and applies the filter to the rows."
        )

    def count(self) -> None:
        """Count rows without a download."""
        print_heading("5. Count")
        print_paragraph("orders.scan().count()")
        self._server.reset_requests()
        with timed("counted"):
            rows = self._orders.scan().count()
        print_paragraph(f"{rows:,} rows, from the files' statistics:")
        self._print_requests()

    def time_travel(self) -> None:
        """Count the rows of each version, and compare two versions."""
        print_heading("6. Time travel")
        latest = self._orders.version()
        print_paragraph(f"orders.scan(version=0).count() ... orders.scan(version={latest}).count()")
        with timed("counted"):
            rows = [(version, self._orders.scan(version=version).count()) for version in range(latest + 1)]
        print_table(("version", "rows"), [(version, f"{count:,}") for version, count in rows])
        print_paragraph(f"Versions {latest - 2} and {latest}, loaded as two frames:")
        columns = ["order_id", "status"]
        before = ds.load_as_pandas(self._url, version=latest - 2, columns=columns)
        after = ds.load_as_pandas(self._url, version=latest, columns=columns)
        both = before.merge(after, on="order_id", how="outer", suffixes=("_before", "_after"), indicator=True)
        deleted = int((both["_merge"] == "left_only").sum())
        remaining = both[both["_merge"] == "both"]
        changed = remaining[remaining["status_before"] != remaining["status_after"]]
        print_paragraph(f"{deleted} orders were deleted, {len(changed)} have another status. Some of them:")
        print_frame(changed[["order_id", "status_before", "status_after"]].reset_index(drop=True))
        check((deleted, len(changed)) == (10, 8), "the provider deleted 10 orders and updated 8")

    def types(self) -> None:
        """Print the dtypes, which keep every value."""
        print_heading("7. Types")
        frame = ds.load_as_pandas(self._url, filters=[("order_date", "=", "2024-01-01")])
        rows = []
        for column in self._orders.schema():
            series = frame[column.name]
            value = series.dropna().iloc[0]
            value = value.item() if hasattr(value, "item") else value  # numpy scalar to Python number
            rows.append(
                (
                    column.name,
                    column.type,
                    series.dtype,
                    f"{series.isna().sum():,}",
                    f"{type(value).__name__} {value}",
                )
            )
        print_table(("column", "Delta type", "pandas dtype", "nulls", "a value"), rows)
        print_paragraph(
            "quantity is an integer with nulls, amount is an exact decimal, ordered_at is a timestamp in UTC."
        )
        print_paragraph(f"The exact turnover of the day: {frame['amount'].sum()}")

    def formats(self) -> None:
        """Load in both response formats and compare the frames."""
        print_heading("8. Both response formats")
        frames: list[pd.DataFrame] = []
        for delta in (False, True):
            with timed(f"use_delta_format={delta!s:5}"):
                frames.append(ds.load_as_pandas(self._url, use_delta_format=delta))
        pd.testing.assert_frame_equal(frames[0], frames[1])
        rows, columns = frames[0].shape
        print_paragraph(f"{rows:,} rows of {columns} columns from each, equal in every value and dtype.")

    def errors(self) -> None:
        """Print the errors of two mistakes."""
        print_heading("9. Errors")
        self._print_error('load_as_pandas("...#retail.sales.order")', f"{self._profile}#retail.sales.order", None)
        self._print_error('load_as_pandas("...#retail.sales.orders", columns=["price"])', self._url, ["price"])

    def spark(self) -> None:
        """Join two shared tables in Spark SQL."""
        print_heading("11. Spark, without a connector jar")
        if java() is None:
            print_paragraph(
                "Skipped: Spark needs Java 17 or later, which is not installed. `make java` installs it."
            )
            return
        with contextlib.ExitStack() as stack:
            with timed("a local Spark session started"):
                spark = stack.enter_context(local_session(self._folder))
            for name in ("orders", "customers"):
                url = f"{self._profile}#retail.sales.{name}"
                print_paragraph(f'load_as_spark("{url}").createOrReplaceTempView("{name}")')
                ds.load_as_spark(url, spark=spark).createOrReplaceTempView(name)
            query = """
                SELECT c.address.city, count(*) AS orders, sum(o.amount) AS turnover
                FROM orders o JOIN customers c USING (customer_id)
                WHERE o.status = 'shipped' AND c.address IS NOT NULL
                GROUP BY c.address.city ORDER BY turnover DESC"""
            print_paragraph('spark.sql("""')
            for text in textwrap.dedent(query).strip().splitlines():
                print_line(" " * 5 + text)
            print_paragraph('""").show()')
            with timed("loaded and joined by Spark"):
                rows = [tuple(row) for row in spark.sql(query).collect()]
            print_table(
                ("city", "orders", "turnover"), [(city, f"{n:,}", f"{total:,}") for city, n, total in rows]
            )
            self._compare(rows)
            self._stream(spark)

    def _compare(self, rows: Sequence[tuple[str, int, Decimal]]) -> None:
        """Compare the join in Spark with the same join in pandas."""
        check(len(rows) == 8, "eight cities")
        orders = ds.load_as_pandas(self._url, columns=["customer_id", "amount"], filters="status = 'shipped'")
        customers = ds.load_as_pandas(
            f"{self._profile}#retail.sales.customers", columns=["customer_id", "address"]
        )
        both = orders.merge(customers.dropna(subset="address"), on="customer_id")
        check(sum(row[2] for row in rows) == both["amount"].sum(), "Spark and pandas compute the same turnover")
        print_paragraph("The same join in pandas returns exactly the same turnover.")

    def _stream(self, spark: SparkSession) -> None:
        """Run a streaming query twice over a growing table; the second run returns only new rows."""
        print_heading("12. Follow a table with a Spark stream")
        url = f"{self._profile}#retail.sales.customers"
        customers = self._folder / "retail" / "sales" / "customers"
        copy, checkpoint = str(self._folder / "copy"), str(self._folder / "stream")

        ds.spark.register(spark)

        def catch_up() -> int:
            stream = spark.readStream.format("deltaSharing").load(url)
            writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start(copy)
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)

        print_paragraph('stream = spark.readStream.format("deltaSharing")')
        print_paragraph(f'      .load("{url}")')
        print_paragraph('stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)')
        print_paragraph("      .trigger(availableNow=True).start(copy)")
        before = catch_up()
        print_paragraph(f"the first run returns the current table: {before:,} rows")
        rows = DeltaTable(customers).to_pyarrow_table()
        index = rows.schema.get_field_index("customer_id")
        added = rows.slice(0, 3).set_column(index, rows.field(index), pa.array([9001, 9002, 9003], pa.int64()))
        write_deltalake(customers, added, mode="append")
        print_paragraph("The provider adds three customers.")
        self._server.reset_requests()
        after = catch_up()
        print_paragraph(f"the next run of the same query returns the new rows: {after:,} rows")
        self._print_requests()
        total = spark.read.parquet(copy).count()
        print_paragraph(f"the copy has {total:,} rows, the same as the shared table.")
        check((after, total) == (3, self._table_rows("customers")), "the copy has all rows of the table")

    def _table_rows(self, name: str) -> int:
        with ds.SharingClient(self._profile) as client:
            return client.table(f"retail.sales.{name}").scan().count()

    def poll_changes(self) -> None:
        """Poll the changes of a table, and read only new ones."""
        print_heading("10. Follow a table as it changes")
        print_paragraph("poller = table.poll_changes(checkpoint, starting_version='latest')")
        checkpoint = self._folder / "orders.checkpoint"
        orders = DeltaTable(self._folder / "retail" / "sales" / "orders")
        with self._orders.poll_changes(checkpoint, starting_version="latest") as poller:
            check(poller.pull() is None, "there are no changes yet")
            self._server.reset_requests()
            check(poller.pull() is None, "there are no changes yet")
            print_paragraph("poller.pull()   # no changes: None")
            self._print_requests()
            print_line()
            print_paragraph("The provider marks four orders as returned, and deletes ten.")
            orders.update(updates={"status": "'returned'"}, predicate="order_id % 2500 = 9 AND order_id < 10000")
            orders.delete("order_id % 1000 = 998 AND order_date = '2024-01-02'")
            self._server.reset_requests()
            with timed("batch = poller.pull(); frame = batch.to_pandas(); batch.commit()"):
                batch = poller.pull()
                frame = pd.DataFrame() if batch is None else batch.to_pandas()
            if batch is not None:
                batch.commit()
            self._print_requests()
        counts = frame.groupby(["_commit_version", "_change_type"]).size()
        rows = [(str(version), str(kind), f"{count:,}") for (version, kind), count in counts.items()]
        print_table(("version", "change", "rows"), rows)
        check([row[2] for row in rows] == ["4", "4", "10"], "the changes are the expected ones")

    def _print_error(self, call: str, url: str, columns: list[str] | None) -> None:
        print_paragraph(call)
        try:
            ds.load_as_pandas(url, columns=columns)
        except ds.DeltaSharingError as error:
            text = f"{type(error).__name__}: {error}"
            print_paragraph(text, indent=5)
            check("\n" not in text, "one line")
        else:
            raise RuntimeError(f"{call} raised no error")
        print_line()

    def _print_requests(self) -> None:
        """Print the number of requests of the last step."""
        requests = self._server.requests
        files = [request for request in requests if request.is_file]
        print_paragraph(
            f"requests: {len(requests) - len(files)} to the API, {len(files)} for files "
            f"({sum(request.bytes_sent for request in files):,} bytes)"
        )


_last_line = ""


def print_line(text: str = "") -> None:
    """Print a line; consecutive empty lines are printed once."""
    global _last_line
    if text or _last_line:
        print(text)
    _last_line = text


def print_heading(text: str) -> None:
    """Print a heading."""
    print_line()
    print_line(text)
    print_line("-" * len(text))


def print_paragraph(text: str, indent: int = 3) -> None:
    """Print a paragraph, wrapped to the width of the page."""
    for part in textwrap.wrap(text, WIDTH - indent):
        print_line(" " * indent + part)


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns of numbers are right-aligned."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(column) for column in columns) for columns in zip(names, *cells, strict=True)]
    right = [all(cell.replace(",", "").isdigit() for cell in column) for column in zip(*cells, strict=True)]
    print_line()
    for row in [list(names), ["-" * width for width in widths], *cells]:
        padded = (
            cell.rjust(width) if by_right else cell.ljust(width)
            for cell, width, by_right in zip(row, widths, right, strict=True)
        )
        print_line(("     " + "  ".join(padded)).rstrip())
    print_line()


def print_frame(frame: pd.DataFrame, rows: int = 5) -> None:
    """Print the first rows of a frame, and its size."""
    print_line()
    for text in frame.head(rows).to_string().splitlines():
        print_line("     " + text)
    print_line(f"     [{len(frame):,} rows x {frame.shape[1]} columns]")
    print_line()


@contextlib.contextmanager
def timed(step: str) -> Iterator[None]:
    """Print the duration of a step."""
    start = time.perf_counter()
    yield
    print_paragraph(f"{step} in {time.perf_counter() - start:.3f} s")


def check(condition: bool, statement: str) -> None:
    """Raise RuntimeError if a statement of the demo is false."""
    if not condition:
        raise RuntimeError(f"the demo expects: {statement}")


def check_replaceable(path: Path) -> None:
    """Raise RuntimeError if the profile exists and is not from an earlier demo."""
    if not path.exists():
        return
    try:
        host = urlsplit(str(json.loads(path.read_text(encoding="utf-8"))["endpoint"])).hostname
    except (ValueError, KeyError, TypeError):
        host = None
    if host != "127.0.0.1":
        raise RuntimeError(f"{path.name} exists and is not from this demo: move or delete it first")


def relative_path(path: Path) -> str:
    """Return the path relative to the current directory if possible."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def run(profile: Path) -> None:
    """Share the sample tables, run the steps, and remove all files.

    Args:
        profile: path of the server's profile; removed at the end.
    """
    started = time.perf_counter()
    print_line("delta-sharing-client: shared tables as pandas frames")
    print_line("=" * 52)
    check_replaceable(profile)
    with tempfile.TemporaryDirectory(prefix="delta-sharing-demo-") as folder:
        print_heading("1. Write and share sample tables")
        with timed("three Delta tables written to a temporary folder"):
            tables = write_sample_tables(folder)
        with SharingServer(tables) as server:
            print_paragraph(f"serving on {server.endpoint}, on loopback only")
            profile.parent.mkdir(exist_ok=True)
            try:
                server.write_profile(profile)
                print_paragraph(
                    f"profile written to {relative_path(profile)}, readable for its owner only; all steps use it"
                )
                with contextlib.closing(Tour(server, relative_path(profile), Path(folder))) as tour:
                    tour.run()
            finally:
                profile.unlink(missing_ok=True)
    print_heading("Done")
    print_paragraph(
        f"in {time.perf_counter() - started:.1f} s. The server is stopped; the tables and "
        f"{relative_path(profile)} are removed."
    )
    print_paragraph("Next: notebooks/quickstart.ipynb, README.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status: 0, 1 after an error, or 130 after an interrupt."""
    parser = argparse.ArgumentParser(description="Serve sample tables on this machine and read them.")
    parser.add_argument("--profile", type=Path, default=PROFILE, help="path of the temporary profile")
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # the encoding of the terminal may lack letters of a city name
        sys.stdout.reconfigure(errors="replace")
    try:
        run(options.profile.absolute())
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as in `make demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ds.DeltaSharingError, OSError, RuntimeError) as error:
        print(f"\nThe demo failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
