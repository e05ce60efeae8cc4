"""``tcgen05.cp`` and ``tcgen05.shift`` (PTX ISA 9.7.16.9): shared memory to tensor memory, and within it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.isa._machine import (
    Site,
    active_lanes,
    check_descriptor,
    check_range,
    clocks_of,
    note_issue,
    pair_of,
    queue_key,
    tensor_queue,
    word,
)
from umma_jit.emulator.isa.registry import handler
from umma_jit.emulator.isa.tcgen05 import report_conflict, require_same_group
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.smem_descriptor import SmemDescriptor, plan_operand
from umma_jit.emulator.tensor_memory import (
    HALVES,
    LANES,
    TensorMemoryMisuse,
    granules,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context
    from umma_jit.emulator.launch import Cta
    from umma_jit.emulator.nodes import Instruction

_ALL_HALVES = tuple(range(HALVES))
_CP_SHAPES = {"128x256b": (128, 32), "4x256b": (4, 32), "128x128b": (128, 16), "64x128b": (64, 16), "32x128b": (32, 16)}


@handler("tcgen05.cp", blocking=False)
def cp(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.cp.cta_group.shape{.multicast} [taddr], s-desc``: shared memory to tensor memory."""
    addresses = ctx.address(ins.operands[0])
    shape = next(part for part in ins.parts if part in _CP_SHAPES)
    rows, nbytes = _CP_SHAPES[shape]
    columns = nbytes // 4
    clocks = clocks_of(ctx)
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        require_same_group(site)
        address = int(addresses[row, lane])
        first, start = address & 0xFFFF, address >> 16
        bits = word(ctx, ins.operands[1], row, lane, wide=True)
        descriptor = SmemDescriptor.decode(bits)
        check_descriptor(site, descriptor, "source")
        queue = tensor_queue(ctx)
        agent = clocks.queue(queue)
        note_issue(site, queue_key(ctx), lane)
        clocks.follow(agent, clocks.warp(ctx.cta.rank, site.warp))
        epoch = int(clocks.order[agent, agent])
        members = pair_of(ctx) if ins.has("cta_group::2") else [ctx.cta]
        plan = plan_operand(descriptor, max(rows, 8), 1, False)
        chunks = plan.chunks[:rows, : nbytes // 16]
        words = (chunks.reshape(-1, 1) * 4 + np.arange(4)).reshape(-1)
        for cta in members:
            try:
                cta.tmem.check_columns(first, columns, ins.opcode)
            except Misuse as misuse:
                site.fault(misuse)
            check_range(site, cta.shared, int(chunks.min()) * 16, int(chunks.max()) * 16 + 16, descriptor, "source")
            order, proxy = clocks.order[agent], clocks.proxy[agent]
            cta.shared.guard_read(site, words, agent, epoch, order, proxy, f"{ins.opcode} reads")
            where = granules(first, columns, _ALL_HALVES)
            conflict = cta.tmem.shadow.unordered_read(where, order) or cta.tmem.shadow.unordered_write(where, order)
            if conflict is not None:
                report_conflict(site, conflict, f"{ins.opcode} writes", "tmem.race")
            cta.tmem.shadow.mark_write(where, agent, epoch, ins.line)
        placements = _cp_lanes(ins, shape, start)
        action = _cp_action(members, chunks, placements, first, columns)
        ctx.launch.engine.issue(
            AsyncOperation(ins.opcode, action, queue=queue_key(ctx), line=ins.line, holder=ctx.cta.cluster)
        )


def _cp_lanes(ins: Instruction, shape: str, start: int) -> list[NDArray[np.intp]]:
    """Lanes that the source rows go to, once per copy of the data."""
    rows = np.arange(_CP_SHAPES[shape][0])
    if shape == "4x256b":
        return [start + 32 * rows]
    if ins.has("warpx2::02_13"):  # warps 0 and 2 hold the first half, 1 and 3 the second
        return [start + rows, start + rows + 64]
    if ins.has("warpx2::01_23"):
        return [start + rows % 32 + 64 * (rows // 32), start + rows % 32 + 64 * (rows // 32) + 32]
    if ins.has("warpx4"):
        return [start + rows + 32 * slab for slab in range(4)]
    return [start + rows]


def _cp_action(
    members: list[Cta],
    chunks: NDArray[np.int64],
    placements: list[NDArray[np.intp]],
    first: int,
    columns: int,
) -> Callable[[], None]:
    def action() -> None:
        for cta in members:
            data = cta.shared.data.view(np.complex128)[chunks].view(np.uint32)  # (rows, columns)
            for lanes in placements:
                cta.tmem.words[first : first + columns, lanes] = data.T
                cta.tmem.written[first : first + columns, lanes] = True

    return action


@handler("tcgen05.shift", blocking=False)
def shift(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.shift.cta_group.down [taddr]``: 32-byte rows move down by one lane, all but the last."""
    addresses = ctx.address(ins.operands[0])
    clocks = clocks_of(ctx)
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        require_same_group(site)
        address = int(addresses[row, lane])
        first, start = address & 0xFFFF, address >> 16
        queue = tensor_queue(ctx)
        agent = clocks.queue(queue)
        note_issue(site, queue_key(ctx), lane)
        clocks.follow(agent, clocks.warp(ctx.cta.rank, site.warp))
        members = pair_of(ctx) if ins.has("cta_group::2") else [ctx.cta]
        try:
            if start % 32 or start >= LANES:
                raise TensorMemoryMisuse(
                    "invalid_datapath_alignment", f"{ins.opcode} at lane {start}", "the lane must be a multiple of 32"
                )
            for cta in members:
                cta.tmem.check_columns(first, 8, ins.opcode)
        except Misuse as misuse:
            site.fault(misuse)
        where = granules(first, 8, (start // 16, start // 16 + 1))
        for cta in members:
            conflict = cta.tmem.shadow.unordered_read(where, clocks.order[agent]) or cta.tmem.shadow.unordered_write(
                where, clocks.order[agent]
            )
            if conflict is not None:
                report_conflict(site, conflict, f"{ins.opcode} moves", "tmem.race")
            cta.tmem.shadow.mark_write(where, agent, int(clocks.order[agent, agent]), ins.line)

        def action(members: list[Cta] = members, first: int = first, start: int = start) -> None:
            for cta in members:
                block = cta.tmem.words[first : first + 8, start : start + 32]
                block[:, :31] = block[:, 1:].copy()

        ctx.launch.engine.issue(
            AsyncOperation(ins.opcode, action, queue=queue_key(ctx), line=ins.line, holder=ctx.cta.cluster)
        )
