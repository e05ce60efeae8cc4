"""Right and wrong ways to describe a 64 x 64 operand in shared memory, and what each of them computes.

The cases are those of docs/descriptor-offsets.md. B has 64 rows (columns of D) and 64 columns of K, four K-steps.
A column of D is right if it equals the reference in every row; the data are integers, so that equality is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from block_kernels import BFLOAT16, ROWS, SCHEDULES, DescriptorSetupConfig, Tile, run
from umma_jit.descriptors import SharedMemoryDescriptor, SwizzleMode

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = 64
COLUMNS = 64
CONFIG = DescriptorSetupConfig()


# Where the 16-byte chunk `c` (0 to 7) of row `n` is stored, in bytes from the start of the image.
def row_major(n: int, c: int) -> int:
    return n * 128 + c * 16


def swizzled(n: int, c: int) -> int:
    return row_major(n, c ^ (n % 8))


def swizzled_off_alignment(n: int, c: int) -> int:
    return 512 + swizzled(n, c)


def swizzled_within_k_step(n: int, c: int) -> int:
    return row_major(n, c ^ (n % 2))


def swizzled_before_offset(n: int, c: int) -> int:
    step, half = divmod(c, 2)
    return row_major(n, (half ^ (n % 8)) + 2 * step)  # may run into the next row, which overwrites it


def core_matrices_by_rows(n: int, c: int) -> int:
    return n // 8 * 1024 + c * 128 + n % 8 * 16


def core_matrices_by_chunks(n: int, c: int) -> int:
    return c * KEYS * 16 + n * 16


def narrow_row_major(n: int, c: int) -> int:
    step, half = divmod(c, 2)
    return step * KEYS * 32 + n * 32 + half * 16


def narrow_core_matrices(n: int, c: int) -> int:
    step, half = divmod(c, 2)
    return step * KEYS * 32 + n // 8 * 256 + half * 128 + n % 8 * 16


def every(_: int) -> bool:
    return True


def no(_: int) -> bool:
    return False


def first_of_8(n: int) -> bool:
    return n % 8 == 0


def first_two_of_8(n: int) -> bool:
    return n % 8 < 2


NONE, B32, B128 = SwizzleMode.NONE, SwizzleMode.B32, SwizzleMode.B128


@dataclass(frozen=True)
class Setup:
    name: str
    place: Callable[[int, int], int]
    swizzle: SwizzleMode
    leading: int
    stride: int
    advance: int  # bytes per K-step
    right: Callable[[int], bool]
    start: int = 0


SETUPS = [
    Setup("128B swizzle, +32 bytes", swizzled, B128, 0, 1024, 32, every),
    Setup("core matrices, row groups outside", core_matrices_by_rows, NONE, 128, 1024, 256, every),
    Setup("core matrices, K chunks outside", core_matrices_by_chunks, NONE, 1024, 128, 2048, every),
    Setup("a (64,16) buffer of core matrices for each K-step", narrow_core_matrices, NONE, 128, 256, 2048, every),
    Setup("row-major read as 128B swizzle", row_major, B128, 0, 1024, 32, first_of_8),
    Setup("row-major read as core matrices", row_major, NONE, 16, 1024, 32, first_of_8),
    Setup("only the halves of a K-step swizzled", swizzled_within_k_step, B128, 0, 1024, 32, first_two_of_8),
    Setup("swizzled before the offset is added", swizzled_before_offset, B128, 0, 1024, 32, first_two_of_8),
    Setup("stride of the narrow buffer kept", swizzled, B128, 0, 256, 32, lambda n: n < 8),
    Setup("advance of 16 bytes", swizzled, B128, 0, 1024, 16, no),
    Setup("advance of 64 bytes", swizzled, B128, 0, 1024, 64, no),
    Setup("advance of 256 bytes", swizzled, B128, 0, 1024, 256, no),
    Setup("base off its 1024-byte boundary", swizzled_off_alignment, B128, 0, 1024, 32, no, start=512),
    Setup("core matrices advanced by 32 bytes", core_matrices_by_rows, NONE, 128, 1024, 32, no),
    Setup("(64,16) row-major read as core matrices", narrow_row_major, NONE, 16, 256, 2048, first_of_8),
    Setup("(64,16) row-major read as 32B swizzle", narrow_row_major, B32, 0, 256, 2048, lambda n: n % 8 < 4),
]


def right_columns(setup: Setup, schedule: str) -> list[int]:
    random = np.random.default_rng(11)
    a, b = (random.integers(-8, 9, (rows, COLUMNS)).astype(np.float32).astype(BFLOAT16) for rows in (ROWS, KEYS))
    image = np.zeros(CONFIG.image_bytes, np.uint8)
    chunks = b.view(np.uint8).reshape(KEYS, 8, 16)
    for n in range(KEYS):
        for c in range(8):
            where = setup.place(n, c)
            image[where : where + 16] = chunks[n, c]
    descriptor = SharedMemoryDescriptor(stride_byte_offset=setup.stride, swizzle=setup.swizzle)
    out = np.full((ROWS, KEYS), np.nan, np.float32)
    run(
        CONFIG,
        [
            Tile(a),
            image,
            out,
            np.uint32(descriptor.high_word),
            np.uint32(setup.leading),
            np.uint32(setup.start),
            np.uint32(setup.advance // 16),
        ],
        schedule,
        operand_bytes=a.nbytes + CONFIG.image_bytes,
    )
    reference = a.astype(np.float64) @ b.astype(np.float64).T
    return [n for n in range(KEYS) if np.array_equal(out[:, n], reference[:, n])]


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_which_columns_come_out_right(setup: Setup) -> None:
    assert right_columns(setup, "program") == [n for n in range(KEYS) if setup.right(n)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_right_ways_are_right_under_every_schedule(schedule: str) -> None:
    for setup in SETUPS:
        if setup.right is every:
            assert right_columns(setup, schedule) == list(range(KEYS))
