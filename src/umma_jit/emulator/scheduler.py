"""Runs the fragments of a launch until all threads have exited, under one of the schedules.

One cluster runs after another. A further one is started early only if those under way can do nothing but wait, as
when blocks hand work to each other through global memory.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.block_end import check_block_end, check_cluster_end
from umma_jit.emulator.deadlock import deadlock
from umma_jit.emulator.errors import ExecutionError
from umma_jit.emulator.fragment import Fragment, Join
from umma_jit.emulator.isa.barrier import settle_cluster_barrier, settle_named_barriers
from umma_jit.emulator.isa.registry import YIELD, Split, Wait
from umma_jit.emulator.translate import BranchStep, CodeStep, HandlerStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from umma_jit.emulator.launch import Cluster, Cta, Launch

__all__ = ["Scheduler"]

_SLICE = 4096
"""Steps a fragment may take in one go when nothing makes it stop."""
_RANDOM_SLICE = 24
"""The same under ``random``."""
_URGENT_RATE = 0.75
"""Chance under ``random`` that the most urgent fragment runs, rather than any: some warps are slow for long."""
_CHANGE_RATE = 0.01
"""Chance under ``random``, each time, that a warp's urgency is drawn anew."""
_SPLIT_RATE = 0.04
"""Chance under ``random`` that warps which could go on together are taken apart."""
_FRUITLESS = 256
"""Rounds of polling and of timed-out waits, with nothing else happening, that make a deadlock."""
_ENDLESS = 1 << 22
"""Steps with no effect on memory, barriers or asynchronous work that make an endless loop."""


class Scheduler:
    """The execution of one launch.

    Parameters
    ----------
    launch
        What is launched.
    clusters
        Makes the clusters of the grid, one by one.
    finished
        Called with the number of CTAs that have ended, whenever a cluster has.
    """

    def __init__(self, launch: Launch, clusters: Iterator[Cluster], finished: Callable[[int], None]) -> None:
        self._launch = launch
        self._engine = launch.engine
        self._steps = launch.program.steps
        self._end = len(self._steps)
        self._clusters = clusters
        self._finished = finished
        self._resident: list[Cluster] = []
        self._fragments: dict[Cta, list[Fragment]] = {}
        self._random = launch.schedule == "random"
        self._ticks = launch.schedule == "program"
        self._rng = launch.rng
        self._urgency: dict[int, float] = {}
        self._fruitless = 0
        self._fruitless_since = -1
        self._idle_steps = 0
        self._idle_since = -1
        self.executed = [0] * self._end
        """How many warps executed each step."""

    def run(self) -> None:
        """Run to the end.

        Raises
        ------
        EmulatorError
            A rule of the machine was broken, or nothing can go on.
        """
        while self._start_cluster():
            while self._resident:
                if not (self._run_one() if self._random else self._run_round()):
                    self._unstick()

    # ---- choosing ------------------------------------------------------------------------------------

    @property
    def _stamp(self) -> int:
        """Changes whenever a waiting or polling thread might find something new."""
        return self._launch.progress + self._engine.completed

    def _start_cluster(self) -> bool:
        cluster = next(self._clusters, None)
        if cluster is None:
            return False
        self._resident.append(cluster)
        for cta in cluster.ctas:
            self._fragments[cta] = cta_fragments(self._launch, cta)
        return True

    def _ready(self, cta: Cta) -> list[Fragment]:
        """The fragments of a CTA that can run, merged where they can go on together."""
        fragments = self._fragments[cta]
        ready: list[Fragment] = []
        merged = False
        for fragment in fragments:
            wait = fragment.wait
            if wait is not None:
                if not wait.ready():
                    continue
            elif fragment.polled is not None and fragment.polled == self._stamp:
                continue
            if ready and ready[-1].can_merge(fragment):
                first = ready[-1]
                ready[-1] = Fragment(self._launch, cta, first.w0, fragment.w1, fragment.pc)
                merged = True
                continue
            ready.append(fragment)
        if merged:
            taken = {warp for fragment in ready if fragment.lanes is None for warp in range(fragment.w0, fragment.w1)}
            kept = [f for f in fragments if f.lanes is not None or f.w0 not in taken]
            whole = [f for f in ready if f.lanes is None]
            self._fragments[cta] = sorted([*kept, *whole], key=_position)
        return ready

    def _run_round(self) -> bool:
        """Let every fragment that can run do so once; False if there was none."""
        ran = False
        for cluster in list(self._resident):
            for cta in cluster.ctas:
                for fragment in self._ready(cta):
                    ran = True
                    self._run_slice(fragment, _SLICE)
            self._retire(cluster)
        return ran

    def _run_one(self) -> bool:
        """Let one fragment run for a while, chosen at random; False if none can."""
        rng = self._rng
        ready = [fragment for cluster in self._resident for cta in cluster.ctas for fragment in self._ready(cta)]
        if not ready:
            return False
        fragment = self._most_urgent(ready) if rng.random() < _URGENT_RATE else rng.choice(ready)
        width = fragment.w1 - fragment.w0
        if width > 1 and rng.random() < _SPLIT_RATE:
            middle = fragment.w0 + rng.randrange(1, width)
            fragment = rng.choice(self._split_at(fragment, [fragment.w0, middle, fragment.w1]))
        self._run_slice(fragment, rng.randrange(1, _RANDOM_SLICE))
        self._retire(fragment.cta.cluster)
        return True

    def _most_urgent(self, ready: list[Fragment]) -> Fragment:
        """The fragment whose first warp has the highest urgency, which is random and seldom changes."""
        rng, urgency = self._rng, self._urgency
        if rng.random() < _CHANGE_RATE:
            urgency[rng.choice(ready).w0] = rng.random()
        return max(ready, key=lambda fragment: urgency.setdefault(fragment.w0, rng.random()))

    def _retire(self, cluster: Cluster) -> None:
        """End a cluster whose threads have all exited."""
        if any(self._fragments[cta] for cta in cluster.ctas):
            return
        last = self._launch.program.code.instructions[-1]
        check_cluster_end(self._launch, cluster, last)
        # What is in flight still lands, whoever issued it.
        while self._engine.complete_one(self._rng if self._random else None):
            pass
        self._resident.remove(cluster)
        for cta in cluster.ctas:
            del self._fragments[cta]
            check_block_end(self._launch, cta, last)
        self._launch.release(cluster)
        self._finished(len(cluster.ctas))

    def _unstick(self) -> None:
        """Nothing can run: complete asynchronous work, or let waits time out, or give up."""
        if self._random:
            if self._engine.complete_one(self._rng):
                return
        elif self._engine.complete_one(groups_first=self._in_group_wait()):
            return
        everything = [fragment for fragments in self._fragments.values() for fragment in fragments]
        # A wait of several warps holds until all of them can go on, so let each wait for itself.
        wide = [fragment for fragment in everything if fragment.w1 - fragment.w0 > 1]
        for fragment in wide:
            self._split_at(fragment, list(range(fragment.w0, fragment.w1 + 1)))
        if wide or self._start_cluster():
            return
        if self._stamp != self._fruitless_since:
            self._fruitless_since = self._stamp
            self._fruitless = 0
        self._fruitless += 1
        awake = [f for f in everything if f.wait is None or self._times_out(f)]
        if not awake or self._fruitless > _FRUITLESS:
            raise deadlock(self._launch, everything)
        for fragment in awake:
            fragment.polled = None
            fragment.ctx.timed_out = fragment.wait is not None
            self._run_slice(fragment, _SLICE)
        for cluster in list(self._resident):
            self._retire(cluster)

    def _in_group_wait(self) -> bool:
        """Whether a thread waits for a group of copies: as late as legal, these come before what nobody asks for."""
        waiting = (f for fragments in self._fragments.values() for f in fragments if f.wait is not None)
        instructions = (self._launch.program.instruction(fragment.pc) for fragment in waiting)
        return any(ins is not None and "wait_group" in ins.opcode for ins in instructions)

    def _times_out(self, fragment: Fragment) -> bool:
        step = self._steps[fragment.pc]
        return isinstance(step, HandlerStep) and step.ins.parts[:2] == ("mbarrier", "try_wait")

    # ---- executing -----------------------------------------------------------------------------------

    def _run_slice(self, fragment: Fragment, budget: int) -> None:
        """Execute steps until the fragment stops, splits or has used up its budget."""
        steps, engine, launch, executed = self._steps, self._engine, self._launch, self.executed
        ctx, width = fragment.ctx, fragment.w1 - fragment.w0
        fragment.wait = None
        fragment.polled = None
        join = fragment.join
        for _ in range(budget):
            if self._ticks:
                engine.tick()
            elif self._random:
                engine.maybe_complete(self._rng)
            pc = fragment.pc
            if join is not None and pc == join.meeting:
                self._arrive(fragment, join)
                return
            if pc >= self._end:
                self._exit(fragment)
                return
            step = steps[pc]
            executed[pc] += width
            if isinstance(step, CodeStep):
                if fragment.lanes is None:
                    step.every(ctx, None, None)
                else:
                    step.some(ctx, fragment.flat, fragment.lanes)
                fragment.pc = pc + 1
            elif isinstance(step, BranchStep):
                if self._branch(fragment, step):
                    return
            else:
                fragment.pc = pc + 1
                if ctx.begin(step.ins, fragment.lanes):
                    result = step.handler.run(ctx, step.ins)
                    timed_out, ctx.timed_out = ctx.timed_out, False
                    if result is None:
                        if step.acts and not timed_out:
                            launch.progress += 1
                    elif result is YIELD:
                        fragment.polled = self._stamp
                        return
                    else:
                        fragment.pc = pc
                        executed[pc] -= width
                        if isinstance(result, Split):
                            self._split_at(fragment, _edges(fragment.w0, result.groups))
                        else:
                            assert isinstance(result, Wait)
                            fragment.wait = result
                        return
        self._count_idle(fragment, budget)

    def _count_idle(self, fragment: Fragment, steps: int) -> None:
        """A slice was used up: find out about endless loops."""
        if self._stamp != self._idle_since:
            self._idle_since = self._stamp
            self._idle_steps = 0
        self._idle_steps += steps
        if self._idle_steps > _ENDLESS:
            ins = self._launch.program.instruction(fragment.pc)
            assert ins is not None
            raise fragment.ctx.error_at(
                ExecutionError,
                ins,
                fragment.w0,
                "endless-loop",
                f"{self._idle_steps} steps passed with no effect on memory, barriers or asynchronous work",
                "look for a loop whose condition never changes",
            )

    def _branch(self, fragment: Fragment, step: BranchStep) -> bool:
        """Execute a branch; True if the fragment has stopped."""
        ins = step.ins
        active = fragment.threads
        if ins.guard is None:
            taken = active
        else:
            register, negated = ins.guard
            taken = fragment.ctx.views.lists["pred"][register.slot].reshape(-1, 32)
            taken = (~taken if negated else taken) & active
            if not np.count_nonzero(taken):
                fragment.pc += 1
                return False
        if step.kind == "bra":
            return self._jump(fragment, step, taken)
        if step.kind == "brx":
            return self._jump_indexed(fragment, step, taken)
        if step.kind == "trap":
            row = int(np.flatnonzero(taken.any(axis=1))[0])
            raise fragment.ctx.error_at(
                ExecutionError,
                ins,
                fragment.w0 + row,
                "trap",
                "the kernel trapped",
                "see the condition that leads to the trap",
            )
        return self._leave(fragment, taken)

    def _jump(self, fragment: Fragment, step: BranchStep, taken: NDArray[np.bool_]) -> bool:
        active = fragment.threads
        if taken is active or np.count_nonzero(taken) == np.count_nonzero(active):
            fragment.pc = step.targets[0]
            return False
        if step.simple:
            self._run_both_sides(fragment, step, taken)
            return False
        self._diverge(fragment, step, [(step.targets[0], taken), (fragment.pc + 1, active & ~taken)])
        return True

    def _jump_indexed(self, fragment: Fragment, step: BranchStep, taken: NDArray[np.bool_]) -> bool:
        index = fragment.ctx.u32(step.ins.operands[0])
        if (index[taken] >= len(step.targets)).any():
            raise fragment.ctx.error_at(
                ExecutionError,
                step.ins,
                fragment.w0,
                "branch.index",
                f"index {int(index[taken].max())} into {len(step.targets)} branch targets",
                "check the index before the branch",
            )
        groups: dict[int, NDArray[np.bool_]] = {}
        for number, target in enumerate(step.targets):
            mask = taken & (index == number)
            if mask.any():
                groups[target] = groups[target] | mask if target in groups else mask
        rest = fragment.threads & ~taken
        if rest.any():
            following = fragment.pc + 1
            groups[following] = groups[following] | rest if following in groups else rest
        if len(groups) == 1:
            fragment.pc = next(iter(groups))
            return False
        self._diverge(fragment, step, list(groups.items()))
        return True

    def _leave(self, fragment: Fragment, taken: NDArray[np.bool_]) -> bool:
        """``ret`` or ``exit`` by some of the threads."""
        rest = fragment.threads & ~taken
        if not rest.any():
            self._exit(fragment)
            return True
        if fragment.w1 - fragment.w0 > 1:
            self._split_at(fragment, list(range(fragment.w0, fragment.w1 + 1)))
            return True
        self._count_exits(fragment, taken)
        fragment.restrict(rest)
        fragment.pc += 1
        return False

    def _run_both_sides(self, fragment: Fragment, step: BranchStep, taken: NDArray[np.bool_]) -> None:
        """Execute what lies between a branch and its meeting, each step by the threads that reach it."""
        ctx = fragment.ctx
        active = fragment.threads & ~taken
        arriving = {step.targets[0]: taken}
        for pc in range(fragment.pc + 1, step.meeting):
            joined = arriving.pop(pc, None)
            if joined is not None:
                active = active | joined
            if not np.count_nonzero(active):
                continue
            inner = self._steps[pc]
            self.executed[pc] += int(active.any(axis=1).sum())
            if isinstance(inner, CodeStep):
                inner.some(ctx, active.reshape(-1), active)
            elif isinstance(inner, HandlerStep):
                if ctx.begin(inner.ins, active):
                    inner.handler.run(ctx, inner.ins)
                    if inner.acts:
                        self._launch.progress += 1
            else:
                target = inner.targets[0]
                arriving[target] = arriving[target] | active if target in arriving else active
                active = np.zeros_like(active)
        fragment.pc = step.meeting

    # ---- parting and meeting -------------------------------------------------------------------------

    def _diverge(self, fragment: Fragment, step: BranchStep, groups: list[tuple[int, NDArray[np.bool_]]]) -> None:
        """Send the threads of a fragment to different steps."""
        width = fragment.w1 - fragment.w0
        if width == 1:
            self._part(fragment, step, groups)
            return
        goes = np.full(width, -1)
        for target, mask in groups:
            for row in np.flatnonzero(mask.any(axis=1)).tolist():
                # A warp that goes two ways has to be taken apart on its own.
                goes[row] = target if goes[row] == -1 else -2
        if (goes < 0).any():
            self.executed[fragment.pc] -= width
            self._split_at(fragment, list(range(fragment.w0, fragment.w1 + 1)))
            return
        for part in self._split_at(fragment, _edges(fragment.w0, goes), alone=False):
            part.pc = int(goes[part.w0 - fragment.w0])

    def _part(self, fragment: Fragment, step: BranchStep, groups: list[tuple[int, NDArray[np.bool_]]]) -> None:
        join = Join(fragment, step.meeting)
        children = []
        for target, mask in groups:
            if target == step.meeting:
                join.mask |= mask
            else:
                children.append(
                    Fragment(self._launch, fragment.cta, fragment.w0, fragment.w1, target, mask.copy(), join)
                )
        join.left = len(children)
        self._replace(fragment, children)

    def _arrive(self, child: Fragment, join: Join) -> None:
        join.mask |= child.threads
        self._replace(child, [])
        self._settle(join)

    def _settle(self, join: Join) -> None:
        """One child of a join has arrived or exited."""
        join.left -= 1
        if join.left:
            return
        parent = join.parent
        if join.mask.any():
            parent.restrict(join.mask)
            parent.pc = join.meeting
            fragments = self._fragments[parent.cta]
            fragments.append(parent)
            fragments.sort(key=_position)
        elif parent.join is not None:
            self._settle(parent.join)

    def _exit(self, fragment: Fragment) -> None:
        self._count_exits(fragment, fragment.threads)
        self._replace(fragment, [])
        if fragment.join is not None:
            self._settle(fragment.join)

    def _count_exits(self, fragment: Fragment, threads: NDArray[np.bool_]) -> None:
        cta = fragment.cta
        cta.live[fragment.w0 : fragment.w1] -= threads.sum(axis=1)
        self._launch.progress += 1
        settle_named_barriers(cta)
        settle_cluster_barrier(fragment.ctx)

    def _split_at(self, fragment: Fragment, edges: list[int], *, alone: bool = True) -> list[Fragment]:
        """Take the warps of a fragment apart at `edges` (warps of the CTA, both ends included)."""
        parts = []
        for first, last in itertools.pairwise(edges):
            lanes = fragment.rows(first - fragment.w0, last - fragment.w0)
            part = Fragment(self._launch, fragment.cta, first, last, fragment.pc, lanes)
            if alone:
                part.alone_at = fragment.pc
            parts.append(part)
        self._replace(fragment, parts)
        return parts

    def _replace(self, fragment: Fragment, parts: list[Fragment]) -> None:
        fragments = self._fragments[fragment.cta]
        index = fragments.index(fragment)
        fragments[index : index + 1] = parts


def cta_fragments(launch: Launch, cta: Cta) -> list[Fragment]:
    """All threads of a CTA at the first step; a last warp that is not full stands by itself."""
    whole, rest = divmod(cta.num_threads, 32)
    fragments = []
    if whole:
        fragments.append(Fragment(launch, cta, 0, whole, 0))
    if rest:
        lanes = np.arange(32).reshape(1, 32) < rest
        fragments.append(Fragment(launch, cta, whole, whole + 1, 0, lanes))
    return fragments


def _edges(first: int, groups: NDArray[np.int64]) -> list[int]:
    """Where runs of equal values begin and end, counted from `first`."""
    changes = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    return [first, *(changes + first).tolist(), first + len(groups)]


def _position(fragment: Fragment) -> tuple[int, int]:
    return fragment.w0, fragment.pc
