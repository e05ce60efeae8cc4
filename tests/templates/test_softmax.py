"""Softmax through tensor memory: scores in, P out, row statistics in registers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from block_kernels import BFLOAT16, FLOAT16, ROWS, SCHEDULES, SoftmaxConfig, from_words, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

RELATIVE_ERROR = 0.003
"""Of a probability against the largest of its row. In float16 it holds for each probability by itself; a bfloat16 of 8
significant bits cannot be nearer than 2**-8 to every number, however it was computed."""
ROUNDING = 2.0**-8
LOG2_E = 1 / math.log(2)
PLAIN = SoftmaxConfig(rescale_slack=0, exp2_on_fma=0)
MIXED = SoftmaxConfig(rescale_slack=8, exp2_on_fma=3)
ALL_FMA = SoftmaxConfig(rescale_slack=8, exp2_on_fma=16)


def softmax(
    config: SoftmaxConfig, scores: NDArray[np.float32], schedule: str, *, limit: int | None = None, scale: float = 0.125
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32]]:
    """Run `scores` (tiles, 128, 128); return P normalised (tiles, 128, 128), lse (128,) and the factors."""
    tiles = scores.shape[0]
    packed = np.zeros((tiles, ROWS, 64), np.float32)
    factors = np.zeros((tiles, ROWS), np.float32)
    statistics = np.zeros((2, ROWS), np.float32)
    scale_log2 = np.float32(scale * LOG2_E)
    hidden = np.int32(tiles * 128 if limit is None else limit)
    run(
        config,
        [scores, packed, factors, statistics, np.int32(tiles), hidden, scale_log2],
        schedule,
        operand_bytes=0,
    )
    p = from_words(packed, BFLOAT16 if config.dtype == "bfloat16" else FLOAT16).astype(np.float64)
    for tile in range(tiles):  # what later tiles do to the accumulated output
        p[tile] *= factors[tile + 1 :].astype(np.float64).prod(axis=0)[:, None]
    maximum, total = statistics.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = maximum * float(scale_log2) / LOG2_E + np.log(total)
        p /= total[:, None]
    return p, lse, factors


def reference(scores: NDArray[np.float32], scale: float = 0.125) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = np.concatenate(list(scores.astype(np.float64)), axis=1) * scale
    maximum = x.max(axis=1, keepdims=True)
    p = np.exp(x - maximum)
    total = p.sum(axis=1, keepdims=True)
    p = (p / total).reshape(ROWS, len(scores), 128).transpose(1, 0, 2)
    return p, (maximum + np.log(total))[:, 0]


def assert_probabilities(p: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    """Hold bfloat16 probabilities (tiles, rows, keys) against float64."""
    if len(p) == 1:  # with more, the largest may have been rounded while it was above 1
        largest = expected.max(axis=2, keepdims=True)
        assert (np.abs(p - expected) / largest).max() <= RELATIVE_ERROR
    assert (np.abs(p - expected) / expected).max() <= 1.02 * ROUNDING


def random_scores(tiles: int, seed: int, spread: float = 8.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((tiles, ROWS, 128)) * spread).astype(np.float32)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("config", [PLAIN, MIXED, ALL_FMA], ids=["ex2", "mixed", "fma"])
def test_one_tile(config: SoftmaxConfig, schedule: str) -> None:
    scores = random_scores(1, seed=21)
    p, lse, factors = softmax(config, scores, schedule)
    expected, expected_lse = reference(scores)
    assert_probabilities(p, expected)
    assert np.abs(lse - expected_lse).max() <= 1e-4
    assert np.array_equal(factors[0], np.zeros(ROWS))  # from a maximum of -inf


@pytest.mark.parametrize("config", [PLAIN, MIXED], ids=["every growth", "slack 8"])
def test_three_tiles_online(config: SoftmaxConfig) -> None:
    scores = random_scores(3, seed=22) + np.array([0, 3, 400], np.float32)[:, None, None]
    p, lse, factors = softmax(config, scores, "program", scale=0.05)
    expected, expected_lse = reference(scores, scale=0.05)
    assert_probabilities(p, expected)
    assert np.abs(lse - expected_lse).max() <= 1e-4
    grew = factors[1] != 1
    assert grew.any() == (config is PLAIN)  # the small growth is let be, the large one is not
    assert (factors[2] < 1e-6).all()


@pytest.mark.parametrize("on_fma", [0, 3, 16])
def test_float16_probabilities(on_fma: int) -> None:
    scores = random_scores(1, seed=23, spread=6)
    p, _, _ = softmax(SoftmaxConfig(dtype="float16", rescale_slack=8, exp2_on_fma=on_fma), scores, "program")
    expected, _ = reference(scores)
    largest = expected.max(axis=2, keepdims=True)
    normal = expected > 2**-14 * largest  # below, the float16 of a row whose largest is 1 is subnormal
    assert normal.mean() > 0.99
    assert np.abs(p / expected - 1)[normal].max() <= RELATIVE_ERROR / 5


@pytest.mark.parametrize("limit", [0, 1, 37, 128, 129, 200])
def test_hidden_keys(limit: int) -> None:
    scores = random_scores(2, seed=24)
    p, lse, _ = softmax(MIXED, scores, "program", limit=limit)
    flat = np.concatenate(list(p), axis=1)
    if limit == 0:
        assert np.isneginf(lse).all()
        return
    assert (flat[:, limit:] == 0).all()
    seen = np.concatenate(list(scores), axis=1)
    seen[:, limit:] = -np.inf
    expected, expected_lse = reference(seen.reshape(ROWS, 2, 128).transpose(1, 0, 2))
    visible = np.concatenate(list(expected), axis=1)[:, :limit]
    assert (np.abs(flat[:, :limit] - visible) / visible).max() <= 1.02 * ROUNDING
    assert np.abs(lse - expected_lse).max() <= 1e-4


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_score_spoils_its_row_and_no_other(bad: float) -> None:
    scores = random_scores(2, seed=25)
    scores[0, 7, 100] = bad
    p, lse, _ = softmax(MIXED, scores, "program")
    expected, _ = reference(scores[:, 8:9].repeat(ROWS, axis=1))
    assert np.isnan(lse[7])
    assert np.isnan(p[:, 7]).all()
    others = np.arange(ROWS) != 7
    assert np.isfinite(p[:, others]).all()
    assert_probabilities(p[:, 8:9], expected[:, 8:9])
