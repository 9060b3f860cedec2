"""Memory that is used again from one small file to the next, and never while anything looks at it."""

import pyarrow as pa
import pytest

from delta_sharing_client.storage.buffer_pool import BufferPool


def address(view):
    return pa.py_buffer(view).address


def test_it_is_lent_again():
    buffers = BufferPool()
    first = buffers.take(1000)
    first[:] = b"x" * 1000
    where = address(first)
    buffers.give_back(first)
    again = buffers.take(900)
    assert (len(again), address(again)) == (900, where)


def test_two_at_a_time_are_apart():
    buffers = BufferPool()
    one, other = buffers.take(10), buffers.take(10)
    one[:], other[:] = b"a" * 10, b"b" * 10
    assert (bytes(one), bytes(other)) == (b"a" * 10, b"b" * 10)


def test_one_that_is_too_small_is_given_up():
    buffers = BufferPool()
    buffers.give_back(buffers.take(10))
    assert len(buffers.take(20)) == 20


def test_what_something_still_looks_at_is_not_lent_again():
    buffers = BufferPool()
    view = buffers.take(100)
    view[:] = b"k" * 100
    kept = pa.py_buffer(view)
    buffers.give_back(view)
    other = buffers.take(100)
    other[:] = b"z" * 100
    assert kept.to_pybytes() == b"k" * 100


def test_a_part_that_is_still_looked_at():
    buffers = BufferPool()
    view = buffers.take(100)
    part = view[10:20]
    buffers.give_back(view)
    buffers.take(100)[:] = b"z" * 100
    assert bytes(part) == bytes(10)


@pytest.mark.parametrize("view", [memoryview(b"abc"), memoryview(bytearray())])
def test_what_was_not_lent_is_left_alone(view):
    buffers = BufferPool()
    buffers.give_back(view)
    assert buffers.take(3) == bytes(3)
