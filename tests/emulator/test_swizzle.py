"""The XOR patterns, against PTX ISA 5.5.7 and worked addresses."""

from __future__ import annotations

import numpy as np
import pytest

from umma_jit.emulator.swizzle import (
    NONE,
    SWIZZLE_32B,
    SWIZZLE_64B,
    SWIZZLE_128B,
    SWIZZLE_128B_ATOM_32B,
    chunk_permutation,
)

MODES = [NONE, SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B, SWIZZLE_128B_ATOM_32B]


def test_128b_moves_row_5_column_24_of_a_bf16_tile() -> None:
    linear = 0x400 + 5 * 128 + 24 * 2
    assert linear == 0x6B0
    assert SWIZZLE_128B.apply(linear) == 0x6E0


def test_128b_first_two_rows_of_chunks() -> None:
    # Row r of 16-byte chunks is permuted by XOR with r.
    assert [SWIZZLE_128B.apply(128 + 16 * c) // 16 - 8 for c in range(8)] == [1, 0, 3, 2, 5, 4, 7, 6]
    assert [SWIZZLE_128B.apply(256 + 16 * c) // 16 - 16 for c in range(8)] == [2, 3, 0, 1, 6, 7, 4, 5]


def test_64b_changes_every_128_bytes() -> None:
    assert [SWIZZLE_64B.apply(a) for a in (0x00, 0x40, 0x80, 0xC0, 0x100, 0x180)] == [
        0x00,
        0x40,
        0x90,
        0xD0,
        0x120,
        0x1B0,
    ]


def test_32b_swaps_the_halves_of_every_other_128_bytes() -> None:
    assert [SWIZZLE_32B.apply(a) for a in (0x00, 0x10, 0x80, 0x90, 0x100)] == [0x00, 0x10, 0x90, 0x80, 0x100]


def test_atom_32b_moves_32_byte_units() -> None:
    assert [SWIZZLE_128B_ATOM_32B.apply(a) for a in (0x00, 0x80, 0x90, 0x100, 0x180)] == [
        0x00,
        0xA0,
        0xB0,
        0x140,
        0x1E0,
    ]


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_a_pattern_is_its_own_inverse_and_stays_in_its_period(mode) -> None:
    addresses = np.arange(4096, dtype=np.int64)
    once = mode.apply_array(addresses)
    assert (mode.apply_array(once) == addresses).all()
    assert (once // 1024 == addresses // 1024).all()
    assert [mode.apply(int(a)) for a in addresses[:600:7]] == once[:600:7].tolist()


def test_chunks_follow_the_absolute_address() -> None:
    aligned = chunk_permutation(SWIZZLE_128B, 0x400, 16)
    assert aligned[:8].tolist() == [64, 65, 66, 67, 68, 69, 70, 71]
    assert aligned[8:].tolist() == [73, 72, 75, 74, 77, 76, 79, 78]
    assert chunk_permutation(SWIZZLE_128B, 0x480, 8).tolist() == [73, 72, 75, 74, 77, 76, 79, 78]
