"""What the scheduler moves: warps of a CTA that are at one place of the program together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.context import Context, all_lanes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.isa.registry import Wait
    from umma_jit.emulator.launch import Cta, Launch

__all__ = ["Fragment", "Join"]


class Join:
    """Where the children of a diverged warp meet again.

    Attributes
    ----------
    parent
        The fragment that goes on from there.
    meeting
        The step at which they meet: the branch's immediate post-dominator.
    mask
        bool (1, 32): lanes that have arrived.
    left
        Children still under way.
    """

    __slots__ = ("left", "mask", "meeting", "parent")

    def __init__(self, parent: Fragment, meeting: int) -> None:
        self.parent = parent
        self.meeting = meeting
        self.mask = np.zeros((1, 32), bool)
        self.left = 0


class Fragment:
    """Warps w0 to w1-1 of a CTA at one step.

    Attributes
    ----------
    lanes
        bool (warps, 32) of the threads in it, None for all of them; with lanes missing it is never merged.
    pc
        The step it executes next.
    join
        Where it meets its siblings if it is a part of a diverged warp.
    wait
        What it waits for, None if it can run.
    polled
        The launch's progress when it last found nothing to do, None if it did something.
    alone_at
        Step at which it must not be merged, since its warps were taken apart there.
    """

    __slots__ = ("alone_at", "cta", "ctx", "flat", "join", "lanes", "pc", "polled", "w0", "w1", "wait")

    def __init__(
        self,
        launch: Launch,
        cta: Cta,
        w0: int,
        w1: int,
        pc: int,
        lanes: NDArray[np.bool_] | None = None,
        join: Join | None = None,
    ) -> None:
        self.cta = cta
        self.w0 = w0
        self.w1 = w1
        self.pc = pc
        self.join = join
        self.wait: Wait | None = None
        self.polled: int | None = None
        self.alone_at = -1
        self.ctx = Context(launch, cta, w0, w1)
        self.lanes: NDArray[np.bool_] | None = None
        self.flat: NDArray[np.bool_] | None = None
        self.restrict(lanes)

    def restrict(self, lanes: NDArray[np.bool_] | None) -> None:
        """Set which threads are in it."""
        if lanes is not None and lanes.all():
            lanes = None
        self.lanes = lanes
        self.flat = None if lanes is None else lanes.reshape(-1)

    @property
    def threads(self) -> NDArray[np.bool_]:
        """Bool (warps, 32): the threads in it; not to be written to."""
        return all_lanes(self.w1 - self.w0) if self.lanes is None else self.lanes

    def rows(self, first: int, last: int) -> NDArray[np.bool_] | None:
        """`lanes` of warps `first` to ``last - 1``, counted from `w0`."""
        return None if self.lanes is None else self.lanes[first:last]

    def can_merge(self, other: Fragment) -> bool:
        """Whether `other`, ready to run as well, can be executed together with this one."""
        return (
            self.w1 == other.w0
            and self.pc == other.pc
            and self.lanes is None
            and other.lanes is None
            and self.join is None
            and other.join is None
            and self.alone_at != self.pc
            and other.alone_at != other.pc
        )

    def __repr__(self) -> str:
        return f"Fragment(CTA {self.cta.ctaid}, warps {self.w0} to {self.w1 - 1}, step {self.pc})"
