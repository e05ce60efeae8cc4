"""Vector clocks: what is ordered before what, and what has passed a proxy fence."""

from __future__ import annotations

from umma_jit.emulator.clocks import COPY_SLOTS, Clocks


def _ordered(clocks: Clocks, before: tuple[int, int], agent: int) -> bool:
    writer, epoch = before
    return bool(clocks.order[agent, writer] >= epoch)


def _now(clocks: Clocks, agent: int) -> tuple[int, int]:
    return agent, int(clocks.order[agent, agent])


def test_unrelated_warps_are_not_ordered() -> None:
    clocks = Clocks(1, 4)
    assert not _ordered(clocks, _now(clocks, clocks.warp(0, 0)), clocks.warp(0, 1))


def test_release_and_acquire_order_what_came_before_and_nothing_after() -> None:
    clocks = Clocks(1, 4)
    first, second = clocks.warp(0, 0), clocks.warp(0, 1)
    before = _now(clocks, first)
    token = clocks.release(first)
    after = _now(clocks, first)
    clocks.acquire(second, token)
    assert _ordered(clocks, before, second)
    assert not _ordered(clocks, after, second)


def test_order_is_transitive() -> None:
    clocks = Clocks(2, 2)
    a, b, c = clocks.warp(0, 0), clocks.warp(1, 1), clocks.warp(0, 1)
    write = _now(clocks, a)
    clocks.acquire(b, clocks.release(a))
    clocks.acquire(c, clocks.release(b))
    assert _ordered(clocks, write, c)


def test_a_barrier_orders_all_its_members_and_only_them() -> None:
    clocks = Clocks(1, 4)
    writes = [_now(clocks, warp) for warp in range(4)]
    clocks.barrier([0, 1, 2])
    for reader in (0, 1, 2):
        assert all(_ordered(clocks, writes[w], reader) for w in (0, 1, 2))
        assert not _ordered(clocks, writes[3], reader)
    later = _now(clocks, 0)
    assert not _ordered(clocks, later, 1)


def test_a_copy_is_ordered_after_its_issuer_and_observed_by_its_token() -> None:
    clocks = Clocks(1, 2)
    write = _now(clocks, 0)
    flight = clocks.start_copy(0)
    assert clocks.order[flight.agent, 0] >= write[1]
    later = _now(clocks, 0)
    assert not clocks.order[flight.agent, 0] >= later[1]
    assert not _ordered(clocks, (flight.agent, flight.epoch), 1)
    clocks.acquire(1, flight.token)
    assert _ordered(clocks, (flight.agent, flight.epoch), 1)


def test_copies_in_flight_are_told_apart() -> None:
    clocks = Clocks(1, 2)
    first, second = clocks.start_copy(0), clocks.start_copy(0)
    clocks.acquire(1, second.token)
    assert not _ordered(clocks, (first.agent, first.epoch), 1)
    for _ in range(COPY_SLOTS):
        clocks.start_copy(0)


def test_a_proxy_fence_counts_on_either_side() -> None:
    for writer_fences in (True, False):
        clocks = Clocks(1, 2)
        writer, epoch = _now(clocks, 0)
        if writer_fences:
            clocks.proxy_fence(0)
        clocks.acquire(1, clocks.release(0))
        assert (clocks.proxy[1, writer] >= epoch) == writer_fences
        clocks.proxy_fence(1)
        assert clocks.proxy[1, writer] >= epoch


def test_a_write_after_the_fence_is_not_covered() -> None:
    clocks = Clocks(1, 2)
    clocks.proxy_fence(0)
    writer, epoch = _now(clocks, 0)
    clocks.acquire(1, clocks.release(0))
    assert clocks.order[1, writer] >= epoch
    assert clocks.proxy[1, writer] < epoch


def test_agents_are_named() -> None:
    clocks = Clocks(2, 4)
    assert clocks.describe(clocks.warp(1, 3)) == "warp 3 of CTA 1"
    assert clocks.describe(clocks.tensor_load(0, 2)) == "tcgen05.ld of warp 2 of CTA 0"
    assert clocks.describe(clocks.tensor_store(1, 0)) == "tcgen05.st of warp 0 of CTA 1"
    assert clocks.describe(clocks.queue(1)) == "the tensor core of CTA 1"
    assert clocks.describe(clocks.start_copy(0).agent) == "an asynchronous copy"
