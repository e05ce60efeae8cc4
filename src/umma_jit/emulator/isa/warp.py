"""Warp-wide communication (PTX ISA 9.7.9.5 to 9.7.9.7, 9.7.13): shuffles, votes, elections, reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.isa.registry import Unsupported, handler
from umma_jit.emulator.nodes import Immediate, Instruction, Operand, PredicatePair, Sink

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.context import Context

_LANE = np.arange(32)
_WEIGHTS = (1 << np.arange(32, dtype=np.uint64)).astype(np.uint64)


def _bits(lanes: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """(W, 32) bool to one 32-bit mask per warp, (W, 1)."""
    result: NDArray[np.uint32] = (lanes * _WEIGHTS).sum(axis=1, dtype=np.uint64).astype(np.uint32)[:, None]
    return result


def _members(ctx: Context, operand: Operand) -> NDArray[np.bool_]:
    """(W, 32): the lanes that take part, checked to be active.

    Lanes of one warp may give different masks only if each is in its own; the first active lane's is used.
    """
    masks = ctx.u32(operand)
    first = ctx.mask.argmax(axis=1)
    chosen: NDArray[np.uint32] = masks[np.arange(ctx.num_warps), first]
    wanted: NDArray[np.bool_] = np.not_equal(chosen[:, None].astype(np.uint64) & _WEIGHTS, 0)
    active_rows = ctx.mask.any(axis=1)
    missing: NDArray[np.bool_] = wanted & ~ctx.mask & np.expand_dims(active_rows, 1)
    if missing.any():
        ctx.finding(
            rule="warp.membermask",
            message=f"{ctx.ins.opcode} names lane {int(np.nonzero(missing)[1][0])} in its membermask, which does not "
            "execute it",
            remedy="give the mask of exactly the lanes that are converged here",
        )
    result: NDArray[np.bool_] = wanted & ctx.mask
    return result


def _check_shfl(ins: Instruction) -> None:
    if (
        len(ins.parts) != 4
        or ins.parts[1] != "sync"
        or ins.parts[2] not in ("up", "down", "bfly", "idx")
        or ins.parts[3] != "b32"
    ):
        raise Unsupported("shfl.sync.{up,down,bfly,idx}.b32")


@handler("shfl", check=_check_shfl, inline=True)
def shfl(ctx: Context, ins: Instruction) -> None:
    """``shfl.sync.mode.b32 d{|p}, a, b, c, membermask``."""
    destination = ins.operands[0]
    value = ctx.u32(ins.operands[1])
    b = ctx.u32(ins.operands[2]).astype(np.int64) & 31
    c = ctx.u32(ins.operands[3]).astype(np.int64)
    _members(ctx, ins.operands[4])
    clamp, segment = c & 31, c >> 8 & 31
    lane = _LANE[None, :]
    top = (lane & segment) | (clamp & ~segment)
    bottom = lane & segment
    mode = ins.parts[2]
    if mode == "up":
        source = lane - b
        valid = source >= top
    elif mode == "down":
        source = lane + b
        valid = source <= top
    elif mode == "bfly":
        source = lane ^ b
        valid = source <= top
    else:
        source = bottom | (b & ~segment)
        valid = source <= top
    source = np.where(valid, source, lane)
    rows = np.arange(ctx.num_warps)[:, None]
    absent = ctx.mask & ~ctx.mask[rows, source]
    if absent.any():
        ctx.finding(
            rule="warp.shfl-source",
            message=f"shfl reads lane {int(source[absent][0])}, which does not execute it",
            remedy="let all source lanes take part",
        )
    result = value[rows, source]
    if isinstance(destination, PredicatePair):
        ctx.set_u32(destination.first, result)
        ctx.set_pred(destination.second, valid)
    else:
        ctx.set_u32(destination, result)


def _check_vote(ins: Instruction) -> None:
    if len(ins.parts) != 4 or ins.parts[1] != "sync" or ins.parts[2] not in ("all", "any", "uni", "ballot"):
        raise Unsupported("vote.sync.{all,any,uni}.pred and vote.sync.ballot.b32")


@handler("vote", check=_check_vote, inline=True)
def vote(ctx: Context, ins: Instruction) -> None:
    """``vote.sync.{all,any,uni}.pred p, {!}a, membermask``; ``vote.sync.ballot.b32 d, {!}a, membermask``."""
    members = _members(ctx, ins.operands[2])
    yes = ctx.pred(ins.operands[1]) & members
    if ins.parts[2] == "ballot":
        ctx.set_u32(ins.operands[0], np.broadcast_to(_bits(yes), ctx.mask.shape))
        return
    some = yes.any(axis=1)
    every = (yes == members).all(axis=1)
    result = {"any": some, "all": every, "uni": every | ~some}[ins.parts[2]]
    ctx.set_pred(ins.operands[0], np.broadcast_to(result[:, None], ctx.mask.shape))


@handler("activemask", inline=True)
def activemask(ctx: Context, ins: Instruction) -> None:
    """``activemask.b32 d``."""
    ctx.set_u32(ins.operands[0], np.broadcast_to(_bits(ctx.mask), ctx.mask.shape))


@handler("elect.sync", inline=True)
def elect(ctx: Context, ins: Instruction) -> None:
    """``elect.sync d|p, membermask``: the lowest member is elected, here as on hardware seen so far."""
    members = _members(ctx, ins.operands[1])
    leader = members.argmax(axis=1)
    destination = ins.operands[0]
    if not isinstance(destination, PredicatePair):
        destination = PredicatePair(Sink(), destination)
    if not isinstance(destination.first, Sink):
        ctx.set_u32(destination.first, np.broadcast_to(leader[:, None], ctx.mask.shape).astype(np.uint32))
    ctx.set_pred(destination.second, _LANE[None, :] == leader[:, None])


def _check_match(ins: Instruction) -> None:
    if len(ins.parts) != 4 or ins.parts[2] not in ("any", "all") or ins.parts[3] not in ("b32", "b64"):
        raise Unsupported("match.{any,all}.sync.{b32,b64}")


@handler("match", inline=True)
def match(ctx: Context, ins: Instruction) -> None:
    """``match.any.sync.type d, a, membermask`` and ``match.all.sync.type d|p, a, membermask``."""
    members = _members(ctx, ins.operands[2])
    value = ctx.values(ins.operands[1], ins.parts[-1])
    same = (value[:, :, None] == value[:, None, :]) & members[:, None, :]
    masks = (same * _WEIGHTS).sum(axis=2, dtype=np.uint64).astype(np.uint32)
    if "any" in ins.parts:
        ctx.set_u32(ins.operands[0], masks)
        return
    everyone = _bits(members)
    agreed = ((masks == everyone) | ~members).all(axis=1, keepdims=True)
    result = np.broadcast_to(np.where(agreed, everyone, np.uint32(0)), ctx.mask.shape)
    destination = ins.operands[0]
    if isinstance(destination, PredicatePair):
        ctx.set_u32(destination.first, result)
        ctx.set_pred(destination.second, np.broadcast_to(agreed, ctx.mask.shape))
    else:
        ctx.set_u32(destination, result)


_REDUCTIONS: dict[str, Any] = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
                               "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip


def _check_redux(ins: Instruction) -> None:
    if ins.parts[1] != "sync" or ins.parts[2] not in _REDUCTIONS or ins.parts[-1] not in ("u32", "s32", "b32", "f32"):
        raise Unsupported("redux.sync.{add,min,max,and,or,xor}.{u32,s32,b32} and redux.sync.{min,max}{.abs}{.NaN}.f32")


@handler("redux", check=_check_redux, inline=True)
def redux(ctx: Context, ins: Instruction) -> None:
    """``redux.sync.op.type d, a, membermask``."""
    members = _members(ctx, ins.operands[2])
    kind = ins.parts[-1]
    value = ctx.values(ins.operands[1], kind)
    name = ins.parts[2]
    result = np.zeros_like(value)
    if ins.has("abs"):
        value = np.abs(value)
    for row in range(ctx.num_warps):
        chosen = value[row][members[row]]
        if not chosen.size:
            continue
        if kind == "f32" and not ins.has("NaN"):
            pick: Any = np.fmax if name == "max" else np.fmin
        else:
            pick = _REDUCTIONS[name]
        result[row] = pick.reduce(chosen)
    ctx.set(ins.operands[0], result, kind)


@handler("bar.warp", inline=True)
def bar_warp(ctx: Context, ins: Instruction) -> None:
    """``bar.warp.sync membermask``: the lanes are converged here already; checks that they are, and orders them."""
    clocks = ctx.cta.shared.clocks
    for row in np.flatnonzero(ctx.mask.all(axis=1)).tolist():
        clocks.sync_warp(clocks.warp(ctx.cta.rank, ctx.w0 + row))
    operand = ins.operands[0]
    if ctx.full and isinstance(operand, Immediate) and operand.bits & 0xFFFFFFFF == 0xFFFFFFFF:
        return
    _members(ctx, operand)
