"""Asynchronous operations in flight, and when they complete.

An operation is issued with an action; the schedule decides when the action runs. Everything an operation
reads is read by its action, and everything it writes is written by it, so "as late as legal" holds for the
sources too. Operations of one *queue* complete in the order of issue (the tensor core of a CTA); operations
with no queue are unordered.

============  ==================================================================================
schedule      an operation completes
============  ==================================================================================
``eager``     when it is issued
``lazy``      one at a time, only when no thread can run; those that only a group wait can observe last
``random``    at random between instructions, under a seed
``program``   in the order of issue, a fixed number of steps after it, or when no thread can run
============  ==================================================================================
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from umma_jit.emulator.in_flight import InFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from random import Random

__all__ = ["LATENCY", "SCHEDULES", "AsyncEngine", "AsyncOperation"]

SCHEDULES = ("program", "eager", "lazy", "random")
LATENCY = 16
"""Scheduler steps from issue to completion under ``program``: long enough that code which forgets to wait
is overtaken, short enough to keep pipelines moving."""
_RANDOM_RATES = (0.003, 0.3)
"""Least and largest chance per step that ``random`` completes something; each seed has its own."""


@dataclass(eq=False)
class AsyncOperation:
    """One operation in flight.

    Attributes
    ----------
    name
        Opcode, for reports.
    action
        Runs at completion.
    queue
        Operations with the same queue complete in order; None for unordered ones.
    line
        PTX line, for reports.
    observed_by_group
        Only a group wait can observe the completion, so ``lazy`` leaves it to the very end.
    holder
        The cluster whose shared or tensor memory it still reads, writes or signals; None if it no longer needs any.
    done
        Set once the action ran.
    """

    name: str
    action: Callable[[], None]
    queue: Hashable | None = None
    line: int = 0
    observed_by_group: bool = False
    holder: object = None
    done: bool = field(init=False, default=False)
    _due: int = field(init=False, default=0)


class AsyncEngine:
    """All operations in flight of one launch.

    Parameters
    ----------
    schedule
        One of `SCHEDULES`.
    double
        The tensor core accumulates in float64 within an instruction, for comparisons.
    """

    def __init__(self, schedule: str = "program", *, double: bool = False) -> None:
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule {schedule!r}: use one of {', '.join(SCHEDULES)}")
        self.schedule = schedule
        self.completed = 0
        """Operations issued plus operations completed so far; a change means progress."""
        self.in_flight = InFlight()
        self.double = double
        self._pending: deque[AsyncOperation] = deque()
        self._step = 0
        self._completing = False
        self._rate: float | None = None

    @property
    def pending(self) -> bool:
        """True while anything is in flight."""
        return bool(self._pending)

    def issue(self, operation: AsyncOperation) -> AsyncOperation:
        """Put an operation in flight; under ``eager`` it completes before this returns."""
        operation._due = self._step + LATENCY
        self.completed += 1
        self._pending.append(operation)
        if self.schedule == "eager" and not self._completing:
            self._drain()
        return operation

    def tick(self) -> None:
        """One scheduler step: under ``program`` complete what is due."""
        self._step += 1
        if self.schedule == "program":
            while self._pending and self._pending[0]._due <= self._step:
                self._complete(self._pending[0])

    def maybe_complete(self, rng: Random) -> None:
        """One scheduler step under ``random``."""
        if not self._pending:
            return
        if self._rate is None:
            least, largest = _RANDOM_RATES
            self._rate = least * (largest / least) ** rng.random()
        if rng.random() < self._rate:
            self.complete_one(rng)

    def step_before_run(self, rng: Random) -> None:
        """What the schedule wants done between two segments of instructions."""
        if self.schedule == "random":
            self.maybe_complete(rng)
        else:
            self.tick()

    def complete_one(self, rng: Random | None = None, *, groups_first: bool = False) -> bool:
        """Complete one operation; `rng` chooses at random among those that may.

        Parameters
        ----------
        rng
            None for the oldest.
        groups_first
            Of those that only a group wait can observe, since a thread is in such a wait.

        Returns
        -------
        bool
            False if nothing was in flight.
        """
        if not self._pending:
            return False
        if rng is None:
            first = next((op for op in self._pending if op.observed_by_group == groups_first), self._pending[0])
            self._complete(first)
            return True
        heads: list[AsyncOperation] = []
        queues: set[Hashable] = set()
        for operation in self._pending:
            if operation.queue is not None:
                if operation.queue in queues:
                    continue
                queues.add(operation.queue)
            heads.append(operation)
        self._complete(rng.choice(heads))
        return True

    def complete_operation(self, operation: AsyncOperation) -> None:
        """Complete this unordered operation now, because its thread waits for it."""
        if not operation.done:
            self._complete(operation)

    def held_by(self, holder: object) -> list[AsyncOperation]:
        """What is in flight and still needs the memory of `holder`, oldest first."""
        return [operation for operation in self._pending if operation.holder is holder]

    def describe(self) -> list[str]:
        """One line per operation in flight, oldest first."""
        return [f"line {operation.line}: {operation.name}" for operation in self._pending]

    def _drain(self) -> None:
        self._completing = True
        try:
            while self._pending:
                self._complete(self._pending[0])
        finally:
            self._completing = False

    def _complete(self, operation: AsyncOperation) -> None:
        self._pending.remove(operation)
        operation.done = True
        self.completed += 1
        operation.action()
