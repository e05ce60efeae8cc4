"""Inputs and float64 references of the fixtures' families, by NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["DTYPES", "FAMILIES", "Case"]

DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "fp32": np.float32,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "u8": np.uint8,
    "i8": np.int8,
    "i32": np.int32,
}
_ROUNDING = {"fp32": 1e-5, "fp16": 2.0**-10, "bf16": 2.0**-8, "fp8e4nv": 2.0**-4, "fp8e5": 2.0**-3}


@dataclass
class Case:
    """What goes in and what must come out.

    Attributes
    ----------
    arrays
        By parameter name; outputs are filled with NaN or -1.
    expected
        float64 (or integers, to be met exactly) by parameter name.
    tolerance
        Largest error allowed, relative to the largest expected magnitude.
    """

    arrays: dict[str, NDArray[Any]]
    expected: dict[str, NDArray[Any]]
    tolerance: dict[str, float]


def _random(seed: int, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32).astype(DTYPES[dtype])


def _blank(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    kind = DTYPES[dtype]
    return np.full(shape, -1 if dtype in ("i8", "u8", "i32") else np.nan, np.float32).astype(kind)


def _exact(array: NDArray[Any], tensor_core: bool = True) -> NDArray[np.float64]:
    """What the tensor core sees: float32 loses its 13 low bits (tf32)."""
    if array.dtype == np.float32 and tensor_core:
        array = (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return array.astype(np.float64)


def matmul(problem: dict[str, Any]) -> Case:
    """C = A B; `majors` says which dimension of A (M or K) and of B (N or K) is contiguous."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    a, b = _random(1, (m, k), problem["a"]), _random(2, (n, k), problem["b"])
    expected = _exact(a) @ _exact(b).T
    majors = problem["majors"]
    arrays = {
        "a": a if majors[0] == "K" else np.ascontiguousarray(a.T),
        "b": b if majors[1] == "K" else np.ascontiguousarray(b.T),
        "c": _blank((m, n), problem["c"]),
    }
    return Case(arrays, {"c": expected}, {"c": _ROUNDING[problem["c"]]})


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _narrow(seed: int, rows: int, k: int, kind: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Stored values and what they mean; two e2m1 in a byte, the first in its low half."""
    if kind != "e2m1":
        stored = _random(seed, (rows, k), kind)
        return stored, stored.astype(np.float64)
    codes = np.random.default_rng(seed).integers(0, 16, (rows, k), np.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4, _E2M1[codes]


def _scales(seed: int, rows: int, count: int, group: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    if group == 16:
        stored = rng.uniform(0.25, 4, (rows, count)).astype(ml_dtypes.float8_e4m3fn)
        return stored, stored.astype(np.float64)
    exponents = rng.integers(124, 131, (rows, count), np.uint8)
    return exponents, 2.0 ** (exponents.astype(np.float64) - 127)


def scaled(problem: dict[str, Any]) -> Case:
    """C = (A * scales) (B * scales)^T."""
    m, n, k, group = problem["m"], problem["n"], problem["k"], problem["group"]
    a, a_values = _narrow(1, m, k, problem["a"])
    b, b_values = _narrow(2, n, k, problem["b"])
    a_scale, a_factors = _scales(3, m, k // group, group)
    b_scale, b_factors = _scales(4, n, k // group, group)
    expected = (a_values * np.repeat(a_factors, group, 1)) @ (b_values * np.repeat(b_factors, group, 1)).T
    if problem.get("tiled_scales"):
        a_scale, b_scale = (np.ascontiguousarray(s.reshape(4, 32, -1).swapaxes(0, 1)) for s in (a_scale, b_scale))
    arrays = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale, "c": _blank((m, n), "fp32")}
    return Case(arrays, {"c": expected}, {"c": 1e-5})


def attention(problem: dict[str, Any]) -> Case:
    """Attention forward and its log-sum-exp in base 2."""
    heads, s, d, dtype = problem["heads"], problem["s"], problem["d"], problem["dtype"]
    q, k, v = (_random(seed, (heads, s, d), dtype) for seed in (1, 2, 3))
    scores = np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64)) / d**0.5 / np.log(2)
    if problem["causal"]:
        scores = np.where(np.tri(s, dtype=bool), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    p = np.exp2(scores - largest)
    total = p.sum(-1, keepdims=True)
    out = np.einsum("hij,hjd->hid", p / total, v.astype(np.float64))
    lse = (largest + np.log2(total))[..., 0]
    arrays = {"q": q, "k": k, "v": v, "out": _blank(out.shape, dtype), "lse": _blank(lse.shape, "fp32")}
    expected = {"out": out, "lse": lse} if problem["lse"] else {"out": out}
    return Case(arrays, expected, {"out": 2 * _ROUNDING[dtype], "lse": 1e-5})


def softmax(problem: dict[str, Any]) -> Case:
    """Softmax of rows."""
    x = _random(1, (problem["rows"], problem["columns"]), "fp32")
    shifted = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return Case({"x": x, "y": _blank(x.shape, "fp32")}, {"y": shifted / shifted.sum(1, keepdims=True)}, {"y": 1e-5})


def layer_norm(problem: dict[str, Any]) -> Case:
    """Layer normalisation of rows of float16."""
    x = _random(1, (problem["rows"], problem["columns"]), "fp16")
    weight, bias = (_random(seed, (problem["columns"],), "fp32") for seed in (2, 3))
    value = x.astype(np.float64)
    centred = value - value.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * weight + bias
    arrays = {"x": x, "weight": weight, "bias": bias, "y": _blank(x.shape, "fp16")}
    return Case(arrays, {"y": expected}, {"y": _ROUNDING["fp16"]})


def scan(problem: dict[str, Any]) -> Case:
    """Cumulative sums of rows."""
    x = _random(1, (problem["rows"], problem["columns"]), "fp32")
    return Case({"x": x, "y": _blank(x.shape, "fp32")}, {"y": x.astype(np.float64).cumsum(1)}, {"y": 1e-5})


def sort(problem: dict[str, Any]) -> Case:
    """Sorted rows, exactly."""
    x = _random(1, (problem["rows"], problem["columns"]), "fp32")
    return Case({"x": x, "y": _blank(x.shape, "fp32")}, {"y": np.sort(x, 1)}, {"y": 0.0})


def best(problem: dict[str, Any]) -> Case:
    """Maxima of rows and their places, exactly."""
    rows = problem["rows"]
    x = _random(1, (rows, problem["columns"]), "fp32")
    arrays = {"x": x, "values": _blank((rows,), "fp32"), "places": _blank((rows,), "i32")}
    return Case(arrays, {"values": x.max(1), "places": x.argmax(1)}, {"values": 0.0, "places": 0.0})


def gather(problem: dict[str, Any]) -> Case:
    """Rows of a table, exactly."""
    table = _random(1, (problem["table"], problem["width"]), "bf16")
    index = np.random.default_rng(2).integers(0, problem["table"], problem["n"], np.int32)
    arrays = {"table": table, "index": index, "y": _blank((problem["n"], problem["width"]), "bf16")}
    return Case(arrays, {"y": table[index].astype(np.float64)}, {"y": 0.0})


def atomics(problem: dict[str, Any]) -> Case:
    """Histogram, sums and maxima per bucket; one program of all takes the lock."""
    n, buckets = problem["n"], problem["buckets"]
    index = np.random.default_rng(1).integers(0, buckets, n, np.int32)
    weight = np.random.default_rng(2).integers(1, 100, n).astype(np.float32) / 16
    counts, sums = np.bincount(index, minlength=buckets), np.bincount(index, weight, minlength=buckets)
    largest = np.zeros(buckets, np.int64)
    np.maximum.at(largest, index, (weight * 16).astype(np.int64))
    arrays = {
        "index": index,
        "weight": weight,
        "counts": np.zeros(buckets, np.int32),
        "sums": np.zeros(buckets, np.float32),
        "largest": np.zeros(buckets, np.int32),
        "lock": np.zeros(2, np.int32),
    }
    expected = {"counts": counts, "sums": sums, "largest": largest, "lock": np.array([1, 7])}
    return Case(arrays, expected, dict.fromkeys(expected, 0.0))


def transpose(problem: dict[str, Any]) -> Case:
    """A transposed tile, exactly."""
    shape = (problem["rows"], problem["columns"])
    x = np.random.default_rng(1).integers(-100, 100, shape).astype(DTYPES[problem["dtype"]])
    return Case({"x": x, "y": _blank(shape[::-1], problem["dtype"])}, {"y": x.T.astype(np.float64)}, {"y": 0.0})


def copy(problem: dict[str, Any]) -> Case:
    """The same again, bit by bit."""
    shape = (problem["rows"], problem["columns"])
    x = np.random.default_rng(1).integers(-100, 100, shape).astype(DTYPES[problem["dtype"]])
    return Case({"x": x, "y": _blank(shape, problem["dtype"])}, {"y": x.astype(np.float64)}, {"y": 0.0})


def double(problem: dict[str, Any]) -> Case:
    """Twice the input, exactly."""
    x = _random(1, (problem["n"],), "fp32")
    return Case({"x": x, "y": _blank(x.shape, "fp32")}, {"y": 2 * x.astype(np.float64)}, {"y": 0.0})


def integers(problem: dict[str, Any]) -> Case:
    """The kernel's chain of 32-bit operations in Python's integers."""
    rng = np.random.default_rng(1)
    a = rng.integers(-(2**31), 2**31, problem["n"]).astype(np.int32)
    b = rng.integers(1, 2**20, problem["n"]).astype(np.int32) * rng.choice([-1, 1], problem["n"]).astype(np.int32)

    def word(value: int) -> int:
        return (value + (1 << 31)) % (1 << 32) - (1 << 31)

    def one(x: int, y: int) -> int:
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        result = quotient ^ (x - quotient * y)
        result = word(result + word((x % 2**32) * (y % 2**32) >> 32))
        result = word(result + word(x * y >> 7))
        result ^= word(x << 3) | (y >> 2)
        return word(result + min(x, y) - max(x, y) + abs(x))

    expected = np.array([one(int(x), int(y)) for x, y in zip(a, b, strict=True)])
    return Case({"x": a, "y": b, "z": _blank(a.shape, "i32")}, {"z": expected}, {"z": 0.0})


def conversions(problem: dict[str, Any]) -> Case:
    """Rounded to a narrow type, exactly; integers truncate."""
    x = (_random(1, (problem["n"],), "fp32") * np.float32(20)).clip(-120, 120)
    expected = np.trunc(x) if problem["dtype"] in ("i8", "i32") else x.astype(DTYPES[problem["dtype"]])
    return Case({"x": x, "y": _blank(x.shape, "fp32")}, {"y": expected.astype(np.float64)}, {"y": 0.0})


def functions(problem: dict[str, Any]) -> Case:
    """Elementary functions."""
    from math import erf

    x = np.random.default_rng(1).uniform(0.1, 6, problem["n"]).astype(np.float32)
    value = x.astype(np.float64)
    floor = np.floor(x * np.float32(3.7))
    rows = [np.exp(value), np.log(value), np.sqrt(value), np.sin(value), np.cos(value), np.vectorize(erf)(value),
            1 / np.sqrt(value), floor, 1 / value, 1 / (1 + np.exp(-value))]  # fmt: skip
    return Case({"x": x, "y": _blank((10, x.size), "fp32")}, {"y": np.stack(rows)}, {"y": 1e-5})


FAMILIES: dict[str, Callable[[dict[str, Any]], Case]] = {
    function.__name__: function
    for function in (
        matmul,
        scaled,
        attention,
        softmax,
        layer_norm,
        scan,
        sort,
        best,
        gather,
        atomics,
        transpose,
        copy,
        double,
        integers,
        conversions,
        functions,
    )
}
