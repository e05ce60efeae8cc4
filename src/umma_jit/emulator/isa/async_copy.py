"""Asynchronous copies (PTX ISA 9.7.9.25): cp.async, cp.async.bulk, cp.async.bulk.tensor and their groups.

Every copy is entered in the hazard checks when it is issued and moves its bytes when the schedule says. A
bulk copy out of shared memory has two stages, reading the source and writing the destination, so that
``wait_group.read`` and ``wait_group`` can be told apart.
"""

from __future__ import annotations

from functools import partial
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
    global_span,
    groups_of,
    raw_bytes,
    shared_addresses,
    word,
)
from umma_jit.emulator.isa.registry import Wait, handler
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.nodes import Instruction, Operand, Register
from umma_jit.emulator.shared_memory import SharedMemory, SharedMemoryMisuse
from umma_jit.emulator.tensor_map import TENSOR_MAP_BYTES, Box, TensorMap, TensorMapError, swizzled_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from umma_jit.emulator.clocks import Flight
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.in_flight import Groups

_Target = tuple[SharedMemory, int]


# -- cp.async: the non-bulk copy ---------------------------------------------------------------------------


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
    return _wait_groups(ctx, ins, "cp.async", ctx.immediate(ins.operands[0]))


@handler("cp.async.wait_all")
def cp_async_wait_all(ctx: Context, ins: Instruction) -> Wait | None:
    """``cp.async.wait_all``: commit, then wait for everything."""
    for row in active_rows(ctx):
        groups = groups_of(ctx, ctx.w0 + row, 0, "cp.async")
        if groups.open:
            groups.commit()
    return _wait_groups(ctx, ins, "cp.async", 0)


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


# -- cp.async.bulk: contiguous -----------------------------------------------------------------------------


@handler("cp.async.bulk")
def bulk(ctx: Context, ins: Instruction) -> None:
    """``cp.async.bulk`` between global and shared memory and between the CTAs of a cluster."""
    _bulk(ctx, ins, None)


@handler("cp.reduce.async.bulk")
def bulk_reduce(ctx: Context, ins: Instruction) -> None:
    """``cp.reduce.async.bulk`` to global memory or to another CTA's shared memory."""
    _bulk(ctx, ins, _reduction(ins))


def _bulk(ctx: Context, ins: Instruction, reduction: tuple[np.ufunc, np.dtype[Any]] | None) -> None:
    operands = ins.operands
    to_global = ins.parts.index("global") < _index(ins, "shared::cta") if ins.has("global") else False
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        size = word(ctx, operands[2], row, lane)
        if size % 16 or size == 0:
            site.fault(
                SharedMemoryMisuse(
                    "copy.size", f"{ins.opcode} of {size} bytes", "the size of a bulk copy is a positive multiple of 16"
                )
            )
        if to_global:
            source = _source(site, int(shared_addresses(ctx, operands[1])[row, lane]), size, 16)
            target = int(ctx.address(operands[0])[row, lane])
            _require_aligned(site, target, 16, "destination")
            _store(ctx, site, lane, source, size, _global_writer(site, target, reduction))
            continue
        destination = int(shared_addresses(ctx, operands[0])[row, lane])
        barrier = int(shared_addresses(ctx, operands[3])[row, lane])
        if ins.has("global"):
            address = int(ctx.address(operands[1])[row, lane])
            _require_aligned(site, address, 16, "source")
            mask = word(ctx, operands[4], row, lane) if ins.has("multicast::cluster") else None
            targets = load_targets(site, ctx, destination, barrier, size, 16, mask)
            issue_load(ctx, site, targets, size, partial(global_span, site, address, size), None)
            continue
        shared, offset = _source(site, int(shared_addresses(ctx, operands[1])[row, lane]), size, 16)
        targets = load_targets(site, ctx, destination, barrier, size, 16, None)
        clocks = clocks_of(ctx)
        issuer = clocks.warp(ctx.cta.rank, site.warp)
        words = slice(offset // 4, (offset + size) // 4)
        reader = clocks.start_copy(issuer)
        shared.guard_read(
            site, words, reader.agent, reader.epoch, clocks.order[reader.agent], clocks.proxy[reader.agent],
            f"{ins.opcode} reads",
        )  # fmt: skip
        issue_load(
            ctx,
            site,
            targets,
            size,
            partial(shared.bytes_at, offset, size),
            None,
            reduction=reduction,
            token_of=reader,
        )


# -- cp.async.bulk.tensor: boxes of a tensor map -------------------------------------------------------------


@handler("cp.async.bulk.tensor")
def tensor(ctx: Context, ins: Instruction) -> None:
    """``cp.async.bulk.tensor.{1..5}d`` in tile mode, both directions."""
    if _index(ins, "global") < _index(ins, "shared"):
        _tensor_store(ctx, ins, None)
    else:
        _tensor_load(ctx, ins)


@handler("cp.reduce.async.bulk.tensor")
def tensor_reduce(ctx: Context, ins: Instruction) -> None:
    """``cp.reduce.async.bulk.tensor`` in tile mode."""
    _tensor_store(ctx, ins, _reduction_name(ins))


@handler("cp.async.bulk.prefetch")
def prefetch(ctx: Context, ins: Instruction) -> None:
    """``cp.async.bulk.prefetch{.tensor}``: caches are not modelled."""


def _tensor_load(ctx: Context, ins: Instruction) -> None:
    operands = ins.operands
    destinations = shared_addresses(ctx, operands[0])
    barriers = shared_addresses(ctx, operands[2])
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        tensor_map, box = _box(ctx, site, operands[1], row, lane)
        destination = int(destinations[row, lane])
        mask = word(ctx, operands[3], row, lane) if ins.has("multicast::cluster") else None
        size = tensor_map.box_bytes
        targets = load_targets(site, ctx, destination, int(barriers[row, lane]), size, 128, mask)
        mode = tensor_map.mode
        if mode is not None and mode.bits and destination % mode.alignment:
            site.finding(
                rule="tma.swizzle-alignment",
                message=f"destination {destination:#x} of a {mode.name} swizzled box is not {mode.alignment}-byte "
                "aligned, so the swizzle pattern does not start with the tile",
                remedy=f"align the tile to {mode.alignment} bytes",
                severity="warning",
            )
        chunks = swizzled_chunks(tensor_map, destination & 0xFFFFFF)
        issue_load(
            ctx,
            site,
            targets,
            size,
            partial(_gather, site, box),
            chunks if mode is not None and mode.bits else None,
        )


def _tensor_store(ctx: Context, ins: Instruction, reduction: str | None) -> None:
    operands = ins.operands
    sources = shared_addresses(ctx, operands[1])
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        tensor_map, box = _box(ctx, site, operands[0], row, lane)
        size = tensor_map.box_bytes
        shared, offset = _source(site, int(sources[row, lane]), size, 128)
        chunks = swizzled_chunks(tensor_map, offset)

        def write(image: NDArray[np.uint8], site: Site = site, box: Box = box) -> None:
            region = global_span(site, box.first, box.span, write=True)
            if reduction is None:
                box.scatter(region, image)
            else:
                dtype = _element_dtype(box.map.dtype)
                box.reduce(region, image, dtype, _UFUNCS[reduction])

        swizzled = tensor_map.mode is not None and tensor_map.mode.bits
        _store(ctx, site, lane, (shared, offset), size, write, chunks if swizzled else None)


def _box(ctx: Context, site: Site, operand: Operand, row: int, lane: int) -> tuple[TensorMap, Box]:
    """The map and box of a ``[map, {coordinates}]`` operand."""
    address = int(ctx.address(operand.map)[row, lane])  # type: ignore[union-attr]
    coordinates = []
    for part in operand.coordinates:  # type: ignore[union-attr]
        value = word(ctx, part, row, lane)
        coordinates.append(value - (1 << 32) if value >> 31 else value)
    try:
        tensor_map = TensorMap.decode(raw_bytes(site, address, TENSOR_MAP_BYTES))
        rank = int(next(part for part in site.ins.parts if len(part) == 2 and part[1] == "d")[0])
        if rank != tensor_map.rank:
            raise TensorMapError(f".{rank}d on a tensor map of rank {tensor_map.rank}")
        if tensor_map.mode is None or tensor_map.interleave != "none":
            raise TensorMapError(
                f"swizzle {tensor_map.swizzle} with interleave {tensor_map.interleave} cannot be executed"
            )
        return tensor_map, Box.at(tensor_map, tuple(coordinates))
    except TensorMapError as error:
        site.fault(
            SharedMemoryMisuse(
                "tma.tensor-map", f"tensor map at {address:#x}: {error}", "pass a TensorMap that fits the instruction"
            )
        )


# -- common parts --------------------------------------------------------------------------------------------


def _gather(site: Site, box: Box) -> NDArray[np.uint8]:
    """The bytes of a box out of global memory."""
    return box.gather(global_span(site, box.first, box.span))


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


def _source(site: Site, address: int, size: int, alignment: int) -> _Target:
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


def _store(
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


def _global_writer(
    site: Site, target: int, reduction: tuple[np.ufunc, np.dtype[Any]] | None
) -> Callable[[NDArray[np.uint8]], None]:
    def write(image: NDArray[np.uint8]) -> None:
        region = global_span(site, target, image.size, write=True)
        if reduction is None:
            region[:] = image
        else:
            ufunc, dtype = reduction
            present = np.ascontiguousarray(region).view(dtype)
            region[:] = ufunc(present, image.view(dtype)).astype(dtype).view(np.uint8)

    return write


@handler("cp.async.bulk.commit_group")
def bulk_commit(ctx: Context, _: Instruction) -> None:
    """``cp.async.bulk.commit_group``, per thread."""
    for row, lane in active_lanes(ctx):
        groups_of(ctx, ctx.w0 + row, lane, "bulk").commit()


@handler("cp.async.bulk.wait_group")
def bulk_wait(ctx: Context, ins: Instruction) -> Wait | None:
    """``cp.async.bulk.wait_group{.read} N``, per thread."""
    return _wait_groups(ctx, ins, "bulk", ctx.immediate(ins.operands[0]), reads_only=ins.has("read"))


def _wait_groups(ctx: Context, ins: Instruction, kind: str, newest: int, *, reads_only: bool = False) -> Wait | None:
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


# -- st.async, red.async -------------------------------------------------------------------------------------


@handler("st.async")
def st_async(ctx: Context, ins: Instruction) -> None:
    """``st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbar]``."""
    _remote_store(ctx, ins, None)


@handler("red.async")
def red_async(ctx: Context, ins: Instruction) -> None:
    """``red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.op.type [a], b, [mbar]``."""
    name = next(part for part in ins.parts if part in _UFUNCS)
    _remote_store(ctx, ins, _UFUNCS[name])


def _remote_store(ctx: Context, ins: Instruction, ufunc: np.ufunc | None) -> None:
    width = int(ins.parts[-1][1:]) // 8
    dtype = np.dtype({"s": f"i{width}", "f": f"f{width}"}.get(ins.parts[-1][0], f"u{width}"))
    addresses, barriers = (shared_addresses(ctx, ins.operands[i]) for i in (0, 2))
    value = ins.operands[1]
    elements = tuple(getattr(value, "elements", (value,)))
    clocks, shared = clocks_of(ctx), ctx.cta.shared
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        data = np.array([word(ctx, e, row, lane, wide=width == 8) for e in elements], f"u{width}")
        size = data.nbytes
        try:
            memory, offset = shared.locate(int(addresses[row, lane]), size, size, ins.opcode)
        except Misuse as misuse:
            site.fault(misuse)
        owner, at, _ = barrier_at(site, shared, int(barriers[row, lane]))
        if owner is not memory:
            site.fault(
                SharedMemoryMisuse(
                    "copy.barrier-cta",
                    f"{ins.opcode} to CTA {memory.rank} with an mbarrier of CTA {owner.rank}",
                    "take both addresses from the same CTA",
                )
            )
        flight = clocks.start_copy(clocks.warp(ctx.cta.rank, site.warp), generic=True)
        words = slice(offset // 4, (offset + size) // 4)
        if ufunc is None:
            order = clocks.order[flight.agent]
            memory.guard_write(site, words, flight.agent, flight.epoch, order, f"{ins.opcode} writes")

        def action(
            site: Site = site,
            memory: SharedMemory = memory,
            offset: int = offset,
            data: NDArray[Any] = data,
            at: int = at,
            flight: Flight = flight,
        ) -> None:
            part = memory.data[offset : offset + data.nbytes].view(dtype)
            part[:] = data.view(dtype) if ufunc is None else ufunc(part, data.view(dtype))
            memory.initialised[offset // 4 : (offset + data.nbytes) // 4] = True
            _, _, barrier = barrier_at(site, memory, memory.rank << 24 | at)
            try:
                barrier.complete_tx(data.nbytes, flight.token)
            except Misuse as misuse:
                site.fault(misuse)

        ctx.launch.engine.issue(AsyncOperation(ins.opcode, action, line=ins.line, holder=ctx.cta.cluster))


# -- reductions ----------------------------------------------------------------------------------------------

_UFUNCS: dict[str, np.ufunc] = {
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


def _reduction_name(ins: Instruction) -> str:
    return next(part for part in ins.parts if part in _UFUNCS)


def _reduction(ins: Instruction) -> tuple[np.ufunc, np.dtype[Any]]:
    return _UFUNCS[_reduction_name(ins)], np.dtype(_PTX_DTYPES[ins.parts[-1]])


def _element_dtype(name: str) -> np.dtype[Any]:
    plain = name.removesuffix("_ftz").replace("tfloat", "float")
    return np.dtype(ml_dtypes.bfloat16 if plain == "bfloat16" else plain)


def _index(ins: Instruction, prefix: str) -> int:
    """Position of the first modifier that starts with `prefix`; past the end if there is none."""
    return next((i for i, part in enumerate(ins.parts) if part.startswith(prefix)), len(ins.parts))


def _require_aligned(site: Site, address: int, alignment: int, what: str) -> None:
    if address % alignment:
        site.fault(
            SharedMemoryMisuse(
                "copy.misaligned",
                f"{what} {address:#x} of {site.ins.opcode}",
                f"align it to {alignment} bytes",
            )
        )
