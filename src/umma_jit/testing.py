"""Measures of error and makers of problems, for the tests here and for those of whoever uses this library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "AttentionInputs",
    "cosine",
    "dtype_of",
    "make_inputs",
    "poisoned",
    "relative_error",
]


def relative_error(actual: ArrayLike, expected: ArrayLike) -> float:
    """Return ``‖actual - expected‖ / ‖expected‖`` (Frobenius norms, float64); 0 if both are zero or empty.

    A NaN anywhere makes it NaN, which is below no limit.
    """
    a, e = _float64(actual), _float64(expected)
    error, norm = float(np.linalg.norm(a - e)), float(np.linalg.norm(e))
    if norm == 0.0:
        return 0.0 if error == 0.0 else float("nan") if np.isnan(error) else float("inf")
    return error / norm


def cosine(actual: ArrayLike, expected: ArrayLike) -> float:
    """Return the cosine of the angle between two arrays as vectors (float64); 1 if both are zero or empty."""
    a, e = _float64(actual), _float64(expected)
    norms = float(np.linalg.norm(a)) * float(np.linalg.norm(e))
    if norms == 0.0:
        return 1.0 if not a.any() and not e.any() else 0.0
    return float(np.dot(a, e)) / norms


def _float64(array: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(array).astype(np.float64).ravel()


def dtype_of(name: DTypeLike) -> np.dtype[Any]:
    """Return a NumPy dtype by name, ``"bfloat16"`` (of ml_dtypes) among them."""
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    return dtype


def poisoned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array whose every byte is 0xFF: NaN in each float type, so that what is never written shows."""
    array = np.empty(shape, dtype_of(dtype))
    array.view(np.uint8).fill(0xFF)
    return array


@dataclass(frozen=True)
class AttentionInputs:
    """The arrays of one call.

    Attributes
    ----------
    q, k, v : ndarray
        (batch, seqlen, heads, head_dim).
    """

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]


def make_inputs(
    *,
    batch_size: int = 1,
    seqlen_q: int = 128,
    seqlen_k: int | None = None,
    num_heads: int = 1,
    num_heads_kv: int | None = None,
    head_dim: int = 64,
    dtype: DTypeLike = "bfloat16",
    seed: int = 0,
    layout: str = "bshd",
) -> AttentionInputs:
    """Return standard-normal inputs, rounded to `dtype`; the same for the same arguments.

    Parameters
    ----------
    batch_size, seqlen_q, num_heads, head_dim : int
        The extents of q.
    seqlen_k, num_heads_kv : int, optional
        Those of k and v; by default as of q.
    dtype : dtype_like
        ``"bfloat16"`` or ``"float16"``.
    seed : int
        Of the generator.
    layout : {"bshd", "bhsd"}
        How the arrays lie in memory; the axes are (batch, seqlen, heads, head_dim) either way.
    """
    generator = np.random.default_rng(seed)
    chosen = dtype_of(dtype)

    def draw(seqlen: int, heads: int) -> NDArray[Any]:
        values: NDArray[Any] = generator.standard_normal((batch_size, seqlen, heads, head_dim)).astype(chosen)
        if layout == "bhsd":
            values = np.ascontiguousarray(values.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        return values

    seqlen_k = seqlen_q if seqlen_k is None else seqlen_k
    num_heads_kv = num_heads if num_heads_kv is None else num_heads_kv
    return AttentionInputs(draw(seqlen_q, num_heads), draw(seqlen_k, num_heads_kv), draw(seqlen_k, num_heads_kv))
