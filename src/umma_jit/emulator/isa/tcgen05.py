"""``tcgen05``: allocation, loads and stores, waits, commit, copies, shifts and fences (PTX ISA 9.7.16).

``tcgen05.mma`` is in `umma_jit.emulator.isa.tcgen05_mma`.

A load whose registers are read before ``tcgen05.wait::ld`` is taken when it is issued: the ISA promises
that a true register dependence is respected, and shipping compilers rely on it. Where every use follows the
wait, a lazy schedule moves the read of tensor memory to the wait, as late as the ISA allows.
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
    check_descriptor,
    check_range,
    clocks_of,
    finish_fragments,
    full_warps,
    issue_fragment,
    note_commit,
    note_issue,
    pair_of,
    queue_key,
    shared_addresses,
    tensor_queue,
    word,
)
from umma_jit.emulator.isa.registry import Wait, handler
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Instruction, Register, Vector
from umma_jit.emulator.smem_descriptor import SmemDescriptor, plan_operand
from umma_jit.emulator.tensor_memory import (
    COLUMNS,
    HALVES,
    LANES,
    TensorMemory,
    TensorMemoryMisuse,
    fragment_cells,
    granules,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from umma_jit.emulator.clocks import Token
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.launch import Cta
    from umma_jit.emulator.mbarrier import Mbarrier
    from umma_jit.emulator.shadow import Conflict
    from umma_jit.emulator.shared_memory import SharedMemory

__all__ = ["report_conflict", "require_same_group"]

_ALL_HALVES = tuple(range(HALVES))


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


# -- ld and st -----------------------------------------------------------------------------------------------


class _Fragment:
    """Decoded ``tcgen05.ld``/``st``: shape, registers, and the address of each warp."""

    def __init__(self, ctx: Context, ins: Instruction, address: int, packed: str) -> None:
        self.shape = next(part for part in ins.parts if part in _LANES)
        self.count = int(next(part for part in ins.parts if part[0] == "x" and part[1:].isdigit())[1:])
        # ld: {…}, [taddr], split; st: [taddr], split, {…}
        half = int(ctx.immediate(ins.operands[address + 1])) if self.shape == "16x32bx2" else 0
        self.packed = ins.has(packed)
        self.lanes, self.columns, self.spanned = fragment_cells(self.shape, self.count, half)
        if self.packed:
            self.spanned *= 2
        self.rows = full_warps(ctx)
        self.what = f"{ins.opcode}"
        raw = ctx.address(ins.operands[address])
        self.base: list[tuple[int, int, int]] = []  # (row, lane, column)
        for row in self.rows:
            self.base.append((row, *self._place(ctx, ins, row, raw[row])))

    def _place(self, ctx: Context, ins: Instruction, row: int, raw: NDArray[np.uint64]) -> tuple[int, int]:
        site = Site(ctx, ins, ctx.w0 + row)
        active = raw[ctx.mask[row]]
        value = int(active[0])
        if (active != active[0]).any():
            site.finding(
                rule="tmem.address-not-uniform",
                message="threads of one warp give different tensor-memory addresses",
                remedy="compute the address from warp-uniform values",
            )
        if value >> 32:
            site.fault(
                TensorMemoryMisuse(
                    "access_out_of_physical_bounds", f"{value:#x} is no tensor-memory address", "use the 32-bit address"
                )
            )
        lane, column = value >> 16, value & 0xFFFF
        height = _LANES[self.shape]
        slab = 32 * (site.warp % 4)
        try:
            if lane + height > LANES:
                raise TensorMemoryMisuse(
                    "access_out_of_physical_bounds",
                    f"{self.what} at {value:#x} covers lanes {lane} to {lane + height - 1}; the last is {LANES - 1}",
                    f"warp {site.warp} reaches lanes {slab} to {slab + 31}: put {slab} in bits 31-16",
                )
            if lane % height:
                raise TensorMemoryMisuse(
                    "invalid_datapath_alignment",
                    f"{self.what} at {value:#x}: lane {lane} is not a multiple of {height}",
                    "start at the first lane of the warp's slab, or 16 lanes on for the 16-lane shapes",
                )
            ctx.cta.tmem.check_columns(column, self.spanned, self.what)
        except Misuse as misuse:
            site.fault(misuse)
        if lane // 32 * 32 != slab:
            # Release hardware routes by warp and ignores the upper lane bits; kernels with lane 0 from all
            # four warps exist and run. Any other wrong slab is a plain mistake.
            site.finding(
                rule="current_warp_owner_invalid",
                message=f"{self.what} at {value:#x}: warp {site.warp} (index {site.warp % 4} in its warpgroup) reaches "
                f"lanes {slab} to {slab + 31} only",
                remedy=f"add {slab} << 16 to the address",
                severity="warning" if lane < 32 else "error",
            )
            lane = slab + lane % 32
        return lane, column

    def runs(self) -> list[tuple[int, int, int, int]]:
        """(first row, one past the last, lane, column): warps whose lanes continue each other, together."""
        found: list[tuple[int, int, int, int]] = []
        for row, lane, column in self.base:
            if found and self.shape == "32x32b" and not self.packed:
                first, last, start, same = found[-1]
                if row == last and same == column and lane == start + 32 * (last - first):
                    found[-1] = (first, row + 1, start, column)
                    continue
            found.append((row, row + 1, lane, column))
        return found

    def halves(self, lane: int) -> tuple[int, ...]:
        """16-lane groups touched from `lane` on."""
        return tuple(range(lane // 16, (lane + _LANES[self.shape]) // 16))


_LANES = {"32x32b": 32, "16x64b": 16, "16x128b": 16, "16x256b": 16, "16x32bx2": 16}


@handler("tcgen05.ld", blocking=False)
def ld(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.ld.sync.aligned.shape.num{.pack::16b}.b32 r, [taddr] {, immHalfSplitoff}``."""
    fragment = _Fragment(ctx, ins, 1, "pack::16b")
    waited = _is_waited(ctx, ins)
    _enter(ctx, fragment, writes=False, asynchronous=waited)
    tmem = ctx.cta.tmem
    registers = _registers(ctx, ins.operands[0])
    site = Site(ctx, ins, ctx.w0 + fragment.rows[0])

    def action() -> None:
        _check_written(site, tmem, fragment)
        for first, last, lane, column in fragment.runs():
            words = tmem.words
            if fragment.packed:
                cells = (column + 2 * fragment.columns, lane + fragment.lanes)
                low = words[cells] & np.uint32(0xFFFF)
                block = low | words[cells[0] + 1, cells[1]] << np.uint32(16)
            elif fragment.shape == "32x32b":
                block = words[column : column + fragment.spanned, lane : lane + 32 * (last - first)]
            else:
                block = words[column + fragment.columns, lane + fragment.lanes]
            begin, end = 32 * first, 32 * last
            if isinstance(registers, np.ndarray):
                registers[:, begin:end] = block
                continue
            for register, values in zip(registers, block, strict=True):
                if register is not None:
                    register[begin:end] = values

    issue_fragment(ctx, "ld", fragment.rows, AsyncOperation(ins.opcode, action, line=ins.line), late=waited)


@handler("tcgen05.st", blocking=False)
def st(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.st.sync.aligned.shape.num{.unpack::16b}.b32 [taddr] {, immHalfSplitoff}, r``."""
    fragment = _Fragment(ctx, ins, 0, "unpack::16b")
    _enter(ctx, fragment, writes=True, asynchronous=True)
    tmem = ctx.cta.tmem
    vector = ins.operands[-1]
    # The registers are read now: a copy, since they may be written before the store completes.
    registers = _registers(ctx, vector)
    if isinstance(registers, np.ndarray):
        values = registers.copy()
    else:
        elements = vector.elements if isinstance(vector, Vector) else (vector,)
        values = np.stack([ctx.flat(element, "u32") for element in elements])

    def action() -> None:
        for first, last, lane, column in fragment.runs():
            block = values[:, 32 * first : 32 * last]
            if fragment.packed:
                cells = (column + 2 * fragment.columns, lane + fragment.lanes)
                tmem.words[cells] = block & np.uint32(0xFFFF)
                tmem.words[cells[0] + 1, cells[1]] = block >> np.uint32(16)
                tmem.written[cells] = True
                tmem.written[cells[0] + 1, cells[1]] = True
            elif fragment.shape == "32x32b":
                where = (slice(column, column + fragment.spanned), slice(lane, lane + 32 * (last - first)))
                tmem.words[where] = block
                tmem.written[where] = True
            else:
                tmem.words[column + fragment.columns, lane + fragment.lanes] = block
                tmem.written[column + fragment.columns, lane + fragment.lanes] = True

    issue_fragment(ctx, "st", fragment.rows, AsyncOperation(ins.opcode, action, line=ins.line), late=True)


def _enter(ctx: Context, fragment: _Fragment, *, writes: bool, asynchronous: bool) -> None:
    """Check a load or store against earlier accesses, all warps at once, and enter it.

    Parameters
    ----------
    ctx, fragment
        The access.
    writes
        It is a store.
    asynchronous
        It counts as done only at the warp's wait; else at its issue.
    """
    shadow, clocks, rank = ctx.cta.tmem.shadow, clocks_of(ctx), ctx.cta.rank
    where = np.stack([granules(column, fragment.spanned, fragment.halves(lane)) for _, lane, column in fragment.base])
    warps = np.array([clocks.warp(rank, ctx.w0 + row) for row, _, _ in fragment.base])
    order = clocks.order[warps]
    in_flight = clocks.tensor_store if writes else clocks.tensor_load
    agents = np.array([in_flight(rank, ctx.w0 + row) for row, _, _ in fragment.base]) if asynchronous else warps
    if writes:
        # Stores of one warp keep their order in the data path; hold them against the warp's own epochs.
        order[np.arange(len(agents)), agents] = clocks.order[agents, agents]
    if shadow.any_unordered(where, order, reads=writes):
        for index, (row, _, _) in enumerate(fragment.base):
            conflict = shadow.unordered_write(where[index], order[index])
            if conflict is None and writes:
                conflict = shadow.unordered_read(where[index], order[index])
            if conflict is not None:
                verb = "writes" if writes else "reads"
                report_conflict(Site(ctx, ctx.ins, ctx.w0 + row), conflict, f"{ctx.ins.opcode} {verb}", "tmem.race")
    epochs = clocks.order[agents, agents]
    mark = shadow.mark_write if writes else shadow.mark_read
    mark(where, agents[:, None], epochs[:, None], ctx.ins.line)


def _is_waited(ctx: Context, ins: Instruction) -> bool:
    """True if every use of the loaded registers follows a wait; reports the first that does not."""
    use = ctx.launch.engine.in_flight.use_before_wait(ctx.launch.code, ins)
    if use is None:
        return True
    ctx.finding(
        rule="tcgen05.ld-register-dependence",
        message=f"PTX line {use.line} ({use.opcode}) uses the result of this load before a tcgen05.wait::ld",
        remedy="put tcgen05.wait::ld.sync.aligned in between; hardware respects the register dependence",
        severity="warning",
    )
    return False


def _registers(ctx: Context, operand: object) -> NDArray[np.uint32] | list[NDArray[np.uint32] | None]:
    """Storage of a register vector: (registers, lanes) views; None for sinks.

    Registers declared together lie together, so that one copy moves a whole vector.
    """
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    slots = [e.slot if isinstance(e, Register) and e.bank == "b32" else -1 for e in elements]
    first = slots[0]
    if first >= 0 and slots == list(range(first, first + len(slots))):
        bank: NDArray[np.uint32] = ctx.cta.registers.banks["b32"]
        return bank[first : first + len(slots)].reshape(len(slots), -1)[:, 32 * ctx.w0 : 32 * ctx.w1]
    return [ctx.register_array(e).reshape(-1) if isinstance(e, Register) else None for e in elements]


def _check_written(site: Site, tmem: TensorMemory, fragment: _Fragment) -> None:
    for row, lane, column in fragment.base:
        height = _LANES[fragment.shape]
        known = tmem.written[column : column + fragment.spanned, lane : lane + height]
        if known.all():
            continue
        if fragment.shape == "32x32b" and known[:, :16].all():
            continue  # an M = 64 accumulator fills every other half slab
        none = not known.any()
        site.finding(
            rule="tmem.uninitialised",
            message=f"{fragment.what} by warp {site.ctx.w0 + row} reads "
            f"{'only' if none else 'some'} columns from {column} on that were never written",
            remedy="wait for the MMA or the store that fills them; the first MMA of an accumulator writes it",
            severity="error" if none else "warning",
        )


@handler("tcgen05.wait::ld", blocking=False)
def wait_ld(ctx: Context, _: Instruction) -> None:
    """``tcgen05.wait::ld.sync.aligned``: the warp's earlier loads are complete."""
    _wait(ctx, "ld")


@handler("tcgen05.wait::st", blocking=False)
def wait_st(ctx: Context, _: Instruction) -> None:
    """``tcgen05.wait::st.sync.aligned``: the warp's earlier stores are complete."""
    _wait(ctx, "st")


def _wait(ctx: Context, kind: str) -> None:
    clocks = clocks_of(ctx)
    for row in full_warps(ctx):
        finish_fragments(ctx, kind, ctx.w0 + row)
        of = clocks.tensor_load if kind == "ld" else clocks.tensor_store
        agent = of(ctx.cta.rank, ctx.w0 + row)
        warp = clocks.warp(ctx.cta.rank, ctx.w0 + row)
        clocks.order[warp, agent] = clocks.order[agent, agent]
        clocks.order[agent, agent] += 1


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


# -- cp and shift --------------------------------------------------------------------------------------------

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
