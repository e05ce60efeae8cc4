"""`AttentionProblem`: what a call asks. Everything is validated here, once per layout, and nowhere later.

What depends on the addresses, which differ from call to call, is in `check_addresses`.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import EMULATED, ArrayLayout, ArrayView, dense_strides, overlap
from .errors import ArgumentTypeError, UnsupportedProblemError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AttentionProblem", "as_flag", "as_scale", "check_addresses"]

ALIGNMENT_BYTES = 16
"""Of addresses and strides: the tensor maps of TMA have no finer grain (driver API, cuTensorMapEncodeTiled)."""

MAX_SEQLEN = 1 << 30
"""So that a position plus seqlen_k - seqlen_q, and a tile beyond it, stay within a signed 32-bit integer."""

MAX_STRIDE_BYTES = (1 << 40) - 1
"""Strides of tensor maps are below 2^40 bytes (driver API, cuTensorMapEncodeTiled)."""

_AXES = ("batch", "seqlen", "heads")
_DTYPES = ("bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class AttentionProblem:
    """One attention forward, but for the addresses: all that a configuration and a plan may depend on.

    Attributes
    ----------
    dtype : {"bfloat16", "float16"}
        Of q, k and v.
    out_dtype : {"bfloat16", "float16", "float32"}
        Of out: `dtype`, or float32 for the accumulator without its last rounding.
    batch_size, seqlen_q, seqlen_k, num_heads, num_heads_kv, head_dim : int
        The extents. `num_heads` is a multiple of `num_heads_kv`.
    causal : bool
        Query i sees keys up to i + seqlen_k - seqlen_q only.
    softmax_scale : float
        Multiplies q·k. Finite and positive, as a float32 too.
    return_lse : bool
        Whether the log-sum-exp is wanted as well.
    q_strides, k_strides, v_strides, out_strides : tuple of int
        Bytes between neighbours in (batch, seqlen, heads). Positive multiples of 16 wherever the extent exceeds 1; the
        last axis is dense.
    """

    dtype: str
    out_dtype: str
    batch_size: int
    seqlen_q: int
    seqlen_k: int
    num_heads: int
    num_heads_kv: int
    head_dim: int
    causal: bool
    softmax_scale: float
    return_lse: bool
    q_strides: tuple[int, int, int]
    k_strides: tuple[int, int, int]
    v_strides: tuple[int, int, int]
    out_strides: tuple[int, int, int]

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """(batch_size, seqlen_q, num_heads, head_dim)."""
        return (self.batch_size, self.seqlen_q, self.num_heads, self.head_dim)

    @property
    def lse_shape(self) -> tuple[int, int, int]:
        """(batch_size, num_heads, seqlen_q)."""
        return (self.batch_size, self.num_heads, self.seqlen_q)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute: no query at all."""
        return self.batch_size == 0 or self.seqlen_q == 0

    @classmethod
    def from_layouts(
        cls,
        q: ArrayLayout,
        k: ArrayLayout,
        v: ArrayLayout,
        out: ArrayLayout | None,
        *,
        causal: bool,
        softmax_scale: float | None,
        return_lse: bool,
        out_dtype: str | None = None,
    ) -> AttentionProblem:
        """Validate a call.

        Parameters
        ----------
        q, k, v : ArrayLayout
            (batch, seqlen, heads, head_dim).
        out : ArrayLayout or None
            Where the result goes, or None for a dense array that is yet to be made.
        causal, softmax_scale, return_lse
            The options, through `as_flag` and `as_scale`.
        out_dtype : str, optional
            Of the result; by default that of `out`, or of `q`.

        Raises
        ------
        UnsupportedProblemError
            Names the argument, what it was, and what is expected.
        """
        for name, layout in (("q", q), ("k", k), ("v", v)):
            _check_rank(name, layout)
            _check_dtype(name, layout, q)
            _check_device(name, layout, q)
        _check_shapes(q, k, v)
        for name, layout in (("q", q), ("k", k), ("v", v)):
            _check_strides(name, layout)
        batch_size, seqlen_q, num_heads, head_dim = q.shape
        _, seqlen_k, num_heads_kv, _ = k.shape
        dtype = q.dtype.name
        wanted = _check_out_dtype(out, out_dtype, dtype)
        if out is None:
            out_strides = dense_strides(q.shape, np.dtype(np.float32).itemsize if wanted == "float32" else 2)
        else:
            _check_out(out, q)
            out_strides = out.strides
        return cls(
            dtype=dtype,
            out_dtype=wanted,
            batch_size=batch_size,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            num_heads=num_heads,
            num_heads_kv=num_heads_kv,
            head_dim=head_dim,
            causal=causal,
            softmax_scale=1.0 / math.sqrt(head_dim) if softmax_scale is None else softmax_scale,
            return_lse=return_lse,
            q_strides=_outer(q.strides),
            k_strides=_outer(k.strides),
            v_strides=_outer(v.strides),
            out_strides=_outer(out_strides),
        )


def as_flag(value: Any, name: str) -> bool:
    """Return a truth value; refuse anything but a bool, since 1 or "false" is a mistake more often than not.

    Raises
    ------
    ArgumentTypeError
        It is no bool.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ArgumentTypeError(name, f"{_shorten(value)} of type {type(value).__name__}", "True or False")


def as_scale(value: Any) -> float | None:
    """Return the softmax scale as a float, or None for the default.

    Raises
    ------
    ArgumentTypeError
        It is no real number.
    UnsupportedProblemError
        It is NaN, infinite, zero, negative, or none of these as a float64 but so as a float32.
    """
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, np.floating, np.integer)):
        raise ArgumentTypeError(
            "softmax_scale", f"{_shorten(value)} of type {type(value).__name__}", "a real number, or None"
        )
    expected = "a positive finite number within float32, or None for 1/sqrt(head_dim)"
    try:
        scale = float(value)
    except OverflowError as error:
        raise UnsupportedProblemError("softmax_scale", f"{_shorten(value)}", expected) from error
    # The kernel takes scale * log2(e) as a float32; a subnormal would be flushed to zero.
    if not 2.0**-126 <= scale * math.log2(math.e) <= float(np.finfo(np.float32).max):
        raise UnsupportedProblemError("softmax_scale", f"{scale!r}", expected)
    return scale


def check_addresses(views: Mapping[str, ArrayView]) -> None:
    """Check what depends on the addresses of a call.

    Parameters
    ----------
    views : mapping of str to ArrayView
        By argument: q, k, v and, if the caller gave it, out.

    Raises
    ------
    UnsupportedProblemError
        An array starts at an address that is not a multiple of 16 bytes, or `out` shares memory with an input.
    """
    for name, array in views.items():
        if array.address % ALIGNMENT_BYTES and 0 not in array.layout.shape:
            raise UnsupportedProblemError(
                name,
                f"starts at address {array.address:#x}, {array.address % ALIGNMENT_BYTES} bytes past a multiple of 16",
                "an address that is a multiple of 16 bytes",
                f"Pass a copy: {name}.copy()",
            )
    out = views.get("out")
    if out is not None:
        for name in ("q", "k", "v"):
            if overlap(out, views[name]):
                raise UnsupportedProblemError(
                    "out", f"shares memory with {name}", f"memory apart from {name}", "Other tiles still read it"
                )


def _check_rank(name: str, layout: ArrayLayout) -> None:
    if len(layout.shape) != 4:
        raise UnsupportedProblemError(
            name,
            f"has {len(layout.shape)} axes, shape {layout.shape}",
            "4: (batch, seqlen, heads, head_dim)",
        )


def _check_dtype(name: str, layout: ArrayLayout, q: ArrayLayout) -> None:
    have = layout.dtype.name
    if have not in _DTYPES:
        raise UnsupportedProblemError(
            name,
            f"has dtype {have}",
            "bfloat16 (of ml_dtypes in NumPy) or float16",
            f"Convert it: {name}.astype(ml_dtypes.bfloat16)",
        )
    if not layout.dtype.isnative:
        raise UnsupportedProblemError(name, f"has dtype {layout.dtype.str}", "the machine's own byte order")
    if layout.dtype != q.dtype:
        raise UnsupportedProblemError(name, f"has dtype {have}", f"that of q, {q.dtype.name}")


def _check_device(name: str, layout: ArrayLayout, q: ArrayLayout) -> None:
    if layout.device != q.device:
        raise UnsupportedProblemError(
            name, f"is on {_device_name(layout)}", f"the device of q, {_device_name(q)}", "Move one of them"
        )


def _check_shapes(q: ArrayLayout, k: ArrayLayout, v: ArrayLayout) -> None:
    batch_size, seqlen_q, num_heads, head_dim = q.shape
    if head_dim < 1 or num_heads < 1:
        axis = "head_dim" if head_dim < 1 else "heads"
        raise UnsupportedProblemError("q", f"has shape {q.shape}, no {axis} at all", f"at least one of {axis}")
    for name, layout in (("k", k), ("v", v)):
        if layout.shape[0] != batch_size:
            raise UnsupportedProblemError(name, f"has batch {layout.shape[0]}", f"that of q, {batch_size}")
        if layout.shape[3] != head_dim:
            raise UnsupportedProblemError(name, f"has head_dim {layout.shape[3]}", f"that of q, {head_dim}")
    if k.shape != v.shape:
        raise UnsupportedProblemError("v", f"has shape {v.shape}", f"that of k, {k.shape}")
    num_heads_kv = k.shape[2]
    if num_heads_kv < 1 or num_heads % num_heads_kv:
        raise UnsupportedProblemError(
            "k", f"has {num_heads_kv} heads", f"a number that divides the {num_heads} heads of q"
        )
    for name, seqlen in (("q", seqlen_q), ("k", k.shape[1])):
        if seqlen > MAX_SEQLEN:
            raise UnsupportedProblemError(name, f"has seqlen {seqlen}", f"at most 2^30 = {MAX_SEQLEN}")


def _check_strides(name: str, layout: ArrayLayout) -> None:
    if 0 in layout.shape:
        return  # nothing is ever addressed
    itemsize = layout.dtype.itemsize
    if layout.shape[3] > 1 and layout.strides[3] != itemsize:
        raise UnsupportedProblemError(
            name,
            f"has {layout.strides[3]} bytes between elements of head_dim",
            f"a last axis that is contiguous, {itemsize} bytes",
            f"Pass a copy in C order, or move head_dim to the end of the array that {name} is a view of",
        )
    for axis, extent, stride in zip(_AXES, layout.shape, layout.strides, strict=False):
        if extent == 1:
            continue  # never used
        if stride == 0:
            raise UnsupportedProblemError(
                name,
                f"is broadcast along {axis} (its stride is 0)",
                "elements of its own",
                "Fewer heads in k and v than in q need no broadcast: pass them as they are",
            )
        if stride < 0:
            raise UnsupportedProblemError(name, f"runs backwards along {axis} ({stride} bytes)", "a positive stride")
        if stride % ALIGNMENT_BYTES:
            raise UnsupportedProblemError(
                name, f"has a stride of {stride} bytes along {axis}", "a multiple of 16 bytes", "Pad the last axis"
            )
        if stride > MAX_STRIDE_BYTES:
            raise UnsupportedProblemError(name, f"has a stride of {stride} bytes along {axis}", "less than 2^40 bytes")


def _check_out_dtype(out: ArrayLayout | None, out_dtype: str | None, dtype: str) -> str:
    have = out.dtype.name if out is not None else out_dtype if out_dtype is not None else dtype
    if have not in (dtype, "float32"):
        argument = "out_dtype" if out is None else "out"
        raise UnsupportedProblemError(argument, f"has dtype {have}", f"that of q, {dtype}, or float32")
    if out is not None and out_dtype is not None and out_dtype != have:
        raise UnsupportedProblemError("out", f"has dtype {have}", f"out_dtype, {out_dtype}")
    return have


def _check_out(out: ArrayLayout, q: ArrayLayout) -> None:
    _check_rank("out", out)
    if out.shape != q.shape:
        raise UnsupportedProblemError("out", f"has shape {out.shape}", f"that of q, {q.shape}")
    _check_device("out", out, q)
    if not out.dtype.isnative:
        raise UnsupportedProblemError("out", f"has dtype {out.dtype.str}", "the machine's own byte order")
    if not out.writable:
        raise UnsupportedProblemError("out", "is read-only", "an array that may be written to")
    _check_strides("out", out)
    if 0 in out.shape:
        return
    # In order of their strides, each axis must step over all that the ones below it span: else elements coincide.
    reach = out.shape[3] * out.dtype.itemsize
    for stride, extent in sorted(zip(out.strides[:3], out.shape[:3], strict=True)):
        if extent > 1 and stride < reach:
            raise UnsupportedProblemError(
                "out", f"has strides {out.strides} for shape {out.shape}, so that elements overlap", "no overlap"
            )
        reach += (extent - 1) * stride


def _outer(strides: tuple[int, ...]) -> tuple[int, int, int]:
    batch, seqlen, heads, _ = strides
    return (batch, seqlen, heads)


def _device_name(layout: ArrayLayout) -> str:
    return "the emulated device (host memory)" if layout.device == EMULATED else f"CUDA device {layout.device}"


def _shorten(value: Any, length: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"
