"""``mbarrier.*`` (PTX ISA 9.7.13.15).

A barrier that misuse has brought into an undefined state is refused with `MbarrierError`. Arrivals release,
waits acquire: both carry vector clocks whatever their ``.sem``, so ``.relaxed`` forms can hide a race from
the checks but never cause one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.clocks import ALL_LANES
from umma_jit.emulator.isa._machine import (
    Site,
    active_lanes,
    active_rows,
    barrier_at,
    clocks_of,
    fault,
    shared_addresses,
    word,
)
from umma_jit.emulator.isa.registry import YIELD, Result, Wait, handler
from umma_jit.emulator.mbarrier import Mbarrier, MbarrierMisuse, pack_state, unpack_state
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Instruction, Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from umma_jit.emulator.clocks import Token
    from umma_jit.emulator.context import Context


@handler("mbarrier.init", blocking=False)
def init(ctx: Context, ins: Instruction) -> None:
    """``mbarrier.init.b64 [addr], count``."""
    shared = ctx.cta.shared
    addresses = shared_addresses(ctx, ins.operands[0])
    for row, lane in active_lanes(ctx):
        address = int(addresses[row, lane])
        try:
            memory, offset = shared.locate(address, 8, 8, "mbarrier.init")
            if memory is not shared:
                raise MbarrierMisuse(
                    "mbarrier.remote", f"mbarrier.init at {address:#x} of another CTA", "each CTA initialises its own"
                )
            if offset in shared.barriers:
                ctx.finding(
                    rule="mbarrier.init-twice",
                    message=f"mbarrier.init on the live mbarrier at {address:#x}",
                    remedy="let one thread initialise it, once; mbarrier.inval before reusing the memory",
                )
            shared.add_barrier(offset, Mbarrier(word(ctx, ins.operands[1], row, lane)))
        except Misuse as misuse:
            fault(ctx, misuse, row)


@handler("mbarrier.inval", blocking=False)
def inval(ctx: Context, ins: Instruction) -> None:
    """``mbarrier.inval.b64 [addr]``."""
    addresses = shared_addresses(ctx, ins.operands[0])
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        memory, offset, barrier = barrier_at(site, ctx.cta.shared, int(addresses[row, lane]), local=True)
        if barrier.tx:
            site.finding(
                rule="mbarrier.inval-busy",
                message=f"mbarrier.inval while {barrier.tx} bytes are expected in phase {barrier.phase}",
                remedy="wait for the phase before giving up the barrier",
            )
        memory.remove_barrier(offset)


@handler("mbarrier.expect_tx", blocking=False)
def expect_tx(ctx: Context, ins: Instruction) -> None:
    """``mbarrier.expect_tx.b64 [addr], txCount``."""
    _transact(ctx, ins, lambda barrier, size: barrier.expect_tx(size))


@handler("mbarrier.complete_tx", blocking=False)
def complete_tx(ctx: Context, ins: Instruction) -> None:
    """``mbarrier.complete_tx.b64 [addr], txCount``: a completion with no copy behind it."""
    _transact(ctx, ins, lambda barrier, size: barrier.complete_tx(size))


def _transact(ctx: Context, ins: Instruction, action: Callable[[Mbarrier, int], None]) -> None:
    addresses = shared_addresses(ctx, ins.operands[0])
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        _, _, barrier = barrier_at(site, ctx.cta.shared, int(addresses[row, lane]))
        try:
            action(barrier, word(ctx, ins.operands[1], row, lane))
        except Misuse as misuse:
            site.fault(misuse)


@handler("mbarrier.arrive", blocking=False)
def arrive(ctx: Context, ins: Instruction) -> None:
    """``mbarrier.arrive{.expect_tx|.noComplete}{.sem.scope}{.space}.b64 state|_, [addr] {, count|txCount}``."""
    _arrive(ctx, ins, drop=False)


@handler("mbarrier.arrive_drop", blocking=False)
def arrive_drop(ctx: Context, ins: Instruction) -> None:
    """``mbarrier.arrive_drop``: as arrive, and the barrier expects that many fewer from the next phase on."""
    _arrive(ctx, ins, drop=True)


def _arrive(ctx: Context, ins: Instruction, *, drop: bool) -> None:
    operands = ins.operands
    # The destination may be left out altogether in the forms without a state.
    has_state = len(operands) > 1 and not _is_address(operands[0])
    destination = operands[0] if has_state else None
    rest = operands[1:] if has_state else operands
    addresses = shared_addresses(ctx, rest[0])
    wants_state = destination is not None and not isinstance(destination, Sink)
    states = np.zeros((ctx.num_warps, 32), np.uint64) if wants_state else None
    expects, complete = ins.has("expect_tx"), not ins.has("noComplete")
    clocks = clocks_of(ctx)
    tokens: dict[int, Token] = {
        row: clocks.release(clocks.warp(ctx.cta.rank, ctx.w0 + row), _lanes(ctx, row)) for row in active_rows(ctx)
    }
    plain = states is None and len(rest) == 1 and not drop and not expects
    if plain and _arrive_together(ctx, ins, addresses, tokens):
        return
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        _, _, barrier = barrier_at(site, ctx.cta.shared, int(addresses[row, lane]))
        value = word(ctx, rest[1], row, lane) if len(rest) > 1 else 1
        if states is not None:
            states[row, lane] = pack_state(barrier.phase, barrier.pending)
        try:
            if expects:
                barrier.expect_tx(value)
                value = 1
            if drop:
                barrier.drop(value, tokens[row], complete=complete)
            else:
                barrier.arrive(value, tokens[row], complete=complete)
        except Misuse as misuse:
            site.fault(misuse)
    if states is not None and destination is not None:
        ctx.set_u64(destination, states)


def _lanes(ctx: Context, row: int) -> int:
    """The active lanes of a warp as a mask."""
    if ctx.full:
        return ALL_LANES
    return int(np.packbits(ctx.mask[row], bitorder="little").view("<u4")[0])


def _arrive_together(ctx: Context, ins: Instruction, addresses: np.ndarray, tokens: dict[int, Token]) -> bool:
    """Let all active threads arrive at once if they name one barrier that has room for them."""
    active = addresses[ctx.mask]
    if active.size == 0 or (active != active[0]).any():
        return False
    first_row = next(iter(tokens))
    _, _, barrier = barrier_at(Site(ctx, ins, ctx.w0 + first_row), ctx.cta.shared, int(active[0]))
    if active.size > barrier.pending:
        return False
    token: Token | None = None
    for released in tokens.values():
        token = released if token is None else token.join(released)
    barrier.arrive(int(active.size), token)
    return True


def _is_address(operand: object) -> bool:
    return type(operand).__name__ == "Address"


@handler("mbarrier.test_wait")
def test_wait(ctx: Context, ins: Instruction) -> Result:
    """``mbarrier.test_wait{.parity}...b64 p, [addr], state|parity``: never blocks."""
    complete, checks = _look(ctx, ins)
    _acquire(ctx, ins, complete)
    ctx.set_pred(ins.operands[0], complete)
    return YIELD if checks else None


@handler("mbarrier.try_wait")
def try_wait(ctx: Context, ins: Instruction) -> Result:
    """``mbarrier.try_wait{.parity}...b64 p, [addr], state|parity {, timeHint}``.

    Suspends until the phase completes. The time limit, which the ISA leaves open, is modelled as: when nothing
    else in the launch can move, the thread is woken with False; under the schedule ``random`` it may be at once.
    """
    complete, checks = _look(ctx, ins)
    waits = not complete[ctx.mask].all()
    gives_up = waits and not ctx.timed_out and ctx.launch.times_out()
    if waits and not ctx.timed_out and not gives_up:
        return Wait(lambda: all(check() for check in checks), _describe(ctx, ins))
    _acquire(ctx, ins, complete)
    ctx.set_pred(ins.operands[0], complete)
    return YIELD if gives_up else None


def _look(ctx: Context, ins: Instruction) -> tuple[np.ndarray, list[Callable[[], bool]]]:
    """Which threads see their phase complete, and what the others wait for."""
    addresses = shared_addresses(ctx, ins.operands[1])
    by_parity = ins.has("parity")
    which = ctx.u32(ins.operands[2]) if by_parity else ctx.u64(ins.operands[2])
    complete = np.zeros((ctx.num_warps, 32), bool)
    checks: list[Callable[[], bool]] = []
    active = list(zip(addresses[ctx.mask].tolist(), which[ctx.mask].tolist(), strict=True))
    different = dict.fromkeys(active)
    for address, selector in different:
        chosen = ctx.mask
        if len(different) > 1:
            chosen = chosen & (addresses == address) & (which == which.dtype.type(selector))
        row = int(np.nonzero(chosen)[0][0])
        site = Site(ctx, ins, ctx.w0 + row)
        _, _, barrier = barrier_at(site, ctx.cta.shared, address, local=True)
        check = _phase_check(site, barrier, selector, by_parity)
        if check():
            complete |= chosen
        else:
            checks.append(check)
    return complete, checks


def _phase_check(site: Site, barrier: Mbarrier, selector: int, by_parity: bool) -> Callable[[], bool]:
    if by_parity:
        if selector not in (0, 1):
            # The ISA knows 0 and 1 only. Triton's Hopper kernels pass -1 for 1, and run: bit 0 is what counts.
            site.finding(
                rule="mbarrier.parity",
                message=f"phase parity {selector}",
                remedy="the parity is 0 or 1: mask the phase counter with 1",
                severity="warning",
            )
        return lambda: barrier.complete(selector & 1)
    state = unpack_state(selector & 0xFFFFFFFFFFFFFFFF)
    if state is None:
        site.fault(
            MbarrierMisuse(
                "mbarrier.state",
                f"{selector & 0xFFFFFFFFFFFFFFFF:#x} is not a state that an arrive returned",
                "pass the 64-bit state of mbarrier.arrive on the same barrier",
            )
        )
    phase = state[0]
    if phase < barrier.phase - 1:
        site.finding(
            rule="mbarrier.stale-phase",
            message=f"wait for phase {phase} of a barrier that is in phase {barrier.phase}",
            remedy="only the current and the preceding phase can be asked for",
        )
    return lambda: barrier.phase > phase


def _acquire(ctx: Context, ins: Instruction, complete: np.ndarray) -> None:
    clocks = clocks_of(ctx)
    addresses = shared_addresses(ctx, ins.operands[1])
    seen = complete & ctx.mask
    for row in np.flatnonzero(seen.any(axis=1)).tolist():
        agent = clocks.warp(ctx.cta.rank, ctx.w0 + row)
        for address in set(addresses[row][seen[row]].tolist()):
            _, _, barrier = barrier_at(Site(ctx, ins, ctx.w0 + row), ctx.cta.shared, address)
            clocks.acquire(agent, barrier.token)


def _describe(ctx: Context, ins: Instruction) -> Callable[[], str]:
    """For the deadlock report; evaluated while the thread is still suspended."""
    addresses = shared_addresses(ctx, ins.operands[1])[ctx.mask]
    which = np.broadcast_to(
        ctx.u32(ins.operands[2]) if ins.has("parity") else ctx.u64(ins.operands[2]), ctx.mask.shape
    )[ctx.mask].copy()
    shared = ctx.cta.shared

    def text() -> str:
        parts = []
        for address, selector in sorted(set(zip(addresses.tolist(), which.tolist(), strict=True))):
            barrier = shared.barriers.get(address & 0xFFFFFF)
            what = f"parity {selector}" if ins.has("parity") else f"state {selector:#x}"
            if barrier is None:
                parts.append(f"mbarrier {address:#x} ({what}), no longer initialised")
                continue
            parts.append(
                f"mbarrier {address:#x} ({what}): phase {barrier.phase}, {barrier.pending} of {barrier.count} "
                f"arrivals and {barrier.tx} transaction bytes missing"
            )
        return "; ".join(parts)

    return text


@handler("mbarrier.pending_count", blocking=False)
def pending_count(ctx: Context, ins: Instruction) -> None:
    """``mbarrier.pending_count.b64 count, state``."""
    states = ctx.u64(ins.operands[1])
    ctx.set_u32(ins.operands[0], (states & np.uint64(0xFFFFF)).astype(np.uint32))
