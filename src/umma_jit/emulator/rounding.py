"""Floating-point results rounded as PTX says, from exact values held in float64.

A sum of two float64 has an exact error term (Knuth's two-sum). The sum is *rounded to odd*: if inexact, the neighbour
with an odd last bit is taken. float64 has more than twice the bits of float32, so that rounding this once more to
float32, in any mode, is the correct rounding of the exact value (Boldo and Melquiond, 2008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TINY", "add_f32", "flush", "fma_f32", "mul_f32", "sum_to_odd", "to_f32"]

TINY = np.float32(2.0**-126)
_TIE = np.int64(0x1000_0000)
_LOW = np.int64(0x1FFF_FFFF)


def flush(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace subnormals by zeros of their sign (``.ftz``)."""
    small = np.abs(x) < TINY
    if np.count_nonzero(small):  # a third of the time of any()
        return np.where(small, np.copysign(np.float32(0), x), x)
    return x


def sum_to_odd(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """A + b, rounded to odd."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    inexact = (error != 0) & np.isfinite(s)
    if not inexact.any():
        return s
    bits = np.ascontiguousarray(s).view(np.int64)
    even = inexact & ((bits & 1) == 0)
    return np.where(even, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s)


def to_f32(x: NDArray[np.float64], mode: str) -> NDArray[np.float32]:
    """Round float64 (exact, or rounded to odd) to float32 in mode rn, rz, rm or rp."""
    r = x.astype(np.float32)
    if mode == "rn":
        return r
    wide = r.astype(np.float64)
    down = np.float32(-np.inf)
    up = np.float32(np.inf)
    if mode == "rm":
        return np.where(wide > x, np.nextafter(r, down), r)
    if mode == "rp":
        return np.where(wide < x, np.nextafter(r, up), r)
    return np.where(np.abs(wide) > np.abs(x), np.nextafter(r, np.float32(0)), r)


def fma_f32(
    a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32], mode: str = "rn"
) -> NDArray[np.float32]:
    """A * b + c rounded once."""
    product = np.multiply(a, b, dtype=np.float64)  # exact: 24 + 24 bits
    if mode == "rn":
        # Rounding twice errs only where the float64 sum lies on a tie of float32, or the result is subnormal.
        s = product + c
        r = s.astype(np.float32)
        bits = s.view(np.int64) if isinstance(s, np.ndarray) and s.flags.c_contiguous else np.asarray(s).view(np.int64)
        doubtful = (bits & _LOW) == _TIE
        if not (np.count_nonzero(doubtful) or np.count_nonzero(np.abs(r) < TINY)):
            return r
    return to_f32(sum_to_odd(product, np.asarray(c, np.float64)), mode)


def add_f32(a: NDArray[np.float32], b: NDArray[np.float32], mode: str = "rn") -> NDArray[np.float32]:
    """A + b rounded once."""
    if mode == "rn":
        return a + b
    return to_f32(sum_to_odd(np.asarray(a, np.float64), np.asarray(b, np.float64)), mode)


def mul_f32(a: NDArray[np.float32], b: NDArray[np.float32], mode: str = "rn") -> NDArray[np.float32]:
    """A * b rounded once."""
    if mode == "rn":
        return a * b
    return to_f32(np.multiply(a, b, dtype=np.float64), mode)


def as_float(bits: NDArray[Any], kind: str) -> NDArray[np.float32]:
    """float16 or bfloat16 bits (uint16) as float32."""
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    result: NDArray[np.float32] = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return result


def to_bits16(x: NDArray[Any], kind: str, mode: str = "rn") -> NDArray[np.uint16]:
    """Round float32 or float64 to the bits of float16 or bfloat16; modes rn, rz, rm, rp."""
    x64 = np.asarray(x, np.float64)
    if kind == "f16":
        if mode == "rn":
            return np.asarray(x).astype(np.float16).view(np.uint16)
        r = x64.astype(np.float16)
        toward = {"rz": np.float16(0), "rm": np.float16(-np.inf), "rp": np.float16(np.inf)}[mode]
        wide = r.astype(np.float64)
        wrong = {"rz": np.abs(wide) > np.abs(x64), "rm": wide > x64, "rp": wide < x64}[mode]
        return np.where(wrong, np.nextafter(r, toward), r).view(np.uint16)
    x32 = np.ascontiguousarray(x64.astype(np.float32))
    bits = x32.view(np.uint32)
    nan = np.isnan(x32)
    if mode == "rn":
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    else:
        truncated = bits >> np.uint32(16)
        inexact = (bits & np.uint32(0xFFFF)) != 0
        negative = (bits >> np.uint32(31)) != 0
        away = {"rz": False, "rm": negative, "rp": ~negative}[mode]
        rounded = truncated + (inexact & away).astype(np.uint32)
    result: NDArray[np.uint16] = np.where(nan, np.uint32(0x7FFF), rounded).astype(np.uint16)
    return result
