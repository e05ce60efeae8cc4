"""``cp.async``, the non-bulk asynchronous copy, with its groups (PTX ISA 9.7.9.25.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.isa._copies import wait_groups
from umma_jit.emulator.isa._machine import (
    Site,
    active_lanes,
    active_rows,
    barrier_at,
    clocks_of,
    global_span,
    groups_of,
    shared_addresses,
)
from umma_jit.emulator.isa.registry import Wait, handler
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Instruction, Register
from umma_jit.emulator.shared_memory import SharedMemory, SharedMemoryMisuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context


@handler("cp.async.ca", "cp.async.cg", blocking=False)
def cp_async(ctx: Context, ins: Instruction) -> None:
    """``cp.async.{ca,cg}.shared.global [dst], [src], size {, src-size | ignore-src} {, policy}``."""
    operands = ins.operands
    size = ctx.immediate(operands[2])
    destinations = shared_addresses(ctx, operands[0])
    sources = ctx.address(operands[1])
    counts = np.full((ctx.num_warps, 32), size, np.int64)
    extra = operands[3] if len(operands) > 3 + ins.has("L2::cache_hint") else None
    if isinstance(extra, Register) and extra.bank == "pred":
        counts = np.where(ctx.pred(extra), 0, counts)
    elif extra is not None:
        counts = np.broadcast_to(ctx.u32(extra), counts.shape).astype(np.int64)
    clocks, shared = clocks_of(ctx), ctx.cta.shared
    for row in active_rows(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        flight = clocks.start_copy(clocks.warp(ctx.cta.rank, ctx.w0 + row), generic=True)
        moves: list[tuple[int, int, int]] = []
        words: list[NDArray[np.int64]] = []
        for lane in np.flatnonzero(ctx.mask[row]).tolist():
            try:
                memory, offset = shared.locate(int(destinations[row, lane]), size, size, "cp.async destination")
                if memory is not shared:
                    raise SharedMemoryMisuse(
                        "copy.remote", "cp.async into another CTA", "cp.async writes the own CTA's shared memory"
                    )
                if int(sources[row, lane]) % size:
                    raise SharedMemoryMisuse(
                        "copy.misaligned",
                        f"cp.async of {size} bytes from {int(sources[row, lane]):#x}",
                        f"align source and destination to {size} bytes",
                    )
            except Misuse as misuse:
                site.fault(misuse)
            moves.append((offset, int(sources[row, lane]), int(counts[row, lane])))
            words.append(np.arange(offset // 4, (offset + size) // 4))
        where = np.concatenate(words)
        shared.guard_write(site, where, flight.agent, flight.epoch, clocks.order[flight.agent], "cp.async writes")
        action = _cp_async_action(site, shared, moves, size)
        operation = ctx.launch.engine.issue(AsyncOperation(ins.opcode, action, line=ins.line))
        groups_of(ctx, ctx.w0 + row, 0, "cp.async").open.append((operation, operation, flight))


def _cp_async_action(
    site: Site, shared: SharedMemory, moves: list[tuple[int, int, int]], size: int
) -> Callable[[], None]:
    def action() -> None:
        for offset, source, count in moves:
            shared.data[offset : offset + size] = 0
            if count > 0:
                shared.data[offset : offset + count] = global_span(site, source, min(count, size))
            shared.initialised[offset // 4 : (offset + size) // 4] = True

    return action


@handler("cp.async.commit_group")
def cp_async_commit(ctx: Context, _: Instruction) -> None:
    """``cp.async.commit_group``: kept per warp, since cp.async comes from whole warps."""
    for row in active_rows(ctx):
        groups_of(ctx, ctx.w0 + row, 0, "cp.async").commit()


@handler("cp.async.wait_group")
def cp_async_wait(ctx: Context, ins: Instruction) -> Wait | None:
    """``cp.async.wait_group N``."""
    return wait_groups(ctx, ins, "cp.async", ctx.immediate(ins.operands[0]))


@handler("cp.async.wait_all")
def cp_async_wait_all(ctx: Context, ins: Instruction) -> Wait | None:
    """``cp.async.wait_all``: commit, then wait for everything."""
    for row in active_rows(ctx):
        groups = groups_of(ctx, ctx.w0 + row, 0, "cp.async")
        if groups.open:
            groups.commit()
    return wait_groups(ctx, ins, "cp.async", 0)


@handler("cp.async.mbarrier.arrive")
def cp_async_arrive(ctx: Context, ins: Instruction) -> None:
    """``cp.async.mbarrier.arrive{.noinc}.b64 [addr]``: arrives when the thread's earlier cp.async are done."""
    addresses = shared_addresses(ctx, ins.operands[0])
    clocks = clocks_of(ctx)
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        groups = groups_of(ctx, ctx.w0 + row, 0, "cp.async")
        entries = [*groups.open, *(entry for group in groups.committed for entry in group)]
        _, _, barrier = barrier_at(site, ctx.cta.shared, int(addresses[row, lane]), local=True)
        if not ins.has("noinc"):
            barrier.add_pending()
        token = clocks.release(clocks.warp(ctx.cta.rank, ctx.w0 + row))
        for _, _, flight in entries:
            token = token.join(flight.token)

        def action(
            site: Site = site,
            barrier: Any = barrier,
            token: Any = token,
            before: tuple[AsyncOperation, ...] = tuple(e[1] for e in entries),
            engine: Any = ctx.launch.engine,
        ) -> None:
            for operation in before:
                engine.complete_operation(operation)
            try:
                barrier.arrive(1, token)
            except Misuse as misuse:
                site.fault(misuse)

        ctx.launch.engine.issue(AsyncOperation(ins.opcode, action, line=ins.line))
