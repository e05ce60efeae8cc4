"""``tensormap.replace`` and ``tensormap.cp_fenceproxy`` (PTX ISA 9.7.9.26, 9.7.13.16).

The tensormap proxy is coherent here: a kernel that leaves out the fence is not told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.isa._machine import Site, active_lanes, active_rows, full_warps, word
from umma_jit.emulator.isa.data_movement import load_bytes, store_bytes
from umma_jit.emulator.isa.registry import Unsupported, handler
from umma_jit.emulator.shared_memory import SharedMemoryMisuse
from umma_jit.emulator.tensor_map import TENSOR_MAP_BYTES, TensorMapError
from umma_jit.emulator.tensor_map_fields import FIELDS, replace_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context
    from umma_jit.emulator.nodes import Instruction


def check_replace(ins: Instruction) -> None:
    """``tensormap.replace.tile.field{.ss}.b1024.{b32,b64}``."""
    field = ins.parts[3] if len(ins.parts) > 3 else ""
    wide = "b64" if field in ("global_address", "global_stride") else "b32"
    spaces = set(ins.parts[4:-2]) - {"global", "shared::cta", "shared"}
    if ins.parts[2] != "tile" or field not in FIELDS or spaces or ins.parts[-2:] != ("b1024", wide):
        raise Unsupported(f"tensormap.replace.tile.{{{','.join(FIELDS)}}}{{.global,.shared::cta}}.b1024.{{b32,b64}}")
    if len(ins.operands) != (3 if FIELDS[field][2] > 1 else 2):
        raise Unsupported(f"{field} with {'an ordinal and a value' if FIELDS[field][2] > 1 else 'a value'}")


@handler("tensormap.replace", check=check_replace, blocking=False)
def replace(ctx: Context, ins: Instruction) -> None:
    """``tensormap.replace.tile.field{.ss}.b1024.type [addr] {, ord}, new_val``."""
    field = ins.parts[3]
    ordinal = ctx.immediate(ins.operands[1]) if len(ins.operands) > 2 else 0
    space = "generic"
    if ins.has("shared") or ins.has("shared::cta"):
        space = "shared"
    elif ins.has("global"):
        space = "global"
    addresses = ctx.address(ins.operands[0])
    for row, lane in _one_at_a_time(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        _require_aligned(site, int(addresses[row, lane]), 64)
        raw = load_bytes(ctx, addresses, TENSOR_MAP_BYTES, space)[row, lane].tobytes()
        value = word(ctx, ins.operands[-1], row, lane, wide=ins.parts[-1] == "b64")
        try:
            changed = replace_field(raw, field, value, ordinal)
        except TensorMapError as error:
            site.fault(SharedMemoryMisuse("tma.tensor-map", f"{ins.opcode}: {error}", "start from a map or from zeros"))
        store_bytes(ctx, addresses, _everywhere(ctx, changed), space)


@handler("tensormap.cp_fenceproxy", blocking=False)
def copy_fenceproxy(ctx: Context, ins: Instruction) -> None:
    """``tensormap.cp_fenceproxy.global.shared::cta.…sync.aligned [dst], [src], 128``: one copy for a warp."""
    full_warps(ctx)
    destinations, sources = ctx.address(ins.operands[0]), ctx.address(ins.operands[1])
    for row, lane in _one_at_a_time(ctx, first_only=True):
        site = Site(ctx, ins, ctx.w0 + row)
        if ctx.immediate(ins.operands[2]) != TENSOR_MAP_BYTES:
            site.fault(SharedMemoryMisuse("copy.size", f"{ins.opcode} of another size", "a tensor map has 128 bytes"))
        _require_aligned(site, int(destinations[row, lane]), TENSOR_MAP_BYTES)
        data = load_bytes(ctx, sources, TENSOR_MAP_BYTES, "shared")
        store_bytes(ctx, destinations, data, "global")


def _everywhere(ctx: Context, data: bytes) -> NDArray[np.uint8]:
    return np.broadcast_to(np.frombuffer(data, np.uint8), (ctx.num_warps, 32, len(data)))


def _one_at_a_time(ctx: Context, *, first_only: bool = False) -> Iterator[tuple[int, int]]:
    """(row, lane) of each active thread, or of the first of each warp, with only that one active meanwhile."""
    whole, full = ctx.mask, ctx.full
    threads = [(row, int(whole[row].argmax())) for row in active_rows(ctx)] if first_only else list(active_lanes(ctx))
    try:
        for row, lane in threads:
            only = np.zeros_like(whole)
            only[row, lane] = True
            ctx.mask, ctx.full = only, False
            yield row, lane
    finally:
        ctx.mask, ctx.full = whole, full


def _require_aligned(site: Site, address: int, alignment: int) -> None:
    if address % alignment:
        site.fault(
            SharedMemoryMisuse(
                "copy.misaligned", f"tensor map at {address:#x} of {site.ins.opcode}", f"align it to {alignment} bytes"
            )
        )
