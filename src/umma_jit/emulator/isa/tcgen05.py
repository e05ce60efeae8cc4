"""``tcgen05``: allocation, commit and fences (PTX ISA 9.7.16).

Loads and stores are in `umma_jit.emulator.isa.tcgen05_transfer`, copies and shifts in
`umma_jit.emulator.isa.tcgen05_copy`, ``tcgen05.mma`` in `umma_jit.emulator.isa.tcgen05_mma`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.isa._machine import (
    Site,
    active_lanes,
    barrier_at,
    clocks_of,
    full_warps,
    note_commit,
    queue_key,
    shared_addresses,
    tensor_queue,
    word,
)
from umma_jit.emulator.isa.registry import Wait, handler
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.tensor_memory import (
    COLUMNS,
    HALVES,
)

if TYPE_CHECKING:
    from umma_jit.emulator.clocks import Token
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.mbarrier import Mbarrier
    from umma_jit.emulator.nodes import Instruction
    from umma_jit.emulator.shadow import Conflict
    from umma_jit.emulator.shared_memory import SharedMemory

__all__ = ["report_conflict", "require_same_group"]


# -- allocation ----------------------------------------------------------------------------------------------


@handler("tcgen05.alloc")
def alloc(ctx: Context, ins: Instruction) -> Wait | None:
    """``tcgen05.alloc.cta_group.sync.aligned{.shared::cta}.b32 [dst], nCols``: blocks until there is room."""
    tmem, shared = ctx.cta.tmem, ctx.cta.shared
    destinations = shared_addresses(ctx, ins.operands[0])
    for row in full_warps(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        require_same_group(site)
        lane = int(np.flatnonzero(ctx.mask[row])[0])
        columns = word(ctx, ins.operands[1], row, lane)
        try:
            memory, offset = shared.locate(int(destinations[row, lane]), 4, 4, "tcgen05.alloc result")
            largest = min(tmem.allocations.values(), default=columns)
            base = tmem.allocate(columns)
        except Misuse as misuse:
            site.fault(misuse)
        if base is None:
            held = sum(tmem.allocations.values())
            return Wait(
                partial(tmem.has_room, columns),
                f"room for {columns} columns of tensor memory: {held} of {COLUMNS} are held",
            )
        if columns > largest:
            site.finding(
                rule="tmem.growing-allocation",
                message=f"allocation of {columns} columns after one of {largest}",
                remedy="make the largest allocation first",
                severity="warning",
            )
        clocks = clocks_of(ctx)
        agent = clocks.warp(ctx.cta.rank, site.warp)
        words = slice(offset // 4, offset // 4 + 1)
        epoch = int(clocks.order[agent, agent])
        memory.guard_write(site, words, agent, epoch, clocks.order[agent], "tcgen05.alloc writes")
        memory.data[offset : offset + 4].view(np.uint32)[0] = base
        memory.initialised[words] = True
    return None


@handler("tcgen05.dealloc", blocking=False)
def dealloc(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.dealloc.cta_group.sync.aligned.b32 taddr, nCols``."""
    tmem, clocks = ctx.cta.tmem, clocks_of(ctx)
    for row in full_warps(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        require_same_group(site)
        lane = int(np.flatnonzero(ctx.mask[row])[0])
        address = word(ctx, ins.operands[0], row, lane)
        columns = word(ctx, ins.operands[1], row, lane)
        try:
            tmem.deallocate(address, columns)
        except Misuse as misuse:
            site.fault(misuse)
        where = slice(address * HALVES, (address + columns) * HALVES)
        order = clocks.order[clocks.warp(ctx.cta.rank, site.warp)]
        conflict = tmem.shadow.unordered_write(where, order) or tmem.shadow.unordered_read(where, order)
        if conflict is not None:
            report_conflict(site, conflict, "tcgen05.dealloc frees", "tmem.dealloc-in-use")
        tmem.shadow.forget(where)


@handler("tcgen05.relinquish_alloc_permit", blocking=False)
def relinquish(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.relinquish_alloc_permit``: no allocation may follow."""
    for row in full_warps(ctx):
        require_same_group(Site(ctx, ins, ctx.w0 + row))
    ctx.cta.tmem.relinquished = True


def require_same_group(site: Site) -> None:
    """Report a mix of groups: all tcgen05 instructions of a kernel use one ``.cta_group``."""
    group = site.ins.value_of("cta_group") or "1"
    tmem = site.cta.tmem
    tmem.cta_group = tmem.cta_group or group
    if tmem.cta_group != group:
        site.finding(
            rule="tcgen05.cta-group",
            message=f".cta_group::{group} in a kernel that used .cta_group::{tmem.cta_group} before",
            remedy="use one .cta_group in all tcgen05 instructions of a kernel",
        )


@handler("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync", blocking=False)
def fence(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.fence::{before,after}_thread_sync``.

    Both assemble to nothing, and shipping kernels leave them out, so a missing one is not reported.
    """


# -- commit --------------------------------------------------------------------------------------------------


@handler("tcgen05.commit", blocking=False)
def commit(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.commit.cta_group.mbarrier::arrive::one{.shared::cluster}{.multicast::cluster}.b64 [mbar] {, mask}``."""
    addresses = shared_addresses(ctx, ins.operands[0])
    clocks = clocks_of(ctx)
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        require_same_group(site)
        address = int(addresses[row, lane])
        targets = [address]
        if ins.has("multicast::cluster"):
            mask = word(ctx, ins.operands[1], row, lane) & 0xFFFF
            targets = [rank << 24 | address & 0xFFFFFF for rank in range(16) if mask >> rank & 1]
        found = [barrier_at(site, ctx.cta.shared, target) for target in targets]
        queue = tensor_queue(ctx)
        note_commit(site, queue_key(ctx), lane)
        # A commit covers what the tensor core was given, and what its issuer was ordered after.
        clocks.follow(clocks.queue(queue), clocks.warp(ctx.cta.rank, site.warp))
        token = clocks.release(clocks.queue(queue))

        def action(
            site: Site = site, found: list[tuple[SharedMemory, int, Mbarrier]] = found, token: Token = token
        ) -> None:
            for memory, offset, barrier in found:
                if memory.barriers.get(offset) is not barrier:
                    site.finding(
                        rule="mbarrier.inval-busy",
                        message=f"the mbarrier at {offset:#x} was invalidated before the commit reached it",
                        remedy="wait for the phase before giving up the barrier",
                    )
                    continue
                try:
                    barrier.arrive(1, token)
                except Misuse as misuse:
                    site.fault(misuse)

        ctx.launch.engine.issue(
            AsyncOperation(ins.opcode, action, queue=queue_key(ctx), line=ins.line, holder=ctx.cta.cluster)
        )


# -- findings ------------------------------------------------------------------------------------------------


def report_conflict(site: Site, conflict: Conflict, what: str, rule: str) -> None:
    """Report an unordered earlier access of tensor memory, with the cause that its kind suggests."""
    clocks = site.cta.shared.clocks
    who = clocks.describe(conflict.agent)
    column = conflict.granule // HALVES
    verb = "writes" if conflict.kind == "write" else "reads"
    severity, remedy = "error", "hand the columns over through an mbarrier or a barrier"
    kind = clocks.kind(conflict.agent)
    if kind == "queue":
        remedy = "tcgen05.commit to an mbarrier after the MMA and wait for it"
    elif clocks.order[clocks.warp_of(conflict.agent), conflict.agent] >= conflict.epoch:
        pass  # its warp has waited for it, and told nobody
    elif kind == "store":
        remedy = "tcgen05.wait::st before handing the columns over"
        rule = "tmem.st-not-waited"
        if conflict.agent == clocks.tensor_store(site.cta.rank, site.warp):
            severity = "warning"  # the own store: not ordered by the ISA, ordered by the data path
    elif kind == "load":
        remedy = "tcgen05.wait::ld before handing the columns over"
        rule = "tmem.ld-not-waited"
    site.finding(
        rule=rule,
        message=f"{what} tensor-memory column {column}, which {who} {verb} at PTX line {conflict.line} "
        "with nothing that orders the two",
        remedy=remedy,
        severity=severity,
    )
