"""``ldmatrix``, ``stmatrix``, ``movmatrix`` (PTX ISA 9.7.14.5): 8x8 tiles of 16-bit elements across a warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.isa.data_movement import load_bytes, store_bytes
from umma_jit.emulator.isa.registry import Unsupported, handler
from umma_jit.emulator.nodes import Instruction, Vector

if TYPE_CHECKING:
    from umma_jit.emulator.context import Context


def _check(ins: Instruction) -> None:
    known = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}
    if set(ins.parts[1:]) - known or "m8n8" not in ins.parts or not {"x1", "x2", "x4"} & set(ins.parts):
        raise Unsupported(f"{ins.parts[0]}.sync.aligned.m8n8.{{x1,x2,x4}}{{.trans}}{{.shared}}.b16")


def _count(ins: Instruction) -> int:
    return next(int(part[1:]) for part in ins.parts if part in ("x1", "x2", "x4"))


def _space(ins: Instruction) -> str:
    return "shared" if ins.has("shared") or ins.has("shared::cta") else "generic"


@handler("ldmatrix", check=_check, inline=True)
def ldmatrix(ctx: Context, ins: Instruction) -> None:
    """Lane 8i + r gives the address of row r of tile i; lane t receives elements 2(t%4), 2(t%4)+1 of row t/4."""
    count = _count(ins)
    addresses = ctx.address(ins.operands[1])
    whole = ctx.mask
    rows = np.zeros((ctx.num_warps, 32), bool)
    rows[:, : 8 * count] = True
    ctx.mask, ctx.full = whole & rows, False
    try:
        data = load_bytes(ctx, addresses, 16, _space(ins))
    finally:
        ctx.mask, ctx.full = whole, bool(whole.all())
    tiles = np.ascontiguousarray(data).view(np.uint16)[:, : 8 * count].reshape(ctx.num_warps, count, 8, 8)
    if ins.has("trans"):
        tiles = tiles.transpose(0, 1, 3, 2)
    words = np.ascontiguousarray(tiles).view(np.uint32).reshape(ctx.num_warps, count, 32)
    targets = ins.operands[0]
    assert isinstance(targets, Vector)
    for number, target in enumerate(targets.elements):
        ctx.set_u32(target, words[:, number])


@handler("stmatrix", check=_check, inline=True)
def stmatrix(ctx: Context, ins: Instruction) -> None:
    """The reverse of ``ldmatrix``."""
    count = _count(ins)
    addresses = ctx.address(ins.operands[0])
    sources = ins.operands[1]
    assert isinstance(sources, Vector)
    words = np.stack([ctx.u32(source) for source in sources.elements], axis=1)
    tiles = np.ascontiguousarray(words).view(np.uint16).reshape(ctx.num_warps, count, 8, 8)
    if ins.has("trans"):
        tiles = tiles.transpose(0, 1, 3, 2)
    data = np.zeros((ctx.num_warps, 32, 16), np.uint8)
    data[:, : 8 * count] = np.ascontiguousarray(tiles).view(np.uint8).reshape(ctx.num_warps, 8 * count, 16)
    whole = ctx.mask
    rows = np.zeros((ctx.num_warps, 32), bool)
    rows[:, : 8 * count] = True
    ctx.mask, ctx.full = whole & rows, False
    try:
        store_bytes(ctx, addresses, data, _space(ins))
    finally:
        ctx.mask, ctx.full = whole, bool(whole.all())
    ctx.launch.progress += 1


@handler("movmatrix", inline=True)
def movmatrix(ctx: Context, ins: Instruction) -> None:
    """``movmatrix.sync.aligned.m8n8.trans.b16``: transpose one tile across the warp."""
    words = np.ascontiguousarray(ctx.u32(ins.operands[1]))
    tiles = words.view(np.uint16).reshape(ctx.num_warps, 8, 8).transpose(0, 2, 1)
    ctx.set_u32(ins.operands[0], np.ascontiguousarray(tiles).view(np.uint32).reshape(ctx.num_warps, 32))
