"""Global memory of one emulated device: allocations with guard gaps, poison, bounds and initialisation checks."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from umma_jit.emulator.misuse import Misuse

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GLOBAL_BASE", "DeviceMemory", "GlobalMemoryMisuse"]

GLOBAL_BASE = 0x1000_0000_0000
"""First address: far from the shared and local windows, and not valid as a 32-bit number."""

ALIGNMENT = 256
_GUARD = 256  # bytes between allocations that belong to nobody
_POISON = 0xFB


class GlobalMemoryMisuse(Misuse):
    """An access outside every allocation, or misaligned."""


class DeviceMemory:
    """Global memory.

    Addresses are plain integers, 256-byte aligned. Fresh memory is poisoned and known not to be initialised. Nothing
    is ever freed: make a new `DeviceMemory` instead.

    Attributes
    ----------
    data
        All bytes; address ``GLOBAL_BASE + i`` is ``data[i]``.
    initialised
        One bool per byte.
    """

    def __init__(self) -> None:
        self._end = 0
        self.data: NDArray[np.uint8] = np.zeros(1 << 16, np.uint8)
        self.initialised: NDArray[np.bool_] = np.zeros(1 << 16, bool)
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def allocate(self, size: int) -> int:
        """Reserve poisoned bytes.

        Parameters
        ----------
        size
            Bytes; 0 gives an address at which nothing may be accessed.

        Returns
        -------
        int
            A 256-byte aligned address.
        """
        if size < 0:
            raise ValueError(f"allocate({size}): a size cannot be negative")
        start = -(-(self._end + _GUARD) // ALIGNMENT) * ALIGNMENT
        self._end = start + size
        if self._end > self.data.size:
            room = max(self._end, 2 * self.data.size)
            data = np.zeros(room, np.uint8)
            data[: self.data.size] = self.data
            known = np.zeros(room, bool)
            known[: self.initialised.size] = self.initialised
            self.data, self.initialised = data, known
        self.data[start : self._end] = _POISON
        self._starts.append(start)
        self._sizes.append(size)
        return GLOBAL_BASE + start

    def upload(self, array: NDArray[Any]) -> int:
        """Copy an array's bytes in, in C order.

        Returns
        -------
        int
            Its device address.
        """
        raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        address = self.allocate(raw.size)
        self.write(address, raw)
        return address

    def download(self, address: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Copy an array out.

        Raises
        ------
        GlobalMemoryMisuse
            The bytes are not all in one allocation.
        """
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        result: NDArray[Any] = self.read(address, size).view(kind).reshape(shape)
        return result

    def read(self, address: int, size: int) -> NDArray[np.uint8]:
        """A copy of `size` bytes; raises as `span`."""
        result: NDArray[np.uint8] = self.span(address, size).copy()
        return result

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Store bytes; raises as `span`."""
        self.span(address, data.size, write=True)[...] = data

    def span(self, address: int, size: int, *, write: bool = False) -> NDArray[np.uint8]:
        """The bytes themselves, uint8 (size,); `write` marks them as initialised.

        Raises
        ------
        GlobalMemoryMisuse
            They are not all in one allocation.
        """
        start = address - GLOBAL_BASE
        if size:
            self._check(start, size)
        if write:
            self.initialised[start : start + size] = True
        return self.data[start : start + size]

    def is_initialised(self, address: int, size: int) -> bool:
        """Whether all of a span was written or uploaded."""
        start = address - GLOBAL_BASE
        return bool(self.initialised[start : start + size].all())

    def offsets(
        self, addresses: NDArray[np.uint64], nbytes: int, mask: NDArray[np.bool_], what: str
    ) -> NDArray[np.int64]:
        """Indices into `data` for accesses of `nbytes` each, where `mask`; elsewhere those of an active one.

        Raises
        ------
        GlobalMemoryMisuse
            Names the first address outside every allocation, or not a multiple of `nbytes`.
        """
        offsets = addresses.astype(np.int64) - GLOBAL_BASE
        active = offsets[mask]
        if active.size == 0:
            return np.zeros_like(offsets)
        starts = np.asarray(self._starts, np.int64)
        sizes = np.asarray(self._sizes, np.int64)
        index = np.searchsorted(starts, active, "right") - 1
        inside = index >= 0
        inside &= active + nbytes <= (starts + sizes)[index] if starts.size else False
        if not inside.all():
            self._check(int(active[~inside][0]), nbytes, what)
        if nbytes > 1 and (active & (nbytes - 1)).any():
            bad = int(active[(active & (nbytes - 1)) != 0][0]) + GLOBAL_BASE
            raise GlobalMemoryMisuse(
                "global.misaligned",
                f"{what} of {nbytes} bytes at {bad:#x}, which is no multiple of {nbytes}",
                f"align the address to {nbytes} bytes, or use a narrower access",
            )
        return np.where(mask, offsets, active[0])

    def _check(self, start: int, size: int, what: str = "access") -> None:
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and start + size <= self._starts[index] + self._sizes[index]:
            return
        address = start + GLOBAL_BASE
        near = "no memory has been allocated"
        if self._starts:
            index = max(index, 0)
            first = GLOBAL_BASE + self._starts[index]
            distance = address + size - first - self._sizes[index]
            near = f"the nearest allocation below is {first:#x} to {first + self._sizes[index] - 1:#x}"
            if 0 < distance <= 1 << 20:
                near += f", passed by {distance} bytes"
        raise GlobalMemoryMisuse(
            "global.out-of-bounds",
            f"{what} of {size} bytes at {address:#x} is outside every allocation ({near})",
            "check the index against the array's extent, and the pointer's and strides' units",
        )
