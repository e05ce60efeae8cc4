"""What the asynchronous copies share: targets, issue, groups, reductions.

Every copy is entered in the hazard checks when it is issued and moves its bytes when the schedule says. A
bulk copy out of shared memory has two stages, reading the source and writing the destination, so that
``wait_group.read`` and ``wait_group`` can be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.isa._machine import (
    Site,
    active_lanes,
    active_rows,
    barrier_at,
    clocks_of,
    groups_of,
)
from umma_jit.emulator.isa.registry import Wait
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.shared_memory import SharedMemory, SharedMemoryMisuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from umma_jit.emulator.clocks import Flight
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.in_flight import Groups
    from umma_jit.emulator.nodes import Instruction

__all__ = [
    "UFUNCS",
    "copy_source",
    "element_dtype",
    "issue_load",
    "issue_store",
    "load_targets",
    "reduction_name",
    "reduction_of",
    "require_aligned",
    "wait_groups",
]

_Target = tuple[SharedMemory, int]


def load_targets(
    site: Site, ctx: Context, destination: int, barrier: int, size: int, alignment: int, mask: int | None
) -> list[tuple[SharedMemory, int, SharedMemory, int]]:
    """(memory, offset, barrier's memory, barrier's offset) of each destination CTA."""
    shared = ctx.cta.shared
    found: list[tuple[SharedMemory, int, SharedMemory, int]] = []
    try:
        if mask is None:
            memory, offset = shared.locate(destination, size, alignment, f"{site.ins.opcode} destination")
            owner, at, _ = barrier_at(site, shared, barrier)
            pair = site.ins.has("cta_group::2") and owner.rank ^ memory.rank == 1
            if owner is not memory and not pair:
                raise SharedMemoryMisuse(
                    "tma.barrier-cta",
                    f"destination in CTA {memory.rank}, mbarrier in CTA {owner.rank}",
                    "both lie in one CTA, or with .cta_group::2 in the two CTAs of a pair",
                )
            return [(memory, offset, owner, at)]
        for rank in range(16):
            if mask >> rank & 1:
                memory, offset = shared.locate(
                    rank << 24 | destination & 0xFFFFFF, size, alignment, f"{site.ins.opcode} destination"
                )
                signalled = rank
                if site.ins.has("cta_group::2"):  # the barrier's CTA parity decides which of the pair is signalled
                    signalled = (rank & ~1) | (barrier >> 24 & 1)
                owner, at, _ = barrier_at(site, shared, signalled << 24 | barrier & 0xFFFFFF)
                found.append((memory, offset, owner, at))
    except Misuse as misuse:
        site.fault(misuse)
    return found


def copy_source(site: Site, address: int, size: int, alignment: int) -> _Target:
    shared = site.ctx.cta.shared
    try:
        memory, offset = shared.locate(address, size, alignment, f"{site.ins.opcode} source")
        if memory is not shared:
            raise SharedMemoryMisuse("copy.remote", "source in another CTA", "copy from the own shared memory")
    except Misuse as misuse:
        site.fault(misuse)
    return memory, offset


def issue_load(
    ctx: Context,
    site: Site,
    targets: list[tuple[SharedMemory, int, SharedMemory, int]],
    size: int,
    read: Callable[[], NDArray[np.uint8]],
    chunks: NDArray[np.int64] | None,
    *,
    reduction: tuple[np.ufunc, np.dtype[Any]] | None = None,
    token_of: Flight | None = None,
) -> None:
    """Issue a copy into shared memory that signals mbarriers with its bytes."""
    clocks = clocks_of(ctx)
    flight = clocks.start_copy(clocks.warp(ctx.cta.rank, site.warp))
    token = flight.token if token_of is None else flight.token.join(token_of.token)
    for memory, offset, _, _ in targets:
        words = slice(offset // 4, (offset + size) // 4)
        order = clocks.order[flight.agent]
        memory.guard_write(site, words, flight.agent, flight.epoch, order, f"{site.ins.opcode} writes")

    def action() -> None:
        image = read()
        for memory, offset, owner, at in targets:
            part = memory.data[offset : offset + size]
            if reduction is not None:
                ufunc, dtype = reduction
                part[:] = ufunc(part.view(dtype), image.view(dtype)).astype(dtype).view(np.uint8)
            elif chunks is None:
                part[:] = image
            else:
                memory.data.view(np.complex128)[chunks] = image.view(np.complex128)
            memory.initialised[offset // 4 : (offset + size) // 4] = True
            barrier = owner.barriers.get(at)
            if barrier is None:
                site.finding(
                    rule="mbarrier.inval-busy",
                    message=f"the mbarrier at {at:#x} was invalidated before the copy it tracks completed",
                    remedy="wait for the phase before giving up the barrier",
                )
                continue
            try:
                barrier.complete_tx(size, token)
            except Misuse as misuse:
                site.fault(misuse)

    ctx.launch.engine.issue(AsyncOperation(site.ins.opcode, action, line=site.line, holder=ctx.cta.cluster))


def issue_store(
    ctx: Context,
    site: Site,
    lane: int,
    source: _Target,
    size: int,
    write: Callable[[NDArray[np.uint8]], None],
    chunks: NDArray[np.int64] | None = None,
) -> None:
    """Issue a copy out of shared memory, tracked by the thread's bulk group."""
    clocks, engine = clocks_of(ctx), ctx.launch.engine
    shared, offset = source
    flight = clocks.start_copy(clocks.warp(ctx.cta.rank, site.warp))
    words = slice(offset // 4, (offset + size) // 4)
    shared.guard_read(
        site, words, flight.agent, flight.epoch, clocks.order[flight.agent], clocks.proxy[flight.agent],
        f"{site.ins.opcode} reads",
    )  # fmt: skip
    held: list[NDArray[np.uint8]] = []

    def read_source() -> None:
        missing = shared.missing_words(words)
        if missing is not None:
            site.finding(
                rule="shared.uninitialised",
                message=f"{site.ins.opcode} reads shared memory at {missing:#x} that was never written",
                remedy="fill the whole tile before storing it",
                severity="warning",
            )
        if chunks is None:
            held.append(shared.data[offset : offset + size].copy())
        else:
            held.append(shared.data.view(np.complex128)[chunks].view(np.uint8))
        engine.issue(whole)

    whole = AsyncOperation(site.ins.opcode, lambda: write(held[0]), line=site.line, observed_by_group=True)
    reading = AsyncOperation(f"{site.ins.opcode} (source)", read_source, line=site.line, observed_by_group=True)
    groups_of(ctx, site.warp, lane, "bulk").open.append((reading, whole, flight))
    engine.issue(reading)


def wait_groups(ctx: Context, ins: Instruction, kind: str, newest: int, *, reads_only: bool = False) -> Wait | None:
    waiting: list[Groups] = []
    clocks = clocks_of(ctx)
    lanes = active_lanes(ctx) if kind == "bulk" else ((row, 0) for row in active_rows(ctx))
    members = [(row, groups) for row, lane in lanes if (groups := groups_of(ctx, ctx.w0 + row, lane, kind))]
    waiting = [groups for _, groups in members if not groups.waited(newest, reads_only=reads_only)]
    if waiting:
        return Wait(
            lambda: all(groups.waited(newest, reads_only=reads_only) for groups in waiting),
            lambda: f"{ins.opcode} {newest}: {sum(len(g.committed) for g in waiting)} group(s) committed",
        )
    for row, groups in members:
        agent = clocks.warp(ctx.cta.rank, ctx.w0 + row)
        done = len(groups.committed) - newest
        for index in range(max(0, done)):
            for _, _, flight in groups.committed[index]:
                clocks.acquire(agent, flight.token)
        groups.reads_waited = max(groups.reads_waited, done)
        if not reads_only:
            for _ in range(max(0, done)):
                groups.committed.popleft()
                groups.reads_waited = max(0, groups.reads_waited - 1)
    return None


UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_PTX_DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "u32": np.uint32,
    "b32": np.uint32,
    "s32": np.int32,
    "u64": np.uint64,
    "b64": np.uint64,
    "s64": np.int64,
}


def reduction_name(ins: Instruction) -> str:
    return next(part for part in ins.parts if part in UFUNCS)


def reduction_of(ins: Instruction) -> tuple[np.ufunc, np.dtype[Any]]:
    return UFUNCS[reduction_name(ins)], np.dtype(_PTX_DTYPES[ins.parts[-1]])


def element_dtype(name: str) -> np.dtype[Any]:
    plain = name.removesuffix("_ftz").replace("tfloat", "float")
    return np.dtype(ml_dtypes.bfloat16 if plain == "bfloat16" else plain)


def require_aligned(site: Site, address: int, alignment: int, what: str) -> None:
    if address % alignment:
        site.fault(
            SharedMemoryMisuse(
                "copy.misaligned",
                f"{what} {address:#x} of {site.ins.opcode}",
                f"align it to {alignment} bytes",
            )
        )
