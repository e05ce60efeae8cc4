"""Q·K^T alone: exact at one K-step, and as good as float32 gets at 4, 8 and 16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from block_kernels import (
    BFLOAT16,
    FLOAT16,
    ROWS,
    SCHEDULES,
    BlockConfig,
    QkConfig,
    SeparateBuffersConfig,
    Tile,
    run,
)
from umma_jit.testing import cosine

if TYPE_CHECKING:
    from numpy.typing import NDArray

COSINE = 0.999999


def operands(head_dim: int, dtype: np.dtype, seed: int, *, exact: bool = False) -> tuple[NDArray, NDArray]:
    """Return Q and K; `exact` ones are small integers, whose sums of products float32 holds without rounding."""
    random = np.random.default_rng(seed)
    shape = (2, ROWS, head_dim)
    values = random.integers(-8, 9, shape) if exact else random.standard_normal(shape)
    q, k = values.astype(np.float32).astype(dtype)
    return q, k


def scores(config: BlockConfig, q: NDArray, k: NDArray, schedule: str, seed: int = 0) -> NDArray[np.float32]:
    out = np.full((ROWS, ROWS), np.nan, np.float32)
    if isinstance(config, QkConfig):
        inputs = [Tile(array, config.box_columns, config.swizzle) for array in (q, k)]
    else:
        inputs = [q, k]
    run(config, [*inputs, out], schedule, operand_bytes=q.nbytes + k.nbytes, seed=seed)
    return out


def scalar_row(q: NDArray, k: NDArray) -> list[np.float32]:
    """Row 0 by a loop over float32 scalars, one product after the other."""
    row = []
    for key in range(ROWS):
        total = np.float32(0)
        for column in range(q.shape[1]):
            total += np.float32(q[0, column]) * np.float32(k[key, column])
        row.append(total)
    return row


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=str)
def test_head_dim_16_equals_a_scalar_loop(dtype: np.dtype, schedule: str) -> None:
    q, k = operands(16, dtype, seed=1, exact=True)
    out = scores(QkConfig(head_dim=16, dtype=dtype.name), q, k, schedule)
    assert np.abs(out[0] - np.array(scalar_row(q, k))).max() == 0.0
    assert np.array_equal(out, q.astype(np.float64) @ k.astype(np.float64).T)


def test_head_dim_16_with_random_data() -> None:
    q, k = operands(16, BFLOAT16, seed=2)
    out = scores(QkConfig(head_dim=16), q, k, "program")
    # one rounding per product: a different order of the sums is all that may differ
    assert np.abs(out[0] - np.array(scalar_row(q, k))).max() <= 16 * np.spacing(np.abs(out[0]).max())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_k_steps_by_offsets_of_one_descriptor(head_dim: int, schedule: str) -> None:
    q, k = operands(head_dim, BFLOAT16, seed=head_dim)
    out = scores(QkConfig(head_dim=head_dim), q, k, schedule, seed=3)
    assert cosine(out, q.astype(np.float64) @ k.astype(np.float64).T) >= COSINE


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_k_steps_in_buffers_of_their_own(head_dim: int, schedule: str) -> None:
    q, k = operands(head_dim, BFLOAT16, seed=head_dim)
    out = scores(SeparateBuffersConfig(head_dim=head_dim), q, k, schedule, seed=3)
    assert cosine(out, q.astype(np.float64) @ k.astype(np.float64).T) >= COSINE


def test_both_ways_give_the_same_bits() -> None:
    q, k = operands(128, FLOAT16, seed=5)
    by_offset = scores(QkConfig(head_dim=128, dtype="float16"), q, k, "program")
    by_copy = scores(SeparateBuffersConfig(head_dim=128, dtype="float16"), q, k, "program")
    assert np.array_equal(by_offset, by_copy)
