"""The priority pool runs jobs in the order of their rows, not in the order of submission."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from waiting import HANG

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.scan.priority_pool import DaemonPool, OrderedPool


@pytest.fixture
def pool():
    one = OrderedPool(1, "ordered-test")
    yield one
    one.close()


@pytest.fixture
def held(pool):
    """A pool whose only thread waits until it is let go."""
    begun, go = threading.Event(), threading.Event()

    def hold():
        begun.set()
        go.wait(HANG)

    pool.submit((0, 0), hold)
    assert begun.wait(HANG)
    yield go
    go.set()


def test_the_earliest_rows_come_first(pool, held):
    done, all_done = [], threading.Event()
    for order in [(2, 0), (0, 7), (1, 3), (1, 1), (0, 2)]:
        pool.submit(order, done.append, order)
    pool.submit((9, 9), all_done.set)
    held.set()
    assert all_done.wait(HANG)
    assert done == [(0, 2), (0, 7), (1, 1), (1, 3), (2, 0)]


def test_jobs_of_the_same_rows_keep_their_order(pool, held):
    done, all_done = [], threading.Event()
    for number in range(20):
        pool.submit((1, 1), lambda value: done.append(value), number)
    pool.submit((1, 1), all_done.set)
    held.set()
    assert all_done.wait(HANG)
    assert done == list(range(20))


def test_close_drops_jobs_that_have_not_begun(pool, held):
    done = []
    pool.submit((1, 0), done.append, 1)
    pool.close()
    held.set()
    for thread in threading.enumerate():
        if thread.name.startswith("ordered-test"):
            thread.join(HANG)
    assert not done
    with pytest.raises(RuntimeError):
        pool.submit((2, 0), done.append, 2)


def test_close_releases_the_arguments_of_dropped_jobs(pool, held):
    class Rows:
        """Something that can be looked for."""

    rows = Rows()
    watched = weakref.ref(rows)
    pool.submit((1, 0), print, rows)
    del rows
    pool.close()
    gc.collect()
    assert watched() is None  # while the job that runs still does


def test_submit_after_close_raises_and_runs_nothing(pool, held):
    done = []
    pool.submit((1, 0), done.append, "accepted")
    pool.close()
    with pytest.raises(RuntimeError):
        pool.submit((0, 5), done.append, "refused")
    held.set()
    for thread in threading.enumerate():
        if thread.name.startswith("ordered-test"):
            thread.join(HANG)
    assert not done


def test_several_threads_run_each_job_once():
    pool = OrderedPool(8, "ordered-test")
    done, all_done = [], threading.Semaphore(0)

    def job(number):
        done.append(number)
        all_done.release()

    for number in range(2000):
        pool.submit((number % 7, number), job, number)
    for _ in range(2000):
        assert all_done.acquire(timeout=HANG)
    pool.close()
    assert sorted(done) == list(range(2000))


def test_a_job_without_a_thread_raises_and_never_runs(monkeypatch):
    """If no thread can be started, `submit` raises; the job must not run later."""

    def refuse(job):
        raise RuntimeError("can't start new thread")

    two = OrderedPool(2, "ordered-test")
    done, begun, go = [], threading.Event(), threading.Event()
    two.submit((0, 0), lambda: (begun.set(), go.wait(HANG)))
    assert begun.wait(HANG)
    with monkeypatch.context() as patched:
        patched.setattr(two._threads, "submit", refuse)
        with pytest.raises(DeltaSharingError, match="new thread"):
            two.submit((1, 0), done.append, "refused")
    last = threading.Event()
    two.submit((2, 0), done.append, "run")
    two.submit((3, 0), last.set)
    go.set()
    assert last.wait(HANG)
    assert done == ["run"]
    two.close()


def test_a_thread_that_was_not_started_takes_no_place(monkeypatch):
    """A gateway's pool is used again when the system has threads again."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    pool, done = DaemonPool(1, "ordered-test"), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(DeltaSharingError, match="new thread"):
            pool.submit((0, 0), done.set)
    assert not done.is_set()
    pool.submit((1, 0), done.set)
    assert done.wait(HANG)
    pool.close()
