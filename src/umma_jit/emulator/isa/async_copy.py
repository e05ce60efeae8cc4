"""Bulk asynchronous copies (PTX ISA 9.7.9.25): cp.async.bulk, cp.async.bulk.tensor and their groups; st.async."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.async_engine import AsyncOperation
from umma_jit.emulator.isa._copies import (
    UFUNCS,
    copy_source,
    element_dtype,
    issue_load,
    issue_store,
    load_targets,
    reduction_name,
    reduction_of,
    require_aligned,
    wait_groups,
)
from umma_jit.emulator.isa._machine import (
    Site,
    active_lanes,
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
from umma_jit.emulator.shared_memory import SharedMemory, SharedMemoryMisuse
from umma_jit.emulator.tensor_map import TENSOR_MAP_BYTES, Box, TensorMap, TensorMapError, swizzled_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from umma_jit.emulator.clocks import Flight
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.nodes import Instruction, Operand


# -- cp.async.bulk: contiguous -----------------------------------------------------------------------------


@handler("cp.async.bulk")
def bulk(ctx: Context, ins: Instruction) -> None:
    """``cp.async.bulk`` between global and shared memory and between the CTAs of a cluster."""
    _bulk(ctx, ins, None)


@handler("cp.reduce.async.bulk")
def bulk_reduce(ctx: Context, ins: Instruction) -> None:
    """``cp.reduce.async.bulk`` to global memory or to another CTA's shared memory."""
    _bulk(ctx, ins, reduction_of(ins))


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
            source = copy_source(site, int(shared_addresses(ctx, operands[1])[row, lane]), size, 16)
            target = int(ctx.address(operands[0])[row, lane])
            require_aligned(site, target, 16, "destination")
            issue_store(ctx, site, lane, source, size, _global_writer(site, target, reduction))
            continue
        destination = int(shared_addresses(ctx, operands[0])[row, lane])
        barrier = int(shared_addresses(ctx, operands[3])[row, lane])
        if ins.has("global"):
            address = int(ctx.address(operands[1])[row, lane])
            require_aligned(site, address, 16, "source")
            mask = word(ctx, operands[4], row, lane) if ins.has("multicast::cluster") else None
            targets = load_targets(site, ctx, destination, barrier, size, 16, mask)
            issue_load(ctx, site, targets, size, partial(global_span, site, address, size), None)
            continue
        shared, offset = copy_source(site, int(shared_addresses(ctx, operands[1])[row, lane]), size, 16)
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
    _tensor_store(ctx, ins, reduction_name(ins))


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
        shared, offset = copy_source(site, int(sources[row, lane]), size, 128)
        chunks = swizzled_chunks(tensor_map, offset)

        def write(image: NDArray[np.uint8], site: Site = site, box: Box = box) -> None:
            region = global_span(site, box.first, box.span, write=True)
            if reduction is None:
                box.scatter(region, image)
            else:
                dtype = element_dtype(box.map.dtype)
                box.reduce(region, image, dtype, UFUNCS[reduction])

        swizzled = tensor_map.mode is not None and tensor_map.mode.bits
        issue_store(ctx, site, lane, (shared, offset), size, write, chunks if swizzled else None)


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


def _gather(site: Site, box: Box) -> NDArray[np.uint8]:
    """The bytes of a box out of global memory."""
    return box.gather(global_span(site, box.first, box.span))


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


def _index(ins: Instruction, prefix: str) -> int:
    """Position of the first modifier that starts with `prefix`; past the end if there is none."""
    return next((i for i, part in enumerate(ins.parts) if part.startswith(prefix)), len(ins.parts))


@handler("cp.async.bulk.commit_group")
def bulk_commit(ctx: Context, _: Instruction) -> None:
    """``cp.async.bulk.commit_group``, per thread."""
    for row, lane in active_lanes(ctx):
        groups_of(ctx, ctx.w0 + row, lane, "bulk").commit()


@handler("cp.async.bulk.wait_group")
def bulk_wait(ctx: Context, ins: Instruction) -> Wait | None:
    """``cp.async.bulk.wait_group{.read} N``, per thread."""
    return wait_groups(ctx, ins, "bulk", ctx.immediate(ins.operands[0]), reads_only=ins.has("read"))


# -- st.async, red.async -------------------------------------------------------------------------------------


@handler("st.async")
def st_async(ctx: Context, ins: Instruction) -> None:
    """``st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbar]``."""
    _remote_store(ctx, ins, None)


@handler("red.async")
def red_async(ctx: Context, ins: Instruction) -> None:
    """``red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.op.type [a], b, [mbar]``."""
    name = next(part for part in ins.parts if part in UFUNCS)
    _remote_store(ctx, ins, UFUNCS[name])


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
