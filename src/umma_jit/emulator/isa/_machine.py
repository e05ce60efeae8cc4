"""What the handlers of the machine's instructions share: sites, addresses, faults, per-thread groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from umma_jit.emulator.errors import (
    DescriptorError,
    EmulatorError,
    ExecutionError,
    MbarrierError,
    MemoryFault,
    TensorMemoryFault,
)
from umma_jit.emulator.mbarrier import Mbarrier, MbarrierMisuse
from umma_jit.emulator.memory import GlobalMemoryMisuse
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Immediate, Instruction, Operand
from umma_jit.emulator.shared_memory import BASE, RANK_SHIFT, SharedMemory, SharedMemoryMisuse
from umma_jit.emulator.spaces import PARAM_WINDOW, SHARED_WINDOW, WINDOW_SIZE
from umma_jit.emulator.tensor_memory import TensorMemoryMisuse

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from numpy.typing import NDArray

    from umma_jit.emulator.async_engine import AsyncOperation
    from umma_jit.emulator.clocks import Clocks
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.in_flight import Groups
    from umma_jit.emulator.launch import Cta
    from umma_jit.emulator.smem_descriptor import DescriptorProblem, SmemDescriptor

__all__ = [
    "DescriptorMisuse",
    "Site",
    "active_lanes",
    "active_rows",
    "barrier_at",
    "check_descriptor",
    "check_range",
    "clocks_of",
    "descriptor_problems",
    "fault",
    "finish_fragments",
    "full_warps",
    "global_span",
    "groups_of",
    "issue_fragment",
    "note_commit",
    "note_issue",
    "pair_of",
    "predicate",
    "queue_key",
    "raw_bytes",
    "refuse",
    "shared_addresses",
    "tensor_queue",
    "word",
]


class DescriptorMisuse(Misuse):
    """A descriptor or tensor map that is not legal where it is used."""


class Site:
    """The thread and instruction that issued an operation, kept until it completes."""

    def __init__(self, ctx: Context, ins: Instruction, warp: int) -> None:
        self.ctx = ctx
        self.launch = ctx.launch
        self.cta = ctx.cta
        self.ins = ins
        self.warp = warp

    @property
    def line(self) -> int:
        """PTX line."""
        return self.ins.line

    def finding(self, *, rule: str, message: str, remedy: str, severity: str = "error") -> None:
        """Record a finding at the issuing instruction."""
        self.ctx.finding_at(self.ins, self.warp, rule=rule, message=message, remedy=remedy, severity=severity)

    def fault(self, misuse: Misuse) -> NoReturn:
        """Raise the typed error of `misuse`, placed at the issuing instruction."""
        raise self.ctx.error_at(
            error_type(misuse), self.ins, self.warp, misuse.rule, str(misuse), misuse.remedy
        ) from misuse


def error_type(misuse: Misuse) -> type[EmulatorError]:
    """The public error of a rule broken in a machine part."""
    if isinstance(misuse, MbarrierMisuse):
        return MbarrierError
    if isinstance(misuse, TensorMemoryMisuse):
        return TensorMemoryFault
    if isinstance(misuse, (SharedMemoryMisuse, GlobalMemoryMisuse)):
        return MemoryFault
    if isinstance(misuse, DescriptorMisuse):
        return DescriptorError
    return ExecutionError


def clocks_of(ctx: Context) -> Clocks:
    """Clocks of the executing cluster."""
    return ctx.cta.shared.clocks


def fault(ctx: Context, misuse: Misuse, row: int = 0) -> NoReturn:
    """Raise the typed error of `misuse` at the executing instruction; `row` is the warp within the fragment."""
    Site(ctx, ctx.ins, ctx.w0 + row).fault(misuse)


def active_lanes(ctx: Context) -> Iterator[tuple[int, int]]:
    """(row of the fragment, lane) of every active thread."""
    rows, lanes = np.nonzero(ctx.mask)
    yield from zip(rows.tolist(), lanes.tolist(), strict=True)


def active_rows(ctx: Context) -> list[int]:
    """Rows of the fragment with any active thread."""
    if ctx.full:
        return list(range(ctx.num_warps))
    result: list[int] = np.flatnonzero(ctx.mask.any(axis=1)).tolist()
    return result


def full_warps(ctx: Context) -> list[int]:
    """Active rows of a ``.sync.aligned`` instruction; reports warps that are not converged."""
    if ctx.full:
        return list(range(ctx.num_warps))
    rows = active_rows(ctx)
    if not ctx.mask[rows].all():
        ctx.finding(
            rule="aligned.divergent",
            message=f"{ctx.ins.opcode} is executed by a part of a warp",
            remedy="all 32 threads must execute a .sync.aligned instruction together",
        )
    return rows


def word(ctx: Context, operand: Operand, row: int, lane: int, *, wide: bool = False) -> int:
    """Value of a register or immediate in one thread, unsigned."""
    if isinstance(operand, Immediate):
        return ctx.immediate(operand) & (0xFFFFFFFFFFFFFFFF if wide else 0xFFFFFFFF)
    values = ctx.u64(operand) if wide else ctx.u32(operand)
    return int(values[row, lane])


def predicate(ctx: Context, operand: Operand, row: int, lane: int) -> bool:
    """Value of a predicate operand in one thread; literals count too."""
    if isinstance(operand, Immediate):
        return ctx.immediate(operand) != 0
    return bool(ctx.pred(operand)[row, lane])


def shared_addresses(ctx: Context, operand: Operand) -> NDArray[np.int64]:
    """32-bit shared::cluster addresses (W, 32) of an address operand, generic ones converted.

    Raises
    ------
    MemoryFault
        A generic address outside the shared window.
    """
    raw = ctx.address(operand).astype(np.int64)
    if int(raw.max()) < 1 << 32:
        # A 64-bit register may hold an address of the shared space itself.
        return raw
    inside = (raw >= SHARED_WINDOW) & (raw < SHARED_WINDOW + (1 << 32))
    bad = ctx.mask & ~inside & (raw >= 1 << 32)
    if bad.any():
        fault(
            ctx,
            SharedMemoryMisuse(
                "shared.window",
                f"{ctx.ins.opcode} at generic address {int(raw[bad][0]):#x}, which is not in shared memory",
                "pass an address in shared memory (cvta.shared, or a .shared state space)",
            ),
        )
    return np.where(inside, raw - SHARED_WINDOW, raw & 0xFFFFFFFF)


def barrier_at(
    site: Site, shared: SharedMemory, address: int, *, local: bool = False
) -> tuple[SharedMemory, int, Mbarrier]:
    """The live mbarrier at a 32-bit address.

    Parameters
    ----------
    site
        Whom to blame.
    shared
        Memory of the executing CTA.
    address
        32-bit shared::cluster address.
    local
        The instruction works on the executing CTA's barriers only.

    Raises
    ------
    MbarrierError, MemoryFault
        Not initialised, not in this CTA, out of bounds, misaligned.
    """
    try:
        memory, offset = shared.locate(address, 8, 8, "mbarrier")
        if local and address >> RANK_SHIFT != shared.rank:
            raise MbarrierMisuse(
                "mbarrier.remote",
                f"{site.ins.opcode} on the mbarrier at {address:#x} of CTA {address >> RANK_SHIFT}",
                "wait only on barriers of the own CTA; remote ones can be arrived at",
            )
        barrier = memory.barriers.get(offset)
        if barrier is None:
            live = ", ".join(f"{o:#x}" for o in sorted(memory.barriers)) or "none"
            raise MbarrierMisuse(
                "mbarrier.uninitialised",
                f"no mbarrier was initialised at {address:#x} (live ones of that CTA: {live})",
                "mbarrier.init it first, and let a barrier pass before other threads use it",
            )
    except Misuse as misuse:
        site.fault(misuse)
    return memory, offset, barrier


# -- bookkeeping -----------------------------------------------------------------------------------------------


def groups_of(ctx: Context, warp: int, lane: int, kind: str) -> Groups:
    """Groups of one thread; `kind` is ``"bulk"`` or ``"cp.async"`` (per warp, lane 0)."""
    return ctx.launch.engine.in_flight.groups((id(ctx.cta), kind, warp, lane))


def tensor_queue(ctx: Context) -> int:
    """Rank of the CTA whose tensor-core queue takes this instruction: the even one of a pair."""
    return ctx.cta.rank & ~1 if ctx.ins.has("cta_group::2") else ctx.cta.rank


def queue_key(ctx: Context) -> Hashable:
    """Key of that queue in the engine."""
    return id(ctx.cta.cluster), tensor_queue(ctx)


def pair_of(ctx: Context) -> list[Cta]:
    """Both CTAs of the executing CTA's pair, the even one first.

    Raises
    ------
    ExecutionError
        The cluster has no such pair.
    """
    even, ctas = ctx.cta.rank & ~1, ctx.cta.cluster.ctas
    if even + 1 >= len(ctas):
        fault(
            ctx,
            Misuse(
                "tcgen05.no-pair",
                f".cta_group::2 in a cluster of {len(ctas)} CTA(s)",
                "launch with clusters of an even number of CTAs",
            ),
        )
    return [ctas[even], ctas[even + 1]]


def note_issue(site: Site, queue: Hashable, lane: int) -> None:
    """Remember which thread gave the tensor core work."""
    site.launch.engine.in_flight.note_issue(queue, (id(site.cta), site.warp, lane))


def note_commit(site: Site, queue: Hashable, lane: int) -> None:
    """Report a commit by a thread that issued nothing while others did."""
    if not site.launch.engine.in_flight.note_commit(queue, (id(site.cta), site.warp, lane)):
        site.finding(
            rule="tcgen05.commit-thread",
            message="commit by a thread that issued no MMA, while another thread's MMAs are not committed: it does not "
            "track them",
            remedy="issue mma and commit from the same thread",
            severity="warning",
        )


def issue_fragment(ctx: Context, kind: str, rows: Iterable[int], operation: AsyncOperation, *, late: bool) -> None:
    """Issue a tensor-memory load or store of whole warps.

    Parameters
    ----------
    ctx, rows
        The warps.
    kind
        ``"ld"`` or ``"st"``: which wait finishes it.
    operation
        What to do.
    late
        A lazy schedule may put it off until the wait.
    """
    engine = ctx.launch.engine
    if not late or engine.schedule in ("eager", "program"):
        operation.done = True
        operation.action()
        return
    operation.queue = (id(ctx.cta), kind)
    operation.observed_by_group = True
    for row in rows:
        engine.in_flight.add_fragment((id(ctx.cta), kind, ctx.w0 + row), operation)
    engine.issue(operation)


def finish_fragments(ctx: Context, kind: str, warp: int) -> None:
    """Complete the tensor-memory loads or stores of a warp, in order."""
    ctx.launch.engine.in_flight.finish_fragments((id(ctx.cta), kind, warp), ctx.launch.engine)


# -- descriptors -----------------------------------------------------------------------------------------------


def refuse(site: Site, problem: DescriptorProblem) -> NoReturn:
    """Raise `DescriptorError` for a problem."""
    site.fault(DescriptorMisuse(problem.rule, problem.message, problem.remedy))


def descriptor_problems(site: Site, problems: Iterable[DescriptorProblem], prefix: str = "") -> None:
    """Report warnings; raise for the first error."""
    for problem in problems:
        if problem.severity == "error":
            site.fault(DescriptorMisuse(problem.rule, prefix + problem.message, problem.remedy))
        site.finding(
            rule=problem.rule, message=prefix + problem.message, remedy=problem.remedy, severity=problem.severity
        )


def check_descriptor(site: Site, descriptor: SmemDescriptor, side: str, *, wgmma: bool = False) -> None:
    """Refuse a matrix descriptor that means nothing."""
    descriptor_problems(site, descriptor.problems(wgmma=wgmma), f"{side}: ")


def check_range(site: Site, shared: SharedMemory, first: int, last: int, descriptor: SmemDescriptor, side: str) -> None:
    """Require the bytes `first` to `last - 1` that an operand reads to lie in the CTA's shared memory."""
    if first < BASE or last > shared.end:
        site.fault(
            DescriptorMisuse(
                "descriptor.out-of-bounds",
                f"{side}: descriptor {descriptor.bits:#018x} (start {descriptor.start:#x}, LBO {descriptor.leading}, "
                f"SBO {descriptor.stride}) reads bytes {first:#x} to {last - 1:#x}; shared memory of the CTA is "
                f"{BASE:#x} to {shared.end - 1:#x}",
                "check start, LBO and SBO: for K-major operands SBO is the distance of 8 rows, for swizzled MN-major "
                "ones LBO is the distance of the next atom and SBO that of 8 k",
            )
        )


# -- global memory ---------------------------------------------------------------------------------------------


def global_span(site: Site, address: int, nbytes: int, *, write: bool = False) -> NDArray[np.uint8]:
    """View of global memory from `address` on.

    Raises
    ------
    MemoryFault
        Not within one allocation.
    """
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    try:
        return site.launch.memory.span(address, nbytes, write=write)
    except Misuse as misuse:
        site.fault(misuse)


def raw_bytes(site: Site, address: int, nbytes: int) -> bytes:
    """Bytes of a tensor map at a generic address: a kernel parameter or global memory."""
    if PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_SIZE:
        offset = address - PARAM_WINDOW
        parameters = site.launch.parameter_bytes
        if offset + nbytes > parameters.size:
            site.fault(
                GlobalMemoryMisuse(
                    "param.out-of-bounds",
                    f"{nbytes} bytes at parameter offset {offset} of {parameters.size}",
                    "take the address of the parameter that holds the tensor map",
                )
            )
        return parameters[offset : offset + nbytes].tobytes()
    return global_span(site, address, nbytes).tobytes()
