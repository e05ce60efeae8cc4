"""The mbarrier object: phase, pending arrivals and transaction bytes (PTX ISA 9.7.13.15).

The object is pure state; address decoding, suspension and findings belong to the instruction handlers.
Misuse raises `MbarrierMisuse`, which carries the rule and the remedy without any position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from umma_jit.emulator.misuse import Misuse

if TYPE_CHECKING:
    from umma_jit.emulator.clocks import Token

__all__ = ["MAX_COUNT", "Mbarrier", "MbarrierMisuse", "pack_state", "unpack_state"]

MAX_COUNT = (1 << 20) - 1
"""Largest arrival count and largest absolute tx-count (PTX ISA 9.7.13.15.2)."""


class MbarrierMisuse(Misuse):
    """A use of an mbarrier that the ISA leaves undefined."""


@dataclass
class Mbarrier:
    """One initialised barrier.

    Attributes
    ----------
    count
        Arrivals expected in each phase.
    pending
        Arrivals still missing in the current phase.
    tx
        Transaction bytes expected and not yet complete; negative while completions run ahead.
    phase
        Number of completed phases.
    token
        What an observer of the last completed phase may rely on (see `umma_jit.emulator.clocks`).
    """

    count: int
    pending: int = field(init=False)
    tx: int = field(init=False, default=0)
    phase: int = field(init=False, default=0)
    token: Token | None = field(init=False, default=None)
    _arriving: Token | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_COUNT:
            raise MbarrierMisuse(
                "mbarrier.count",
                f"mbarrier.init with count {self.count}",
                f"the count must be 1 to {MAX_COUNT}",
            )
        self.pending = self.count

    def arrive(self, count: int = 1, token: Token | None = None, *, complete: bool = True) -> None:
        """Arrive `count` times.

        Parameters
        ----------
        count
            Number of arrivals, 1 to `MAX_COUNT`.
        token
            What the arriving agent releases.
        complete
            False for ``.noComplete``, which must not finish the phase.

        Raises
        ------
        MbarrierMisuse
            More arrivals than the phase has room for, or ``.noComplete`` finishing it.
        """
        if not 1 <= count <= MAX_COUNT:
            raise MbarrierMisuse("mbarrier.count", f"arrival count {count}", f"the count must be 1 to {MAX_COUNT}")
        if count > self.pending:
            raise MbarrierMisuse(
                "mbarrier.over-arrival",
                f"{count} arrival(s) at a barrier that expects {self.count} a phase and has {self.pending} left "
                f"in phase {self.phase} (tx-count {self.tx} bytes)",
                "initialise the barrier with the number of arrivals of one phase, or wait for the phase before "
                "arriving again",
            )
        if not complete and count == self.pending and self.tx == 0:
            raise MbarrierMisuse(
                "mbarrier.no-complete",
                ".noComplete arrival finishes the phase",
                "use a plain arrive for the last arrival",
            )
        self.pending -= count
        self._collect(token)
        self._advance()

    def drop(self, count: int = 1, token: Token | None = None, *, complete: bool = True) -> None:
        """Arrive and lower the count of all later phases (``mbarrier.arrive_drop``)."""
        if count > self.count:
            raise MbarrierMisuse(
                "mbarrier.over-arrival",
                f"arrive_drop of {count} from an expected count of {self.count}",
                "drop each participant once",
            )
        self.count -= count
        self.arrive(count, token, complete=complete)

    def expect_tx(self, size: int) -> None:
        """Expect `size` more bytes in the current phase."""
        self.tx += size
        self._check_tx()

    def complete_tx(self, size: int, token: Token | None = None) -> None:
        """Account for `size` bytes that arrived."""
        self.tx -= size
        self._collect(token)
        self._check_tx()
        self._advance()

    def add_pending(self, count: int = 1) -> None:
        """Raise the pending count (``cp.async.mbarrier.arrive`` without ``.noinc``)."""
        self.pending += count

    def complete(self, parity: int) -> bool:
        """True if the phase of `parity` is over: the current phase has the other parity."""
        return (self.phase & 1) != parity

    def _collect(self, token: Token | None) -> None:
        if token is not None:
            self._arriving = token if self._arriving is None else self._arriving.join(token)

    def _check_tx(self) -> None:
        if abs(self.tx) > MAX_COUNT:
            raise MbarrierMisuse(
                "mbarrier.tx-overflow",
                f"tx-count {self.tx} is outside +-{MAX_COUNT}",
                "split the transfer over several barriers or phases",
            )

    def _advance(self) -> None:
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.count
            # Arrivals are read-modify-writes of one location, so a later phase carries the earlier ones.
            self.token = self._arriving


def pack_state(phase: int, pending: int) -> int:
    """The opaque 64-bit state that an arrive returns: own format, bit 63 set as a mark."""
    return 1 << 63 | (phase & 0xFFFFFFFF) << 24 | pending & 0xFFFFF


def unpack_state(state: int) -> tuple[int, int] | None:
    """(phase, pending) of a state, None if `state` is not one."""
    if state >> 63 != 1:
        return None
    return (state >> 24) & 0xFFFFFFFF, state & 0xFFFFF
