"""Attention on NumPy arrays: the PTX of the real kernel, run on the emulated device.

With CuPy instead of NumPy the same call runs on a GPU.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from umma_jit import attention, reference
from umma_jit.testing import relative_error

generator = np.random.default_rng(0)
q = generator.standard_normal((1, 128, 4, 64)).astype(ml_dtypes.bfloat16)  # batch, seqlen, heads, head_dim
k, v = generator.standard_normal((2, 1, 200, 2, 64)).astype(ml_dtypes.bfloat16)  # half as many heads: GQA

out, lse = attention(q, k, v, causal=True, return_lse=True)

expected, expected_lse = reference.attention(q, k, v, causal=True)
print(f"out {out.shape} {out.dtype}, relative error against float64 {relative_error(out, expected):.1e}")
print(f"lse {lse.shape} {lse.dtype}, largest error {np.abs(lse - expected_lse).max():.1e}")
