"""Shared-memory matrix descriptors: 64 bits to named fields to the chunks that an MMA reads.

Field positions and canonical layouts: PTX ISA 9.7.16.4.1 and 9.7.16.3 (tcgen05), 9.7.15.5.1 (wgmma).
The two generations differ in the swizzle code (three bits at 61 against two at 62) and in the constant
that tcgen05 wants in bits 46-48.

The read of an operand is planned as an array of 16-byte chunk indices. Every canonical layout keeps 16
consecutive bytes together along its contiguous axis, so one fancy index over chunks brings a whole
operand, whatever its swizzle. Plans are cached: a kernel uses a few dozen of them, again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from umma_jit.emulator.swizzle import (
    NONE,
    SWIZZLE_32B,
    SWIZZLE_64B,
    SWIZZLE_128B,
    SWIZZLE_128B_ATOM_32B,
    Swizzle,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DescriptorProblem", "OperandPlan", "SmemDescriptor", "operand_address", "plan_operand"]

_TCGEN05_SWIZZLES = {0: NONE, 1: SWIZZLE_128B_ATOM_32B, 2: SWIZZLE_128B, 4: SWIZZLE_64B, 6: SWIZZLE_32B}
_WGMMA_SWIZZLES = {0: NONE, 1: SWIZZLE_128B, 2: SWIZZLE_64B, 3: SWIZZLE_32B}
_TCGEN05_CONSTANT = 0b001
K_BYTES = 32
"""Bytes of K that one dense instruction of any kind consumes from each row."""


@dataclass(frozen=True)
class DescriptorProblem:
    """Something wrong with a descriptor.

    Attributes
    ----------
    rule
        Short stable identifier.
    message, remedy
        What is wrong, with the value, and what to do.
    severity
        ``"error"`` if the instruction cannot mean what was intended, else ``"warning"``.
    """

    rule: str
    message: str
    remedy: str
    severity: str = "error"


@dataclass(frozen=True)
class SmemDescriptor:
    """The fields of a matrix descriptor, in bytes.

    Attributes
    ----------
    bits
        The 64-bit value.
    start, leading, stride
        Start address, leading-dimension byte offset (LBO) and stride byte offset (SBO), decoded.
    constant
        Bits 46-48 of a tcgen05 descriptor (must be 0b001); 0 for wgmma.
    base_offset
        Bits 49-51.
    absolute
        Bit 52: the leading-dimension field is an absolute address (sm_103a only).
    swizzle
        The mode, None when the code is not a valid one.
    code
        The swizzle code as written.
    """

    bits: int
    start: int
    leading: int
    stride: int
    constant: int
    base_offset: int
    absolute: bool
    swizzle: Swizzle | None
    code: int

    @classmethod
    @lru_cache(maxsize=4096)
    def decode(cls, bits: int, *, wgmma: bool = False) -> SmemDescriptor:
        """Split `bits`; `wgmma` selects the Hopper codes."""
        code = (bits >> 62) & 3 if wgmma else (bits >> 61) & 7
        table = _WGMMA_SWIZZLES if wgmma else _TCGEN05_SWIZZLES
        return cls(
            bits=bits,
            start=(bits & 0x3FFF) << 4,
            leading=((bits >> 16) & 0x3FFF) << 4,
            stride=((bits >> 32) & 0x3FFF) << 4,
            constant=0 if wgmma else (bits >> 46) & 7,
            base_offset=(bits >> 49) & 7,
            absolute=bool((bits >> 52) & 1) and not wgmma,
            swizzle=table.get(code),
            code=code,
        )

    @staticmethod
    def encode(start: int, leading: int, stride: int, code: int, *, wgmma: bool = False) -> int:
        """Build a descriptor from byte addresses and a swizzle code of the generation."""

        def field(value: int) -> int:
            return (value & 0x3FFFF) >> 4

        bits = field(start) | field(leading) << 16 | field(stride) << 32
        return bits | code << 62 if wgmma else bits | _TCGEN05_CONSTANT << 46 | code << 61

    def problems(self, *, wgmma: bool = False) -> tuple[DescriptorProblem, ...]:
        """Everything that can be said without knowing the operand; errors first."""
        return _problems(self, wgmma)


@lru_cache(maxsize=4096)
def _problems(descriptor: SmemDescriptor, wgmma: bool) -> tuple[DescriptorProblem, ...]:
    found: list[DescriptorProblem] = []
    bits = descriptor.bits
    if not wgmma and _looks_like_tensor_address(bits):
        found.append(
            DescriptorProblem(
                "mma.tmem-address-as-descriptor",
                f"operand {bits:#018x} was taken as a shared-memory descriptor, but its upper half is zero and its "
                "lower half looks like a tensor-memory address: written without brackets, A selects the form "
                "with both operands in shared memory",
                "write A as a bracketed 32-bit register, `[a]`, to take it from tensor memory",
            )
        )
        return tuple(found)
    if descriptor.swizzle is None:
        found.append(
            DescriptorProblem(
                "descriptor.swizzle",
                f"swizzle code {descriptor.code} of descriptor {bits:#018x} is not defined",
                "use 0 (none), 1 (128B with 32B atoms), 2 (128B), 4 (64B) or 6 (32B)"
                if not wgmma
                else "use 0 (none), 1 (128B), 2 (64B) or 3 (32B)",
            )
        )
    if descriptor.base_offset:
        found.append(
            DescriptorProblem(
                "descriptor.base-offset",
                f"base offset {descriptor.base_offset} of descriptor {bits:#018x}: how hardware combines it with the "
                "swizzle is not documented, so it is refused",
                "align the start of the swizzle pattern (1024 bytes for 128B) and leave bits 49-51 zero",
            )
        )
    if descriptor.absolute:
        found.append(
            DescriptorProblem(
                "descriptor.absolute-leading",
                f"descriptor {bits:#018x} has bit 52 set: an absolute leading-dimension address exists on sm_103a only",
                "clear bit 52",
            )
        )
    if not wgmma and bits >> 53 & 0xFF:
        found.append(
            DescriptorProblem(
                "descriptor.reserved",
                f"bits 53-60 of descriptor {bits:#018x} must be zero",
                "check how the descriptor was put together; a carry out of a 64-bit addition is a common cause",
            )
        )
    if bits & 0xC000C000:
        found.append(
            DescriptorProblem(
                "descriptor.reserved",
                f"bits 14-15 and 30-31 of descriptor {bits:#018x} must be zero",
                "mask the encoded address to 14 bits before advancing it",
            )
        )
    if not wgmma and descriptor.constant != _TCGEN05_CONSTANT:
        found.append(
            DescriptorProblem(
                "descriptor.constant",
                f"bits 46-48 of descriptor {bits:#018x} are {descriptor.constant:#05b}, the ISA fixes them to 0b001",
                "set bit 46",
                "warning",
            )
        )
    return tuple(found)


def _looks_like_tensor_address(bits: int) -> bool:
    """A 64-bit value that holds lane << 16 | column and nothing else.

    A descriptor always has bit 46 set and a stride field in its upper half; the upper half of a widened
    tensor-memory address is zero.
    """
    return bits >> 32 == 0 and (bits >> 16) < 128 and (bits & 0xFFFF) < 512


def operand_address(descriptor: SmemDescriptor, mn: int, k: int, element_bytes: int, mn_major: bool) -> int:
    """Byte address of one element of an operand, by the canonical layouts of PTX ISA 9.7.16.3.3.

    Parameters
    ----------
    descriptor
        With a valid swizzle and no base offset.
    mn
        M index of A, N index of B.
    k
        K index inside this one instruction.
    element_bytes
        1, 2 or 4.
    mn_major
        The transpose bit of the instruction descriptor.
    """
    where = _addresses(descriptor, np.array(mn, np.int64), np.array(k, np.int64), element_bytes, mn_major)
    return int(where)


@dataclass(frozen=True, eq=False)
class OperandPlan:
    """How to read an operand of one instruction.

    Attributes
    ----------
    chunks
        int64; 16-byte chunk indices into the CTA's shared memory. K-major: (rows, 2). MN-major:
        (rows / elements per chunk, K).
    mn_major
        As asked for.
    rows, depth
        The operand is (rows, depth) elements.
    element_bytes
        Bytes per element.
    first, last
        Lowest byte address read, and one past the highest.
    words
        int64; 4-byte word indices read, unique and sorted: what the hazard checks look at.
    """

    chunks: NDArray[np.int64]
    mn_major: bool
    rows: int
    depth: int
    element_bytes: int
    first: int
    last: int
    words: NDArray[np.int64]

    def gather(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Read the operand.

        Parameters
        ----------
        memory
            uint8 (bytes,), contiguous, indexed by shared-window address; its length is a multiple of 16.

        Returns
        -------
        numpy.ndarray
            uint8 (rows, depth * element_bytes), row-major with K contiguous.
        """
        chunks = memory.view(np.complex128)[self.chunks]  # the only 16-byte NumPy scalar, used as plain bits
        if not self.mn_major:
            return chunks.view(np.uint8)
        width = 16 // self.element_bytes
        word = {1: np.uint8, 2: np.uint16, 4: np.uint32}[self.element_bytes]
        # (groups, K, width) -> (groups * width, K)
        tile = chunks.view(word).reshape(-1, self.depth, width).transpose(0, 2, 1)
        return np.ascontiguousarray(tile).view(np.uint8).reshape(self.rows, self.depth * self.element_bytes)


@lru_cache(maxsize=8192)
def plan_operand(descriptor: SmemDescriptor, rows: int, element_bytes: int, mn_major: bool) -> OperandPlan:
    """Plan the read of `rows` rows of 32 bytes of K each.

    Parameters
    ----------
    descriptor
        Valid: see `SmemDescriptor.problems`.
    rows
        M of A or N of B, the part that lies in this CTA.
    element_bytes
        1, 2 or 4.
    mn_major
        The transpose bit.

    Returns
    -------
    OperandPlan
        Cached and read-only.
    """
    depth = K_BYTES // element_bytes
    width = 16 // element_bytes
    if mn_major:
        mn, k = np.meshgrid(np.arange(0, rows, width), np.arange(depth), indexing="ij")
    else:
        mn, k = np.meshgrid(np.arange(rows), np.arange(0, depth, width), indexing="ij")
    addresses = _addresses(descriptor, mn.astype(np.int64), k.astype(np.int64), element_bytes, mn_major)
    chunks = np.ascontiguousarray(addresses >> 4)
    unique = np.unique(chunks)
    words = (unique[:, None] * 4 + np.arange(4)).reshape(-1)
    chunks.setflags(write=False)
    words.setflags(write=False)
    first, last = int(unique[0]) * 16, int(unique[-1]) * 16 + 16
    return OperandPlan(chunks, mn_major, rows, depth, element_bytes, first, last, words)


def _addresses(
    descriptor: SmemDescriptor,
    mn: NDArray[np.int64],
    k: NDArray[np.int64],
    element_bytes: int,
    mn_major: bool,
) -> NDArray[np.int64]:
    """`operand_address` over arrays."""
    swizzle = descriptor.swizzle
    assert swizzle is not None
    start, lbo, sbo = descriptor.start, descriptor.leading, descriptor.stride
    if not mn_major:
        kb = k * element_bytes
        if swizzle is NONE:
            return start + (mn % 8) * 16 + (mn // 8) * sbo + (kb // 16) * lbo + kb % 16
        return swizzle.apply_array(start + (mn % 8) * swizzle.width + (mn // 8) * sbo + kb)
    if swizzle is NONE:
        # Without a swizzle SBO steps along MN and LBO along K; with one it is the other way round.
        t = 16 // element_bytes
        return start + (mn % t) * element_bytes + (mn // t) * sbo + (k % 8) * 16 + (k // 8) * lbo
    atom = swizzle.width // element_bytes
    # The mode with 32-byte atoms serves 32-bit types, whose K atom has four rows of 128 bytes.
    rows = 4 if swizzle is SWIZZLE_128B_ATOM_32B else 8
    linear = start + (mn % atom) * element_bytes + (mn // atom) * lbo
    return swizzle.apply_array(linear + (k % rows) * swizzle.width + (k // rows) * sbo)
