"""``tcgen05.mma`` (PTX ISA 9.7.16.10.9), dense, also ``.ws`` and block-scaled.

Legality of the descriptors is checked and the operands are entered in the hazard checks at issue; operands
are read and the accumulator is written when the operation completes. All operations of one CTA, or of the
CTA pair it leads, form one queue: production kernels rely on more order than the ISA promises, and where
one does so, a warning says it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.instruction_descriptor import InstructionDescriptor
from umma_jit.emulator.isa._machine import (
    Site,
    active_lanes,
    check_descriptor,
    check_range,
    clocks_of,
    descriptor_problems,
    note_issue,
    pair_of,
    predicate,
    queue_key,
    refuse,
    tensor_queue,
    word,
)
from umma_jit.emulator.isa.registry import Unsupported, handler
from umma_jit.emulator.isa.tcgen05 import report_conflict, require_same_group
from umma_jit.emulator.isa.tcgen05_scale import SCALE_MODIFIERS, SCALED_KINDS, ScaleFactors, blocks_of
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Address, Immediate, Instruction, Operand, Vector
from umma_jit.emulator.smem_descriptor import K_BYTES, DescriptorProblem, OperandPlan, SmemDescriptor, plan_operand
from umma_jit.emulator.swizzle import SWIZZLE_128B_ATOM_32B
from umma_jit.emulator.tensor_core import accumulate, product, unpack, widen
from umma_jit.emulator.tensor_memory import (
    HALVES,
    LANES,
    AccumulatorPiece,
    TensorMemoryMisuse,
    accumulator_pieces,
    granules,
    half_lanes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context
    from umma_jit.emulator.launch import Cta

_A_COLUMNS = K_BYTES // 4
_ALL = tuple(range(HALVES))


@dataclass(frozen=True)
class _Form:
    """What the opcode says."""

    kind: str
    cta_group: int
    warp_specialised: bool
    blocks: int = 0  # scale factors for a row, 0 without

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, opcode: str) -> _Form:
        """Read the modifiers of a full opcode."""
        parts = opcode.split(".")
        kind = next(part[6:] for part in parts if part.startswith("kind::"))
        blocks = blocks_of(kind, tuple(parts)) if "block_scale" in parts else 0
        return cls(kind, 2 if "cta_group::2" in parts else 1, "ws" in parts, blocks)


_KINDS = ("f16", "tf32", "f8f6f4", "i8", *SCALED_KINDS)
_KNOWN = ("tcgen05", "mma", "ws", "cta_group::1", "cta_group::2", *(f"kind::{kind}" for kind in _KINDS))
_NARROW = ("e2m1", "e2m3", "e3m2")


def check(ins: Instruction) -> None:
    """Refuse forms that cannot be executed, at load."""
    for part in ins.parts:
        if part not in (*_KNOWN, *SCALE_MODIFIERS) and not part.startswith("collector::"):
            raise Unsupported(f"dense tcgen05.mma and tcgen05.mma.ws, kinds {', '.join(_KINDS)}, without .{part}")
    form = _Form.of(ins.opcode)
    scaled = form.kind in SCALED_KINDS
    if scaled != ins.has("block_scale") or (scaled and form.warp_specialised):
        raise Unsupported(f".block_scale with the kinds {', '.join(SCALED_KINDS)}, and only there, without .ws")


@handler("tcgen05.mma", check=check, blocking=False)
def mma(ctx: Context, ins: Instruction) -> None:
    """``tcgen05.mma{.ws}.cta_group.kind [d], {[a]|a-desc}, b-desc, idesc {, mask}, enable-input-d {, scale}``."""
    lanes = list(active_lanes(ctx))
    if len(lanes) > 1:
        ctx.finding(
            rule="tcgen05.many-issuers",
            message=f"{len(lanes)} threads execute tcgen05.mma, which issues as many MMAs",
            remedy="elect one thread (elect.sync) to issue it",
            severity="warning",
        )
    for row, lane in lanes:
        _issue(ctx, ins, row, lane)


def _issue(ctx: Context, ins: Instruction, row: int, lane: int) -> None:
    form = _Form.of(ins.opcode)
    site = Site(ctx, ins, ctx.w0 + row)
    require_same_group(site)
    d_operand, a_operand, b_operand, idesc_operand, *rest = ins.operands
    idesc = InstructionDescriptor.decode(word(ctx, idesc_operand, row, lane), form.kind)
    a_in_tmem = isinstance(a_operand, Address)
    problems = idesc.problems(form.cta_group, warp_specialised=form.warp_specialised, a_in_tmem=a_in_tmem)
    descriptor_problems(site, problems)
    mask: Vector | None = None
    if rest and isinstance(rest[0], Vector):
        mask = rest.pop(0)  # type: ignore[assignment]
    scales = [int(ctx.address(rest.pop(0))[row, lane]) for _ in range(2)] if form.blocks else []
    add = predicate(ctx, rest[0], row, lane)
    scale = 1.0
    if len(rest) > 1 and isinstance(rest[1], Immediate):
        scale = 2.0 ** -ctx.immediate(rest[1])
    members = pair_of(ctx) if form.cta_group == 2 else [ctx.cta]
    operation = _Operation(ctx, site, form, idesc, members, add, scale)
    operation.place_d(int(ctx.address(d_operand)[row, lane]))
    if mask is not None:
        operation.keep = _kept_lanes(ctx, mask, row, lane)
    operation.enter(lane)
    operation.take_a(ctx, a_operand, row, lane, a_in_tmem)
    operation.take_b(ctx, b_operand, row, lane)
    if scales:
        operation.take_scales(*scales)
    ctx.launch.engine.issue(
        AsyncOperation(ins.opcode, operation.complete, queue=queue_key(ctx), line=ins.line, holder=ctx.cta.cluster)
    )


def _kept_lanes(ctx: Context, mask: Vector, row: int, lane: int) -> list[NDArray[np.bool_]] | None:
    """Lanes to write, bool (128,) per CTA; None if all are. A set bit disables the lane."""
    words = [word(ctx, element, row, lane) for element in mask.elements]
    if not any(words):
        return None
    bits = np.unpackbits(np.array(words, "<u4").view(np.uint8), bitorder="little").astype(bool)
    return [~part for part in bits.reshape(-1, LANES)]


@lru_cache(maxsize=512)
def _without_padding(plan: OperandPlan, words: int) -> OperandPlan:
    """A plan that reads only the first `words` words of every 16 bytes."""
    kept = plan.words.reshape(-1, 4)[:, :words].reshape(-1)
    kept.setflags(write=False)
    return replace(plan, words=kept)


class _Operation:
    """One MMA from issue to completion."""

    def __init__(
        self,
        ctx: Context,
        site: Site,
        form: _Form,
        idesc: InstructionDescriptor,
        members: list[Cta],
        add: bool,
        scale: float,
    ) -> None:
        self.site = site
        self.form = form
        self.idesc = idesc
        self.members = members
        self.add = add
        self.scale = scale
        self.keep: list[NDArray[np.bool_]] | None = None
        self.double = ctx.launch.engine.double
        self.clocks = clocks_of(ctx)
        self.queue = tensor_queue(ctx)
        self.agent = self.clocks.queue(self.queue)
        self.a_column: int | None = None
        self.a_lanes: slice | NDArray[np.intp] = slice(0, LANES)
        self.a_plan: OperandPlan | None = None
        self.b_plan: OperandPlan | None = None
        self.d_column = 0
        self.d_lane = 0
        self.d_columns = 0
        self.pieces: tuple[AccumulatorPiece, ...] = ()
        self.scales: list[ScaleFactors] = []

    # -- at issue ------------------------------------------------------------------------------------------

    def place_d(self, address: int) -> None:
        """Check the accumulator's address."""
        idesc, form = self.idesc, self.form
        self.d_column, self.d_lane = address & 0xFFFF, address >> 16
        half = idesc.m == 64 and form.cta_group == 1 and not form.warp_specialised
        if self.d_lane not in ((0, 16) if half else (0,)):
            self.site.fault(
                TensorMemoryMisuse(
                    "invalid_datapath_alignment",
                    f"D address {address:#x} of an MMA has lane {self.d_lane}; M = {idesc.m} allows "
                    f"{'0 or 16' if half else 'only 0'}",
                    "give mma the address that tcgen05.alloc returned plus columns; the lane of a warp's slab belongs "
                    "in ld and st only",
                )
            )
        self.pieces = accumulator_pieces(idesc.m, idesc.n, form.cta_group, form.warp_specialised, self.d_lane)
        first = self.pieces[0].columns
        self.d_columns = first.stop - first.start
        self._check_columns(self.d_column, self.d_columns, f"D (M {idesc.m}, N {idesc.n})")

    def _check_columns(self, first: int, count: int, what: str) -> None:
        try:
            for cta in self.members:
                cta.tmem.check_columns(first, count, what)
        except Misuse as misuse:
            self.site.fault(misuse)

    def enter(self, lane: int) -> None:
        """Enter the accumulator in the hazard checks."""
        clocks, site = self.clocks, self.site
        warp = clocks.warp(site.ctx.cta.rank, site.warp)
        note_issue(site, queue_key(site.ctx), lane)
        known = int(clocks.order[warp, self.agent])
        clocks.follow(self.agent, warp)
        order = clocks.order[self.agent]
        epoch = int(order[self.agent])
        halves = _ALL
        if self.pieces[0].rows.stop == 64 and not isinstance(self.pieces[0].lanes, slice):
            halves = tuple(range(self.d_lane // 16, HALVES, 2))
        where = granules(self.d_column, self.d_columns, halves)
        own_store = clocks.tensor_store(site.ctx.cta.rank, site.warp)
        for cta in self.members:
            shadow = cta.tmem.shadow
            conflict = shadow.unordered_read(where, order) or shadow.unordered_write(where, order, last=own_store)
            if conflict is not None:
                report_conflict(site, conflict, "D of the MMA overwrites", "tmem.race")
            elif known < epoch and site.launch.issue_order:
                # Production kernels count on it (next scores over the probabilities just read), and they run.
                behind = (shadow.read_agent[where] == self.agent) & (shadow.read_epoch[where] > known)
                if behind.any():
                    line = int(shadow.read_line[where][behind][0])
                    site.finding(
                        rule="tmem.issue-order",
                        message=f"D overwrites tensor-memory columns that the MMA at PTX line {line} reads as A, and "
                        "no commit of that MMA was waited for: right only because MMAs of one thread execute in order",
                        remedy="nothing on current hardware; the ISA promises the order for one accumulator only",
                        severity="warning",
                    )
            shadow.mark_write(where, self.agent, epoch, site.line)

    def take_a(self, ctx: Context, operand: Operand, row: int, lane: int, in_tmem: bool) -> None:
        """Plan A, from tensor memory or from shared memory."""
        idesc, site = self.idesc, self.site
        assert idesc.a is not None
        if not in_tmem:
            bits = word(ctx, operand, row, lane, wide=True)
            self.a_plan = self._plan(
                bits, "A", idesc.m // self.form.cta_group, idesc.a.element_bytes, idesc.transpose_a
            )
            return
        address = int(ctx.address(operand)[row, lane])
        column, lane_bits = address & 0xFFFF, address >> 16
        if lane_bits != self.d_lane:
            site.fault(
                TensorMemoryMisuse(
                    "invalid_datapath_alignment",
                    f"A address {address:#x} of an MMA has lane {lane_bits}, D has lane {self.d_lane}",
                    "A lies in the lanes of D: give mma the column only, without the lane of a warp's slab",
                )
            )
        self._check_columns(column, _A_COLUMNS, "A (8 columns of tensor memory)")
        rows = idesc.m // self.form.cta_group
        halves = _ALL
        if rows == 64:
            if self.form.cta_group == 1 and not self.form.warp_specialised:
                self.a_lanes = half_lanes(self.d_lane)
                halves = tuple(range(self.d_lane // 16, HALVES, 2))
            else:
                self.a_lanes, halves = slice(0, 64), _ALL[:4]
        elif rows == 32:
            self.a_lanes, halves = slice(0, 32), _ALL[:2]
        self.a_column = column
        where = granules(column, _A_COLUMNS, halves)
        order = self.clocks.order[self.agent]
        own_store = self.clocks.tensor_store(site.ctx.cta.rank, site.warp)
        for cta in self.members:
            conflict = cta.tmem.shadow.unordered_write(where, order, last=own_store)
            if conflict is not None:
                report_conflict(site, conflict, "A of the MMA reads", "tmem.race")
            cta.tmem.shadow.mark_read(where, self.agent, int(order[self.agent]), site.line)

    def take_b(self, ctx: Context, operand: Operand, row: int, lane: int) -> None:
        """Plan B, always from shared memory."""
        idesc = self.idesc
        assert idesc.b is not None
        bits = word(ctx, operand, row, lane, wide=True)
        self.b_plan = self._plan(bits, "B", idesc.n // self.form.cta_group, idesc.b.element_bytes, idesc.transpose_b)

    def take_scales(self, a_address: int, b_address: int) -> None:
        """Plan the scale factors: A's lie with its rows, B's as a whole in each CTA."""
        idesc, blocks, members = self.idesc, self.form.blocks, self.members
        for side, address, rows in (("A", a_address, idesc.m // self.form.cta_group), ("B", b_address, idesc.n)):
            factors = ScaleFactors(self.site, side, address, rows, blocks, idesc, members)
            factors.enter(self.agent)
            self.scales.append(factors)

    def _plan(self, bits: int, side: str, rows: int, element_bytes: int, mn_major: bool) -> OperandPlan:
        site, clocks = self.site, self.clocks
        descriptor = SmemDescriptor.decode(bits)
        check_descriptor(site, descriptor, side)
        if element_bytes == 4 and mn_major and descriptor.swizzle is not SWIZZLE_128B_ATOM_32B and descriptor.code:
            refuse(
                site,
                DescriptorProblem(
                    "descriptor.swizzle",
                    f"{side}: 32-bit elements stored MN-major with swizzle code {descriptor.code}",
                    "use code 1 (128B with 32B atoms), or store the operand K-major",
                ),
            )
        if not mn_major and descriptor.swizzle is SWIZZLE_128B_ATOM_32B:
            refuse(
                site,
                DescriptorProblem(
                    "descriptor.swizzle",
                    f"{side}: K-major operand with swizzle code 1 (128B with 32B atoms)",
                    "that mode is for MN-major 32-bit operands; use code 2 (128B)",
                ),
            )
        plan = plan_operand(descriptor, rows, element_bytes, mn_major)
        fmt = self.idesc.a if side == "A" else self.idesc.b
        if fmt is not None and fmt.name in _NARROW and self._padded:
            plan = _without_padding(plan, 2 if fmt.name == "e2m1" else 3)
        order, proxy = clocks.order[self.agent], clocks.proxy[self.agent]
        epoch = int(order[self.agent])
        for cta in self.members:
            check_range(site, cta.shared, plan.first, plan.last, descriptor, side)
            cta.shared.guard_read(site, plan.words, self.agent, epoch, order, proxy, f"{side} of the MMA reads")
        return plan

    # -- at completion -------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Read the operands, multiply, write the accumulator."""
        idesc = self.idesc
        assert idesc.a is not None
        assert idesc.b is not None
        assert idesc.d is not None
        assert self.b_plan is not None
        a = np.concatenate([self._values(raw, idesc.a.name) for raw in self._read_a()])
        b = np.concatenate([self._values(raw, idesc.b.name) for raw in self._read_shared(self.b_plan, "B")])
        result = self._product(a, b, negate=idesc.negate_a != idesc.negate_b)
        if self.add:
            self._check_accumulator()
        accumulate(
            [cta.tmem for cta in self.members],
            self.pieces,
            result,
            self.d_column,
            idesc.d,
            add=self.add,
            scale=self.scale,
            keep=self.keep,
            saturate=idesc.saturate,
        )

    @property
    def _padded(self) -> bool:
        """Narrow elements in shared memory are 16 to 16 bytes, rather than two to a byte."""
        return self.form.kind not in ("mxf4", "mxf4nvf4")

    def _values(self, raw: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
        return unpack(raw, name, padded=self._padded) if name in _NARROW else widen(raw, name)

    def _product(self, a: NDArray[np.float32], b: NDArray[np.float32], *, negate: bool) -> NDArray[Any]:
        """The transposed product; of scaled operands in float64 until it is accumulated."""
        if not self.scales:
            return product(a, b, negate=negate, double=self.double)
        a_factors, b_factors = self.scales[0].read(), self.scales[1].read()
        repeat = a.shape[1] // self.form.blocks
        left = a * np.repeat(np.concatenate(a_factors), repeat, axis=1)
        results = []
        for rows, factors in zip(np.split(left, len(b_factors)), b_factors, strict=True):  # each CTA has B's own copy
            results.append((b * np.repeat(factors, repeat, axis=1)) @ rows.T)
        whole: NDArray[Any] = np.concatenate(results, axis=1)
        whole = -whole if negate else whole
        return whole if self.double else whole.astype(np.float32)

    def _read_a(self) -> list[NDArray[np.uint8]]:
        if self.a_plan is not None:
            return self._read_shared(self.a_plan, "A")
        assert self.a_column is not None
        columns = slice(self.a_column, self.a_column + _A_COLUMNS)
        rows = []
        for cta in self.members:
            if not cta.tmem.written[columns, self.a_lanes].all():
                self.site.finding(
                    rule="tmem.uninitialised",
                    message=f"A of the MMA reads tensor-memory columns from {self.a_column} on that were not written",
                    remedy="store all rows of A with tcgen05.st, and wait for it, before the MMA",
                )
            words = cta.tmem.words[columns, self.a_lanes].T
            rows.append(np.ascontiguousarray(words).view(np.uint8))
        return rows

    def _read_shared(self, plan: OperandPlan, side: str) -> list[NDArray[np.uint8]]:
        found = []
        for cta in self.members:
            missing = cta.shared.missing_words(plan.words)
            if missing is not None:
                self.site.finding(
                    rule="shared.uninitialised",
                    message=f"{side} of the MMA reads shared memory at {missing:#x} that was never written",
                    remedy="wait for the copy that fills the tile, or fill the rows that it leaves out",
                    severity="warning",
                )
            found.append(plan.gather(cta.shared.data))
        return found

    def _check_accumulator(self) -> None:
        for piece in self.pieces:
            lanes = piece.lanes
            known = self.members[piece.cta].tmem.written[self.d_column : self.d_column + self.d_columns, lanes]
            if not known.all():
                self.site.finding(
                    rule="tmem.uninitialised",
                    message=f"the MMA accumulates onto columns from {self.d_column} on that were never written",
                    remedy="clear enable-input-d for the first MMA of an accumulator",
                )
