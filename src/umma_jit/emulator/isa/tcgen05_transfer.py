"""``tcgen05.ld``, ``tcgen05.st`` and their waits (PTX ISA 9.7.16.8).

A load whose registers are read before ``tcgen05.wait::ld`` is taken when it is issued: the ISA promises
that a true register dependence is respected, and shipping compilers rely on it. Where every use follows the
wait, a lazy schedule moves the read of tensor memory to the wait, as late as the ISA allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.isa._machine import (
    Site,
    clocks_of,
    finish_fragments,
    full_warps,
    issue_fragment,
)
from umma_jit.emulator.isa.registry import handler
from umma_jit.emulator.isa.tcgen05 import report_conflict
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Instruction, Register, Vector
from umma_jit.emulator.tensor_memory import (
    LANES,
    TensorMemory,
    TensorMemoryMisuse,
    fragment_cells,
    granules,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context


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
