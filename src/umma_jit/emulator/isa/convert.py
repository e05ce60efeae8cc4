"""``cvt`` (PTX ISA 9.7.9.21): between integers, floats and packed narrow floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from umma_jit.emulator.isa.registry import Operation, Unsupported, operation
from umma_jit.emulator.rounding import as_float, flush, to_bits16, to_f32

if TYPE_CHECKING:
    from collections.abc import Callable

    from umma_jit.emulator.nodes import Instruction

Array = NDArray[Any]

_INTEGERS = {f"{letter}{bits}" for letter in "us" for bits in (8, 16, 32, 64)}
_FLOATS = {"f16", "bf16", "f32", "f64", "tf32"}
_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_MODES = ("rn", "rz", "rm", "rp", "rna")
_NARROW: dict[str, Any] = {
    "e4m3x2": ml_dtypes.float8_e4m3fn,
    "e5m2x2": ml_dtypes.float8_e5m2,
}
_FLAGS = {"sat", "ftz", "relu", "satfinite", *_MODES, *_TO_INTEGER}


@operation("cvt")
def cvt(ins: Instruction) -> Operation:
    """``cvt{.rounding}{.ftz}{.sat|.satfinite}{.relu}.dtype.stype``."""
    target, source = ins.parts[-2], ins.parts[-1]
    flags = set(ins.parts[1:-2])
    unknown = flags - _FLAGS
    if unknown:
        raise Unsupported(f"cvt with {', '.join(sorted(_FLAGS))}; not {', '.join(sorted(unknown))}")
    if target in ("f16x2", "bf16x2") and source == "f32":
        return _pair_of_halves(target, flags)
    if target in _NARROW:
        return _to_narrow(target, source, flags)
    if source in _NARROW and target == "f16x2":
        return _from_narrow(source, flags)
    if source in _INTEGERS and target in _INTEGERS:
        return _integer_to_integer(target, source, "sat" in flags)
    if source in _INTEGERS and target in _FLOATS - {"tf32"}:
        return _integer_to_float(target, source, flags)
    if source in _FLOATS - {"tf32"} and target in _INTEGERS:
        return _float_to_integer(target, source, flags)
    if source in _FLOATS - {"tf32"} and target in _FLOATS:
        return _float_to_float(target, source, flags)
    raise Unsupported("cvt between integers, f16, bf16, tf32, f32, f64, and pairs f16x2, bf16x2, e4m3x2, e5m2x2")


@operation("cvt.pack")
def cvt_pack(ins: Instruction) -> Operation:
    """Refused: no compiler seen here emits it."""
    raise Unsupported("cvt without .pack")


def _dtype(kind: str) -> Any:
    return np.dtype(("int" if kind[0] == "s" else "uint") + kind[1:])


def _mode(flags: set[str]) -> str:
    return next((flag for flag in flags if flag in _MODES), "rn")


def _integer_to_integer(target: str, source: str, saturate: bool) -> Operation:
    dtype = _dtype(target)
    if not saturate:
        return Operation(lambda a: a.astype(dtype), (source,), (target,))
    info = np.iinfo(dtype)

    def run(a: Array) -> Array:
        have = np.iinfo(a.dtype)
        low, high = max(info.min, have.min), min(info.max, have.max)
        return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(dtype)

    return Operation(run, (source,), (target,))


def _integer_to_float(target: str, source: str, flags: set[str]) -> Operation:
    mode = _mode(flags)
    if target == "f64":
        return Operation(lambda a: a.astype(np.float64), (source,), (target,))
    if target == "f32":
        if mode == "rn":
            return Operation(lambda a: a.astype(np.float32), (source,), (target,))
        return Operation(lambda a: to_f32(a.astype(np.float64), mode), (source,), (target,))
    return Operation(lambda a: to_bits16(a.astype(np.float64), target, mode), (source,), (target,))


def _wide(a: Array, kind: str) -> Array:
    """A float source as float64."""
    if kind in ("f16", "bf16"):
        return as_float(np.ascontiguousarray(a), kind).astype(np.float64)
    return a.astype(np.float64)


def _float_to_integer(target: str, source: str, flags: set[str]) -> Operation:
    rounding = next((_TO_INTEGER[flag] for flag in flags if flag in _TO_INTEGER), np.trunc)
    dtype = _dtype(target)
    info = np.iinfo(dtype)
    ftz = "ftz" in flags

    def run(a: Array) -> Array:
        value = rounding(_wide(flush(a) if ftz and source == "f32" else a, source))
        # Out of range gives the nearest value; NaN gives 0, or the top bit for 64-bit results.
        nan = np.isnan(value)
        value = np.where(nan, 0.0, value)
        high = value >= float(info.max)
        low = value <= float(info.min)
        result = np.where(high | low, 0.0, value).astype(dtype)
        result = np.where(high, dtype.type(info.max), np.where(low, dtype.type(info.min), result))
        if dtype.itemsize == 8:
            top = np.array(1 << 63, np.uint64).view(dtype)
            result = np.where(nan, top, result)
        return result.astype(dtype)

    return Operation(run, (source,), (target,))


def _float_to_float(target: str, source: str, flags: set[str]) -> Operation:
    mode = _mode(flags)
    ftz = "ftz" in flags
    integral = next((_TO_INTEGER[flag] for flag in flags if flag in _TO_INTEGER), None)
    saturate = "sat" in flags
    relu = "relu" in flags

    def run(a: Array) -> Array:
        value = _wide(flush(a) if ftz and source == "f32" else a, source)
        if integral is not None:
            value = integral(value)
        if saturate:
            value = np.where(np.isnan(value), 0.0, np.clip(value, 0.0, 1.0))
        if relu:
            value = np.where(value < 0, 0.0, value)
        if target in ("f16", "bf16"):
            if "satfinite" in flags:
                value = _clip_finite(value, target)
            return to_bits16(value, target, mode)
        if target == "tf32":
            return _to_tf32(value, mode)
        if target == "f64":
            return value
        result = to_f32(value, mode)
        return flush(result) if ftz else result

    return Operation(run, (source,), (target,))


def _clip_finite(value: Array, kind: str) -> Array:
    limit = 65504.0 if kind == "f16" else float.fromhex("0x1.fep127")
    return np.where(np.isnan(value), value, np.clip(value, -limit, limit))


def _to_tf32(value: Array, mode: str) -> Array:
    """10 mantissa bits; rn to even, rna to the larger magnitude on a tie, rz down in magnitude."""
    bits = value.astype(np.float32).view(np.uint32)
    if mode == "rna":
        bits = bits + np.uint32(0x1000)
    elif mode == "rn":
        bits = bits + np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    bits = np.where(np.isfinite(value), bits & np.uint32(0xFFFFE000), value.astype(np.float32).view(np.uint32))
    return bits.view(np.float32)


def _pair_of_halves(target: str, flags: set[str]) -> Operation:
    """``cvt.rn.{b}f16x2.f32 d, a, b``: a becomes the upper half."""
    element = target.removesuffix("x2")
    mode = _mode(flags)
    relu = "relu" in flags
    finite = "satfinite" in flags
    if element == "bf16" and mode == "rn" and not relu and not finite:

        def bfloat(a: Array, b: Array) -> Array:
            # A literal is 0-d and broadcasts below.
            high = np.asarray(a).astype(ml_dtypes.bfloat16).view(np.uint16)
            low = np.asarray(b).astype(ml_dtypes.bfloat16).view(np.uint16)
            result: Array = high.astype(np.uint32) << np.uint32(16) | low
            return result

        return Operation(bfloat, ("f32", "f32"), (target,))

    def run(a: Array, b: Array) -> Array:
        halves = []
        for x in np.broadcast_arrays(a, b):
            value = x
            if relu:
                value = np.where(value < 0, np.float32(0), value)
            if finite:
                value = _clip_finite(value, element)
            halves.append(to_bits16(value, element, mode).astype(np.uint32))
        result: Array = halves[0] << np.uint32(16) | halves[1]
        return result

    return Operation(run, ("f32", "f32"), (target,))


def _to_narrow(target: str, source: str, flags: set[str]) -> Operation:
    """``cvt.rn.satfinite.{e4m3,e5m2}x2.{f32,f16x2,bf16x2}``: two bytes, a in the upper one."""
    kind = _NARROW[target]
    relu = "relu" in flags
    if source not in ("f32", "f16x2", "bf16x2") or "satfinite" not in flags:
        raise Unsupported(f"cvt.rn.satfinite.{target} from f32, f16x2, bf16x2")
    limit = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]

    def byte(x: Array) -> Array:
        value = np.asarray(x, np.float32)
        if relu:
            value = np.where(value < 0, np.float32(0), value)
        value = np.where(np.isnan(value), value, np.clip(value, -limit, limit))
        return value.astype(kind).view(np.uint8).astype(np.uint16)

    if source == "f32":
        return Operation(lambda a, b: byte(a) << np.uint16(8) | byte(b), ("f32", "f32"), ("b16",))
    element = source.removesuffix("x2")

    def packed(a: Array) -> Array:
        halves = as_float(np.ascontiguousarray(a).view(np.uint16), element).reshape(-1, 2)
        result: Array = byte(halves[:, 1]) << np.uint16(8) | byte(halves[:, 0])
        return result

    return Operation(packed, ("b32",), ("b16",))


def _from_narrow(source: str, flags: set[str]) -> Operation:
    """``cvt.rn.f16x2.{e4m3,e5m2}x2``."""
    kind = _NARROW[source]
    relu = "relu" in flags

    def run(a: Array) -> Array:
        values = np.ascontiguousarray(a).view(np.uint8).view(kind).astype(np.float16).reshape(-1, 2)
        if relu:
            values = np.where(values < 0, np.float16(0), values)
        return np.ascontiguousarray(values).view(np.uint32).reshape(-1)

    return Operation(run, ("b16",), ("f16x2",))
