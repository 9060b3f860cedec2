"""Short runs of the chaos test; `make chaos` injects 10,000 faults."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from faults import chaos
from faults import fault_kinds as kinds
from faults.server import Reply, Request


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_loads_return_expected_rows_or_typed_errors(seed: int) -> None:
    result = chaos.run_chaos(seed, 60)
    assert result.valid, result.report()
    assert result.correct, result.report()
    assert not result.lost, result.report()


def test_oracle_detects_wrong_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result counts a client that loses rows, and one that raises an untyped error."""
    result = chaos.Result()
    lossy = chaos._to_arrow

    def loses(client, share):
        loaded, expected = lossy(client, share)
        return loaded.slice(1), expected

    def breaks(client, share):
        raise KeyError("file")

    for load in (loses, breaks):
        monkeypatch.setattr(chaos, "_LOADS", [load])
        monkeypatch.setattr(chaos, "_mirror", load)
        monkeypatch.setattr(chaos.FaultInjector, "__call__", lambda self, request, reply: reply)
        chaos._round("oracle", result)
    assert len(result.wrong) == 1
    assert len(result.untyped) == 1
    assert not result.valid


def test_every_kind_of_fault_is_injected() -> None:
    """Each kind changes a reply, and the same seed makes the same faults."""
    request = Request("GET", "/data/f20?x=1", {}, b"", 1)
    data = next(file.data for file in kinds.FILES if file.name == "f20")
    reply = Reply(body=data, headers={"a": "b"})
    listing = Reply(body=b'{"protocol": {}}\n{"metaData": {}}\n{"endStreamAction": {}}\n')
    for faults, correct in (
        ({**kinds.API, **kinds.API_PERMANENT}, listing),
        ({**kinds.STORE, **kinds.STORE_PERMANENT}, reply),
    ):
        for name, fault in faults.items():
            faulty = fault(random.Random(name), request, correct)
            assert faulty is not None
            assert faulty != correct, name

    def faults() -> Counter[str]:
        injector = chaos.FaultInjector("seed", 0.5, permanent=True)
        for number in range(200):
            injector(Request("GET", f"/data/f{number % 12}", {}, b"", 1), Reply(body=b"x" * 1000))
        return injector.faults

    assert faults() == faults()
    assert faults().total() > 50


def test_flips_are_in_pages_with_checksums_only() -> None:
    for file in kinds.FILES:
        assert kinds.PAGES[file.name] or len(file.table) < 300
        for start, stop in kinds.PAGES[file.name]:
            assert 4 < start < stop < len(file.data)
