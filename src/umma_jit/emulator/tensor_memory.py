"""Tensor memory: 128 lanes by 512 columns of 32 bits, and its allocator (PTX ISA 9.7.16.1, 9.7.16.2).

A tensor-memory address holds the lane in bits 31-16 and the column in bits 15-0. Words are kept column by
column, ``words[column, lane]``: a register of a ``32x32b`` access is then one contiguous run, and the
accumulator of an MMA is the transpose of what a matrix product of the operands' rows yields.

Rules carry the names of the trap classes that the vendor's checking build puts into a cubin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.misuse import Misuse
from umma_jit.emulator.shadow import Shadow

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "HALVES",
    "LANES",
    "AccumulatorPiece",
    "TensorMemory",
    "TensorMemoryMisuse",
    "accumulator_pieces",
    "fragment_cells",
    "granules",
    "half_lanes",
]

LANES = 128
COLUMNS = 512
HALVES = 8
"""Granules per column for the hazard checks: 16 lanes each, since two M = 64 accumulators may share columns."""
_POISON = 0xFFFFFFFF  # a NaN as float32, bfloat16 and float16 alike


class TensorMemoryMisuse(Misuse):
    """An access or allocation that the hardware's checks would trap."""


class TensorMemory:
    """The tensor memory that one CTA sees.

    Attributes
    ----------
    words
        uint32 (512, 128): ``words[column, lane]``; poisoned until written.
    written
        bool (512, 128): which words hold a value.
    shadow
        Granule ``column * 8 + lane // 16``.
    relinquished
        The CTA gave up the right to allocate.
    """

    def __init__(self) -> None:
        self.words = np.full((COLUMNS, LANES), _POISON, np.uint32)
        self.written = np.zeros((COLUMNS, LANES), bool)
        self.shadow = Shadow(COLUMNS * HALVES)
        self.relinquished = False
        self.cta_group: str | None = None
        """The ``.cta_group`` that the kernel's tcgen05 instructions use; None before the first."""
        self.allocations: dict[int, int] = {}
        """Base column -> number of columns."""
        self._owned = np.zeros(COLUMNS, bool)

    def allocate(self, columns: int) -> int | None:
        """Reserve `columns` columns.

        Returns
        -------
        int or None
            Address of the first (lane 0), None if there is no room now.

        Raises
        ------
        TensorMemoryMisuse
            Not a power of two from 32 to 512, or after relinquishing the permit.
        """
        if not 32 <= columns <= COLUMNS or columns & (columns - 1):
            raise TensorMemoryMisuse(
                "allocation_granularity_invalid",
                f"tcgen05.alloc of {columns} columns",
                "allocate a power of two from 32 to 512 columns",
            )
        if self.relinquished:
            raise TensorMemoryMisuse(
                "phase_invalid_during_alloc",
                "tcgen05.alloc after tcgen05.relinquish_alloc_permit",
                "make all allocations first",
            )
        for base in range(0, COLUMNS - columns + 1, 32):
            if not self._owned[base : base + columns].any():
                self._owned[base : base + columns] = True
                self.allocations[base] = columns
                self.words[base : base + columns] = _POISON
                self.written[base : base + columns] = False
                return base
        return None

    def has_room(self, columns: int) -> bool:
        """True if `allocate` would succeed now."""
        return any(not self._owned[base : base + columns].any() for base in range(0, COLUMNS - columns + 1, 32))

    def deallocate(self, address: int, columns: int) -> None:
        """Free what `allocate` returned.

        Raises
        ------
        TensorMemoryMisuse
            The address or the size is not that of an allocation.
        """
        if self.allocations.get(address) == columns:
            del self.allocations[address]
            self._owned[address : address + columns] = False
            return
        known = ", ".join(f"{base:#x} ({size} columns)" for base, size in self.allocations.items()) or "none"
        column = address & 0xFFFF
        rule = "unallocated_columns_being_dealloced"
        if column + columns <= COLUMNS and self._owned[column : column + columns].all():
            rule = "col_being_dealloced_not_returned_by_alloc"
        raise TensorMemoryMisuse(
            rule,
            f"tcgen05.dealloc of {columns} columns at {address:#x}; allocated: {known}",
            "free exactly the address and the size of an allocation, once",
        )

    def check_columns(self, first: int, count: int, what: str) -> None:
        """Require columns `first` to `first + count - 1` to exist and to be allocated.

        Raises
        ------
        TensorMemoryMisuse
            Naming `what`, the access.
        """
        if first + count > COLUMNS:
            raise TensorMemoryMisuse(
                "access_out_of_physical_bounds",
                f"{what} covers columns {first} to {first + count - 1}; the last is {COLUMNS - 1}",
                "check the column of the address (bits 15-0) and the size of the access",
            )
        if not self._owned[first : first + count].all():
            missing = first + int(np.flatnonzero(~self._owned[first : first + count])[0])
            known = ", ".join(f"{b} to {b + n - 1}" for b, n in self.allocations.items()) or "none"
            raise TensorMemoryMisuse(
                "unallocated_columns_access",
                f"{what} touches column {missing}, which is not allocated (allocated columns: {known})",
                "allocate enough columns, and take the base from where tcgen05.alloc wrote it",
            )


@lru_cache(maxsize=256)
def fragment_cells(shape: str, count: int, half_split: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Which cell each register of a ``tcgen05.ld``/``st`` fragment is.

    Parameters
    ----------
    shape
        ``"32x32b"``, ``"16x64b"``, ``"16x128b"``, ``"16x256b"`` or ``"16x32bx2"``.
    count
        The ``.x`` multiplier.
    half_split
        Column distance of the second half of ``16x32bx2``.

    Returns
    -------
    lanes, columns : numpy.ndarray
        intp (registers, 32), relative to the address: cell of register j in thread t.
    spanned : int
        Columns spanned.
    """
    per_unit = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}[shape]
    j, t = np.meshgrid(np.arange(per_unit * count), np.arange(32), indexing="ij")
    if shape == "32x32b":
        lanes, columns = t, j
    elif shape == "16x64b":
        lanes, columns = t // 4 + 8 * (t % 2), (t // 2) % 2 + 2 * j
    elif shape == "16x128b":
        lanes, columns = t // 4 + 8 * (j % 2), t % 4 + 4 * (j // 2)
    elif shape == "16x256b":
        lanes, columns = t // 4 + 8 * ((j // 2) % 2), 2 * (t % 4) + j % 2 + 8 * (j // 4)
    else:
        lanes, columns = t % 16, j + (t // 16) * half_split
    return lanes.astype(np.intp), columns.astype(np.intp), int(columns.max()) + 1


@dataclass(frozen=True, eq=False)
class AccumulatorPiece:
    """A rectangle of the accumulator that lies together in tensor memory.

    Attributes
    ----------
    cta
        0, or 1 for the odd CTA of a pair.
    rows
        Slice of M.
    columns
        Slice of N; the piece starts at column `offset` relative to the D address.
    lanes
        Lanes of `rows`, relative to lane 0: a slice or an index array.
    offset
        See `columns`.
    """

    cta: int
    rows: slice
    columns: slice
    lanes: slice | NDArray[np.intp]
    offset: int


@lru_cache(maxsize=256)
def accumulator_pieces(
    m: int, n: int, cta_group: int, warp_specialised: bool, lane: int
) -> tuple[AccumulatorPiece, ...]:
    """Where the M x N accumulator lies: layouts A, B, D, E, F and G of PTX ISA 9.7.16.10.5.

    Parameters
    ----------
    m, n
        Shape over the CTA or CTA pair.
    cta_group
        1 or 2.
    warp_specialised
        The ``.ws`` form.
    lane
        Lane of the D address: 0, or 16 for the second half of an M = 64 layout.
    """
    every = slice(0, n)
    if cta_group == 2 and m == 256:
        return tuple(AccumulatorPiece(c, slice(128 * c, 128 * c + 128), every, slice(0, 128), 0) for c in (0, 1))
    if cta_group == 2:
        half = n // 2
        return tuple(
            AccumulatorPiece(
                c,
                slice(64 * c, 64 * c + 64),
                slice(h * half, h * half + half),
                slice(64 * h, 64 * h + 64),
                0,
            )
            for c in (0, 1)
            for h in (0, 1)
        )
    if m == 128:
        return (AccumulatorPiece(0, slice(0, 128), every, slice(0, 128), 0),)
    if not warp_specialised:
        return (AccumulatorPiece(0, slice(0, 64), every, half_lanes(lane), 0),)
    parts = 128 // m
    width = n // parts
    return tuple(
        AccumulatorPiece(0, slice(0, m), slice(p * width, p * width + width), slice(p * m, p * m + m), 0)
        for p in range(parts)
    )


@lru_cache(maxsize=2)
def half_lanes(lane: int) -> NDArray[np.intp]:
    """Lanes of the 64 rows of an M = 64 operand or accumulator: 16 in each slab, from `lane` (0 or 16)."""
    rows = np.arange(64)
    return (32 * (rows // 16) + rows % 16 + lane).astype(np.intp)


@lru_cache(maxsize=4096)
def granules(first: int, count: int, halves: tuple[int, ...]) -> NDArray[np.int64]:
    """Shadow granules of columns `first` to `first + count - 1` in the 16-lane groups `halves`."""
    columns = first + np.arange(count, dtype=np.int64)
    result = (columns[:, None] * HALVES + np.array(halves, np.int64)).reshape(-1)
    result.setflags(write=False)
    return result
