"""``fence.*`` and ``membar.*`` (PTX ISA 9.7.13.4).

Memory is sequentially consistent here, so thread fences have no effect on values; how they order accesses
is not tracked either, which can hide a race but not invent one. ``fence.proxy.async`` is what decides
whether generic-proxy writes are visible to the tensor core and to TMA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from umma_jit.emulator.isa._machine import active_rows, clocks_of
from umma_jit.emulator.isa.registry import handler

if TYPE_CHECKING:
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.nodes import Instruction


@handler("fence.proxy", blocking=False)
def proxy_fence(ctx: Context, ins: Instruction) -> None:
    """``fence.proxy.async{.space}``; the alias and tensormap proxies are always coherent here."""
    if any(part.startswith("async") for part in ins.parts) and not ins.has("global"):
        clocks = clocks_of(ctx)
        for row in active_rows(ctx):
            clocks.proxy_fence(clocks.warp(ctx.cta.rank, ctx.w0 + row))


@handler("fence", blocking=False)
def fence(ctx: Context, ins: Instruction) -> None:
    """Thread fences and ``fence.mbarrier_init``: no effect on a sequentially consistent memory."""


@handler("membar", blocking=False)
def membar(ctx: Context, ins: Instruction) -> None:
    """Old name of the fences; ``membar.proxy.async`` does not exist."""
