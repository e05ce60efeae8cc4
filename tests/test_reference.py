from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umma_jit.reference import attention
from umma_jit.testing import cosine, dtype_of, make_inputs, poisoned, relative_error


def scalar_loop(q, k, v, causal, scale):
    """The definition, one number at a time."""
    batch_size, seqlen_q, num_heads, head_dim = q.shape
    seqlen_k, num_heads_kv = k.shape[1:3]
    out = np.zeros(q.shape)
    lse = np.full((batch_size, num_heads, seqlen_q), -math.inf)
    for b, h, i in np.ndindex(batch_size, num_heads, seqlen_q):
        g = h // (num_heads // num_heads_kv)
        seen = [j for j in range(seqlen_k) if not causal or j <= i + seqlen_k - seqlen_q]
        if not seen:
            continue
        scores = [scale * sum(float(q[b, i, h, d]) * float(k[b, j, g, d]) for d in range(head_dim)) for j in seen]
        total = sum(math.exp(s) for s in scores)
        lse[b, h, i] = math.log(total)
        for d in range(head_dim):
            out[b, i, h, d] = sum(math.exp(s) * float(v[b, j, g, d]) for s, j in zip(scores, seen, strict=True)) / total
    return out, lse


@given(
    st.integers(1, 2), st.integers(0, 6), st.integers(0, 6), st.sampled_from([(1, 1), (2, 1), (4, 2)]), st.booleans()
)
def test_equals_a_scalar_loop(batch_size, seqlen_q, seqlen_k, heads, causal):
    inputs = make_inputs(
        batch_size=batch_size,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        num_heads=heads[0],
        num_heads_kv=heads[1],
        head_dim=3,
        dtype="float64",
    )
    out, lse = attention(inputs.q, inputs.k, inputs.v, causal=causal, softmax_scale=0.7)
    expected_out, expected_lse = scalar_loop(inputs.q, inputs.k, inputs.v, causal, 0.7)
    assert np.allclose(out, expected_out, rtol=1e-12, atol=1e-12)
    assert np.allclose(lse, expected_lse, rtol=1e-12, atol=1e-12)


def test_long_sequences_are_cut_without_a_seam():
    inputs = make_inputs(seqlen_q=1100, seqlen_k=40, head_dim=8, dtype="float32")
    out, lse = attention(inputs.q, inputs.k, inputs.v, causal=True)
    tail_out, tail_lse = attention(inputs.q[:, 1000:], inputs.k, inputs.v, causal=True)
    assert np.allclose(out[:, 1000:], tail_out)
    assert np.allclose(lse[:, :, 1000:], tail_lse)


def test_rows_without_keys_are_zero_and_minus_infinity():
    inputs = make_inputs(seqlen_q=5, seqlen_k=3, head_dim=8)
    out, lse = attention(inputs.q, inputs.k, inputs.v, causal=True)
    assert not out[:, :2].any()
    assert np.all(lse[..., :2] == -np.inf)
    assert np.isfinite(lse[..., 2:]).all()
    out, lse = attention(inputs.q, inputs.k[:, :0], inputs.v[:, :0])
    assert not out.any()
    assert np.all(lse == -np.inf)


def test_a_nan_in_one_query_stays_in_its_row():
    inputs = make_inputs(seqlen_q=5, seqlen_k=3, head_dim=8, dtype="float32")
    clean, clean_lse = attention(inputs.q, inputs.k, inputs.v)
    inputs.q[0, 2, 0, 1] = np.nan
    out, lse = attention(inputs.q, inputs.k, inputs.v)
    others = np.arange(5) != 2
    assert np.isnan(out[0, 2]).all()
    assert np.isnan(lse[0, 0, 2])
    assert np.array_equal(out[:, others], clean[:, others])
    assert np.array_equal(lse[..., others], clean_lse[..., others])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["k", "v"])
def test_what_a_mask_hides_has_no_effect(where, value):
    inputs = make_inputs(seqlen_q=6, head_dim=8, dtype="float32")
    clean, clean_lse = attention(inputs.q, inputs.k, inputs.v, causal=True)
    getattr(inputs, where)[0, 4, 0, :] = value
    out, lse = attention(inputs.q, inputs.k, inputs.v, causal=True)
    assert np.array_equal(out[:, :4], clean[:, :4])
    assert np.array_equal(lse[..., :4], clean_lse[..., :4])
    assert not np.isfinite(out[:, 4:]).all()


def test_large_scores_do_not_overflow():
    inputs = make_inputs(seqlen_q=4, head_dim=8, dtype="float64")
    out, lse = attention(inputs.q * 1e6, inputs.k, inputs.v)
    assert np.isfinite(out).all()
    assert np.isfinite(lse).all()


def test_measures_by_hand():
    assert relative_error([3.0, 4.0], [3.0, 4.0]) == 0
    assert relative_error([3.0, 4.0], [0.0, 4.0]) == 0.75
    assert relative_error([0.0], [0.0]) == 0
    assert relative_error([1.0], [0.0]) == math.inf
    assert math.isnan(relative_error([math.nan], [1.0]))
    assert math.isnan(relative_error([math.nan], [0.0]))
    assert cosine([1.0, 0.0], [0.0, 1.0]) == 0
    assert cosine([2.0, 2.0], [1.0, 1.0]) == pytest.approx(1)
    assert cosine([0.0], [0.0]) == 1
    assert cosine([1.0], [0.0]) == 0
    assert math.isnan(cosine([math.nan], [1.0]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_poison_is_nan(dtype):
    assert np.isnan(poisoned((2, 3), dtype).astype(np.float64)).all()


def test_inputs_are_the_same_whatever_their_layout():
    a = make_inputs(seqlen_q=3, num_heads=2, seed=5)
    b = make_inputs(seqlen_q=3, num_heads=2, seed=5, layout="bhsd")
    assert np.array_equal(a.q, b.q)
    assert b.q.strides == (2 * 3 * 128, 128, 3 * 128, 2)
    assert a.q.dtype == dtype_of("bfloat16")
    assert not np.array_equal(a.q, make_inputs(seqlen_q=3, num_heads=2, seed=6).q)
