"""``clusterlaunchcontrol`` (PTX ISA 9.7.13.17 and 9.7.13.18): running clusters take over ones that have not started.

The opaque response, own format: x, y and z of the first CTA of the cancelled cluster and whether there is one, 32 bits
each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.isa._copies import issue_load, load_targets
from umma_jit.emulator.isa._machine import Site, active_lanes, shared_addresses
from umma_jit.emulator.isa.registry import Unsupported, handler
from umma_jit.emulator.nodes import Register, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context
    from umma_jit.emulator.nodes import Instruction

_BYTES = 16


def check_cancel(ins: Instruction) -> None:
    """The one form, with or without space and multicast."""
    optional = {"shared::cta", "multicast::cluster::all"}
    if {*ins.parts[2:]} - optional != {"async", "mbarrier::complete_tx::bytes", "b128"} or len(ins.operands) != 2:
        raise Unsupported(
            "clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes"
            "{.multicast::cluster::all}.b128 [addr], [mbar]"
        )


@handler("clusterlaunchcontrol.try_cancel", check=check_cancel)
def try_cancel(ctx: Context, ins: Instruction) -> None:
    """Asks for a cluster that has not started; the answer comes with 16 bytes to the mbarrier."""
    destinations, barriers = (shared_addresses(ctx, operand) for operand in ins.operands)
    launch = ctx.launch
    for row, lane in active_lanes(ctx):
        site = Site(ctx, ins, ctx.w0 + row)
        mask = (1 << len(ctx.cta.cluster.ctas)) - 1 if ins.has("multicast::cluster::all") else None
        targets = load_targets(site, ctx, int(destinations[row, lane]), int(barriers[row, lane]), _BYTES, _BYTES, mask)

        def answer() -> NDArray[np.uint8]:
            first = launch.cancel_cluster()
            words = (0, 0, 0, 0) if first is None else (*first, 1)
            return np.array(words, np.uint32).view(np.uint8)

        issue_load(ctx, site, targets, _BYTES, answer, None)


def check_query(ins: Instruction) -> None:
    """``is_canceled.pred``, ``get_first_ctaid.v4.b32``, ``get_first_ctaid::{x,y,z}.b32``."""
    forms = [("is_canceled", "pred"), ("get_first_ctaid", "v4", "b32")]
    forms += [(f"get_first_ctaid::{axis}", "b32") for axis in "xyz"]
    if ins.parts[2:-1] not in forms or ins.parts[-1] != "b128":
        raise Unsupported("clusterlaunchcontrol.query_cancel." + ", ".join(".".join(form) for form in forms) + ".b128")
    source = ins.operands[1]
    if not isinstance(source, Register) or source.bank != "b128":
        raise Unsupported("the response in a .b128 register")


@handler("clusterlaunchcontrol.query_cancel", check=check_query, inline=True)
def query_cancel(ctx: Context, ins: Instruction) -> None:
    """Whether a cluster was cancelled, and the first CTA of it."""
    target, source = ins.operands
    assert isinstance(source, Register)
    response = np.ascontiguousarray(ctx.views.lists["b128"][source.slot]).view(np.uint32).reshape(ctx.num_warps, 32, 4)
    form = ins.parts[2]
    if form == "is_canceled":
        ctx.set_pred(target, response[..., 3] != 0)
    elif form == "get_first_ctaid":
        assert isinstance(target, Vector)
        for axis, element in enumerate(target.elements[:3]):
            ctx.set_u32(element, response[..., axis])
    else:
        ctx.set_u32(target, response[..., "xyz".index(form[-1])])
