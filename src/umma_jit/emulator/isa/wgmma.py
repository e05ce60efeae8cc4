"""``wgmma`` for sm_90a (PTX ISA 9.7.15): dense, all shapes, A from shared memory or from registers.

Each warp computes its own 16 rows of the 64, so the four warps of a warpgroup need not run fused. Operands
and accumulator registers are read, and the accumulator is written, when the operation completes: at its
issue under ``eager`` and ``program``, at its ``wgmma.wait_group`` otherwise, which shows registers that were
touched too early.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.clocks import Flight
from umma_jit.emulator.isa._machine import (
    Site,
    check_descriptor,
    check_range,
    clocks_of,
    full_warps,
    groups_of,
    predicate,
    word,
)
from umma_jit.emulator.isa.registry import Unsupported, handler
from umma_jit.emulator.nodes import Immediate, Instruction, Vector
from umma_jit.emulator.smem_descriptor import OperandPlan, SmemDescriptor, plan_operand
from umma_jit.emulator.tensor_core import product, widen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context

_TYPES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


@dataclass(frozen=True)
class _Form:
    """What the opcode says."""

    n: int
    d: str
    a: str
    b: str
    saturate: bool

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, opcode: str) -> _Form:
        """Read the modifiers of a full opcode."""
        parts = opcode.split(".")
        shape = next(part for part in parts if part.startswith("m64n"))
        types = [part for part in parts[parts.index(shape) + 1 :] if part in (*_TYPES, "f32", "s32")]
        return cls(int(shape[4 : shape.index("k")]), types[0], types[1], types[2], "satfinite" in parts)


def check(ins: Instruction) -> None:
    """Refuse forms that cannot be executed, at load."""
    if ins.has("sp") or ins.has("b1"):
        raise Unsupported("dense wgmma.mma_async of f16, bf16, tf32, e4m3, e5m2, s8 and u8")


@handler("wgmma.fence", blocking=False)
def fence(ctx: Context, _: Instruction) -> None:
    """``wgmma.fence.sync.aligned``: registers written before it may be used by wgmma."""
    for row in full_warps(ctx):
        ctx.launch.engine.in_flight.fenced.add((id(ctx.cta), ctx.w0 + row))


@handler("wgmma.commit_group", blocking=False)
def commit_group(ctx: Context, _: Instruction) -> None:
    """``wgmma.commit_group.sync.aligned``."""
    for row in full_warps(ctx):
        groups_of(ctx, ctx.w0 + row, 0, "wgmma").commit()


@handler("wgmma.wait_group", blocking=False)
def wait_group(ctx: Context, ins: Instruction) -> None:
    """``wgmma.wait_group.sync.aligned N``: at most the N newest groups are still in flight."""
    newest = ctx.immediate(ins.operands[0])
    clocks, engine = clocks_of(ctx), ctx.launch.engine
    for row in full_warps(ctx):
        groups = groups_of(ctx, ctx.w0 + row, 0, "wgmma")
        warp = clocks.warp(ctx.cta.rank, ctx.w0 + row)
        while len(groups.committed) > newest:
            for operation, _, flight in groups.committed.popleft():
                engine.complete_operation(operation)
                clocks.acquire(warp, flight.token)


@handler("wgmma.mma_async", check=check, blocking=False)
def mma_async(ctx: Context, ins: Instruction) -> None:
    """``wgmma.mma_async.sync.aligned.m64nNkK.dtype.atype.btype d, a-desc|{a}, b-desc, scale-d, ...``."""
    form = _Form.of(ins.opcode)
    rows = full_warps(ctx)
    # Warps of different warpgroups have their own descriptors.
    for group in sorted({(ctx.w0 + row) // 4 for row in rows}):
        _issue(ctx, ins, form, [row for row in rows if (ctx.w0 + row) // 4 == group])


def _issue(ctx: Context, ins: Instruction, form: _Form, rows: list[int]) -> None:
    site = Site(ctx, ins, ctx.w0 + rows[0])
    engine, clocks = ctx.launch.engine, clocks_of(ctx)
    if any((id(ctx.cta), ctx.w0 + row) not in engine.in_flight.fenced for row in rows):
        site.finding(
            rule="wgmma.fence-missing",
            message="wgmma.mma_async with no wgmma.fence before it",
            remedy="wgmma.fence.sync.aligned before the first wgmma and after writing registers that it uses",
        )
    d, a, b, scale_d, *flags = ins.operands
    values = [ctx.immediate(flag) for flag in flags if isinstance(flag, Immediate)]
    negate = len(values) >= 2 and (values[0] < 0) != (values[1] < 0)
    transposes = values[2:]
    transpose_b = bool(transposes[-1]) if transposes else False
    a_vector = a if isinstance(a, Vector) else None
    transpose_a = a_vector is None and len(transposes) == 2 and bool(transposes[0])
    row0 = rows[0]
    b_plan = _plan(site, word(ctx, b, row0, 0, wide=True), "B", form.n, _TYPES[form.b], transpose_b)
    a_plan: OperandPlan | None = None
    a_registers: list[NDArray[np.uint32]] = []
    if a_vector is None:
        a_plan = _plan(site, word(ctx, a, row0, 0, wide=True), "A", 64, _TYPES[form.a], transpose_a)
    else:
        a_registers = [ctx.register_array(element) for element in a_vector.elements]
    elements = d.elements if isinstance(d, Vector) else (d,)
    accumulators = [ctx.register_array(element) for element in elements]
    add = predicate(ctx, scale_d, row0, 0)
    flights: list[Flight] = []
    for row in rows:
        warp = clocks.warp(ctx.cta.rank, ctx.w0 + row)
        agent = clocks.matrix(ctx.cta.rank, ctx.w0 + row)
        clocks.follow(agent, warp)
        token = clocks.release(agent)
        epoch = int(token.order[agent])
        flights.append(Flight(agent, epoch, token))
        for plan, side in ((a_plan, "A"), (b_plan, "B")):
            if plan is not None:
                ctx.cta.shared.guard_read(
                    site, plan.words, agent, epoch, token.order, token.proxy, f"{side} of the wgmma reads"
                )
    data, bands = ctx.cta.shared.data, [(ctx.w0 + row) % 4 for row in rows]
    double = engine.double

    def action() -> None:
        right = widen(b_plan.gather(data), form.b)
        if a_plan is not None:
            left = widen(a_plan.gather(data), form.a)
        else:
            present = widen(_fragment_a(a_registers, rows), form.a).reshape(len(rows), 16, -1)
            whole = np.zeros((4, 16, present.shape[-1]), np.float32)
            whole[bands] = present
            left = whole.reshape(64, -1)
        # All 64 rows whichever warps are here: the order of a sum in NumPy depends on a product's shape.
        result = product(left, right, negate=negate, double=double).T.reshape(4, 16, form.n)[bands]
        _write_d(accumulators, rows, result, form, add)

    operation = AsyncOperation(
        ins.opcode, action, queue=(id(ctx.cta), "wgmma", (ctx.w0 + row0) // 4), line=ins.line, observed_by_group=True
    )
    for row, flight in zip(rows, flights, strict=True):
        groups_of(ctx, ctx.w0 + row, 0, "wgmma").open.append((operation, operation, flight))
    if engine.schedule in ("eager", "program"):
        operation.done = True
        action()
    else:
        engine.issue(operation)


def _plan(site: Site, bits: int, side: str, rows: int, element_bytes: int, mn_major: bool) -> OperandPlan:
    descriptor = SmemDescriptor.decode(bits, wgmma=True)
    check_descriptor(site, descriptor, side, wgmma=True)
    plan = plan_operand(descriptor, rows, element_bytes, mn_major)
    check_range(site, site.cta.shared, plan.first, plan.last, descriptor, side)
    return plan


_T = np.arange(32)


def _fragment_a(registers: list[NDArray[np.uint32]], rows: list[int]) -> NDArray[np.uint8]:
    """A from registers: uint8 (16 * warps, 32). Register r of thread t holds 4 bytes of K of one row."""
    words = np.empty((len(rows), 16, 8), np.uint32)
    for r, register in enumerate(registers):
        words[:, _T // 4 + 8 * (r % 2), _T % 4 + 4 * (r // 2)] = register[rows]
    return words.view(np.uint8).reshape(len(rows) * 16, 32)


def _write_d(
    registers: list[NDArray[np.uint32]], rows: list[int], result: NDArray[Any], form: _Form, add: bool
) -> None:
    """Put the (warps, 16, N) product into the accumulator fragment (PTX ISA, Figure 149)."""
    for i, register in enumerate(registers):
        if form.d == "f16":
            row, column = _T // 4 + 8 * (i % 2), 8 * (i // 2) + 2 * (_T % 4)
            pair = np.stack([result[:, row, column], result[:, row, column + 1]], axis=-1)
            if add:
                present = np.ascontiguousarray(register[rows]).view(np.float16).reshape(len(rows), 32, 2)
                pair = pair + present.astype(pair.dtype)
            register[rows] = np.ascontiguousarray(pair.astype(np.float16)).view(np.uint32)[..., 0]
            continue
        row, column = _T // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (_T % 4) + i % 2
        part = result[:, row, column]
        if form.d == "f32":
            if add:
                part = part + register[rows].view(np.float32).astype(part.dtype)
            register[rows] = part.astype(np.float32).view(np.uint32)
            continue
        whole = part.astype(np.int64)
        if add:
            whole = whole + register[rows].view(np.int32)
        if form.saturate:
            whole = np.clip(whole, -(1 << 31), (1 << 31) - 1)
        register[rows] = (whole & 0xFFFFFFFF).astype(np.uint32)
