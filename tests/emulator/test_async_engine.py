"""When asynchronous operations complete under each schedule."""

from __future__ import annotations

from random import Random

import pytest

from umma_jit.emulator.async_engine import LATENCY, AsyncEngine, AsyncOperation


def _issue(
    engine: AsyncEngine, log: list[str], name: str, queue: str | None = None, group: bool = False
) -> AsyncOperation:
    return engine.issue(AsyncOperation(name, lambda: log.append(name), queue=queue, line=1, observed_by_group=group))


def test_eager_completes_at_issue() -> None:
    engine, log = AsyncEngine("eager"), []
    operation = _issue(engine, log, "a")
    assert log == ["a"]
    assert operation.done
    assert not engine.pending


def test_lazy_waits_until_nothing_can_run_and_leaves_groups_to_the_end() -> None:
    engine, log = AsyncEngine("lazy"), []
    for name, group in (("store", True), ("load", False), ("mma", False)):
        _issue(engine, log, name, group=group)
    for _ in range(1000):
        engine.step_before_run(Random(0))
    assert log == []
    while engine.complete_one():
        pass
    assert log == ["load", "mma", "store"]
    assert engine.completed == 6  # three issued, three completed


def test_program_completes_in_order_after_the_latency() -> None:
    engine, log = AsyncEngine("program"), []
    _issue(engine, log, "a")
    engine.tick()
    _issue(engine, log, "b")
    for _ in range(LATENCY - 1):
        engine.tick()
    assert log == ["a"]
    engine.tick()
    assert log == ["a", "b"]


@pytest.mark.parametrize("seed", range(5))
def test_random_keeps_the_order_of_a_queue(seed: int) -> None:
    engine, log, rng = AsyncEngine("random"), [], Random(seed)
    for index in range(8):
        _issue(engine, log, f"q{index}", queue="q")
        _issue(engine, log, f"u{index}")
    while engine.pending:
        engine.maybe_complete(rng)
    assert [name for name in log if name[0] == "q"] == [f"q{index}" for index in range(8)]
    assert sorted(log) == sorted([f"{kind}{index}" for kind in "qu" for index in range(8)])


def test_random_reorders_unordered_operations_under_some_seed() -> None:
    orders = set()
    for seed in range(8):
        engine, log, rng = AsyncEngine("random"), [], Random(seed)
        for index in range(3):
            _issue(engine, log, str(index))
        while engine.complete_one(rng):
            pass
        orders.add(tuple(log))
    assert len(orders) > 1


def test_operations_issued_by_a_completion_follow_it() -> None:
    engine, log = AsyncEngine("eager"), []

    def first() -> None:
        log.append("read")
        _issue(engine, log, "write")

    engine.issue(AsyncOperation("read", first))
    assert log == ["read", "write"]


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="program, eager, lazy, random"):
        AsyncEngine("soon")


def test_what_is_in_flight_can_be_described() -> None:
    engine = AsyncEngine("lazy")
    _issue(engine, [], "tcgen05.mma")
    assert engine.describe() == ["line 1: tcgen05.mma"]
