"""Floating-point arithmetic (PTX ISA 9.7.3 to 9.7.5): f32, f64, f16, bf16 and their packed pairs.

16-bit values travel as bits and are computed in float32 or wider, then rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umma_jit.emulator.isa.registry import Operation, Unsupported, operation
from umma_jit.emulator.rounding import add_f32, as_float, flush, fma_f32, mul_f32, sum_to_odd, to_bits16

if TYPE_CHECKING:
    from collections.abc import Callable

    from umma_jit.emulator.nodes import Instruction

Array = NDArray[Any]
_MODES = ("rn", "rz", "rm", "rp")
_KINDS = ("f32", "f64", "f32x2", "f16", "bf16", "f16x2", "bf16x2")


def _parse(ins: Instruction, allowed: tuple[str, ...], kinds: tuple[str, ...] = _KINDS) -> tuple[str, str, bool, bool]:
    """(type, rounding mode, ftz, sat) of an instruction whose other modifiers must be among `allowed`."""
    kind = ins.parts[-1]
    rest = ins.parts[1:-1]
    mode = next((part for part in rest if part in _MODES), "rn")
    unknown = set(rest) - {*_MODES, "ftz", "sat", *allowed}
    if kind not in kinds or unknown:
        extra = f" and {', '.join(allowed)}" if allowed else ""
        raise Unsupported(f"{ins.parts[0]} on {', '.join(kinds)} with rn, rz, rm, rp, ftz, sat{extra}")
    return kind, mode, "ftz" in rest, "sat" in rest


def _saturate(x: Array) -> Array:
    """To [0, 1], NaN to 0."""
    return np.where(np.isnan(x), x.dtype.type(0), np.clip(x, 0, 1)).astype(x.dtype)


def _wrap(function: Callable[..., Array], *, ftz: bool, sat: bool) -> Callable[..., Array]:
    """Add flushing and saturation to a float32 function."""
    if not ftz and not sat:
        return function

    def run(*operands: Array) -> Array:
        result = function(*(flush(x) for x in operands)) if ftz else function(*operands)
        if ftz:
            result = flush(result)
        return _saturate(result) if sat else result

    return run


def _halves(x: Array) -> Array:
    """Packed pairs (n,) uint32 as bits (n, 2) uint16, low half first."""
    return np.ascontiguousarray(x).view(np.uint16).reshape(*np.shape(x), 2)


def _on_bits(
    function: Callable[..., Array], element: str, packed: bool, mode: str, ftz: bool, sat: bool, relu: bool
) -> Callable[..., Array]:
    """Lift a float64 function to 16-bit floats given as bits."""

    def run(*operands: Array) -> Array:
        bits = [_halves(x) if packed else np.asarray(x) for x in operands]
        values = [as_float(np.ascontiguousarray(x), element).astype(np.float64) for x in bits]
        if ftz and element == "f16":
            values = [np.where(np.abs(x) < 2.0**-14, np.copysign(0.0, x), x) for x in values]
        result = function(*values)
        if relu:
            result = np.where(result < 0, 0.0, result)
        if sat:
            result = _saturate(result)
        out = to_bits16(result, element, mode)
        return np.ascontiguousarray(out).view(np.uint32).reshape(-1) if packed else out

    return run


def _resolve(
    ins: Instruction,
    single: Callable[[str], Callable[..., Array]],
    exact: Callable[..., Array],
    count: int,
    allowed: tuple[str, ...] = (),
) -> Operation:
    """An arithmetic operation on any float type.

    `single` gives the float32 function for a rounding mode; `exact` computes in float64 (rounded to odd where inexact
    sums can be).
    """
    if ins.has("f32") and (ins.has("f16") or ins.has("bf16")):
        return _mixed(ins, single, count)
    kind, mode, ftz, sat = _parse(ins, allowed)
    if kind in ("f32", "f32x2"):
        return Operation(_wrap(single(mode), ftz=ftz, sat=sat), (kind,) * count, (kind,))
    if kind == "f64":
        if mode != "rn":
            raise Unsupported(f"{ins.parts[0]}.f64 with rn")
        return Operation(exact, (kind,) * count, (kind,))
    element = kind.removesuffix("x2")
    lifted = _on_bits(exact, element, kind.endswith("x2"), mode, ftz, sat, "relu" in ins.parts)
    return Operation(lifted, (kind,) * count, (kind,))


def _mixed(ins: Instruction, single: Callable[[str], Callable[..., Array]], count: int) -> Operation:
    """``add``, ``sub``, ``fma`` ``.f32.{f16,bf16}`` (9.7.5): all operands but the last are widened first, exactly."""
    narrow = "f16" if ins.has("f16") else "bf16"
    mode = next((part for part in ins.parts if part in _MODES), "rn")
    if set(ins.parts[1:]) - {*_MODES, "sat", "f32", narrow} or ins.parts[0] not in ("add", "sub", "fma"):
        raise Unsupported("add, sub and fma of .f32.{f16,bf16} with rn, rz, rm, rp, sat")
    function = _wrap(single(mode), ftz=False, sat=ins.has("sat"))

    def run(*operands: Array) -> Array:
        wide = [as_float(np.ascontiguousarray(x), narrow).astype(np.float32) for x in operands[:-1]]
        return function(*wide, operands[-1])

    return Operation(run, (*(narrow,) * (count - 1), "f32"), ("f32",))


_FLOATS = [*_KINDS]


def _prefixes(name: str) -> list[str]:
    return [f"{name}.{part}" for part in (*_MODES, "ftz", "sat", *_FLOATS)]


@operation(*(p for p in _prefixes("add") if p != "add.sat"))
def add(ins: Instruction) -> Operation:
    """``add``."""
    return _resolve(ins, lambda mode: lambda a, b: add_f32(a, b, mode), sum_to_odd_or_plain, 2)


@operation(*(p for p in _prefixes("sub") if p != "sub.sat"))
def sub(ins: Instruction) -> Operation:
    """``sub``."""
    return _resolve(
        ins, lambda mode: lambda a, b: add_f32(a, np.negative(b), mode), lambda a, b: sum_to_odd_or_plain(a, -b), 2
    )


@operation(*_prefixes("mul"))
def mul(ins: Instruction) -> Operation:
    """``mul``."""
    return _resolve(ins, lambda mode: lambda a, b: mul_f32(a, b, mode), lambda a, b: a * b, 2)


@operation(*_prefixes("fma"), "mad.rn", "mad.rz", "mad.ftz", "mad.f32", "mad.f64")
def fma(ins: Instruction) -> Operation:
    """``fma``."""
    if ins.parts[-1] == "f64":
        # Exact only if the product is: float64 offers nothing wider here.
        return Operation(lambda a, b, c: a * b + c, ("f64",) * 3, ("f64",))
    return _resolve(
        ins,
        lambda mode: lambda a, b, c: fma_f32(a, b, c, mode),
        lambda a, b, c: sum_to_odd(a * b, np.broadcast_to(c, np.shape(a * b))),
        3,
        ("relu",),
    )


def sum_to_odd_or_plain(a: Array, b: Array) -> Array:
    """The float64 sum: 16-bit operands are exact in it, so only rounding to 16 bits follows."""
    return a + b


def _sign_operation(name: str, on_bits: Callable[[Array, int], Array]) -> None:
    def resolve(ins: Instruction) -> Operation:
        kind, _, ftz, _ = _parse(ins, ())
        if kind in ("f32", "f32x2", "f64"):
            function: Any = np.negative if name == "neg" else np.abs
            return Operation(_wrap(function, ftz=ftz, sat=False) if kind != "f64" else function, (kind,), (kind,))
        mask = 0x80008000 if kind.endswith("x2") else 0x8000
        return Operation(lambda a: on_bits(a, mask), (kind,), (kind,))

    operation(*(f"{name}.{part}" for part in ("ftz", *_FLOATS)))(resolve)


_sign_operation("neg", lambda a, mask: a ^ a.dtype.type(mask))
_sign_operation("abs", lambda a, mask: a & ~a.dtype.type(mask))


@operation(*(f"{name}.{part}" for name in ("min", "max") for part in ("ftz", "NaN", "xorsign", *_FLOATS)))
def extreme(ins: Instruction) -> Operation:
    """``min``, ``max`` of two or three: NaN loses unless ``.NaN``."""
    kind, _, ftz, _ = _parse(ins, ("NaN", "xorsign", "abs"))
    if ins.has("xorsign") or kind == "f32x2":
        raise Unsupported(f"{ins.parts[0]} without .xorsign.abs")
    largest = ins.parts[0] == "max"
    keep_nan = ins.has("NaN")
    pick: Any = (np.maximum if keep_nan else np.fmax) if largest else (np.minimum if keep_nan else np.fmin)
    count = len(ins.operands) - 1
    if count == 2:
        function: Callable[..., Array] = pick
    elif count == 3 and kind == "f32":
        function = lambda a, b, c: pick(pick(a, b), c)  # noqa: E731
    else:
        raise Unsupported(f"{ins.parts[0]} of two operands, or of three f32")
    if kind == "f32":
        plain = not ftz and count == 2
        return Operation(_wrap(function, ftz=ftz, sat=False), (kind,) * count, (kind,), ufunc=plain)
    if kind == "f64":
        return Operation(function, (kind,) * count, (kind,))
    return Operation(
        _on_bits(function, kind.removesuffix("x2"), kind.endswith("x2"), "rn", ftz, False, False),
        (kind,) * count,
        (kind,),
    )


@operation("copysign")
def copysign(ins: Instruction) -> Operation:
    """``copysign d, a, b``: the sign of a on b."""
    kind = ins.parts[-1]
    if kind not in ("f32", "f64"):
        raise Unsupported("copysign.f32, copysign.f64")
    return Operation(lambda a, b: np.copysign(b, a), (kind, kind), (kind,))


@operation(*(f"div.{part}" for part in ("full", "approx", *_MODES, "f64")))
def div(ins: Instruction) -> Operation:
    """``div``: approximate forms are computed exactly, which is within their error."""
    kind, mode, ftz, _ = _parse(ins, ("full", "approx"), ("f32", "f64"))
    if kind == "f64":
        return Operation(np.divide, (kind, kind), (kind,))
    if mode != "rn":
        raise Unsupported("div.f32 with rn, approx, full")
    return Operation(_wrap(np.divide, ftz=ftz, sat=False), (kind, kind), (kind,))


def _unary(name: str, function: Callable[[Array], Array], *modifiers: str) -> None:
    """An approximate or rounded function of one operand, computed in float64 and rounded once."""

    def resolve(ins: Instruction) -> Operation:
        kind, mode, ftz, _ = _parse(ins, ("approx",), ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"))
        if mode != "rn":
            raise Unsupported(f"{name} with rn or approx")
        if kind == "f64":
            return Operation(function, (kind,), (kind,))
        if kind == "f32":
            single = lambda a: function(a.astype(np.float64)).astype(np.float32)  # noqa: E731
            return Operation(_wrap(single, ftz=ftz, sat=False), (kind,), (kind,))
        return Operation(
            _on_bits(function, kind.removesuffix("x2"), kind.endswith("x2"), "rn", ftz, False, False), (kind,), (kind,)
        )

    operation(*(f"{name}.{modifier}" for modifier in modifiers))(resolve)


_unary("rcp", lambda a: 1.0 / a, "approx", "rn")
_unary("sqrt", np.sqrt, "approx", "rn")
_unary("rsqrt", lambda a: 1.0 / np.sqrt(a), "approx")
_unary("sin", np.sin, "approx")
_unary("cos", np.cos, "approx")
_unary("lg2", np.log2, "approx")
_unary("tanh", np.tanh, "approx")
_unary("ex2", np.exp2, "approx", "ftz")


@operation("testp")
def testp(ins: Instruction) -> Operation:
    """``testp.{finite,infinite,number,notanumber,normal,subnormal}``."""
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
    }
    kind = ins.parts[-1]
    if len(ins.parts) != 3 or ins.parts[1] not in tests or kind not in ("f32", "f64"):
        raise Unsupported(f"testp.{{{','.join(tests)}}}.{{f32,f64}}")
    return Operation(tests[ins.parts[1]], (kind,), ("pred",))
