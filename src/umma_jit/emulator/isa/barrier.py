"""CTA and cluster barriers, and what only orders or hints (PTX ISA 9.7.12, 9.7.13.1 to 9.7.13.4, 9.7.19)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.context import Context, Wait
from umma_jit.emulator.errors import ExecutionError
from umma_jit.emulator.isa.registry import YIELD, Result, Split, Unsupported, handler
from umma_jit.emulator.nodes import Immediate, Instruction, Operand, Symbol, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.clocks import Token
    from umma_jit.emulator.launch import Cta

__all__ = ["ClusterBarrier", "NamedBarrier", "settle_cluster_barrier", "settle_named_barriers"]

BARRIERS = 16


@dataclass
class NamedBarrier:
    """One of a CTA's 16 barriers.

    Attributes
    ----------
    generation
        Completed phases.
    arrived
        Threads that have arrived in this phase.
    expected
        Threads that complete a phase, as the first arrival said.
    waiting
        Warps in ``sync`` -> the generation they wait to see completed.
    """

    generation: int = 0
    arrived: int = 0
    expected: int = 0
    waiting: dict[int, int] = field(default_factory=dict)
    token: Token | None = None
    arriving: Token | None = None
    everybody: bool = False  # no count was given: all threads that have not exited
    votes: list[NDArray[np.bool_]] = field(default_factory=list)
    result: tuple[int, bool, bool] = (0, True, False)  # count, all, any of the last phase

    def arrive(self, threads: int, expected: int, token: Token) -> None:
        """Add arrivals; completes the phase when all are there."""
        self.expected = expected
        self.arrived += threads
        self.arriving = token if self.arriving is None else self.arriving.join(token)
        self.settle()

    def settle(self) -> None:
        """Complete the phase if all that are expected are there."""
        if self.arrived and self.arrived >= self.expected:
            if self.votes:
                votes = np.concatenate(self.votes)
                self.result = (int(votes.sum()), bool(votes.all()), bool(votes.any()))
            self.generation += 1
            self.token, self.arriving = self.arriving, None
            self.arrived = 0
            self.votes = []


@dataclass
class ClusterBarrier:
    """The barrier of a cluster: every thread of every CTA that has not exited."""

    generation: int = 0
    arrived: dict[tuple[int, int], int] = field(default_factory=dict)  # warp -> threads
    expected_by: dict[tuple[int, int], int] = field(default_factory=dict)  # warp -> generation it arrived for
    token: Token | None = None
    arriving: Token | None = None


def _check_bar(ins: Instruction) -> None:
    rest = set(ins.parts[1:]) - {"sync", "arrive", "red", "cta", "aligned", "popc", "and", "or", "u32", "pred"}
    if rest or not {"sync", "arrive", "red"} & set(ins.parts):
        raise Unsupported("bar and barrier with sync, arrive, red.{popc.u32,and.pred,or.pred}")


@handler("bar", "barrier", check=_check_bar)
def bar(ctx: Context, ins: Instruction) -> Result:
    """``bar{rier}{.cta}.{sync,arrive,red}{.aligned} {d,} a {, b} {, p}``."""
    reduce = ins.has("red")
    operands = ins.operands
    destination = operands[0] if reduce else None
    rest = list(operands[1:] if reduce else operands)
    vote: Operand | None = rest.pop() if reduce else None
    identifiers = ctx.u32(rest[0])
    per_warp = identifiers[np.arange(ctx.num_warps), ctx.mask.argmax(axis=1)]
    if ctx.num_warps > 1 and (per_warp != per_warp[0]).any():
        return Split(per_warp)
    identifier = int(per_warp[0])
    if not 0 <= identifier < BARRIERS:
        raise _error(ctx, "barrier.id", f"barrier {identifier}", "barriers are 0 to 15")
    count = ctx.cta.num_threads if len(rest) < 2 else ctx.uniform_u32(rest[1])
    if count % 32 or not 0 < count <= -(-ctx.cta.num_threads // 32) * 32:
        raise _error(ctx, "barrier.count", f"thread count {count}", "a multiple of 32, at most the CTA's threads")
    barrier = ctx.cta.barriers[identifier]
    clocks = ctx.cta.shared.clocks
    waits = not ins.has("arrive")
    rows = np.flatnonzero(ctx.mask.any(axis=1)).tolist()
    fresh = [row for row in rows if ctx.w0 + row not in barrier.waiting]
    if len(rest) < 2:
        count = ctx.cta.live_threads_rounded()
    for row in fresh:
        # Arrivals are counted by warps: a barrier is executed for the whole warp.
        if barrier.arrived + 32 > count:
            raise _error(
                ctx,
                "barrier.over-arrival",
                f"more threads arrive at barrier {identifier} than the {count} it was given",
                "use one thread count for all who take part in a phase",
            )
        if barrier.arrived and barrier.expected != count and len(rest) >= 2:
            raise _error(
                ctx,
                "barrier.count-mismatch",
                f"barrier {identifier} with {count} threads, others said {barrier.expected}",
                "use one thread count for all who take part in a phase",
            )
        warp = ctx.w0 + row
        clocks.sync_warp(clocks.warp(ctx.cta.rank, warp))
        if waits:
            barrier.waiting[warp] = barrier.generation
        if vote is not None:
            barrier.votes.append(ctx.pred(vote)[row][ctx.mask[row]])
        barrier.everybody = len(rest) < 2
        barrier.arrive(32, count, clocks.release(clocks.warp(ctx.cta.rank, warp)))
        ctx.launch.progress += 1
    if not waits:
        return None
    done = np.array(
        [row not in rows or barrier.generation > barrier.waiting[ctx.w0 + row] for row in range(ctx.num_warps)]
    )
    if not done.all():
        if done[rows].any():
            return Split(done)
        warps = [ctx.w0 + row for row in rows]
        return Wait(
            lambda: any(barrier.generation > barrier.waiting.get(warp, -1) for warp in warps),
            lambda: f"barrier {identifier}: {barrier.arrived} of {barrier.expected} threads have arrived",
        )
    for row in rows:
        warp = ctx.w0 + row
        del barrier.waiting[warp]
        clocks.acquire(clocks.warp(ctx.cta.rank, warp), barrier.token)
    if destination is not None:
        votes, every, some = barrier.result
        if ins.has("popc"):
            ctx.set_u32(destination, np.full((ctx.num_warps, 32), votes, np.uint32))
        else:
            ctx.set_pred(destination, np.full((ctx.num_warps, 32), every if ins.has("and") else some))
    return None


def settle_named_barriers(cta: Cta) -> None:
    """Threads have exited: barriers that wait for everybody expect fewer."""
    for barrier in cta.barriers:
        if barrier.arrived and barrier.everybody:
            barrier.expected = cta.live_threads_rounded()
            barrier.settle()


@handler("barrier.cluster.arrive")
def cluster_arrive(ctx: Context, ins: Instruction) -> Result:
    """``barrier.cluster.arrive{.sem}{.aligned}``."""
    barrier = ctx.cta.cluster.barrier
    clocks = ctx.cta.shared.clocks
    for row in np.flatnonzero(ctx.mask.any(axis=1)).tolist():
        key = (ctx.cta.rank, ctx.w0 + row)
        threads = barrier.arrived.get(key, 0) + int(ctx.mask[row].sum())
        if threads > 32:
            raise _error(
                ctx, "barrier.cluster.twice", "a thread arrives twice at the cluster barrier", "wait in between"
            )
        barrier.arrived[key] = threads
        barrier.expected_by[key] = barrier.generation
        if not ins.has("relaxed"):
            token = clocks.release(clocks.warp(*key))
            barrier.arriving = token if barrier.arriving is None else barrier.arriving.join(token)
    ctx.launch.progress += 1
    settle_cluster_barrier(ctx)
    return None


def settle_cluster_barrier(ctx: Context) -> None:
    """Complete the phase if every live thread has arrived."""
    cluster = ctx.cta.cluster
    barrier = cluster.barrier
    if barrier.arrived and sum(barrier.arrived.values()) >= sum(cta.live_threads() for cta in cluster.ctas):
        barrier.generation += 1
        barrier.arrived = {}
        barrier.token, barrier.arriving = barrier.arriving, None


@handler("barrier.cluster.wait")
def cluster_wait(ctx: Context, ins: Instruction) -> Result:
    """``barrier.cluster.wait{.acquire}{.aligned}``."""
    barrier = ctx.cta.cluster.barrier
    clocks = ctx.cta.shared.clocks
    rows = np.flatnonzero(ctx.mask.any(axis=1)).tolist()
    keys = [(ctx.cta.rank, ctx.w0 + row) for row in rows]
    for key in keys:
        if key not in barrier.expected_by:
            raise _error(ctx, "barrier.cluster.wait", "wait without an arrive before it", "arrive first")
    if any(barrier.generation <= barrier.expected_by[key] for key in keys):
        settle_cluster_barrier(ctx)
    if any(barrier.generation <= barrier.expected_by[key] for key in keys):
        return Wait(
            lambda: all(barrier.generation > barrier.expected_by[key] for key in keys),
            lambda: f"the cluster barrier: {sum(barrier.arrived.values())} threads have arrived",
        )
    for key in keys:
        clocks.acquire(clocks.warp(*key), barrier.token)
    return None


def _error(ctx: Context, rule: str, message: str, remedy: str) -> Exception:
    return ctx.error_at(ExecutionError, ctx.ins, ctx.w0, rule, f"{ctx.ins.opcode}: {message}", remedy)


# ---- no effect on results --------------------------------------------------------------------------


def _check_setmaxnreg(ins: Instruction) -> None:
    operand = ins.operands[0]
    if not isinstance(operand, Immediate) or operand.bits % 8 or not 24 <= operand.bits <= 256:
        raise Unsupported("setmaxnreg with a literal multiple of 8 from 24 to 256")


@handler("setmaxnreg", check=_check_setmaxnreg, inline=True)
def setmaxnreg(ctx: Context, ins: Instruction) -> None:
    """``setmaxnreg``: registers are not a resource here."""


@handler("griddepcontrol", inline=True)
def griddepcontrol(ctx: Context, ins: Instruction) -> None:
    """``griddepcontrol``: a launch here depends on no other."""


@handler("nanosleep", blocking=False)
def nanosleep(ctx: Context, ins: Instruction) -> Result:
    """``nanosleep``: others run."""
    return YIELD


_CALLABLE = ("vprintf", "__assertfail")


def _callee(ins: Instruction) -> str:
    """The function's name; a vector before it holds the variable of the result."""
    first = ins.operands[0]
    name = ins.operands[1] if isinstance(first, Vector) and len(ins.operands) > 1 else first
    return getattr(name, "name", "")


def _check_call(ins: Instruction) -> None:
    if _callee(ins) not in _CALLABLE:
        raise Unsupported(f"calls of {' and '.join(_CALLABLE)} only: inline other functions")


@handler("call", check=_check_call)
def call(ctx: Context, ins: Instruction) -> Result:
    """``call`` of ``vprintf``, which prints nothing here and returns 0, and of ``__assertfail``, which stops."""
    if _callee(ins) == "__assertfail":
        raise _error(ctx, "trap.assert", "a device-side assertion failed", "see the assertion at this line")
    result = ins.operands[0]
    if isinstance(result, Vector) and result.elements:
        variable = result.elements[0]
        assert isinstance(variable, Symbol)
        addresses = np.full((ctx.num_warps, 32), ctx.symbol(variable), np.uint64)
        ctx.cta.local.store(ctx.w0, ctx.w1, addresses, np.zeros((ctx.num_warps, 32, 4), np.uint8), ctx.mask)
    return None
