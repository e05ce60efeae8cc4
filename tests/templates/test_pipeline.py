"""All blocks together: the attention kernel at head_dim 64, before and after the last rounding of O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from block_kernels import ARCH, BFLOAT16, SCHEDULES
from umma_jit._arrays import view
from umma_jit._attention import prepare
from umma_jit.reference import attention as reference_attention
from umma_jit.runtime.emulated import EmulatedRuntime
from umma_jit.testing import cosine

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT32_COSINE = 0.999998
BFLOAT16_COSINE = 0.999997


def inputs(seqlen_q: int, seqlen_k: int, num_heads: int = 1) -> list[NDArray[Any]]:
    random = np.random.default_rng(64)
    shapes = [(1, length, num_heads, 64) for length in (seqlen_q, seqlen_k, seqlen_k)]
    return [random.standard_normal(shape).astype(BFLOAT16) for shape in shapes]


def attention(arrays: list[NDArray[Any]], out_dtype: str, schedule: str, **options: Any) -> NDArray[Any]:
    """Run the attention kernel under one schedule of the emulator."""
    q, k, v = arrays
    out = np.zeros(q.shape, np.float32 if out_dtype == "float32" else BFLOAT16)
    call = prepare(q, k, v, out=out, **options)
    runtime = EmulatedRuntime(ARCH, schedule=schedule, seed=7, progress=False)
    views = {"q": view(q, "q"), "k": view(k, "k"), "v": view(v, "v"), "out": view(out, "out")}
    runtime.launch(runtime.load(call.image), call.plan, views)
    assert not runtime.last_report.findings
    return out


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_head_dim_64_one_key_tile(schedule: str) -> None:
    arrays = inputs(256, 128)
    expected, _ = reference_attention(*arrays)
    exact = attention(arrays, "float32", schedule)
    rounded = attention(arrays, "bfloat16", schedule)
    assert cosine(exact, expected) >= FLOAT32_COSINE
    assert cosine(rounded, expected) >= BFLOAT16_COSINE
    assert np.array_equal(exact.astype(BFLOAT16), rounded)  # the float32 kernel is the same but for its last step


def test_head_dim_64_several_key_tiles() -> None:
    arrays = inputs(200, 400)
    expected, _ = reference_attention(*arrays)
    assert cosine(attention(arrays, "float32", "program"), expected) >= FLOAT32_COSINE
    assert cosine(attention(arrays, "bfloat16", "program"), expected) >= BFLOAT16_COSINE


def test_head_dim_64_causal() -> None:
    arrays = inputs(256, 256)
    expected, _ = reference_attention(*arrays, causal=True)
    assert cosine(attention(arrays, "float32", "program", causal=True), expected) >= FLOAT32_COSINE
    assert cosine(attention(arrays, "bfloat16", "program", causal=True), expected) >= BFLOAT16_COSINE
