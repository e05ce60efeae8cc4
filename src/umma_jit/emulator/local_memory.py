"""Local memory: the bytes that each thread has to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.registers import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LocalMemory", "LocalMemoryMisuse"]

_POISON = 0xFD


class LocalMemoryMisuse(Misuse):
    """An access outside the thread's local memory, or misaligned."""


class LocalMemory:
    """Local memory of one CTA.

    Parameters
    ----------
    warps
        Warps of the CTA.
    size
        Bytes per thread.
    """

    def __init__(self, warps: int, size: int) -> None:
        self.size = size
        self._data = np.full((warps, LANES, size), _POISON, np.uint8)

    def load(
        self, w0: int, w1: int, addresses: NDArray[np.uint64], nbytes: int, mask: NDArray[np.bool_]
    ) -> NDArray[np.uint8]:
        """Bytes (W, 32, nbytes) at `addresses`, uint64 (W, 32), of warps `w0` to ``w1 - 1``."""
        return np.take_along_axis(self._data[w0:w1], self._indices(addresses, nbytes, mask), axis=2)

    def store(
        self, w0: int, w1: int, addresses: NDArray[np.uint64], data: NDArray[Any], mask: NDArray[np.bool_]
    ) -> None:
        """Store `data`, uint8 (W, 32, nbytes), where `mask`."""
        indices = self._indices(addresses, data.shape[2], mask)
        kept = np.take_along_axis(self._data[w0:w1], indices, axis=2)
        np.put_along_axis(self._data[w0:w1], indices, np.where(mask[..., None], data, kept), axis=2)

    def _indices(self, addresses: NDArray[np.uint64], nbytes: int, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        offsets = addresses.astype(np.int64)
        active = offsets[mask]
        if active.size:
            bad = active[(active < 0) | (active + nbytes > self.size)]
            if bad.size:
                raise LocalMemoryMisuse(
                    "local.out-of-bounds",
                    f"access of {nbytes} bytes at local offset {int(bad[0])} of {self.size} bytes a thread",
                    "check the index into the local array",
                )
            crooked = active[active % nbytes != 0]
            if crooked.size:
                raise LocalMemoryMisuse(
                    "local.misaligned",
                    f"access of {nbytes} bytes at local offset {int(crooked[0])}",
                    f"align it to {nbytes} bytes",
                )
        safe = np.where(mask, offsets, 0)
        indices: NDArray[np.int64] = safe[..., None] + np.arange(nbytes)
        return np.minimum(indices, max(self.size - 1, 0))
