"""Errors have short tracebacks: the caller's frames, and that of the public call."""

from __future__ import annotations

import logging
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.server import FaultServer, Reply

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer, write_sample_tables
from delta_sharing_client.tracebacks import public, public_class, public_items

PACKAGE = str(Path(ds.__file__).parent)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    with SharingServer(write_sample_tables(tmp_path_factory.mktemp("traces"))) as running:
        yield running


@pytest.fixture(scope="module")
def profile(server: SharingServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(server.write_profile(tmp_path_factory.mktemp("profile") / "config.share"))


@pytest.fixture
def client(server: SharingServer) -> Iterator[ds.SharingClient]:
    with ds.SharingClient(server.profile) as opened:
        yield opened


def below(error: BaseException) -> list[str]:
    """The names of the functions below the test."""
    return [
        f"{Path(frame.filename).name}:{frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/tests/" not in frame.filename
    ]


def check_short(call: Callable[[], object]) -> None:
    with pytest.raises(ds.DeltaSharingError) as caught:
        call()
    frames = [
        frame for frame in traceback.extract_tb(caught.value.__traceback__) if "/tests/" not in frame.filename
    ]
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    assert 1 <= len(ours) <= 3, frames
    assert all(frame.filename.startswith(PACKAGE) or "pyarrow" in frame.filename for frame in frames), frames


@pytest.mark.parametrize("function", ["pandas", "arrow", "polars", "duckdb", "spark"])
def test_functions_that_load(profile: str, function: str) -> None:
    load: Any = getattr(ds, f"load_as_{function}")
    check_short(lambda: load(f"{profile}#retail.sales.nope"))
    check_short(lambda: load("missing.share#retail.sales.nope"))
    check_short(lambda: load(f"{profile}#retail.sales.orders", columns=["nope"]))


@pytest.mark.parametrize("function", ["pandas", "arrow", "spark"])
def test_functions_that_load_changes(profile: str, function: str) -> None:
    load: Any = getattr(ds, f"load_table_changes_as_{function}")
    check_short(lambda: load(f"{profile}#retail.sales.orders", starting_version=99))


def test_functions_about_tables(profile: str) -> None:
    for function in (ds.get_table_version, ds.get_table_metadata, ds.get_table_protocol):
        check_short(lambda function=function: function(f"{profile}#retail.sales.nope"))


def test_client(client: ds.SharingClient) -> None:
    check_short(lambda: ds.SharingClient("missing.share"))
    check_short(lambda: client.list_schemas("nope"))
    check_short(lambda: list(client.iter_tables("nope.nope")))
    check_short(lambda: client.table("nope"))
    check_short(lambda: client["nope"])


def test_table_and_scans(client: ds.SharingClient, tmp_path: Path) -> None:
    table = client.table("retail.sales.nope")
    for call in (table.version, table.schema, table.count, table.head, table.to_arrow, table.history):
        check_short(call)
    check_short(lambda: table.columns)
    scan = client.table("retail.sales.orders").scan(["nope"])
    for call in (
        scan.to_pandas,
        scan.to_polars,
        scan.to_duckdb,
        scan.to_record_batch_reader,
        scan.explain,
        scan.plan,
    ):
        check_short(call)
    check_short(lambda: scan.schema)
    check_short(lambda: scan.to_parquet(tmp_path / "rows.parquet"))
    check_short(lambda: table.mirror(tmp_path / "mirror").sync())
    check_short(lambda: table.scan().materialize(tmp_path / "copy"))


def test_pollers(client: ds.SharingClient, tmp_path: Path) -> None:
    missing = client.table("retail.sales.nope")
    with missing.poll_changes(starting_version=0) as poller:
        check_short(poller.pull)
    with missing.poll_changes(starting_version=0) as poller:
        check_short(lambda: next(iter(poller)))
    with client.table("retail.sales.orders").poll_changes(tmp_path / "c", starting_version=6) as poller:
        batch = poller.pull()
        assert batch is not None
    check_short(batch.commit)


def test_a_reader_that_fails_on_its_way() -> None:
    with FaultServer() as faults:
        file = {"url": f"{faults.url}/f", "id": "f", "partitionValues": {}, "size": 10}
        schema = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
        metadata = {"id": "t", "format": {"provider": "parquet"}, "schemaString": schema, "partitionColumns": []}
        lines = {"protocol": {"minReaderVersion": 1}}, {"metaData": metadata}, {"file": file}
        faults.on("POST", re.compile(".*/query"), Reply.of_lines(*lines).but(headers={"delta-table-version": "0"}))
        faults.on("GET", "/f", Reply(status=404))
        with ds.SharingClient(faults.profile) as client:
            reader = client.table("s.s.t").scan().to_record_batch_reader()
            check_short(reader.read_all)


def test_whole_tracebacks_at_debug_level(client: ds.SharingClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "delta_sharing_client"), pytest.raises(ds.DeltaSharingError) as caught:
        client.table("retail.sales.nope").version()
    assert len(below(caught.value)) > 3


class TestDecorators:
    def test_the_frame_is_that_of_the_call(self) -> None:
        def deep() -> None:
            raise ds.errors.DataError("damaged") from ValueError("cause")

        @public_class
        class Reader:
            """A reader."""

            def read(self) -> None:
                """Read."""
                deep()

            @property
            def size(self) -> int:
                """The size."""
                return deep()  # type: ignore[func-returns-value]

            @classmethod
            def open(cls) -> None:
                """Open."""
                deep()

            def _read(self) -> None:
                deep()

        def names(call: Callable[[], object]) -> list[str]:
            with pytest.raises(ds.errors.DataError) as caught:
                call()
            assert str(caught.value.__cause__) == "cause"
            assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
            return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:]

        assert names(Reader().read)[-1] == "read"
        assert names(lambda: Reader().size)[-1] == "size"
        assert names(Reader.open)[-1] == "open"
        assert names(Reader()._read)[-1] == "deep"
        assert (Reader.read.__doc__, Reader.size.__doc__) == ("Read.", "The size.")

    def test_iterators_are_closed_and_shortened(self) -> None:
        closed = []

        def deep() -> Iterator[int]:
            try:
                yield 1
                raise ds.errors.DataError("damaged")
            finally:
                closed.append(True)

        items = public_items(deep())
        assert next(items) == 1
        with pytest.raises(ds.errors.DataError) as caught:
            next(items)
        assert below(caught.value) == ["tracebacks.py:public_items"]
        items = public_items(deep())
        next(items)
        items.close()  # type: ignore[attr-defined]
        assert len(closed) == 2

    def test_other_exceptions_keep_their_traceback(self) -> None:
        def deep() -> None:
            raise RuntimeError

        with pytest.raises(RuntimeError) as caught:
            public(lambda: deep())()
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "deep"
