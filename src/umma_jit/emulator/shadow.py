"""Who touched each granule of a memory last: the store behind race, proxy and initialisation checks.

Granules are 4 bytes of shared memory or one 32-bit column of one 32-lane slab of tensor memory. Each keeps
its last writer and its last reader as (agent, epoch, PTX line). Keeping one reader instead of all can miss
a write-after-read race with an earlier reader; it cannot report one that is not there.

Asynchronous operations are entered when they are issued, not when the schedule completes them: what the
checks find depends on the synchronisation only, not on the schedule that happened to be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from umma_jit.emulator.clocks import Clock

__all__ = ["Conflict", "Shadow"]

Scalar = int | NDArray[Any]
"""One value, or one that broadcasts to the granules."""
Where = slice | NDArray[np.int64]


@dataclass(frozen=True)
class Conflict:
    """An earlier access that is not ordered before the present one.

    Attributes
    ----------
    granule
        Index of the first granule concerned.
    agent, epoch
        The earlier access.
    line
        PTX line of the earlier access.
    kind
        ``"write"`` or ``"read"``: what the earlier access was.
    """

    granule: int
    agent: int
    epoch: int
    line: int
    kind: str


class Shadow:
    """Last writer and last reader of `granules` granules."""

    def __init__(self, granules: int) -> None:
        self.write_agent = np.zeros(granules, np.int16)
        self.write_epoch = np.zeros(granules, np.int32)
        self.write_line = np.zeros(granules, np.int32)
        self.read_agent = np.zeros(granules, np.int16)
        self.read_epoch = np.zeros(granules, np.int32)
        self.read_line = np.zeros(granules, np.int32)

    def unordered_write(self, where: Where, clock: Clock, *, last: int = -1) -> Conflict | None:
        """The first earlier write in `where` that `clock` (int32 (agents,)) does not cover, if any.

        Writes of agent `last` are named only if there are no others.
        """
        agents = self.write_agent[where]
        bad = clock[agents] < self.write_epoch[where]
        others = bad & (agents != last)
        bad = others if np.count_nonzero(others) else bad
        return self._conflict(where, bad, "write") if np.count_nonzero(bad) else None

    def unordered_read(self, where: Where, clock: Clock) -> Conflict | None:
        """The first earlier read in `where` that `clock` does not cover, if any."""
        agents = self.read_agent[where]
        bad = clock[agents] < self.read_epoch[where]
        return self._conflict(where, bad, "read") if np.count_nonzero(bad) else None

    def any_unordered(self, where: NDArray[np.int64], clocks: NDArray[np.int32], *, reads: bool) -> bool:
        """Whether any earlier write (or read, with `reads`) is not covered.

        Parameters
        ----------
        where
            Granules, int64 (n, k).
        clocks
            int32 (n, agents): the clock that row i of `where` is held against.
        reads
            Look at earlier reads too.
        """
        rows = np.arange(len(where))[:, None]
        if (clocks[rows, self.write_agent[where]] < self.write_epoch[where]).any():
            return True
        return reads and bool((clocks[rows, self.read_agent[where]] < self.read_epoch[where]).any())

    def unfenced_write(self, where: Where, proxy: Clock, generic: NDArray[np.bool_]) -> Conflict | None:
        """The first earlier generic-proxy write that has not passed a proxy fence, if any.

        Parameters
        ----------
        where
            Granules about to be read by the async proxy.
        proxy
            Proxy clock of the reader, int32 (agents,).
        generic
            bool (agents,): agents that write through the generic proxy.
        """
        agents = self.write_agent[where]
        bad = (proxy[agents] < self.write_epoch[where]) & generic[agents]
        return self._conflict(where, bad, "write") if np.count_nonzero(bad) else None

    def mark_write(self, where: Where, agent: Scalar, epoch: Scalar, line: int) -> None:
        """Enter a write; it replaces the readers, which it was checked against."""
        self.write_agent[where] = agent
        self.write_epoch[where] = epoch
        self.write_line[where] = line
        self.read_epoch[where] = 0

    def mark_read(self, where: Where, agent: Scalar, epoch: Scalar, line: int) -> None:
        """Enter a read."""
        self.read_agent[where] = agent
        self.read_epoch[where] = epoch
        self.read_line[where] = line

    def forget(self, where: Where) -> None:
        """Drop all that is known: the granules change owner."""
        self.write_epoch[where] = 0
        self.read_epoch[where] = 0

    def _conflict(self, where: Where, bad: NDArray[np.bool_], kind: str) -> Conflict:
        position = int(np.flatnonzero(bad.reshape(-1))[0])
        granule = (
            where.start + position * (where.step or 1) if isinstance(where, slice) else int(where.reshape(-1)[position])
        )
        if kind == "write":
            agent, epoch, line = self.write_agent, self.write_epoch, self.write_line
        else:
            agent, epoch, line = self.read_agent, self.read_epoch, self.read_line
        return Conflict(granule, int(agent[granule]), int(epoch[granule]), int(line[granule]), kind)
