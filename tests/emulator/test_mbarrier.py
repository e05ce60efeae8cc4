"""The mbarrier object's state machine (PTX ISA 9.7.13.15)."""

from __future__ import annotations

import pytest

from umma_jit.emulator.mbarrier import MAX_COUNT, Mbarrier, MbarrierMisuse, pack_state, unpack_state


def test_a_fresh_barrier_lets_the_odd_parity_pass() -> None:
    barrier = Mbarrier(1)
    assert barrier.complete(1)
    assert not barrier.complete(0)


def test_phases_advance_and_reload_the_count() -> None:
    barrier = Mbarrier(2)
    barrier.arrive()
    assert (barrier.phase, barrier.pending) == (0, 1)
    barrier.arrive()
    assert (barrier.phase, barrier.pending) == (1, 2)
    assert barrier.complete(0)
    assert not barrier.complete(1)
    barrier.arrive(2)
    assert barrier.phase == 2
    assert barrier.complete(1)


def test_transactions_hold_the_phase() -> None:
    barrier = Mbarrier(1)
    barrier.expect_tx(4096)
    barrier.arrive()
    assert barrier.phase == 0
    barrier.complete_tx(1024)
    assert barrier.phase == 0
    barrier.complete_tx(3072)
    assert (barrier.phase, barrier.tx) == (1, 0)


def test_completions_may_run_ahead_of_the_expectation() -> None:
    barrier = Mbarrier(1)
    barrier.complete_tx(128)
    assert (barrier.phase, barrier.tx) == (0, -128)
    barrier.expect_tx(128)
    assert barrier.phase == 0
    barrier.arrive()
    assert barrier.phase == 1


def test_over_arrival() -> None:
    barrier = Mbarrier(1)
    barrier.expect_tx(16)
    barrier.arrive()
    with pytest.raises(MbarrierMisuse, match="expects 1 a phase") as caught:
        barrier.arrive()
    assert caught.value.rule == "mbarrier.over-arrival"


def test_drop_lowers_later_phases() -> None:
    barrier = Mbarrier(3)
    barrier.drop()
    barrier.arrive(2)
    assert (barrier.phase, barrier.pending) == (1, 2)
    barrier.arrive(2)
    assert barrier.phase == 2


def test_no_complete_must_not_complete() -> None:
    barrier = Mbarrier(2)
    barrier.arrive(1, complete=False)
    with pytest.raises(MbarrierMisuse) as caught:
        barrier.arrive(1, complete=False)
    assert caught.value.rule == "mbarrier.no-complete"


@pytest.mark.parametrize("count", [0, MAX_COUNT + 1])
def test_counts_have_limits(count: int) -> None:
    with pytest.raises(MbarrierMisuse, match="count"):
        Mbarrier(count)
    barrier = Mbarrier(4)
    with pytest.raises(MbarrierMisuse, match="count"):
        barrier.arrive(count)


def test_transaction_count_has_limits() -> None:
    barrier = Mbarrier(1)
    barrier.expect_tx(MAX_COUNT)
    with pytest.raises(MbarrierMisuse) as caught:
        barrier.expect_tx(1)
    assert caught.value.rule == "mbarrier.tx-overflow"


def test_states_round_trip_and_are_marked() -> None:
    assert unpack_state(pack_state(7, 5)) == (7, 5)
    assert unpack_state(42) is None
