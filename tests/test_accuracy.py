"""`attention` end to end: the kernels' own PTX on the emulated device, against float64."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import matrix
from umma_jit import attention, reference
from umma_jit.testing import cosine, make_inputs, poisoned, relative_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIMITS = {"bfloat16": 3.2e-3, "float16": 4.5e-4}


def _sample(count: int) -> list[Any]:
    """A spread of the matrix: every head_dim, dtype, mask, seqlen and ratio occurs."""
    cases = matrix.all_cases(seed=int(time.time()))  # fresh inputs; a failure shows the case with its seed
    return cases[:: len(cases) // count | 1]


def _name(case: Any) -> str:
    return "-".join(str(value) for name, value in vars(case).items() if name != "seed")


@pytest.mark.parametrize("case", _sample(48), ids=_name)
def test_matrix_sample(case: Any) -> None:
    outcome = matrix.run_case(case, random_count=2)
    assert not outcome.problems, "\n".join(outcome.problems)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_twenty_random_schedules(head_dim: int) -> None:
    outcome = matrix.run_case(matrix.Case(head_dim, "bfloat16", True, 129, 300, 1, seed=head_dim))
    assert not outcome.problems, "\n".join(outcome.problems)


def test_the_matrix_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    case = matrix.Case(64, "bfloat16", False, 17, 17, 1, seed=1)
    monkeypatch.setattr(matrix, "reference_attention", lambda **call: reference.attention(**{**call, "causal": True}))
    problems = matrix.run_case(case, random_count=0).problems
    assert any("relative error" in problem for problem in problems)
    assert any("LSE" in problem for problem in problems)


def check(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], **options: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Run with a poisoned output and hold it against float64."""
    out = poisoned(q.shape, q.dtype)
    _, lse = attention(q, k, v, out=out, return_lse=True, **options)
    expected, expected_lse = reference.attention(q, k, v, **options)
    assert relative_error(out, expected) <= LIMITS[q.dtype.name]
    blank = np.isneginf(expected_lse)
    assert np.array_equal(np.isneginf(lse), blank)
    assert np.abs(lse[~blank] - expected_lse[~blank]).max(initial=0) <= 1e-4
    return out, lse


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_batches_heads_and_layouts(dtype: str) -> None:
    for layout in ("bshd", "bhsd"):
        inputs = make_inputs(
            batch_size=3,
            seqlen_q=70,
            seqlen_k=190,
            num_heads=6,
            num_heads_kv=2,
            head_dim=64,
            dtype=dtype,
            layout=layout,
        )
        check(inputs.q, inputs.k, inputs.v, causal=True)


def test_views_into_larger_arrays() -> None:
    packed = make_inputs(seqlen_q=150, num_heads=9, head_dim=128).q  # q, k and v of 3 heads each, side by side
    q, k, v = packed[:, :, :3], packed[:, :, 3:6], packed[:, :, 6:]
    check(q, k, v)
    check(q[:, 10:140:2], k[:, 5:], v[:, 5:])


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_scores_that_grow_and_shrink(head_dim: int) -> None:
    """Maxima that rise from tile to tile, in some rows by more than the slack, so that O is rescaled or let be."""
    inputs = make_inputs(seqlen_q=140, seqlen_k=600, num_heads=1, head_dim=head_dim, dtype="float16", seed=3)
    growth = np.linspace(3.0, 0.1, 600)[None, :, None, None]
    check(inputs.q, (inputs.k * growth).astype(np.float16), inputs.v)
    check(inputs.q, (inputs.k * growth[:, ::-1]).astype(np.float16), inputs.v, causal=True)


@pytest.mark.parametrize("scale", [1e-6, 0.5, 3.0])
def test_scales(scale: float) -> None:
    inputs = make_inputs(seqlen_q=64, seqlen_k=130, head_dim=64, dtype="float16", seed=4)
    check(inputs.q, inputs.k, inputs.v, softmax_scale=scale)


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(1, 1), (1, 0), (0, 5), (300, 17), (257, 129), (3, 1000)])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_tails_and_blank_rows(head_dim: int, seqlen_q: int, seqlen_k: int) -> None:
    inputs = make_inputs(seqlen_q=seqlen_q, seqlen_k=seqlen_k, head_dim=head_dim, seed=seqlen_q + seqlen_k)
    out, lse = check(inputs.q, inputs.k, inputs.v, causal=True)
    blank = max(0, seqlen_q - seqlen_k)
    assert not out[:, :blank].astype(np.float32).any()
    assert np.isneginf(lse[..., :blank]).all()


@pytest.mark.parametrize("head_dim", [64, 256])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_do_as_in_float64(bad: float, head_dim: int) -> None:
    for name, index in (("q", (0, 5, 0, 3)), ("k", (0, 140, 0, 7)), ("v", (0, 11, 0, 0))):
        inputs = make_inputs(seqlen_q=130, seqlen_k=150, head_dim=head_dim, seed=6)
        getattr(inputs, name)[index] = bad
        out, lse = attention(inputs.q, inputs.k, inputs.v, return_lse=True, causal=True)
        with np.errstate(all="ignore"):
            expected, expected_lse = reference.attention(inputs.q, inputs.k, inputs.v, causal=True)
        got = out.astype(np.float64)
        for actual, wanted in ((got, expected), (lse, expected_lse)):
            assert np.array_equal(np.isnan(actual), np.isnan(wanted)), name
            assert np.array_equal(np.isinf(actual), np.isinf(wanted)), name
        finite = np.isfinite(expected)
        assert finite.any()
        assert cosine(got[finite], expected[finite]) >= 0.99999


def test_float32_output_is_nearer() -> None:
    inputs = make_inputs(seqlen_q=100, seqlen_k=260, head_dim=128, seed=8)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v)
    exact = attention(inputs.q, inputs.k, inputs.v, out_dtype=np.float32)
    assert exact.dtype == np.float32
    assert relative_error(exact, expected) < relative_error(attention(inputs.q, inputs.k, inputs.v), expected)


def test_half_a_thousand_by_half_a_thousand_in_five_seconds() -> None:
    inputs = make_inputs(seqlen_q=512, head_dim=64)
    attention(inputs.q[:, :1], inputs.k, inputs.v)  # compiles, or loads what was compiled
    start = time.process_time()
    attention(inputs.q, inputs.k, inputs.v)
    assert time.process_time() - start <= 5


@pytest.mark.parametrize(
    ("dtype", "size", "scale"), [("float16", 1e3, None), ("bfloat16", 1e18, None), ("float16", 1.0, 1e5)]
)
def test_scores_far_beyond_any_softmax(dtype: str, size: float, scale: float | None) -> None:
    """One key takes all the weight of a row; the log-sum-exp is right to float32's precision."""
    inputs = make_inputs(seqlen_q=130, seqlen_k=300, head_dim=64, dtype=dtype, seed=9)
    q, k = (x * np.asarray(size, x.dtype) for x in (inputs.q, inputs.k))
    out, lse = attention(q, k, inputs.v, softmax_scale=scale, return_lse=True)
    expected, expected_lse = reference.attention(q, k, inputs.v, softmax_scale=scale)
    # Two scores that float32 cannot tell apart are both right.
    assert cosine(out, expected) >= 0.999
    assert np.abs(lse / expected_lse - 1).max() <= 1e-6


def test_a_row_whose_scores_are_all_minus_infinity_is_as_one_without_keys() -> None:
    inputs = make_inputs(seqlen_q=3, seqlen_k=5, head_dim=64, dtype="float16")
    k = np.full_like(inputs.k, -np.inf)
    out, lse = attention(np.ones_like(inputs.q), k, inputs.v, return_lse=True)
    expected, expected_lse = reference.attention(np.ones_like(inputs.q), k, inputs.v)
    assert np.array_equal(out, expected)
    assert np.array_equal(lse, expected_lse)
    assert not out.any()
    assert np.isneginf(lse).all()


def test_a_blank_row_is_zero_whatever_is_in_v() -> None:
    inputs = make_inputs(seqlen_q=300, seqlen_k=10, head_dim=128)
    inputs.v[0, 3] = np.nan
    out, lse = attention(inputs.q, inputs.k, inputs.v, causal=True, return_lse=True)
    assert not out[:, :290].astype(np.float32).any()
    assert np.isneginf(lse[..., :290]).all()
