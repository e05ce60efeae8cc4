"""P·V with P in tensor memory, and the mistake that turns its address into a shared-memory descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from block_kernels import (
    BFLOAT16,
    FLOAT16,
    ROWS,
    SCHEDULES,
    PvConfig,
    Tile,
    build,
    run,
    two_in_a_word,
)
from umma_jit.emulator import EmulatorError
from umma_jit.testing import cosine

if TYPE_CHECKING:
    from numpy.typing import NDArray

COSINE = 0.99999


def operands(head_dim: int, dtype: np.dtype) -> tuple[NDArray, NDArray]:
    """Return P (128, 128) in float64, rows that sum to 1, and V (128, head_dim)."""
    random = np.random.default_rng(head_dim)
    p = np.exp(random.standard_normal((ROWS, ROWS)))
    return p / p.sum(axis=1, keepdims=True), random.standard_normal((ROWS, head_dim)).astype(dtype)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_128_rows(head_dim: int, dtype: np.dtype, schedule: str) -> None:
    p, v = operands(head_dim, dtype)
    rounded = p.astype(dtype)
    out = np.full((ROWS, head_dim), np.nan, np.float32)
    config = PvConfig(head_dim=head_dim, dtype=dtype.name)
    run(config, [Tile(v), two_in_a_word(rounded), out], schedule, operand_bytes=v.nbytes, seed=9)
    values = v.astype(np.float64)
    assert cosine(out, p @ values) >= COSINE
    # of which the product itself costs nearly nothing: it is P's rounding that shows above
    assert cosine(out, rounded.astype(np.float64) @ values) >= 1 - 1e-9


def test_a_widened_address_is_diagnosed() -> None:
    """An unbracketed 64-bit operand is legal PTX, but it is the form with both operands in shared memory."""
    config = PvConfig(head_dim=64, widen_address=True)
    cubin, ptx = build(config)
    assert cubin.payload  # the assembler sees nothing wrong
    assert "tcgen05.mma.cta_group::1.kind::f16 [%r" in ptx.payload.decode()
    p, v = operands(64, BFLOAT16)
    out = np.zeros((ROWS, 64), np.float32)
    with pytest.raises(EmulatorError) as caught:
        run(config, [Tile(v), two_in_a_word(p.astype(BFLOAT16)), out], "program", operand_bytes=v.nbytes)
    message = str(caught.value)
    assert "tensor-memory address" in message
    assert "shared-memory descriptor" in message
    assert "brackets" in message or "bracketed" in message
