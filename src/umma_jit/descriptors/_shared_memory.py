"""Descriptors of a matrix in shared memory: tcgen05's, and Hopper's wgmma's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NoReturn, TypeVar

from ._fields import Bits, DescriptorFieldError, Row, field_table

__all__ = ["SharedMemoryDescriptor", "SwizzleMode", "WgmmaDescriptor"]


class SwizzleMode(Enum):
    """How the 16-byte chunks of a tile are permuted in shared memory.

    The permutation XORs bits of the absolute shared-memory byte address: bits 4 and up with bits 7 and up, one
    bit for 32B, two for 64B, three for 128B (PTX ISA 5.5.7). TMA writes with the same modes, so a tile that TMA
    loaded to an aligned address is read back by a descriptor of the same mode.
    """

    NONE = "none"
    B32 = "32B"
    B64 = "64B"
    B128 = "128B"
    B128_ATOM_32B = "128B with 32B atoms"

    @property
    def alignment(self) -> int:
        """Bytes to which the repeating pattern is aligned when the base offset is 0 (Table 41)."""
        return {"none": 16, "32B": 256, "64B": 512, "128B": 1024, "128B with 32B atoms": 1024}[self.value]


_Matrix = TypeVar("_Matrix", bound="_MatrixDescriptor")

_SHARED_BYTES = 1 << 18  # descriptors hold 18-bit byte addresses, without their low 4 bits
_START = Bits(0, 14)
_LEADING = Bits(16, 14)
_STRIDE = Bits(32, 14)
_CONSTANT = Bits(46, 3)
_BASE_OFFSET = Bits(49, 3)
_ABSOLUTE = Bits(52, 1)
_SWIZZLE = Bits(61, 3)
_WGMMA_SWIZZLE = Bits(62, 2)


@dataclass(frozen=True, kw_only=True)
class _MatrixDescriptor:
    """What the descriptors of both tensor-core generations have in common."""

    start_address: int = 0
    leading_byte_offset: int = 0
    stride_byte_offset: int = 0
    swizzle: SwizzleMode = SwizzleMode.NONE
    base_offset: int = 0

    _swizzle_bits: ClassVar[Bits]
    _swizzle_codes: ClassVar[dict[SwizzleMode, int]]

    def __post_init__(self) -> None:
        for field in ("start_address", "leading_byte_offset", "stride_byte_offset"):
            value = getattr(self, field)
            if not 0 <= value < _SHARED_BYTES or value % 16:
                self._refuse(field, value, f"a multiple of 16 bytes below {_SHARED_BYTES:#x} (18 bits)")
        if self.swizzle not in self._swizzle_codes:
            names = ", ".join(mode.name for mode in self._swizzle_codes)
            self._refuse("swizzle", self.swizzle, f"one of {names}")
        if not 0 <= self.base_offset < 8:
            self._refuse("base_offset", self.base_offset, "0 to 7 (3 bits)")
        if self.base_offset and self.swizzle is SwizzleMode.NONE:
            self._refuse("base_offset", self.base_offset, "0, as there is no pattern without a swizzle")

    def encode(self) -> int:
        """Return the 64-bit value."""
        return (
            _START.put(self.start_address >> 4)
            | _LEADING.put(self.leading_byte_offset >> 4)
            | _STRIDE.put(self.stride_byte_offset >> 4)
            | _BASE_OFFSET.put(self.base_offset)
            | self._swizzle_bits.put(self._swizzle_codes[self.swizzle])
        )

    @property
    def low_word(self) -> int:
        """Bits 0-31: start address and leading offset. Only this half changes when a descriptor advances."""
        return self.encode() & 0xFFFFFFFF

    @property
    def high_word(self) -> int:
        """Bits 32-63: stride byte offset, constants and swizzle; the same for every tile of one layout."""
        return self.encode() >> 32

    def advance(self: _Matrix, nbytes: int) -> _Matrix:
        """Return the same layout, `nbytes` further on.

        Legal in the middle of a swizzled row too: the XOR is applied to the sum of start address and offsets,
        and its selecting bits (7 and up) come from that same sum. With 16-bit elements, K-major and a 128-byte
        swizzle, the next K-step of 16 is 32 bytes on; see ``docs/descriptor-offsets.md``.

        Parameters
        ----------
        nbytes
            A multiple of 16; may be negative.

        Raises
        ------
        DescriptorFieldError
            If the new start address is not a multiple of 16 or leaves the 18 bits.
        """
        return dataclasses.replace(self, start_address=self.start_address + nbytes)

    def summary(self) -> str:
        """One line, for a comment."""
        return (
            f"start {self.start_address:#x}, leading {self.leading_byte_offset} B, "
            f"stride {self.stride_byte_offset} B, swizzle {self.swizzle.value}"
        )

    @classmethod
    def _fields_of(cls, value: int, defined: tuple[Bits, ...]) -> dict[str, int | SwizzleMode]:
        """Return the common fields of `value`, all of whose bits outside `defined` must be 0."""
        name = cls.__name__
        if not 0 <= value < 1 << 64:
            raise DescriptorFieldError(name, "value", value, "an unsigned 64-bit integer")
        reserved = ~sum(field.put((1 << field.width) - 1) for field in defined)
        if value & reserved:
            raise DescriptorFieldError(name, "reserved", value & reserved, "no set bit outside the fields")
        code = cls._swizzle_bits.get(value)
        modes = {number: mode for mode, number in cls._swizzle_codes.items()}
        if code not in modes:
            raise DescriptorFieldError(name, "swizzle", code, f"a code out of {sorted(modes)}")
        return {
            "start_address": _START.get(value) << 4,
            "leading_byte_offset": _LEADING.get(value) << 4,
            "stride_byte_offset": _STRIDE.get(value) << 4,
            "swizzle": modes[code],
            "base_offset": _BASE_OFFSET.get(value),
        }

    def _rows(self) -> list[Row]:
        def address(name: str, bits: Bits, value: int) -> Row:
            return Row(name, bits, value >> 4, f"{value} bytes ({value:#x})")

        return [
            address("start address", _START, self.start_address),
            address("leading byte offset", _LEADING, self.leading_byte_offset),
            address("stride byte offset", _STRIDE, self.stride_byte_offset),
            Row("base offset", _BASE_OFFSET, self.base_offset, f"{self.base_offset * 128} bytes"),
            Row("swizzle", self._swizzle_bits, self._swizzle_codes[self.swizzle], self.swizzle.value),
        ]

    def __str__(self) -> str:
        rows = sorted(self._rows(), key=lambda row: row.bits)
        return field_table(f"{type(self).__name__} {self.encode():#018x}", rows)

    def _refuse(self, field: str, value: object, expected: str) -> NoReturn:
        raise DescriptorFieldError(type(self).__name__, field, value, expected)


@dataclass(frozen=True, kw_only=True)
class SharedMemoryDescriptor(_MatrixDescriptor):
    """The 64-bit shared-memory descriptor of ``tcgen05`` (PTX ISA 9.7.16.4.1, Table 40).

    Attributes
    ----------
    start_address
        Byte address in the ``.shared::cta`` window, 18 bits, a multiple of 16.
    leading_byte_offset
        Bytes, a multiple of 16 (PTX ISA 9.7.16.3.1). K-major without swizzle: to the second 16-byte chunk of
        K. K-major with swizzle: unused. MN-major with swizzle: to the next swizzle-wide group of M or N.
        MN-major without: to the next 8 K.
    stride_byte_offset
        Bytes, a multiple of 16 (PTX ISA 9.7.16.3.2). K-major: to the next 8 rows. MN-major with swizzle: to
        the next 8 K. MN-major without: to the next 16 bytes of M or N.
    swizzle
        The permutation of the tile.
    base_offset
        ``(pattern start >> 7) & 7``; 0 if the pattern starts at a multiple of ``swizzle.alignment``.
    leading_is_absolute
        Bit 52: the leading field is the address of a second buffer. sm_103a only, for the 48-byte K of its
        fp4 instructions, with the 128B swizzle and no base offset (PTX ISA 9.7.16.3.1.2.1).
    """

    leading_is_absolute: bool = False

    _swizzle_bits: ClassVar[Bits] = _SWIZZLE
    _swizzle_codes: ClassVar[dict[SwizzleMode, int]] = {
        SwizzleMode.NONE: 0,
        SwizzleMode.B128_ATOM_32B: 1,
        SwizzleMode.B128: 2,
        SwizzleMode.B64: 4,
        SwizzleMode.B32: 6,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.leading_is_absolute and (self.swizzle is not SwizzleMode.B128 or self.base_offset):
            self._refuse("leading_is_absolute", True, "False unless swizzle is B128 and base_offset is 0")

    def encode(self) -> int:
        """Return the 64-bit value, with the constant 0b001 in bits 46-48."""
        return super().encode() | _CONSTANT.put(0b001) | _ABSOLUTE.put(int(self.leading_is_absolute))

    @classmethod
    def decode(cls, value: int) -> SharedMemoryDescriptor:
        """Return the descriptor that encodes to `value`.

        Raises
        ------
        DescriptorFieldError
            If a reserved bit is set, the constant of bits 46-48 is missing, the swizzle code is 3, 5 or 7, or
            `value` is not 64 bits.
        """
        defined = (_START, _LEADING, _STRIDE, _CONSTANT, _BASE_OFFSET, _ABSOLUTE, _SWIZZLE)
        fields = cls._fields_of(value, defined)
        constant = _CONSTANT.get(value)
        if constant != 0b001:
            raise DescriptorFieldError(cls.__name__, "constant", constant, "0b001 in bits 46-48")
        return cls(**fields, leading_is_absolute=bool(_ABSOLUTE.get(value)))  # type: ignore[arg-type]

    def _rows(self) -> list[Row]:
        mode = "absolute address" if self.leading_is_absolute else "relative offset"
        return [
            *super()._rows(),
            Row("constant", _CONSTANT, 0b001, "fixed"),
            Row("leading mode", _ABSOLUTE, int(self.leading_is_absolute), mode),
        ]


@dataclass(frozen=True, kw_only=True)
class WgmmaDescriptor(_MatrixDescriptor):
    """The 64-bit matrix descriptor of Hopper's ``wgmma`` (PTX ISA 9.7.15.5.1.2.2).

    The fields are those of :class:`SharedMemoryDescriptor` at the same places, without the constant, without
    bit 52 and with a 2-bit swizzle code: 0 none, 1 128B, 2 64B, 3 32B.
    """

    _swizzle_bits: ClassVar[Bits] = _WGMMA_SWIZZLE
    _swizzle_codes: ClassVar[dict[SwizzleMode, int]] = {
        SwizzleMode.NONE: 0,
        SwizzleMode.B128: 1,
        SwizzleMode.B64: 2,
        SwizzleMode.B32: 3,
    }

    @classmethod
    def decode(cls, value: int) -> WgmmaDescriptor:
        """Return the descriptor that encodes to `value`.

        Raises
        ------
        DescriptorFieldError
            If a reserved bit is set or `value` is not 64 bits.
        """
        fields = cls._fields_of(value, (_START, _LEADING, _STRIDE, _BASE_OFFSET, _WGMMA_SWIZZLE))
        return cls(**fields)  # type: ignore[arg-type]
