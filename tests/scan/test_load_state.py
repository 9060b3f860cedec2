"""The state of a load under seeded schedules: jobs end in any order, without a thread or a socket."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest

from delta_sharing_client.errors import DataError, StorageError
from delta_sharing_client.parquet.decode import Decoded
from delta_sharing_client.scan import pipeline
from delta_sharing_client.scan.pipeline import LoadState, OpenedFile, UnitPlan
from delta_sharing_client.storage.byte_source import FileChanged

_ROW = 8
_OPEN_AHEAD = 64


class FakeUnit:
    """A unit with the rows of each step; a step may fail."""

    def __init__(self, rng: random.Random, first: int, fails: bool) -> None:
        self.steps = [rng.choice([0, 1, 3, 50]) for _ in range(rng.randint(1, 4))]
        self.fails_at = rng.randint(0, len(self.steps) - 1) if fails else None
        self.first = first
        self.encoded = rng.choice([1, 100, 1000, 600_000])
        self.decoded = rng.choice([0, 100, sum(self.steps) * _ROW, 5000])  # an estimate may be wrong
        self.fetches = rng.randint(0, 3)
        self.fetch_fails = rng.random() < 0.5 and fails

    @property
    def rows(self) -> int:
        return sum(self.steps)

    def numbers(self) -> list[int]:
        return list(range(self.first, self.first + self.rows))

    def decode(self) -> Iterator[Decoded]:
        first = self.first
        for number, rows in enumerate(self.steps):
            if number == self.fails_at and not self.fetch_fails:
                raise DataError("damaged", file_id="f")
            batches = [pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})] if rows else []
            first += rows
            yield Decoded(batches, number == len(self.steps) - 1)


class FakeFile:
    """A file: whole, in ranges, or one that changes between its ranges."""

    def __init__(self, rng: random.Random, first: int, faults: float) -> None:
        self.kind = rng.choice(["whole", "whole", "ranged", "empty"])
        fault = rng.choice(["unit", "open", "changed"]) if rng.random() < faults else None
        self.fault = fault if self.kind == "ranged" or fault == "unit" else None
        count = {"whole": 1, "ranged": rng.randint(1, 5), "empty": 0}[self.kind]
        self.units: list[FakeUnit] = []
        damaged = rng.randrange(count) if count and self.fault == "unit" else None
        for number in range(count):
            self.units.append(FakeUnit(rng, first, number == damaged))
            first += self.units[-1].rows
        self.changes_in = rng.randrange(count) if self.fault == "changed" else None
        self.next = first

    def numbers(self) -> list[int]:
        return [number for unit in self.units for number in unit.numbers()]


class FakeReader:
    """A `FileReader` of fake files; a task names its file by its id."""

    def __init__(self, files: list[FakeFile]) -> None:
        self.files = files

    def expected_size(self, task):
        file = self.files[int(task.file_id)]
        return None if file.kind == "whole" else 2000

    def whole(self, task):
        file = self.files[int(task.file_id)]

        def fetch():
            for unit in file.units:
                if unit.fails_at is not None and unit.fetch_fails:
                    raise StorageError("gone", file_id="f")
            return (step for unit in file.units for step in unit.decode())

        if file.kind == "whole":
            return UnitPlan(file.units[0].encoded, file.units[0].decoded, [fetch])

        # A file in ranges that has changed is read whole; all of its steps but the last say so.
        def steps():
            all_steps = [step for unit in file.units for step in unit.decode()]
            yield from (Decoded(step.batches, step is all_steps[-1]) for step in all_steps)

        return UnitPlan(3000, 3000, [steps])

    def open(self, task):
        file = self.files[int(task.file_id)]
        if file.fault == "open":
            raise DataError("no footer", file_id="f")
        plans = []
        for number, unit in enumerate(file.units):

            def fetch(unit=unit, number=number):
                if file.changes_in == number:
                    raise FileChanged
                if unit.fails_at is not None and unit.fetch_fails:
                    raise StorageError("gone", file_id="f")

            fetches = max(unit.fetches, 1 if unit.fetch_fails or file.changes_in == number else 0)
            plans.append(UnitPlan(unit.encoded, unit.decoded, [fetch] * fetches, unit.decode()))
        return OpenedFile(plans)


def fake_task(number, *, size=1, vector_size=0):
    return SimpleNamespace(
        file_id=str(number), size=size, row_count=None, all_rows_match=True, vector_size=vector_size
    )


def expectation(files, limit):
    """The numbers to be yielded, and whether an error follows; `None` for a file that may do either."""
    numbers = []
    for file in files:
        if limit is not None and len(numbers) >= limit:
            break
        if file.fault == "open":
            return numbers, "error"
        for unit in file.units:
            if unit.fails_at is not None:
                if not unit.fetch_fails:
                    numbers += unit.numbers()[: sum(unit.steps[: unit.fails_at])]
                return numbers, "error"
            numbers += unit.numbers()
    return numbers, "end"


def run(seed, *, cancel_after=None):
    """Load random files by a random schedule; return what was yielded, how it ended, and the state."""
    rng = random.Random(seed)
    files, first = [], 0
    faults = rng.choice([0, 0, 0.05, 0.3])
    for _ in range(rng.choice([1, 2, 3, 3, 5, 8, 8, 15, 15, 80])):
        files.append(FakeFile(rng, first, faults))
        first = files[-1].next
    budget = rng.choice([1, 5000, 100_000, 10_000_000])
    limit = rng.choice([None, None, None, 1, 10, 1000])
    known = rng.random() < 0.5
    tasks = [
        SimpleNamespace(
            file_id=str(number),
            size=number,
            row_count=len(file.numbers()) if known else None,
            all_rows_match=True,
            vector_size=rng.choice([0, 0, 0, 10, 2000]),
        )
        for number, file in enumerate(files)
    ]
    state = LoadState(tasks, FakeReader(files), budget=budget, limit=limit, decoders=rng.choice([1, 2, 8]))
    waiting, yielded, completed, most_used = [], [], [], 0
    lazy = rng.random()
    ended = "end"
    try:
        while not state.is_complete:
            taken = state.take()
            for job in state.jobs():
                assert job.parts
                waiting.append(job)
            completed += state.completed_files()
            if taken is not None:
                unit, rows = taken
                yielded += [n for batch in rows.batches for n in batch.column(0).to_pylist()]
                if rng.random() < lazy and waiting:  # jobs go on while the consumer has the rows
                    state.receive(waiting.pop(rng.randrange(len(waiting))).perform())
                state.release(unit, rows.size)
                if cancel_after is not None and len(yielded) >= cancel_after:
                    return files, limit, yielded, "cancelled", state, completed
            elif not state.is_complete:
                assert waiting, "the load waits, and no job is under way"
                state.receive(waiting.pop(rng.randrange(len(waiting))).perform())
            most_used = max(most_used, state.used)
    except (DataError, StorageError) as error:
        ended = "changed" if "changed" in str(error) else "error"
    return files, limit, yielded, ended, state, completed


def check(seed):
    files, limit, yielded, ended, state, completed = run(seed)
    numbers, end = expectation(files, limit)
    if ended == "changed":
        # Only a file that has changed after some of its rows were taken.
        assert any(file.fault == "changed" for file in files)
        assert yielded == numbers[: len(yielded)]
        return
    if limit is not None and len(numbers) >= limit:
        numbers, end = numbers[:limit], "end"
    assert (yielded, ended) == (numbers, end), seed
    if end == "end":
        if limit is None or len(numbers) < limit:
            assert completed == list(range(len(files)))
            assert state.used == 0
        assert not state.jobs()


@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("decoded_at_once", [None, 1, 100])
def test_any_schedule_gives_the_rows_in_order_and_the_first_error(block, decoded_at_once, monkeypatch):
    if decoded_at_once is not None:  # several jobs for a unit
        monkeypatch.setattr(pipeline, "_LEAST_DECODED", decoded_at_once)
        monkeypatch.setattr(pipeline, "_MOST_DECODED", decoded_at_once)
    for seed in range(block * 150, (block + 1) * 150):
        check(seed)


@pytest.mark.parametrize("limit", [1, 5, 6, 7, 11, 12, 13, 18, 30])
def test_a_limit_within_a_unit_of_several_jobs(limit, monkeypatch):
    monkeypatch.setattr(pipeline, "_LEAST_DECODED", 1)
    monkeypatch.setattr(pipeline, "_MOST_DECODED", 1)

    def whole(task):
        first = 12 * int(task.file_id)
        batches = [pa.record_batch({"n": pa.array([first + 3 * n + k for k in range(3)])}) for n in range(4)]
        return UnitPlan(10, 10, [lambda: (Decoded([batch], batch is batches[-1]) for batch in batches)])

    reader = SimpleNamespace(expected_size=lambda task: None, whole=whole)
    tasks = [fake_task(n, size=1) for n in range(3)]
    state, waiting, yielded = LoadState(tasks, reader, budget=10**6, limit=limit), [], []
    while not state.is_complete:
        taken = state.take()
        waiting += state.jobs()
        if taken is not None:
            yielded += [n for batch in taken[1].batches for n in batch.column(0).to_pylist()]
            state.release(taken[0], taken[1].size)
        elif not state.is_complete:
            state.receive(waiting.pop(0).perform())
    assert yielded == list(range(limit))


def test_a_load_that_is_left_needs_no_further_message():
    for seed in range(200):
        _, _, yielded, ended, state, _ = run(seed, cancel_after=5)
        assert ended in ("cancelled", "end", "error", "changed")
        assert len(yielded) < 5 or ended == "cancelled" or not state.used < 0


@pytest.mark.parametrize("budget", [1, 3000, 40_000])
def test_units_after_the_wanted_one_start_within_the_budget(budget):
    """With right estimates only the unit whose rows are wanted exceeds the budget."""
    rng = random.Random(budget)
    files, first = [], 0
    for _ in range(60):
        files.append(FakeFile(rng, first, 0))
        first = files[-1].next
        for unit in files[-1].units:
            unit.encoded, unit.decoded = 1000, unit.rows * _ROW
    tasks = [fake_task(n, size=n) for n in range(60)]
    state = LoadState(tasks, FakeReader(files), budget=budget)
    waiting = []
    largest = 1000 + max(unit.rows for file in files for unit in file.units) * _ROW
    while not state.is_complete:
        taken = state.take()
        waiting += state.jobs()
        # Beside the unit whose rows are wanted, one job may decode 1 MB beyond the estimate of its unit.
        assert state.used <= max(budget, largest) + largest + 2 * 1024 * 1024
        if taken is not None:
            state.release(taken[0], taken[1].size)
        elif not state.is_complete:
            state.receive(waiting.pop(rng.randrange(len(waiting))).perform())
    assert state.used == 0


@pytest.mark.parametrize("ranged", [False, True])
def test_files_with_deletion_vectors_are_opened_within_the_budget(ranged):
    """A vector is kept from the opening of its file to its end, three times in memory while it is decoded."""
    rng = random.Random(3)
    files = [FakeFile(rng, 0, 0) for _ in range(20)]
    for file in files:
        file.kind, file.units = ("ranged" if ranged else "whole"), [FakeUnit(rng, 0, False)]
        file.units[0].encoded = file.units[0].decoded = 1
    tasks = [fake_task(n, vector_size=10_000_000) for n in range(20)]
    state, waiting, most = LoadState(tasks, FakeReader(files), budget=100_000_000), [], 0
    while not state.is_complete:
        taken = state.take()
        waiting += state.jobs()
        most = max(most, state.used)
        if taken is not None:
            state.release(taken[0], taken[1].size)
        elif not state.is_complete:
            state.receive(waiting.pop(rng.randrange(len(waiting))).perform())
    assert 90_000_000 <= most < 100_000_000
    assert state.used == 0
