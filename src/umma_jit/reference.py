"""Attention in float64 by NumPy: the definition that everything here is tested against.

It says what the kernels compute, not how. Keys that a mask hides do not take part at all: a NaN in a hidden key has no
effect, where ``0 * NaN`` would spread it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["attention"]

_ROWS_AT_ONCE = 512
"""Query rows computed together, so that long sequences need no square matrix in memory."""


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute ``softmax(softmax_scale * q kᵀ) v`` and the log-sum-exp of each row, in float64.

    Parameters
    ----------
    q : array_like
        (batch, seqlen_q, num_heads, head_dim); taken as float64 from whatever dtype.
    k, v : array_like
        (batch, seqlen_k, num_heads_kv, head_dim); `num_heads_kv` divides `num_heads`, query head h uses key head
        ``h // (num_heads // num_heads_kv)``.
    causal : bool
        Query i sees the keys j with ``j <= i + seqlen_k - seqlen_q`` (aligned to the bottom right).
    softmax_scale : float, optional
        By default ``1 / sqrt(head_dim)``.

    Returns
    -------
    out : ndarray of float64
        (batch, seqlen_q, num_heads, head_dim). Zero for a row that sees no key.
    lse : ndarray of float64
        (batch, num_heads, seqlen_q), the natural logarithm of the sum of exponentials of the scaled scores; -inf for a
        row that sees no key.

    Notes
    -----
    A NaN or infinity in a query stays in its row. One in a key or value reaches every row that sees it, as IEEE
    arithmetic has it: a score of +inf makes its row NaN (inf - inf), one of -inf is a weight of zero, and a row whose
    scores are all -inf is as one that sees no key. A key that is hidden has no effect at all here; the kernels hide it
    by a weight of zero, so that a NaN or infinity in a hidden row of *v* reaches the rows that see others of its 128
    keys.
    """
    q64, k64, v64 = (np.asarray(array).astype(np.float64) for array in (q, k, v))
    batch_size, seqlen_q, num_heads, head_dim = q64.shape
    _, seqlen_k, num_heads_kv, head_dim_v = v64.shape
    scale = 1.0 / math.sqrt(head_dim) if softmax_scale is None else softmax_scale
    group = num_heads // num_heads_kv
    out = np.zeros((batch_size, seqlen_q, num_heads, head_dim_v))
    lse = np.full((batch_size, num_heads, seqlen_q), -np.inf)
    for batch in range(batch_size):
        for head in range(num_heads):
            keys, values = k64[batch, :, head // group], v64[batch, :, head // group]
            for start in range(0, seqlen_q, _ROWS_AT_ONCE):
                rows = slice(start, min(start + _ROWS_AT_ONCE, seqlen_q))
                last = np.full(rows.stop - start, seqlen_k - 1)
                if causal:
                    last = np.minimum(last, np.arange(start, rows.stop) + seqlen_k - seqlen_q)
                out[batch, rows, head], lse[batch, head, rows] = _head(
                    q64[batch, rows, head], keys, values, scale, last
                )
    return out, lse


def _head(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], scale: float, last: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return out and lse of some rows of one head; row i sees the keys up to and with ``last[i]``."""
    out = np.zeros((len(q), v.shape[1]))
    lse = np.full(len(q), -np.inf)
    seen = np.arange(len(k))[None, :] <= last[:, None]
    some: NDArray[Any] = np.any(seen, axis=1)
    if not some.any():
        return out, lse
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        # A hidden key's score is replaced, never added to, so that its NaN is gone.
        scores = np.where(seen, (q @ k.T) * scale, -np.inf)
        peak = scores.max(axis=1, keepdims=True, initial=-np.inf)
        # A row whose every score is -inf has nothing to weigh, as one that sees no key.
        some &= ~np.isneginf(peak[:, 0])
        if not some.any():
            return out, lse
        weights = np.where(seen, np.exp(scores - np.where(some[:, None], peak, 0.0)), 0.0)
        total = weights.sum(axis=1, keepdims=True)
        out[some] = (_weighted_sum(weights, v, seen) / np.where(some[:, None], total, 1.0))[some]
        lse[some] = (peak + np.log(total))[some, 0]
    return out, lse


def _weighted_sum(weights: NDArray[Any], v: NDArray[Any], seen: NDArray[Any]) -> NDArray[Any]:
    """Return ``weights @ v`` where a hidden key's value, even if it is NaN or infinite, has no effect."""
    finite: NDArray[Any] = np.isfinite(v)
    if finite.all():
        result: NDArray[Any] = weights @ v
        return result
    result = weights @ np.where(finite, v, 0.0)
    for key in np.flatnonzero(~np.all(finite, axis=1)):
        rows = seen[:, key]
        bad = np.where(finite[key], 0.0, v[key])
        result[rows] += weights[rows, key, None] * bad
    return result
