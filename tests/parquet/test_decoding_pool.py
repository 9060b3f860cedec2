"""The memory of decoded columns: jemalloc's pool where the process has the default one."""

import gc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import read
from waiting import wait_until

from delta_sharing_client.parquet import decode

COLUMNS = ("a", "long"), ("s", "string")
ROWS = {"a": pa.array(range(100_000)), "s": pa.array([f"row {number}" for number in range(100_000)])}
EXPECTED = {name: values.to_pylist() for name, values in ROWS.items()}


@pytest.fixture
def jemalloc():
    if pa.default_memory_pool().backend_name == "jemalloc":
        pytest.skip("jemalloc is the pool of the process, for everything")
    try:
        pool = pa.jemalloc_memory_pool()
    except NotImplementedError:
        pytest.skip("pyarrow has no jemalloc on this system")
    gc.collect()  # columns of earlier tests
    return pool


@pytest.fixture
def default_pool(monkeypatch):
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = pa.default_memory_pool()
    yield pa.set_memory_pool
    pa.set_memory_pool(before)


def test_columns_are_decoded_in_the_pool_of_jemalloc(jemalloc, default_pool):
    default_pool(pa.mimalloc_memory_pool())
    before = jemalloc.bytes_allocated()
    table = read(ROWS, *COLUMNS)
    assert jemalloc.bytes_allocated() - before > table.nbytes * 0.9
    assert table.to_pydict() == EXPECTED
    del table
    # Arrow's threads release their part after the decoder has returned.
    wait_until(lambda: jemalloc.bytes_allocated() <= before, jemalloc.bytes_allocated)


def test_the_default_pool_of_the_process_stays_as_it_is():
    before = pa.default_memory_pool().backend_name
    read(ROWS, *COLUMNS)
    assert pa.default_memory_pool().backend_name == before


def test_a_default_pool_that_the_user_has_chosen_is_used(jemalloc, default_pool):
    default_pool(pa.system_memory_pool())
    before = jemalloc.bytes_allocated()
    table = read(ROWS, *COLUMNS)
    assert jemalloc.bytes_allocated() == before
    assert table.to_pydict() == EXPECTED


def test_mimalloc_is_used_where_the_user_has_chosen_it(jemalloc, default_pool, monkeypatch):
    default_pool(pa.mimalloc_memory_pool())
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    before = jemalloc.bytes_allocated()
    table = read(ROWS, *COLUMNS)
    assert jemalloc.bytes_allocated() == before
    assert table.to_pydict() == EXPECTED


def test_a_system_without_jemalloc_uses_the_default_pool(monkeypatch):
    def unsupported():
        raise NotImplementedError

    monkeypatch.setattr(pa, "jemalloc_memory_pool", unsupported)
    assert decode.decoding_pool() is None
    assert read(ROWS, *COLUMNS).to_pydict() == EXPECTED


@pytest.mark.parametrize("missing", ["argument", "class", "option"])
def test_a_pyarrow_whose_reader_takes_no_pool_decodes_the_same_rows(missing, monkeypatch, default_pool):
    default_pool(pa.mimalloc_memory_pool())

    class Reader(pq.ParquetReader):
        def open(self, source, *, metadata=None, read_dictionary=None):
            raise AssertionError("the other arguments are not accepted")

    if missing == "argument":
        monkeypatch.setattr(pq, "ParquetReader", lambda: None)
    elif missing == "class":
        monkeypatch.delattr(pq, "ParquetReader")
    else:
        monkeypatch.setattr(pq, "ParquetReader", Reader)
    assert read(ROWS, *COLUMNS).to_pydict() == EXPECTED
