"""The one-way epilogue: O read out of tensor memory, normalised, and stored as 16-bit and as float32 values."""

from __future__ import annotations

import numpy as np
import pytest

from block_kernels import BFLOAT16, FLOAT16, ROWS, SCHEDULES, EpilogueConfig, Tile, run
from umma_jit.testing import cosine

COSINE = 0.999998


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_epilogue(head_dim: int, dtype: np.dtype, schedule: str) -> None:
    random = np.random.default_rng(head_dim)
    accumulator = random.standard_normal((ROWS, head_dim)).astype(np.float32)
    factors = random.uniform(0.1, 1.0, (2, ROWS)).astype(np.float32)
    out = np.zeros((ROWS, head_dim), dtype)
    out32 = np.full((ROWS, head_dim), np.nan, np.float32)
    config = EpilogueConfig(head_dim=head_dim, dtype=dtype.name)
    run(config, [Tile(out), accumulator, factors, out32], schedule, operand_bytes=out.nbytes, seed=5)
    expected = accumulator.astype(np.float64) * factors.astype(np.float64).prod(axis=0)[:, None]
    assert cosine(out, expected) >= COSINE
    assert np.abs(out32 - expected).max() <= 2 * np.spacing(np.abs(out32).max())
    assert np.array_equal(out, out32.astype(dtype))  # the same values, rounded once


@pytest.mark.parametrize("column", [0, 384])
def test_any_columns_of_tensor_memory(column: int) -> None:
    accumulator = np.arange(ROWS * 128, dtype=np.float32).reshape(ROWS, 128)
    out = np.zeros((ROWS, 128), BFLOAT16)
    out32 = np.zeros((ROWS, 128), np.float32)
    config = EpilogueConfig(head_dim=128, output_column=column)
    run(config, [Tile(out), accumulator, np.ones((2, ROWS), np.float32), out32], "program", operand_bytes=out.nbytes)
    assert np.array_equal(out32, accumulator)
