"""Shared-memory swizzles: an XOR on absolute byte-address bits.

The hardware applies a swizzle to the *absolute* shared-memory address, after the start address and
all offsets of an access have been summed (PTX ISA 5.5.7 and 9.7.16.4.1; the CuTe name is
``Swizzle<bits, to, from - to>``). TMA and the tensor core use the same XOR, so a tile that TMA wrote
at an aligned base is what a matrix descriptor of the same mode reads.

============  =====  ==================================  ==========================
mode          width  address                             pattern repeats every
============  =====  ==================================  ==========================
none          --     ``a``                               16 bytes
32B           32     ``a ^ (((a >> 7) & 1) << 4)``       256 bytes
64B           64     ``a ^ (((a >> 7) & 3) << 4)``       512 bytes
128B          128    ``a ^ (((a >> 7) & 7) << 4)``       1024 bytes
128B, 32B     128    ``a ^ (((a >> 7) & 3) << 5)``       512 bytes (align to 1024)
============  =====  ==================================  ==========================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NONE",
    "SWIZZLE_32B",
    "SWIZZLE_64B",
    "SWIZZLE_128B",
    "SWIZZLE_128B_ATOM_32B",
    "Swizzle",
    "chunk_permutation",
]


@dataclass(frozen=True)
class Swizzle:
    """One swizzle mode.

    Attributes
    ----------
    name
        As the driver API spells it, without the prefix: ``"none"``, ``"32B"``, ...
    bits, target, source
        ``bits`` address bits starting at ``source`` are XORed onto the bits starting at ``target``.
    width
        Bytes of one row of the pattern; 16 without a swizzle.
    alignment
        Bytes to which the start of a tile must be aligned for the pattern to start with it.
    """

    name: str
    bits: int
    target: int
    source: int
    width: int
    alignment: int

    def apply(self, address: int) -> int:
        """Return the byte address at which the byte of linear address `address` lives.

        Parameters
        ----------
        address
            Absolute byte address in the shared window of a CTA.
        """
        return address ^ (((address >> self.source) & ((1 << self.bits) - 1)) << self.target)

    def apply_array(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Like `apply`, for an int64 array of any shape."""
        mask = (1 << self.bits) - 1
        return addresses ^ (((addresses >> self.source) & mask) << self.target)


NONE = Swizzle("none", 0, 4, 7, 16, 16)
SWIZZLE_32B = Swizzle("32B", 1, 4, 7, 32, 256)
SWIZZLE_64B = Swizzle("64B", 2, 4, 7, 64, 512)
SWIZZLE_128B = Swizzle("128B", 3, 4, 7, 128, 1024)
SWIZZLE_128B_ATOM_32B = Swizzle("128B_ATOM_32B", 2, 5, 7, 128, 1024)


@lru_cache(maxsize=4096)
def chunk_permutation(swizzle: Swizzle, start: int, chunks: int) -> NDArray[np.int64]:
    """Where the 16-byte chunks of a linear image land.

    Parameters
    ----------
    swizzle
        The mode; each moves whole 16-byte chunks.
    start
        Byte address of the linear image, a multiple of 16.
    chunks
        Number of 16-byte chunks.

    Returns
    -------
    numpy.ndarray
        int64 (chunks,), the 16-byte chunk index (address / 16) of each chunk. Read-only, cached.
    """
    linear = start + 16 * np.arange(chunks, dtype=np.int64)
    result = swizzle.apply_array(linear) >> 4
    result.setflags(write=False)
    return result
