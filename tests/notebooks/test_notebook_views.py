"""What a notebook shows: views, in which texts of a server stay text, and progress bars that go away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from waiting import HANG

import delta_sharing_client as ds
from delta_sharing_client import sinks
from delta_sharing_client.delta.mirror.sync import SyncResult
from delta_sharing_client.server import SharingServer, write_sample_tables
from delta_sharing_client.views import Explanation, html_bar, html_table

HOSTILE = "<script>alert('x')</script><img src=x onerror=\"f()\">"
#: What views are made of; a text of a server can add none.
TAGS = {"div", "code", "b", "table", "tr", "th", "td"}
ATTRIBUTES = {"style", "title"}


class View(HTMLParser):
    """The tags, the attributes and the texts of a view."""

    def __init__(self, shown: object) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(shown._repr_html_())  # type: ignore[attr-defined]
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def after(self, label: str) -> str:
        return self.texts[self.texts.index(label) + 1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharingServer]:
    with SharingServer(write_sample_tables(tmp_path / "warehouse")) as server:
        yield server


@pytest.fixture
def orders(server: SharingServer) -> Iterator[ds.SharedTable]:
    with ds.SharingClient(server.profile) as client:
        yield client.table("retail.sales.orders")


def test_texts_of_a_server_stay_text() -> None:
    column = {"name": HOSTILE, "type": "long", "nullable": False, "metadata": {"comment": HOSTILE}}
    schema = json.dumps({"type": "struct", "fields": [column]})
    metadata = ds.Metadata(
        HOSTILE, schema, description=HOSTILE, partition_columns=(HOSTILE,), configuration={HOSTILE: HOSTILE}
    )
    profile = {
        "shareCredentialsVersion": 1,
        "endpoint": "https://a.example/b&amp;'onclick=f()'",
        "bearerToken": "t",
    }
    with ds.SharingClient(profile) as client:
        table = client.table(("<i>share</i>".replace("/", ""), "<u>", "<s onload=f()>"))
        shown = [
            ds.Share(HOSTILE, display_name=HOSTILE, comment=HOSTILE, properties={HOSTILE: HOSTILE}),
            ds.Schema(HOSTILE, HOSTILE),
            ds.Table(HOSTILE, HOSTILE, HOSTILE),
            metadata,
            metadata.schema,
            metadata.schema[HOSTILE],
            Explanation.of([("table", HOSTILE)], [(HOSTILE, 1)]),
            client,
            client.profile,
            table,
            table.scan(columns=[HOSTILE], filters=[(HOSTILE, "=", HOSTILE)]),
            table.changes(starting_version=0, columns=[HOSTILE]),
        ]
        views = {type(each).__name__: View(each) for each in shown}
    for name, view in views.items():
        assert set(view.tags) <= TAGS, name
        assert view.attributes <= ATTRIBUTES, name
    assert HOSTILE in views["StructType"].texts
    assert views["StructField"].texts == views["StructType"].texts
    assert HOSTILE in views["Share"].texts


def test_a_schema_is_a_table(orders: ds.SharedTable) -> None:
    view = View(orders.schema())
    assert view.texts[:5] == ["name", "type", "nullable", "partition", "comment"]
    assert view.texts[view.texts.index("order_date") :][:4] == ["order_date", "date", "yes", "yes"]
    assert View(orders.metadata()).texts[-len(view.texts) :] == view.texts


def test_an_explanation_is_a_table_with_a_bar(orders: ds.SharedTable) -> None:
    explained = orders.scan(filters=[("order_date", "=", "2024-01-05")]).explain()
    view = View(explained)
    assert "1 listed by the server" in explained
    assert view.after("table") == "retail.sales.orders, version 7, parquet format"
    assert 'title="1 files to read" style="width:100.00%' in explained._repr_html_()
    assert View(orders.changes(starting_version=6).explain()).after("range") in orders.changes(6).explain()


def test_views_show_what_matters(orders: ds.SharedTable, server: SharingServer, tmp_path: Path) -> None:
    with ds.SharingClient(server.profile) as client:
        shown = "".join(View(client).texts)
        assert client.profile.endpoint in shown
        assert server.profile["bearerToken"] not in shown
    sent = len(server.requests)
    assert View(orders.scan(columns=["region"], limit=3)).after("columns") == "region"
    assert View(orders.changes(starting_version=6)).after("range") == "from version 6 to the latest version"
    mirror = orders.mirror(tmp_path / "mirror")
    assert View(mirror).after("directory") == str(mirror.directory)
    with sinks.SQLiteSink(tmp_path / "db", "t") as sink:
        assert View(sink).after("mode") == "append"
    with orders.poll_changes(starting_version=6) as poller:
        assert View(poller).after("position") == "not started"
        assert len(server.requests) == sent  # a view sends no request
        assert View(poller.pull()).after("range") == "versions 6 to 7"
    result = mirror.sync()
    assert isinstance(result, SyncResult)
    assert View(result).after("changed") == "yes"
    assert View(mirror.scan(limit=2)).after("limit") == "2"


def test_views_of_a_log(tmp_path: Path) -> None:
    table = write_sample_tables(tmp_path / "warehouse")["retail.sales.orders"]
    log = ds.DeltaLog.for_table(table)
    snapshot = log.snapshot()
    place = str(log.table_path)
    assert View(log).texts == ["DeltaLog", " ", place]
    view = View(snapshot)
    assert (view.texts[2], view.after("version")) == (place, str(snapshot.version))
    assert (view.after("files"), view.after("bytes")) == (str(len(snapshot.files)), f"{snapshot.size_in_bytes:,}")
    assert "order_date" in view.texts
    scan = View(snapshot.scan(columns=["order_id"], limit=2))
    assert [scan.after(label) for label in ("columns", "limit", "version")] == [
        "order_id",
        "2",
        view.after("version"),
    ]
    assert View(ds.DeltaLog.for_table(tmp_path / "none").snapshot()).after("version") == "-1"
    assert set(view.tags) <= TAGS


def test_long_tables_and_texts_are_shortened() -> None:
    table = html_table(("a",), [(number,) for number in range(1000)])
    assert table.count("<tr>") == 301
    assert "700 more" in table
    assert len(html_table(("a",), [("x" * 10_000,)])) < 1000


def test_a_bar_has_a_section_for_each_count() -> None:
    assert html_bar([("read", 1), ("skipped", 3)]).count("<div") == 3
    assert "width:75.00%" in html_bar([("read", 1), ("skipped", 3)])
    assert html_bar([("read", 0), ("skipped", 0)]) == ""


@pytest.mark.parametrize("hidden", ["", "import sys; sys.modules['ipywidgets'] = None"], ids=["widget", "text"])
def test_a_progress_bar_leaves_nothing_behind(hidden: str) -> None:
    code = (
        "from IPython import display\n"
        "from delta_sharing_client.frames.progress import byte_progress\n"
        "shown = []\n"
        "original = display.display\n"
        "display.display = lambda *a, **k: shown.append(a[0]) or original(*a, **k)\n"
        "with byte_progress(3000, True, 'orders') as advance:\n"
        "    for _ in range(3000):\n"
        "        advance(1)\n"
        "    while not shown:\n"
        "        advance(0)\n"
        "print(type(shown[0]).__name__)\n"
    )
    cells = [nbformat.v4.new_code_cell(text) for text in (hidden, code)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=HANG, kernel_name="python3").execute()
    outputs = notebook.cells[-1].outputs
    assert [output.get("data") for output in outputs if output.output_type == "display_data"] == [
        {"text/plain": ""}
    ]
    assert [output.text.strip() for output in outputs if output.output_type == "stream"] == [
        "dict" if hidden else "TqdmHBox"
    ]
