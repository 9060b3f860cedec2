"""Buffer pool: memory is reused for the next small file, unless another view of it exists."""

import pyarrow as pa
import pytest

from delta_sharing_client.storage.byte_source import BufferPool


def address(view):
    return pa.py_buffer(view).address


def test_returned_buffer_is_reused():
    buffers = BufferPool()
    first = buffers.take(1000)
    first[:] = b"x" * 1000
    where = address(first)
    buffers.give_back(first)
    again = buffers.take(900)
    assert (len(again), address(again)) == (900, where)


def test_buffers_in_use_at_the_same_time_are_distinct():
    buffers = BufferPool()
    one, other = buffers.take(10), buffers.take(10)
    one[:], other[:] = b"a" * 10, b"b" * 10
    assert (bytes(one), bytes(other)) == (b"a" * 10, b"b" * 10)


def test_too_small_buffer_is_replaced():
    buffers = BufferPool()
    buffers.give_back(buffers.take(10))
    assert len(buffers.take(20)) == 20


def test_buffer_with_another_view_is_not_reused():
    buffers = BufferPool()
    view = buffers.take(100)
    view[:] = b"k" * 100
    kept = pa.py_buffer(view)
    buffers.give_back(view)
    other = buffers.take(100)
    other[:] = b"z" * 100
    assert kept.to_pybytes() == b"k" * 100


def test_buffer_with_a_view_of_a_part_is_not_reused():
    buffers = BufferPool()
    view = buffers.take(100)
    part = view[10:20]
    buffers.give_back(view)
    buffers.take(100)[:] = b"z" * 100
    assert bytes(part) == bytes(10)


@pytest.mark.parametrize("view", [memoryview(b"abc"), memoryview(bytearray())])
def test_foreign_memory_is_not_added_to_the_pool(view):
    buffers = BufferPool()
    buffers.give_back(view)
    assert buffers.take(3) == bytes(3)
