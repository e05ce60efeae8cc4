"""Vector clocks: which accesses are ordered by synchronisation, whatever order they happened to run in.

Agents are the things that act on their own: every warp of a cluster, the asynchronous part of each warp's
tensor-memory loads and stores, each CTA's tensor-core queue, and a pool of slots for copies in flight.
Each agent counts epochs. Clock ``c`` of agent ``x`` knows epoch ``c[a]`` of agent ``a`` if everything that
``a`` did up to that epoch is ordered before what ``x`` does next.

A second clock per agent, ``proxy <= order``, holds what has also passed a proxy fence: a generic-proxy
write is visible to the async proxy only if the proxy clock covers it. ``fence.proxy.async`` raises the
proxy clock to the order clock, so it counts on the writer's side before the synchronisation as well as on
the reader's side after it.

Clocks are warp-granular: what one lane acquires counts for its whole warp. That can hide a race between
lanes; it never invents one. Releases are finer: a lane hands over what other lanes of its warp did only if the
warp has synchronised since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["COPY_SLOTS", "Clocks", "Flight", "Token"]

COPY_SLOTS = 96
"""Copies in flight that are told apart; beyond it, waiting for one also orders an older one."""

Clock = NDArray[np.int32]
ALL_LANES = 0xFFFFFFFF
_REMEMBERED = 8


@dataclass(frozen=True, eq=False)
class Token:
    """What a release hands over: int32 (agents,) order and proxy clocks, never written again."""

    order: Clock
    proxy: Clock

    def join(self, other: Token) -> Token:
        """The union of both."""
        return Token(np.maximum(self.order, other.order), np.maximum(self.proxy, other.proxy))


@dataclass(frozen=True, eq=False)
class Flight:
    """One asynchronous copy under way: its agent, its epoch there, and what its completion releases."""

    agent: int
    epoch: int
    token: Token


class Clocks:
    """All clocks of one cluster.

    Parameters
    ----------
    ctas
        Number of CTAs in the cluster.
    warps
        Warps per CTA.

    Attributes
    ----------
    order, proxy
        int32 (agents, agents): row ``x`` is the clock of agent ``x``.
    """

    def __init__(self, ctas: int, warps: int) -> None:
        self.ctas = ctas
        self.warps = warps
        per_kind = ctas * warps
        self._load = per_kind
        self._store = 2 * per_kind
        self._matrix = 3 * per_kind
        self._queue = 4 * per_kind
        self._slots = self._queue + ctas
        self.agents = self._slots + COPY_SLOTS
        self.order = np.zeros((self.agents, self.agents), np.int32)
        self.proxy = np.zeros((self.agents, self.agents), np.int32)
        # Epochs start at 1 so that 0 in a shadow means "never accessed".
        np.fill_diagonal(self.order, 1)
        self._next_slot = 0
        # Since each warp last synchronised: (lanes, epoch) of its accesses, one for each change of lanes.
        self._accesses: list[list[tuple[int, int]]] = [[] for _ in range(per_kind)]
        self.generic = np.arange(self.agents) < per_kind
        """bool (agents,): agents that write shared memory through the generic proxy."""

    def warp(self, cta: int, warp: int) -> int:
        """Agent of a warp: `cta` is the rank in the cluster, `warp` the index in the CTA."""
        return cta * self.warps + warp

    def tensor_load(self, cta: int, warp: int) -> int:
        """Agent of a warp's tcgen05.ld in flight."""
        return self._load + self.warp(cta, warp)

    def tensor_store(self, cta: int, warp: int) -> int:
        """Agent of a warp's tcgen05.st in flight."""
        return self._store + self.warp(cta, warp)

    def matrix(self, cta: int, warp: int) -> int:
        """Agent of a warp's wgmma in flight."""
        return self._matrix + self.warp(cta, warp)

    def queue(self, cta: int) -> int:
        """Agent of the tensor-core queue (mma, cp, shift) of a CTA, or of the pair it leads."""
        return self._queue + cta

    def warp_of(self, agent: int) -> int:
        """The agent of the warp whose load, store or wgmma `agent` stands for."""
        return agent % (self.ctas * self.warps)

    def describe(self, agent: int) -> str:
        """Name an agent for a message."""
        kind = self.kind(agent)
        if kind == "copy":
            return "an asynchronous copy"
        if kind == "queue":
            return f"the tensor core of CTA {agent - self._queue}"
        cta, warp = divmod(self.warp_of(agent), self.warps)
        what = {"warp": "", "load": "tcgen05.ld of ", "store": "tcgen05.st of ", "matrix": "wgmma of "}[kind]
        return f"{what}warp {warp} of CTA {cta}"

    def kind(self, agent: int) -> str:
        """``"warp"``, ``"load"``, ``"store"``, ``"matrix"``, ``"queue"`` or ``"copy"``."""
        if agent >= self._slots:
            return "copy"
        if agent >= self._queue:
            return "queue"
        return ("warp", "load", "store", "matrix")[agent // (self.ctas * self.warps)]

    def start_copy(self, issuer: int, *, generic: bool = False) -> Flight:
        """Begin one asynchronous copy issued by agent `issuer`.

        Parameters
        ----------
        issuer
            Agent whose order the copy starts from.
        generic
            The copy writes through the generic proxy (cp.async), not the async proxy.

        Returns
        -------
        Flight
            The slot taken, its epoch, and the token that its completion hands over.
        """
        slot = self._slots + self._next_slot
        self._next_slot = (self._next_slot + 1) % COPY_SLOTS
        epoch = int(self.order[slot, slot]) + 1
        self.order[slot] = self.order[issuer]
        self.proxy[slot] = self.proxy[issuer]
        self.order[slot, slot] = epoch
        self.proxy[slot, slot] = 0 if generic else epoch
        self.generic[slot] = generic
        self.order[issuer, issuer] += 1
        return Flight(slot, epoch, Token(self.order[slot].copy(), self.proxy[slot].copy()))

    def release(self, agent: int, lanes: int = ALL_LANES) -> Token:
        """Hand over everything that `agent` did so far; what it does next is not covered.

        If only some `lanes` of a warp release, what other lanes did since the warp last synchronised is not handed
        over, unless an access by none but the releasing lanes came after it: epochs are in sequence.
        """
        token = Token(self.order[agent].copy(), self.proxy[agent].copy())
        if lanes != ALL_LANES:
            epoch = self._handed_over(agent, lanes)
            if epoch is not None:
                token.order[agent] = epoch
                token.proxy[agent] = min(token.proxy[agent], epoch)
        self.order[agent, agent] += 1
        return token

    def _handed_over(self, agent: int, lanes: int) -> int | None:
        """The last epoch that `lanes` can hand over; None if that is all."""
        accesses = self._accesses[agent]
        following = None
        for mask, epoch in reversed(accesses):
            if not mask & ~lanes:
                return None if following is None else following - 1
            following = epoch
        return None if following is None else following - 1

    def touch(self, first: int, lanes: NDArray[np.bool_] | None, warps: int) -> None:
        """Note that lanes, bool (warps, 32) or None for all, of the warps from agent `first` on access memory."""
        if lanes is None:
            masks = [ALL_LANES] * warps
        else:
            masks = np.packbits(lanes, axis=1, bitorder="little").view("<u4")[:, 0].tolist()
        for agent, mask in enumerate(masks, first):
            accesses = self._accesses[agent]
            if mask and not (accesses and accesses[-1][0] == mask):
                self.order[agent, agent] += 1
                accesses.append((mask, int(self.order[agent, agent])))
                del accesses[:-_REMEMBERED]

    def sync_warp(self, agent: int) -> None:
        """All lanes of a warp synchronise: each is ordered after what the others did."""
        self._accesses[agent].clear()

    def acquire(self, agent: int, token: Token | None) -> None:
        """Take over what `token` covers."""
        if token is not None:
            np.maximum(self.order[agent], token.order, out=self.order[agent])
            np.maximum(self.proxy[agent], token.proxy, out=self.proxy[agent])

    def follow(self, agent: int, other: int) -> None:
        """Start the next asynchronous work of `agent` after everything that `other` did so far."""
        epoch = self.order[agent, agent]
        np.maximum(self.order[agent], self.order[other], out=self.order[agent])
        np.maximum(self.proxy[agent], self.proxy[other], out=self.proxy[agent])
        self.order[agent, agent] = epoch
        self.order[other, other] += 1

    def barrier(self, agents: Iterable[int]) -> None:
        """Every agent releases to and acquires from every other."""
        members = np.fromiter(agents, np.intp)
        if members.size < 2:
            return
        order = self.order[members].max(axis=0)
        proxy = self.proxy[members].max(axis=0)
        self.order[members] = order
        self.proxy[members] = proxy
        self.order[members, members] += 1

    def proxy_fence(self, agent: int) -> None:
        """``fence.proxy.async``: all that `agent` is ordered after becomes visible to the async proxy."""
        np.maximum(self.proxy[agent], self.order[agent], out=self.proxy[agent])
        self.order[agent, agent] += 1
