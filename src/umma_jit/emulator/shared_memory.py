"""Shared memory of one CTA: bytes, what is initialised, live mbarriers, and who touched what.

Addresses are 32-bit: the rank of the CTA in its cluster in bits 24 and up, the offset below. Offsets start
at `BASE`, since the hardware reserves the first kilobyte of every block. Matrix descriptors hold 18 bits of
the offset, so the rank never reaches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from umma_jit.emulator.errors import MemoryFault
from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.shadow import Conflict, Shadow, Where

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umma_jit.emulator.clocks import Clock, Clocks
    from umma_jit.emulator.context import Context
    from umma_jit.emulator.mbarrier import Mbarrier

__all__ = ["BASE", "RANK_SHIFT", "Reporter", "SharedMemory", "SharedMemoryMisuse"]

BASE = 1024
"""First usable offset: CUDA reserves 1 KB of shared memory per block from compute capability 9.0 on."""
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
_POISON = 0xFF  # a NaN in every floating-point type, -1 in every integer type
_WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


class SharedMemoryMisuse(Misuse):
    """An access outside shared memory or off its alignment."""


class Finder(Protocol):
    """Whoever takes findings: a handler's context, or the site of an operation in flight."""

    def finding(self, *, rule: str, message: str, remedy: str, severity: str = "error") -> None:
        """Record one finding."""


class Reporter(Finder, Protocol):
    """A `Finder` that knows the instruction of an asynchronous operation."""

    @property
    def line(self) -> int:
        """PTX line."""


class SharedMemory:
    """Shared memory of one CTA.

    Parameters
    ----------
    rank
        Rank of the CTA in its cluster.
    size
        Bytes that the CTA asked for, static and dynamic.
    clocks
        Clocks of the cluster.

    Attributes
    ----------
    data
        uint8 (BASE + size rounded up to 16), indexed by offset; poisoned until written.
    initialised
        bool, one per 4-byte word.
    barriers
        Live mbarriers by offset.
    peers
        Shared memories of the cluster by rank; `connect` sets them.
    """

    def __init__(self, rank: int, size: int, clocks: Clocks) -> None:
        self.rank = rank
        self.end = BASE + size
        self.clocks = clocks
        self.data = np.full(-(-self.end // 16) * 16, _POISON, np.uint8)
        words = self.data.size // 4
        self.initialised = np.zeros(words, bool)
        self.barriers: dict[int, Mbarrier] = {}
        self.shadow = Shadow(words)
        self.peers: list[SharedMemory] = [self]
        self._barrier_words = np.zeros(words, bool)
        self._views = {n: self.data.view(kind) for n, kind in _WORDS.items()}

    def connect(self, peers: list[SharedMemory]) -> None:
        """Make the shared memories of the cluster known, in order of rank."""
        self.peers = peers

    def locate(self, address: int, nbytes: int, alignment: int, what: str) -> tuple[SharedMemory, int]:
        """The memory and offset of a 32-bit shared::cluster address.

        Raises
        ------
        SharedMemoryMisuse
            No such CTA, outside its memory, or misaligned; names `what`.
        """
        rank, offset = address >> RANK_SHIFT, address & OFFSET_MASK
        if rank >= len(self.peers):
            raise SharedMemoryMisuse(
                "shared.no-such-cta",
                f"{what} at {address:#x} names CTA {rank} of a cluster of {len(self.peers)}",
                "map addresses of other CTAs with mapa, within the cluster",
            )
        memory = self.peers[rank]
        if offset < BASE or offset + nbytes > memory.end:
            raise SharedMemoryMisuse(
                "shared.out-of-bounds",
                f"{what} of {nbytes} bytes at {address:#x} leaves the shared memory of its CTA "
                f"({BASE:#x} to {memory.end - 1:#x})",
                "check the offset, and the shared memory given at launch",
            )
        if offset % alignment:
            raise SharedMemoryMisuse(
                "shared.misaligned",
                f"{what} at {address:#x} must be {alignment}-byte aligned",
                f"declare the buffer with __align__({alignment}) and round dynamic addresses up",
            )
        return memory, offset

    def bytes_at(self, offset: int, size: int) -> NDArray[np.uint8]:
        """A view of `size` bytes from `offset` on."""
        return self.data[offset : offset + size]

    # -- generic proxy ---------------------------------------------------------------------------------

    def load(
        self,
        ctx: Context,
        addresses: NDArray[Any],
        nbytes: int,
        mask: NDArray[np.bool_] | None = None,
        *,
        strong: bool = False,
    ) -> NDArray[np.uint8]:
        """Load `nbytes` bytes per lane.

        Parameters
        ----------
        ctx
            The executing warps.
        addresses
            Unsigned (W, 32), 32-bit shared::cluster addresses.
        nbytes
            1, 2, 4, 8 or 16; addresses are multiples of it.
        mask
            bool (W, 32) of active lanes, None for all.
        strong
            Volatile, relaxed, acquire and atomic accesses: not part of a data race.

        Returns
        -------
        numpy.ndarray
            uint8 (W, 32, nbytes); inactive lanes hold anything.

        Raises
        ------
        MemoryFault
            Out of bounds or misaligned.
        """
        result: NDArray[np.uint8] | None = None
        for memory, offsets, part in self._split(ctx, addresses, nbytes, mask, "load"):
            loaded = memory._views[nbytes][offsets // nbytes][..., None].view(np.uint8)
            words = memory._words_of(offsets, nbytes)
            memory._check_initialised(ctx, words, part)
            memory._generic_access(ctx, words, part, writes=False, strong=strong or nbytes < 4)
            if result is None:
                result = loaded
            else:
                result[part] = loaded[part]
        if result is None:
            result = np.zeros((*addresses.shape, nbytes), np.uint8)
        return result

    def store(
        self,
        ctx: Context,
        addresses: NDArray[Any],
        values: NDArray[np.uint8],
        mask: NDArray[np.bool_] | None = None,
        *,
        strong: bool = False,
    ) -> None:
        """Store uint8 (W, 32, nbytes) `values`; parameters as for `load`."""
        nbytes = values.shape[-1]
        for memory, offsets, part in self._split(ctx, addresses, nbytes, mask, "store"):
            words = memory._words_of(offsets, nbytes)
            memory._generic_access(ctx, words, part, writes=True, strong=strong or nbytes < 4, values=values)
            data = np.ascontiguousarray(values).view(_WORDS[nbytes])[..., 0]
            view = memory._views[nbytes]
            if part is None:
                view[offsets // nbytes] = data
                memory.initialised[words] = True
            else:
                view[offsets[part] // nbytes] = data[part]
                memory.initialised[words[part]] = True

    def _split(
        self, ctx: Context, addresses: NDArray[Any], nbytes: int, mask: NDArray[np.bool_] | None, what: str
    ) -> list[tuple[SharedMemory, NDArray[np.int64], NDArray[np.bool_] | None]]:
        """(memory, offsets, active lanes there) for each CTA touched, all of it checked."""
        where = addresses.astype(np.int64)
        if mask is not None:
            if not mask.any():
                return []
            where = np.where(mask, where, where[mask][0])
        ranks = where >> RANK_SHIFT
        first = int(ranks.flat[0])
        uniform = bool((ranks == first).all())
        out: list[tuple[SharedMemory, NDArray[np.int64], NDArray[np.bool_] | None]] = []
        for rank in [first] if uniform else np.unique(ranks).tolist():
            part = mask if uniform else (ranks == rank) & (True if mask is None else mask)
            here = where if uniform else np.where(ranks == rank, where, where[ranks == rank][0])
            if rank >= len(self.peers):
                self._refuse(ctx, int(here.flat[0]), nbytes, what)
            memory = self.peers[rank]
            offsets = here & OFFSET_MASK
            if (
                int(offsets.min()) < BASE
                or int(offsets.max()) + nbytes > memory.end
                or (nbytes > 1 and (offsets & (nbytes - 1)).any())
            ):
                bad = (offsets < BASE) | (offsets + nbytes > memory.end) | (offsets % nbytes != 0)
                self._refuse(ctx, int(here[bad][0]), nbytes, what)
            out.append((memory, offsets, part))
        return out

    def _refuse(self, ctx: Context, address: int, nbytes: int, what: str) -> None:
        """Raise `MemoryFault` for an access that `locate` refuses."""
        try:
            self.locate(address, nbytes, nbytes, what)
        except SharedMemoryMisuse as misuse:
            raise ctx.error_at(MemoryFault, ctx.ins, ctx.w0, misuse.rule, str(misuse), misuse.remedy) from misuse

    @staticmethod
    def _words_of(offsets: NDArray[np.int64], nbytes: int) -> NDArray[np.int64]:
        """Word indices touched, (W, 32, words per lane)."""
        words = offsets[..., None] >> 2
        return words if nbytes <= 4 else words + np.arange(nbytes // 4)

    def _check_initialised(self, ctx: Context, words: NDArray[np.int64], mask: NDArray[np.bool_] | None) -> None:
        known = self.initialised[words]
        if known.all():
            return
        missing = ~known if mask is None else ~known & mask[..., None]
        if missing.any():
            offset = int(words[missing][0]) * 4
            ctx.finding(
                rule="shared.uninitialised",
                message=f"load of shared memory at {self._address(offset):#x} that was never written",
                remedy="write it first, or wait for the copy that does",
            )

    def _generic_access(
        self,
        ctx: Context,
        words: NDArray[np.int64],
        mask: NDArray[np.bool_] | None,
        *,
        writes: bool,
        strong: bool,
        values: NDArray[np.uint8] | None = None,
    ) -> None:
        """Race checks and marks of a load, or of a store of `values`, by whole warps."""
        if self.barriers and self._barrier_words[words].any():
            self._check_barrier_overlap(ctx, words, mask, writes)
        shadow, clocks = self.shadow, self.clocks
        clocks.touch(clocks.warp(ctx.cta.rank, ctx.w0), mask, words.shape[0])
        if strong:
            if writes:  # nothing can be said about it later
                touched = words if mask is None else words[mask]
                shadow.write_epoch[touched] = 0
            return
        agents = clocks.warp(ctx.cta.rank, ctx.w0) + np.arange(words.shape[0])
        rows = np.arange(words.shape[0])[:, None, None]
        order = clocks.order[agents]
        active = None if mask is None else mask[..., None]
        self._check_order(ctx, words, active, order, rows, "write", values)
        if writes:
            self._check_order(ctx, words, active, order, rows, "read", values)
        epochs = clocks.order[agents, agents]
        line = ctx.ins.line
        if mask is None:
            where, who, when = words, agents[:, None, None], epochs[:, None, None]
        else:
            where = words[mask]
            shape = np.broadcast_shapes(words.shape, (len(agents), 1, 1))
            who = np.broadcast_to(agents[:, None, None], shape)[mask]
            when = np.broadcast_to(epochs[:, None, None], shape)[mask]
        if writes:
            shadow.write_agent[where] = who
            shadow.write_epoch[where] = when
            shadow.write_line[where] = line
            shadow.read_epoch[where] = 0
        else:
            shadow.read_agent[where] = who
            shadow.read_epoch[where] = when
            shadow.read_line[where] = line

    def _check_order(
        self,
        ctx: Context,
        words: NDArray[np.int64],
        active: NDArray[np.bool_] | None,
        order: NDArray[np.int32],
        rows: NDArray[np.intp],
        kind: str,
        values: NDArray[np.uint8] | None,
    ) -> None:
        shadow = self.shadow
        agents, epochs, lines = (
            (shadow.write_agent, shadow.write_epoch, shadow.write_line)
            if kind == "write"
            else (shadow.read_agent, shadow.read_epoch, shadow.read_line)
        )
        bad = order[rows, agents[words]] < epochs[words]
        if active is not None:
            bad &= active
        if not bad.any():
            return
        granule = int(words[bad][0])
        conflict = Conflict(granule, int(agents[granule]), int(epochs[granule]), int(lines[granule]), kind)
        # Two warps may store the same value to one word on purpose; that order does not matter then.
        stored = values is not None and kind == "write" and self.clocks.generic[conflict.agent]
        benign = stored and self._holds_already(words, bad, values)
        what = "load of" if values is None else "store to"
        self._report_race(ctx, conflict, what, "warning" if benign else "error")

    def _holds_already(
        self, words: NDArray[np.int64], bad: NDArray[np.bool_], values: NDArray[np.uint8] | None
    ) -> bool:
        """Whether the words of a store that race hold what it stores."""
        assert values is not None
        new = np.ascontiguousarray(values).view(np.uint32)
        return bool((self._views[4][words] == new)[bad].all())

    def _check_barrier_overlap(
        self, ctx: Context, words: NDArray[np.int64], mask: NDArray[np.bool_] | None, writes: bool
    ) -> None:
        hit = self._barrier_words[words]
        if mask is not None:
            hit = hit & mask[..., None]
        if hit.any():
            offset = int(words[hit][0]) * 4
            ctx.finding(
                rule="mbarrier.overlap",
                message=f"{'store over' if writes else 'load of'} the mbarrier at {self._address(offset & ~7):#x}",
                remedy="use mbarrier instructions only; mbarrier.inval before reusing the memory",
                severity="error" if writes else "warning",
            )

    # -- asynchronous operations -----------------------------------------------------------------------

    def guard_read(
        self,
        reporter: Reporter,
        where: Where,
        agent: int,
        epoch: int,
        order: Clock,
        proxy: Clock | None,
        what: str,
    ) -> None:
        """Check and enter a read by an asynchronous operation, at its issue.

        Parameters
        ----------
        reporter
            The issuing instruction.
        where
            Word indices: a slice or an int64 array.
        agent, epoch
            What to enter.
        order, proxy
            Clocks that earlier writes are held against; no proxy clock for a generic-proxy read.
        what
            Names the access in a finding.
        """
        conflict = self.shadow.unordered_write(where, order)
        if conflict is not None:
            self._report_race(reporter, conflict, what)
        elif proxy is not None:
            conflict = self.shadow.unfenced_write(where, proxy, self.clocks.generic)
            if conflict is not None:
                self._report_missing_fence(reporter, conflict, what)
        self.shadow.mark_read(where, agent, epoch, reporter.line)

    def guard_write(self, reporter: Reporter, where: Where, agent: int, epoch: int, order: Clock, what: str) -> None:
        """Check and enter a write by an asynchronous operation, at its issue; see `guard_read`."""
        conflict = self.shadow.unordered_read(where, order) or self.shadow.unordered_write(where, order)
        if conflict is not None:
            self._report_race(reporter, conflict, what)
        if self.barriers and self._barrier_words[where].any():
            reporter.finding(
                rule="mbarrier.overlap",
                message=f"{what} overwrites a live mbarrier",
                remedy="check the destination; mbarrier.inval before reusing the memory",
            )
        self.shadow.mark_write(where, agent, epoch, reporter.line)

    def missing_words(self, where: Where) -> int | None:
        """Address of the first word in `where` never written, None if there is none."""
        known = self.initialised[where]
        if known.all():
            return None
        position = int(np.flatnonzero(~known.reshape(-1))[0])
        if isinstance(where, slice):
            return self._address((where.start + position) * 4)
        return self._address(int(where.reshape(-1)[position]) * 4)

    # -- mbarriers -------------------------------------------------------------------------------------

    def add_barrier(self, offset: int, barrier: Mbarrier) -> None:
        """Make the 8 bytes at `offset` a live mbarrier."""
        self.barriers[offset] = barrier
        words = slice(offset >> 2, (offset >> 2) + 2)
        self._barrier_words[words] = True
        self.initialised[words] = True
        self.shadow.write_epoch[words] = 0
        self.shadow.read_epoch[words] = 0

    def remove_barrier(self, offset: int) -> None:
        """Invalidate the mbarrier at `offset`."""
        del self.barriers[offset]
        self._barrier_words[offset >> 2 : (offset >> 2) + 2] = False

    # -- findings --------------------------------------------------------------------------------------

    def _address(self, offset: int) -> int:
        return self.rank << RANK_SHIFT | offset

    def _report_race(self, reporter: Finder, conflict: Conflict, what: str, severity: str = "error") -> None:
        verb = "wrote" if conflict.kind == "write" else "reads"
        reporter.finding(
            rule="shared.race",
            message=f"{what} shared memory at {self._address(conflict.granule * 4):#x}, which "
            f"{self.clocks.describe(conflict.agent)} {verb} at PTX line {conflict.line} and nothing orders the two",
            remedy="put a barrier, an mbarrier hand-over or a wait for the copy between them",
            severity=severity,
        )

    def _report_missing_fence(self, reporter: Finder, conflict: Conflict, what: str) -> None:
        reporter.finding(
            rule="proxy-fence.missing",
            message=f"{what} shared memory at {self._address(conflict.granule * 4):#x} through the async proxy; "
            f"{self.clocks.describe(conflict.agent)} wrote it through the generic proxy at PTX line {conflict.line} "
            "and no fence.proxy.async lies between",
            remedy="execute fence.proxy.async.shared::cta in each writing thread before the barrier that the "
            "reader waits for",
        )
